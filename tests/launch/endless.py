"""A training with a slow loader that goes on until somebody stops it, or for some batches."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[torch.Tensor]):
    """Each sample takes a millisecond."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.001)
        return torch.full((4,), float(index))


def main(batches: int, workers: int) -> None:
    """Train on so many batches, and print what samples they had, in order."""
    torch.manual_seed(0)
    loader: DataLoader[Any] = DataLoader(Slow(2 * batches), 2, num_workers=workers)
    model = nn.Linear(4, 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-9)
    seen: list[int] = []
    try:
        for batch in loader:
            model(batch).sum().backward()
            optimiser.step()
            seen += [int(number) for number in batch[:, 0]]
    except KeyboardInterrupt:
        print("stopped", len(seen))
        return
    print(sorted(seen))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
