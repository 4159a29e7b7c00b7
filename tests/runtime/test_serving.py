"""How a plan is served, stage by stage, and what the track of it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval.runtime.loop import MeasuredEpoch, Stage, served
from loadeval.runtime.recorder import OpenEpoch
from loadeval.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from loadeval.runlog.model import EpochEnd


class Kept:
    """What a keeper is told."""

    origin_ns = 0

    def __init__(self) -> None:
        self.ends: list[EpochEnd] = []
        self.notes: list[str] = []

    def started(self) -> None: ...
    def chunk_filled(self, track: OpenEpoch) -> None: ...

    def note(self, message: str) -> None:
        self.notes.append(message)

    def epoch_ended(self, _: OpenEpoch, end: EpochEnd) -> None:
        self.ends.append(end)


class Planned:
    """Stages that are given; what follows them is `left`."""

    def __init__(self, *stages: Stage) -> None:
        self.rest: Iterator[Any] | None = None
        self.asked_ns: int | None = None
        self._stages = stages

    def stages(self, _epoch: int) -> Generator[Stage, None, None]:
        yield from self._stages

    def remainder(self) -> Iterator[Any]:
        raise NotImplementedError


def test_what_a_stage_did_not_have_is_waited_for_until_the_next_one_has_it() -> None:
    """Also where something else is done between them: that belongs to the wait."""
    kept: Any = Kept()
    clock = FakeClock()

    def slow(batch: str, ns: int) -> Iterator[str]:
        clock.advance(ns)
        yield batch

    track = OpenEpoch(kept, 0)
    stages = Stage(slow("a", 5), 2), Stage(slow("b", 30), 1)
    batches = served(Planned(*stages), iter(()), lambda: track, lambda _: None, clock, None)
    assert list(batches) == ["a", "b"]
    assert [block.wait_ns.tolist() for block in track.take()] == [[5], [30]]
    assert [end.cause for end in kept.ends] == ["exhausted"]
    track.end_failed()  # it did not fail
    assert len(kept.ends) == 1


def test_an_epoch_that_is_being_made_has_no_attributes() -> None:
    """As when it is copied: asking for one does not ask for ever."""
    with pytest.raises(AttributeError, match="_source"):
        _ = MeasuredEpoch().anything
