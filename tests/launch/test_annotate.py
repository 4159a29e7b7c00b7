"""`loadeval run --annotate`: waits and steps of an unedited program are ranges of NVTX."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import read_run
from loadeval.launch.session import Session
from loadeval.launch.settings import RunSettings
from tests.launch.conftest import PROGRAM, ROOT, environment, launch_command

if TYPE_CHECKING:
    from pathlib import Path

COMPILER = shutil.which("cc")


def annotated(folder: Path) -> object:
    """What the log of a loader says of its ranges."""
    session = Session(RunSettings(str(folder), annotate=True), of_command=True)
    loader: DataLoader[Any] = DataLoader(TensorDataset(torch.arange(8)), 4)
    epoch = session.epoch(loader, loader.__iter__)
    assert epoch is not None
    assert len(list(epoch)) == 2
    session.close()
    return read_run(folder / "rank0.jsonl").header.settings["annotate"]


def test_every_loader_has_ranges(tmp_path: Path) -> None:
    assert annotated(tmp_path) == "nvtx"


@pytest.mark.skipif(COMPILER is None, reason="the listener is written in C")
@pytest.mark.check
def test_a_listener_is_told_them(tmp_path: Path) -> None:
    """In Nsight Systems' place; the program is told nothing."""
    library = tmp_path / "listener.so"
    (listener,) = (ROOT / "tests").glob("**/nvtx_listener.c")
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", library, listener], check=True)
    done = subprocess.run(
        [*launch_command(tmp_path / "logs", "--annotate"), sys.executable, str(PROGRAM)],
        env={**environment(), "NVTX_INJECTION64_PATH": str(library)},
        check=True,
        capture_output=True,
        text=True,
    )
    begun = [line.split(maxsplit=2)[2] for line in done.stdout.splitlines() if "begin" in line]
    assert begun.count("loadeval.step real") == 2 * (8 + 4)
