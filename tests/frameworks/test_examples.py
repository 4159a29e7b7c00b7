"""The examples that need a training framework run, and measure its training batches alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadeval import read_run

EXAMPLES = Path(__file__).parents[2] / "examples"
OPTIONS = {"lightning_fit.py": "--images 320", "trainer.py": "--texts 320"}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_example_measures(name: str, tmp_path: Path) -> None:
    """Each batch of its two epochs has a row, and none of validation; a figure is left."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *OPTIONS[name].split(), tmp_path],
        cwd=tmp_path,
        # What the frameworks have to say of such small trainings, and of torch, is theirs.
        env={key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run.jsonl")
    assert set(run.steps.samples.tolist()) == {8}
    assert run.steps.epoch.tolist() == [0] * 40 + [1] * 40
    assert (tmp_path / "comparison.png").exists()
    assert "if loading were free" in done.stdout
