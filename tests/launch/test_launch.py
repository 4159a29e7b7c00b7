"""`loadeval run`: the ways to launch a program, and what it keeps of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.launch.conftest import PROGRAM, environment, launch_command

if TYPE_CHECKING:
    from tests.launch.conftest import Launch

pytestmark = pytest.mark.check  # each starts Python and imports torch

PYTHON = sys.executable
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


def plain(folder: Path, *command: str) -> str:
    """What a command prints without us."""
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([PYTHON, str(PROGRAM)], id="script"),
        pytest.param([PYTHON, "-m", "tests.launch.program"], id="module"),
        pytest.param(
            [PYTHON, "-c", "import sys; from tests.launch.program import main; main()"], id="code"
        ),
        pytest.param(["sh", "-c", f"{PYTHON} {PROGRAM}; exit $?"], id="shell"),
        pytest.param([PYTHON, "-c", PARENT], id="subprocess"),
        pytest.param([PYTHON, "-O", "-u", str(PROGRAM)], id="options of Python"),
        pytest.param([PYTHON, str(PROGRAM), "--workers=1", "--context=fork"], id="fork"),
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
    """Training and validation apart, in one process, and with the same losses as without us."""
    done = launch(command)
    assert done.code == 0, done.err
    assert done.batches == TRAINED, done.err
    assert done.out == plain(tmp_path, *command)
    assert done.main.log == "rank0.jsonl"
    assert done.main.optimizer_steps == 16
    assert "Training waited for batches" in done.err


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            [tool("torchrun"), "--standalone", "--nproc-per-node=2", str(PROGRAM)], id="torchrun"
        ),
        pytest.param(
            [
                *(PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
                *("-m", "tests.launch.program"),
            ],
            id="torch.distributed.run -m",
        ),
        pytest.param([PYTHON, "-c", "spawn"], id="mp.spawn"),
    ],
)
def test_each_rank_has_its_logs(command: list[str], launch: Launch, tmp_path: Path) -> None:
    if command[-1] == "spawn":
        script = tmp_path / "spawn.py"
        script.write_text(SPAWN.format(program=str(PROGRAM), port=str(20_000 + os.getpid() % 9999)))
        command = [PYTHON, str(script)]
    done = launch(command)
    assert done.code == 0, done.err
    assert done.batches == {
        **TRAINED,
        **{name.replace("0", "1"): count for name, count in TRAINED.items()},
    }
    assert "2 ranks of one job waited for batches" in done.err


@pytest.mark.parametrize("option", ["-E", "-I", "-S"])
def test_a_python_that_cannot_be_measured_is_told(option: str, launch: Launch) -> None:
    """It reads no PYTHONPATH, or no site; it runs, and no folder is left."""
    done = launch([PYTHON, option, "-c", "print('ran')"])
    assert (done.code, done.out) == (0, "ran\n")
    assert "Nothing was measured: the command started no Python that can be measured" in done.err
    assert not done.folder.exists()


def test_a_program_without_a_loader_is_told(launch: Launch) -> None:
    """Such as nanoGPT: it draws its batches by itself."""
    code = (
        "import torch\nfrom torch.utils.data import DataLoader\ndata = torch.randn(100, 4)\n"
        "for _ in range(3):\n  data[torch.randint(100, (8,))]"
    )
    done = launch([PYTHON, "-c", code])
    assert done.code == 0
    assert "the program iterated no data loader that loadeval knows" in done.err


def test_a_loader_that_cannot_be_measured_is_told(launch: Launch, tmp_path: Path) -> None:
    """The program goes on, with the same result."""
    code = "import loadeval, sys; sys.modules['loadeval.launch.session'] = None\n"
    command = [PYTHON, "-c", f"{code}from tests.launch.program import main; main()"]
    done = launch(command)
    assert (done.code, done.out) == (0, plain(tmp_path, *command))
    assert "loadeval: not measured (ModuleNotFoundError" in done.err
    assert "Nothing was measured: ModuleNotFoundError" in done.err


def test_its_exit_code_is_ours(launch: Launch) -> None:
    assert launch([PYTHON, str(PROGRAM), "--code", "7"]).code == 7


def test_a_signal_that_ends_it_ends_us(launch: Launch) -> None:
    done = launch([PYTHON, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
    assert done.code == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
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


def test_stdin_is_its_own(launch: Launch) -> None:
    done = launch([PYTHON, "-c", "print(input()[::-1])"], stdin="abc\n")
    assert done.out == "cba\n"


def test_a_command_that_is_not_there(launch: Launch) -> None:
    done = launch(["no-such-command-anywhere"])
    assert done.code == 127
    assert "cannot run no-such-command-anywhere" in done.err
    assert not done.folder.exists()


def test_what_follows_the_command_is_its_own(launch: Launch) -> None:
    """Options that are ours too, and another --."""
    code = "import sys; print(sys.argv[1:])"
    done = launch([PYTHON, "-c", code, "--mode", "x", "--", "--output=y"])
    assert done.out == "['--mode', 'x', '--', '--output=y']\n"


def test_another_sitecustomize_is_run(launch: Launch, tmp_path: Path) -> None:
    """That of the environment, which ours hides."""
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.seen = __name__\n")
    code = (
        f"import os, sys, subprocess; os.environ['PYTHONPATH'] += os.pathsep + {str(tmp_path)!r}\n"
        "subprocess.run([sys.executable, '-c', 'import sitecustomize; print(seen, "
        "sitecustomize.__file__)'])"
    )
    done = launch([PYTHON, "-c", code])
    assert done.out == f"sitecustomize {tmp_path / 'sitecustomize.py'}\n"


def test_gradient_accumulation_is_counted(launch: Launch) -> None:
    done = launch([PYTHON, str(PROGRAM), "--accumulate=4"])
    assert done.main.optimizer_steps == 4
    assert "training 16 2 4 of 32 samples" in " ".join(done.err.split())


def test_a_run_is_not_overwritten(launch: Launch) -> None:
    launch([PYTHON, str(PROGRAM)])
    again = launch([PYTHON, str(PROGRAM)])
    assert again.code == 1
    assert "is not empty" in again.err


def test_two_programs_of_one_command(launch: Launch) -> None:
    """Each has logs of its own, and is told."""
    done = launch(["sh", "-c", f"{PYTHON} {PROGRAM} && {PYTHON} {PROGRAM}"])
    assert done.batches == {
        **TRAINED,
        **{name.replace("0", "0-run2"): count for name, count in TRAINED.items()},
    }
    assert "Training 2 of 2: rank0-run2.jsonl" in done.err


def test_a_program_that_ends_without_pythons_end(launch: Launch) -> None:
    """It ends by os._exit: what was measured half a second before is there."""
    code = (
        "import os, time, torch\nfrom torch.utils.data import DataLoader\n"
        "for number, _ in enumerate(DataLoader(range(100), 1)):\n"
        "  time.sleep(0.03)\n  if number == 60: os._exit(5)"
    )
    done = launch([PYTHON, "-c", code])
    assert done.code == 5
    assert 20 <= done.run().batches <= 61
