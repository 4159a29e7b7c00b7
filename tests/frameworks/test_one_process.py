"""Loops by hand, Fabric, Ignite, Keras and Lightning on one device."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from tempfile import gettempdir
from typing import Any

import keras
import pytest
import torch
from lightning.fabric import Fabric
from lightning.pytorch import LightningModule, Trainer

from loadeval import UsageError
from tests.frameworks.conftest import ReadAhead, SameTraining, Task

with warnings.catch_warnings():
    # Ignite imports torch.distributed.optim, which uses what torch has deprecated.
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    from ignite.engine import DeterministicEngine, Engine


Measured = Callable[[Any], Any]
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


def fit_keras(task: Task, measured: Measured) -> None:
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


class Module(LightningModule):
    """The task's model and steps."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.model = task.model

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        return self.task.loss(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.task.optimiser


def lightning(task: Task, measured: Measured, **options: Any) -> None:
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=gettempdir(),
        **options,
    )
    trainer.fit(Module(task), train_dataloaders=measured(task.loader))


BOTH = ("wrapped", "in place")
TRAININGS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "loop": (loop, BOTH),
    "Fabric": (fabric, BOTH),
    "Fabric, before setup": (partial(fabric, after_setup=False), BOTH[1:]),
    "Ignite": (ignite, BOTH),
    "Ignite, deterministic": (deterministic, BOTH[1:]),
    "Keras": (fit_keras, BOTH[1:]),
    "Lightning": (lightning, BOTH),
    # Over four batches, and over what is left at the end of an epoch.
    "Lightning, accumulating": (partial(lightning, accumulate_grad_batches=4), BOTH),
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
    assert len(run.ends) == (3 if train is fit_keras else 2)
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
        (fit_keras, ValueError, "Unrecognized data type: x=LoaderEvaluator"),
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
