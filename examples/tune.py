"""A DataLoader of JPEGs with one worker: which settings make training fastest?

    python examples/tune.py FOLDER

writes the photographs and tune.png, throughput against the number of workers, to FOLDER. Takes
about a minute on four cores. Needs torch and Pillow.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from loadeval import tune
from loadeval.demo.photographs import ROTATIONS, make_photographs

SIDE = 96
CLASSES = list(ROTATIONS)
Sample = tuple[torch.Tensor, int]


class Photographs(Dataset[Sample]):
    """Photographs, which way up is to be learnt."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        path = self.paths[index]
        with Image.open(path) as file:
            image = np.array(file.convert("RGB").resize((SIDE, SIDE)))
        return torch.from_numpy(image).permute(2, 0, 1) / 255, CLASSES.index(path.parent.name)


parser = argparse.ArgumentParser(description="Tune a DataLoader of JPEGs.")
parser.add_argument("folder", type=Path, help="folder for photographs and the figure")
parser.add_argument("--photographs", type=int, default=512, help="number of photographs")
parser.add_argument("--batches", type=int, default=80, help="batches to measure per setting")
parser.add_argument("--trials", type=int, default=4, help="settings to try at most")
options = parser.parse_args()

torch.set_num_threads(1)  # leaves the other cores to the workers
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
photographs = Photographs(make_photographs(options.folder / "photographs", options.photographs))
model = nn.Sequential(
    *(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()),
    *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, len(CLASSES))),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def make_loader(**settings: Any) -> DataLoader[Sample]:
    """The loader as it is, but for the settings that are tuned."""
    return DataLoader(photographs, batch_size=8, shuffle=True, **settings)


def step(batch: list[torch.Tensor]) -> None:
    """Train on one batch."""
    images, labels = (tensor.to(device) for tensor in batch)
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
    optimizer.step()


best = tune(
    make_loader,
    step,
    settings={"num_workers": 1},
    unit="images",
    batches=options.batches,
    max_trials=options.trials,
)
print(best)
print(f"\nFigure written to {best.plot(options.folder / 'tune.png')}")
