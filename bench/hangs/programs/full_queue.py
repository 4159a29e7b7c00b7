"""Workers put statistics into a queue of three places, whose reader has ended."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader

from bench.hangs.programs.training import Numbers, train

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    import torch


class Counted(Numbers):
    def __init__(self, counts: Queue[int]) -> None:
        self.counts = counts

    def __getitem__(self, index: int) -> torch.Tensor:
        self.counts.put(index)
        return super().__getitem__(index)


if __name__ == "__main__":
    counts: Queue[int] = multiprocessing.get_context("fork").Queue(3)
    train(DataLoader(Counted(counts), batch_size=2, num_workers=2))
