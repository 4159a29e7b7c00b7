"""`loadeval show`."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from loadeval.analysis.estimate.summary import summarise
from loadeval.cli.main import app
from loadeval.runlog.log_file.reader import read_run
from loadeval.runlog.log_file.writer import write_metrics
from loadeval.runlog.model import Event
from tests.cli.commands import COMMAND, runner
from tests.runs.given import write_run
from tests.runs.measured import record
from tests.runs.staged import staged, without_stages

if TYPE_CHECKING:
    from pathlib import Path

run = runner("show")


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Path:
    """A run log whose waits are 30 ms and whose steps are 10 ms, of four images each."""
    return record(tmp_path / "real.jsonl")


def test_figures_of_a_run_are_printed(log: Path) -> None:
    """A run log is read, and its figures printed."""
    code, out, err = run(log)
    assert (code, err) == (0, "")
    assert "100 images/s" in out
    assert "75.0%" in out


def test_runs_are_printed_side_by_side(log: Path, tmp_path: Path) -> None:
    """Run logs and metrics files can be shown together."""
    other = tmp_path / "other.json"
    write_metrics(read_run(record(tmp_path / "other.jsonl")), other)
    _, out, _ = run(log, other)
    assert out.splitlines()[0].split() == ["run", "real", "other"]


def test_an_alternating_run_has_a_column_for_each_arm(tmp_path: Path) -> None:
    """Real and ideal batches are told side by side, in text and in JSON."""
    log = record(tmp_path / "run.jsonl", mode="alternate")
    code, out, err = run(log)
    assert (code, err) == (0, "")
    assert "alternate, real arm alternate, ideal arm" in " ".join(out.split())
    (shown,) = json.loads(run(log, "--json")[1])["runs"]
    assert "summary" not in shown
    measured = read_run(log)
    for arm, batches in (("real", measured.steps.arm == 0), ("ideal", measured.steps.arm == 1)):
        assert shown["summaries"][arm]["batches"] == batches.sum()


def test_json_has_the_summary_of_each_run(log: Path) -> None:
    """One object, with the fields of Summary under their own names."""
    code, out, err = run(log, log, "--json")
    shown = json.loads(out)
    summary = dataclasses.asdict(summarise(read_run(log)))
    assert (code, err) == (0, "")
    assert [summary["path"] for summary in shown["runs"]] == [str(log)] * 2
    assert shown["runs"][0]["summary"] == json.loads(json.dumps(summary))


def test_a_run_that_replayed_has_no_findings(tmp_path: Path) -> None:
    """There is no loading to find anything about."""
    log = record(tmp_path / "ideal.jsonl", "replay")
    assert "Findings" not in run(log)[1]
    (shown,) = json.loads(run(log, "--json")[1])["runs"]
    assert shown["diagnosis"] is None


@pytest.fixture(name="looked_into")
def _looked_into(tmp_path: Path) -> Path:
    """The run log of a run whose loader was looked into."""
    return write_run(staged(), tmp_path / "staged.jsonl")


def test_the_inside_of_the_loader_instead(looked_into: Path) -> None:
    """One screen, without the figures of the run."""
    code, out, err = run(looked_into, "--stages")
    assert (code, err) == (0, "")
    assert out.startswith("Inside the loader: 11.7 ms a batch")
    assert "throughput" not in out
    assert len(out.splitlines()) <= 40


def test_the_inside_of_the_loader_too(looked_into: Path, log: Path) -> None:
    """With the figures and findings; without them by default."""
    code, out, _ = run(looked_into, log, "--full")
    assert code == 0
    assert "throughput" in out
    assert "Inside the loader: 11.7 ms a batch" in out
    assert "Inside the loader: not measured" in out
    assert "Inside the loader" not in run(looked_into)[1]


def test_stages_that_are_missing_and_workers_that_died_are_notes(tmp_path: Path) -> None:
    """Each in its own words; what happened again, once."""
    noted = without_stages(staged(), kind="stages missing", message="no fetcher known")
    died = [Event(at, f"worker {at} died", "worker died") for at in (1, 2, 2)]
    path = write_run(
        dataclasses.replace(noted, events=(*noted.events, *died)), tmp_path / "a.jsonl"
    )
    _, out, _ = run(path)
    notes = out.partition("\nNotes")[2]
    assert "no fetcher known" in notes
    assert "worker 1 died" in notes
    assert "worker 2 died (2 times" in " ".join(notes.split())
    _, out, _ = run(path, "--stages")
    assert out.strip() == "Inside the loader: not measured: no fetcher known"


def test_json_has_the_stages_of_each_run(looked_into: Path, log: Path) -> None:
    """None of a loader that was not looked into."""
    first, other = json.loads(run(looked_into, log, "--json")[1])["runs"]
    assert first["stages"]["words"].startswith("fetch 72%")
    shares = [stage["share"] for stage in first["stages"]["stages"]]
    assert sum(shares) + first["stages"]["not_attributed_share"] == pytest.approx(1)
    assert other["stages"] is None


def test_a_name_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Escape sequences and markup of a run are text."""
    _, out, _ = run(record(tmp_path / "a.jsonl", name="[red]\x1b[2J"))
    assert r"[red]\x1b[2J" in out


def test_version_is_told() -> None:
    """`loadeval --version` prints one line."""
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout.split()[0]) == (0, "loadeval")


def test_the_installed_command_shows_a_run(log: Path) -> None:
    """Run as a process into a pipe of 80 columns, it prints plain text, every figure whole."""
    done = subprocess.run([COMMAND, "show", log], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "100 images/s" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_an_encoding_without_the_letters_of_a_name(tmp_path: Path) -> None:
    """A name that stdout cannot encode is escaped, and is no error."""
    log = record(tmp_path / "a.jsonl", name="Läufer")
    done = subprocess.run(
        [COMMAND, "show", log],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
        check=True,
    )
    assert rb"L\xe4ufer" in done.stdout
