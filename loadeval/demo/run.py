"""The demo: makes photographs, trains with real and with ideal loading, and plots the result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from loadeval.demo.folder import DemoFolder
from loadeval.demo.photographs import ROTATIONS, make_photographs
from loadeval.errors import UsageError
from loadeval.evaluator import LoaderEvaluator
from loadeval.report.report import plot_comparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    Sample = tuple[torch.Tensor, int]
    Batch = tuple[torch.Tensor, torch.Tensor]

SEED = 0
SIDE = 224
BATCH_SIZE = 32
WORKERS = 2
PHOTOGRAPHS = 1024
EPOCHS = 12
"""Each has 32 batches."""

Progress = Callable[[str, int, int], object]
"""It is called with a stage's name, how much of it is done, and the total."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The files that the demo wrote, and the training accuracy of the last epoch, 0 to 1."""

    run_log: Path
    figure: Path
    accuracy: float


def run_demo(
    output: Path,
    progress: Progress = lambda _stage, _done, _total: None,
    *,
    device: str = "cpu",
    photographs: int = PHOTOGRAPHS,
    epochs: int = EPOCHS,
) -> DemoResult:
    """Train on JPEGs in `output` in alternate mode, on "cpu" or "cuda", and plot the result.

    Replaces the run log and the figure of an earlier demo. Raises UsageError if `output` cannot
    be written, or torch has no such device.
    """
    check_device(device)
    folder = DemoFolder(output)
    folder.clear()
    with folder.written():
        paths = make_photographs(
            folder.photographs,
            photographs,
            lambda done: progress("Making photographs", done, photographs),
        )
    with one_thread(), quiet():
        accuracy = _train(DemoTraining(paths, device), folder.run_log, epochs, progress)
    figure = plot_comparison(folder.run_log, output=folder.figure)
    return DemoResult(folder.run_log, figure, accuracy)


def check_device(device: str) -> None:
    """Raises UsageError if torch has no such device."""
    if device == "cuda" and not torch.cuda.is_available():
        reason = (
            "is built without CUDA: install one that is built with it"
            if torch.version.cuda is None
            else "finds no CUDA device: see what `loadeval doctor` says of the driver"
        )
        raise UsageError(
            f"cannot train on a GPU: torch {torch.__version__} {reason}, or train on the CPU "
            "with --device cpu"
        )


def _train(training: DemoTraining, log_file: Path, epochs: int, progress: Progress) -> float:
    evaluator = LoaderEvaluator(
        training.dataloader, mode="alternate", log_file=log_file, unit="images"
    )
    total = epochs * len(evaluator)
    steps = count(1)
    with evaluator:
        accuracies = [
            training.train_one_epoch(evaluator, lambda: progress("Training", next(steps), total))
            for _ in range(epochs)
        ]
    return accuracies[-1]


@contextmanager
def quiet() -> Iterator[None]:
    """Omit the log message about alternate mode: nobody keeps this model."""
    log = logging.getLogger("loadeval")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread: more would compete with the workers for CPUs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def decode(path: Path) -> Image.Image:
    """A photograph, at full size."""
    with Image.open(path) as photograph:
        return photograph.convert("RGB")


def shrink(photograph: Image.Image) -> torch.Tensor:
    """Three channels of SIDE by SIDE pixels.

    Bytes, not floats: a quarter of the shared memory, of which containers give 64 MB.
    """
    return torch.from_numpy(np.array(photograph.resize((SIDE, SIDE)))).permute(2, 0, 1)


class Photographs(Dataset["Sample"]):
    """Images, with the class that their folder is named after."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.classes = list(ROTATIONS)
        self.loader, self.transform = decode, shrink

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        path = self.paths[index]
        image = self.transform(self.loader(path))
        return image, self.classes.index(path.parent.name)


class DemoTraining:
    """A model, its data and its optimiser, the same each time.

    On "cuda" batches come in pinned memory, and copies of them do not block.
    """

    def __init__(self, paths: list[Path], device: str = "cpu") -> None:
        keep_memory()
        torch.manual_seed(SEED)
        self.device = device
        self.model = small_network(len(ROTATIONS)).to(device)
        self.criterion = nn.CrossEntropyLoss()
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.dataloader: DataLoader[Sample] = DataLoader(
            Photographs(paths),
            batch_size=BATCH_SIZE,
            shuffle=True,
            num_workers=WORKERS,
            pin_memory=device == "cuda",
        )

    def train_one_epoch(self, batches: Iterable[Batch], stepped: Callable[[], object]) -> float:
        """Train on `batches`, calling `stepped` after each; returns the accuracy."""
        seen = 0
        right = torch.zeros((), dtype=torch.long, device=self.device)
        for batch in batches:
            images, labels = (part.to(self.device, non_blocking=True) for part in batch)
            scores = self.model(images / 255)
            loss = self.criterion(scores, labels)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            right += (scores.argmax(dim=1) == labels).sum()
            seen += len(labels)
            stepped()
        return int(right) / seen


def keep_memory() -> None:
    """Let glibc keep the memory of a training step, not return it after some steps and request it.

    That would take a third of a step, at random. It keeps up to twice the largest block that was
    freed so far, of blocks up to 32 MB.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


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
