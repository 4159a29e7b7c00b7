"""A training that is bound to one CPU by what it imports, and so are its workers."""

from __future__ import annotations

import os
import sys
import time

if "library" in sys.argv:  # as one may do when it is imported
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import torch
from torch.utils.data import DataLoader, TensorDataset

BATCHES, STEP_S = 400, 0.01


def main() -> None:
    """Train for some seconds."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight])
    for (batch,) in DataLoader(TensorDataset(torch.ones(BATCHES, 1)), num_workers=2):
        (batch * weight).sum().backward()
        optimizer.step()
        time.sleep(STEP_S)


if __name__ == "__main__":
    main()
