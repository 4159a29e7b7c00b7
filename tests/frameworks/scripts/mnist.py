"""Trains a small convolutional network on digits in IDX files, as MNIST's: `mnist.py DATA LOSSES`.

A program as people write them; knows no loadeval.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

HEADER_BYTES = {"images-idx3-ubyte": 16, "labels-idx1-ubyte": 8}


class Digits(Dataset[tuple[torch.Tensor, int]]):
    """28 x 28 grey pixels each, and which digit it is."""

    def __init__(self, folder: Path, part: str) -> None:
        images, labels = (
            np.fromfile(folder / f"{part}-{name}", np.uint8)[header:]
            for name, header in HEADER_BYTES.items()
        )
        self.images, self.labels = images.reshape(-1, 1, 28, 28), labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = torch.from_numpy(self.images[index]).float() / 255
        return (pixels - 0.13) / 0.31, int(self.labels[index])


class Net(nn.Module):
    """A convolution, dropout, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 5, 2)
        self.dropout = nn.Dropout(0.25)
        self.classifier = nn.Linear(4 * 12 * 12, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = functional.relu(self.convolution(images)).flatten(1)
        return functional.log_softmax(self.classifier(self.dropout(features)), 1)


def train(model: Net, loader: DataLoader[Any], optimizer: Any, losses: list[float]) -> None:
    """An epoch."""
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = functional.nll_loss(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        optimizer.step()
        losses.append(loss.item())


def test(model: Net, loader: DataLoader[Any], losses: list[float]) -> None:
    """The loss on what was not trained on."""
    model.eval()
    with torch.no_grad():
        total = sum(functional.nll_loss(model(images), labels) for images, labels in loader)
    losses.append(float(total))


def main() -> None:
    """Train, and write each loss."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("losses", type=Path, help="folder for the losses")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--test-batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    training = DataLoader(Digits(options.data, "train"), options.batch_size, shuffle=True)
    held = DataLoader(Digits(options.data, "t10k"), options.test_batch_size)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    losses: list[float] = []
    for _ in range(options.epochs):
        train(model, training, optimizer, losses)
        test(model, held, losses)
        scheduler.step()
    (options.losses / "rank0.txt").write_text("\n".join(map(repr, losses)), encoding="utf-8")


if __name__ == "__main__":
    main()
