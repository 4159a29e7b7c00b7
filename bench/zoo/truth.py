"""Trainings whose speed-up is measured apart, hard ones above all: the cases of the truth."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from multiprocessing import Lock
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from bench.zoo.costs import MS, Alone, Burn, Cost, Matmul, Sleep, pareto, sleeps
from bench.zoo.programs import Samples

Content = Callable[[int], Any]
Step = Callable[[Any], None]

STEADY = 0.05
REGULAR = 0.15
RANDOM = 0.40
"""How wide an interval may be either way, as a share of the speed-up: by how loading varies.

In 750 batches one random stall in 50 comes fifteen times, and a third of them are in blocks that
count: where they are 40% of the time, the speed-up is known within 40% at best.
"""


@dataclass(frozen=True)
class Case:
    """A loader of `loader(batches)`, and the steps of a run of `step(batches)`.

    `content(i)` is batch i, made at no cost. `batches` and `epochs` are those of our run and of
    each plain one; where epochs are alike and start slowly, a plain run has `truth_epochs` of
    them. `widest` is how wide the interval may be either way, as a share of the speed-up. `faults`
    asks for as many page faults in both arms. The estimate lies within `close` of the truth, or,
    unless it must be close, in its interval.
    """

    what: str
    loader: Callable[[int], Any]
    step: Callable[[int], Step]
    content: Content
    batches: int = 250
    epochs: int = 1
    truth_epochs: int | None = None
    peers_batches: int = 100
    widest: float | None = None
    drifts: bool = False
    faults: bool = False
    close: float = 0.05
    is_close: bool = False


@dataclass(frozen=True)
class InProcess:
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


class Transform:
    """A transform, which loadeval times where it looks inside."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost

    def __call__(self, index: int) -> int:
        self.cost(index)
        return index


class Transformed(Samples):
    def __init__(self, count: int, content: Content, cost: Cost, transforms: int = 1) -> None:
        self.count, self.content = count, content
        self.transforms = [Transform(cost) for _ in range(transforms)]

    def read(self, index: int) -> Any:
        for transform in self.transforms:
            transform(index)
        return self.content(index)


def numbered(index: int) -> torch.Tensor:
    """Eight samples that hold their batch's number."""
    return torch.full((8, 16), float(index))


def labelled(index: int) -> dict[str, torch.Tensor]:
    return {"x": torch.full((8, 32_768), float(index)), "labels": torch.zeros(8)}


@cache
def kept(index: int, *shape: int) -> torch.Tensor:
    return torch.full(shape, index, dtype=torch.uint8)


def photographs(index: int) -> dict[str, torch.Tensor]:
    """A batch of 4.8 MB that is in memory already, and its labels."""
    return {"x": kept(index % 8, 32, 3, 224, 224), "labels": torch.full((32,), index)}


def frames(index: int) -> torch.Tensor:
    """A batch of 8 MB that is in memory already."""
    return kept(index % 8, 8, 2**20)


def every(cost: Cost) -> Callable[[int], Step]:
    return lambda _batches: lambda _batch: cost(0)


def scanning(cost: Cost) -> Callable[[int], Step]:
    """A cost, and a pass over 3 MB, which wants them in the CPU's cache."""
    scanned = np.zeros(750_000, dtype=np.float32)

    def step(_batch: Any) -> None:
        cost(0)
        np.add(scanned, 1, out=scanned)

    return lambda _batches: step


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
        time.sleep(7 * MS)

    return step


def to_floats(_batches: int) -> Step:
    """Allocates four times its batch's memory, and gives it back."""
    return lambda batch: batch.float() is None


def changing_in_place(_batches: int) -> Step:
    """Takes the labels out, and scales in place."""

    def step(batch: dict[str, torch.Tensor]) -> None:
        batch.pop("labels")
        batch["x"].div_(255)
        time.sleep(8 * MS)

    return step


def in_process(
    what: str,
    cost: Cost,
    step: Callable[[int], Step],
    kind: type[InProcess] = InProcess,
    content: Content = numbered,
    opening_s: float = 0.0,
    **expected: Any,
) -> Case:
    """A case of a loader in the training process."""
    return Case(what, lambda n: kind(n, content, cost, opening_s), step, content, **expected)


def workers(
    what: str,
    cost: Cost,
    step: Callable[[int], Step],
    count: int = 2,
    init: Callable[[int], None] | None = None,
    **expected: Any,
) -> Case:
    """A case of a DataLoader with workers, each of whose batches costs that."""

    def loader(batches: int) -> Any:
        samples = Transformed(batches, numbered, cost)
        return DataLoader(samples, batch_size=None, num_workers=count, worker_init_fn=init)

    return Case(what, loader, step, numbered, **expected)


