"""Workers: too few or too many, a slow one, started too often, with few CPUs or much memory."""

from __future__ import annotations

import json
import lzma
import os
import zlib
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from bench.zoo.costs import burn, hashes
from bench.zoo.images import photographs
from bench.zoo.programs import (
    BATCHES,
    SAMPLES,
    STEP_MS,
    Program,
    Samples,
    Stream,
    Training,
    of_this_worker,
    train,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CPUS = len(os.sched_getaffinity(0))
SIDE = 128
"""Of products so small that several threads take longer for one than one does."""
BOXES = 300_000
"""As many as a data set of photographs has annotations."""
LENGTH = 4000
"""Of a text, in bytes: nearly a page."""
OF_SAMPLE = 75
"""Texts of a sample, of which each is read once."""
IN_SECONDS = 2400
"""Batches that take 19 seconds or more, for growth to be told from a start."""


def sample_of(index: int, steps: float) -> torch.Tensor:
    """Work of so many steps, in four functions of about the same cost."""
    ms = steps * STEP_MS / 4
    return normalise(crop(resize(decode(index, ms), ms), ms), ms)


def decode(index: int, ms: float) -> torch.Tensor:
    burn(ms)
    return torch.full((8,), index)


def resize(sample: torch.Tensor, ms: float) -> torch.Tensor:
    burn(ms)
    return sample


def crop(sample: torch.Tensor, ms: float) -> torch.Tensor:
    burn(ms)
    return sample


def normalise(sample: torch.Tensor, ms: float) -> torch.Tensor:
    burn(ms)
    return sample / 2


def augmented(steps: float, samples: int = BATCHES, **options: Any) -> Training:
    return train(Samples(partial(sample_of, steps=steps), samples), batch_size=1, **options)


class Sharded(Stream):
    """The same from `shards`, each of which only one worker reads."""

    def __init__(self, steps: float, shards: int) -> None:
        self.steps, self.shards = steps, shards

    def __iter__(self) -> Iterator[torch.Tensor]:
        for shard in of_this_worker(self.shards):
            for index in range(shard, BATCHES, self.shards):
                yield sample_of(index, self.steps)


def sharded(steps: float, shards: int, **options: Any) -> Training:
    return train(Sharded(steps, shards), batch_size=1, **options)


def spectrograms(times: int, **options: Any) -> Training:
    """Products that torch computes with as many threads as it may use."""
    matrix = torch.full((SIDE, SIDE), 1 / SIDE)

    def read(index: int) -> torch.Tensor:
        product = matrix
        for _ in range(times):
            product = torch.tanh(torch.mm(product, matrix))
        return product[index % SIDE][:64].clone()

    return train(Samples(read, BATCHES), batch_size=1, **options)


def with_all_threads(_worker: int) -> None:
    torch.set_num_threads(4)


class Busy:
    """Other programs that compute, until they are closed; on one CPU where it is given."""

    def __init__(self, processes: int, cpu: int | None = None) -> None:
        fork = get_context("fork")
        self.processes = [
            fork.Process(target=compute, args=(cpu,), daemon=True) for _ in range(processes)
        ]
        for process in self.processes:
            process.start()

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
            process.join()
            process.close()


def compute(cpu: int | None) -> None:
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    while True:
        hashes(100)


def beside_others(processes: int) -> Training:
    return augmented(0.35 * CPUS, close=Busy(processes).close)


def one_cpu() -> int:
    return max(os.sched_getaffinity(0))


def all_on_one_cpu(_worker: int) -> None:
    os.sched_setaffinity(0, {one_cpu()})


def second_on_one_cpu(worker: int) -> None:
    if worker == 1:
        all_on_one_cpu(worker)


def bound_and_freed(worker: int) -> None:
    all_on_one_cpu(worker)
    use_all_cpus()


def use_all_cpus() -> None:
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


def on_one_cpu(*, is_freed: bool = False) -> Training:
    """Training is bound to a CPU before its workers start, as by a library at its import."""
    all_on_one_cpu(0)
    if is_freed:
        use_all_cpus()
    return augmented(0.6, close=use_all_cpus)


def pinned(busy: int, init: Callable[[int], None] = second_on_one_cpu) -> Training:
    """The second of two workers is bound to a CPU, which `busy` other programs use."""
    return augmented(0.6, worker_init_fn=init, close=Busy(busy, one_cpu()).close)


class Packed(IterableDataset[Any]):
    """A shard for each worker; that of worker 1 may be packed harder."""

    def __init__(self, *, harder: bool) -> None:
        noise = np.random.default_rng(0).integers(0, 24, 1100 * 1024, dtype=np.uint8).tobytes()
        easy = (zlib.compress(noise, 1), zlib.decompress)
        hard = (lzma.compress(noise, preset=1), lzma.decompress)
        self.shards: list[tuple[bytes, Callable[[bytes], bytes]]] = [easy, hard if harder else easy]

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        blob, unpack = self.shards[worker.id if worker else 0]
        for _ in range(BATCHES // 2):
            yield torch.frombuffer(bytearray(unpack(blob)[:64]), dtype=torch.uint8)


class Catalogue(Samples):
    """A data set with a list of files, which a spawned worker is sent object by object."""

    def __init__(self, files: int) -> None:
        self.files = [(f"images/{number:06}.jpg", number) for number in range(files)]
        self.count = 80

    def read(self, index: int) -> int:
        return self.files[index][1]


class Annotations(Samples):
    """Boxes of images, each an object of Python's, which a spawned worker is sent one by one."""

    def __init__(self) -> None:
        self.boxes = [
            {"image": number, "category": number % 80, "box": [number / 2, number / 4, 10.0, 20.0]}
            for number in range(BOXES)
        ]
        self.count = 80

    def read(self, index: int) -> Any:
        return self.boxes[index]["box"]


class MappedAnnotations(Samples):
    """The same in a file, which each worker maps into memory once it reads."""

    def __init__(self, folder: Path) -> None:
        self.path, self.count = folder / "boxes.npy", 80
        self.boxes: np.ndarray[Any, Any] | None = None
        number = np.arange(BOXES)
        sides = [number / 2, number / 4, np.full(BOXES, 10.0), np.full(BOXES, 20.0)]
        np.save(self.path, np.stack(sides, axis=1))

    def read(self, index: int) -> Any:
        if self.boxes is None:
            self.boxes = np.load(self.path, mmap_mode="r")
        return self.boxes[index]


def short_epochs(dataset: Any, *, persistent: bool, workers: int = 1) -> Training:
    return train(
        dataset,
        batch_size=1,
        workers=workers,
        epochs=2,
        multiprocessing_context="spawn",
        persistent_workers=persistent,
    )


VOCABULARY = json.dumps({f"word {number}": number for number in range(250_000)})


def load_vocabulary(_worker: int) -> None:
    json.loads(VOCABULARY)


def with_vocabulary(*, persistent: bool) -> Training:
    return augmented(
        0.5, 30, epochs=6, worker_init_fn=load_vocabulary, persistent_workers=persistent
    )


def remembering(*, keeps: bool) -> Training:
    """Workers may keep what they have decoded."""
    image, seen = photographs()[0], {}

    def read(index: int) -> int:
        pixels = np.array(image)
        if keeps:
            seen[index] = pixels
        return int(pixels[0, 0, 0])

    return train(Samples(read, 1800), batch_size=4)


def with_cache(most: int | None) -> Training:
    """Each worker keeps up to so many of its photographs decoded; None is any number."""
    image = photographs()[0]

    @lru_cache(most)
    def pixels(_index: int) -> np.ndarray[Any, Any]:
        return np.array(image)

    samples = Samples(lambda index: int(pixels(index)[0, 0, 0]), 4 * IN_SECONDS)
    return train(samples, batch_size=4, multiprocessing_context="fork")


class Texts(Samples):
    """Some texts from anywhere in the dataset are a sample, of which it returns the first letters.

    They are a list of Python's strings, or the rows of one array of bytes.
    """

    def __init__(self, *, as_strings: bool) -> None:
        texts, self.count = SAMPLES * OF_SAMPLE, SAMPLES
        letters = np.random.default_rng(0).integers(97, 123, texts, dtype=np.uint8)
        self.texts: Any
        if as_strings:
            self.texts = [letter * LENGTH for letter in letters.tobytes().decode()]
        else:
            self.texts = np.repeat(letters[:, None], LENGTH, axis=1)
        self.order = np.random.default_rng(1).permutation(texts).reshape(-1, OF_SAMPLE)

    def read(self, index: int) -> list[int]:
        chosen = self.order[index]
        if isinstance(self.texts, list):
            return [ord(self.texts[text][0]) for text in chosen.tolist()]
        first: list[int] = self.texts[chosen, 0].tolist()
        return first


def texts(*, as_strings: bool) -> Training:
    samples = Texts(as_strings=as_strings)
    options = {"prefetch_factor": 4, "multiprocessing_context": "fork"}
    return train(samples, step_ms=3.4, workers=1, **options)


PROGRAMS = (
    Program(
        "no workers",
        "zero workers",
        "num_workers",
        faulty=lambda _: augmented(0.75, workers=0),
        healthy=lambda _: augmented(0.75),
    ),
    Program(
        "a stream without workers",
        "zero workers",
        "num_workers",
        faulty=lambda _: sharded(1.0, 4, workers=0),
        healthy=lambda _: sharded(1.0, 4),
    ),
    Program(
        "one worker for the work of two",
        "waiting",
        "num_workers",
        faulty=lambda _: augmented(1.6, workers=1),
        healthy=lambda _: augmented(1.6, workers=3),
        cpus=4,
    ),
    Program(
        "one persistent worker for a stream of six shards",
        "waiting",
        "num_workers",
        faulty=lambda _: sharded(1.6, 6, workers=1, persistent_workers=True),
        healthy=lambda _: sharded(1.6, 6, workers=3, persistent_workers=True),
        cpus=4,
    ),
    Program(
        "fewer shards than workers",
        "few shards",
        "shard",
        faulty=lambda _: sharded(1.6, 1, workers=3),
        healthy=lambda _: sharded(1.6, 3, workers=3),
        cpus=4,
        fault_cpus=4,
    ),
    Program(
        "four threads in each worker",
        "oversubscription",
        "set_num_threads",
        faulty=lambda _: spectrograms(60, worker_init_fn=with_all_threads),
        healthy=lambda _: spectrograms(40),
        fixed=lambda _: spectrograms(60),
    ),
    Program(
        "six workers for each CPU",
        "oversubscription",
        "num_workers",
        faulty=lambda _: augmented(0.9 * CPUS, workers=6 * CPUS),
        healthy=lambda _: augmented(0.35 * CPUS, workers=CPUS - 1),
        fixed=lambda _: augmented(0.9 * CPUS, workers=CPUS),
    ),
    Program(
        "other programs on all CPUs",
        "oversubscription",
        "",
        faulty=lambda _: beside_others(CPUS),
        healthy=lambda _: beside_others(0),
    ),
    Program(
        "training bound to a CPU at an import",
        "confined workers",
        "affinity",
        faulty=lambda _: on_one_cpu(),
        healthy=lambda _: augmented(0.6),
        fixed=lambda _: on_one_cpu(is_freed=True),
        cpus=3,
        fault_cpus=2,
    ),
    Program(
        "all workers bound to one CPU",
        "confined workers",
        "worker_init_fn",
        faulty=lambda _: augmented(1.6, worker_init_fn=all_on_one_cpu),
        healthy=lambda _: augmented(1.6),
        fixed=lambda _: augmented(1.6, worker_init_fn=bound_and_freed),
        cpus=4,
        fault_cpus=2,
    ),
    Program(
        "a worker bound to a busy CPU",
        "confined workers",
        "second_on_one_cpu",
        faulty=lambda _: pinned(busy=5),
        healthy=lambda _: pinned(busy=0),
        fixed=lambda _: pinned(busy=5, init=bound_and_freed),
        cpus=3,
        fault_cpus=2,
    ),
    Program(
        "a shard that is packed harder",
        "slow worker",
        "1",
        faulty=lambda _: train(Packed(harder=True), batch_size=1),
        healthy=lambda _: train(Packed(harder=False), batch_size=1),
    ),
    Program(
        "spawn, and a long list of files",
        "worker start",
        "persistent_workers",
        faulty=lambda _: short_epochs(Catalogue(200_000), persistent=False),
        healthy=lambda _: short_epochs(Catalogue(300), persistent=True),
        fixed=lambda _: short_epochs(Catalogue(200_000), persistent=True),
    ),
    Program(
        "spawn, and annotations in memory",
        "worker start",
        "dataset small",
        faulty=lambda _: short_epochs(Annotations(), persistent=False, workers=2),
        healthy=lambda folder: short_epochs(MappedAnnotations(folder), persistent=True, workers=2),
        fixed=lambda folder: short_epochs(MappedAnnotations(folder), persistent=False, workers=2),
        follows="dataset small",
    ),
    Program(
        "a vocabulary loaded by each worker",
        "worker start",
        "load_vocabulary",
        faulty=lambda _: with_vocabulary(persistent=False),
        healthy=lambda _: with_vocabulary(persistent=True),
    ),
    Program(
        "a vocabulary, in workers that nobody looks into",
        "epoch boundaries",
        "persistent_workers",
        faulty=lambda _: with_vocabulary(persistent=False),
        healthy=lambda _: with_vocabulary(persistent=True),
        looks_inside=False,
    ),
    Program(
        "an iterator for each batch",
        "loader re-created",
        "iter",
        faulty=lambda _: augmented(0.5, workers=1, fresh=75),
        healthy=lambda _: augmented(0.5, workers=1),
    ),
    Program(
        "workers that keep what they read",
        "worker memory",
        "",
        faulty=lambda _: remembering(keeps=True),
        healthy=lambda _: remembering(keeps=False),
        costs_time=False,
    ),
    Program(
        "texts that are strings in a forked worker",
        "copied pages",
        "NumPy",
        faulty=lambda _: texts(as_strings=True),
        healthy=lambda _: texts(as_strings=False),
    ),
    Program(
        "a cache that is never full",
        "worker memory",
        "lru_cache",
        faulty=lambda _: with_cache(None),
        healthy=lambda _: with_cache(64),
        costs_time=False,
    ),
)
