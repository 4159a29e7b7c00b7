"""Loaders whose costs are known, and steps: what the cases of the truth are made of."""

from __future__ import annotations

import hashlib
import time
import zipfile
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy.typing as npt

    Content = Callable[[int], Any]
    Cost = Callable[[int], None]
    Step = Callable[[Any], None]

HASHED = bytes(16 * 1024)
LONGEST_TAIL_S = 0.4
DRAWN = 1000
"""More batches than any case has."""


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
class Shuffling(InProcess):
    """Loads `buffered` samples before its first batch, and then one for each that it hands out."""

    buffered: int = 60

    def __iter__(self) -> Iterator[Any]:
        buffer = []
        for index in range(self.buffered):
            self.cost(index)
            buffer.append(self.content(index))
        order = np.random.default_rng(7).integers(self.buffered, size=self.batches)
        for index, place in enumerate(order.tolist()):
            self.cost(index)
            yield buffer[place]
            buffer[place] = self.content(index)


@dataclass(frozen=True)
class Items(Dataset[Any]):
    """What workers load from."""

    batches: int
    content: Content
    cost: Cost

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> Any:
        self.cost(index)
        return self.content(index)


class Transform:
    """A transform, which loadeval times where it looks inside."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost

    def __call__(self, index: int) -> int:
        self.cost(index)
        return index


class Transformed(Dataset[Any]):
    """A sample goes through four transforms, of a quarter of the cost each."""

    def __init__(self, batches: int, content: Content, quarter: Cost) -> None:
        self.batches, self.content = batches, content
        self.transforms = [Transform(quarter) for _ in range(4)]

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> Any:
        for transform in self.transforms:
            transform(index)
        return self.content(index)


@dataclass(frozen=True)
class Listed(Items):
    """Items with a list of files, which a spawned worker is sent object by object."""

    files: list[tuple[str, int]] = field(
        default_factory=lambda: [(f"images/{index:06}.jpg", index) for index in range(300_000)]
    )


@dataclass(frozen=True)
class Sleep:
    """Sleeps so many milliseconds, and `more_ms` at every `every`-th."""

    ms: float
    more_ms: float = 0.0
    every: int = 1

    def __call__(self, index: int) -> None:
        more_ms = self.more_ms if index % self.every == self.every - 1 else 0.0
        if self.ms or more_ms:
            time.sleep((self.ms + more_ms) / 1e3)


@dataclass(frozen=True)
class Drawn:
    """Sleeps that were drawn beforehand, each batch's always the same."""

    sleeps_ms: tuple[float, ...]

    def __call__(self, index: int) -> None:
        time.sleep(self.sleeps_ms[index] / 1e3)


def pareto(shape: float = 1.5, least_ms: float = 3.0) -> Drawn:
    """Many of 3 ms, few of a hundred times that."""
    drawn = least_ms * (1 + np.random.default_rng(7).pareto(shape, DRAWN))
    return Drawn(tuple(np.minimum(drawn, LONGEST_TAIL_S * 1e3).tolist()))


def gamma(mean_ms: float, shape: float = 10.0) -> Drawn:
    drawn = np.random.default_rng(7).gamma(shape, mean_ms / shape, DRAWN)
    return Drawn(tuple(drawn.tolist()))


def rare(ms: float, more_ms: float, one_in: int) -> Drawn:
    """`more_ms` more at random places."""
    stalls = np.random.default_rng(7).random(DRAWN) < 1 / one_in
    return Drawn(tuple((ms + more_ms * stalls).tolist()))


def autocorrelated(mean_ms: float, rho: float = 0.95, sigma: float = 0.4) -> Drawn:
    """Their logarithms are an AR(1) process with standard deviation `sigma`."""
    noise = np.random.default_rng(7).normal(0.0, sigma, DRAWN)
    logs = [noise[0]]
    for innovation in noise[1:]:
        logs.append(rho * logs[-1] + np.sqrt(1 - rho**2) * innovation)
    return Drawn(tuple((mean_ms * np.exp(np.array(logs) - sigma**2 / 2)).tolist()))


@dataclass(frozen=True)
class Burn:
    """A fixed amount of work, which takes longer where the core is shared."""

    rounds: int

    def __call__(self, index: int) -> None:  # noqa: ARG002 - as each cost
        for _ in range(self.rounds):
            hashlib.sha256(HASHED).digest()


