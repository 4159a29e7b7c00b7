"""`loadeval tune`: an unedited program, run with one setting after another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import runner
from tests.launch.conftest import PROGRAM, ran

run = runner("tune")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--space", "num_workers"], "num_workers is ''; expected a whole number, 0 or more"),
        (["--space", "batch_size=4,8"], "batch_size=4 changes the samples of a batch"),
        (["--set", "no_such=1"], "no loader that loadeval knows has the setting no_such"),
    ],
)
def test_wrong_options_are_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*options, "--", "python", PROGRAM)
    assert (code, out) == (1, "")
    assert message in err
    assert not list(tmp_path.iterdir())


@pytest.mark.check
def test_a_program_is_run_with_each_setting_in_turn(tmp_path: Path) -> None:
    """Its output is beside its logs, and stdout has the result alone."""
    command = ["--", "python", PROGRAM, "--workers", 1, "--epochs", 20]
    options = ["--space", "num_workers=0", "--stop-after", 40, "--json", "-o", "logs"]
    done = ran(tmp_path, "tune", *options, *command)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [trial["changes"] for trial in result["trials"]] == [{}, {"num_workers": 0}]
    assert all(trial["throughput"] > 0 for trial in result["trials"])
    assert result["trials"][1]["speedup"]["low"] is not None
    assert result["present"] == {"num_workers": 1}
    assert result["made_at"].startswith(f"{PROGRAM}:")
    present, other = "present settings", "num_workers=0"
    order = [present, present, other, other, present, present, other, other, present]
    runs = [line for line in done.stderr.splitlines() if line.startswith("loadeval: run ")]
    assert runs == [f"loadeval: run {number:02}, {name}" for number, name in enumerate(order, 1)]
    assert (tmp_path / "logs" / "09" / "output.txt").stat().st_size > 0


@pytest.mark.check
def test_a_program_that_cannot_be_measured_ends_it(tmp_path: Path) -> None:
    done = ran(tmp_path, "tune", "--set", "num_threads=1", "--", "python", PROGRAM)
    assert (done.returncode, done.stdout) == (1, "")
    *_, last = done.stderr.splitlines()
    assert last.startswith("Error: Nothing was measured: this DataLoader has no num_threads that")
    assert last.endswith(". See 01/output.txt")


@pytest.mark.check
def test_sigterm_ends_all_runs_as_ctrl_c_does(tmp_path: Path) -> None:
    kills = "import os, signal; os.kill(os.getppid(), signal.SIGTERM); signal.pause()"
    done = ran(tmp_path, "tune", "-o", "logs", "--", "python", "-c", kills)
    assert (done.returncode, done.stdout) == (130, "")
    assert [run.name for run in (tmp_path / "logs").iterdir()] == ["01"]
