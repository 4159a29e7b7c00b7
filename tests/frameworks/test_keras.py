"""Keras 3 on torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from tests.frameworks.conftest import ReadAhead, SameTraining, Task

MODES = ["log", "replay", "alternate"]


def fit(task: Task, measured: Callable[[Any], Any]) -> None:
    """Keras's own model, loss and optimiser; the task is told of them.

    Keras reads one batch more, to trace the loss with ones in its place: the task notes that too.
    """

    def loss(numbers: torch.Tensor, predicted: torch.Tensor) -> Any:
        task.note(numbers)
        return keras.losses.mean_squared_error(numbers / len(task.dataset), predicted)

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "linear", False, "ones")])
    model.compile("sgd", loss)
    model.fit(measured(task.loader), epochs=2, shuffle=False, verbose=0)
    task.model.weight.data = model.trainable_variables[0].value.T
    task.updated(int(model.optimizer.iterations))


@pytest.mark.parametrize("mode", MODES)
def test_fit_trains_the_same(mode: str, same_training: SameTraining) -> None:
    """Batches, their order, updates and parameters are those of `fit` without us."""
    evaluator = same_training(fit, "in place", mode)
    assert [end.cause for end in evaluator.recorded().ends] == ["broken off"] * 3


def test_the_batch_that_keras_builds_by_is_an_epoch_of_one(same_training: SameTraining) -> None:
    """It is read before training, and is not trained on."""
    steps = same_training(fit, "in place").recorded().steps
    assert steps.epoch.tolist() == [0] + [1] * 21 + [2] * 21


def test_workers_train_the_same(same_training: SameTraining) -> None:
    """Two, which stay alive between epochs."""
    same_training(fit, "in place", num_workers=2, persistent_workers=True)


def test_keras_reads_nothing_ahead(read_ahead: ReadAhead) -> None:
    """Each batch is trained on when it is read."""
    assert set(read_ahead(fit, "in place")) == {0}


def test_an_evaluator_is_no_data_to_keras(same_training: SameTraining) -> None:
    """Keras itself refuses what is of no class that it knows."""
    with pytest.raises(ValueError, match="Unrecognized data type: x=LoaderEvaluator"):
        same_training(fit, "wrapped")
