"""Which samples come, and when: samplers, and batches that take longer than others or wait."""

from __future__ import annotations

import lzma
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import (
    IterableDataset,
    RandomSampler,
    Sampler,
    WeightedRandomSampler,
    get_worker_info,
)

from bench.zoo.costs import burn
from bench.zoo.images import decoded
from bench.zoo.programs import BATCHES, SAMPLES, SIZE, STEP_MS, Program, Samples, Training, train
from tests.images import crops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt


class Lengths(Samples):
    """Sequences whose lengths are known beforehand."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.lengths = np.random.default_rng(0).integers(10, 500, count).tolist()

    def read(self, index: int) -> torch.Tensor:
        return torch.full((8,), self.lengths[index])


class BucketSampler(Sampler[list[int]]):
    """Batches of samples of similar lengths, each found by sorting all samples."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[list[int]]:
        draw = np.random.default_rng(0)
        for wanted in draw.integers(10, 500, BATCHES).tolist():
            yield self.nearest(wanted)

    def nearest(self, wanted: int) -> list[int]:
        def apart(index: int) -> int:
            return abs(self.lengths[index] - wanted)

        return sorted(range(len(self.lengths)), key=apart)[:SIZE]


class SortedSampler(BucketSampler):
    """Sorts once."""

    def __iter__(self) -> Iterator[list[int]]:
        ordered = np.argsort(self.lengths, kind="stable").tolist()
        draw = np.random.default_rng(0)
        for first in draw.integers(0, len(ordered) - SIZE, BATCHES).tolist():
            yield ordered[first : first + SIZE]


def in_buckets(sampler: type[BucketSampler]) -> Training:
    samples = Lengths(30_000)
    return train(samples, batch_size=1, batch_sampler=sampler(samples.lengths))


class HardExamples(Sampler[int]):
    """Draws samples by weight, one at a time or all at once."""

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


def hard_examples(*, at_once: bool) -> Training:
    return train(Lengths(60_000), sampler=HardExamples(60_000, at_once=at_once))


def recordings(steps: Callable[[int], float], count: int = BATCHES, **options: Any) -> Training:
    """`steps` says how long the one with an index takes, in steps."""

    def read_recording(index: int) -> torch.Tensor:
        burn(steps(index) * STEP_MS)
        return torch.full((8,), index)

    return train(Samples(read_recording, count), batch_size=1, **options)


def one_long(index: int) -> float:
    return 60.0 if index % 75 == 37 else 0.35


def alike(_index: int) -> float:
    return 0.2


def jitter(index: int) -> float:
    """Six steps for one batch in ten at random places, and on average less than one step."""
    return 6.0 if JITTER[index] else 0.1


