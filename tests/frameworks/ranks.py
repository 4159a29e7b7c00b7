"""Trains in one of two processes, in several ways one after the other; writes what it saw.

Run as `ranks.py FRAMEWORK FOLDER`, by torchrun, or by Lightning itself.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, DistributedSampler

from loadeval import LoaderEvaluator, UsageError, install
from tests.frameworks.conftest import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    Measured = Callable[[Any], Any]
    Train = Callable[[Task, Measured], None]

SAMPLES = 120
OPTIONS: dict[str, Any] = {
    "use_seedable_sampler": False,
    "data_seed": 1,
    "split_batches": True,
    "dispatch_batches": True,
    "even_batches": False,
}
"""Options of Accelerate's loaders."""
IN_PLACE = [("in place", mode) for mode in ("log", "replay", "alternate")]


def lightning(folder: Path) -> Train:
    """Two devices; Lightning gives each process its part of the data."""
    from lightning.pytorch import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self, task: Task) -> None:
            super().__init__()
            self.task, self.model = task, task.model

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return self.task.loss(batch)

        def validation_step(self, batch: Any, _: int) -> None: ...

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return self.task.optimiser

    def train(task: Task, measured: Measured) -> None:
        # Over the same dataset: it is never measured.
        validation: DataLoader[Any] = DataLoader(task.dataset, 4)
        trainer = Trainer(
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            max_epochs=2,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(Module(task), measured(task.loader), validation)

    return train


def fabric(*, after_setup: bool) -> Train:
    """As above, with a loop of one's own."""
    from lightning.fabric import Fabric

    def train(task: Task, measured: Measured) -> None:
        fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
        fabric.launch()
        model, optimiser = fabric.setup(task.model, task.optimiser)
        if after_setup:
            loader = measured(fabric.setup_dataloaders(task.loader))
        else:
            loader = fabric.setup_dataloaders(measured(task.loader))
        for _ in range(2):
            for batch in loader:
                fabric.backward(task.loss(batch, model))
                optimiser.step()
                optimiser.zero_grad()

    return train


def accelerate(*, prepared_first: bool = False, **options: Any) -> Train:
    """Train with gradients accumulated over two batches; `options` are those of its loaders."""
    from accelerate import (
        Accelerator,
        DataLoaderConfiguration,
    )

    def train(task: Task, measured: Measured) -> None:
        configuration = DataLoaderConfiguration(**options)
        accelerator = Accelerator(
            cpu=True, gradient_accumulation_steps=2, dataloader_config=configuration
        )
        model, optimiser = accelerator.prepare(task.model, task.optimiser)
        if prepared_first:
            loader = measured(accelerator.prepare(task.loader))
        else:
            loader = accelerator.prepare(measured(task.loader))
        for _ in range(2):
            for batch in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(task.loss(batch, model))
                    optimiser.step()
                    optimiser.zero_grad()

    return train


def in_order(train: Train, task: Task, measured: Measured) -> None:
    """`train`, with a loader that does not shuffle."""
    task.loader = DataLoader(task.dataset, 4)
    train(task, measured)


def own_sampler(train: Train, task: Task, measured: Measured) -> None:
    """`train`, with the data split by the user."""
    rank = int(os.environ["LOCAL_RANK"])
    sampler: DistributedSampler[Any] = DistributedSampler(task.dataset, 2, rank)
    task.loader = DataLoader(task.dataset, 4, sampler=sampler)
    train(task, measured)


def trainings(framework: str, folder: Path) -> list[tuple[str, Train, list[tuple[str, str]]]]:
    """What to run without us first, and then in which ways and modes."""
    wrapped = [("wrapped", "log"), ("wrapped", "alternate")]
    if framework == "accelerate":
        late = [*IN_PLACE, wrapped[0]]
        return [
            ("before", accelerate(prepared_first=False), IN_PLACE),
            ("after", accelerate(prepared_first=True), late),
        ]
    if framework == "accelerate's options":
        return [(name, accelerate(**{name: on}), IN_PLACE) for name, on in OPTIONS.items()]
    if framework == "fabric":
        return [
            ("before", fabric(after_setup=False), IN_PLACE),
            ("in order", partial(in_order, fabric(after_setup=False)), IN_PLACE),
            ("after", fabric(after_setup=True), [*IN_PLACE, *wrapped]),
        ]
    train = lightning(folder)
    if framework == "lightning by itself":
        return [("fit", train, IN_PLACE[2:])]
    return [
        ("own sampler", partial(own_sampler, train), [*IN_PLACE, *wrapped]),
        ("in order", partial(in_order, train), IN_PLACE),
        ("fit", train, [*IN_PLACE, *wrapped]),
    ]


def run(train: Train, way: str, mode: str, log_file: Path | None) -> dict[str, Any]:
    """What one training saw."""
    task = Task(SAMPLES)
    seen: dict[str, Any] = {"way": way, "mode": mode}
    with ExitStack() as stack:
        made: list[LoaderEvaluator] = []

        def measured(loader: Any) -> Any:
            make = install if way == "in place" else LoaderEvaluator
            made.append(stack.enter_context(make(loader, mode, log_file=log_file)))
            return loader if way == "in place" else made[0]

        try:
            train(task, measured if way else lambda loader: loader)
        except UsageError as error:
            return {**seen, "error": str(error)}
        arms = made[0].recorded().steps.arm.tolist() if made else None
        trace = task.seen, task.updates, [value.tolist() for value in task.model.parameters()]
        return {**seen, "trace": trace, "arms": arms}


def main(framework: str, folder: Path) -> None:
    """Train, and leave what was seen in the folder."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rank = os.environ.get("LOCAL_RANK", "0")
    seen = []
    for name, train, ways in trainings(framework, folder):
        for way, mode in [("", "log"), *ways]:
            log_file = folder / f"{name}-{way}-{mode}-rank{rank}.jsonl"
            seen.append({"name": name, **run(train, way, mode, log_file)})
    (folder / f"rank{rank}.json").write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
