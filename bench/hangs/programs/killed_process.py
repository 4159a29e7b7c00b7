"""A process that loads into a queue is killed, and who reads the queue does not look after it."""

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
    from multiprocessing.queues import SimpleQueue

SAMPLE = 20


def load(samples: SimpleQueue[list[float]]) -> None:
    for index in range(SAMPLES):
        if index == SAMPLE:
            os.kill(os.getpid(), signal.SIGKILL)
        samples.put([float(index)] * 8)


class Queued(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        context = multiprocessing.get_context("fork")
        samples: SimpleQueue[list[float]] = context.SimpleQueue()
        context.Process(target=load, args=(samples,), daemon=True).start()
        for _ in range(SAMPLES):
            yield torch.tensor(samples.get())


if __name__ == "__main__":
    train(DataLoader(Queued(), batch_size=2))
