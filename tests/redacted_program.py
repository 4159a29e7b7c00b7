"""A training whose data is in the user's home, and of which a file cannot be read."""

from __future__ import annotations

import platform
import socket
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOST = "node-quincy.cluster"
FOLDER = Path.home() / "scans"
SAMPLES, BATCH_SIZE, BROKEN = 400, 2, 9


class Scans(Dataset[torch.Tensor]):
    """Files, of which one is missing."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.004)
        path = FOLDER / f"scan-quincy-{index if index == BROKEN else 0}.npy"
        return torch.from_numpy(np.load(path))


def main() -> None:
    """Train for an epoch, and go on after an error."""
    platform.node = socket.gethostname = lambda: HOST
    FOLDER.mkdir(exist_ok=True)
    np.save(FOLDER / "scan-quincy-0.npy", np.zeros(4, dtype=np.float32))
    model = nn.Linear(4, 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = iter(DataLoader(Scans(), BATCH_SIZE, num_workers=1))
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            break
        except FileNotFoundError:
            continue
        model(batch).sum().backward()
        optimiser.step()
        time.sleep(0.002)


if __name__ == "__main__":
    main()
