"""`loadeval run`: alternating, and ending a program early."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.launch.conftest import LOADEVAL, PROGRAM, environment, launch_command

if TYPE_CHECKING:
    from tests.launch.conftest import Launch

pytestmark = pytest.mark.check  # each starts Python and imports torch

PYTHON = sys.executable
ENDLESS = str(Path(__file__).with_name("endless.py"))
ALL = "1000000"


@pytest.mark.parametrize("workers", [0, 1])
def test_alternating_gives_a_verdict(workers: int, launch: Launch) -> None:
    """Every sample is served once, and the screen is printed."""
    done = launch([PYTHON, ENDLESS, "600", str(workers)], "--mode", "alternate")
    assert done.code == 0, done.err
    seen = json.loads(done.out)
    assert seen == list(range(1200))
    assert set(done.run().steps.arm.tolist()) == {0, 1}
    assert "\nMeasured: " in done.err


def test_alternating_ends_after_so_many_batches(launch: Launch) -> None:
    done = launch([PYTHON, ENDLESS, "400", "0"], "--mode", "alternate", "--batches", "100")
    assert done.code == 0, done.err
    assert 100 <= done.run().batches < 300


def test_recording_ends_after_so_many_batches(launch: Launch) -> None:
    """The program trains on as it is, and the log is complete."""
    done = launch([PYTHON, ENDLESS, "400", "0"], "--batches", "100")
    assert done.code == 0, done.err
    assert json.loads(done.out) == list(range(800))
    run = done.run()
    assert (run.batches, run.closed, run.ends[-1].cause) == (100, True, "unmeasured")
    assert "rank0.jsonl training 100 1 " in " ".join(done.err.split())


def test_validation_is_logged_where_training_alternates(launch: Launch) -> None:
    done = launch([PYTHON, str(PROGRAM), "--epochs", "20"], "--mode", "alternate")
    assert done.run().header.mode == "alternate"
    assert done.run("rank0-validation.jsonl").header.mode == "log"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_program_can_be_ended_early(workers: int, launch: Launch) -> None:
    """Ctrl-C does the same: it ends by itself, and that counts as success."""
    done = launch([PYTHON, ENDLESS, ALL, str(workers)], "--stop-after", "50")
    assert done.code == 0, done.err
    assert done.out.startswith("stopped ")
    assert done.run().batches >= 50


def test_ranks_can_be_ended_early(launch: Launch) -> None:
    torchrun = Path(PYTHON).with_name("torchrun")
    command = [str(torchrun), "--standalone", "--nproc-per-node=2", ENDLESS, ALL, "0"]
    done = launch(command, "--stop-after", "50")
    assert done.code == 0, done.err
    assert done.out.count("stopped") == 2


def test_a_program_that_ignores_ctrl_c_is_terminated(launch: Launch) -> None:
    code = (
        "import signal, runpy, sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"sys.argv = [{ENDLESS!r}, {ALL!r}, '0']\nrunpy.run_path({ENDLESS!r}, run_name='__main__')"
    )
    done = launch([PYTHON, "-c", code], "--stop-after", "10")
    assert done.code == 0
    assert done.run().batches >= 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "replay"], "expected log or alternate"),
        (["--batches", "0"], "expected a whole number"),
        (["--batches", "5", "--stop-after", "9"], "of which --batches allows 5; leave one of them"),
    ],
)
def test_options_that_do_not_go_together(options: list[str], message: str, launch: Launch) -> None:
    done = launch(["true"], *options)
    assert done.code in {1, 2}
    assert message in " ".join(done.err.replace("│", " ").split())


def test_watch_and_report_take_the_folder(launch: Launch) -> None:
    done = launch([PYTHON, str(PROGRAM)])

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PYTHON, *LOADEVAL, *arguments],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )

    shown = command("watch", "--once", "--json", str(done.folder)).stdout
    assert json.loads(shown)["batches"] == 16
    assert "report.html" in command("report", str(done.folder)).stdout


def test_ctrl_c_in_a_terminal_comes_once(tmp_path: Path) -> None:
    """The terminal sends it to both; we do not pass it on."""
    code = (
        "import signal, time\nseen = []\nsignal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print('ready', flush=True)\nend = time.monotonic() + 3\n"
        "while time.monotonic() < end: time.sleep(0.1)\nprint('seen', len(seen), flush=True)"
    )
    script = (
        "import os, pty, sys\npid, terminal = pty.fork()\n"
        "if not pid: os.execvpe(sys.argv[1], sys.argv[1:], os.environ)\n"
        "text = b''\n"
        "while True:\n"
        "  try: part = os.read(terminal, 1000)\n"
        "  except OSError: break\n"
        "  if b'ready' in part: os.write(terminal, b'\\x03')\n"
        "  text += part\n"
        "print(text.decode())"
    )
    command = [*launch_command(tmp_path / "logs"), PYTHON, "-c", code]
    done = subprocess.run(
        [PYTHON, "-c", script, *command],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "seen 1" in done.stdout
