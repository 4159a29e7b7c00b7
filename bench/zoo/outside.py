"""Faults that show without a look into the loader: in waits, in steps, in memory.

Loaders and steps sleep, for far longer than a slow machine could blur.
"""

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from bench.zoo.costs import MS, Alone, Pause, Sleep
from bench.zoo.programs import Samples, Stream, Training, nothing

Times = Callable[[int], float] | float

CPUS = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Seen:
    """A training in which `cause` is found from outside the loader, in a run of that mode.

    In its `healthy` twin, where there is one, it is not. It may be one that is looked into.
    """

    cause: str
    make: Callable[[], Training]
    mode: str = "log"
    healthy: Callable[[], Training] | None = None
    looks: bool = False


def slow(count: int, ms: Times, step_ms: Times, epochs: int = 1, **options: Any) -> Training:
    return Training(DataLoader(sleeping(count, ms), **options), Pause(step_ms), epochs)


def sleeping(count: int, ms: Times) -> Samples:
    """Numbers, of which each takes so long."""

    def read(index: int) -> torch.Tensor:
        time.sleep((ms(index) if callable(ms) else ms) * MS)
        return torch.tensor([index])

    return Samples(read, count)


class Sealed:
    """What takes 10 ms to unpack, for the process that does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return time.sleep, (10 * MS,)


def to_unpack() -> Training:
    """A worker makes batches at once, which it takes the training process time to unpack."""
    sealed = Samples(lambda _: Sealed(), 120)
    return Training(DataLoader(sealed, batch_size=None, num_workers=1), Pause(30))


def contending() -> Training:
    """Two workers and the step want the same thing, of which there is one."""
    alone = Alone(get_context("fork").Lock(), Sleep(10))
    samples = Samples(lambda index: alone(index) or index, 120)
    loader = DataLoader(samples, num_workers=2, multiprocessing_context="fork")
    return Training(loader, lambda _: alone(0))


def generated() -> Training:
    """A generator loads while training waits, and never else."""

    def batches() -> Iterator[int]:
        for number in range(80):
            time.sleep(10 * MS)
            yield number

    return Training(batches, Pause(10))


class Shuffling(Stream):
    """Each epoch first reads a hundred, at 3 ms each."""

    def __iter__(self) -> Iterator[Any]:
        time.sleep(100 * 3 * MS)
        yield from super().__iter__()


def beside_a_stranger() -> Training:
    """A process computes all the time that nobody here has started."""
    command = '"$0" -c "while True: pass" > /dev/null 2>&1 & echo $!'
    shell = ["/bin/sh", "-c", command, sys.executable]
    pid = int(subprocess.run(shell, capture_output=True, text=True, check=True).stdout)
    return Training(range(400), Pause(5), close=lambda: os.kill(pid, signal.SIGKILL))


def late(ms: float) -> Callable[[int], None]:
    return lambda _worker: time.sleep(ms * MS)


def keeping_outputs(batches: int) -> Training:
    """A list of all outputs so far grows with every step, by a megabyte."""
    kept = []

    def step(_batch: Any) -> None:
        kept.append(np.ones(125_000))
        time.sleep(20 * MS)

    return Training(range(batches), step)


def keeping_samples(batches: int) -> Training:
    """With each number a worker keeps a megabyte more."""
    kept = []

    def read(index: int) -> int:
        kept.append(os.urandom(1_000_000))
        time.sleep(20 * MS)
        return index

    return Training(DataLoader(Samples(read, batches), num_workers=1), nothing)


class Undivided(Stream):
    """Each worker reads all."""

    def __iter__(self) -> Iterator[Any]:
        yield from map(self.read, range(self.count))


def read_by_workers(kind: type[Stream]) -> Training:
    return Training(DataLoader(kind(int, 1200), batch_size=4, num_workers=2), Pause(4))


def keeping_batches(batches: int, *, keeps: bool = True) -> Training:
    """Every batch stays alive, as by itertools.cycle(loader): 2 MB of a worker's shared memory."""
    kept, row = [], torch.ones(500_000)

    def step(batch: Any) -> None:
        kept[:] = [*kept, batch] if keeps else [batch]
        batch.sum()
        time.sleep(20 * MS)

    loader = DataLoader(Samples(lambda _: row, batches), num_workers=1)
    return Training(loader, step, close=with_few_files())


