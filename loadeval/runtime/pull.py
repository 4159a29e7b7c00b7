"""Taking batches from a loader ahead of their time: the loader-only pace, and free loading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loadeval.runlog.model import Pull

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterator

    from loadeval.runlog.model import LoaderInfo
    from loadeval.runtime.adapter import Adapter
    from loadeval.runtime.counting import Counter


@dataclass(frozen=True, slots=True)
class Pulled:
    """How many batches were pulled, how long that took, and why there were no more of them.

    `error` is what the loader raised after them, `exhausted` that its epoch is over, and
    `full` that more of them would not have fitted.
    """

    fact: Pull
    error: Exception | None = None
    exhausted: bool = False
    full: bool = False


def failing(error: Exception) -> Iterator[Any]:
    """An iterator that raises `error` when it is asked for a batch."""
    yield from _raised(error)


def _raised(error: Exception) -> Iterator[Any]:
    raise error


def handed_out(batches: deque[Any]) -> Iterator[Any]:
    """The batches in order; none is held any longer once it is handed out."""
    while batches:
        yield batches.popleft()


class Puller:
    """Pulls batches back to back, and times those that the loader cannot have prefetched."""

    def __init__(
        self,
        adapter: Adapter,
        counter: Counter,
        clock: Callable[[], int],
        info: LoaderInfo,
        max_bytes: int,
    ) -> None:
        self._adapter = adapter
        self._counter = counter
        self._clock = clock
        self.prefetched = info.prefetch_depth or 0
        # Workers go on loading while a batch is copied; a loader without them waits.
        self._loads_meanwhile = bool(info.workers)
        self._max_bytes = max_bytes

    def pull(
        self, source: Iterator[Any], wanted: int, pair: int, epoch: int, held: deque[Any]
    ) -> Pulled:
        """Add the next `wanted` batches of `source` to `held`, or as many as there are, and fit.

        They are copies in memory of their own.
        """
        pulled = 0
        ends: dict[str, Any] = {}
        longest_ns: int | None = None
        timed = elapsed_ns = samples = total_bytes = 0
        while pulled < wanted and not ends:
            asked = self._clock()
            try:
                batch = next(source)
            except StopIteration:
                ends["exhausted"] = True
                break
            except Exception as error:  # noqa: BLE001 - raised again, in its turn
                ends["error"] = error
                break
            delivered = self._clock()
            longest_ns = max(longest_ns or 0, delivered - asked)
            held.append(self._adapter.keep(batch))
            pulled += 1
            count, nbytes = self._counter.count(batch)
            del batch
            if pulled > self.prefetched:
                timed += 1
                elapsed_ns += (self._clock() if self._loads_meanwhile else delivered) - asked
                samples = count + samples if min(count, samples) >= 0 else -1
            total_bytes += max(nbytes, 0)
            if total_bytes + max(nbytes, 0) > self._max_bytes:
                ends["full"] = True
        known = samples if timed and samples >= 0 else None
        return Pulled(Pull(pair, epoch, pulled, timed, elapsed_ns, known, longest_ns), **ends)
