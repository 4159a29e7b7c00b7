"""Trains a small convolutional network on digits, as PyTorch's example for MNIST does."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from bench.gpu.programs.reproducible import seeded, show, show_parameters


class Digits(Dataset[tuple[torch.Tensor, int]]):
    """28 x 28 grey pixels each, and which digit it is: random ones."""

    def __init__(self, count: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.images = random.integers(0, 256, (count, 1, 28, 28), np.uint8)
        self.labels = random.integers(0, 10, count)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = torch.from_numpy(self.images[index]).float() / 255
        return (pixels - 0.1307) / 0.3081, int(self.labels[index])


class Net(nn.Module):
    """Two convolutions, dropout, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU())
        )
        self.dropout = nn.Dropout(0.25)
        self.classifier = nn.Linear(32 * 6 * 6, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.dropout(self.convolutions(images).flatten(1))
        return functional.log_softmax(self.classifier(features), dim=1)


def train(model: Net, device: torch.device, loader: DataLoader[Any], optimizer: Any) -> None:
    """An epoch."""
    model.train()
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = functional.nll_loss(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        optimizer.step()
        show("loss", loss)


def test(model: Net, device: torch.device, loader: DataLoader[Any]) -> None:
    """The loss on what was not trained on."""
    model.eval()
    total = torch.zeros((), device=device)
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            total += functional.nll_loss(model(images), labels, reduction="sum")
    show("validation", total)


def main() -> None:
    """Train and test."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    options = parser.parse_args()

    seeded()
    device = torch.device("cuda")
    workers: dict[str, Any] = {"num_workers": 1, "pin_memory": True}
    training = DataLoader(Digits(640, 0), options.batch_size, shuffle=True, **workers)
    held = DataLoader(Digits(160, 1), 4 * options.batch_size, **workers)
    model = Net().to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for _ in range(options.epochs):
        train(model, device, training, optimizer)
        test(model, device, held)
        scheduler.step()
    show_parameters(model)


if __name__ == "__main__":
    main()
