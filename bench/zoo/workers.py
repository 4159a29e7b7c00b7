"""Workers: too few or too many, a slow one, started too often, with few CPUs or much memory."""

import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.zoo.costs import MS, burn, hashes
from bench.zoo.programs import (
    BATCHES,
    SAMPLES,
    STEP_MS,
    Program,
    Samples,
    Stream,
    Training,
    nothing,
    of_this_worker,
    train,
)

CPUS = len(os.sched_getaffinity(0))
SIDE = 128
"""Of products so small that several threads take longer for one than one does."""
LENGTH = 4000
"""Of a text, in bytes: nearly a page."""
OF_SAMPLE = 75
"""Texts of a sample, of which each is read once."""


def sample_of(index: int, steps: float) -> torch.Tensor:
    """Work of so many steps, in four functions of which none stands out."""
    for work in (decode, resize, crop, normalise):
        work(steps * STEP_MS / 4)
    return torch.full((8,), index)


def decode(ms: float) -> None:
    burn(ms)


def resize(ms: float) -> None:
    burn(ms)


def crop(ms: float) -> None:
    burn(ms)


def normalise(ms: float) -> None:
    burn(ms)


def augmented(
    _: Path, steps: float, samples: int = BATCHES, kind: Any = Samples, **options: Any
) -> Training:
    """A training with a sample in each batch, of a dataset or of a stream of it."""
    return train(kind(partial(sample_of, steps=steps), samples), batch_size=1, **options)


class MadeByAll(Stream):
    """Each worker makes all samples, and keeps its own: it divides them too late."""

    def __iter__(self) -> Iterator[Any]:
        own = of_this_worker(self.count)
        yield from islice(map(self.read, range(self.count)), own.start, None, own.step)


def fetched(_: Path, kind: Any = Stream, steps: float = 3.0) -> Training:
    """A stream of samples that are each waited for, as long as so many steps."""

    def read(index: int) -> torch.Tensor:
        time.sleep(steps * STEP_MS * MS)
        return torch.full((8,), index)

    return train(kind(read, BATCHES), batch_size=1)


def spectrograms(_: Path, times: int = 60, threads: int = 0) -> Training:
    """Products that torch computes with as many threads as it may use."""
    matrix = torch.full((SIDE, SIDE), 1 / SIDE)

    def read(index: int) -> torch.Tensor:
        product = matrix
        for _ in range(times):
            product = torch.tanh(torch.mm(product, matrix))
        return product[index % SIDE][:64].clone()

    def limit(_worker: int) -> None:
        torch.set_num_threads(threads)

    samples = Samples(read, BATCHES)
    return train(samples, batch_size=1, worker_init_fn=limit if threads else None)


def compute(cpus: set[int]) -> None:
    os.sched_setaffinity(0, cpus)
    while True:
        hashes(100)


def busy(programs: int, cpus: set[int]) -> Callable[[], None]:
    """Let other programs compute on these CPUs, until what is returned is called."""
    fork = get_context("fork")
    others = [fork.Process(target=compute, args=(cpus,), daemon=True) for _ in range(programs)]
    for other in others:
        other.start()

    def close() -> None:
        for other in others:
            other.terminate()
            other.join()

    return close


def beside_others(folder: Path, *, faulty: bool) -> Training:
    close = busy(CPUS * faulty, os.sched_getaffinity(0))
    return augmented(folder, 0.35 * CPUS, 3 * BATCHES, close=close)


def one_cpu() -> set[int]:
    return {max(os.sched_getaffinity(0))}


def all_on_one_cpu(_worker: int) -> None:
    os.sched_setaffinity(0, one_cpu())


def second_on_one_cpu(worker: int) -> None:
    if worker == 1:
        all_on_one_cpu(worker)


def bound_and_freed(worker: int) -> None:
    all_on_one_cpu(worker)
    use_all_cpus()


def use_all_cpus() -> None:
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


def bound_before(folder: Path, bind: Callable[[int], None]) -> Training:
    """Training may be bound to a CPU before its workers start, as by a library at its import."""
    bind(0)
    return augmented(folder, 0.6, close=use_all_cpus)


def pinned(
    folder: Path, programs: int = 5, init: Callable[[int], None] = second_on_one_cpu
) -> Training:
    """The second of two workers is bound to a CPU, which so many other programs use."""
    return augmented(folder, 0.6, worker_init_fn=init, close=busy(programs, one_cpu()))


def packed(_: Path, *, faulty: bool) -> Training:
    """A stream of two shards, one for each worker; that of worker 1 may be packed harder."""

    def unpack(index: int) -> torch.Tensor:
        burn((4.0 if faulty and index % 2 else 0.6) * STEP_MS)
        return torch.full((8,), index)

    return train(Stream(unpack, BATCHES), batch_size=1)


