"""Which samples come, and when: samplers, and batches that take longer than others or wait."""

import lzma
from collections.abc import Callable, Iterator, Sized
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, RandomSampler, Sampler

from bench.zoo.costs import burn
from bench.zoo.programs import (
    BATCHES,
    SAMPLES,
    SIZE,
    STEP_MS,
    Program,
    Samples,
    Stream,
    Training,
    of_this_worker,
    train,
)

HUGE = (1152, 2304, 3456, 4608)


class HardExamples(Sampler[int]):
    def __init__(self, samples: int, *, at_once: bool) -> None:
        weights = np.random.default_rng(0).random(samples)
        self.weights = weights / weights.sum()
        self.at_once = at_once

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        draw = np.random.default_rng(0)
        if self.at_once:
            yield from draw.choice(len(self.weights), len(self), p=self.weights).tolist()
        else:
            for _ in range(len(self)):
                yield int(draw.choice(len(self.weights), p=self.weights))


def hard_examples(_: Path, *, faulty: bool) -> Training:
    samples = Samples(lambda index: torch.full((8,), index), 60_000)
    return train(samples, sampler=HardExamples(60_000, at_once=not faulty))


def recordings(
    _: Path, steps: Callable[[int], float], count: int = BATCHES, **options: Any
) -> Training:
    """`steps` says how long the one with an index takes, in steps."""

    def read_recording(index: int) -> torch.Tensor:
        burn(steps(index) * STEP_MS)
        return torch.full((8,), index)

    return train(Samples(read_recording, count), batch_size=1, **options)


# One of each ten, so that a deep queue hides them all.
JITTER = [
    place == slow
    for slow in np.random.default_rng(0).integers(2, 8, BATCHES // 10).tolist()
    for place in range(10)
]


def jitter(index: int) -> float:
    """Six steps for one batch in ten at random places, and on average less than one step."""
    return 6.0 if JITTER[index] else 0.1


ONE_LONG = {"steps": lambda index: 60.0 if index % 75 == 37 else 0.35, "count": 750}
"""Longer than the deepest queue is, and so many that several come where is looked into."""


def documents(_: Path, *, faulty: bool) -> Training:
    """Many, of which four take longer than some batches together."""

    def read(index: int) -> int:
        if faulty and index in HUGE:
            burn(80)
        return index

    return train(Samples(read, 38 * 128), batch_size=128, workers=1, epochs=5)


class Shards(IterableDataset[Any]):
    """Reads shards of 20 batches, each of which is decompressed when it is opened."""

    def __init__(self, *, compressed: bool) -> None:
        drawn = np.random.default_rng(0).integers(0, 24, (14_000, 256), dtype=np.uint8)
        raw = drawn.tobytes()
        self.shard = lzma.compress(raw, preset=0) if compressed else raw
        self.compressed = compressed

    def __iter__(self) -> Iterator[Any]:
        for _ in range(3 * BATCHES // 20):
            rows = self.open_shard()
            for first in range(0, 20 * SIZE, SIZE):
                yield rows[first : first + SIZE]

    def open_shard(self) -> Any:
        raw = lzma.decompress(self.shard) if self.compressed else self.shard
        return np.frombuffer(raw, dtype=np.uint8).reshape(-1, 256)


def opened(_: Path, *, faulty: bool, **options: Any) -> Training:
    return train(Shards(compressed=faulty), batch_size=None, workers=1, **options)


class ShuffleBuffer(Stream):
    """Fills a buffer of `size` with samples before its first one, in each worker."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[Any]:
        draw, buffer = np.random.default_rng(0), list[Any]()
        for index in of_this_worker(2000):
            burn(0.25)
            buffer.append(index)
            if len(buffer) > self.size:
                yield buffer.pop(int(draw.integers(self.size)))
        yield from buffer


def shuffled(_: Path, *, faulty: bool) -> Training:
    return train(ShuffleBuffer(1000 if faulty else 4), batch_size=40, epochs=5)


def with_keys(_: Path, **options: Any) -> Training:
    """Each worker lists all keys before its first sample."""
    listed: list[bytes] = []

    def list_keys() -> None:
        listed[:] = [b"%08d" % number for number in range(1_000_000)]

    def read(index: int) -> int:
        if not listed:
            list_keys()
        return int(listed[index])

    return train(Samples(read, 40 * SIZE), epochs=6, **options)


class Prepared(IterableDataset[int]):
    """A thread prepares what is served; it may go on after the last sample, for those before."""

    def __init__(self, *, goes_on: bool) -> None:
        self.goes_on = goes_on

    def prepare(self, numbers: range, served: Event) -> None:
        for _ in numbers:
            if served.wait(0.001):
                return

    def __iter__(self) -> Iterator[int]:
        numbers, served = of_this_worker(40 * SIZE), Event()
        with ThreadPoolExecutor(1) as threads:
            threads.submit(self.prepare, numbers, served)
            yield from numbers
            if not self.goes_on:
                served.set()


def prepared(_: Path, *, faulty: bool) -> Training:
    return train(Prepared(goes_on=faulty), epochs=6, step_ms=4)


class InParts(Sampler[int]):
    """The first of a permutation; only these become Python's numbers."""

    def __init__(self, samples: Sized, num_samples: int) -> None:
        self.samples, self.num_samples = samples, num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(len(self.samples))[: self.num_samples].tolist()


def of_many(_: Path, sampler: Any = RandomSampler, **options: Any) -> Training:
    """Each epoch takes 1,000 of four million samples."""
    samples = Samples(int, 4_000_000)
    chosen = sampler(samples, num_samples=50 * SIZE, **options)
    return train(samples, sampler=chosen, epochs=6)


by_one = partial(recordings, workers=1, prefetch_factor=1)
by_two = partial(recordings, workers=2, prefetch_factor=1)
ALIKE = {"steps": lambda _: 0.2}
PROGRAMS = {
    "weighted draws one by one": Program("slow sampler", "HardExamples", hard_examples),
    "one long recording in 75": Program(
        "head-of-line blocking", "in_order", by_two, ONE_LONG, ALIKE, {"in_order": False}
    ),
    "jitter, and a queue of one batch": Program(
        "shallow queue",
        "prefetch_factor",
        by_one,
        {"steps": jitter},
        ALIKE,
        {"prefetch_factor": 16},
    ),
    "four huge documents in regular places": Program("slow samples", "3456", documents),
    "shards decompressed when they are opened": Program(
        "stalls", "open_shard", opened, fixed={"prefetch_factor": 24}
    ),
    "a shuffle buffer as large as an epoch": Program(
        "workers' first batch", "ShuffleBuffer", shuffled, cpus=3
    ),
    "keys listed by each new worker": Program(
        "workers' first batch", "list_keys", with_keys, {"persistent_workers": False}, {}
    ),
    "a thread that goes on after the last sample": Program(
        "epoch ends", "Prepared.__iter__", prepared
    ),
    "a permutation of four million samples for a thousand": Program(
        "sampler start", "RandomSampler", of_many, {}, {"replacement": True}, {"sampler": InParts}
    ),
}
