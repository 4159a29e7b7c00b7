"""Inside Lightning's Trainer: how much faster would `fit` be if data loading were free?

The evaluator replaces the training dataloader, and nothing else changes. Validation has its own
loader, which is not measured. This is for one device: for several, see docs/frameworks.md.

    python examples/lightning_fit.py FOLDER

writes run.jsonl and comparison.png to FOLDER. Takes about ten seconds. Needs lightning.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

from loadeval import LoaderEvaluator, plot_comparison

Batch = list[torch.Tensor]


class SmoothedNoise(Dataset[tuple[torch.Tensor, int]]):
    """Generated images; smoothing them several times is the costly transform."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(index))
        label = index % 2
        for _ in range(8 if label else 4):
            image = nn.functional.avg_pool2d(image, kernel_size=3, stride=1, padding=1)
        return image, label


class Classifier(LightningModule):
    """An ordinary module; it need not know what serves its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(32 * 15**2, 2)
        )

    def training_step(self, batch: Batch, _: int) -> torch.Tensor:
        """The loss."""
        images, labels = batch
        return nn.functional.cross_entropy(self.model(images), labels)

    def validation_step(self, batch: Batch, _: int) -> None:
        """The validation accuracy."""
        images, labels = batch
        right = self.model(images).argmax(dim=1) == labels
        self.log("right", right.float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    """Fit and compare."""
    parser = argparse.ArgumentParser(description="Measure a loader inside Lightning's fit.")
    parser.add_argument("folder", type=Path, help="folder for the run log and the figure")
    parser.add_argument("--images", type=int, default=1600)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    log_file = options.folder / "run.jsonl"

    torch.set_num_threads(1)  # steadier times if other programs use the CPU
    images, others = random_split(SmoothedNoise(options.images + 64), [options.images, 64])
    dataloader = DataLoader(images, batch_size=8, shuffle=True)
    trainer = Trainer(
        max_epochs=options.epochs,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with LoaderEvaluator(
        dataloader, mode="alternate", unit="images", log_file=log_file, overwrite=True
    ) as loader:
        trainer.fit(Classifier(), loader, val_dataloaders=DataLoader(others, batch_size=8))
    print(f"{trainer.callback_metrics['right']:.0%} of the validation images classified right")
    print(loader.headroom())
    print(
        f"Figure written to {plot_comparison(log_file, output=options.folder / 'comparison.png')}"
    )


if __name__ == "__main__":
    main()
