"""`loadeval run` of programs that use a framework: the training is the same, and is found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from loadeval import read_run
from loadeval.data.folder import LoaderRecord
from tests.frameworks.programs import PROGRAMS
from tests.launch.conftest import Launched, launched, ran

pytestmark = pytest.mark.check  # each starts Python and imports a framework

SCRIPT = str(Path(__file__).with_name("programs.py"))
BATCHES = 2 * 21
VALIDATES = ("loop", "lightning", "fabric", "accelerate", "trainer", "ignite")
STEPS = {"fabric": 2 * 6, "trainer": 2 * 6, "accelerate": 6 + 4, "keras": 0}
"""The steps where they are not one for each batch; Keras has optimizers of its own."""
ONE_PROCESS = [name for name in PROGRAMS if name != "ddp"]


def traces(folder: Path) -> list[str]:
    return sorted(path.read_text(encoding="utf-8") for path in folder.glob("*.trace"))


def trained(tmp_path: Path, framework: str, *options: str) -> tuple[Launched, Path]:
    """A program that was launched by us, and where its traces are."""
    folder = tmp_path / "traces"
    folder.mkdir()
    return launched(tmp_path, [sys.executable, SCRIPT, framework, str(folder)], *options), folder


def bare(tmp_path: Path, framework: str) -> list[str]:
    """The traces of a program that was not."""
    folder = tmp_path / "bare"
    folder.mkdir()
    done = ran(tmp_path, sys.executable, SCRIPT, framework, folder)
    assert done.returncode == 0, done.stderr
    return traces(folder)


def training_of(done: Launched) -> list[LoaderRecord]:
    """The training loader of each process."""
    return [process.main for process in done.processes if process.main is not None]


@pytest.mark.parametrize("framework", ONE_PROCESS)
def test_the_training_is_the_same_and_found(framework: str, tmp_path: Path) -> None:
    """Batches, updates and parameters to the bit; and each batch that it was given has a row."""
    done, folder = trained(tmp_path, framework)
    assert done.code == 0, done.err
    assert traces(folder) == bare(tmp_path, framework)
    (training,) = training_of(done)
    rows = read_run(done.folder / training.log).batches
    expected: Any = {"accelerate": 21 + 16, "keras": BATCHES + 1}.get(framework, BATCHES)
    assert rows == expected, done.batches
    assert training.optimizer_steps == STEPS.get(framework, expected)
    others = {name: count for name, count in done.batches.items() if count and name != training.log}
    assert bool(others) is (framework in VALIDATES), done.batches
    roles = {loader.role for process in done.processes for loader in process.loaders}
    # Trainer evaluates without gradients, but asks for the iterator with them.
    assert framework not in VALIDATES or len(roles) == 2, roles


@pytest.mark.parametrize("framework", ["lightning", "accelerate", "ddp"])
def test_alternating_trains_on_the_same_batches(framework: str, tmp_path: Path) -> None:
    """They come in the same order too without workers."""
    done, folder = trained(tmp_path, framework, "--mode", "alternate")
    assert done.code == 0, done.err
    assert traces(folder) == bare(tmp_path, framework)
    assert {read_run(done.folder / loader.log).header.mode for loader in training_of(done)} == {
        "alternate"
    }


@pytest.mark.parametrize("framework", ["lightning", "trainer"])
def test_settings_reach_the_loader_that_trains(framework: str, tmp_path: Path) -> None:
    """Also the loaders that are built again; the training is the same, and no other has them."""
    done, folder = trained(tmp_path, framework, "--set", "num_workers=1")
    assert done.code == 0, done.err
    assert traces(folder) == bare(tmp_path, framework)
    (training,) = training_of(done)
    (process,) = done.processes
    loaders = {record.log: done.run(record.log).header.loader for record in process.loaders}
    changed = {log: loader.workers for log, loader in loaders.items() if loader.overrides}
    assert changed == {training.log: 1}
    assert len(loaders) > 1
