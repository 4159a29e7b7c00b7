"""Rounds of backends: who is served when, what counts, and who goes on after an error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import (
    Backend,
    read_run,
)
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS
from loadeval.runtime.alternation.backends import (
    BackendRun,
    BackendRunner,
    Source,
)
from loadeval.settings import Settings
from loadeval.testing import FakeClock
from tests.scripted import SerialAdapter, SerialLoader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadeval import Run
    from loadeval.runtime.alternation.backends import MeasuredBackend

LOAD_NS, STEP_NS = 15, 10
pytestmark = pytest.mark.usefixtures("serial")


def settings_of(clock: FakeClock, rounds: int, batches: int, **options: Any) -> Settings:
    return Settings(
        mode="alternate",
        samples=None,
        unit="images",
        max_cache_bytes=10**9,
        overwrite=False,
        pairs=rounds,
        batches=batches,
        clock=clock,
        **options,
    )


def serial_loader(batches: list[Any], clock: FakeClock) -> SerialLoader:
    return SerialLoader(batches, [LOAD_NS] * len(batches), clock)


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
        self.loader = serial_loader(batches, self.clock)
        self.loader.prefetched, self.loader.ready = prefetched, ready
        self.source = Source(Backend(self.loader))
        settings = settings_of(
            self.clock, rounds, counted, name="scripted", log_file=log_file, seed=0
        )
        info = SerialAdapter().describe(self.loader)
        self.backend = BackendRun(self.source, info, settings, "comparison")

    def train(self, number: int) -> list[Any]:
        served = []
        for batch in self.backend.serve_round(number):
            served.append(batch)
            self.clock.advance(STEP_NS)
        return served

    def trained(self, rounds: int = 3) -> Run:
        for number in range(rounds):
            self.train(number)
        return self.backend.run()


def counted(run: Run, arm: str) -> dict[int, int]:
    """How many batches of an arm count in each round."""
    of_arm = run.steps.pair[run.steps.arm == ARMS.index(arm)]
    numbers, counts = np.unique(of_arm[of_arm != UNKNOWN], return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize(
    ("length", "of_run", "of_round"),
    [(200, 48, 16), (200, 24, 8), (15, 24, 8)],
    ids=["several blocks", "one block", "several epochs"],
)
def test_each_round_counts_as_many_batches(
    tmp_path: Path, length: int, of_run: int, of_round: int
) -> None:
    """Of both arms, over epochs that are too short for a round too; and so in the log."""
    backend = Stand(list(range(length)), counted=of_run, log_file=tmp_path / "run.jsonl")
    backend.trained()
    run = read_run(tmp_path / "run.jsonl")
    assert run.closed
    assert counted(run, "real") == counted(run, "ideal") == dict.fromkeys(range(3), of_round)
    assert {end.cause for end in run.ends} == {"exhausted", "unmeasured"} - {
        "exhausted" if length > 15 else ""
    }
    header = run.header
    assert (header.name, header.mode) == ("scripted", "alternate")
    assert (header.settings["comparison"], header.settings["rounds"]) == ("comparison", 3)


def test_every_round_is_an_epoch_of_its_own() -> None:
    backend = Stand(list(range(200)))
    for number in range(3):
        assert backend.train(number)[0] == 0
        assert backend.loader.closed == number + 1


def test_a_round_that_is_left_early_is_broken_off() -> None:
    backend = Stand(list(range(200)))
    batches = backend.backend.serve_round(0)
    next(batches)
    batches.close()
    assert backend.loader.closed == 1
    assert [end.cause for end in backend.backend.run().ends] == ["broken off"]
    assert backend.backend.error is None


def first_arm(run: Run, number: int) -> int:
    """The arm of the first block that counts in a round."""
    return int(run.steps.arm[run.steps.pair == number][0])


def test_the_order_of_blocks_changes_with_the_round() -> None:
    """The seed alone decides it too: the same order is served again."""
    first, again = (Stand(list(range(400)), rounds=6, counted=96).trained(6) for _ in range(2))
    assert first.steps.arm.tolist() == again.steps.arm.tolist()
    assert {first_arm(first, number) for number in range(6)} == {0, 1}


def test_a_full_queue_is_emptied_first() -> None:
    """A loader that fills its queue while idle would hide at first that it is too slow."""
    numbers = list(range(300))
    idle = Stand(numbers, prefetched=4, ready=1, rounds=6).trained(6)
    fresh = Stand(numbers, prefetched=4, rounds=6).trained(6)
    assert queues_emptied(idle) == [0, 1, 2, 3, 4, 5]
    assert queues_emptied(fresh) == [number for number in range(6) if first_arm(fresh, number)]
    assert len(queues_emptied(fresh)) < 6


def queues_emptied(run: Run) -> list[int]:
    """The rounds in which a full queue was emptied."""
    return [
        prefetch.pair for prefetch in run.prefetches if (prefetch.batches, prefetch.timed) == (4, 0)
    ]


def test_an_error_of_the_loader_ends_the_round() -> None:
    backend = Stand([*range(5), OSError("the disk\nwent away")])
    assert backend.train(0) == list(range(5))
    assert isinstance(backend.backend.error, OSError)
    run = backend.backend.run()
    assert [(event.kind, event.message) for event in run.events] == [
        ("failed backend", "OSError: the disk went away")
    ]
    assert [end.cause for end in run.ends] == ["failed"]


@pytest.mark.parametrize(
    ("batches", "failing", "error"),
    [
        ([1], "open", ZeroDivisionError),
        (list(range(200)), "close", ZeroDivisionError),
        ([OSError("gone")], "close", OSError),
    ],
)
def test_errors_of_opening_and_closing_are_kept(
    monkeypatch: pytest.MonkeyPatch,
    batches: list[Any],
    failing: str,
    error: type[Exception],
) -> None:
    """As one of a batch is; the first error is the one that is told."""
    backend = Stand(batches)
    monkeypatch.setattr(backend.source, failing, lambda: 1 / 0)
    backend.train(0)
    assert isinstance(backend.backend.error, error)


def test_epochs_that_are_too_short_are_an_error() -> None:
    backend = Stand([1, 2])
    assert len(backend.train(0)) == 6
    assert "in 3 epochs" in str(backend.backend.error)


class Arena:
    """Backends named a, b and so on, of 100 batches of which each is its name's number."""

    def __init__(self, count: int = 3, rounds: int = 4, seed: int = 0) -> None:
        self.clock = FakeClock(1000)
        self.settings = settings_of(self.clock, rounds, 8 * rounds, seed=seed)
        self.loaders = [
            serial_loader([np.full(4, number)] * 100, self.clock) for number in range(count)
        ]
        self.epochs: list[tuple[int, int]] = []

    @property
    def order(self) -> list[int]:
        """The loaders of the rounds, in order: the epochs are so long that a round takes one."""
        return [number for number, _ in self.epochs]

    def step(self, batch: Any) -> None:
        number = int(batch[0])
        epoch = number, self.loaders[number].begun
        if epoch not in self.epochs:
            self.epochs.append(epoch)
        assert self.read_now() in ([1], [])
        self.clock.advance(5)

    def read_now(self) -> list[int]:
        """How many epochs of each loader are open, of those that are read."""
        return [
            loader.begun - loader.closed for loader in self.loaders if loader.begun > loader.closed
        ]

    def runner(self) -> BackendRunner:
        backends = {"abcdef"[number]: Backend(loader) for number, loader in enumerate(self.loaders)}
        return BackendRunner(backends, self.settings)

    def run(self, step: Callable[[Any], object] | None = None) -> list[MeasuredBackend]:
        return self.runner().run(step or self.step, {})


def test_each_backend_has_its_part_of_each_round() -> None:
    """Their order changes with the seed, and only one loader is read at a time."""
    first, again, other = Arena(), Arena(), Arena(seed=1)
    for arena in (first, again, other):
        arena.run()
        assert arena.read_now() == []
    assert again.order == first.order != other.order
    assert [first.order.count(number) for number in range(3)] == [4, 4, 4]


def test_runs_come_in_the_order_of_the_backends() -> None:
    results = Arena().run()
    assert [result.name for result in results] == ["a", "b", "c"]
    runs = [result.run for result in results if result.run is not None]
    assert [run.header.name for run in runs] == ["a", "b", "c"]
    assert len({run.header.settings["comparison"] for run in runs}) == 1
    assert all(run.closed for run in runs)
    assert [result.error for result in results] == [None] * 3


def test_an_error_of_the_step_is_raised() -> None:
    """All loaders are idle then, and a note tells whose batch it was."""
    backends = Arena(count=1)

    def fail(_batch: object) -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory") as caught:
        backends.run(fail)
    assert backends.read_now() == []
    if sys.version_info >= (3, 11):
        assert "backend 'a'" in caught.value.__notes__[0]
