"""A training as it is before anybody asks whether its data loading is slow: nothing of loadeval.

    loadeval diagnose -- python examples/train.py

measures it. As DataLoader does unless told otherwise, it loads each batch when training asks for
it; `--workers 2` loads ahead in two workers, which live on from epoch to epoch. Reads JPEGs from
the given folder, or from a temporary one to which it writes some first. Takes half a minute on two
cores. Needs torch, NumPy and Pillow.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
IMAGES, CLASSES, SIDE = 1024, 8, 96


class Photographs(Dataset[tuple[torch.Tensor, int]]):
    """JPEGs, cropped at random and mirrored; the class is the last digit of the name."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.paths[index]) as file:
            image = self.augment(file.convert("RGB"))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return pixels, int(self.paths[index].stem) % CLASSES

    def augment(self, image: Image.Image) -> Image.Image:
        """A part of it, of SIDE pixels, and every second one mirrored."""
        left, top = torch.randint(0, image.width // 3, (2,)).tolist()
        box = (left, top, left + image.width // 2, top + image.height // 2)
        image = image.resize((SIDE, SIDE), Image.Resampling.LANCZOS, box)
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if left % 2 else image


def write_photographs(folder: Path) -> None:
    """Clouds in a colour of each class, as hard to decode as photographs."""
    random = np.random.default_rng(0)
    for number in range(IMAGES):
        cloud = random.integers(0, 128, (48, 64, 3))
        tint = [number % CLASSES >> bit & 1 for bit in range(3)]
        coarse = Image.fromarray((cloud + 64 * np.array(tint)).astype(np.uint8))
        image = coarse.resize((320, 240), Image.Resampling.BICUBIC)
        image.save(folder / f"{number:04}.jpg", quality=90)


def train(folder: Path, epochs: int, workers: int) -> None:
    """Train a small network, and print the loss of each epoch."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, CLASSES),
    ).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(
        Photographs(folder),
        batch_size=16,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    for epoch in range(epochs):
        losses = []
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(DEVICE)), labels.to(DEVICE))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")


def main() -> None:
    """Train on the JPEGs in a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the JPEGs are")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is no faster with more
    if options.folder is not None:
        train(options.folder, options.epochs, options.workers)
        return
    with TemporaryDirectory() as folder:
        write_photographs(Path(folder))
        train(Path(folder), options.epochs, options.workers)


if __name__ == "__main__":
    main()