@dataclass(frozen=True, eq=False)
class BurnThenScan:
    """A fixed amount of work, and a pass over 3 MB, which wants them in the CPU's cache."""

    burn: Burn
    scanned: npt.NDArray[np.float32] = field(
        default_factory=lambda: np.zeros(750_000, dtype=np.float32)
    )

    def __call__(self, index: int) -> None:
        self.burn(index)
        np.add(self.scanned, 1, out=self.scanned)


@dataclass(frozen=True)
class Matmul:
    """Products of square matrices, by all threads that torch may use."""

    size: int
    times: int

    def __call__(self, index: int) -> None:  # noqa: ARG002 - as each cost
        matrix = torch.ones(self.size, self.size)
        for _ in range(self.times):
            torch.mm(matrix, matrix)


@dataclass(frozen=True)
class Alone:
    """`cost` while no other worker is at it."""

    lock: AbstractContextManager[Any]
    cost: Cost

    def __call__(self, index: int) -> None:
        with self.lock:
            self.cost(index)


@dataclass(frozen=True)
class Unzip:
    """Opens an archive of many members for each sample that it reads."""

    path: Path
    members: int = 2000
    samples: int = 6

    @classmethod
    def from_new(cls, path: Path) -> Unzip:
        made = cls(path)
        with zipfile.ZipFile(path, "w") as archive:
            for member in range(made.members):
                archive.writestr(str(member), bytes(4096))
        return made

    def __call__(self, index: int) -> None:
        for sample in range(index * self.samples, (index + 1) * self.samples):
            with zipfile.ZipFile(self.path) as archive:
                archive.read(str(sample % self.members))


def least_ms(cost: Cost, times: int = 20) -> float:
    """How long it takes when nothing disturbs it."""
    taken_ns = []
    for _ in range(times):
        began_ns = time.perf_counter_ns()
        cost(0)
        taken_ns.append(time.perf_counter_ns() - began_ns)
    return min(taken_ns) / 1e6


def rounds_per_ms() -> float:
    """How much work an undisturbed core does."""
    trial = Burn(100)
    return trial.rounds / least_ms(trial)


def sleeping_at_start(_worker: int) -> None:
    time.sleep(1.0)


def using_threads(_worker: int) -> None:
    torch.set_num_threads(8)


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


def images(index: int) -> torch.Tensor:
    """A batch of 4.8 MB that is in memory already."""
    return pixels(index % 8)


@cache
def frame(index: int) -> torch.Tensor:
    return torch.full((8, 2**20), index, dtype=torch.uint8)


def frames(index: int) -> torch.Tensor:
    """A batch of 8 MB that is in memory already."""
    return frame(index % 8)


def every(cost: Cost) -> Callable[[int], Step]:
    """The same step for each batch."""
    return lambda _batches: lambda _batch: cost(0)


def growing_with_content(batches: int) -> Step:
    """A step that grows from 5 to 15 ms, by the number in the batch."""
    return lambda batch: time.sleep(0.005 + 0.010 * float(batch[0, 0]) / batches)


def growing_with_time(batches: int) -> Step:
    """A step that grows from 2 to 18 ms, whatever is in the batch."""
    served = cycle(range(batches))
    return lambda _batch: time.sleep(0.002 + 0.016 * next(served) / batches)


def converting(_batches: int) -> Step:
    """Writes floats over the bytes in its batch's dictionary, and goes on for 7 ms."""

    def step(batch: dict[str, torch.Tensor]) -> None:
        for key, value in batch.items():
            batch[key] = value.float()
        time.sleep(0.007)

    return step


def to_floats(more_ms: float) -> Callable[[int], Step]:
    """Allocates four times its batch's memory, gives it back, and goes on for `more_ms`."""

    def step(batch: torch.Tensor) -> None:
        batch.float()
        time.sleep(more_ms / 1e3)

    return lambda _batches: step


def changing_in_place(_batches: int) -> Step:
    """Takes the labels out, and scales in place."""

    def step(batch: dict[str, torch.Tensor]) -> None:
        batch.pop("labels")
        batch["x"].div_(255)
        time.sleep(0.008)

    return step
