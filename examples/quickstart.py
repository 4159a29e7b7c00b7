"""How much faster would this training be if data loading were free?

Writes run.jsonl and comparison.png to the given folder, or to the current one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from loadeval import LoaderEvaluator, plot_comparison


class SmoothedNoise(Dataset[tuple[torch.Tensor, int]]):
    """Generated images; smoothing them several times is the costly transform."""

    def __len__(self) -> int:
        return 1600

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(index))
        label = index % 2
        for _ in range(16 if label else 8):
            image = nn.functional.avg_pool2d(image, kernel_size=3, stride=1, padding=1)
        return image, label


def train_one_epoch(model: nn.Module, loader: LoaderEvaluator) -> None:
    """An ordinary training loop; it need not know what serves its batches."""
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in loader:
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
folder.mkdir(parents=True, exist_ok=True)
os.chdir(folder)
torch.set_num_threads(1)  # steadier times when other programs use the CPU too
dataloader = DataLoader(SmoothedNoise(), batch_size=8, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(32 * 15 * 15, 2)
)

loader = LoaderEvaluator(dataloader, mode="alternate", log_file="run.jsonl", overwrite=True)
train_one_epoch(model, loader)
print(loader.headroom())
plot_comparison("run.jsonl", output="comparison.png")

print("Wrote run.jsonl and comparison.png")
