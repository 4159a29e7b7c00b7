"""Trainings whose speed-up is measured apart, hard ones above all: the cases of the truth."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from multiprocessing import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from bench.zoo.costs import (
    Alone,
    Burn,
    BurnThenScan,
    Matmul,
    Sleep,
    Unzip,
    autocorrelated,
    changing_in_place,
    converting,
    every,
    gamma,
    growing_with_content,
    growing_with_time,
    least_ms,
    pareto,
    rare,
    to_floats,
)
from bench.zoo.programs import Samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.zoo.costs import Cost, Step

    Content = Callable[[int], Any]

STEADY = 0.05
REGULAR = 0.15
RANDOM = 0.40
"""How wide an interval may be either way, as a share of the speed-up: by how loading varies.

In 250 batches one random stall in 50 comes five times, give or take two: where they are 40% of the
time, the speed-up cannot be known better than within a third with 95% confidence.
"""


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
        for batch in super().__iter__():
            buffer[:] = batch
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


class Items(Samples):
    """What workers load from, at a cost; maybe with a list of so many files to be sent."""

    def __init__(self, count: int, content: Content, cost: Cost, files: int = 0) -> None:
        self.count, self.content, self.cost = count, content, cost
        self.files = [(f"images/{index:06}.jpg", index) for index in range(files)]

    def read(self, index: int) -> Any:
        self.cost(index)
        return self.content(index)


class Transform:
    """A transform, which loadeval times where it looks inside."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost

    def __call__(self, index: int) -> int:
        self.cost(index)
        return index


class Transformed(Samples):
    """A sample goes through four transforms, of a quarter of the cost each."""

    def __init__(self, count: int, content: Content, quarter: Cost) -> None:
        self.count, self.content = count, content
        self.transforms = [Transform(quarter) for _ in range(4)]

    def read(self, index: int) -> Any:
        for transform in self.transforms:
            transform(index)
        return self.content(index)


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


@dataclass(frozen=True)
class Case:
    """A loader of `loader(batches)`, and the steps of a run of `step(batches)`.

    `content(i)` is batch i, made at no cost. `batches` and `epochs` are those of our run and of
    each plain one; where epochs are alike and start slowly, a plain run has `truth_epochs` of
    them. `widest` is how wide the interval may be either way, as a share of the speed-up. `faults`
    asks for as many page faults in both arms.
    """

    name: str
    what: str
    loader: Callable[[int], Any]
    step: Callable[[int], Step]
    content: Content = numbered
    batches: int = 250
    epochs: int = 1
    truth_epochs: int | None = None
    peers_batches: int = 100
    widest: float | None = None
    drifts: bool = False
    faults: bool = False
    close: float = 0.05
    is_close: bool = False


