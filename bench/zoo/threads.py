"""Loaders with threads in the training process: Python's lock, and stages of SPDL."""

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from bench.zoo.costs import MS, Pause, Products
from bench.zoo.programs import STEP_MS, Program, Samples, Training

Load = Callable[[int], int]

BATCHES = 400
"""Enough to read the lock often in both arms of the blocks for that."""
BLOCK = bytes(1 << 20)
AHEAD = 4


def tokenise(number: int) -> int:
    """Python code, which holds the lock."""
    total = 0
    for each in range(250_000):
        total += each * each % 7
    return total + number


def digest(number: int) -> int:
    """Work without Python's lock in all but a few moments."""
    return hashlib.sha256(BLOCK).digest()[0] + number


class Fed:
    """Threads feed a queue."""

    def __init__(self, load: Load, threads: int = 2) -> None:
        self.load, self.threads = load, threads

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[int]:
        ready: queue.Queue[int] = queue.Queue(AHEAD)
        numbers, stopped = iter(range(BATCHES)), threading.Event()
        feeding = {"target": self.feed, "args": (numbers, ready, stopped), "daemon": True}
        threads = [threading.Thread(**feeding) for _ in range(self.threads)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(BATCHES):
                yield ready.get()
        finally:
            stopped.set()
            while any(thread.is_alive() for thread in threads):
                while not ready.empty():
                    ready.get()
                threads[0].join(0.01)

    def feed(
        self, numbers: Iterator[int], ready: queue.Queue[int], stopped: threading.Event
    ) -> None:
        for number in numbers:
            if stopped.is_set():
                return
            ready.put(self.load(number))


class Ahead(DataLoader[Any]):
    """A thread of its own reads it some batches ahead, as DataLoaderX of many repositories does."""

    def __iter__(self) -> Any:
        batches = super().__iter__()
        return iter(Fed(lambda _: next(batches), threads=1))


def ahead(load: Load, workers: int = 0) -> Any:
    """One batch a sample."""
    return Ahead(Samples(load, BATCHES), batch_size=None, num_workers=workers)


def pipeline(load: Load, *, apart: bool = False) -> Any:
    """SPDL's, with two threads for its one stage, maybe in a process of its own.

    In the training process its threads slow steps down whatever the stage does.
    """
    from spdl.pipeline import PipelineBuilder, run_pipeline_in_subprocess

    builder: Any = PipelineBuilder()
    built = builder.add_source(range(BATCHES)).pipe(load, concurrency=2).add_sink(AHEAD)
    if apart:
        config = built.get_config()
        return run_pipeline_in_subprocess(config, num_threads=2, mp_context="fork")
    return built.build(num_threads=2)


def threaded(_: Path, load: Load, loader: Any = Fed, **options: Any) -> Training:
    return Training(loader(load, **options), Products(STEP_MS, side=256))


def read(number: int) -> int:
    time.sleep(STEP_MS / 2 * MS)
    return number


def decode(number: int) -> int:
    time.sleep(2 * STEP_MS * MS)
    return number


def stages(_: Path, *, faulty: bool) -> Training:
    """A pipeline of SPDL's in which each item is read, and decoded, one or four at once."""
    from spdl.pipeline import PipelineBuilder

    builder: Any = PipelineBuilder()
    builder.add_source(range(BATCHES)).pipe(read, concurrency=2)
    built = builder.pipe(decode, concurrency=1 if faulty else 4).add_sink(AHEAD)
    return Training(built.build(num_threads=6), Pause(STEP_MS))


PROGRAMS = {
    "threads that tokenise for a queue": Program(
        "Python lock",
        "feed",
        threaded,
        {"load": tokenise},
        {"load": digest},
        follows="release the GIL",
    ),
    "a stage of an SPDL pipeline in Python": Program(
        "Python lock",
        "spdl",
        partial(threaded, loader=pipeline),
        {"load": tokenise},
        {"load": digest, "apart": True},
        follows="release the GIL",
    ),
    "a DataLoader that a thread reads ahead": Program(
        "Python lock",
        "feed",
        partial(threaded, loader=ahead),
        {"load": tokenise},
        {"load": digest},
        {"workers": 2},
        cpus=2,
    ),
    "a stage of SPDL that decodes one at a time": Program("slow operator", "decode", stages),
}
