"""Accelerate in one process, with gradient accumulation; two processes are in test_ranks.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from accelerate import Accelerator, DataLoaderConfiguration

from loadeval import LoadevalWarning, UsageError
from loadeval_adapters.pytorch import PyTorchAdapter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.frameworks.conftest import Measure, ReadAhead, SameTraining, Task

MODES = ["log", "replay", "alternate"]
UPDATES = 2 * 6
"""In two epochs of 21 batches, four by four; the last group of an epoch has one."""


def accelerated() -> Accelerator:
    return Accelerator(cpu=True, gradient_accumulation_steps=4)


def loop(accelerator: Accelerator, task: Task, loader: Any) -> None:
    model, optimiser = accelerator.prepare(task.model, task.optimiser)
    for _ in range(2):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(task.loss(batch, model))
                optimiser.step()
                optimiser.zero_grad()


def measured_first(task: Task, measured: Callable[[Any], Any]) -> None:
    accelerator = accelerated()
    loop(accelerator, task, accelerator.prepare(measured(task.loader)))


def prepared_first(task: Task, measured: Callable[[Any], Any]) -> None:
    accelerator = accelerated()
    loop(accelerator, task, measured(accelerator.prepare(task.loader)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("train", [measured_first, prepared_first])
def test_in_place_trains_the_same(
    train: Callable[..., None], mode: str, same_training: SameTraining
) -> None:
    """Before prepare() or after it: the same groups of batches, and the same parameters."""
    evaluator = same_training(train, "in place", mode)
    assert evaluator.recorded().header.loader.batch_size == 4


def test_a_prepared_loader_can_be_wrapped(same_training: SameTraining) -> None:
    """In log mode, by the adapter of torch's DataLoader."""
    evaluator = same_training(prepared_first, "wrapped")
    assert isinstance(evaluator._measurement.adapter, PyTorchAdapter)
    assert evaluator.recorded().header.loader.device == "cpu"


@pytest.mark.parametrize("train", [measured_first, prepared_first])
def test_workers_train_the_same(train: Callable[..., None], same_training: SameTraining) -> None:
    """Two, which stay alive between epochs."""
    evaluator = same_training(train, "in place", num_workers=2, persistent_workers=True)
    assert evaluator.recorded().header.loader.workers == 2


def test_gradients_are_accumulated_at_all(same_training: SameTraining) -> None:
    """What is compared has groups of four batches, and of what is left at the end."""
    counts: list[Task] = []

    def train(task: Task, measured: Callable[[Any], Any]) -> None:
        measured_first(task, measured)
        counts.append(task)

    same_training(train, "in place")
    assert [task.updates for task in counts] == [UPDATES] * 2


@pytest.mark.parametrize("mode", ["replay", "alternate"])
def test_reading_a_prepared_loader_ahead_is_refused(mode: str, same_training: SameTraining) -> None:
    """The end of the epoch would be told at another batch: measure in place."""
    with pytest.raises(UsageError, match=r"gradients would be accumulated wrongly.*in_place"):
        same_training(prepared_first, "wrapped", mode)


@pytest.mark.parametrize("mode", MODES)
def test_what_prepare_passes_over_is_refused(mode: str, same_training: SameTraining) -> None:
    """A LoaderEvaluator that was given to prepare() says where to wrap instead."""
    with pytest.raises(UsageError, match=r"evaluate_in_place.*or wrap what prepare\(\) returns"):
        same_training(measured_first, "wrapped", mode)


def test_an_import_of_accelerate_refuses_nothing(task: Task, measure: Measure) -> None:
    """While no Accelerator was made a loop of one's own is measured as ever."""
    for batch in measure(task.loader, "wrapped")[0]:
        task.step(batch)
    assert len(task.seen) == 21


def test_what_is_prepared_by_force_says_that_it_saw_nothing(task: Task, measure: Measure) -> None:
    """prepare_data_loader() builds another loader out of the evaluator's attributes."""
    evaluator = measure(task.loader, "wrapped")[1]
    prepared = accelerated().prepare_data_loader(evaluator)
    for batch in prepared:
        task.step(batch)
    with pytest.warns(LoadevalWarning, match="another loader in its place"):
        evaluator.close()


def test_one_batch_is_read_ahead(read_ahead: ReadAhead) -> None:
    """By Accelerate, so in place the row of a batch has the step of the batch before."""
    assert read_ahead(measured_first, "in place") == 2 * ([1] * 20 + [0])
    assert read_ahead(prepared_first, "wrapped") == [0] * 42


# Of torchdata's StatefulDataLoader, about torch.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize("mode", MODES)
def test_what_prepare_makes_of_another_class_is_measured(
    mode: str, same_training: SameTraining
) -> None:
    """A StatefulDataLoader in the DataLoader's place, once it is there."""

    def train(task: Task, measured: Callable[[Any], Any]) -> None:
        stateful = DataLoaderConfiguration(use_stateful_dataloader=True)
        accelerator = Accelerator(cpu=True, dataloader_config=stateful)
        loop(accelerator, task, measured(accelerator.prepare(task.loader)))

    same_training(train, "in place", mode)
