"""A program that closes all file descriptors it does not know, as daemons do, trains on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, warnings
import torch
from torch.utils.data import DataLoader, TensorDataset
from loadeval import LoaderEvaluator

warnings.simplefilter("ignore")
mode, folder = sys.argv[1:]
loader = DataLoader(TensorDataset(torch.arange(80.0)), batch_size=2)
loader = LoaderEvaluator(
    loader, mode=mode, log_file=f"{folder}/run.jsonl", stages=None if mode == "replay" else True
)
files, batches = [], 0
for epoch in range(2):
    for batch, in loader:
        batches += 1
        if batches == 10:
            os.closerange(3, 1024)
            files = [os.open(f"{folder}/{n}", os.O_CREAT | os.O_RDWR) for n in range(40)]
loader.close()
for file in files:
    os.write(file, b"whole")
    os.close(file)
print(batches)
"""


@pytest.mark.parametrize(
    "mode",
    [*(pytest.param(mode, marks=pytest.mark.check) for mode in ("log", "replay")), "alternate"],
)
def test_its_own_files_are_left_alone(mode: str, tmp_path: Path) -> None:
    """Those that it opens afterwards have the numbers of ours, which are not closed then."""
    command = [sys.executable, "-c", PROGRAM, mode, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "80\n"), done.stderr
    assert {(tmp_path / str(n)).read_text() for n in range(40)} == {"whole"}