def cases(folder: Path) -> list[Case]:
    """All of them; S1 to S6 are those on which the peers' failures were first seen.

    One loads from an archive that is written to `folder`.
    """

    def in_process(
        cost: Cost, opening_s: float = 0.0, content: Content = numbered
    ) -> Callable[[int], Any]:
        return lambda n: InProcess(n, content, cost, opening_s)

    def workers(cost: Cost, count: int = 2, **options: Any) -> Callable[[int], Any]:
        return lambda n: DataLoader(
            Items(n, numbered, cost), batch_size=None, num_workers=count, **options
        )

    def looked_into(
        name: str,
        what: str,
        quarter: Cost,
        step_ms: float,
        content: Content = numbered,
        count: int = 0,
        *,
        is_close: bool = True,
    ) -> Case:
        """Of one sample a batch, whose transforms cost four quarters; loadeval looks inside."""
        return Case(
            f"looked into, {name}",
            f"{what}, step {step_ms:g}",
            lambda n: DataLoader(Transformed(n, content, quarter), batch_size=1, num_workers=count),
            every(Burn.for_ms(step_ms)),
            content,
            batches=600,
            close=0.02,
            is_close=is_close,
        )

    free, ten = Sleep(0), every(Sleep(10))
    scan = BurnThenScan(Burn(0))
    unzip = Unzip.from_new(folder / "images.zip")
    return [
        Case(
            "S1",
            "in process 15 ms, step 10",
            in_process(Sleep(15)),
            ten,
            widest=STEADY,
        ),
        Case("S2", "2 workers x 15 ms, step 10", workers(Sleep(15)), ten, widest=STEADY),
        Case(
            "S2b",
            "2 workers x 30 ms, step 10",
            workers(Sleep(30)),
            ten,
            widest=STEADY,
        ),
        Case(
            "S3",
            "200 ms at every 20th, step 10",
            in_process(Sleep(0, 200, 20)),
            ten,
            widest=REGULAR,
        ),
        Case(
            "S4",
            "1 ms, step of 8 converts its batch",
            in_process(Sleep(1), content=photographs),
            converting,
            photographs,
            widest=STEADY,
        ),
        Case("S5", "free, step grows with content", in_process(free), growing_with_content),
        Case(
            "S6",
            "2 CPU-bound workers, CPU-bound step",
            workers(Burn.for_ms(20)),
            every(Burn.for_ms(10)),
        ),
        Case(
            "tail",
            "Pareto waits in process, step 5",
            in_process(pareto()),
            every(Sleep(5)),
            peers_batches=250,
        ),
        Case(
            "slow sample",
            "2 workers x 5 ms, 300 at every 50th",
            workers(Sleep(5, 300, 50)),
            ten,
        ),
        Case(
            "rare",
            "2 workers x 5 ms, 300 at 1 in 50",
            workers(rare(5, 300, 50)),
            ten,
            peers_batches=250,
            widest=RANDOM,
        ),
        Case(
            "AR",
            "autocorrelated waits of 10 ms, step 10",
            in_process(autocorrelated(10)),
            ten,
            peers_batches=250,
        ),
        Case("a little slower", "2 workers x 21 ms, gamma, step 10", workers(gamma(21)), ten),
        Case("a little faster", "2 workers x 19 ms, gamma, step 10", workers(gamma(19)), ten),
        Case(
            "hidden",
            "4 workers x 20 ms, step 20",
            workers(Sleep(20), 4),
            every(Sleep(20)),
            widest=STEADY,
        ),
        Case(
            "in place",
            "10 ms, step pops and scales",
            in_process(Sleep(10), content=labelled),
            changing_in_place,
            labelled,
        ),
        Case(
            "buffer",
            "8 ms, buffer reused, step by content",
            lambda n: Reusing(n, numbered, Sleep(8)),
            growing_with_content,
        ),
        Case(
            "start",
            "opens in 1 s, 5 ms, step 10",
            in_process(Sleep(5), 1.0),
            ten,
            batches=100,
            epochs=2,
            truth_epochs=1,
        ),
        Case(
            "worker start",
            "2 workers start in 1 s, 5 ms, step 10",
            workers(Sleep(5), worker_init_fn=sleeping_at_start),
            ten,
            batches=40,
            epochs=8,
            truth_epochs=2,
        ),
        Case(
            "shuffle buffer",
            "fills 60 x 5 ms, then 5 ms, step 10",
            lambda n: Shuffling(n, numbered, Sleep(5)),
            ten,
            batches=40,
            epochs=6,
            truth_epochs=3,
        ),
        Case(
            "spawn",
            "2 spawned workers get 300k objects",
            lambda n: DataLoader(
                Items(n, numbered, Sleep(5), files=300_000),
                batch_size=None,
                num_workers=2,
                multiprocessing_context="spawn",
            ),
            ten,
            batches=20,
            epochs=4,
            truth_epochs=1,
        ),
        Case(
            "lock",
            "3 workers x 20 ms, one at a time, step 10",
            workers(Alone(Lock(), Sleep(20)), 3),
            ten,
        ),
        Case(
            "zip",
            "2 workers open a zip for each sample",
            workers(unzip),
            every(Sleep(least_ms(lambda: unzip(0)) / 2.6)),
        ),
        Case(
            "threads",
            "2 workers x 8 threads, step burns 10",
            workers(Matmul(256, 4), worker_init_fn=using_threads),
            every(Burn.for_ms(10)),
        ),
        Case(
            "short steps",
            "2 CPU-bound workers, step burns 4",
            workers(Burn.for_ms(16)),
            every(BurnThenScan(Burn.for_ms(4 - least_ms(lambda: scan(0))), scan.scanned)),
            batches=500,
        ),
        Case(
            "faults",
            "5 ms, step makes 32 MB of 8",
            in_process(Sleep(5), content=frames),
            to_floats(0),
            frames,
            faults=True,
        ),
        Case(
            "faults 5 MB",
            "5 ms, step makes 19 MB of 5, sleeps 7",
            in_process(Sleep(5), content=images),
            to_floats(7),
            images,
            faults=True,
        ),
        Case(
            "growing",
            "10 ms, step grows 2 to 18",
            in_process(Sleep(10)),
            growing_with_time,
        ),
        Case(
            "drift",
            "CPU-bound, core shared for a third",
            in_process(Burn.for_ms(8)),
            every(Burn.for_ms(8)),
            drifts=True,
        ),
        *(
            looked_into(f"{ms} ms", f"one sample a batch of {ms} ms", Burn.for_ms(ms / 4), step)
            for ms, step in ((2.4, 5), (5, 5), (10, 10))
        ),
        looked_into(
            "dicts", "one sample a batch of 2 ms, in dicts", Burn.for_ms(2 / 4), 5, labelled
        ),
        looked_into("free", "samples that cost nothing", Burn.for_ms(0), 8),
        looked_into("tail", "Pareto waits without workers", pareto(2.5, 0.5), 5, is_close=False),
        looked_into(
            "stalls",
            "2 workers x 5 ms, 150 at every 37th",
            Sleep(5 / 4, 150 / 4, 37),
            5,
            count=2,
            is_close=False,
        ),
    ]
