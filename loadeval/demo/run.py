"""The demo: a network learns which way photographs are turned, from a loader that is too slow."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import cbook
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from loadeval.errors import UsageError
from loadeval.evaluator import LoaderEvaluator

BATCH_SIZE = 16
PHOTOGRAPHS = 256
EPOCHS = 6
TIMES_IN_AN_EPOCH = 4
"""An epoch has each photograph so often: more of them would take longer to make than to decode."""
ROTATIONS = {"upright": 0, "left": 90, "upside-down": 180, "right": 270}
"""A photograph's class is which way its top points."""
SIDE = 496


def run_demo(
    log_file: Path,
    *,
    device: str = "cpu",
    photographs: int = PHOTOGRAPHS,
    epochs: int = EPOCHS,
    **settings: Any,
) -> None:
    """Train in alternate mode, on "cpu" or "cuda", on JPEGs that are made beside the run log.

    `settings` are those of the DataLoader. Raises UsageError if torch has no such device, or a file
    cannot be written.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"cannot train on a GPU: torch {torch.__version__} finds none, see `loadeval doctor`; "
            "or train on the CPU with --device cpu"
        )
    try:
        paths = make_photographs(log_file.parent / "photographs", photographs)
    except OSError as error:
        raise UsageError(
            f"cannot write to {log_file.parent}: {error.strerror or error}; give --output a folder "
            "that can be written, on a disk with some 100 MB free"
        ) from error
    log, threads = logging.getLogger("loadeval"), torch.get_num_threads()
    level = log.level
    log.setLevel(logging.ERROR)  # nobody keeps the model that learns from batches in another order
    torch.set_num_threads(1)  # more would compete with the workers for CPUs
    options = {"shuffle": True, "pin_memory": device == "cuda", **settings}
    try:
        loader = DataLoader(Photographs(paths * TIMES_IN_AN_EPOCH), BATCH_SIZE, **options)
        with LoaderEvaluator(
            loader, "alternate", log_file=log_file, overwrite=True, unit="images"
        ) as evaluator:
            train(evaluator, epochs, device)
    finally:
        torch.set_num_threads(threads)
        log.setLevel(level)


def make_photographs(folder: Path, count: int) -> list[Path]:
    """Fill `folder` with `count` JPEGs of SIDE x SIDE, a subfolder a class; returns them.

    The place and rotation of each crop depend only on its number, so every run makes the same
    files.
    """
    path: Any = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)
    with Image.open(path) as file:
        photograph = file.convert("RGB")
    room = [photograph.width - SIDE, photograph.height - SIDE]
    paths = []
    for number in range(count):
        name, degrees = list(ROTATIONS.items())[number % len(ROTATIONS)]
        left, top = np.random.default_rng(number).integers(0, room, endpoint=True).tolist()
        crop = photograph.crop((left, top, left + SIDE, top + SIDE))
        (folder / name).mkdir(parents=True, exist_ok=True)
        paths.append(folder / name / f"{number:04d}.jpg")
        crop.rotate(degrees).save(paths[-1], quality=90)
    return paths


def decode(path: Path) -> Image.Image:
    """A photograph, at full size."""
    with Image.open(path) as photograph:
        return photograph.convert("RGB")


def shrink(photograph: Image.Image) -> torch.Tensor:
    """Three channels of 224 by 224 pixels.

    Bytes, not floats: a quarter of the shared memory, of which containers give 64 MB.
    """
    return torch.from_numpy(np.array(photograph.resize((224, 224)))).permute(2, 0, 1)


class Photographs(Dataset[tuple[torch.Tensor, int]]):
    """Images, with the class that their folder is named after."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.classes = list(ROTATIONS)
        self.loader, self.transform = decode, shrink

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        return self.transform(self.loader(path)), self.classes.index(path.parent.name)


def train(loader: Iterable[Any], epochs: int, device: str) -> None:
    """Train a new network, the same each time.

    On "cuda", to which batches come from pinned memory, copies of them do not block.
    """
    # glibc then keeps the memory of a step, and does not return it and request it at random.
    torch.empty(31 * 2**20, dtype=torch.uint8)
    torch.manual_seed(0)
    model = small_network(len(ROTATIONS)).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for batch in loader:
            images, labels = (part.to(device, non_blocking=True) for part in batch)
            loss = nn.CrossEntropyLoss()(model(images / 255), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def small_network(classes: int) -> nn.Module:
    """Three convolutions and a linear layer: nine thousand weights."""
    return nn.Sequential(
        nn.Conv2d(3, 8, kernel_size=7, stride=4, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, classes),
    )
