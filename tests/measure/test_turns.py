"""The turns of one backend: what is served, what counts, and what becomes of errors."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import Backend, IterableAdapter, LoaderInfo, RunLogError, read_run
from loadeval.runlog.model import ARMS, UNKNOWN
from loadeval.runtime import registry
from loadeval.runtime.backends import FAILURE, BackendRun, Source, in_words, split_into_blocks
from loadeval.runtime.settings import Settings
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loadeval import Run

LOAD_NS, STEP_NS = 15, 10


class Idle(ScriptedLoader):
    """A loader without workers, so that nobody naps for them."""

    prefetched = ready = closed = 0


class IdleAdapter(IterableAdapter):
    def describe(self, loader: Any) -> LoaderInfo:
        depth, ready = loader.prefetched, loader.ready
        return LoaderInfo("Idle", workers=0, prefetch_depth=depth, ready_batches=ready)

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        super().release(loader, epoch)
        loader.closed += 1


@pytest.fixture(autouse=True)
def _adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(__name__, f"{__name__}:IdleAdapter", registry.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _: IdleAdapter)
    monkeypatch.setattr(registry, "registered", lambda: {__name__: point})


def settings_of(clock: FakeClock, rounds: int, batches: int) -> Settings:
    return Settings(
        mode="alternate",
        samples=None,
        unit="images",
        max_cache_bytes=10**9,
        name="scripted",
        overwrite=False,
        pairs=rounds,
        batches=batches,
        seed=0,
        clock=clock,
    )


class Stand:
    """A backend of `batches`, and a training step of 10 ns."""

    def __init__(
        self,
        batches: list[Any],
        *,
        rounds: int = 3,
        counted: int = 24,
        prefetched: int = 0,
        ready: int = 0,
        log_file: Path | None = None,
    ) -> None:
        self.clock = FakeClock(1000)
        self.loader = Idle(batches, [LOAD_NS] * len(batches), self.clock)
        self.loader.prefetched, self.loader.ready = prefetched, ready
        self.source = source = Source(Backend(self.loader))
        settings = replace(settings_of(self.clock, rounds, counted), log_file=log_file)
        info = IdleAdapter().describe(self.loader)
        self.turns = BackendRun(source, info, settings, "comparison")

    def train(self, number: int) -> list[Any]:
        served = []
        for batch in self.turns.serve_round(number):
            served.append(batch)
            self.clock.advance(STEP_NS)
        return served

    def trained(self, rounds: int = 3) -> Run:
        for number in range(rounds):
            self.train(number)
        return self.turns.run()


def counted(run: Run, arm: str) -> dict[int, int]:
    """How many batches of an arm count in each round."""
    of_arm = run.steps.pair[run.steps.arm == ARMS.index(arm)]
    numbers, counts = np.unique(of_arm[of_arm != UNKNOWN], return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize(
    ("batches", "smallest", "expected"),
    [(33.3, 8, (4, 8)), (8, 8, (1, 8)), (3, 8, (1, 8)), (30, 22, (1, 30)), (47, 12, (3, 16))],
)
def test_a_round_is_served_in_blocks(
    batches: float, smallest: int, expected: tuple[int, int]
) -> None:
    """As many as there can be, none of which is too small."""
    assert split_into_blocks(batches, smallest) == expected


def test_each_round_counts_as_many_batches() -> None:
    """Both arms of it, in blocks of eight at least."""
    run = Stand(list(range(200)), rounds=3, counted=48).trained()
    assert counted(run, "real") == counted(run, "ideal") == {0: 16, 1: 16, 2: 16}


def test_the_paces_are_those_of_the_script() -> None:
    """A real batch takes loading and step, an ideal one the step, a prefetched one loading."""
    run = Stand(list(range(200))).trained()
    steps = run.steps
    iteration_ns = steps.wait_ns + steps.step_ns
    chosen = steps.pair != UNKNOWN
    assert set(iteration_ns[chosen & (steps.arm == 0)].tolist()) == {LOAD_NS + STEP_NS}
    assert set(iteration_ns[chosen & (steps.arm == 1)].tolist()) == {STEP_NS}
    assert {prefetch.elapsed_ns / prefetch.timed for prefetch in run.prefetches} == {LOAD_NS}


def test_a_turn_goes_on_over_epochs() -> None:
    """Epochs of fifteen have no room for all the blocks of a turn."""
    stand = Stand(list(range(15)))
    run = stand.trained()
    assert counted(run, "real") == counted(run, "ideal") == {0: 8, 1: 8, 2: 8}
    assert {end.cause for end in run.ends} >= {"exhausted"}


def test_every_turn_begins_with_a_new_epoch() -> None:
    """What is left of the one before is left out."""
    stand = Stand(list(range(200)))
    assert [stand.train(number)[0] for number in range(3)] == [0, 0, 0]


def test_after_its_turn_a_loader_is_at_rest() -> None:
    """Its epoch is closed: once a turn, when it has room in one epoch."""
    stand = Stand(list(range(200)))
    stand.train(0)
    assert stand.loader.closed == 1


def test_a_turn_that_is_left_early_is_broken_off() -> None:
    """The loader is at rest then too."""
    stand = Stand(list(range(200)))
    turn = stand.turns.serve_round(0)
    next(turn)
    turn.close()
    assert stand.loader.closed == 1
    assert [end.cause for end in stand.turns.run().ends] == ["broken off"]
    assert stand.turns.error is None


def test_the_order_of_blocks_changes_with_the_round() -> None:
    """And with the seed alone: the same turns are served again."""
    one, again = (Stand(list(range(400)), rounds=6, counted=96).trained(6) for _ in range(2))
    assert one.steps.arm.tolist() == again.steps.arm.tolist()
    assert {began_with(one, number) for number in range(6)} == {0, 1}


def test_a_full_queue_is_taken_out_first() -> None:
    """A loader that fills its queue at rest would hide at first that it is too slow."""
    numbers = list(range(300))
    resting = Stand(numbers, prefetched=4, ready=1, rounds=6).trained(6)
    fresh = Stand(numbers, prefetched=4, rounds=6).trained(6)
    assert queues_taken(resting) == [0, 1, 2, 3, 4, 5]
    assert queues_taken(fresh) == [number for number in range(6) if began_with(fresh, number) == 1]
    assert len(queues_taken(fresh)) < 6


def queues_taken(run: Run) -> list[int]:
    """The rounds in which a full queue was taken out."""
    return [
        prefetch.pair for prefetch in run.prefetches if (prefetch.batches, prefetch.timed) == (4, 0)
    ]


def began_with(run: Run, number: int) -> int:
    """The arm of the first block that counts in a round."""
    return int(run.steps.arm[run.steps.pair == number][0])


def test_an_error_of_the_loader_ends_the_turn() -> None:
    """It is kept, and noted in the run; what was served before it stands."""
    stand = Stand([*range(5), OSError("the disk\nwent away")])
    assert stand.train(0) == list(range(5))
    assert isinstance(stand.turns.error, OSError)
    run = stand.turns.run()
    assert [event.message for event in run.events] == [FAILURE + "OSError: the disk went away"]
    assert [end.cause for end in run.ends] == ["failed"]


def test_an_error_of_opening_an_epoch_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of its batches is."""
    stand = Stand([1])
    monkeypatch.setattr(stand.source, "open", lambda: 1 / 0)
    assert stand.train(0) == []
    assert isinstance(stand.turns.error, ZeroDivisionError)


