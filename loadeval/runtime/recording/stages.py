"""How a loader is looked into while it is measured; each adapter knows its own loaders."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from loadeval.data.lines import Event, EventKind, decode, encode, since
from loadeval.runtime.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.data.lines import CodeSamples, OperatorTimes, Readings, StageTimes, WorkerStart

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

    It may have a method `look(on: bool)`, which is called between two batches: called with False,
    nothing in the loader is timed until it is called with True. An alternating run looks inside in
    some of its blocks alone, for that takes time.
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
        self._notes: deque[StageNote] = deque()
        self._guard = Guard(self._give_up)
        with self._guard:
            self._stages = inside()

    def begin(self, loader: Any) -> Callable[[int], object]:
        """See LoaderStages; the function that it returns does not raise."""
        if self._stages is not None and self._open:
            with self._guard:
                return self._guarded(self._stages.begin(loader))
        return _ignore

    @property
    def can_pause(self) -> bool:
        """Whether looking can be paused, and goes on."""
        return self._open and hasattr(self._stages, "look")

    def look(self, on: bool) -> None:
        """See LoaderStages."""
        if self.can_pause:
            with self._guard:
                self._stages.look(on)  # type: ignore[union-attr]  # it has one

    def take(self) -> list[StageLine]:
        """What was found since the last call; its moments count from when this was made."""
        stages, taken = self._stages, None
        if stages is not None:
            with self._guard:
                taken = [self._line(data) for data in stages.take()]
            if taken is None:
                self._stages = None
        lines = taken or []
        while self._notes:
            lines.append(self._line(self._notes.popleft()))
        return lines

    def close(self) -> None:
        """Leave the loader as it was; what was found until now can still be taken."""
        was_open, self._open = self._open, False
        if was_open and self._stages is not None:
            with self._guard:
                self._stages.close()

    def _guarded(self, number_callback: Callable[[int], object]) -> Callable[[int], object]:
        def call(epoch: int) -> None:
            if self._open:
                with self._guard:
                    number_callback(epoch)

        return call

    def _line(self, data: StageData | StageNote) -> StageLine:
        """A line of the run log. Raises RunLogError for one that would make it unreadable."""
        if isinstance(data, StageNote):
            return Event(time.perf_counter_ns() - self._origin_ns, data.message, data.kind)
        line = since(data, self._origin_ns)
        decode(encode(line))
        return line

    def _give_up(self, error: Exception) -> None:
        self._notes.append(
            StageNote(f"the loader is not looked into any more ({type(error).__name__}: {error})")
        )
        self.close()


def _ignore(_epoch: int) -> None:
    """Nobody looks into this loader."""
