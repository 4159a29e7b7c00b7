"""A worker opens a named pipe as the file of its sample, and nobody ever writes to it."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader

from bench.hangs.programs.training import Numbers, train

if TYPE_CHECKING:
    import torch

SAMPLE = 9


class Files(Numbers):
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == SAMPLE:
            (self.folder / "9.bin").read_bytes()
        return super().__getitem__(index)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        os.mkfifo(Path(folder) / "9.bin")
        train(DataLoader(Files(folder), batch_size=2, num_workers=2))
