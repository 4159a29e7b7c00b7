"""Trains on JPEGs in a folder for each class, as ImageNet's: `imagenet.py DATA LOSSES`.

On one device, or on the ranks that a launcher starts. A program as people write them; knows no
loadeval.
"""

from __future__ import annotations

import argparse
import atexit
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIZE = 32
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    """The images in `root/CLASS/`; a random crop, perhaps mirrored, where `augments`."""

    def __init__(self, root: Path, *, augments: bool) -> None:
        classes = sorted(path for path in root.iterdir() if path.is_dir())
        self.samples = [
            (path, number)
            for number, folder in enumerate(classes)
            for path in sorted(folder.glob("*.jpg"))
        ]
        self.augments = augments

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        with Image.open(path) as image:
            pixels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
        left, top = (pixels.shape[2] - SIZE) // 2, (pixels.shape[1] - SIZE) // 2
        if self.augments:
            left, top = (int(torch.randint(2 * side + 1, ())) for side in (left, top))
        pixels = pixels[:, top : top + SIZE, left : left + SIZE].float() / 255 - 0.5
        if self.augments and torch.rand(()) < 0.5:
            pixels = pixels.flip(2)
        return pixels, label


class AverageMeter:
    """The latest value, and the average of all, weighted."""

    def __init__(self) -> None:
        self.value, self.total, self.count = 0.0, 0.0, 0

    def update(self, value: float, count: int) -> None:
        self.value = value
        self.total += value * count
        self.count += count

    @property
    def average(self) -> float:
        return self.total / self.count


def train(
    loader: DataLoader[Any], model: nn.Module, criterion: nn.Module, optimizer: Any
) -> list[float]:
    """An epoch; returns the loss of each batch."""
    losses, values = AverageMeter(), []
    model.train()
    for images, labels in loader:
        loss = criterion(model(images), labels)
        losses.update(loss.item(), len(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(losses.value)
    return [*values, losses.average]


def validate(loader: DataLoader[Any], model: nn.Module, criterion: nn.Module) -> list[float]:
    """The average loss, and the share that was classified right."""
    losses, right = AverageMeter(), AverageMeter()
    model.eval()
    with torch.no_grad():
        for images, labels in loader:
            output = model(images)
            losses.update(criterion(output, labels).item(), len(labels))
            right.update((output.argmax(1) == labels).float().mean().item(), len(labels))
    return [losses.average, right.average]


def main() -> None:
    """Train and validate in each epoch, and write each loss."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("losses", type=Path, help="folder for the losses of each rank")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.1)
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    code = [1]
    if RANKS > 1:
        distributed.init_process_group("gloo")
        # Gloo's threads sometimes abort a process that ends (torch 2.13): it ends before they see.
        atexit.register(lambda: os._exit(code[0]))
    network = nn.Sequential(
        *(nn.Conv2d(3, 8, 5, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()),
        nn.Linear(8 * 7 * 7, 4),
    )
    model: nn.Module = DistributedDataParallel(network) if RANKS > 1 else network
    training = ImageFolder(options.data / "train", augments=True)
    held = ImageFolder(options.data / "val", augments=False)
    sampler: DistributedSampler[Any] | None = DistributedSampler(training) if RANKS > 1 else None
    loader: DataLoader[Any] = DataLoader(
        training,
        options.batch_size,
        shuffle=sampler is None,
        num_workers=options.workers,
        sampler=sampler,
    )
    validation: DataLoader[Any] = DataLoader(held, options.batch_size, num_workers=options.workers)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9, weight_decay=1e-4)
    values: list[float] = []
    for epoch in range(options.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        values += train(loader, model, criterion, optimizer)
        values += validate(validation, model, criterion)
    rank = distributed.get_rank() if RANKS > 1 else 0
    text = "\n".join(map(repr, values))
    (options.losses / f"rank{rank}.txt").write_text(text, encoding="utf-8")
    code[0] = 0


if __name__ == "__main__":
    main()
