"""`loadeval tune -- python program.py`, from the table to the change that git applies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.launch.conftest import LOADEVAL, environment

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # it trains for a minute
GIT = shutil.which("git") or "git"
PROGRAM = """
import time
import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 4 * 400

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.tensor([float(index)])


if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loader = DataLoader(
        Slow(),
        batch_size=4,
        shuffle=True,
        num_workers=1,  # too few
    )
    for epoch in range(3):
        seen = []
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
            time.sleep(0.005)
            seen += batch[:, 0].int().tolist()
        print(len(seen), len(set(seen)), hash(tuple(seen)), flush=True)
"""


def test_the_diff_gives_the_program_the_settings(tmp_path: Path) -> None:
    """It is applied by git; the batches are those of a run without loadeval, until it is tuned."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, *LOADEVAL, "tune", "--", "python", "program.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    bare = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    )
    assert done.stdout.splitlines() == bare.stdout.splitlines()
    assert "\nSettings: num_workers=" in done.stderr
    diff = done.stderr[done.stderr.index("--- a/program.py") :]
    subprocess.run([GIT, "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run([GIT, "apply"], cwd=tmp_path, input=diff, text=True, check=True)
    changed = program.read_text()
    workers = int(changed.split("num_workers=")[1].split(",")[0])
    assert workers > 1
    assert changed.replace(f"num_workers={workers}", "num_workers=1").startswith(PROGRAM[:300])
