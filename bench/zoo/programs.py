"""What a planted program is, and the datasets and the DataLoader that most of them have."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from bench.zoo.costs import Products
from loadeval import LoaderEvaluator

warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)  # on few CPUs

BATCHES = 160
SIZE = 20
"""Samples of a batch."""
SAMPLES = BATCHES * SIZE
STEP_MS = 8.0


def nothing(*_: Any) -> None: ...


@dataclass(frozen=True)
class Training:
    """A loop over `loader`, which calls `step` with each batch.

    An epoch ends with the loader, or with an iterator each for `fresh` single batches. `close`
    ends what the loader leaves behind, such as a server; call it once, at the end.
    """

    loader: Any
    step: Callable[[Any], object]
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
        for batch in self.batches(loader):
            self.step(batch)

    def logged(self, log: Path, mode: str = "alternate", **options: Any) -> Path:
        """Train once, measured into `log`, and close."""
        with LoaderEvaluator(self.loader, mode=mode, log_file=log, **options) as loader:
            try:
                self.run(loader)
            finally:
                self.close()
        return log


@dataclass(frozen=True)
class Program:
    """A training with a fault in its loading, and the same without it.

    `make(folder, **arguments)` makes a training, which keeps its files in `folder`: with the
    arguments `faulty`; `healthy`, in which loading does not limit training; or those with what is
    `fixed`, which follow the advice literally where that is something else. Followed is the first
    piece of advice, or the one that has the words `follows`. `cause` is the rule that should find
    the fault, and `named` a text that it must say. The healthy one needs so many `cpus`: one for
    each worker that computes, and one for training. With fewer than `fault_cpus` the fault costs
    next to nothing. Where not `looks_inside`, it is diagnosed without a look into its loader.
    """

    cause: str
    named: str
    make: Callable[..., Training]
    faulty: dict[str, Any] = field(default_factory=lambda: {"faulty": True})
    healthy: dict[str, Any] = field(default_factory=lambda: {"faulty": False})
    fixed: dict[str, Any] | None = None
    follows: str = ""
    cpus: int = 1
    fault_cpus: int = 1
    looks_inside: bool = True

    def training(self, variant: str, folder: Path) -> Training:
        fixed = {**self.faulty, **(self.fixed or {})}
        return self.make(folder, **(fixed if variant == "fixed" else getattr(self, variant)))


class Samples(Dataset[Any]):
    """`count` of them, each of which `read` makes of its number."""

    def __init__(self, read: Callable[[int], Any], count: int = SAMPLES) -> None:
        self.read, self.count = read, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.read(index)


class Stream(IterableDataset[Any]):
    """The same one after the other, divided among the workers."""

    def __init__(self, read: Callable[[int], Any], count: int = SAMPLES) -> None:
        self.read, self.count = read, count

    def __iter__(self) -> Iterator[Any]:
        yield from map(self.read, of_this_worker(self.count))


class Again:
    def __init__(self, batches: Sequence[Any], count: int) -> None:
        self.batches, self.count = batches, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return islice(cycle(self.batches), self.count)


def of_this_worker(count: int) -> range:
    """Which of so many are this worker's."""
    worker = get_worker_info()
    return range(worker.id, count, worker.num_workers) if worker else range(count)


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
    loader: DataLoader[Any] = DataLoader(
        dataset, batch_size=batch_size, num_workers=workers, **options
    )
    return Training(loader, Products(step_ms), epochs, fresh, close)
