"""Trains as people do on MNIST or ImageNet, the same each time to the bit, and prints what comes.

    python -m bench.gpu.train mnist
    python -m bench.gpu.train imagenet FOLDER

CUBLAS_WORKSPACE_CONFIG is the caller's.
"""

import hashlib
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from bench.gpu.loaders import labelled
from bench.zoo.programs import Samples

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RANDOM = np.random.default_rng(0)
DIGITS = RANDOM.integers(0, 256, (640, 1, 28, 28), np.uint8), RANDOM.integers(0, 10, 640)


def digit(index: int) -> tuple[torch.Tensor, int]:
    images, labels = DIGITS
    return (torch.from_numpy(images[index]).float() / 255 - 0.1307) / 0.3081, int(labels[index])


def convolutions(*channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AvgPool2d(7), nn.Flatten(), nn.Dropout(0.25))


def train(read: Callable[[int], Any], model: nn.Module, *, mixed: bool) -> None:
    """Two epochs, each with a validation; losses and parameters are printed."""
    loader: DataLoader[Any] = DataLoader(
        Samples(read, 480), 16, shuffle=True, num_workers=2, pin_memory=True
    )
    held: DataLoader[Any] = DataLoader(Samples(read, 160), 64, num_workers=1, pin_memory=True)
    model = model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(DEVICE, enabled=mixed)

    def loss_of(batch: Any) -> torch.Tensor:
        images, target = (part.to(DEVICE, non_blocking=True) for part in batch)
        with torch.autocast(DEVICE, dtype=torch.float16, enabled=mixed):
            return nn.functional.cross_entropy(model(images), target)

    for _ in range(2):
        model.train()
        for batch in loader:
            loss = loss_of(batch)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # torch leaves it so
            scaler.step(optimizer)
            scaler.update()
            print("loss", float(loss.item()).hex(), flush=True)
        model.eval()
        with torch.no_grad():
            for batch in held:
                print("validation", float(loss_of(batch).item()).hex(), flush=True)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print("parameters", digest.hexdigest(), flush=True)


def main() -> None:
    """Train on what the first argument names."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    if sys.argv[1] == "mnist":
        train(digit, nn.Sequential(convolutions(1, 16, 32), nn.Linear(32, 10)), mixed=False)
        return
    paths = sorted(Path(sys.argv[2]).rglob("*.jpg"))
    model = nn.Sequential(convolutions(3, 16, 32, 64), nn.Linear(64 * 4 * 4, 1000))
    train(partial(labelled, paths), model, mixed=True)


if __name__ == "__main__":
    main()
