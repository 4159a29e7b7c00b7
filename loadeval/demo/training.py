"""A small convolutional network, trained with real and with free loading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from loadeval.demo.photographs import TURNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Sample = tuple[torch.Tensor, int]
    Batch = tuple[torch.Tensor, torch.Tensor]

SEED = 0
SIDE = 224
BATCH_SIZE = 32
WORKERS = 2


class Photographs(Dataset["Sample"]):
    """Images and the number of the class that their folder is named after."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.classes = list(TURNS)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        path = self.paths[index]
        with Image.open(path) as photograph:
            resized = photograph.convert("RGB").resize((SIDE, SIDE))
        # Bytes, not floats: a quarter of the shared memory, of which containers give 64 MB.
        image = torch.from_numpy(np.array(resized)).permute(2, 0, 1)
        return image, self.classes.index(path.parent.name)


class Training:
    """A model, its data and its optimiser, the same ones each time it is made."""

    def __init__(self, paths: list[Path]) -> None:
        torch.manual_seed(SEED)
        self.model = small_network(len(TURNS))
        self.criterion = nn.CrossEntropyLoss()
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.dataloader: DataLoader[Sample] = DataLoader(
            Photographs(paths), batch_size=BATCH_SIZE, shuffle=True, num_workers=WORKERS
        )

    def train_one_epoch(self, batches: Iterable[Batch], stepped: Callable[[], object]) -> float:
        """Train on `batches`, calling `stepped` after each; returns the share classified right."""
        right = seen = 0
        for images, labels in batches:
            scores = self.model(images / 255)
            loss = self.criterion(scores, labels)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            right += int((scores.argmax(dim=1) == labels).sum())
            seen += len(labels)
            stepped()
        return right / seen


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
