"""A training as people write them: MNIST-sized, with validation; prints its losses."""

from __future__ import annotations

import argparse
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, BATCH_SIZE = 64, 8


class Held(TensorDataset):
    """The validation data."""


def main() -> None:
    """Train for some epochs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--context")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--code", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(SAMPLES, 4), torch.randn(SAMPLES, 1))
    held = Held(torch.randn(32, 4), torch.randn(32, 1))
    training: DataLoader[tuple[torch.Tensor, ...]] = DataLoader(
        data,
        BATCH_SIZE,
        shuffle=True,
        num_workers=options.workers,
        multiprocessing_context=options.context,
    )
    validation: DataLoader[tuple[torch.Tensor, ...]] = DataLoader(held, BATCH_SIZE)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 1))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(options.epochs):
        for number, (inputs, targets) in enumerate(training, 1):
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
            if number % options.accumulate == 0:
                optimiser.step()
                optimiser.zero_grad()
            print(f"{loss.item():.9f}")
        model.eval()
        with torch.no_grad():
            for inputs, targets in validation:
                loss = nn.functional.mse_loss(model(inputs), targets)
                print(f"held {loss.item():.9f} {torch.rand(1).item():.9f}")
        model.train()
    sys.exit(options.code)


if __name__ == "__main__":
    main()
