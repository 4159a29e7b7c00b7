"""One backend of several: the look at its first batch, its rounds, and what counts in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import Backend, Run, UsageError, compare_backends, read_run
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS
from loadeval.report.report import Report
from loadeval.testing import FakeClock
from tests.scripted import SerialAdapter, SerialLoader, register

LOAD_NS, STEP_NS = 15, 10


class Stand:
    """A backend of `batches`, and a training step of 10 ns."""

    def __init__(self, batches: list[Any], folder: Path) -> None:
        self.clock = FakeClock(1000)
        self.loader = SerialLoader(batches, [LOAD_NS] * len(batches), self.clock)
        self.folder = folder

    def step(self, _batch: object) -> None:
        self.clock.advance(STEP_NS)

    def compare(self, counted: int = 24, step: Any = None) -> Report:
        fixed: dict[str, Any] = {"rounds": 3, "probes": (), "clock": self.clock}
        step, backends = step or self.step, {"scripted": self.loader}
        with pytest.MonkeyPatch.context() as patch:
            register(patch, SerialLoader.__module__, SerialAdapter)
            return compare_backends(backends, step, batches=counted, log_dir=self.folder, **fixed)

    def run(self) -> Run:
        return read_run(self.folder / "scripted.jsonl")


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
    stand = Stand(list(range(length)), tmp_path)
    stand.compare(of_run)
    run = stand.run()
    assert run.closed
    assert counted(run, "real") == counted(run, "ideal") == dict.fromkeys(range(3), of_round)
    assert {end.cause for end in run.ends} == {"exhausted", "unmeasured"} - {
        "exhausted" if length > 15 else ""
    }
    assert (run.header.name, run.header.mode) == ("scripted", "alternate")
    assert run.header.settings["rounds"] == 3


def test_a_loader_is_stopped_where_the_step_fails(tmp_path: Path) -> None:
    stand = Stand(list(range(200)), tmp_path)

    def fail(_batch: object) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        stand.compare(step=fail)
    assert stand.loader.closed == 2
    assert [end.cause for end in stand.run().ends] == ["broken off"]


def test_an_error_of_the_loader_ends_the_round(tmp_path: Path) -> None:
    """Once the batches before it were served."""
    stand, served = Stand([*range(5), OSError("the disk\nwent away")], tmp_path), list[int]()
    result = stand.compare(step=served.append)
    assert served == list(range(5))
    assert result.failed == {"scripted": "OSError: the disk went away"}
    run = stand.run()
    assert [(event.kind, event.message) for event in run.events] == [
        ("failed backend", "OSError: the disk went away")
    ]
    assert [end.cause for end in run.ends] == ["failed"]


def test_epochs_that_are_too_short_are_an_error(tmp_path: Path) -> None:
    assert "in 3 epochs" in Stand([1, 2], tmp_path).compare().failed["scripted"]


def test_a_loader_that_is_made_for_an_epoch_has_nothing_ready(tmp_path: Path) -> None:
    """Whatever the one before has: all batches that a queue holds are of the head."""
    stand = Stand(list(range(200)), tmp_path)
    stand.loader.prefetched = stand.loader.ready = 4
    loader: Any = stand.loader
    stand.loader = lambda: loader  # type: ignore[assignment]
    stand.compare()
    assert stand.run().loader.ready_batches == 0


def test_the_workers_of_a_dataloader_end_with_the_epoch() -> None:
    dataset = TensorDataset(torch.zeros(80, 2))
    loader = DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=True)
    compare_backends({"torch": loader}, len, batches=9, rounds=3, probes=(), stages=False)
    assert loader._iterator is None


def unlike(one: Any, other: Any, **options: Any) -> str:
    """What is said of two backends that do not do the same."""
    with pytest.raises(UsageError) as caught:
        compare_backends({"a": one, "b": other}, len, probes=(), **options)
    return str(caught.value).partition(": ")[2].partition("; convert")[0]


def test_the_look_is_at_the_converted_batch() -> None:
    batches = [np.zeros((4, 2))] * 3
    converted = Backend(batches, convert=lambda batch: batch[:2])
    assert unlike(batches, converted) == (
        "b: batch 0 is (2, 2) float64 where a has (4, 2) float64; "
        "b: batch 0 has 2 samples where a has 4"
    )
    doubled = Backend(["ab"], convert=lambda text: 2 * text)
    assert unlike(["ab"], doubled, samples=len) == "b: batch 0 has 4 samples where a has 2"


class Framework:
    """An array whose framework has its own names of types."""

    shape, dtype, nbytes = (2,), "DALIDataType.UINT8", 2


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ((np.zeros(4), torch.zeros(2, 3)), "(4,) float64, (2, 3) float32"),
        ([Framework()], "(2,) uint8"),
        ([["a", "b"], 1], "str, str, int"),
        ([], "empty"),
    ],
)
def test_a_batch_in_words(batch: Any, words: str) -> None:
    """Arrays by shape and type, whatever holds them; other leaves by class."""
    assert unlike([None], [batch]) == f"b: batch 0 is {words} where a has NoneType"


def test_what_differs_is_told_in_short() -> None:
    told = unlike([None], [["path"] * 256])
    assert told.startswith("b: batch 0 is str, str, ")
    assert told.endswith(", str, str where a has NoneType")
    assert len(told) < 256


def test_the_length_of_an_epoch_is_compared_where_it_is_known() -> None:
    assert unlike([None] * 10, [None] * 1005) == "b: an epoch has 1005 batches where a has 10"
    untold = compare_backends(
        {"a": [None] * 60, "b": lambda: iter([None] * 60)}, id, batches=9, rounds=3, probes=()
    )
    assert not untold.failed
