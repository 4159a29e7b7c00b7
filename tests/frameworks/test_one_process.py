"""Loops by hand, Fabric, Ignite, Keras and Lightning on one device."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric

from loadeval import UsageError
from tests.frameworks.conftest import ReadAhead, SameTraining, Task
from tests.frameworks.programs import Measured, keras, lightning

with warnings.catch_warnings():
    # Ignite imports torch.distributed.optim, which uses what torch has deprecated.
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    from ignite.engine import DeterministicEngine, Engine

Train = Callable[[Task, Measured], None]

pytestmark = [
    # Lightning's advice on loaders without workers.
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    # Lightning's own pytree helpers warn so, which torch has renamed.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]


def loop(task: Task, measured: Measured) -> None:
    loader = measured(task.loader)
    for _ in range(2):
        for batch in loader:
            task.step(batch)


def fabric(task: Task, measured: Measured, *, after_setup: bool = True) -> None:
    """What `setup_dataloaders` returned is measured, or what it will be given."""
    fabric = Fabric(accelerator="cpu", devices=1)
    if after_setup:
        loader = measured(fabric.setup_dataloaders(task.loader))
    else:
        loader = fabric.setup_dataloaders(measured(task.loader))
    model, optimiser = fabric.setup(task.model, task.optimiser)
    for _ in range(2):
        for number, batch in enumerate(loader, start=1):
            is_accumulating = number % 4 != 0 and number != len(loader)
            with fabric.no_backward_sync(model, enabled=is_accumulating):
                fabric.backward(task.loss(batch, model))
            if not is_accumulating:
                optimiser.step()
                optimiser.zero_grad()


def ignite(task: Task, measured: Measured, **options: Any) -> None:
    engine = Engine(lambda _, batch: task.step(batch))
    engine.run(measured(task.loader), **{"max_epochs": 2, **options})


def deterministic(task: Task, measured: Measured) -> None:
    """Ignite builds the DataLoader anew."""
    torch.manual_seed(1)
    engine = DeterministicEngine(lambda _, batch: task.step(batch))
    engine.run(measured(task.loader), max_epochs=2)


BOTH = ("wrapped", "in place")
TRAININGS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "loop": (loop, BOTH),
    "Fabric": (fabric, BOTH),
    "Fabric, before setup": (partial(fabric, after_setup=False), BOTH[1:]),
    "Ignite": (ignite, BOTH),
    "Ignite, deterministic": (deterministic, BOTH[1:]),
    "Keras": (keras, BOTH[1:]),
    "Lightning": (partial(lightning, limit_val_batches=0), BOTH),
    # Over four batches, and over what is left at the end of an epoch.
    "Lightning, accumulating": (
        partial(lightning, limit_val_batches=0, accumulate_grad_batches=4),
        BOTH,
    ),
}
"""Each training, and the ways in which its loader can be measured."""
WAYS = [
    pytest.param(train, way, id=f"{name}-{way}")
    for name, (train, ways) in TRAININGS.items()
    for way in ways
]
PLAIN_WAYS = [param for param in WAYS if "," not in str(param.id)]


@pytest.mark.parametrize(
    ("train", "way", "mode"),
    [
        pytest.param(*way.values, mode, id=f"{way.id}-{mode}")
        for way in WAYS
        for mode in ("log", "replay", "alternate")
    ],
)
def test_it_trains_the_same(train: Train, way: str, mode: str, same_training: SameTraining) -> None:
    run = same_training(train, way, mode).recorded()
    assert len(run.ends) == (3 if train is keras else 2)
    assert train is not loop or {end.cause for end in run.ends} == {"exhausted"}
    assert run.header.loader.batch_size in {4, None}


@pytest.mark.parametrize(("train", "way"), PLAIN_WAYS)
def test_workers_train_the_same(train: Train, way: str, same_training: SameTraining) -> None:
    """Two, which stay alive between epochs; they are known through the framework's own loader."""
    evaluator = same_training(train, way, num_workers=2, persistent_workers=True)
    info = evaluator.recorded().header.loader
    assert (info.workers, info.prefetch_depth) == (2, 4)


@pytest.mark.parametrize(("train", "way"), PLAIN_WAYS)
def test_nothing_is_read_ahead(train: Train, way: str, read_ahead: ReadAhead) -> None:
    assert set(read_ahead(train, way)) == {0}


@pytest.mark.parametrize(
    ("train", "error", "message"),
    [
        # Fabric and Keras refuse by themselves what is of no class that they know.
        (partial(fabric, after_setup=False), TypeError, "Only PyTorch DataLoader are currently"),
        (keras, ValueError, "Unrecognized data type: x=LoaderEvaluator"),
        # Ignite's engine would draw other batches; the error says how to measure.
        (deterministic, UsageError, r"install\(dataloader\)"),
    ],
)
def test_an_evaluator_may_be_refused(
    train: Train, error: type[Exception], message: str, same_training: SameTraining
) -> None:
    with pytest.raises(error, match=message):
        same_training(train, "wrapped")


@pytest.mark.parametrize("way", BOTH)
def test_an_epoch_is_the_loaders_not_ignites(way: str, same_training: SameTraining) -> None:
    """Ignite goes on in the loader where its own epoch ended, with `epoch_length`."""
    evaluator = same_training(partial(ignite, max_epochs=5, epoch_length=8), way)
    assert evaluator.recorded().steps.epoch.tolist() == [0] * 21 + [1] * 19
