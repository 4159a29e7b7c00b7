"""`loadeval run` of programs that train with other libraries, in those libraries' own way.

`make test-programs` installs them; a library that is missing is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.judge import COMMAND, ROOT, column, compared, loaders_in

LONGEST_S = 250
pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]


class Program(NamedTuple):
    """`training` and `validation` are batches; those of training have so many `samples` each.

    `steps` are optimizer steps, where there is not one for each batch.
    """

    training: int
    validation: int
    samples: int
    steps: int | None = None


PROGRAMS = {
    "fastai": Program(2 * 160, 2 * 12, 8, steps=0),  # its optimizers are its own
    "trl": Program(2 * 160, 2 * 4, 8),
}
CASES = [(name, "log", 2) for name in PROGRAMS] + [(name, "alternate", 0) for name in PROGRAMS]


def printed(*command: str) -> str:
    """What a command prints."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "mode", "workers"), CASES)
def test_the_program_prints_the_same_and_is_measured(
    name: str, mode: str, workers: int, tmp_path: Path
) -> None:
    """Losses and parameters to the bit; each loader has its role and batches, each batch once."""
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: make test-programs installs it")
    program, script = PROGRAMS[name], Path(__file__).with_name(f"train_{name}.py")
    command = (sys.executable, str(script), str(workers))
    options = ("run", "--mode", mode, "--output", str(tmp_path / "logs"), "--")
    assert printed(*COMMAND, *options, *command) == printed(*command)
    # Trainers also read rows of a dataset to see what is in it.
    loaders = {each.role: each for each in loaders_in(tmp_path / "logs") if each.role != "other"}
    samples = {role: column(each.log, "samples").tolist() for role, each in loaders.items()}
    expected = {"training": program.training, "validation": program.validation}
    assert {role: len(of_role) for role, of_role in samples.items()} == expected
    assert set(samples["training"]) == {program.samples}
    steps = program.training if program.steps is None else program.steps
    assert loaders["training"].optimizer_steps == steps
    if mode == "alternate":
        assert compared(loaders["training"].log).is_concluded
