"""DALI's LoaderEvaluator: its summary, and the JSON that it saved, which is a run too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadeval.data.columns import UNKNOWN
from loadeval.data.dali import metrics_of, summary_of
from loadeval.data.lines import CacheInfo
from loadeval.data.log import read_run
from loadeval.data.run import NOT_RECORDED
from loadeval.errors import RunLogError
from tests.builder import run_of, steps

WHOLE: dict[str, Any] = {
    "mode": "log",
    "total_batches": 4,
    "total_time": 1.0,
    "batch_times": [0.1, 0.1, 0.0, 0.1],
    "cached_batches": 0,
}


def written(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps({**WHOLE, **changes}, indent=2))
    return path


@pytest.fixture(name="theirs")
def _theirs() -> Any:
    """Makes the class itself, of six batches of a DataLoader."""
    module = pytest.importorskip("nvidia.dali.plugin.pytorch.loader_evaluator")
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader(torch.arange(24.0).reshape(24, 1), batch_size=4)
    return lambda mode="log": module.LoaderEvaluator(loader, mode=mode, num_cached_batches=2)


def test_the_summary_has_dalis_lines() -> None:
    batches = [steps("real", [3000, 1000, 2000], 4000)]
    run = run_of(batches, mode="log", length=3, settings={"num_cached_batches": 20})
    assert summary_of(run, 12).splitlines() == [
        "Loader Evaluator Summary:",
        "  Mode: log",
        "  Dataset size: 12",
        "  Number of batches: 3",
        "  Cache size: 0/20",
        "  Cache ready: False",
        "  Total batches processed: 3",
        "  Total time: 18.00s",
        "  Average batch time: 2.0000s",
        "  Min batch time: 1.0000s",
        "  Max batch time: 3.0000s",
    ]


def test_what_is_unknown_is_said_to_be_so() -> None:
    """Without a batch no time is printed."""
    run = run_of([steps("ideal", 0, 0, 0)], mode="replay", cache=CacheInfo(4), settings={})
    assert metrics_of(run) == {}
    assert summary_of(run, None).splitlines() == [
        "Loader Evaluator Summary:",
        "  Mode: replay",
        "  Dataset size: unknown",
        "  Number of batches: unknown",
        "  Cache size: 4/unknown",
        "  Cache ready: True",
    ]


@pytest.mark.parametrize(("mode", "arm"), [("log", 0), ("replay", 1)])
def test_a_whole_epoch_of_dalis_class(tmp_path: Path, theirs: Any, mode: str, arm: int) -> None:
    """It has the same figures; each step is the mean of what the waits leave."""
    path, evaluator = tmp_path / f"{mode}.json", theirs(mode)
    for batch in evaluator:
        batch.add(1)
    evaluator.save_metrics(str(path))
    told, run = evaluator.get_metrics(), read_run(path)
    assert np.allclose(run.steps.wait_ns / 1e9, told["batch_times"], rtol=0, atol=1e-9)
    for name in ("mode", "total_batches", "total_time", "cached_batches"):
        assert metrics_of(run)[name] == pytest.approx(told[name], abs=1e-8)
    assert run.steps.arm.tolist() == [arm] * 6
    assert (run.header.name, run.closed) == (mode, True)
    assert "every step is the mean" in run.notes[0]


@pytest.mark.parametrize("epochs", [0, 1])
def test_steps_of_an_epoch_that_was_broken_off_are_unknown(
    tmp_path: Path, theirs: Any, epochs: int
) -> None:
    """DALI's class takes the end of the epoch before for that of this one."""
    path, evaluator = tmp_path / "broken.json", theirs()
    for _ in range(epochs):
        list(evaluator)
    next(iter(evaluator))
    evaluator.save_metrics(str(path))
    run = read_run(path)
    assert run.steps.step_ns.tolist() == [UNKNOWN]
    assert run.ends[0].cause == "broken off"
    assert "steps were not measured" in run.notes[0]


def test_steps_share_what_the_waits_leave(tmp_path: Path) -> None:
    """What the file does not have is told to be not recorded."""
    run = read_run(written(tmp_path / "a.json", mode="replay"))
    assert run.steps.step_ns.tolist() == [175_000_000] * 4
    assert run.steps.request_ns.tolist() == run.steps.samples.tolist() == [UNKNOWN] * 4
    assert run.header.created == run.header.loader.backend == NOT_RECORDED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "raply"),
        ("batch_times", []),
        ("batch_times", [-0.1]),
        ("total_time", float("nan")),
        ("cached_batches", 1.5),
    ],
)
def test_anything_but_seconds_is_an_error(tmp_path: Path, name: str, value: Any) -> None:
    path = written(tmp_path / "a.json", **{name: value})
    with pytest.raises(RunLogError, match=r"a.json is (neither|no) .*run log"):
        read_run(path)
