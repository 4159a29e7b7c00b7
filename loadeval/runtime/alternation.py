"""Both arms in one run: blocks of real loading, and of batches pulled ahead of their time."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from loadeval.runlog.model import Window
from loadeval.runtime.pull import failing, handed_out
from loadeval.runtime.stage import Stage, going_on

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from loadeval.runlog.model import Arm, LoaderInfo, Pull
    from loadeval.runtime.progress import Progress
    from loadeval.runtime.pull import Pulled, Puller
    from loadeval.runtime.quiet import Background
    from loadeval.runtime.recording import Recording
    from loadeval.runtime.schedule import Segment

REORDERED = (
    "mode='alternate' reads batches ahead of training: each is served once, but their order "
    "changes by a few places, and losses with it. Use mode='log' where that matters"
)
DRAWN_EARLIER = (
    "mode='alternate' reads batches ahead of training: each is served once, in order. But where "
    "the dataset and the training step draw from one random generator, for crops and for dropout "
    "say, they draw other numbers. Use mode='log' where that matters"
)
LONGEST_QUIET_S = 5.0
"""How long a training step waits, at most, for the loader's background work to end."""


def tell_changes(info: LoaderInfo) -> None:
    """Say what an alternating run changes of a training with a loader like this.

    Logged and not warned of: nothing is wrong, and a warning that is an error would end it.
    """
    logging.getLogger("loadeval").warning(REORDERED if info.prefetch_depth else DRAWN_EARLIER)


class Alternation:
    """What all epochs of an alternating run share."""

    def __init__(
        self,
        progress: Progress,
        puller: Puller,
        background: Background | None,
        fence: Callable[[], None],
        clock: Callable[[], int],
        recording: Recording,
    ) -> None:
        self.progress = progress
        self.puller = puller
        self.background = background
        self.fence = fence
        self.clock = clock
        self.keep = recording.keep
        self.mark = recording.mark

    def workers_cpu_ns(self) -> int | None:
        """CPU time of the workers so far; None where there can be none, or it is unreadable."""
        return None if self.background is None else self.background.workers_cpu_ns()

    def wait_until_idle(self, pull: Pull) -> None:
        """Wait until the loader has filled its queue, for twice the time that it should take."""
        if self.background is not None:
            each_s = pull.elapsed_ns / pull.timed / 1e9 if pull.timed else 0.0
            self.background.wait_until_idle(min(0.2 + 2 * pull.batches * each_s, LONGEST_QUIET_S))


