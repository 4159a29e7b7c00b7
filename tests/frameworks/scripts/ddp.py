"""Trains on each rank that a launcher starts: `ddp.py FOLDER [--join] [--dies]`.

A program as people write them; knows no loadeval.
"""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, TensorDataset

BATCHES, BATCH_SIZE, EPOCHS = 60, 4, 2
"""The batches of each rank, in each epoch."""
FEWER = 9
"""Each rank has so many batches less than the one before with --join."""
LAST = 90
"""The step at which rank 1 dies with --dies."""


def train(*, joins: bool, dies: bool) -> list[float]:
    """The loss of each step of this rank."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    count = BATCHES * BATCH_SIZE
    data: Dataset[Any] = TensorDataset(torch.randn(ranks * count, 4), torch.randn(ranks * count, 1))
    if joins:
        data = Subset(data, range(rank * count, (rank + 1) * count - rank * FEWER * BATCH_SIZE))
    sampler: DistributedSampler[Any] | None = None if joins else DistributedSampler(data)
    loader: DataLoader[Any] = DataLoader(data, BATCH_SIZE, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for epoch in range(EPOCHS):
        if sampler is not None:
            sampler.set_epoch(epoch)
        with model.join() if joins else nullcontext():
            for inputs, targets in loader:
                loss = nn.functional.mse_loss(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
                optimizer.step()
                losses.append(loss.item())
                if dies:
                    time.sleep(0.02)
                    if rank == 1 and len(losses) == LAST:
                        os.kill(os.getpid(), signal.SIGKILL)
    return losses


def main() -> None:
    """Train, and write the losses of this rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("losses", type=Path)
    parser.add_argument("--join", action="store_true", help="ranks have unequal lengths")
    parser.add_argument("--dies", action="store_true", help="rank 1 is killed on the way")
    options = parser.parse_args()
    distributed.init_process_group("gloo")
    code = [1]
    # Gloo's threads sometimes abort a process that ends (torch 2.13): it ends before they see.
    atexit.register(lambda: os._exit(code[0]))
    losses = train(joins=options.join, dies=options.dies)
    path = options.losses / f"rank{distributed.get_rank()}.txt"
    path.write_text("\n".join(map(repr, losses)), encoding="utf-8")
    code[0] = 0


if __name__ == "__main__":
    main()