def mapping(batches: int) -> Training:
    """Each step reads a megabyte more of a mapped file, whose pages the system may drop."""
    with tempfile.TemporaryFile() as file:
        file.truncate(batches << 20)
        mapped = np.memmap(file, np.uint8, "r")

    def step(number: int) -> None:
        mapped[(number << 20) : (number + 1) << 20].max()
        time.sleep(20 * MS)

    return Training(range(batches), step)


def opening(batches: int, *, closes: bool = False) -> Training:
    """Each sample opens a file, and may not close it."""
    opened = []

    def read(index: int) -> int:
        opened.append(os.open(__file__, os.O_RDONLY))
        if closes:
            os.close(opened.pop())
        time.sleep(20 * MS)
        return index

    loader = DataLoader(Samples(read, batches), num_workers=1)
    return Training(loader, nothing, close=with_few_files())


def with_few_files() -> Callable[[], None]:
    """Let processes open no more files than most systems do, until what is returned is called."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def written(batches: int, *, anew: bool) -> Training:
    """After each step its rows are written to a file, or all rows so far `anew`."""
    rows, file = list[tuple[int, float]](), tempfile.TemporaryFile("w")  # noqa: SIM115 - it lives as long as the training

    def save() -> None:
        if anew:
            file.seek(0)
        file.write("".join(f"{at},{loss:.6f}\n" for at, loss in (rows if anew else rows[-30:])))
        file.flush()

    def step(_batch: Any) -> None:
        time.sleep(5 * MS)
        rows.extend((number, random.random()) for number in range(30))
        save()

    return Training(DataLoader(sleeping(batches, 1), num_workers=1), step, close=file.close)


def scored(batches: int, *, anew: bool) -> Training:
    """A score over an epoch's outputs so far, `anew` after each step, or once at its end."""
    outputs: list[torch.Tensor] = []

    def score() -> float:
        every = torch.cat(outputs)
        return float(every[every.argsort()].cumsum(0).mean())

    def step(_batch: Any) -> None:
        time.sleep(5 * MS)
        outputs.append(torch.rand(1000))
        is_over = len(outputs) == batches
        if anew or is_over:
            score()
        if is_over:
            outputs.clear()

    loader = DataLoader(sleeping(batches, 1), num_workers=1, persistent_workers=True)
    return Training(loader, step, 2)


def stalling(index: int) -> float:
    return 200 if index % 100 == 99 else 0


SEEN = {
    "two workers at 20 ms for a step of 2": Seen(
        "waiting", lambda: slow(150, 20, 2, num_workers=2), "alternate"
    ),
    "batches to unpack": Seen("waiting", to_unpack, "alternate"),
    "a lock that steps need too": Seen("contention", contending, "alternate"),
    "a generator": Seen("zero workers", generated, "alternate"),
    "no workers, in a log": Seen("zero workers", lambda: slow(60, 5, 1)),
    "a worker that is too slow": Seen("waiting", lambda: slow(60, 10, 1, num_workers=1)),
    "a process that computes": Seen("shared machine", beside_a_stranger),
    "200 ms for one batch in a hundred": Seen("stalls", lambda: slow(400, stalling, 0.5)),
    "workers that begin in 200 ms, each epoch": Seen(
        "epoch boundaries", lambda: slow(10, 0, 5, 3, num_workers=1, worker_init_fn=late(200))
    ),
    "a worker that begins in 1.5 s": Seen(
        "slow first batch", lambda: slow(100, 0, 5, num_workers=1, worker_init_fn=late(1500))
    ),
    "each batch takes longer than the one before": Seen(
        "drift", lambda: slow(160, lambda index: 0.1 * index, 1)
    ),
    "the second half comes from a cache": Seen(
        "drift", lambda: slow(100, lambda index: 8 if index < 50 else 0, 4)
    ),
    "one step saves a checkpoint": Seen(
        "outliers", lambda: Training(range(60), Pause(lambda number: 300 if number == 40 else 5))
    ),
    "a stream that every worker serves whole": Seen(
        "samples served twice",
        lambda: read_by_workers(Undivided),
        healthy=lambda: read_by_workers(Stream),
        looks=True,
    ),
    "one worker more than CPUs": Seen(
        "oversubscription", lambda: slow(4, 0, 0, num_workers=CPUS + 1)
    ),
}
