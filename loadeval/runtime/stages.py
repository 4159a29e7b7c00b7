"""How a loader is looked into while it is measured; each adapter knows its own loaders."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from loadeval.runlog.codec import check_readable
from loadeval.runlog.model import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.runlog.model import Readings
    from loadeval.runlog.stages import CodeSamples, OperatorTimes, StageTimes, WorkerStart

    StageData: TypeAlias = StageTimes | WorkerStart | CodeSamples | OperatorTimes | Readings
    StageLine: TypeAlias = StageData | Event


@dataclass(frozen=True, slots=True)
class StageNote:
    """What should be known of looking into a loader: what is missing and why, who died."""

    message: str
    kind: EventKind = "stages missing"


class LoaderStages(Protocol):
    """Times what happens inside one loader. All moments are of `time.perf_counter_ns`.

    What raises here ends looking into the loader, and nothing else. `take` may run in one thread
    while another one begins an epoch.
    """

    def begin(self, loader: Any) -> Callable[[int], object]:
        """An epoch of `loader` begins with the next call of the adapter's `epoch`.

        The function that it returns is called with the epoch's number once its first batch is
        asked for, which may never be.
        """

    def take(
        self,
    ) -> Sequence[StageTimes | WorkerStart | CodeSamples | OperatorTimes | Readings | StageNote]:
        """What was found since the last call, of epochs whose number is known.

        Called now and then, by one thread at a time, also after `close`.
        """

    def close(self) -> None:
        """Leave the loader as it was, from its next epoch on. Called once."""


class StageRecorder:
    """Asks a LoaderStages what it found, and closes it once it raises.

    `inside` makes it; None is for a loader that cannot be looked into.
    """

    def __init__(self, inside: Callable[[], LoaderStages | None]) -> None:
        self._origin_ns = time.perf_counter_ns()
        self._stages: LoaderStages | None = None
        self._open = True
        self._has_failed = False
        self._notes: deque[StageNote] = deque()
        try:
            self._stages = inside()
        except Exception as error:  # noqa: BLE001 - looking into a loader may not end a training
            self._failed(error)

    def begin(self, loader: Any) -> Callable[[int], object]:
        """See LoaderStages; the function that it returns does not raise."""
        if self._stages is None or not self._open:
            return _ignore
        try:
            return self._guarded(self._stages.begin(loader))
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error)
            return _ignore

    def take(self) -> list[StageLine]:
        """What was found since the last call; its moments count from when this was made."""
        found: list[StageLine] = []
        if self._stages is not None:
            try:
                found += [self._line(one) for one in self._stages.take()]
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(error)
                self._stages = None
        while self._notes:
            found.append(self._line(self._notes.popleft()))
        return found

    def close(self) -> None:
        """Leave the loader as it was; what was found until now can still be taken."""
        was_open, self._open = self._open, False
        if was_open and self._stages is not None:
            try:
                self._stages.close()
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(error)

    def _guarded(self, begun: Callable[[int], object]) -> Callable[[int], object]:
        def known(epoch: int) -> None:
            if self._open:
                try:
                    begun(epoch)
                except Exception as error:  # noqa: BLE001 - as above
                    self._failed(error)

        return known

    def _line(self, one: StageData | StageNote) -> StageLine:
        """A line of the run log. Raises RunLogError for one that would make it unreadable."""
        if isinstance(one, StageNote):
            return Event(time.perf_counter_ns() - self._origin_ns, one.message, one.kind)
        line = one.since(self._origin_ns)
        check_readable(line)
        return line

    def _failed(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._notes.append(
                StageNote(
                    f"the loader is not looked into any more ({type(error).__name__}: {error})"
                )
            )
        self.close()


def _ignore(_epoch: int) -> None:
    """Nobody looks into this loader."""
