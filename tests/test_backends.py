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
from loadeval.data.columns import Columns
from loadeval.report.report import Report, report_of_runs
from loadeval.testing import FakeClock, ScriptedLoader
from tests.builder import alternating

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
        (
            [turns("a"), turns("b")],
            "No difference is shown between a and b: 1.00x [1.00x, 1.00x]",
        ),
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


def test_a_page_has_the_inside_of_each_loader() -> None:
    result = report_of_runs([turns("a"), turns("b", 20), turns("c", 30)])
    assert [section.title for section in result.sections() if not section.priority] == [
        f"{name}: {title}"
        for name in "abc"
        for title in ("inside the loader", "along the run", "what was measured")
    ]


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
        ({"batches": 0}, "batches is 0; expected a whole number, 1 or more"),
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
