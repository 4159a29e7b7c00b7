"""`loadeval run` of programs that train with other libraries, in those libraries' own way.

`make test-programs` installs them; a library that is missing is skipped.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from bench.judge import compared
from tests.launch.conftest import environment, launched

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.launch.conftest import Launched

    Plain = Callable[[str, int], str]

HERE = Path(__file__).parent
LONGEST_S = 250
pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]


class Program(NamedTuple):
    """`training` and `validation` are batches; those of training have so many `samples` each.

    `steps` are optimizer steps, where there is not one for each batch.
    """

    module: str
    training: int
    validation: int
    samples: int
    steps: int | None = None


PROGRAMS = {
    "skorch": Program("skorch", 3 * 160, 3 * 40, 8),
    "geometric": Program("torch_geometric", 2 * 160, 2 * 6, 8),
    "mingpt": Program("torch", 320, 0, 8),
    "fastai": Program("fastai", 2 * 160, 2 * 12, 8, steps=0),  # its optimizers are its own
    "timm": Program("timm", 2 * 160, 2 * 16, 4),
    "monai": Program("monai", 4 * 80, 4 * 4, 4),
    "sentence_transformers": Program("sentence_transformers", 2 * 160, 2 * 4, 8),
    "trl": Program("trl", 2 * 160, 2 * 4, 8),
    "diffusers": Program("diffusers", 2 * 160, 0, 4),
    "ultralytics": Program("ultralytics", 4 * 80, 5, 4, steps=50),
    "speechbrain": Program("speechbrain", 2 * 160, 2 * 6, 8),
    "litgpt": Program("litgpt", 2 * 160 + 1, 3 + 3 * 8, 4, steps=160),
}


def command(name: str, workers: int) -> list[str]:
    """What runs a program; skips where its library is missing."""
    module = PROGRAMS[name].module
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed: make test-programs installs it")
    return [sys.executable, str(HERE / f"train_{name}.py"), str(workers)]


def plain(name: str, workers: int) -> str:
    """What a program prints without loadeval."""
    done = subprocess.run(
        command(name, workers),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_loaders(done: Launched, program: Program) -> None:
    """A training loader, whose batches have their samples; and perhaps one that validates.

    Trainers also read rows of a dataset to see what is in it.
    """
    assert done.code == 0, done.err
    (process,) = done.processes
    loaders = [record for record in process.loaders if not record.loader.startswith("datasets.")]
    assert len({record.role for record in loaders}) == len(loaders)
    batches = {record.role: done.batches[record.log] for record in loaders}
    expected = {"training": program.training, "validation": program.validation}
    assert batches == {role: count for role, count in expected.items() if count}, done.err
    assert done.main.role == "training"
    steps = program.training if program.steps is None else program.steps
    assert done.main.optimizer_steps == steps
    assert set(done.run(done.main.log).steps.samples.tolist()) == {program.samples}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_prints_the_same_and_is_measured(name: str, tmp_path: Path) -> None:
    """Losses and parameters to the bit, with workers; each loader has its role and batches."""
    expected = plain(name, 2)
    done = launched(tmp_path, command(name, 2), timeout_s=LONGEST_S)
    assert done.out == expected
    check_loaders(done, PROGRAMS[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_alternating_prints_the_same_and_gives_a_verdict(name: str, tmp_path: Path) -> None:
    """Without workers: losses and parameters to the bit, each batch once."""
    expected = plain(name, 0)
    done = launched(tmp_path, command(name, 0), "--mode", "alternate", timeout_s=LONGEST_S)
    assert done.out == expected
    check_loaders(done, PROGRAMS[name])
    assert set(done.run(done.main.log).steps.arm.tolist()) == {0, 1}
    assert compared(done.folder / done.main.log).is_concluded
