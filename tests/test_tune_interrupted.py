"""Ctrl-C in the middle of tuning, with real workers: what is known is told, and workers end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.check

WAIT_S = 120
PROGRAM = """
import time
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        Path("loading").touch()
        time.sleep(0.005)
        return torch.zeros(8)

others = []

def make_loader(num_workers):
    if num_workers > 1:
        others.append(0)
    return DataLoader(Slow(), batch_size=4, num_workers=num_workers)

def step(batch):
    time.sleep(0.002)
    if others:
        others.append(0)
    if len(others) > 60:  # in the middle of a round: no worker is just being started
        Path("others").touch()
"""
SCRIPT = """
from loadeval import tune
from program import make_loader, step

print(tune(make_loader, step, settings={"num_workers": 1}, batches=400, probes=()))
print("and goes on")
"""
COMMAND = "from loadeval.cli.main import app; app(prog_name='loadeval')"
TUNE = ("tune", "program:make_loader", "--step", "program:step", "--set", "num_workers=1")


@contextmanager
def started(folder: Path, code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program in a process group of its own, as in a terminal."""
    (folder / "program.py").write_text(PROGRAM)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    path = os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(folder)))
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
        **pipes,
    )
    try:
        with process:
            yield process
    finally:
        process.kill()


def interrupted(process: subprocess.Popen[str], sign: Path) -> tuple[str, str]:
    """What it prints after Ctrl-C, which comes once there is `sign`; its workers are gone then."""
    deadline = time.monotonic() + WAIT_S
    while not sign.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    _, alive = psutil.wait_procs(workers, timeout=WAIT_S)
    assert alive == []
    return out, err


def test_the_command_prints_what_is_known(tmp_path: Path) -> None:
    """It prints to stdout alone, without a worker's traceback; the exit code tells of Ctrl-C."""
    with started(tmp_path, COMMAND, *TUNE, "--batches", "400") as process:
        out, err = interrupted(process, tmp_path / "others")
    assert (process.returncode, err) == (130, "")
    assert "\nnum_workers=1" in out
    assert "\nEnded early by Ctrl-C; others may be faster.\n" in out
    assert "\nSettings: num_workers=" in out


def test_a_script_goes_on_with_what_is_known(tmp_path: Path) -> None:
    with started(tmp_path, SCRIPT) as process:
        out, err = interrupted(process, tmp_path / "others")
    assert (process.returncode, err) == (0, "")
    assert "\nEnded early by Ctrl-C; others may be faster.\n" in out
    assert out.endswith("and goes on\n")


def test_before_anything_is_known_only_ctrl_c_is_told(tmp_path: Path) -> None:
    with started(tmp_path, COMMAND, *TUNE) as process:
        printed = interrupted(process, tmp_path / "loading")
    assert (process.returncode, *printed) == (130, "", "Interrupted.\n")
