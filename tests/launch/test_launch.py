"""`loadeval run`: the ways to launch a program, what it keeps of its own, and ending it early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.conftest import PROGRAM, Launch, environment, launch_command, ran

pytestmark = pytest.mark.check  # each starts Python and imports torch

PYTHON = sys.executable
ENDLESS = str(Path(__file__).with_name("endless.py"))
ALL = "1000000"
PARENT = f"""
import subprocess, sys
sys.exit(subprocess.run([sys.executable, {str(PROGRAM)!r}, *sys.argv[1:]]).returncode)
"""
TRAINED = {"rank0-validation.jsonl": 8, "rank0.jsonl": 16}
"""Batches of two epochs."""
SPAWN = """
import os, torch, runpy, sys
import torch.multiprocessing as mp
def rank(number):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT={port!r})
    torch.distributed.init_process_group("gloo", rank=number, world_size=2)
    sys.argv = [{program!r}]
    try:
        runpy.run_path({program!r}, run_name="__main__")
    finally:
        torch.distributed.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(rank, nprocs=2)
"""


def tool(name: str) -> str:
    """A script that is installed beside Python."""
    return str(Path(PYTHON).with_name(name))


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([PYTHON, "-m", "tests.launch.program"], id="module"),
        pytest.param(["sh", "-c", f"{PYTHON} -O -u {PROGRAM}; exit $?"], id="shell"),
        pytest.param([PYTHON, "-c", PARENT], id="subprocess"),
        pytest.param([PYTHON, str(PROGRAM), "--workers=1", "--context=spawn"], id="spawn"),
        pytest.param(
            [PYTHON, str(PROGRAM), "--workers=1", "--context=forkserver"], id="forkserver"
        ),
        pytest.param(
            [tool("accelerate"), "launch", "--cpu", "--num_processes=1", str(PROGRAM)],
            id="accelerate launch",
        ),
    ],
)
def test_its_loaders_are_measured(command: list[str], launch: Launch, tmp_path: Path) -> None:
    done = launch(command)
    assert done.code == 0, done.err
    assert done.batches == TRAINED, done.err
    assert done.out == ran(tmp_path, *command).stdout
    assert done.main.log == "rank0.jsonl"
    assert done.main.optimizer_steps == 16
    assert "Training waited for batches" in done.err


@pytest.mark.parametrize("launcher", ["torch.distributed.run", "mp.spawn"])
def test_each_rank_has_its_logs(launcher: str, launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text(SPAWN.format(program=str(PROGRAM), port=str(20_000 + os.getpid() % 9999)))
    command = [PYTHON, str(script)]
    if launcher != "mp.spawn":
        options = ["--standalone", "--nproc-per-node=2", "-m", "tests.launch.program"]
        command = [PYTHON, "-m", launcher, *options]
    done = launch(command)
    assert done.code == 0, done.err
    assert done.batches == {
        **TRAINED,
        **{name.replace("0", "1"): count for name, count in TRAINED.items()},
    }
    assert "2 ranks of one job waited for batches" in done.err


def test_a_python_that_cannot_be_measured_is_told(launch: Launch) -> None:
    """It reads no PYTHONPATH; it runs, and no folder is left."""
    done = launch([PYTHON, "-I", "-c", "print('ran')"])
    assert (done.code, done.out) == (0, "ran\n")
    assert "Nothing was measured: the command started no Python that can be measured" in done.err
    assert not done.folder.exists()


def test_a_loader_that_cannot_be_measured_is_told(launch: Launch, tmp_path: Path) -> None:
    code = "import loadeval, sys; sys.modules['loadeval.launch.session'] = None\n"
    command = [PYTHON, "-c", f"{code}from tests.launch.program import main; main()"]
    done = launch(command)
    assert (done.code, done.out) == (0, ran(tmp_path, *command).stdout)
    assert "loadeval: not measured (ModuleNotFoundError" in done.err
    assert "Nothing was measured: ModuleNotFoundError" in done.err


def test_a_setting_that_the_loader_does_not_take_ends_the_program(launch: Launch) -> None:
    done = launch([PYTHON, str(PROGRAM)], "--set", "num_threads=2")
    *_, last = done.err.splitlines()
    assert "UsageError: this DataLoader has no num_threads that can be changed" in last
    assert done.code == 1
    assert not done.folder.exists()


def test_a_program_keeps_its_exit_code_and_is_tracked(launch: Launch, tmp_path: Path) -> None:
    """Its training loader is; gradient accumulation is counted."""
    command = [PYTHON, str(PROGRAM), "--accumulate=4", "--code=7"]
    done = launch(command, "--track", "tensorboard")
    assert done.code == 7
    assert done.main.optimizer_steps == 4
    assert "training 16 2 4 x 32 samples" in " ".join(done.err.split())
    (tracked,) = (tmp_path / "runs").iterdir()
    assert "rank0" in tracked.name


def test_a_signal_that_ends_it_ends_us(launch: Launch) -> None:
    done = launch([PYTHON, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
    assert done.code == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_we_get_is_passed_on(number: signal.Signals, tmp_path: Path) -> None:
    """Its own handler is called, and says how the program ends."""
    code = (
        f"import signal, sys, time\nsignal.signal({int(number)}, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen(
        [*launch_command(tmp_path / "logs"), PYTHON, "-c", code],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # as in a job without a terminal
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"ready\n"
        started.send_signal(number)
        assert started.wait(30) == 9


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
    assert "seen 1" in ran(tmp_path, PYTHON, "-c", script, *command).stdout


def test_stdin_and_arguments_are_its_own(launch: Launch) -> None:
    """Options that are ours too, and another --."""
    code = "import sys; print(input()[::-1], sys.argv[1:])"
    command = [PYTHON, "-c", code, "--mode", "x", "--", "--output=y"]
    assert launch(command, stdin="abc\n").out == "cba ['--mode', 'x', '--', '--output=y']\n"


def test_two_programs_of_one_command(launch: Launch) -> None:
    done = launch(["sh", "-c", f"{PYTHON} {PROGRAM} && {PYTHON} {PROGRAM}"])
    assert done.batches == {
        **TRAINED,
        **{name.replace("0", "0-run2"): count for name, count in TRAINED.items()},
    }
    assert "Training 2 of 2: rank0-run2.jsonl" in done.err


def test_alternating_gives_a_verdict(launch: Launch, tmp_path: Path) -> None:
    """Every sample is served once, and the screen printed; `watch` and `report` take its logs."""
    done = launch([PYTHON, ENDLESS, "600", "1"], "--mode", "alternate")
    assert done.code == 0, done.err
    assert json.loads(done.out) == list(range(1200))
    assert set(done.run().steps.arm.tolist()) == {0, 1}
    assert "\nMeasured: " in done.err
    shown = ran(tmp_path, "watch", "--once", "--json", done.folder).stdout
    assert json.loads(shown)["run"]["batches"] == 600
    assert "report.html" in ran(tmp_path, "report", done.folder).stdout


def test_recording_ends_after_so_many_batches(launch: Launch) -> None:
    """The program trains on as it is, and the log is complete."""
    done = launch([PYTHON, ENDLESS, "400", "0"], "--batches", "100")
    assert done.code == 0, done.err
    assert json.loads(done.out) == list(range(800))
    run = done.run()
    assert (run.batches, run.closed, run.ends[-1].cause) == (100, True, "unmeasured")
    assert "rank0.jsonl training 100 1 " in " ".join(done.err.split())


def test_ranks_can_be_ended_early(launch: Launch) -> None:
    command = [tool("torchrun"), "--standalone", "--nproc-per-node=2", ENDLESS, ALL, "0"]
    done = launch(command, "--stop-after", "50")
    assert done.code == 0, done.err
    assert done.out.count("stopped") == 2