class AlternatingEpoch:
    """One epoch of an alternating run: every batch is served once.

    An ideal block leaves the loader's queue full, and a full queue hides for many batches that
    the loader is too slow. So a real block begins by taking what is in the queue, which is
    `held` and served in the next ideal block: the order of batches changes by a few places.
    They come before an exception that was raised after them. `queue_is_full` tells that the
    loader had filled it before the epoch began.
    """

    def __init__(
        self,
        shared: Alternation,
        source: Iterator[Any],
        opened_ns: int,
        queue_is_full: bool = False,
    ) -> None:
        self.rest: Iterator[Any] | None = None
        self._shared = shared
        self._held: deque[Any] = deque()
        self._source = source
        reads_ahead = bool(shared.puller.prefetched)
        self._in_order = _with_held_before_errors(source, self._held) if reads_ahead else source
        self._opened_ns = opened_ns
        self._epoch = 0
        self._queue_is_full = queue_is_full
        self.asked_ns: int | None = None
        self._over = False

    def stages(self, epoch: int) -> Generator[Stage, None, None]:
        """See Plan. The epoch's first batch, its start-up, belongs to no block."""
        self._epoch = epoch
        progress = self._shared.progress
        self.asked_ns = self._shared.clock() - self._opened_ns
        yield from self._uncounted(self._in_order, 1, "real")
        while not self._over:
            segment = progress.segment
            if segment is None:
                self.rest = self.remainder()
                return
            yield from self._ideal(segment) if segment.arm == "ideal" else self._real(segment)
        yield from self._uncounted_held()

    def remainder(self) -> Iterator[Any]:
        """See Plan."""
        return chain(handed_out(self._held), self._source)

    def _real(self, segment: Segment) -> Iterator[Stage]:
        if self._queue_is_full:
            yield from self._empty_queue(segment)
        if not self._over:
            yield from self._uncounted(self._in_order, segment.washout, "real")
        if not self._over:
            yield from self._counted(segment, self._in_order, self._shared.progress.left)

    def _empty_queue(self, segment: Segment) -> Iterator[Stage]:
        pulled = self._pull(self._shared.puller.prefetched, segment)
        self._queue_is_full = False
        yield from self._ended_by(pulled)

    def _ideal(self, segment: Segment) -> Iterator[Stage]:
        shared = self._shared
        pulled = self._pull(segment.washout + shared.progress.left - len(self._held), segment)
        shared.wait_until_idle(pulled.fact)
        self._queue_is_full = bool(shared.puller.prefetched)
        count = min(len(self._held), segment.washout + shared.progress.left)
        # Where memory bounds the pull, a wash-out must leave something to count.
        washout = min(segment.washout, count // 2 if pulled.full else count)
        batches = handed_out(self._held)
        yield from self._uncounted(batches, washout, "ideal")
        if count > washout:
            yield from self._counted(segment, batches, count - washout)
        yield from self._ended_by(pulled)

    def _pull(self, wanted: int, segment: Segment) -> Pulled:
        pulled = self._shared.puller.pull(
            self._source, wanted, segment.pair, self._epoch, self._held
        )
        self._shared.keep(pulled.fact)
        return pulled

    def _ended_by(self, pulled: Pulled) -> Iterator[Stage]:
        if pulled.error is not None:
            yield from self._uncounted_held()
            yield from self._uncounted(failing(pulled.error), 1, "real")
        self._over = pulled.exhausted

    def _uncounted_held(self) -> Iterator[Stage]:
        return self._uncounted(handed_out(self._held), len(self._held), "ideal")

    def _uncounted(self, source: Iterator[Any], size: int, arm: Arm) -> Iterator[Stage]:
        """Batches between blocks; what was done since they were asked for is part of their wait.

        So that what loadeval does there, and the loader at its epoch's end, is in no step.
        """
        stage = Stage(source, size, arm, since_ns=self.asked_ns)
        yield stage
        self.asked_ns = stage.asked_ns
        self._shared.progress.pass_by(stage.served)
        self._over = stage.fell_short

    def _counted(self, segment: Segment, source: Iterator[Any], size: int) -> Iterator[Stage]:
        shared = self._shared
        shared.mark()
        shared.fence()
        cpu_ns = shared.workers_cpu_ns()
        began_ns = shared.clock()
        stage = Stage(source, size, segment.arm, segment.pair, began_ns)
        ended_ns = began_ns
        try:
            yield stage
            reached_ns = shared.clock()
            shared.fence()
            # An epoch's end takes its time, to stop workers for one: no step's, nor a block's.
            over_ns = stage.asked_ns if stage.fell_short else reached_ns
            ended_ns = over_ns + shared.clock() - reached_ns
        finally:
            shared.progress.advance(stage.served, ended_ns - began_ns)
        shared.mark()
        self.asked_ns = ended_ns
        self._over = stage.fell_short
        now_ns = shared.workers_cpu_ns()
        used_ns = None if cpu_ns is None or now_ns is None else max(now_ns - cpu_ns, 0)
        window = Window(segment.pair, self._epoch, segment.arm, ended_ns - began_ns, used_ns)
        shared.keep(window)


def _with_held_before_errors(source: Iterator[Any], held: deque[Any]) -> Iterator[Any]:
    # No method: a cycle would keep the loader's workers alive after an epoch was broken off.
    return going_on(partial(_until_error, source, held))


def _until_error(source: Iterator[Any], held: deque[Any]) -> Iterator[Any]:
    while True:
        try:
            batch = next(source)
        except StopIteration:
            return
        except Exception:
            yield from handed_out(held)
            raise
        yield batch
