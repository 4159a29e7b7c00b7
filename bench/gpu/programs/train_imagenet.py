"""Trains a ResNet on JPEGs in a folder for each class, in mixed precision, as for ImageNet."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from bench.gpu.programs.reproducible import seeded, show, show_parameters

SIZE, CLASSES = 32, 4


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


class Block(nn.Module):
    """Two convolutions and what goes around them."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.inside = nn.Sequential(
            *(nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()),
            *(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)),
        )
        self.around = nn.Conv2d(before, after, 1, 2, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inside(images) + self.around(images))


def network() -> nn.Module:
    """A small ResNet."""
    blocks = (Block(3, 16), Block(16, 32), Block(32, 64))
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(64 * 4 * 4, CLASSES))


def train(
    loader: DataLoader[Any], model: nn.Module, criterion: nn.Module, optimizer: Any, scaler: Any
) -> None:
    """An epoch."""
    model.train()
    for images, target in loader:
        images = images.to("cuda", memory_format=torch.channels_last, non_blocking=True)
        target = target.to("cuda", non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(images), target)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        show("loss", loss)


def validate(loader: DataLoader[Any], model: nn.Module, criterion: nn.Module) -> None:
    """The loss on what was not trained on."""
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
        for images, target in loader:
            images = images.to("cuda", memory_format=torch.channels_last, non_blocking=True)
            target = target.to("cuda", non_blocking=True)
            show("validation", criterion(model(images), target))


def main() -> None:
    """Train and validate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    seeded()
    common: dict[str, Any] = {
        "batch_size": options.batch_size,
        "num_workers": options.workers,
        "pin_memory": True,
        "persistent_workers": True,
    }
    loader = DataLoader(
        ImageFolder(options.data / "train", augments=True), shuffle=True, drop_last=True, **common
    )
    held = DataLoader(ImageFolder(options.data / "val", augments=False), **common)
    model = network().to("cuda", memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs want a tensor there
    criterion = nn.CrossEntropyLoss().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(options.epochs):
        train(loader, model, criterion, optimizer, scaler)
        validate(held, model, criterion)
    show_parameters(model)


if __name__ == "__main__":
    main()