def looked_into(
    what: str,
    quarter: Cost,
    step_ms: float,
    content: Content = numbered,
    count: int = 0,
    *,
    is_close: bool = True,
) -> Case:
    """Of one sample a batch, whose transforms cost four quarters; loadeval looks inside."""

    def loader(batches: int) -> Any:
        samples = Transformed(batches, content, quarter, 4)
        return DataLoader(samples, batch_size=1, num_workers=count)

    step, close = every(Burn(step_ms)), {"close": 0.02, "is_close": is_close}
    return Case(f"{what}, step {step_ms:g}", loader, step, content, batches=600, **close)


def cases() -> dict[str, Case]:
    """All of them; S1 to S6 are those on which the peers' failures were first seen."""
    ten = every(Sleep(10))
    varying = np.random.default_rng(7)
    gamma = sleeps(varying.gamma(10, 2.1, 1000))
    rare = sleeps(5 + 300.0 * (varying.random(1000) < 1 / 50))
    alone = Alone(Lock(), Sleep(20))
    late, threads = (
        {"init": lambda _: time.sleep(1.0)},
        {"init": lambda _: torch.set_num_threads(8)},
    )
    starts = {"batches": 40, "epochs": 8, "truth_epochs": 2}
    fills = {"batches": 40, "epochs": 6, "truth_epochs": 3}
    opens = {"opening_s": 1.0, "batches": 100, "epochs": 2, "truth_epochs": 1}
    long, tail = {"batches": 750}, {"batches": 750, "peers_batches": 250}
    steady, random = {"widest": STEADY}, {"widest": RANDOM}
    of_photographs = {"content": photographs, **steady}
    by_content = growing_with_content
    return {
        "S1": in_process("in process 15 ms, step 10", Sleep(15), ten, **steady),
        "S2": workers("2 workers x 15 ms, step 10", Sleep(15), ten, **steady),
        "S3": in_process(
            "200 ms at every 20th, step 10", Sleep(0, 200, 20), ten, widest=REGULAR, **long
        ),
        "S4": in_process(
            "1 ms, step of 8 converts its batch", Sleep(1), converting, **of_photographs
        ),
        "S5": in_process("free, step grows with content", Sleep(0), by_content),
        "S6": workers("2 CPU-bound workers, CPU-bound step", Burn(20), every(Burn(10))),
        "tail": in_process("Pareto waits in process, step 5", pareto(), every(Sleep(5)), **tail),
        "rare": workers("2 workers x 5 ms, 300 at 1 in 50", rare, ten, **tail, **random),
        "a little slower": workers("2 workers x 21 ms, gamma, step 10", gamma, ten),
        "hidden": workers("4 workers x 20 ms, step 20", Sleep(20), every(Sleep(20)), 4, **steady),
        "in place": in_process(
            "10 ms, step pops and scales", Sleep(10), changing_in_place, content=labelled
        ),
        "buffer": in_process("8 ms, buffer reused, step by content", Sleep(8), by_content, Reusing),
        "start": in_process("opens in 1 s, 5 ms, step 10", Sleep(5), ten, **opens),
        "worker start": workers(
            "2 workers start in 1 s, 5 ms, step 10", Sleep(5), ten, **late, **starts
        ),
        "shuffle buffer": in_process(
            "fills 60 x 5 ms, then 5 ms, step 10", Sleep(5), ten, Shuffling, **fills
        ),
        "lock": workers("3 workers x 20 ms, one at a time, step 10", alone, ten, 3),
        "threads": workers(
            "2 workers x 8 threads, step burns 10", Matmul(256, 4), every(Burn(10)), **threads
        ),
        "short steps": workers(
            "2 CPU-bound workers, step burns 4", Burn(16), scanning(Burn(3.8)), batches=500
        ),
        "faults": in_process(
            "5 ms, step makes 32 MB of 8", Sleep(5), to_floats, content=frames, faults=True
        ),
        "growing": in_process("10 ms, step grows 2 to 18", Sleep(10), growing_with_time),
        "drift": in_process(
            "CPU-bound, core shared for a third", Burn(8), every(Burn(8)), drifts=True
        ),
        **{
            f"looked into, {ms} ms": looked_into(
                f"one sample a batch of {ms} ms", Burn(ms / 4), step
            )
            for ms, step in ((2.4, 5), (5, 5), (10, 10))
        },
        "looked into, dicts": looked_into("samples of 2 ms, in dicts", Burn(2 / 4), 5, labelled),
        "looked into, free": looked_into("samples that cost nothing", Burn(0), 8),
        "looked into, tail": looked_into(
            "Pareto waits without workers", pareto(2.5, 0.5), 5, is_close=False
        ),
        "looked into, stalls": looked_into(
            "2 workers x 5 ms, 150 at every 37th",
            Sleep(5 / 4, 150 / 4, 37),
            5,
            count=2,
            is_close=False,
        ),
    }