def test_an_error_of_coming_to_rest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error is the one that is told."""
    stand = Stand([OSError("gone")])
    monkeypatch.setattr(stand.source, "close", lambda: 1 / 0)
    stand.train(0)
    assert isinstance(stand.turns.error, OSError)
    rested = Stand(list(range(200)))
    monkeypatch.setattr(rested.source, "close", lambda: 1 / 0)
    rested.train(0)
    assert isinstance(rested.turns.error, ZeroDivisionError)


def test_epochs_that_are_too_short_are_an_error() -> None:
    """After three in which nothing counts there is no use in going on."""
    stand = Stand([1, 2])
    assert len(stand.train(0)) == 6
    assert "nothing could be counted in 3 epochs" in str(stand.turns.error)


def test_the_run_tells_of_what_it_is_part() -> None:
    """Its comparison and rounds are in the settings, its backend is its name."""
    header = Stand([1]).turns.run().header
    assert (header.name, header.mode) == ("scripted", "alternate")
    assert (header.settings["comparison"], header.settings["rounds"]) == ("comparison", 3)


def test_a_log_holds_all_turns(tmp_path: Path) -> None:
    """Read from disk, the run is the one that was measured."""
    path = tmp_path / "scripted.jsonl"
    run = Stand(list(range(200)), log_file=path).trained()
    read = read_run(path)
    assert read.closed
    assert read.path == run.path == path
    assert counted(read, "real") == {0: 8, 1: 8, 2: 8}


def test_a_log_that_exists_is_an_error(tmp_path: Path) -> None:
    """It is not replaced unasked."""
    (tmp_path / "scripted.jsonl").write_text("mine")
    with pytest.raises(RunLogError, match="exists"):
        Stand([1], log_file=tmp_path / "scripted.jsonl")


def test_an_error_is_told_in_one_line() -> None:
    """By its kind alone when it says nothing."""
    assert in_words(ValueError("a\n b")) == "ValueError: a b"
    assert in_words(KeyboardInterrupt()) == "KeyboardInterrupt"
