"""compare_backends: several loaders under one training step."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from loadeval import (
    Backend,
    BackendComparison,
    BackendResult,
    RunLogError,
    UsageError,
    compare_backends,
    read_run,
)
from loadeval.analysis.backends import BackendCaution, BackendState
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MS = 1_000_000
IMAGES = np.zeros((4, 3, 2, 2), np.uint8)


class Scripted:
    """Backends and a training step by one clock: a step takes 10 ms."""

    def __init__(self) -> None:
        self.clock = FakeClock()

    def loader(self, load_ms: float, batches: int = 60, batch: Any = IMAGES) -> ScriptedLoader:
        return ScriptedLoader([batch] * batches, [round(load_ms * MS)] * batches, self.clock)

    def compare(self, backends: dict[str, Any], **options: Any) -> BackendComparison:
        fixed = {"batches": 24, "rounds": 3, "unit": "images", "clock": self.clock}
        return compare_backends(backends, **{"step": self.step, **fixed, **options})

    def step(self, _batch: object) -> None:
        self.clock.advance(10 * MS)


@pytest.fixture(name="scripted")
def _scripted() -> Scripted:
    return Scripted()


def rates(result: BackendResult) -> list[float]:
    estimates = (result.real, result.ideal, result.loader_only)
    return [rate.value for rate in estimates if rate is not None]


def test_each_backend_has_its_real_beside_its_ideal(scripted: Scripted) -> None:
    """Real is loading and step, ideal the step, and the loader alone is told too."""
    result = scripted.compare({"slow": scripted.loader(30), "fast": scripted.loader(10)})
    assert rates(result["slow"]) == pytest.approx([100, 400, 4000 / 30])
    assert rates(result["fast"]) == pytest.approx([200, 400, 400])
    (difference,) = result.differences
    assert (difference.one, difference.other) == ("fast", "slow")
    assert difference.ratio.value == pytest.approx(2)
    assert difference.shown
    assert str(result).startswith("fast trains fastest: 2.00x [2.00x, 2.00x] as fast as slow")


def test_no_difference_is_shown_where_there_is_none(scripted: Scripted) -> None:
    """Two equal loaders whose batches take now longer, now shorter."""
    random = np.random.default_rng(0)
    loaders = {name: scripted.loader(10) for name in ("one", "other")}
    for loader in loaders.values():
        loader.waits_ns = random.integers(5 * MS, 15 * MS, 60).tolist()
    result = scripted.compare(loaders, rounds=6, batches=48)
    assert not result.differences[0].shown
    assert str(result).startswith("No difference shown between")


def test_converters_count_as_loading(scripted: Scripted) -> None:

    def convert(batch: dict[str, Any]) -> Any:
        scripted.clock.advance(5 * MS)
        return batch["data"]

    dali = Backend(scripted.loader(10, batch={"data": IMAGES, "source": "a"}), convert=convert)
    result = scripted.compare({"torch": scripted.loader(15), "dali": dali})
    assert rates(result["dali"]) == pytest.approx(rates(result["torch"]))


def test_what_makes_loaders_is_a_backend(scripted: Scripted) -> None:
    made = scripted.compare({"made": lambda: iter(scripted.loader(30))})["made"]
    assert rates(made) == pytest.approx([100, 400, 4000 / 30])


@pytest.mark.parametrize(
    ("batch", "batches", "message"),
    [
        (IMAGES[:2], 60, r"batch 0 is \(2, 3, 2, 2\) uint8 where a has \(4, 3, 2, 2\) uint8; b: "),
        (IMAGES.astype(np.float32), 60, r"batch 0 is \(4, 3, 2, 2\) float32 where a has"),
        (IMAGES, 50, "an epoch has 50 batches where a has 60"),
    ],
    ids=["shape", "type", "epoch"],
)
def test_unequal_work_is_refused(
    scripted: Scripted, batch: Any, batches: int, message: str
) -> None:
    unlike = scripted.loader(10, batches, batch)
    with pytest.raises(UsageError, match=f"b: {message}.*unequal=True if this is intended"):
        scripted.compare({"a": scripted.loader(10), "b": unlike})
    assert unlike.asked == 1


def test_unequal_work_can_be_meant(scripted: Scripted) -> None:
    """It is compared then, by sample, with a caution."""
    half = scripted.loader(10, batch=IMAGES[:2])
    result = scripted.compare({"a": scripted.loader(10), "b": half}, unequal=True)
    assert rates(result["b"])[0] == pytest.approx(100)
    assert result.cautions[0].code is BackendCaution.UNEQUAL_WORK
    assert "b: batch 0 is" in str(result.cautions[0].values["differences"])


@pytest.mark.parametrize("fails_at", [0, 20])
def test_a_backend_that_fails_leaves_the_others(scripted: Scripted, fails_at: int) -> None:
    broken = scripted.loader(10)
    broken.batches = [IMAGES] * fails_at + [OSError("the disk\nwent away")] * (60 - fails_at)
    result = scripted.compare({"broken": broken, "good": scripted.loader(10)})
    assert result["broken"].error == "OSError: the disk went away"
    assert result["broken"].state is BackendState.FAILED
    assert rates(result["broken"]) == []
    assert rates(result["good"])[0] == pytest.approx(200)


def test_samples_are_counted_as_the_user_says(scripted: Scripted) -> None:
    """A text has no first dimension."""
    loader = scripted.loader(10, batch="some text")
    assert scripted.compare({"a": loader}).unit == "batches"
    counted = scripted.compare({"a": loader}, samples=lambda text: len(text.split()))
    assert counted.unit == "images"
    assert rates(counted["a"])[0] == pytest.approx(100)


def test_logs_make_the_same_comparison_again(scripted: Scripted, tmp_path: Path) -> None:
    backends = {"a": scripted.loader(30), "b": scripted.loader(10)}
    result = scripted.compare(backends, log_dir=tmp_path / "logs")
    runs = [read_run(tmp_path / "logs" / f"{name}.jsonl") for name in backends]
    assert BackendComparison.of_runs(runs).as_dict() == result.as_dict()
    with pytest.raises(RunLogError, match="exists"):
        scripted.compare(backends, log_dir=tmp_path / "logs")
    scripted.compare(backends, log_dir=tmp_path / "logs", overwrite=True)


def test_a_failure_is_in_the_log(scripted: Scripted, tmp_path: Path) -> None:
    loader = scripted.loader(30)
    loader.batches = [IMAGES] * 3 + [OSError("gone")] * 57
    result = scripted.compare({"a": loader, "b": scripted.loader(10)}, log_dir=tmp_path)
    again = BackendComparison.of_runs([read_run(tmp_path / f"{name}.jsonl") for name in "ab"])
    assert again.as_dict() == result.as_dict()
    assert again["a"].error == "OSError: gone"


@pytest.mark.parametrize(
    ("backends", "options", "message"),
    [
        ({}, {}, "backends is {}; expected a dict of loaders by name"),
        ([[1]], {}, r"backends is \[\[1\]\]; expected a dict of loaders by name"),
        ({1: [1]}, {}, "1 cannot name a backend; expected text"),
        ({" ": [1]}, {}, "' ' cannot name a backend; expected text"),
        ({"a": [1]}, {"rounds": 2}, "rounds is 2; expected a whole number, 3 or more"),
        ({"a": [1]}, {"rounds": 3.0}, "rounds is 3.0; expected a whole number"),
        ({"a": [1]}, {"batches": 0}, "batches is 0"),
        ({"a": [1]}, {"step": 3}, "step is 3; expected a function"),
        ({"a": 7}, {}, "a: cannot read batches from 'int'"),
        ({"a": iter([1])}, {}, "a: a list_iterator can be iterated only once"),
        ({"a": []}, {}, "a: the loader gave no batch"),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_wrong_arguments_are_named(
    scripted: Scripted, backends: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        scripted.compare(backends, **options)


def test_a_folder_for_logs_that_cannot_be_is_an_error(scripted: Scripted, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="cannot create the folder"):
        scripted.compare({"a": [1]}, log_dir=tmp_path / "file")
    with pytest.raises(UsageError, match=r"'a/b' cannot be the name of a run log"):
        scripted.compare({"a/b": [1]}, log_dir=tmp_path)


def training_step() -> Callable[[Any], None]:
    model, criterion = nn.Linear(16, 2), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch: Any) -> None:
        inputs, labels = batch
        optimizer.zero_grad()
        criterion(model(inputs), labels).backward()
        optimizer.step()

    return step


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
    assert [backend.error for backend in result.backends] == [None] * 2
    assert not marker.exists()


@pytest.mark.check
def test_real_loaders_under_a_real_step(tmp_path: Path) -> None:
    """A DataLoader with a worker, one without, and a generator function with a converter."""
    dataset = TensorDataset(torch.rand(160, 16), torch.arange(160) % 2)

    def arrays() -> Iterator[dict[str, Any]]:
        for start in range(0, 160, 8):
            inputs, labels = dataset[start : start + 8]
            yield {"inputs": inputs.numpy(), "labels": labels.numpy()}

    result = compare_backends(
        {
            "worker": DataLoader(dataset, batch_size=8, shuffle=True, num_workers=1),
            "in process": DataLoader(dataset, batch_size=8, shuffle=True),
            "generator": Backend(arrays, lambda batch: tuple(map(torch.tensor, batch.values()))),
        },
        training_step(),
        batches=24,
        rounds=3,
        unit="images",
    )
    assert [backend.error for backend in result.backends] == [None] * 3
    assert all(
        backend.real and backend.ideal and backend.loader_only for backend in result.backends
    )
    assert len(result.differences) == 3
    assert result.plot(tmp_path / "backends.png").exists()