class Catalogue(Samples):
    """A data set with a list of files, which a spawned worker is sent object by object."""

    def __init__(self, files: int) -> None:
        self.files = [(f"images/{number:06}.jpg", number) for number in range(files)]
        self.count = 80

    def read(self, index: int) -> int:
        return self.files[index][1]


def catalogue(_: Path, files: int, *, persistent_workers: bool = False) -> Training:
    options = {"multiprocessing_context": "spawn", "persistent_workers": persistent_workers}
    return train(Catalogue(files), batch_size=1, workers=1, epochs=2, **options)


VOCABULARY = json.dumps({f"word {number}": number for number in range(250_000)})


def load_vocabulary(_worker: int) -> None:
    json.loads(VOCABULARY)


def with_vocabulary(folder: Path, *, faulty: bool) -> Training:
    options = {"worker_init_fn": load_vocabulary, "persistent_workers": not faulty}
    return augmented(folder, 0.5, 30, epochs=6, **options)


def texts(_: Path, *, faulty: bool) -> Training:
    """Some texts from anywhere in the dataset are a sample, of which it returns the first letters.

    They are a list of Python's strings, or the rows of one array of bytes.
    """
    count = SAMPLES * OF_SAMPLE
    letters = np.random.default_rng(0).integers(97, 123, count, dtype=np.uint8)
    order = np.random.default_rng(1).permutation(count).reshape(-1, OF_SAMPLE)
    if faulty:
        strings = [letter * LENGTH for letter in letters.tobytes().decode()]
        samples = Samples(lambda index: [ord(strings[text][0]) for text in order[index].tolist()])
    else:
        rows = np.repeat(letters[:, None], LENGTH, axis=1)
        samples = Samples(lambda index: rows[order[index], 0].tolist())
    options = {"prefetch_factor": 4, "multiprocessing_context": "fork"}
    return train(samples, step_ms=3.4, workers=1, **options)


STAY = {"persistent_workers": True}
heavy = partial(augmented, steps=1.6)
PROGRAMS = {
    "no workers": Program(
        "zero workers", "num_workers", partial(augmented, steps=0.75), {"workers": 0}, {}
    ),
    "a stream without workers": Program(
        "zero workers",
        "num_workers",
        partial(augmented, steps=1.0, kind=Stream),
        {"workers": 0},
        {},
    ),
    "a stream that every worker makes whole": Program(
        "samples thrown away",
        "divide",
        fetched,
        {"kind": MadeByAll},
        {"steps": 1.5},
        {"kind": Stream},
    ),
    "one worker for the work of two": Program(
        "waiting", "num_workers", heavy, {"workers": 1}, {"workers": 3}, cpus=4
    ),
    "four threads in each worker": Program(
        "oversubscription",
        "set_num_threads",
        spectrograms,
        {"threads": 4},
        {"times": 40},
        {"threads": 1},
    ),
    "six workers for each CPU": Program(
        "oversubscription",
        "num_workers",
        partial(augmented, steps=0.9 * CPUS),
        {"workers": 6 * CPUS},
        {"steps": 0.35 * CPUS, "workers": CPUS - 1},
        {"workers": CPUS},
    ),
    "other programs on all CPUs": Program("oversubscription", "", beside_others),
    "training bound to a CPU at an import": Program(
        "confined workers",
        "affinity",
        bound_before,
        {"bind": all_on_one_cpu},
        {"bind": nothing},
        {"bind": bound_and_freed},
        cpus=3,
        fault_cpus=2,
    ),
    "all workers bound to one CPU": Program(
        "confined workers",
        "worker_init_fn",
        heavy,
        {"worker_init_fn": all_on_one_cpu},
        {},
        {"worker_init_fn": bound_and_freed},
        cpus=4,
        fault_cpus=2,
    ),
    "a worker bound to a busy CPU": Program(
        "confined workers",
        "second_on_one_cpu",
        pinned,
        {},
        {"programs": 0},
        {"init": bound_and_freed},
        cpus=3,
        fault_cpus=2,
    ),
    "a shard that is packed harder": Program("slow worker", "1", packed),
    "spawn, and a long list of files": Program(
        "worker start",
        "persistent_workers",
        catalogue,
        {"files": 200_000},
        {"files": 300, **STAY},
        STAY,
    ),
    "a vocabulary loaded by each worker": Program(
        "worker start", "load_vocabulary", with_vocabulary
    ),
    "a vocabulary, in workers that nobody looks into": Program(
        "epoch boundaries", "persistent_workers", with_vocabulary, looks_inside=False
    ),
    "an iterator for each batch": Program(
        "loader re-created", "iter", partial(augmented, steps=0.5, workers=1), {"fresh": 75}, {}
    ),
    "texts that are strings in a forked worker": Program("copied pages", "NumPy", texts),
}
