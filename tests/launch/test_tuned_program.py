"""`loadeval tune -- python program.py`, from the table to the change that git applies."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.conftest import LOADEVAL, environment

pytestmark = pytest.mark.check  # it trains for a minute
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


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command, which has to succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return done


def tuned(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(folder, sys.executable, *LOADEVAL, "tune", *words)


def test_the_diff_gives_the_program_the_settings(tmp_path: Path) -> None:
    """It is applied by git; the batches are those of a run without loadeval, until it is tuned."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = tuned(tmp_path, "--", "python", "program.py")
    bare = run(tmp_path, "python", "program.py")
    assert done.stdout.splitlines() == bare.stdout.splitlines()
    assert "\nSettings: num_workers=" in done.stderr
    diff = done.stderr[done.stderr.index("--- a/program.py") :]
    subprocess.run([GIT, "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run([GIT, "apply"], cwd=tmp_path, input=diff, text=True, check=True)
    changed = program.read_text()
    workers = int(changed.split("num_workers=")[1].split(",")[0])
    assert workers > 1
    assert changed.replace(f"num_workers={workers}", "num_workers=1").startswith(PROGRAM[:300])


def test_ranks_change_settings_at_the_same_batch(tmp_path: Path) -> None:
    """Of torchrun: each has the batches of a run without loadeval; what was found comes once."""
    program = str(Path(__file__).with_name("tuned_ranks.py"))
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", "2", program]
    done = tuned(tmp_path, "--batches", "40", "--", *torchrun, "tuned")
    run(tmp_path, *torchrun, "bare")
    workers = []
    for rank in ("rank0.json", "rank1.json"):
        batches, bare = (
            json.loads((tmp_path / name / rank).read_text()) for name in ("tuned", "bare")
        )
        assert [batch["samples"] for batch in batches] == [batch["samples"] for batch in bare]
        workers.append([batch["workers"] for batch in batches])
    assert workers[0] == workers[1]
    assert set(workers[0]) > {1}
    assert done.stderr.count("Settings: num_workers=") == 1
    assert done.stderr.count("\n+++ ") == 1
