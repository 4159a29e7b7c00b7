"""One backend of several: the look at its first batch, its rounds, and what counts in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import (
    Backend,
    read_run,
)
from loadeval.backends import BackendRun, differences, work_of
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS
from loadeval.settings import Settings
from loadeval.testing import FakeClock
from tests.scripted import SerialAdapter, SerialLoader, register

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval import Run

LOAD_NS, STEP_NS = 15, 10


@pytest.fixture(autouse=True)
def _serial(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, SerialLoader.__module__, SerialAdapter)


def settings_of(clock: FakeClock, rounds: int, batches: int, **options: Any) -> Settings:
    return Settings(
        mode="alternate", unit="images", pairs=rounds, batches=batches, clock=clock, **options
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
        settings = settings_of(
            self.clock, rounds, counted, name="scripted", log_file=log_file, seed=0
        )
        self.backend = BackendRun(Backend(self.loader), settings)
        self.backend.begin("comparison")

    def train(self) -> list[Any]:
        served = []
        for batch in self.backend.round():
            served.append(batch)
            self.clock.advance(STEP_NS)
        return served

    def trained(self, rounds: int = 3) -> Run:
        for _ in range(rounds):
            self.train()
        self.backend.recorder.close()
        return self.backend.recorder.run()


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


def test_a_round_that_is_left_early_is_broken_off() -> None:
    backend = Stand(list(range(200)))
    batches = backend.backend.round()
    next(batches)
    batches.close()
    assert backend.loader.closed == 2
    assert [end.cause for end in backend.backend.recorder.run().ends] == ["broken off"]
    assert backend.backend.error is None


def test_an_error_of_the_loader_ends_the_round() -> None:
    backend = Stand(list(range(5)))
    backend.loader.batches = [*range(5), OSError("the disk\nwent away")]
    backend.loader.waits_ns = [LOAD_NS] * 6
    assert backend.train() == list(range(5))
    assert isinstance(backend.backend.error, OSError)
    run = backend.backend.recorder.run()
    assert [(event.kind, event.message) for event in run.events] == [
        ("failed backend", "OSError: the disk went away")
    ]
    assert [end.cause for end in run.ends] == ["failed"]


def test_epochs_that_are_too_short_are_an_error() -> None:
    backend = Stand([1, 2])
    assert len(backend.train()) == 6
    assert "in 3 epochs" in str(backend.backend.error)


BATCHES = [np.zeros((4, 2))] * 3


def look(loader: Any, samples: Any = None, **options: Any) -> BackendRun:
    settings = replace(settings_of(FakeClock(), 3, 24, seed=0), samples=samples)
    return BackendRun(Backend(loader, **options), settings)


def test_the_look_is_at_the_converted_batch() -> None:
    converted = look(BATCHES, convert=lambda batch: batch[:2]).work
    assert converted == work_of(np.zeros((2, 2)), 2, 3)
    assert look(["ab"]).work == work_of("ab", UNKNOWN, 1)
    assert look(["ab"], len, convert=lambda text: 2 * text).work == work_of("", 4, 1) | {
        "batch 0 is {}": "str"
    }


def test_the_workers_of_a_dataloader_end_with_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # so that its adapter is found
    dataset = TensorDataset(torch.zeros(8, 2))
    loader = DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=True)
    look(loader)
    assert loader._iterator is None


class Framework:
    """An array whose framework has its own names of types."""

    shape, dtype, nbytes = (2,), "DALIDataType.FLOAT", 8


IMAGES, LABELS = np.zeros((4, 3, 8, 8), np.uint8), np.zeros(4, np.int64)
SIX = [f"({n},) float64" for n in range(6)]


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ((IMAGES, LABELS), "(4, 3, 8, 8) uint8, (4,) int64"),
        ([torch.zeros(2, 3)], "(2, 3) float32"),
        ([Framework()], "(2,) float32"),
        ([["a", "b"], 1], "str, str, int"),
        ([], "empty"),
        ([np.zeros(n) for n in range(9)], ", ".join(SIX) + " and 3 more"),
    ],
)
def test_a_batch_in_words(batch: Any, words: str) -> None:
    """Arrays by shape and type, whatever holds them; other leaves by class."""
    assert work_of(batch, 4, 1)["batch 0 is {}"] == words


def test_each_difference_from_the_first_is_told() -> None:
    """Leaves, samples and batches per epoch count; what is not known is no difference."""
    one, other = work_of([LABELS], 4, 10), work_of([IMAGES], 8, 1005)
    untold = work_of([LABELS], UNKNOWN, None)
    assert differences({"torch": one, "dali": other, "spdl": untold}) == [
        "dali: batch 0 is (4, 3, 8, 8) uint8 where torch has (4,) int64",
        "dali: batch 0 has 8 samples where torch has 4",
        "dali: an epoch has 1,005 batches where torch has 10",
    ]
