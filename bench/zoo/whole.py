"""Whole programs, for a command to start: python -m bench.zoo.whole NAME [ARGUMENT]."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from bench.zoo.costs import MS, Pause
from bench.zoo.outside import sleeping
from bench.zoo.programs import Samples, Training, nothing


def train(
    batches: Iterable[torch.Tensor],
    step: Callable[[Any], object] = nothing,
    *,
    in_ranks: bool = False,
) -> None:
    """An epoch: for each batch a step of an optimizer, and `step`; ranks share their gradients."""
    torch.set_num_threads(1)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for batch in batches:
        optimizer.zero_grad()
        model(batch.float().reshape(-1, 1)).mean().backward()
        for parameter in model.parameters() if in_ranks else ():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        step(batch)


def ranks() -> None:
    """A rank of a job under torchrun, in which rank 1 loads more slowly."""
    dist.init_process_group("gloo")
    ms = 16 if dist.get_rank() == 1 else 6
    loader = DataLoader(sleeping(100, ms), num_workers=1)
    for _ in range(2):
        train(loader, in_ranks=True)
    dist.barrier()


def resuming(how: str) -> None:
    """Resumes behind the 80th batch: loads and skips those before, or skips them "by indices"."""
    begin = 80 if how == "by indices" else 0
    loader = DataLoader(sleeping(160, 20), sampler=range(begin, 160), num_workers=2)

    def behind() -> Iterator[torch.Tensor]:  # which asks for none before there is an optimizer
        yield from islice(loader, 80 - begin, None)

    train(behind(), Pause(12))


def validating(how: str) -> None:
    """Three epochs with a validation after each, which is quick or slow, also "with a worker"."""
    count, ms = (20, 3) if how == "quick" else (40, 14)
    training = DataLoader(sleeping(120, 14), num_workers=1)
    validation = DataLoader(sleeping(count, ms), num_workers=int(how == "with a worker"))
    for _ in range(3):
        train(training, Pause(8))
        with torch.no_grad():
            for _ in validation:
                pass


def endless() -> None:
    print("training", flush=True)
    loader = DataLoader(sleeping(10**9, 8), batch_size=None, num_workers=os.cpu_count() or 1)
    Training(loader, Pause(4)).run()


def smooth(cpu_s: float, number: int) -> torch.Tensor:
    """A transform that takes so much CPU time on any machine."""
    began_s = time.thread_time()
    while time.thread_time() - began_s < cpu_s:
        number += 1
    return torch.full((4,), float(number % 10))


def open_index(_worker: int) -> None:
    time.sleep(250 * MS)


def three_mistakes(changes: str) -> None:
    """Has one worker, which starts anew in each epoch, and a slow transform: all but `changes`.

    These are other arguments of the loader, and how many times as fast the transform is, as JSON.
    Prints the mean time of a batch over all epochs but the first, in seconds.
    """
    options = {"num_workers": 1, **json.loads(changes)}
    samples = Samples(partial(smooth, 13.5 * MS / options.pop("faster", 1)), 96)
    loader = DataLoader(samples, 4, worker_init_fn=open_index, **options)
    train(loader, Pause(30))
    began_s = time.perf_counter()
    for _ in range(7):
        train(loader, Pause(30))
    print((time.perf_counter() - began_s) / 7 / len(loader))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
