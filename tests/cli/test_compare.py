"""`loadeval compare`: what it takes, what it refuses, and its exit codes.

The files in tests/golden have what it says of each recorded run.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.builder import MS, run_of, steps
from tests.cli.commands import runner
from tests.runs.given import write_run
from tests.runs.measured import record

Logs = tuple[Path, Path]
run = runner("compare", columns=200)
ON_STDERR = str.maketrans("│╭╮╰╯─", "      ")


@pytest.fixture(name="logs")
def _logs(tmp_path: Path) -> Logs:
    """Run logs of a real and an ideal run: steps of 10 ms, after waits of 30 ms and of none."""
    return record(tmp_path / "real.jsonl", "log"), record(tmp_path / "ideal.jsonl", "replay")


@pytest.fixture(scope="module", name="alternated")
def _alternated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that loses 75% in every pair: waits of 30 ms and of none, steps of 10 ms."""
    return record(tmp_path_factory.mktemp("run") / "alternated.jsonl", "alternate", epochs=4)


def trained(path: Path, wait_ms: float, *, workers: int = 2, seed: int = 0) -> Path:
    """The log of three epochs of 100 batches, with steps of about 20 ms."""
    step_ms = 20 * np.random.default_rng(seed).normal(1.0, 0.03, (3, 100))
    epochs = [steps("real", wait_ms, of_epoch, epoch=n) for n, of_epoch in enumerate(step_ms)]
    return write_run(run_of(epochs, mode="log", workers=workers), path)


def refused(*arguments: object) -> str:
    """What is said on stderr of a command that prints nothing and fails."""
    code, out, err = run(*arguments)
    assert code in {1, 2}
    assert out == ""
    assert "Traceback" not in err
    return " ".join(err.translate(ON_STDERR).split())


def test_the_commands_can_be_pasted(logs: Logs) -> None:
    """A path with a space in it is quoted."""
    spaced = logs[0].rename(logs[0].with_name("a run.jsonl"))
    assert f"More: loadeval compare '{spaced}' {logs[1]} --full" in run(spaced, logs[1])[1]


def test_a_file_of_dalis_class(tmp_path: Path) -> None:
    """It does not tell when it was recorded, nor of which loader."""
    path = tmp_path / "metrics.json"
    counts = {"total_batches": 40, "cached_batches": 0, "cache_ready": False}
    times = {"avg_batch_time": 0.01, "min_batch_time": 0.01, "max_batch_time": 0.01}
    told = {"mode": "log", "total_time": 1.0, "batch_times": [0.01] * 40, **counts, **times}
    path.write_text(json.dumps(told))
    said = run(path, "--full")[1]
    assert "Training waited for batches 40.0% of the time" in said
    assert "recorded (UTC)  not recorded" in said


def test_json_is_one_object(logs: Logs, alternated: Path, tmp_path: Path) -> None:
    """Though a figure is written. A log beside a replay has the keys of a run that alternated."""
    keys = []
    for files in (logs, (alternated,)):
        figure = tmp_path / f"{len(files)}.svg"
        code, out, err = run(*files, "--json", "--output", figure)
        assert (code, err) == (0, "")
        assert figure.exists()
        keys.append(json.loads(out).keys())
    assert keys[0] == keys[1]


def test_a_window_is_looked_at_by_itself(tmp_path: Path) -> None:
    """Of batches that were asked for in it; its figures are those of these alone."""
    log = record(tmp_path / "log.jsonl", waits_ns=[0] * 50 + [30 * MS] * 50)
    assert "Training waited for batches 0.0% of the time" in run(log, "--between", "0", "0.4s")[1]
    assert "Training waited for batches 75.0% of the time" in run(log, "--between", "1s", "9")[1]
    assert "no batch between 100s and 200s" in refused(log, "--between", "100s", "200s")
    assert "'soon' is no time; expected seconds" in refused(log, "--between", "soon", "2s")


def test_runs_that_cannot_be_compared(logs: Logs, alternated: Path, tmp_path: Path) -> None:
    real, ideal = logs
    assert "mode='log', and then one with mode='replay'" in refused(ideal, real)
    assert "give the run with mode='log' too" in refused(ideal)
    assert "jsonl was recorded with mode=" in refused(alternated, ideal)
    others = [record(tmp_path / f"{name}.jsonl") for name in ("a", "b")]
    assert "tells nothing of its loader's throughput" in refused(*others, ideal)


def test_a_figure_has_one_of_three_forms(logs: Logs) -> None:
    message = "expected a name that ends in .png, .svg or .pdf"
    assert message in refused(*logs, "--output", "figure.gif")


# Limits, for CI


def test_a_loss_above_the_limit_exits_with_3(alternated: Path, tmp_path: Path) -> None:
    """One line on stderr says so; the report, its JSON and a figure are as without."""
    figure = tmp_path / "figure.svg"
    code, out, err = run(alternated, "--fail-above", 20, "--output", figure)
    assert code == 3
    assert err == (
        "More than 20% is lost: 75.0% [75.0%, 75.0%] of the training time is lost to data loading; "
        "the whole 95% CI is above the limit\n"
    )
    assert figure.exists()
    assert out.startswith(run(alternated)[1])
    assert run(alternated, "--json", "--fail-above", 20)[:2] == (3, run(alternated, "--json")[1])


def test_a_run_that_is_too_short_exits_with_4(tmp_path: Path) -> None:
    short = record(tmp_path / "short.jsonl", "alternate", batches=4)
    code, _, err = run(short, "--fail-above", 20)
    assert code == 4
    assert err.startswith(f"Undecided whether more than 20% is lost: {short} is too short")
    assert "Measure 10 more epochs" in err


def test_a_slower_run_exits_with_3(tmp_path: Path) -> None:
    """The first of two is the baseline. What changed is told, and what is newly found."""
    before = trained(tmp_path / "before.jsonl", 1)
    slow = trained(tmp_path / "slow.jsonl", 4.5, workers=1, seed=2)
    code, out, err = run(before, slow, "--fail-slower", 5)
    assert code == 3
    assert err.startswith("More than 5% slower: 0.86x [0.8")
    lines = out.splitlines()
    assert lines[0].startswith("Slower than the baseline: 0.86x [0.8")
    assert "loader: workers  2       1" in lines
    assert "Found now: waiting." in lines
    assert "Two runs one after the other also differ by what the machine did" in out
    code, _, err = run(before, slow, "--fail-slower", 14.3)
    assert code == 4
    assert err.startswith("Undecided whether more than 14.3% slower: 0.86x [")
    assert run(before, slow, "--fail-slower", 20)[0] == 0
    change = json.loads(run(before, slow, "--json")[1])["before_after"]
    assert change["pace"] == "slower"
    assert change["says"].endswith("over whole epochs")
    full = run(before, slow, "--full")[1]
    assert full.index("Caution: Two runs") < full.index("now: Training waited for batches")


def test_a_limit_to_be_slower_needs_two_runs_of_one_program(alternated: Path, logs: Logs) -> None:
    assert "the earlier one first" in refused(alternated, "--fail-slower", 5)
    assert "the earlier one first" in refused(*logs, "--fail-slower", 5)
