"""`loadeval compare BEFORE AFTER` and `--fail-slower`, and the same on the page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.data.lines import LoaderInfo
from tests.cli.commands import runner
from tests.runs.given import MS, make_run, write_run
from tests.runs.measured import record
from tests.runs.ranks import runs_of, train, train_in_pairs
from tests.runs.tables import with_steps

if TYPE_CHECKING:
    from pathlib import Path

run = runner("compare", columns=200)
on_a_narrow_screen = runner("compare")
write_page = runner("report")
TORCH = "torch.utils.data.DataLoader"


def written(path: Path, wait_ms: float, *, workers: int = 2, seed: int = 0) -> Path:
    """The log of three epochs of 100 batches, with steps of about 20 ms."""
    random = np.random.default_rng(seed)
    step_ns = (20 * MS * random.normal(1.0, 0.03, 300)).astype(int)
    wait_ns = round(wait_ms * MS)
    run = make_run(
        [wait_ns] * 300,
        step_ns.tolist(),
        epochs=[100] * 3,
        warmup=1,
        loader=LoaderInfo(TORCH, workers=workers),
    )
    request_ns = np.cumsum(wait_ns + step_ns) - wait_ns - step_ns
    return write_run(with_steps(run, request_ns=request_ns), path)


@pytest.fixture(name="logs")
def _logs(tmp_path: Path) -> dict[str, Path]:
    """A baseline, one like it, and one that is slower by a seventh."""
    return {
        "before": written(tmp_path / "before.jsonl", 1),
        "same": written(tmp_path / "same.jsonl", 1, seed=1),
        "slow": written(tmp_path / "slow.jsonl", 4.5, workers=1, seed=2),
    }


def test_a_slower_run_exits_with_3(logs: dict[str, Path]) -> None:
    """The screen says by how much, what changed, and that a machine drifts between two runs."""
    code, out, err = on_a_narrow_screen(logs["before"], logs["slow"], "--fail-slower", 5)
    assert code == 3
    assert err.startswith("More than 5% slower: 0.86x [0.8")
    assert err.endswith("the whole 95% CI is beyond the limit\n")
    lines = out.splitlines()
    assert lines[0].startswith("Slower than the baseline: 0.86x [0.8")
    assert len(lines) <= 25
    assert max(map(len, lines[:-2])) <= 80
    assert "loader: workers  1    2" in lines
    assert "New finding: waiting" in out
    assert "Two runs one after the other also differ by what the machine did" in out
    command = f"loadeval compare {logs['before']} {logs['slow']} --full"
    assert lines[-2] == f"everything  {command}"


def test_an_equal_run_exits_with_0(logs: dict[str, Path]) -> None:
    """Nothing changed, and no finding is new."""
    code, out, err = run(logs["before"], logs["same"], "--fail-slower", 5)
    assert code == 0
    assert out.startswith("As fast as the baseline, within 10%: 1.00x [")
    assert err.startswith("Not more than 5% slower: 1.00x [")
    assert "Changed: nothing that the logs tell" in out
    assert "Findings: none new, none gone" in out


def test_a_limit_within_the_interval_exits_with_4(logs: dict[str, Path]) -> None:
    """One at the ratio itself cannot be told."""
    code, _, err = run(logs["before"], logs["slow"], "--fail-slower", 14.3)
    assert code == 4
    assert err.startswith("Undecided whether more than 14.3% slower: 0.86x [")


def test_too_few_batches_exit_with_4(tmp_path: Path) -> None:
    """The reason is told."""
    before, short = (
        record(tmp_path / f"{batches}.jsonl", "log", batches=batches) for batches in (100, 6)
    )
    code, out, err = run(before, short, "--fail-slower", 5)
    assert code == 4
    reason = "too few batches: 5 now and 99 before, and each needs at least 20"
    assert out.startswith(f"Undecided against the baseline: {reason}")
    assert err.startswith(f"Undecided whether more than 5% slower: {reason}. Measure more")


def test_both_gates_exit_with_the_worse_code(tmp_path: Path) -> None:
    """75% are lost, as in the baseline."""
    logs = [record(tmp_path / f"{name}.jsonl", "alternate", epochs=4) for name in ("a", "b")]
    arguments = (logs[1], logs[0], "--fail-slower", 5)
    code, out, err = run(*arguments, "--fail-above", 20)
    assert code == 3
    assert [line.partition(":")[0] for line in err.splitlines()] == [
        "Above 20%",
        "Not more than 5% slower",
    ]
    assert run(*arguments, "--fail-above", 80)[0] == 0
    assert "time lost per batch       30.0 ms       30.0 ms       1.00x [1.00x, 1.00x]" in out


def test_the_first_of_two_alternating_runs_is_before(tmp_path: Path) -> None:
    before, after = (
        record(tmp_path / f"{wait_ms}.jsonl", "alternate", wait_ms=wait_ms, epochs=4)
        for wait_ms in (10, 30)
    )
    assert run(before, after)[1].startswith("Slower than the baseline: 0.50x")
    assert run(after, before)[1].startswith("Faster than the baseline: 2.00x")


def test_what_is_no_run_before_and_one_after(logs: dict[str, Path], tmp_path: Path) -> None:
    """Runs of other modes, of other loaders, or more than two are several backends."""
    alternated = record(tmp_path / "alternated.jsonl", "alternate", epochs=4)
    logged = record(tmp_path / "logged.jsonl", "log")
    for several in ((logged, alternated), (logged, logs["same"]), tuple(logs.values())):
        out = run(*several)[1]
        assert "backends under one training step" in out
        assert "baseline" not in out


@pytest.mark.parametrize("in_pairs", [False, True])
def test_the_folder_of_a_job_against_another(tmp_path: Path, in_pairs: bool) -> None:
    """Its ranks are the devices."""
    folders = []
    for name, wait_ms in (("now", 30), ("before", 20)):
        wait_ns = np.zeros((3, 160), np.int64)
        wait_ns[1] = wait_ms * MS
        training = train(wait_ns)
        more: dict[str, Any] = {}
        if in_pairs:
            training, arm, pair = train_in_pairs(wait_ns)
            more = {"arm": arm, "pair": pair}
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        for rank in runs_of(training, **more):
            write_run(rank, folders[-1] / f"{rank.header.name}.jsonl")
    code, out, _ = run(folders[1], folders[0])
    assert code == 0
    assert out.startswith("Slower than the baseline: 0.")
    document = json.loads(run(folders[1], folders[0], "--json")[1])
    assert document["job"]["world_size"] == 3
    assert document["baseline"]["pace"] == "slower"


def test_json_has_the_baseline(logs: dict[str, Path]) -> None:
    """Beside what is said of the run."""
    _, out, _ = run(logs["before"], logs["slow"], "--json")
    document = json.loads(out)
    assert document["mode"] == "log"
    baseline = document["baseline"]
    assert (baseline["pace"], baseline["period"]) == ("slower", "whole epochs")
    assert baseline["epochs"]["ratio"]["value"] == pytest.approx(21 / 24.5, rel=0.01)
    assert baseline["changes"] == [{"where": "loader", "name": "workers", "before": 2, "now": 1}]
    assert [change["finding"]["rule"] for change in baseline["new_findings"]] == ["waiting"]


def test_everything_is_printed_below_the_baseline(logs: dict[str, Path]) -> None:
    """With --full the findings of the run and its figures come too."""
    _, out, _ = run(logs["before"], logs["slow"], "--full")
    assert out.startswith("Slower than the baseline")
    assert out.index("Caution: Two runs") < out.index("\nFindings\n") < out.index("wait, p95")


def test_the_page_has_the_baseline(logs: dict[str, Path], tmp_path: Path) -> None:
    """In a section of its own, and with the command that made it."""
    page = tmp_path / "page.html"
    assert write_page(logs["before"], logs["slow"], "-o", page)[0] == 0
    text = page.read_text("utf-8")
    assert "Against the baseline" in text
    assert "Slower than the baseline: 0.86x" in text
    assert "loader: workers" in text
    assert f"loadeval compare {logs['before']} {logs['slow']}" in text
    assert write_page(logs["slow"], "-o", page)[0] == 0
    assert "Against the baseline" not in page.read_text("utf-8")
    assert write_page(logs["before"], logs["same"], "-o", page)[0] == 0
    assert "nothing that the logs tell" in page.read_text("utf-8")


def test_wrong_usage(logs: dict[str, Path], tmp_path: Path) -> None:
    """A limit with one run, or one of 0; and nothing to draw."""
    for arguments, message in (
        (("--fail-slower", 5), "expected two runs of the same loader in the same mode"),
        (("--fail-slower", 0, logs["before"]), "--fail-slower is 0"),
        ((logs["before"], "-o", tmp_path / "a.png"), "leave it out"),
    ):
        code, out, err = run(logs["slow"], *arguments)
        assert (code, out) == (2, "")
        assert message in " ".join(err.replace("│", "").split())
