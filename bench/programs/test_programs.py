"""`loadeval run` of a program that trains with fastai, in fastai's own way.

`make test-programs` installs it; without it the tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.judge import COMMAND, ROOT, column, compared, loaders_in

LONGEST_S = 250
BATCHES = {"training": 2 * 160, "validation": 2 * 12}
pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]


def printed(*command: str) -> str:
    """What a command prints."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("mode", "workers"), [("log", "2"), ("alternate", "0")])
def test_the_program_prints_the_same_and_is_measured(
    mode: str, workers: str, tmp_path: Path
) -> None:
    """Losses and parameters to the bit; each loader has its role and batches, each batch once."""
    pytest.importorskip("fastai", reason="make test-programs installs it")
    command = (sys.executable, str(Path(__file__).with_name("train_fastai.py")), workers)
    options = ("run", "--mode", mode, "--output", str(tmp_path / "logs"), "--")
    assert printed(*COMMAND, *options, *command) == printed(*command)
    loaders = {each.role: each for each in loaders_in(tmp_path / "logs")}
    samples = {role: column(each.log, "samples").tolist() for role, each in loaders.items()}
    assert {role: len(of_role) for role, of_role in samples.items()} == BATCHES
    assert set(samples["training"]) == {8}
    assert loaders["training"].optimizer_steps == 0  # its optimizers are its own
    if mode == "alternate":
        assert compared(loaders["training"].log).is_concluded
