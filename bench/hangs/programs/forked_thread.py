"""A pool of threads was made before the workers were forked, which have none of its threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader

from bench.hangs.programs.training import Numbers, train

if TYPE_CHECKING:
    import torch


class Pooled(Numbers):
    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(int).result()  # its thread runs from now on

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.pool.submit(super().__getitem__, index).result()


if __name__ == "__main__":
    train(DataLoader(Pooled(), batch_size=2, num_workers=2))
