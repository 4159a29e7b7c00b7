"""Accelerate in one process, with gradient accumulation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from accelerate import Accelerator, DataLoaderConfiguration

from loadeval import UsageError
from tests.frameworks.conftest import ReadAhead, SameTraining, Task

MODES = ["log", "replay", "alternate"]


def accelerated(**options: Any) -> Accelerator:
    configuration = DataLoaderConfiguration(**options)
    return Accelerator(cpu=True, gradient_accumulation_steps=4, dataloader_config=configuration)


def loop(accelerator: Accelerator, task: Task, loader: Any) -> None:
    model, optimiser = accelerator.prepare(task.model, task.optimiser)
    for _ in range(2):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(task.loss(batch, model))
                optimiser.step()
                optimiser.zero_grad()


def measured_first(task: Task, measured: Callable[[Any], Any], **options: Any) -> None:
    accelerator = accelerated(**options)
    loop(accelerator, task, accelerator.prepare(measured(task.loader)))


def prepared_first(task: Task, measured: Callable[[Any], Any]) -> None:
    accelerator = accelerated()
    loop(accelerator, task, measured(accelerator.prepare(task.loader)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("train", [measured_first, prepared_first])
def test_in_place_trains_the_same(
    train: Callable[..., None], mode: str, same_training: SameTraining
) -> None:
    evaluator = same_training(train, "in place", mode)
    assert evaluator.recorded().header.loader.batch_size == 4


@pytest.mark.parametrize(
    "options",
    [{"use_seedable_sampler": True, "data_seed": 1}, {"dispatch_batches": True}],
    ids=lambda options: next(iter(options)),
)
def test_what_prepare_builds_by_other_options_is_measured(
    options: dict[str, Any], same_training: SameTraining
) -> None:
    same_training(partial(measured_first, **options), "in place", "alternate")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_resumed_epoch_is_measured_in_place(
    is_prepared: bool, mode: str, same_training: SameTraining
) -> None:
    """What skip_first_batches() builds has the rest of it, and the epoch after is whole."""

    def train(task: Task, measured: Callable[[Any], Any]) -> None:
        accelerator = accelerated()
        loader = measured(task.loader)
        if is_prepared:
            loader = accelerator.prepare(loader)
        for batches in (accelerator.skip_first_batches(loader, 10), loader):
            for batch in batches:
                task.step(batch)
        assert len(task.seen) == 11 + 21

    same_training(train, "in place", mode)


def test_a_prepared_loader_can_be_wrapped(same_training: SameTraining) -> None:
    evaluator = same_training(prepared_first, "wrapped")
    assert evaluator.recorded().header.loader.adapter.endswith(".PyTorchAdapter")
    assert evaluator.recorded().header.loader.device == "cpu"


@pytest.mark.parametrize("train", [measured_first, prepared_first])
def test_workers_train_the_same(train: Callable[..., None], same_training: SameTraining) -> None:
    """Two, which stay alive between epochs."""
    evaluator = same_training(train, "in place", num_workers=2, persistent_workers=True)
    assert evaluator.recorded().header.loader.workers == 2


@pytest.mark.parametrize("mode", ["replay", "alternate"])
def test_reading_a_prepared_loader_ahead_is_refused(mode: str, same_training: SameTraining) -> None:
    """The end of the epoch would be told at another batch: measure in place."""
    with pytest.raises(UsageError, match=r"gradients would be accumulated wrongly.*install"):
        same_training(prepared_first, "wrapped", mode)


@pytest.mark.parametrize("mode", MODES)
def test_what_prepare_passes_over_is_refused(mode: str, same_training: SameTraining) -> None:
    """A LoaderEvaluator that was given to prepare() says where to wrap instead."""
    with pytest.raises(UsageError, match=r"install\(dataloader\).*or wrap what prepare"):
        same_training(measured_first, "wrapped", mode)


def test_one_batch_is_read_ahead(read_ahead: ReadAhead) -> None:
    """Accelerate reads it, so in place the row of a batch has the step of the batch before."""
    assert read_ahead(measured_first, "in place") == 2 * ([1] * 20 + [0])
    assert read_ahead(prepared_first, "wrapped") == [0] * 42
