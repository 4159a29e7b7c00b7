"""Work and time: what loaders and steps of planted programs are made of.

A cost is called with the number of a batch or of a sample, a step with a batch. `Burn` and `burn`
are work that takes longer where a core is shared, without Python's lock. Programs whose work has a
fixed size give it in milliseconds of one undisturbed core of the machine that the sizes were chosen
on; `slowness` makes their steps longer on a slower one.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Cost = Callable[[int], None]

MS = 0.001
HASHED = bytes(16 * 1024)
ROUNDS_PER_MS = 115.0
"""How many times a core hashes that where `slowness` is 1."""
DRAWN = 1000
"""More batches than any training has whose costs are drawn."""


def least_ms(work: Callable[[], Any], times: int = 15) -> float:
    """How long it takes when nothing disturbs it."""
    taken_ns = []
    for _ in range(times):
        began_ns = time.perf_counter_ns()
        work()
        taken_ns.append(time.perf_counter_ns() - began_ns)
    return min(taken_ns) / 1e6


@cache
def rounds_per_ms() -> float:
    """How many hashes an undisturbed core makes here."""
    return 400 / least_ms(lambda: hashes(400))


def slowness() -> float:
    """How many times as long as expected this machine takes for the same work."""
    return ROUNDS_PER_MS / rounds_per_ms()


def hashes(rounds: int) -> None:
    """CPU work that runs without Python's lock."""
    for _ in range(rounds):
        hashlib.sha256(HASHED).digest()


def burn(ms: float) -> None:
    """Hash for so long where `slowness` is 1."""
    hashes(round(ROUNDS_PER_MS * ms))


@dataclass(frozen=True)
class Burn:
    """Hashes for so long here, on an undisturbed core."""

    ms: float

    def __post_init__(self) -> None:
        rounds_per_ms()  # measured here, before anybody computes

    def __call__(self, _index: int) -> None:
        hashes(round(self.ms * rounds_per_ms()))


@dataclass(frozen=True)
class Sleep:
    """Sleeps so many milliseconds, and `more_ms` at every `every`-th."""

    ms: float
    more_ms: float = 0.0
    every: int = 1

    def __call__(self, index: int) -> None:
        more_ms = self.more_ms if index % self.every == self.every - 1 else 0.0
        if self.ms or more_ms:
            time.sleep((self.ms + more_ms) * MS)


@dataclass(frozen=True)
class Drawn:
    """Costs of amounts that were drawn beforehand, each index's always the same."""

    amounts: Sequence[float]
    cost: Callable[[float], Any]

    def __call__(self, index: int) -> None:
        self.cost(self.amounts[index % len(self.amounts)])


def sleeps(ms: npt.NDArray[np.float64]) -> Drawn:
    return Drawn(ms.tolist(), lambda ms: time.sleep(ms * MS))


def pareto(shape: float = 1.5, least_ms: float = 3.0) -> Drawn:
    """Sleeps: many of 3 ms, few of a hundred times that."""
    drawn = least_ms * (1 + np.random.default_rng(7).pareto(shape, DRAWN))
    return sleeps(np.minimum(drawn, 400.0))


def uneven(mean_ms: float, shape: float) -> Drawn:
    """Work of a gamma distribution, with a standard deviation of `mean_ms` / sqrt(`shape`)."""
    rounds = np.random.default_rng(7).gamma(shape, mean_ms * rounds_per_ms() / shape, DRAWN)
    return Drawn(rounds.tolist(), lambda rounds: hashes(round(rounds)))


@dataclass(frozen=True)
class Both:
    """One cost and then another, which may come at every `every`-th index alone."""

    first: Cost
    second: Cost
    every: int = 1

    def __call__(self, index: int) -> None:
        self.first(index)
        if index % self.every == 0:
            self.second(index)


@dataclass(frozen=True)
class Alone:
    """`cost` while nobody else is at it."""

    lock: AbstractContextManager[Any]
    cost: Cost

    def __call__(self, index: int) -> None:
        with self.lock:
            self.cost(index)


@dataclass(frozen=True)
class Matmul:
    """Products of square matrices, by all threads that torch may use."""

    size: int
    times: int

    def __call__(self, _index: int) -> None:
        matrix = torch.ones(self.size, self.size)
        for _ in range(self.times):
            torch.mm(matrix, matrix)


class Products:
    """A step of products of small matrices by one thread, for `ms` where `slowness` is 1.

    Python's lock is free during each, so that few large ones disturb other threads less.
    """

    def __init__(self, ms: float, side: int = 64) -> None:
        self.matrix, self.product = torch.full((side, side), 1 / side), torch.empty(side, side)
        self.rounds = round(ms * slowness() * products_per_ms(side))

    def __call__(self, _batch: Any) -> None:
        for _ in range(self.rounds):
            torch.mm(self.matrix, self.matrix, out=self.product)


@cache
def products_per_ms(side: int) -> float:
    """Timed once: twins have the same steps, also where other programs compute beside one."""
    matrix, product = torch.full((side, side), 1 / side), torch.empty(side, side)
    rounds = 300 * 64**2 // side**2

    def multiply() -> None:
        for _ in range(rounds):
            torch.mm(matrix, matrix, out=product)

    return rounds / least_ms(multiply)


class Pause:
    """A step that sleeps, for as long as `ms` says of the number of its batch in the run."""

    def __init__(self, ms: Callable[[int], float] | float) -> None:
        self.ms = ms
        self.count = 0

    def __call__(self, _batch: Any) -> None:
        ms = self.ms(self.count) if callable(self.ms) else self.ms
        self.count += 1
        time.sleep(ms * MS)
