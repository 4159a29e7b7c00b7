"""A training that reads files: large ones, or small ones that take long to prepare."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEP_S = 0.002
READ = 4096


class Files(Dataset[Any]):
    """The bytes of a file, hashed `rounds` times."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.paths = sorted(folder.iterdir())
        self.rounds = rounds

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        data = self.paths[index].read_bytes()
        for _ in range(self.rounds):
            hashlib.sha256(data).digest()
        return torch.frombuffer(bytearray(data[:READ]), dtype=torch.uint8).float()


def main(folder: str, rounds: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(READ, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for batch in DataLoader(Files(Path(folder), int(rounds)), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        time.sleep(STEP_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
