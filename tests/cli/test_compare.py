"""`loadeval compare`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from loadeval.analysis.report import Report
from loadeval.data.folder import LoaderRecord, ProcessRecord
from loadeval.data.log import read_run
from loadeval.report.json import report_as_dict
from tests.cli.commands import COMMAND, runner
from tests.runs import DEMO
from tests.runs.given import MS, write_run
from tests.runs.measured import record
from tests.runs.staged import staged
from tests.runs.tables import replace

Logs = tuple[Path, Path]
SCREEN_OF_A_LOG = """\
Training waited for batches 75.0% of the time, at 100 images/s (95% CI
[100, 100])

findings  waiting 75.0%

what to do                                where  predicted
1. perhaps measure with mode='alternate'  -      not predicted

Mode log shows how long training waited, not what it would gain: loading also
slows the steps beside it. For the gain: loadeval run --mode alternate --
COMMAND

everything  loadeval compare {log} --full
page        loadeval report {log}
"""
LOADERS = (
    LoaderRecord("rank0.jsonl", "training", "log", "Loader", None, True, 1, 30),
    LoaderRecord("rank0-validation.jsonl", "validation", "log", "Loader", None, False, 1, 0),
)
run = runner("compare")


@pytest.fixture(name="logs")
def _logs(tmp_path: Path) -> Logs:
    """Run logs of a real and an ideal run: steps of 10 ms, after waits of 30 ms and of none."""
    return record(tmp_path / "real.jsonl", "log"), record(tmp_path / "ideal.jsonl", "replay")


@pytest.fixture(name="alternated")
def _alternated(tmp_path: Path) -> Path:
    """The run log of an alternating run: steps of 10 ms, after waits of 30 ms and of none."""
    return record(tmp_path / "alternated.jsonl", "alternate", epochs=4)


def refused(*arguments: object) -> str:
    """The one line on stderr of a command that exits with 1 and prints nothing."""
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    return err


def test_one_screen_is_printed(logs: Logs) -> None:
    """The verdict first, both arms, the finding, what to do, and the commands that tell more."""
    before = sorted(logs[0].parent.iterdir())
    code, out, err = run(*logs)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("Highly input-bound: training would be 4.00x as fast")
    assert len(lines) <= 25
    assert "100 images/s" in out
    assert "400 images/s" in out
    assert "findings  waiting 75.0%" in lines
    assert "1. measure with mode='alternate'  -      not predicted" in lines
    assert lines[-2] == f"everything  loadeval compare {logs[0]} {logs[1]} --full"
    assert lines[-1] == f"page        loadeval report {logs[0]} {logs[1]}"
    assert sorted(logs[0].parent.iterdir()) == before  # no figure is written unasked


def test_the_commands_can_be_pasted(logs: Logs) -> None:
    """A path with a space in it is quoted."""
    spaced = logs[0].rename(logs[0].with_name("a run.jsonl"))
    _, out, _ = run(spaced, logs[1])
    assert f"loadeval compare '{spaced}' {logs[1]} --full" in out


def test_findings_stand_between_comparison_and_runs(logs: Logs) -> None:
    """With --full: what is wrong, and what was checked."""
    _, out, _ = run(*logs, "--full")
    finding = out.index("\nFindings\n1. waiting: high, 75.0% lost")
    assert out.index("verdict") < finding < out.index("\nrun ")
    assert "Nothing found: zero workers" not in out  # how many there are is not known
    _, clear = " ".join(out.split()).split("Nothing found: ")
    assert "contention" in clear.partition(".")[0]


def test_one_alternating_run_is_compared_with_itself(alternated: Path, tmp_path: Path) -> None:
    """One file gives the finding with its interval, a column for each arm, and a figure."""
    output = tmp_path / "figure.png"
    code, out, err = run(alternated, "--full", "--output", output)
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert words.startswith("Highly input-bound: training would be 4.00x as fast if loading were")
    assert "(95% CI [4.00x, 4.00x])" in words
    assert "alternate, real arm alternate, ideal arm" in words
    assert out.endswith(f"Figure written to {output}\n")
    assert output.read_bytes().startswith(b"\x89PNG")


def test_json_is_the_report(logs: Logs, alternated: Path, tmp_path: Path) -> None:
    """One object on stdout and nothing else, though a figure is written."""
    for files in (logs, (alternated,)):
        figure = tmp_path / f"{len(files)}.svg"
        code, out, err = run(*files, "--json", "--output", figure)
        report = Report.of([read_run(file) for file in files])
        assert (code, err) == (0, "")
        document = json.loads(out)
        assert document == json.loads(json.dumps(report_as_dict(report)))
        assert document["speedup"]["value"] == pytest.approx(4.0)
        assert document["real"]["steady_batches"] == document["real_batches"]
        assert document["ideal"]["steady_batches"] == document["ideal_batches"]
        assert len(document["readings"]) == len(files)
        assert figure.exists()


@pytest.mark.parametrize(
    ("output", "message"),
    [("figure.gif", ".png, .svg or .pdf was expected"), ("none/a.png", "cannot write the figure")],
)
def test_a_figure_that_cannot_be_written_exits_with_1(
    logs: Logs, tmp_path: Path, output: str, message: str
) -> None:
    """The message goes to stderr, and nothing to stdout."""
    assert message in refused(*logs, "--output", tmp_path / output)


def test_runs_that_cannot_be_compared_exit_with_1(logs: Logs, alternated: Path) -> None:
    """The message says what was expected."""
    real, ideal = logs
    assert "the other way round" in refused(ideal, real)
    assert "no real arm to compare; give the run with mode='log' too" in refused(ideal)
    for files in ((alternated, ideal), (ideal, alternated)):  # it has its own ideal arm
        assert "jsonl was recorded with mode=" in refused(*files)


def test_one_run_of_mode_log_is_said_as_at_the_end_of_loadeval_run(logs: Logs) -> None:
    code, out, err = run(logs[0])
    assert (code, err) == (0, "")
    assert out == SCREEN_OF_A_LOG.format(log=logs[0])


def test_everything_of_a_run_of_mode_log(logs: Logs) -> None:
    """Its findings, and its figures; JSON has them as of a run by itself."""
    out = run(logs[0], "--full")[1]
    assert out.startswith("Training waited for batches 75.0% of the time")
    assert out.index("\nWhat to do\n") < out.index("\nFindings\n") < out.index("wait, p95")
    document = json.loads(run(logs[0], "--json")[1])
    assert (document["mode"], "diagnosis" in document) == ("log", True)


def test_a_folder_of_a_run_of_mode_log_has_its_loaders(tmp_path: Path) -> None:
    record(tmp_path / "rank0.jsonl")
    record(tmp_path / "rank0-validation.jsonl", batches=4)
    ProcessRecord("rank0", 0, 1, "host", True, LOADERS).save(tmp_path)
    lines = run(tmp_path)[1].splitlines()
    assert lines[0].startswith("Training waited for batches 75.0% of the time")
    assert lines[-5:] == [
        "rank0.jsonl (training): 30 batches, 1 epoch, 30 optimizer steps of 4 samples",
        "rank0-validation.jsonl (validation): 4 batches, 1 epoch",
        "",
        f"everything  loadeval compare {tmp_path} --full",
        f"page        loadeval report {tmp_path}",
    ]


def test_a_replay_after_real_batches(logs: Logs, tmp_path: Path) -> None:
    """Its real batches are no real arm, and without kept ones after them it is no ideal one."""
    after = record(tmp_path / "after.jsonl", "replay", replay_after=10, epochs=2)
    assert "(the real batches of replay_after=10 are left out)" in refused(after)
    assert run(logs[0], after)[0] == 0
    short = record(tmp_path / "short.jsonl", "replay", replay_after=100)
    assert "nothing was replayed" in refused(logs[0], short)


@pytest.mark.check
def test_the_installed_command_compares(logs: Logs, tmp_path: Path) -> None:
    """Run as a process, it writes plain text to stdout, and a figure."""
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
    command = [str(COMMAND), "compare", str(tmp_path / "a"), str(tmp_path / "b")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_everything_includes_the_inside_of_the_loader(alternated: Path, tmp_path: Path) -> None:
    """Its tables, or why there are none; the screen has one line of it."""
    log = write_run(staged(), tmp_path / "staged.jsonl")
    assert "Inside the loader: 11.7 ms a batch" in run(log, "--full")[1]
    assert "Inside the loader: not measured" in run(alternated, "--full")[1]
    screen = run(log)[1].splitlines()
    assert sum(line.startswith("inside the loader  fetch") for line in screen) == 1
    assert len(screen) <= 25


def test_decoding_that_is_waited_for_has_the_command_that_measures_decoders() -> None:
    """Under a step that takes as long as that of the run with ideal loading."""
    code, out, _ = run(DEMO)
    assert code == 0
    assert "other decoders  loadeval backends FOLDER --step 21.3ms\n" in out


def test_what_is_no_decoding_has_no_such_command(tmp_path: Path) -> None:
    """Most of this loader's time is a blur."""
    _, out, _ = run(write_run(staged(), tmp_path / "staged.jsonl"))
    assert "highly input-bound" in out.lower()
    assert "other decoders" not in out


def test_decoding_that_nobody_waits_for_has_no_such_command(tmp_path: Path) -> None:
    """The same run without waits: training may take as long with ideal loading."""
    demo = read_run(DEMO)
    wait_ns, step_ns = np.zeros_like(demo.steps.wait_ns), np.full_like(demo.steps.step_ns, 9 * MS)
    steps = replace(demo.steps, wait_ns=wait_ns, step_ns=step_ns)
    without = replace(demo, steps=steps, windows=())
    _, out, _ = run(write_run(without, tmp_path / "no-waits.jsonl"))
    assert out.startswith("Not to moderately input-bound")
    assert "other decoders" not in out
