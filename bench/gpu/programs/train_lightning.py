"""Trains a small network with Lightning, with a sanity check and validation."""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bench.gpu.programs.reproducible import seeded, show, show_parameters


class Classifier(LightningModule):
    """Classifies vectors."""

    def __init__(self) -> None:
        super().__init__()
        layers = (nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 4))
        self.model = nn.Sequential(*layers)
        self.loss_of = nn.CrossEntropyLoss()

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        inputs, targets = batch
        loss: torch.Tensor = self.loss_of(self.model(inputs), targets)
        show("loss", loss)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        inputs, targets = batch
        show("validation", self.loss_of(self.model(inputs), targets))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    """Train and validate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    seeded()
    training = TensorDataset(torch.randn(640, 64), torch.randint(4, (640,)))
    held = TensorDataset(torch.randn(64, 64), torch.randint(4, (64,)))
    module = Classifier()
    trainer = Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=options.epochs,
        deterministic=True,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tempfile.gettempdir(),
    )
    trainer.fit(
        module,
        DataLoader(training, 16, shuffle=True, num_workers=1, pin_memory=True),
        DataLoader(held, 32),
    )
    show_parameters(module)


if __name__ == "__main__":
    main()
