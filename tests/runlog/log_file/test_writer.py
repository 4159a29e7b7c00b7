"""The metrics file: figures under DALI's keys, and the whole run beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from loadeval.errors import RunLogError
from loadeval.evaluator import LoaderEvaluator
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.log_file.reader import read_run
from loadeval.runlog.log_file.writer import metrics_of, summary_of, write_metrics
from loadeval.runlog.model import Arm, CacheInfo, Header, LoaderInfo, Run, Steps
from loadeval.testing import FakeClock, ScriptedLoader
from tests.runs.given import block, make_header, run_of

if TYPE_CHECKING:
    from pathlib import Path

SECOND_NS = 1_000_000_000


def measured(header: Header, waits_s: list[int], steps_s: list[int | None]) -> Run:
    """One epoch with a wait and a step for each batch, in seconds; None is an open step."""
    waits_ns = [wait * SECOND_NS for wait in waits_s]
    steps_ns = [UNKNOWN if step is None else step * SECOND_NS for step in steps_s]
    blocks = [block("real", waits_ns, steps_ns, request_ns=0)] if waits_s else []
    return run_of(blocks, header=header, closed=True)


def same_steps(first: Run, second: Run) -> bool:
    names = Steps.__slots__
    return all(getattr(first.steps, n).tolist() == getattr(second.steps, n).tolist() for n in names)


def test_metrics_of_a_replay() -> None:
    header = make_header(mode="replay", cache=CacheInfo(20, 640, 5))
    metrics = metrics_of(measured(header, [1], [1]))
    values = [metrics[name] for name in ("mode", "cached_batches", "cache_ready")]
    assert values == ["replay", 20, True]


def test_the_summary_has_dalis_lines() -> None:
    header = make_header(loader=LoaderInfo("loader", length=3))
    assert summary_of(measured(header, [3, 1, 2], [4, 4, 4]), 12).splitlines() == [
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


def test_the_summary_says_what_is_unknown() -> None:
    """Sizes that nobody knows are unknown, and without a batch no time is printed."""
    header = make_header(mode="replay", cache=CacheInfo(4, None, 5), settings={})
    assert summary_of(measured(header, [], []), None).splitlines() == [
        "Loader Evaluator Summary:",
        "  Mode: replay",
        "  Dataset size: unknown",
        "  Number of batches: unknown",
        "  Cache size: 4/unknown",
        "  Cache ready: True",
    ]


def test_a_run_comes_back_from_its_metrics(log: Path, tmp_path: Path) -> None:
    """A metrics file holds the figures, and the same run as the log it was made from."""
    run = read_run(log)
    path = tmp_path / "metrics.json"
    write_metrics(run, path)
    again = read_run(path)
    assert same_steps(again, run)
    for name in ("header", "ends", "events", "closed", "notes"):
        assert getattr(again, name) == getattr(run, name)
    figures = json.loads(path.read_text())
    assert {name: figures[name] for name in metrics_of(run)} == metrics_of(run)


def test_both_arms_of_an_epoch_come_back(tmp_path: Path) -> None:
    arms: list[Arm] = ["real", "ideal", "real"]
    blocks = [block(arm, 1, 1, 1, request_ns=9 * place) for place, arm in enumerate(arms)]
    run = run_of(blocks, header=make_header(), closed=True)
    write_metrics(run, tmp_path / "metrics.json")
    assert same_steps(read_run(tmp_path / "metrics.json"), run)


def test_metrics_saved_in_the_middle_say_so(tmp_path: Path) -> None:
    clock = FakeClock()
    evaluator = LoaderEvaluator(ScriptedLoader([1, 2], [3, 3], clock), clock=clock)
    for _ in evaluator:
        evaluator.save_metrics(tmp_path / "metrics.json")
        break
    run = read_run(tmp_path / "metrics.json")
    assert (len(run.steps), run.closed) == (1, False)
    assert "still going on" in run.notes[0]


def test_a_run_without_batches_comes_back(tmp_path: Path) -> None:
    run = measured(make_header(), [], [])
    assert metrics_of(run) == {}
    path = tmp_path / "metrics.json"
    path.write_text("x" * 10_000)
    write_metrics(run, path)
    again = read_run(path)
    assert (again.header, len(again.steps), again.closed) == (run.header, 0, True)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ([], "item of 'run' 1 is missing"),
        (3, "item of 'run' 1 is not a JSON object"),
        (None, "item of 'run' 1 is not a JSON object"),
        ([{"type": "block"}], "item of 'run' 1 has no 'epoch'"),
    ],
)
def test_a_damaged_run_in_a_metrics_file(tmp_path: Path, run: object, said: str) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"batch_times": [1.0], "run": run}))
    with pytest.raises(RunLogError) as caught:
        read_run(path)
    assert str(caught.value).startswith(f"{path}, {said}")