# One of each ten, so that a deep queue hides them all.
JITTER = [
    place == slow
    for slow in np.random.default_rng(0).integers(2, 8, BATCHES // 10).tolist()
    for place in range(10)
]


def documents(*huge: int, ms: float = 0.0, **options: Any) -> Training:
    """Many, of which those with an index in `huge` take longer than some batches together."""

    def read(index: int) -> int:
        if index in huge:
            burn(ms)
        return index

    return train(Samples(read, 38 * 128), batch_size=128, workers=1, epochs=5, **options)


def at_random() -> dict[str, Any]:
    return {"shuffle": True, "generator": seeded()}


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


class Shards(IterableDataset[Any]):
    """Reads shards of 20 batches, each of which is decompressed when it is opened."""

    def __init__(self, *, compressed: bool) -> None:
        drawn = np.random.default_rng(0).integers(0, 24, (14_000, 256), dtype=np.uint8)
        raw = drawn.tobytes()
        self.shard = lzma.compress(raw, preset=0) if compressed else raw
        self.compressed = compressed

    def __iter__(self) -> Iterator[Any]:
        for _ in range(BATCHES // 20):
            rows = self.open_shard()
            for first in range(0, 20 * SIZE, SIZE):
                yield rows[first : first + SIZE]

    def open_shard(self) -> npt.NDArray[np.uint8]:
        raw = lzma.decompress(self.shard) if self.compressed else self.shard
        return np.frombuffer(raw, dtype=np.uint8).reshape(-1, 256)


def opened(*, compressed: bool, **options: Any) -> Training:
    return train(Shards(compressed=compressed), batch_size=None, workers=1, **options)


class ShuffleBuffer(IterableDataset[Any]):
    """Fills a buffer of `size` with decoded images before its first one, in each worker."""

    def __init__(self, size: int, images: int = 1000) -> None:
        self.files = crops(*((left, 100, left + 128, 228) for left in range(SIZE)))
        self.size, self.images = size, images

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        draw = np.random.default_rng(worker.id if worker else 0)
        buffer: list[Any] = []
        for index in range(self.images):
            image = decoded(self.files[index % SIZE]).resize((22, 22))
            sample = torch.from_numpy(np.array(image))
            if len(buffer) < self.size:
                buffer.append(sample)
                continue
            place = int(draw.integers(self.size))
            yield buffer[place]
            buffer[place] = sample
        yield from buffer


def shuffled(size: int) -> Training:
    return train(ShuffleBuffer(size), batch_size=40, epochs=5)


class InParts(Sampler[int]):
    """The first of a permutation of so many samples, a part at a time."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return 50 * SIZE

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.samples)
        for first in range(0, len(self), 10_000):
            yield from order[first : min(first + 10_000, len(self))].tolist()


class WeightedInParts(Sampler[int]):
    """Draws by sums of the weights that are made once."""

    def __init__(self, weights: torch.Tensor, count: int) -> None:
        self.sums, self.count = weights.cumsum(0), count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for first in range(0, self.count, 10_000):
            drawn = self.sums[-1] * torch.rand(min(10_000, self.count - first), dtype=torch.double)
            yield from torch.searchsorted(self.sums, drawn).tolist()


class Sorted(Sampler[int]):
    """The first samples by their length, which is looked up in each epoch, or once."""

    def __init__(self, samples: int, *, once: bool) -> None:
        self.samples = range(samples // 5)
        self.once = once
        self.order = self.sort() if once else []

    def sort(self) -> list[int]:
        return sorted(self.samples, key=lambda index: index * 7919 % 1009)

    def __len__(self) -> int:
        return 50 * SIZE

    def __iter__(self) -> Iterator[int]:
        order = self.order if self.once else self.sort()
        yield from order[: len(self)]


def of_many(sampler: Callable[[int], Sampler[int]], samples: int = 4_000_000) -> Training:
    """Each epoch takes 1,000 of so many samples."""
    return train(Samples(int, samples), sampler=sampler(samples), epochs=6)


def permuted(samples: int, *, replacement: bool = False) -> Sampler[int]:
    return RandomSampler(range(samples), replacement, num_samples=50 * SIZE)


def weighted(sampler: Callable[[torch.Tensor, int], Sampler[int]], samples: int) -> Training:
    """Each epoch takes 500 of so many samples by their weights."""
    weights = torch.rand(samples, dtype=torch.double, generator=seeded())
    return train(Samples(int, samples), sampler=sampler(weights, 25 * SIZE), epochs=8)


def drawn_at_once(weights: torch.Tensor, count: int) -> Sampler[int]:
    return WeightedRandomSampler(weights, count)  # type: ignore[arg-type]  # it takes a tensor too


PROGRAMS = (
    Program(
        "buckets sorted for each batch",
        "slow sampler",
        "BucketSampler",
        faulty=lambda _: in_buckets(BucketSampler),
        healthy=lambda _: in_buckets(SortedSampler),
    ),
    Program(
        "weighted draws one by one",
        "slow sampler",
        "HardExamples",
        faulty=lambda _: hard_examples(at_once=False),
        healthy=lambda _: hard_examples(at_once=True),
    ),
    Program(
        "one long recording in 75",
        "head-of-line blocking",
        "in_order",
        # Longer than the deepest queue is, and so many that several come where is looked into.
        faulty=lambda _: recordings(one_long, 750, workers=2, prefetch_factor=1),
        healthy=lambda _: recordings(alike, workers=2, prefetch_factor=1),
        fixed=lambda _: recordings(one_long, 750, workers=2, prefetch_factor=1, in_order=False),
    ),
    Program(
        "jitter, and a queue of one batch",
        "shallow queue",
        "prefetch_factor",
        faulty=lambda _: recordings(jitter, workers=1, prefetch_factor=1),
        healthy=lambda _: recordings(alike, workers=1, prefetch_factor=1),
        fixed=lambda _: recordings(jitter, workers=1, prefetch_factor=16),
    ),
    Program(
        "one huge document, in a random place of each epoch",
        "slow samples",
        "4711",
        faulty=lambda _: documents(4711, ms=220, **at_random()),
        healthy=lambda _: documents(**at_random()),
    ),
    Program(
        "four huge documents in regular places",
        "slow samples",
        "3456",
        faulty=lambda _: documents(1152, 2304, 3456, 4608, ms=80),
        healthy=lambda _: documents(),
    ),
    Program(
        "shards decompressed when they are opened",
        "stalls",
        "open_shard",
        faulty=lambda _: opened(compressed=True),
        healthy=lambda _: opened(compressed=False),
        fixed=lambda _: opened(compressed=True, prefetch_factor=24),
    ),
    Program(
        "a shuffle buffer as large as an epoch",
        "shuffle buffer",
        "ShuffleBuffer",
        faulty=lambda _: shuffled(1000),
        healthy=lambda _: shuffled(4),
        cpus=3,
    ),
    Program(
        "a permutation of four million samples for a thousand",
        "sampler start",
        "RandomSampler",
        faulty=lambda _: of_many(permuted),
        healthy=lambda _: of_many(partial(permuted, replacement=True)),
        fixed=lambda _: of_many(InParts),
    ),
    Program(
        "five hundred of twelve million samples by their weights",
        "sampler start",
        "cumsum",
        faulty=lambda _: weighted(drawn_at_once, 12_000_000),
        healthy=lambda _: weighted(drawn_at_once, 12_000),
        fixed=lambda _: weighted(WeightedInParts, 12_000_000),
    ),
    Program(
        "samples that are sorted anew in each epoch",
        "sampler start",
        "Sorted",
        faulty=lambda _: of_many(partial(Sorted, once=False)),
        healthy=lambda _: of_many(partial(Sorted, once=True)),
    ),
)
