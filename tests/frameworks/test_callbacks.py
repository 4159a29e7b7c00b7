"""Callbacks of ours in Trainer and Lightning: they measure, and log where the trainer does."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from loadeval import read_run
from loadeval.runtime.background import tracking
from loadeval_adapters.lightning_callback import DataLoadingMonitor
from loadeval_adapters.transformers_callback import LoadevalCallback
from tests.frameworks.conftest import BATCHES, Task
from tests.frameworks.test_trainer import Model, by_name

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]
SCALARS = {"loadeval/batches", "loadeval/epoch", "loadeval/wait_s", "loadeval/batches_per_s"}
PLAIN = DataLoader.__iter__


@pytest.fixture(name="task", autouse=True)
def _task(monkeypatch: pytest.MonkeyPatch) -> Task:
    """A training of a second, in which scalars come with each look."""
    monkeypatch.setattr(tracking, "INTERVAL_S", 0.0)
    monkeypatch.setattr(tracking, "TICK_S", 0.01)
    return Task()


def trained(task: Task, folder: Path, **options: Any) -> tuple[Trainer, LoadevalCallback]:
    trainer = Trainer(
        model=Model(task),
        args=TrainingArguments(
            output_dir=str(folder / "trainer"),
            num_train_epochs=2,
            per_device_train_batch_size=4,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=task.dataset,
        data_collator=by_name,
    )
    callback = LoadevalCallback(trainer, **options)
    assert callback.evaluator is None
    trainer.add_callback(callback)
    trainer.train()
    return trainer, callback


def test_a_trainer_logs_what_it_waits(task: Task, tmp_path: Path) -> None:
    """Among its own, step by step; at the end all batches. The log is closed, and so are we."""
    trainer, callback = trained(task, tmp_path, log_file=tmp_path / "run.jsonl")
    logged = [entry for entry in trainer.state.log_history if "loadeval/batches" in entry]
    assert len(logged) >= 2
    assert set(logged[-1]) > SCALARS
    assert (logged[-1]["loadeval/batches"], logged[-1]["step"]) == (2 * BATCHES, 2 * BATCHES)
    run = read_run(tmp_path / "run.jsonl")
    assert (run.closed, run.batches) == (True, 2 * BATCHES)
    assert callback.evaluator is not None
    assert DataLoader.__iter__ is PLAIN


def test_a_trainer_that_trains_again_is_measured_again(task: Task, tmp_path: Path) -> None:
    trainer, callback = trained(task, tmp_path)
    first = callback.evaluator
    trainer.train()
    assert callback.evaluator is not first
    assert callback.evaluator is not None
    assert callback.evaluator.recorded().batches == 2 * BATCHES


class Module(LightningModule):
    def __init__(self, task: Task, fails_at: int | None = None) -> None:
        super().__init__()
        self.task, self.model, self.fails_at = task, task.model, fails_at

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        if number == self.fails_at:
            raise RuntimeError("no")
        loss: torch.Tensor = self.task.loss(batch)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class WithLoader(Module):
    """Makes its loader itself."""

    def train_dataloader(self) -> Any:
        return self.task.loader


class WithData(LightningDataModule):
    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def train_dataloader(self) -> Any:
        return self.task.loader


def fit(module: Module, folder: Path, monitor: DataLoadingMonitor, data: Any = None) -> None:
    LightningTrainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        log_every_n_steps=1,
        logger=CSVLogger(folder, name="", version=""),
        callbacks=[monitor],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(module, data)


@pytest.mark.parametrize("way", ["given", "by the module", "by a data module"])
def test_lightning_logs_what_it_waits(task: Task, tmp_path: Path, way: str) -> None:
    """To its logger, under the trainer's step, of the first batch on, whoever made the loader."""
    monitor = DataLoadingMonitor(log_file=tmp_path / "run.jsonl")
    module, data = (WithLoader if way == "by the module" else Module)(task), None
    if way != "by the module":
        data = task.loader if way == "given" else WithData(task)
    fit(module, tmp_path, monitor, data)
    assert "train_dataloader" not in {**vars(module), **vars(data or task)}
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("loadeval/batches")]
    assert len(rows) >= 2
    assert {name for name, value in rows[-1].items() if value} >= SCALARS
    assert (float(rows[-1]["loadeval/batches"]), rows[-1]["step"]) == (42, "42")
    assert read_run(tmp_path / "run.jsonl").closed
    assert DataLoader.__iter__ is PLAIN


def test_a_fit_that_fails_ends_the_measurement(task: Task, tmp_path: Path) -> None:
    """With the exception that it raised."""
    monitor = DataLoadingMonitor(log_file=tmp_path / "run.jsonl")
    with pytest.raises(RuntimeError, match="no"):
        fit(Module(task, fails_at=5), tmp_path, monitor, task.loader)
    run = read_run(tmp_path / "run.jsonl")
    assert (run.closed, run.batches) == (True, 6)
    assert DataLoader.__iter__ is PLAIN
