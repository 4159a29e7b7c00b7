"""A process of a multiprocessing pool that loads is killed, and its sample never comes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, IterableDataset

from bench.hangs.programs.training import SAMPLES, train

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLE = 20


def load(index: int) -> list[float]:
    if index == SAMPLE:
        os.kill(os.getpid(), signal.SIGKILL)
    return [float(index)] * 8


class Pooled(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            yield from map(torch.tensor, pool.imap(load, range(SAMPLES)))


if __name__ == "__main__":
    train(DataLoader(Pooled(), batch_size=2))
