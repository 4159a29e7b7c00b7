"""Hugging Face's Trainer, with gradient accumulation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from tests.frameworks.conftest import ReadAhead, SameTraining, Task
from tests.frameworks.programs import by_name

Measured = Callable[[Any], Any]
Train = Callable[[Task, Measured], None]

MODES = ["log", "replay", "alternate"]
UPDATES = 2 * 6
"""Two epochs of 21 batches, four by four; the last group of an epoch has one."""


class Model(nn.Module):
    """The task's model, as Trainer asks for one: it returns its loss."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task_loss = task.loss
        self.model = task.model

    def forward(self, inputs: torch.Tensor, numbers: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.task_loss((inputs, numbers))}


class Measuring(Trainer):
    """Puts its own loader through `measured`."""

    measured: Measured

    def get_train_dataloader(self) -> Any:
        return self.measured(super().get_train_dataloader())


class Building(Measuring):
    """Builds its loader itself, and does not prepare it."""

    def get_train_dataloader(self) -> Any:
        return self.measured(DataLoader(self.train_dataset, 4, shuffle=True, collate_fn=by_name))  # type: ignore[arg-type]  # it is one


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "num_train_epochs": 1,
        "per_device_train_batch_size": 4,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
    return TrainingArguments(**{**settings, **options})


@pytest.fixture
def training(tmp_path: Path) -> Callable[..., Train]:
    """Makes a training of two epochs, by a Trainer of the class given."""

    def make(kind: type[Measuring], **options: Any) -> Train:
        def train(task: Task, measured: Measured) -> None:
            trainer = kind(
                Model(task),
                arguments(tmp_path, num_train_epochs=2, gradient_accumulation_steps=4, **options),
                data_collator=by_name,
                train_dataset=task.dataset,
                optimizers=(
                    task.optimiser,
                    torch.optim.lr_scheduler.LambdaLR(task.optimiser, lambda _: 1.0),
                ),
            )
            trainer.measured = measured
            trainer.train()
            assert task.updates == UPDATES

        return train

    return make


@pytest.mark.parametrize("mode", MODES)
def test_its_own_loader_is_measured_in_place(
    mode: str, training: Callable[..., Train], same_training: SameTraining
) -> None:
    same_training(training(Measuring), "in place", mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_a_loader_of_the_users_is_measured(
    way: str, mode: str, training: Callable[..., Train], same_training: SameTraining
) -> None:
    """It needs no preparation with a Trainer, so wrapping it is not refused."""
    same_training(training(Building), way, mode)


@pytest.mark.parametrize(("kind", "maker"), [(Measuring, "transformers"), (Building, None)])
def test_the_log_knows_who_made_the_loader(
    kind: type[Measuring],
    maker: str | None,
    training: Callable[..., Train],
    same_training: SameTraining,
) -> None:
    """Advice names the Trainer's arguments, not those of the loader."""
    evaluator = same_training(training(kind), "in place")
    assert evaluator.recorded().header.loader.made_by == maker


def test_a_group_of_batches_is_read_at_once(
    training: Callable[..., Train], read_ahead: ReadAhead
) -> None:
    groups = [3, 2, 1, 0] * 5 + [0]
    assert read_ahead(training(Measuring), "wrapped") == 2 * groups
    deeper = [count + 1 for count in groups[:-1]] + [0]
    assert read_ahead(training(Measuring), "in place") == 2 * deeper
