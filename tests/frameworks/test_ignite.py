"""Ignite's engines."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

from loadeval import UsageError

with warnings.catch_warnings():
    # Ignite imports torch.distributed.optim, which uses what torch has deprecated.
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    from ignite.engine import DeterministicEngine, Engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.frameworks.conftest import ReadAhead, SameTraining, Task

MODES = ["log", "replay", "alternate"]


def run(task: Task, measured: Callable[[Any], Any]) -> None:
    engine = Engine(lambda _, batch: task.step(batch))
    engine.run(measured(task.loader), max_epochs=2)


def run_deterministic(task: Task, measured: Callable[[Any], Any]) -> None:
    torch.manual_seed(1)
    engine = DeterministicEngine(lambda _, batch: task.step(batch))
    engine.run(measured(task.loader), max_epochs=2)


def run_in_short_epochs(task: Task, measured: Callable[[Any], Any]) -> None:
    engine = Engine(lambda _, batch: task.step(batch))
    engine.run(measured(task.loader), max_epochs=5, epoch_length=8)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_an_engine_trains_the_same(way: str, mode: str, same_training: SameTraining) -> None:
    """Batches, their order, updates and parameters are those of the engine without us."""
    same_training(run, way, mode)


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_workers_train_the_same(way: str, same_training: SameTraining) -> None:
    """Two, which stay alive between epochs."""
    same_training(run, way, num_workers=2, persistent_workers=True)


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_an_epoch_is_the_loaders_not_the_engines(way: str, same_training: SameTraining) -> None:
    """With `epoch_length` Ignite goes on in the loader where its own epoch ended."""
    evaluator = same_training(run_in_short_epochs, way)
    assert evaluator.recorded().steps.epoch.tolist() == [0] * 21 + [1] * 19


@pytest.mark.parametrize("mode", MODES)
def test_a_deterministic_engine_trains_the_same(mode: str, same_training: SameTraining) -> None:
    """It builds the DataLoader anew, which is measured in place."""
    same_training(run_deterministic, "in place", mode)


def test_a_deterministic_engine_refuses_an_evaluator(same_training: SameTraining) -> None:
    """It would draw other batches; the error says how to measure."""
    with pytest.raises(UsageError, match="evaluate_in_place"):
        same_training(run_deterministic, "wrapped")


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_an_engine_reads_nothing_ahead(way: str, read_ahead: ReadAhead) -> None:
    """Each batch is trained on when it is read."""
    assert set(read_ahead(run, way)) == {0}
