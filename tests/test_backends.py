"""compare_backends: several loaders under one training step."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import Backend, Run, UsageError, compare_backends, read_run
from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import ARMS
from loadeval.report.report import Report, report_of_runs
from loadeval.testing import FakeClock, ScriptedLoader
from tests.builder import alternating
from tests.scripted import SerialAdapter, SerialLoader, register

MS = 1_000_000
IMAGES = np.zeros((4, 3, 2, 2), np.uint8)
PRINTED = """\
fast is 1.50x [1.50x, 1.50x] as fast as even
images/s  real            ideal           loader alone
fast      200 [200, 200]  400 [400, 400]  400 [400, 400]
even      133 [133, 133]  400 [400, 400]  200 [200, 200]
slow      100 [100, 100]  400 [400, 400]  133 [133, 133]
small     100 [100, 100]  200 [200, 200]  200 [200, 200]

backend  free loading          memory
fast     2.00x [2.00x, 2.00x]  not measured
even     3.00x [3.00x, 3.00x]  not measured
slow     4.00x [4.00x, 4.00x]  not measured
small    2.00x [2.00x, 2.00x]  not measured
fast is 2.00x [2.00x, 2.00x] as fast as slow.
fast is 2.00x [2.00x, 2.00x] as fast as small.
Caution: broken failed: OSError: the disk went away

how sure
5 backends under one training step, in turns.
Caution: The backends do not do equal work: small: batch 0 is (2, 3, 2, 2) uint8
         where slow has (4, 3, 2, 2) uint8; small: batch 0 has 2 samples where
         slow has 4.
slow, fast, even, small: The loader's prefetch depth is not known: if it
prefetches, real blocks begin with a queue that ideal blocks have filled, and
more time is lost than reported.
"""


class Scripted:
    """Backends and a training step by one clock: a step takes 10 ms."""

    def __init__(self) -> None:
        self.clock = FakeClock()

    def loader(self, load_ms: float, batches: int = 60, batch: Any = IMAGES) -> ScriptedLoader:
        return ScriptedLoader([batch] * batches, [round(load_ms * MS)] * batches, self.clock)

    def compare(self, backends: dict[str, Any], **options: Any) -> Report:
        fixed = {"batches": 24, "rounds": 3, "unit": "images", "clock": self.clock}
        return compare_backends(backends, **{"step": self.step, **fixed, **options})

    def step(self, _batch: object) -> None:
        self.clock.advance(10 * MS)


@pytest.fixture(name="scripted")
def _scripted() -> Scripted:
    return Scripted()


class Stand(Scripted):
    """One backend of `batches`, with a log in `folder`."""

    def __init__(self, batches: list[Any], folder: Path) -> None:
        super().__init__()
        self.serial: Any = SerialLoader(batches, [15 * MS] * len(batches), self.clock)
        self.folder = folder

    def compared(self, **options: Any) -> Report:
        with pytest.MonkeyPatch.context() as patch:
            register(patch, SerialLoader.__module__, SerialAdapter)
            backends = {"scripted": self.serial}
            return self.compare(backends, log_dir=self.folder, probes=(), **options)

    def run(self) -> Run:
        return read_run(self.folder / "scripted.jsonl")


def test_what_is_printed(scripted: Scripted) -> None:
    loaders = {name: scripted.loader(ms) for name, ms in (("slow", 30), ("fast", 10), ("even", 20))}
    broken = scripted.loader(10, batch=OSError("the disk\nwent away"))
    small = scripted.loader(10, batch=IMAGES[:2])
    backends = {**loaders, "broken": broken, "small": small}
    assert f"{scripted.compare(backends, unequal=True, probes=())}\n" == PRINTED


def turns(name: str, wait: float = 5.0, pairs: int = 8, **known: Any) -> Run:
    """A run that took turns with others: so many ms are waited for a batch."""
    return alternating(name=name, wait=wait, pairs=pairs, settings={"comparison": "1"}, **known)


@pytest.mark.parametrize(
    ("runs", "headline"),
    [
        ([turns("a", 20), turns("b")], "b is 2.00x [2.00x, 2.00x] as fast as a"),
        ([turns("a"), turns("b")], "No difference is shown between a and b: 1.00x [1.00x, 1.00x]"),
        (
            [turns("a", 20, pairs=1), turns("b", pairs=1)],
            "b was 2.00x as fast as a, too few measurements for a 95% CI",
        ),
    ],
)
def test_the_first_line_says_who_is_fastest(runs: list[Run], headline: str) -> None:
    assert str(report_of_runs(runs)).splitlines()[0] == headline


def test_memory_is_that_of_training_and_workers() -> None:
    """The most that was read; of what is shared only once where that is known."""
    readings = {
        ("host", "process"): Columns({"time_ns": [1, 2], "pss_bytes": [1e9, 2e9]}),
        ("host", "workers"): Columns({"time_ns": [1, 2], "pss_bytes": [1e9, np.nan]}),
    }
    result = report_of_runs([turns("a", readings=readings), turns("b")])
    assert result.as_json()["memory_bytes"] == {"a": 3e9, "b": None}
    assert "  3.00 GB\n" in str(result)


def test_unequal_work_is_refused(scripted: Scripted) -> None:
    """By the first batch of each."""
    unlike = scripted.loader(10, batch=IMAGES.astype(np.float32))
    with pytest.raises(UsageError, match=r"b: batch 0 is .*unequal=True if this is intended"):
        scripted.compare({"a": scripted.loader(10), "b": unlike})
    assert unlike.asked == 1


def test_logs_make_the_same_comparison_again(scripted: Scripted, tmp_path: Path) -> None:
    """A failure is in them too."""
    broken = scripted.loader(30)
    broken.batches = [IMAGES] * 3 + [OSError("gone")] * 57
    backends = {"a": scripted.loader(30), "b": scripted.loader(10), "c": broken}
    result = scripted.compare(backends, log_dir=tmp_path / "logs")
    again = report_of_runs([read_run(tmp_path / "logs" / f"{name}.jsonl") for name in backends])
    assert str(again) == str(result)
    assert again.as_json()["differences"] == result.as_json()["differences"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds is 0; expected 1 or more"),
        ({"pairs": 3}, "there is no option pairs=; expected one of samples, unit"),
    ],
)
def test_wrong_arguments_are_named(
    scripted: Scripted, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        scripted.compare({"a": [1]}, **options)


@pytest.mark.parametrize(
    ("loader", "error"),
    [
        (7, "UsageError: cannot read batches from 'int'"),
        (iter([1, 2]), "UsageError: no batch, or no second epoch"),
        ([], "UsageError: no batch, or no second epoch"),
        (Backend([1], convert=3), "TypeError: 'int' object is not callable"),
    ],
    ids=["no loader", "an iterator", "empty", "no converter"],
)
def test_what_cannot_be_measured_has_failed(scripted: Scripted, loader: Any, error: str) -> None:
    """Others are measured; names may be numbers."""
    result = scripted.compare({"a": loader, 4: scripted.loader(10)})
    assert result.failed["a"].startswith(error)
    assert result.fastest == 4


def test_samples_may_be_told_as_a_number_of_any_library(scripted: Scripted) -> None:
    backends = {"a": scripted.loader(10), "b": scripted.loader(10)}
    assert not scripted.compare(backends, samples=lambda _: torch.tensor(4)).failed


def collect(_worker: int) -> None:
    """What is garbage, of the process that forked this one too; what is older is none."""
    gc.collect(0)


class Pipeline:
    """In a cycle, as DALI's are, and to be freed by the process that made it."""

    def __init__(self, freed_elsewhere: Path) -> None:
        self.itself, self.made_in, self.freed_elsewhere = self, os.getpid(), freed_elsewhere

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        return iter([[torch.zeros(8, 16)]] * 20)

    def __del__(self) -> None:
        if os.getpid() != self.made_in:
            self.freed_elsewhere.touch()


