"""Files that DALI's own LoaderEvaluator saved are runs too."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.errors import RunLogError
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.log_file.reader import read_run
from loadeval.runlog.log_file.writer import metrics_of, write_metrics
from loadeval.runlog.model import NOT_RECORDED

if TYPE_CHECKING:
    from pathlib import Path

WHOLE: dict[str, Any] = {
    "mode": "log",
    "total_batches": 4,
    "total_time": 1.0,
    "avg_batch_time": 0.075,
    "min_batch_time": 0.0,
    "max_batch_time": 0.1,
    "batch_times": [0.1, 0.1, 0.0, 0.1],
    "cached_batches": 0,
    "cache_ready": False,
}


@pytest.fixture
def dali_class() -> Any:
    """The class itself."""
    module = pytest.importorskip("nvidia.dali.plugin.pytorch.loader_evaluator")
    return module.LoaderEvaluator


@pytest.fixture
def torch_loader() -> Any:
    """Six batches of 4 samples, loaded in process."""
    torch = pytest.importorskip("torch")
    return torch.utils.data.DataLoader(torch.arange(24.0).reshape(24, 1), batch_size=4)


def written(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps({**WHOLE, **changes}, indent=2))
    return path


@pytest.mark.parametrize(("mode", "arm"), [("log", 0), ("replay", 1)])
def test_a_whole_epoch_of_dalis_class(
    tmp_path: Path, dali_class: Any, torch_loader: Any, mode: str, arm: int
) -> None:
    path = tmp_path / f"{mode}.json"
    evaluator = dali_class(torch_loader, mode=mode, num_cached_batches=2)
    for batch in evaluator:
        batch.add(1)
    evaluator.save_metrics(str(path))
    theirs, run = evaluator.get_metrics(), read_run(path)
    steps = run.steps
    assert np.allclose(steps.wait_ns / 1e9, theirs["batch_times"], rtol=0, atol=1e-9)
    total_ns = int((steps.wait_ns + steps.step_ns).sum())
    assert total_ns == round(theirs["total_time"] * 1e9)
    assert metrics_of(run)["total_time"] == pytest.approx(theirs["total_time"], abs=1e-9)
    assert metrics_of(run)["total_batches"] == theirs["total_batches"] == 6
    assert metrics_of(run)["cached_batches"] == theirs["cached_batches"]
    assert steps.arm.tolist() == [arm] * 6
    assert (run.header.mode, run.header.name, run.closed) == (mode, mode, True)
    assert (steps.samples == UNKNOWN).all()
    assert "every step is the mean" in run.notes[0]


def test_an_epoch_of_dalis_class_that_was_broken_off(
    tmp_path: Path, dali_class: Any, torch_loader: Any
) -> None:
    path = tmp_path / "broken.json"
    evaluator = dali_class(torch_loader)
    for _ in evaluator:
        if len(evaluator.batch_times) == 3:
            break
    evaluator.save_metrics(str(path))
    assert evaluator.get_metrics()["total_time"] == 0
    run = read_run(path)
    assert (run.steps.step_ns == UNKNOWN).all()
    assert len(run.steps) == 3
    write_metrics(run, path)
    assert (read_run(path).steps.step_ns == UNKNOWN).all()
    assert run.ends[0].cause == "broken off"
    assert "steps were not measured" in run.notes[0]


def test_a_second_epoch_of_dalis_class_that_was_broken_off(
    tmp_path: Path, dali_class: Any, torch_loader: Any
) -> None:
    """It ends before it began, for DALI's class keeps the first epoch's end: no step either."""
    path = tmp_path / "broken.json"
    evaluator = dali_class(torch_loader)
    for _ in evaluator:
        pass
    for _ in evaluator:
        break
    evaluator.save_metrics(str(path))
    assert evaluator.get_metrics()["total_time"] < 0
    assert (read_run(path).steps.step_ns == UNKNOWN).all()


def test_a_replay_of_dalis_class_that_was_broken_off(
    tmp_path: Path,
    dali_class: Any,
    torch_loader: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Waits too short for its clock, and a total time of 0, are no steps of 0."""
    path = tmp_path / "broken.json"
    evaluator = dali_class(torch_loader, mode="replay")
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)
    for _ in evaluator:
        break
    evaluator.save_metrics(str(path))
    assert evaluator.get_metrics()["batch_times"] == [0.0]
    assert read_run(path).steps.step_ns.tolist() == [UNKNOWN]


def test_before_any_batch_dalis_class_saves_nothing(
    tmp_path: Path, dali_class: Any, torch_loader: Any
) -> None:
    path = tmp_path / "empty.json"
    dali_class(torch_loader).save_metrics(str(path))
    with pytest.raises(
        RunLogError, match=r"empty.json, as a file of DALI's LoaderEvaluator, is em"
    ):
        read_run(path)


@pytest.mark.parametrize(
    ("total_s", "step_ns"), [(1.0, [175_000_000] * 4), (0.300000007, [2, 2, 2, 1])]
)
def test_steps_share_what_the_waits_leave(
    tmp_path: Path, total_s: float, step_ns: list[int]
) -> None:
    """They agree to the nanosecond; nobody knows when batches were requested."""
    steps = read_run(written(tmp_path / "log.json", total_time=total_s)).steps
    assert steps.wait_ns.tolist() == [100_000_000, 100_000_000, 0, 100_000_000]
    assert steps.step_ns.tolist() == step_ns
    assert steps.request_ns.tolist() == [UNKNOWN] * 4


def test_what_dalis_file_does_not_have_is_not_recorded(tmp_path: Path) -> None:
    """When the run was made, and of which loader, is told to be not recorded."""
    run = read_run(written(tmp_path / "replay.json", mode="replay", cached_batches=3))
    assert run.header.created == run.header.loader.backend == NOT_RECORDED
    assert run.header.cache is not None
    assert (run.header.cache.batches, run.header.cache.fill_ns) == (3, None)


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("mode", ["raply", None, ["log"]], "'log' or 'replay'"),
        ("batch_times", [[], None, 3], "a list of seconds, 0 or more,"),
        (
            "batch_times",
            [[0.1, value, 0.0, 0.1] for value in (-0.1, NAN, INFINITE, "0.1", True)],
            "a list of seconds, 0 or more,",
        ),
        ("total_time", [None, NAN, INFINITE, 10**400], "a number of seconds"),
        ("total_batches", [5], "4, the length of 'batch_times',"),
        ("cached_batches", [-1, 1.0], "a whole number"),
    ],
)
def test_anything_but_seconds_is_an_error(
    tmp_path: Path, name: str, values: list[Any], expected: str
) -> None:
    for value in values:
        path = written(tmp_path / "log.json", **{name: value})
        with pytest.raises(RunLogError) as caught:
            read_run(path)
        said = str(caught.value)
        assert said.startswith(f"{path}, as a file of DALI's LoaderEvaluator, has ")
        assert f" as {name!r}, where {expected} was expected; " in said
        assert said.endswith("again")
