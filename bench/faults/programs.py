"""What a program with a fault is, and the work that programs are made of.

Every amount of work is given in milliseconds of one undisturbed core of the machine that the sizes
were chosen on. `slowness` makes steps and loaders longer together on a slower one.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HASHED = bytes(16 * 1024)
HASHES = 400
HASHES_MS = 3.48
"""How long so many hashes take where `slowness` is 1."""
TRIALS = 15
BATCHES = 160
SIZE = 20
"""Samples of a batch."""
STEP_MS = 8.0


def nothing() -> None:
    pass


@dataclass(frozen=True)
class Training:
    """A loop over `loader`, which calls `step` with each batch.

    An epoch ends with the loader, or with an iterator each for `fresh` single batches. `close`
    ends what the loader leaves behind, such as a server; call it once, at the end.
    """

    loader: Any
    step: Callable[[Any], None]
    epochs: int = 1
    fresh: int | None = None
    close: Callable[[], None] = nothing

    def batches(self, loader: Any = None) -> Iterator[Any]:
        """The batches of all epochs, from `loader` in place of its own where one is given."""
        loader = self.loader if loader is None else loader
        for _ in range(self.epochs):
            if self.fresh is None:
                yield from loader
            else:
                yield from (next(iter(loader)) for _ in range(self.fresh))

    def run(self, loader: Any = None) -> None:
        """Train, and close nothing."""
        for batch in self.batches(loader):
            self.step(batch)


@dataclass(frozen=True)
class Program:
    """A training with a fault in its loading, and the same without it.

    `cause` is what is wrong, and `named` a text that an answer must contain, maybe "". In `healthy`
    loading does not limit training. `fixed` follows the advice literally, where that is something
    else; it is faster than `faulty`. That is the first piece of advice, or that of code `follows`.
    Each makes its files in a folder of its own. `costs_time` is false for a fault that costs
    something else. `healthy` needs so many `cpus`: one for each worker
    that computes, and one for training. With fewer than `fault_cpus` the fault costs next to
    nothing. Where not `looks_inside`, it is diagnosed without a look into its loader.
    """

    name: str
    cause: str
    named: str
    faulty: Callable[[Path], Training]
    healthy: Callable[[Path], Training]
    fixed: Callable[[Path], Training] | None = None
    follows: str = ""
    costs_time: bool = True
    cpus: int = 1
    fault_cpus: int = 1
    looks_inside: bool = True


def least_ms(work: Callable[[], Any]) -> float:
    """How long it takes when nothing disturbs it."""
    taken_ns = []
    for _ in range(TRIALS):
        began_ns = time.perf_counter_ns()
        work()
        taken_ns.append(time.perf_counter_ns() - began_ns)
    return min(taken_ns) / 1e6


@cache
def slowness() -> float:
    """How many times as long as expected this machine takes for the same work."""
    return least_ms(lambda: hashes(HASHES)) / HASHES_MS


def hashes(rounds: int) -> None:
    """CPU work that runs without Python's lock."""
    for _ in range(rounds):
        hashlib.sha256(HASHED).digest()


def burn(ms: float) -> None:
    """Hash for so long on an undisturbed core, and longer where the core is shared."""
    hashes(round(HASHES / HASHES_MS * ms))


def loop(rounds: int) -> int:
    """CPU work that holds Python's lock."""
    total = 0
    for number in range(rounds):
        total += number * number % 7
    return total


class Step:
    """Products of small matrices by one thread, for `ms` milliseconds.

    Python's lock is free during each, so that few large ones disturb other threads less.
    """

    def __init__(self, ms: float = STEP_MS, side: int = 64) -> None:
        self.matrix = torch.full((side, side), 1 / side)
        self.product = torch.empty(side, side)
        self.rounds = round(ms * slowness() * products_per_ms(side))

    def __call__(self, _batch: Any) -> None:
        for _ in range(self.rounds):
            torch.mm(self.matrix, self.matrix, out=self.product)


@cache
def products_per_ms(side: int) -> float:
    matrix, product = torch.full((side, side), 1 / side), torch.empty(side, side)
    rounds = 300 * 64**2 // side**2

    def multiply() -> None:
        for _ in range(rounds):
            torch.mm(matrix, matrix, out=product)

    return rounds / least_ms(multiply)


def stacked(samples: list[Any]) -> Any:
    return np.stack([np.asarray(sample) for sample in samples])


def as_it_is(batch: Any) -> Any:
    return batch


def train(
    dataset: Any,
    *,
    step_ms: float = STEP_MS,
    epochs: int = 1,
    fresh: int | None = None,
    close: Callable[[], None] = nothing,
    batch_size: int | None = SIZE,
    workers: int = 2,
    **options: Any,
) -> Training:
    """A training with a DataLoader of `dataset`, whose batches are small arrays.

    They are pickled through the pipe in 0.1 ms. A tensor of any size takes 1 ms, for its file
    descriptor, which is too much beside a short step of a healthy training.
    """
    options.setdefault("collate_fn", as_it_is if batch_size is None else stacked)
    if workers and epochs > 1:
        options.setdefault("persistent_workers", True)
    with warnings.catch_warnings():  # of more workers than CPUs, as some programs have
        warnings.simplefilter("ignore", UserWarning)
        loader: DataLoader[Any] = DataLoader(
            dataset, batch_size=batch_size, num_workers=workers, **options
        )
    loader.check_worker_number_rationality = nothing  # type: ignore[method-assign]
    return Training(loader, Step(step_ms), epochs, fresh, close)