@pytest.mark.check
def test_a_worker_does_not_free_another_backends_pipelines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline of DALI's that a forked worker frees waits there for ever."""
    marker, inputs = tmp_path / "freed elsewhere", TensorDataset(torch.zeros(160, 16))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    gc.collect()
    gc.disable()
    try:
        result = compare_backends(
            {
                "made anew": lambda: Pipeline(marker),
                "worker": DataLoader(inputs, batch_size=8, num_workers=1, worker_init_fn=collect),
            },
            lambda _batch: None,
            batches=9,
            rounds=3,
            stages=False,
        )
    finally:
        gc.enable()
    assert not result.failed
    assert not marker.exists()


def test_backends_take_turns_in_an_order_that_the_seed_decides(scripted: Scripted) -> None:
    """Each has its part of each round, and each round is a new epoch."""

    def order(seed: int) -> list[str]:
        turns: list[str] = []

        def step(batch: Any) -> None:
            if turns[-1:] != [batch]:
                turns.append(batch)
            scripted.clock.advance(10 * MS)

        loaders = {name: scripted.loader(10, batch=name) for name in "abc"}
        scripted.compare(loaders, step=step, seed=seed, rounds=4)
        return turns

    assert order(0) == order(0) != order(1)
    # One that is the last of a round and the first of the next has one turn of both.
    assert all(3 <= order(0).count(name) <= 4 for name in "abc")


def counted(run: Run, arm: str) -> dict[int, int]:
    """How many batches of an arm count in each round."""
    of_arm = run.steps.pair[run.steps.arm == ARMS.index(arm)]
    numbers, counts = np.unique(of_arm[of_arm != UNKNOWN], return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize(("length", "of_run", "of_round"), [(200, 48, 16), (15, 24, 8)])
def test_each_round_counts_as_many_batches(
    tmp_path: Path, length: int, of_run: int, of_round: int
) -> None:
    """Of both arms, over several blocks, or epochs that are too short for a round."""
    stand = Stand(list(range(length)), tmp_path)
    stand.compared(batches=of_run)
    run = stand.run()
    assert counted(run, "real") == counted(run, "ideal") == dict.fromkeys(range(3), of_round)
    assert ("exhausted" in {end.cause for end in run.ends}) is (length == 15)


def test_a_loader_is_stopped_where_the_step_fails(tmp_path: Path) -> None:
    stand = Stand(list(range(200)), tmp_path)

    def fail(_batch: object) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        stand.compared(step=fail)
    assert stand.serial.closed == 2
    assert [end.cause for end in stand.run().ends] == ["broken off"]


def test_an_error_of_the_loader_ends_the_round(tmp_path: Path) -> None:
    """Once the batches before it were served."""
    stand, served = Stand([*range(5), OSError("the disk\nwent away")], tmp_path), list[int]()
    result = stand.compared(step=served.append)
    assert served == list(range(5))
    assert result.failed == {"scripted": "OSError: the disk went away"}
    assert [end.cause for end in stand.run().ends] == ["failed"]


def test_epochs_that_are_too_short_are_an_error(tmp_path: Path) -> None:
    assert "in 3 epochs" in Stand([1, 2], tmp_path).compared().failed["scripted"]


def test_a_loader_that_is_made_for_an_epoch_has_nothing_ready(tmp_path: Path) -> None:
    """Whatever the one before has: all batches that a queue holds are of the head."""
    stand = Stand(list(range(200)), tmp_path)
    loader = stand.serial
    loader.prefetched = loader.ready = 4
    stand.serial = lambda: loader
    stand.compared()
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
