"""Trains with one framework, and prints what it saw: `programs.py FRAMEWORK`. Knows no loadeval."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.frameworks.conftest import BATCH_SIZE, Task

EPOCHS = 2
Measured = Callable[[Any], Any]


def unmeasured(loader: Any) -> Any:
    return loader


def validation(task: Task) -> DataLoader[Any]:
    """Over the same dataset."""
    return DataLoader(task.dataset, 10)


def loop(task: Task) -> None:
    """Train by hand; ask for each batch by next()."""
    for _ in range(EPOCHS):
        batches = iter(task.loader)
        while (batch := next(batches, None)) is not None:
            task.step(batch)
        with torch.no_grad():
            for inputs, _ in validation(task):
                task.model(inputs)


def lightning(
    task: Task, measured: Measured = unmeasured, devices: int = 1, **options: Any
) -> None:
    """Train with a sanity check, and validation after each epoch."""
    from lightning.pytorch import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = task.model

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return task.loss(batch)

        def validation_step(self, batch: Any, _: int) -> None:
            self.model(batch[0])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return task.optimiser

    Trainer(
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tempfile.gettempdir(),
        **options,
    ).fit(Module(), measured(task.loader), validation(task))


def fabric(task: Task) -> None:
    """Gradients accumulated over four batches."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    loader, held = fabric.setup_dataloaders(task.loader, validation(task))
    model, optimiser = fabric.setup(task.model, task.optimiser)
    for _ in range(EPOCHS):
        for number, batch in enumerate(loader, 1):
            fabric.backward(task.loss(batch, model))
            if number % 4 == 0 or number == len(loader):
                optimiser.step()
                optimiser.zero_grad()
        with torch.no_grad():
            for inputs, _ in held:
                model(inputs)


def accelerate(task: Task) -> None:
    """Gradients accumulated over four batches."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model, optimiser, loader, held = accelerator.prepare(
        task.model, task.optimiser, task.loader, validation(task)
    )
    for epoch in range(EPOCHS):
        shown = accelerator.skip_first_batches(loader, 5) if epoch else loader
        for batch in shown:
            with accelerator.accumulate(model):
                accelerator.backward(task.loss(batch, model))
                optimiser.step()
                optimiser.zero_grad()
        with torch.no_grad():
            for inputs, _ in held:
                model(inputs)


def by_name(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """A batch as a Trainer wants it."""
    inputs, numbers = zip(*samples, strict=True)
    return {"inputs": torch.stack(inputs), "numbers": torch.stack(numbers)}


def trainer(task: Task) -> None:
    """Hugging Face's, with evaluation."""
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = task.model

        def forward(self, inputs: torch.Tensor, numbers: torch.Tensor) -> dict[str, torch.Tensor]:
            if not self.training:
                return {"loss": self.model(inputs).mean()}
            return {"loss": task.loss((inputs, numbers))}

    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            Model(),
            TrainingArguments(
                folder,
                num_train_epochs=EPOCHS,
                per_device_train_batch_size=BATCH_SIZE,
                per_device_eval_batch_size=10,
                gradient_accumulation_steps=4,
                eval_strategy="epoch",
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                remove_unused_columns=False,
            ),
            by_name,
            task.dataset,
            task.dataset,
            optimizers=(task.optimiser, None),
        ).train()


def ignite(task: Task) -> None:
    """An engine that trains, and one that evaluates."""
    from ignite.engine import Engine, Events

    evaluator = Engine(lambda _, batch: task.model(batch[0]))
    engine = Engine(lambda _, batch: task.step(batch))

    @engine.on(Events.EPOCH_COMPLETED)
    def evaluate() -> None:
        with torch.no_grad():
            evaluator.run(validation(task))

    engine.run(task.loader, max_epochs=EPOCHS)


def keras(task: Task, measured: Measured = unmeasured) -> None:
    """Keras's own model, loss and optimiser; the task is told of them.

    Keras reads one batch more, to trace the loss with ones in its place: the task notes that too.
    """
    import keras

    def loss(numbers: torch.Tensor, predicted: torch.Tensor) -> Any:
        task.note(numbers)
        return keras.losses.mean_squared_error(numbers / len(task.dataset), predicted)

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "linear", False, "ones")])
    model.compile("sgd", loss)
    model.fit(measured(task.loader), epochs=EPOCHS, shuffle=False, verbose=0)
    task.model.weight.data = model.trainable_variables[0].value.T
    task.updated(int(model.optimizer.iterations))


def spdl(task: Task) -> None:
    """SPDL's DataLoader, with a thread."""
    from spdl.dataloader import DataLoader

    def batched(samples: list[int]) -> Any:
        inputs, numbers = zip(*(task.dataset[index] for index in samples), strict=True)
        return torch.stack(inputs), torch.stack(numbers)

    loader = DataLoader(
        range(len(task.dataset)), batch_size=BATCH_SIZE, aggregator=batched, num_threads=1
    )
    for _ in range(EPOCHS):
        for batch in loader:  # type: ignore[attr-defined]  # its stub says Iterable
            task.step(batch)


PROGRAMS = {
    program.__name__: program
    for program in (*(loop, lightning, fabric, accelerate, trainer, ignite, keras, spdl),)
}
PROGRAMS["ddp"] = partial(lightning, devices=2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    framework, folder = sys.argv[1:]
    work = Task()
    PROGRAMS[framework](work)
    work.stop()
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".trace", delete=False) as file:
        json.dump([sys.argv[1], *work.trace()], file)
