"""Loaders whose costs are known, and steps: what the cases of the truth are made of."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Content = Callable[[int], Any]
    Cost = Callable[[int], None]
    Step = Callable[[Any], None]

HASHED = bytes(16 * 1024)
LONGEST_TAIL_S = 0.4


@dataclass(frozen=True)
class InProcess:
    """Loads in the training process, when it is asked."""

    batches: int
    content: Content
    cost: Cost
    opening_s: float = 0.0

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        time.sleep(self.opening_s)
        for index in range(self.batches):
            self.cost(index)
            yield self.content(index)


@dataclass(frozen=True)
class Reusing(InProcess):
    """Writes each batch over the one before."""

    def __iter__(self) -> Iterator[Any]:
        buffer = np.array(self.content(0))
        for index in range(self.batches):
            self.cost(index)
            buffer[:] = self.content(index)
            yield buffer


@dataclass(frozen=True)
class Items(Dataset[Any]):
    """What two workers load from."""

    batches: int
    content: Content
    cost: Cost

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> Any:
        self.cost(index)
        return self.content(index)


@dataclass(frozen=True)
class Sleep:
    """So many milliseconds, and `more_ms` at every `every`-th."""

    ms: float
    more_ms: float = 0.0
    every: int = 1

    def __call__(self, index: int) -> None:
        more_ms = self.more_ms if index % self.every == self.every - 1 else 0.0
        if self.ms or more_ms:
            time.sleep((self.ms + more_ms) / 1e3)


@dataclass(frozen=True)
class HeavyTail:
    """Pareto sleeps: many of 3 ms, few of a hundred times that."""

    sleeps_s: tuple[float, ...]

    @classmethod
    def drawn(cls, shape: float = 1.5, least_s: float = 0.003) -> HeavyTail:
        drawn = least_s * (1 + np.random.default_rng(7).pareto(shape, 1000))
        return cls(tuple(np.minimum(drawn, LONGEST_TAIL_S).tolist()))

    def __call__(self, index: int) -> None:
        time.sleep(self.sleeps_s[index])


@dataclass(frozen=True)
class Burn:
    """A fixed amount of work, which takes longer where the core is shared."""

    rounds: int

    def __call__(self, index: int) -> None:  # noqa: ARG002 - as each cost
        for _ in range(self.rounds):
            hashlib.sha256(HASHED).digest()


def rounds_per_ms() -> float:
    """How much work an undisturbed core does."""
    trial, taken_s = Burn(100), []
    for _ in range(20):
        began = time.perf_counter()
        trial(0)
        taken_s.append(time.perf_counter() - began)
    return trial.rounds / (min(taken_s) * 1e3)


def labelled(index: int) -> dict[str, torch.Tensor]:
    return {"x": torch.full((8, 32_768), float(index)), "labels": torch.zeros(8)}


def numbered(index: int) -> torch.Tensor:
    """Eight samples that hold their batch's number."""
    return torch.full((8, 16), float(index))


@cache
def pixels(index: int) -> torch.Tensor:
    return torch.full((32, 3, 224, 224), index, dtype=torch.uint8)


def photographs(index: int) -> dict[str, torch.Tensor]:
    """A batch of 4.8 MB that is in memory already, and its labels."""
    return {"x": pixels(index % 8), "labels": torch.full((32,), index)}


def every(cost: Cost) -> Callable[[int], Step]:
    """The same step for each batch."""
    return lambda _batches: lambda _batch: cost(0)


def growing_with_content(batches: int) -> Step:
    """From 5 to 15 ms, by the number in the batch."""
    return lambda batch: time.sleep(0.005 + 0.010 * float(batch[0, 0]) / batches)


def growing_with_time(batches: int) -> Step:
    """From 2 to 18 ms, whatever is in the batch."""
    served = cycle(range(batches))
    return lambda _batch: time.sleep(0.002 + 0.016 * next(served) / batches)


def converting(_batches: int) -> Step:
    """Writes floats over the bytes in its batch's dictionary, and goes on for 7 ms."""

    def step(batch: dict[str, torch.Tensor]) -> None:
        for key, value in batch.items():
            batch[key] = value.float()
        time.sleep(0.007)

    return step


def changing_in_place(_batches: int) -> Step:
    """Takes the labels out, and scales in place."""

    def step(batch: dict[str, torch.Tensor]) -> None:
        batch.pop("labels")
        batch["x"].div_(255)
        time.sleep(0.008)

    return step
