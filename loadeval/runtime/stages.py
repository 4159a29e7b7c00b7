"""How a loader is looked into while it is measured; each adapter knows its own loaders."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from loadeval.runlog.model import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.runlog.model import EventKind, Readings
    from loadeval.runlog.stages import CodeSamples, OperatorTimes, StageTimes, WorkerStart

    Found: TypeAlias = StageTimes | WorkerStart | CodeSamples | OperatorTimes | Readings


@dataclass(frozen=True, slots=True)
class StageNote:
    """What should be known of looking into a loader: what is missing and why, who died."""

    message: str
    kind: EventKind = "stages missing"


class LoaderStages(Protocol):
    """Times what happens inside one loader. All moments are of `time.perf_counter_ns`.

    What raises here ends looking into the loader, and nothing else.
    """

    def begin(self, loader: Any) -> Callable[[int], object]:
        """An epoch of `loader` begins with the next call of the adapter's `epoch`.

        The function that it returns is called with the epoch's number once its first batch is
        asked for, which may never be.
        """

    def take(self) -> Sequence[Found | StageNote]:
        """What was found since the last call, of epochs whose number is known.

        Called now and then, by one thread at a time, also after `close`.
        """

    def close(self) -> None:
        """Leave the loader as it was, from its next epoch on."""


class StageRecorder:
    """Asks a LoaderStages what it found, until it raises; None is for a loader not looked into."""

    def __init__(self, stages: LoaderStages | None) -> None:
        self._stages = stages
        self._origin_ns = time.perf_counter_ns()
        self._failure: StageNote | None = None

    def begin(self, loader: Any) -> Callable[[int], object]:
        """See LoaderStages; the function that it returns does not raise."""
        if self._stages is None:
            return _ignore
        try:
            return self._guarded(self._stages.begin(loader))
        except Exception as error:  # noqa: BLE001 - looking into a loader may not end a training
            self._failed(error)
            return _ignore

    def take(self) -> list[Found | Event]:
        """What was found since the last call; its moments count from when this was made."""
        notes = [] if self._failure is None else [self._failure]
        self._failure = None
        found: list[Found | StageNote] = [*notes]
        if self._stages is not None:
            try:
                found += self._stages.take()
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(error)
        now_ns = time.perf_counter_ns() - self._origin_ns
        return [
            Event(now_ns, one.message, one.kind)
            if isinstance(one, StageNote)
            else one.since(self._origin_ns)
            for one in found
        ]

    def close(self) -> None:
        """Leave the loader as it was."""
        if self._stages is not None:
            try:
                self._stages.close()
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(error)

    def _guarded(self, begun: Callable[[int], object]) -> Callable[[int], object]:
        def known(epoch: int) -> None:
            try:
                begun(epoch)
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(error)

        return known

    def _failed(self, error: Exception) -> None:
        stages, self._stages = self._stages, None
        self._failure = StageNote(
            f"the loader is not looked into any more ({type(error).__name__}: {error})"
        )
        if stages is not None:
            StageRecorder(stages).close()


def _ignore(_epoch: int) -> None:
    """Nobody looks into this loader."""
