"""`loadeval compare`."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from loadeval.analysis import headroom
from loadeval.analysis.findings.diagnosis import diagnose
from loadeval.analysis.summary import summarise
from loadeval.report.findings import diagnosis_as_dict
from loadeval.report.json import headroom_as_dict
from loadeval.report.readings import readings_as_dict
from loadeval.runlog.reader import read_run
from tests.cli.commands import COMMAND, record, runner

Logs = tuple[Path, Path]
run = runner("compare")


@pytest.fixture(name="logs")
def _logs(tmp_path: Path) -> Logs:
    """Run logs of a real and an ideal run: steps of 10 ms, after waits of 30 ms and of none."""
    return record(tmp_path / "real.jsonl", "log"), record(tmp_path / "ideal.jsonl", "replay")


def test_the_finding_is_printed_first(logs: Logs) -> None:
    """The speed-up is in the first line, and both runs are told below."""
    code, out, err = run(*logs)
    assert (code, err) == (0, "")
    assert out.startswith("Highly input-bound: training would be 4.00x as fast")
    assert "100 images/s" in out
    assert "400 images/s" in out


def test_no_figure_is_written_unasked(logs: Logs) -> None:
    """Without --output the folder stays as it is."""
    before = sorted(logs[0].parent.iterdir())
    run(*logs)
    assert sorted(logs[0].parent.iterdir()) == before


def test_a_figure_is_written_where_asked(logs: Logs, tmp_path: Path) -> None:
    """The path is told."""
    code, out, _ = run(*logs, "--output", tmp_path / "figure.png")
    assert code == 0
    assert out.endswith(f"Figure written to {tmp_path / 'figure.png'}\n")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_one_screen_is_printed(logs: Logs) -> None:
    """The arms, the time lost, the finding in a line, and the commands that tell more."""
    _, out, _ = run(*logs)
    lines = out.splitlines()
    assert len(lines) <= 25
    assert "waiting  75.0%  measured  measure with mode='alternate'" in lines
    assert lines[-2] == f"everything  loadeval compare {logs[0]} {logs[1]} --full"
    assert lines[-1] == f"page        loadeval report {logs[0]} {logs[1]}"


def test_the_commands_can_be_pasted(logs: Logs) -> None:
    """A path with a space in it is quoted."""
    spaced = logs[0].rename(logs[0].with_name("a run.jsonl"))
    _, out, _ = run(spaced, logs[1])
    assert f"loadeval compare '{spaced}' {logs[1]} --full" in out


def test_findings_stand_between_comparison_and_runs(logs: Logs) -> None:
    """With --full: what is wrong, or that nothing is, and what was asked."""
    _, out, _ = run(*logs, "--full")
    assert (
        out.index("verdict")
        < out.index("\nFindings\n1. waiting: high, 75.0% lost")
        < out.index("\nrun ")
    )
    assert "Nothing found: zero workers" not in out  # how many there are is not known
    assert "  Nothing found: contention" in out


def test_json_has_the_fields_of_the_dataclasses(logs: Logs) -> None:
    """One object: Headroom's fields, the summaries of real and ideal, readings, diagnosis."""
    code, out, err = run(*logs, "--json")
    real, ideal = map(read_run, logs)
    expected = headroom_as_dict(headroom.compare(real, ideal))
    expected |= {"real": dataclasses.asdict(summarise(real))}
    expected |= {"ideal": dataclasses.asdict(summarise(ideal))}
    expected |= {"readings": [readings_as_dict(real), readings_as_dict(ideal)]}
    expected |= {"diagnosis": diagnosis_as_dict(diagnose(real, ideal))}
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads(json.dumps(expected))


def test_json_and_figure_together(logs: Logs, tmp_path: Path) -> None:
    """The figure is written, and stdout is JSON alone."""
    _, out, _ = run(*logs, "--json", "--output", tmp_path / "figure.svg")
    assert json.loads(out)["speedup"]["value"] == 4.0
    assert (tmp_path / "figure.svg").exists()


@pytest.mark.parametrize(
    ("output", "message"),
    [("figure.gif", ".png, .svg or .pdf was expected"), ("none/a.png", "cannot write the figure")],
)
def test_a_figure_that_cannot_be_written_exits_with_1(
    logs: Logs, tmp_path: Path, output: str, message: str
) -> None:
    """The message goes to stderr, and nothing to stdout."""
    code, out, err = run(*logs, "--output", tmp_path / output)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert message in err


def test_runs_the_other_way_round_exit_with_1(logs: Logs) -> None:
    """The message says what was expected."""
    code, out, err = run(*reversed(logs))
    assert (code, out) == (1, "")
    assert "the other way round" in err


@pytest.fixture(name="alternated")
def _alternated(tmp_path: Path) -> Path:
    """The run log of an alternating run: steps of 10 ms, after waits of 30 ms and of none."""
    return record(tmp_path / "alternated.jsonl", "alternate", epochs=4)


def test_one_alternating_run_is_compared_with_itself(alternated: Path, tmp_path: Path) -> None:
    """One file gives the finding with its interval, a column for each arm, and a figure."""
    output = tmp_path / "figure.png"
    code, out, err = run(alternated, "--full", "--output", output)
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert words.startswith("Highly input-bound: training would be 4.00x as fast if loading were")
    assert "(95% CI 4.00x to 4.00x)" in words
    assert "alternate, real arm alternate, ideal arm" in words
    assert output.read_bytes().startswith(b"\x89PNG")


def test_json_of_one_alternating_run(alternated: Path) -> None:
    """Headroom's fields, and the summaries of its arms as real and ideal."""
    code, out, err = run(alternated, "--json")
    found, measured = json.loads(out), read_run(alternated)
    expected = headroom_as_dict(headroom.headroom(measured))
    assert (code, err) == (0, "")
    assert {name: found[name] for name in expected} == json.loads(json.dumps(expected))
    assert found["pairs"] >= 3
    assert found["real"]["steady_batches"] == found["real_batches"]
    assert found["ideal"]["steady_batches"] == found["ideal_batches"]


def test_one_run_that_does_not_alternate_exits_with_1(logs: Logs) -> None:
    """The message says what kind of run was expected."""
    code, out, err = run(logs[0])
    assert (code, out) == (1, "")
    assert "mode='alternate'" in err
    assert err.count("\n") == 1


def test_an_alternating_run_has_its_own_ideal(logs: Logs, alternated: Path) -> None:
    """Beside one that replayed it is refused, on either side."""
    for files in ((alternated, logs[1]), (logs[1], alternated)):
        code, out, err = run(*files)
        assert (code, out) == (1, "")
        assert "jsonl was recorded with mode=" in err


def test_the_installed_command_compares(logs: Logs, tmp_path: Path) -> None:
    """As a process of its own: plain text on stdout, and a figure."""
    output = tmp_path / "figure.pdf"
    done = subprocess.run(
        [COMMAND, "compare", *logs, "--output", output], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith("Highly input-bound")
    assert output.read_bytes().startswith(b"%PDF")


def test_an_error_of_the_installed_command_is_no_traceback(tmp_path: Path) -> None:
    """One line on stderr, and exit code 1."""
    done = subprocess.run(
        [COMMAND, "compare", tmp_path / "a", tmp_path / "b"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
