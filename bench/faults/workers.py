"""Workers: too few or too many, a slow one, ones started too often, or with too much memory."""

from __future__ import annotations

import json
import lzma
import os
import zlib
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from bench.faults.programs import BATCHES, STEP_MS, Program, Training, burn, hashes, train
from bench.faults.transforms import photographs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from PIL import Image

SIDE = 128
"""Of products so small that several threads take longer for one than one does."""
BOXES = 300_000
"""As many as a data set of photographs has annotations."""
CPUS = len(os.sched_getaffinity(0))


class Augmented(Dataset[Any]):
    """Work in four functions of about the same cost, `steps` steps a sample."""

    def __init__(self, steps: float, samples: int = BATCHES) -> None:
        self.ms = steps * STEP_MS / 4
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return normalise(crop(resize(decode(index, self.ms), self.ms), self.ms), self.ms)


class AugmentedStream(IterableDataset[Any]):
    """The same from `shards`, each of which only one worker reads."""

    def __init__(self, steps: float, shards: int, samples: int = BATCHES) -> None:
        self.ms = steps * STEP_MS / 4
        self.shards = shards
        self.samples = samples

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for shard in range(first, self.shards, workers):
            for index in range(shard, self.samples, self.shards):
                sample = resize(decode(index, self.ms), self.ms)
                yield normalise(crop(sample, self.ms), self.ms)


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


class Spectrograms(Dataset[Any]):
    """Products that torch computes with as many threads as it may use."""

    def __init__(self, times: int) -> None:
        self.matrix = torch.full((SIDE, SIDE), 1 / SIDE)
        self.times = times

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        product = self.matrix
        for _ in range(self.times):
            product = torch.tanh(torch.mm(product, self.matrix))
        return product[index % SIDE][:64].clone()


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


def beside_others(processes: int, steps: float) -> Training:
    return train(Augmented(steps), batch_size=1, close=Busy(processes).close)


def one_cpu() -> int:
    return max(os.sched_getaffinity(0))


def all_on_one_cpu(_worker: int) -> None:
    os.sched_setaffinity(0, {one_cpu()})


def bound_and_freed(worker: int) -> None:
    all_on_one_cpu(worker)
    use_all_cpus()


def use_all_cpus() -> None:
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


def on_one_cpu(*, is_freed: bool = False) -> Training:
    """Training is bound to a CPU before its workers start, as by a library at its import."""
    os.sched_setaffinity(0, {one_cpu()})
    if is_freed:
        use_all_cpus()
    return train(Augmented(0.6), batch_size=1, close=use_all_cpus)


def second_on_one_cpu(worker: int) -> None:
    if worker == 1:
        os.sched_setaffinity(0, {one_cpu()})


def pinned(busy: int, init: Callable[[int], None] = second_on_one_cpu) -> Training:
    """The second of two workers is bound to a CPU, which `busy` other programs use."""
    return train(
        Augmented(0.6),
        batch_size=1,
        workers=2,
        worker_init_fn=init,
        close=Busy(busy, one_cpu()).close,
    )


class Packed(IterableDataset[Any]):
    """A shard for each worker; that of worker 1 may be packed harder."""

    def __init__(self, *, harder: bool) -> None:
        noise = np.random.default_rng(0).integers(0, 24, 1100 * 1024, dtype=np.uint8).tobytes()
        easy = (zlib.compress(noise, 1), zlib.decompress)
        hard = (lzma.compress(noise, preset=1), lzma.decompress)
        self.shards: list[tuple[bytes, Callable[[bytes], bytes]]] = [
            easy,
            hard if harder else easy,
        ]

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        blob, unpack = self.shards[worker.id if worker else 0]
        for _ in range(BATCHES // 2):
            yield torch.frombuffer(bytearray(unpack(blob)[:64]), dtype=torch.uint8)


class Catalogue(Dataset[Any]):
    """A data set with a list of files, which a spawned worker is sent object by object."""

    def __init__(self, files: int, samples: int) -> None:
        self.files = [(f"images/{number:06}.jpg", number) for number in range(files)]
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return self.files[index][1]


class Annotations(Dataset[Any]):
    """Boxes of images, each an object of Python's, which a spawned worker is sent one by one."""

    def __init__(self, images: int, samples: int) -> None:
        self.boxes = [
            {"image": number, "category": number % 80, "box": [number / 2, number / 4, 10.0, 20.0]}
            for number in range(images)
        ]
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        return self.boxes[index]["box"]


class MappedAnnotations(Dataset[Any]):
    """The same in a file, which each worker maps into memory once it reads."""

    def __init__(self, folder: Path, images: int, samples: int) -> None:
        self.path = folder / "boxes.npy"
        self.boxes: np.ndarray[Any, Any] | None = None
        self.samples = samples
        number = np.arange(images)
        sides = [number / 2, number / 4, np.full(images, 10.0), np.full(images, 20.0)]
        np.save(self.path, np.stack(sides, axis=1))

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        if self.boxes is None:
            self.boxes = np.load(self.path, mmap_mode="r")
        return self.boxes[index]


VOCABULARY = json.dumps({f"word {number}": number for number in range(250_000)})


def load_vocabulary(_worker: int) -> None:
    json.loads(VOCABULARY)


class Remembering(Dataset[Any]):
    """Keeps what it has decoded, in each worker."""

    def __init__(self, samples: int, *, keeps: bool) -> None:
        self.image: Image.Image = photographs()[0]
        self.seen: dict[int, np.ndarray[Any, Any]] = {}
        self.samples = samples
        self.keeps = keeps

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        pixels = np.array(self.image)
        if self.keeps:
            self.seen[index] = pixels
        return int(pixels[0, 0, 0])


def short_epochs(dataset: Any, *, persistent: bool, workers: int = 1) -> Training:
    return train(
        dataset,
        batch_size=1,
        workers=workers,
        epochs=2,
        multiprocessing_context="spawn",
        persistent_workers=persistent,
    )


def with_vocabulary(*, persistent: bool) -> Training:
    return train(
        Augmented(0.5, 30),
        batch_size=1,
        epochs=6,
        worker_init_fn=load_vocabulary,
        persistent_workers=persistent,
    )


PROGRAMS = (
    Program(
        "no workers",
        "zero workers",
        "num_workers",
        faulty=lambda _: train(Augmented(0.75), batch_size=1, workers=0),
        healthy=lambda _: train(Augmented(0.75), batch_size=1, workers=2),
    ),
    Program(
        "a stream without workers",
        "zero workers",
        "num_workers",
        faulty=lambda _: train(AugmentedStream(1.0, shards=4), batch_size=1, workers=0),
        healthy=lambda _: train(AugmentedStream(1.0, shards=4), batch_size=1, workers=2),
    ),
    Program(
        "one worker for the work of two",
        "capacity",
        "num_workers",
        faulty=lambda _: train(Augmented(1.6), batch_size=1, workers=1),
        healthy=lambda _: train(Augmented(1.6), batch_size=1, workers=3),
        cpus=4,
    ),
    Program(
        "one persistent worker for a stream of six shards",
        "capacity",
        "num_workers",
        faulty=lambda _: train(
            AugmentedStream(1.6, shards=6), batch_size=1, workers=1, persistent_workers=True
        ),
        healthy=lambda _: train(
            AugmentedStream(1.6, shards=6), batch_size=1, workers=3, persistent_workers=True
        ),
        cpus=4,
    ),
    Program(
        "fewer shards than workers",
        "few shards",
        "shard",
        faulty=lambda _: train(AugmentedStream(1.6, shards=1), batch_size=1, workers=3),
        healthy=lambda _: train(AugmentedStream(1.6, shards=3), batch_size=1, workers=3),
        cpus=4,
        fault_cpus=4,
    ),
    Program(
        "four threads in each worker",
        "oversubscription",
        "set_num_threads",
        faulty=lambda _: train(
            Spectrograms(60), batch_size=1, workers=2, worker_init_fn=with_all_threads
        ),
        healthy=lambda _: train(Spectrograms(40), batch_size=1, workers=2),
        fixed=lambda _: train(Spectrograms(60), batch_size=1, workers=2),
    ),
    Program(
        "six workers for each CPU",
        "oversubscription",
        "num_workers",
        faulty=lambda _: train(Augmented(0.9 * CPUS), batch_size=1, workers=6 * CPUS),
        healthy=lambda _: train(Augmented(0.35 * CPUS), batch_size=1, workers=CPUS - 1),
        fixed=lambda _: train(Augmented(0.9 * CPUS), batch_size=1, workers=CPUS),
    ),
    Program(
        "other programs on all CPUs",
        "oversubscription",
        "",
        faulty=lambda _: beside_others(CPUS, steps=0.35 * CPUS),
        healthy=lambda _: beside_others(0, steps=0.35 * CPUS),
    ),
    Program(
        "training bound to a CPU at an import",
        "confined workers",
        "affinity",
        faulty=lambda _: on_one_cpu(),
        healthy=lambda _: train(Augmented(0.6), batch_size=1),
        fixed=lambda _: on_one_cpu(is_freed=True),
        cpus=3,
        fault_cpus=2,
    ),
    Program(
        "all workers bound to one CPU",
        "confined workers",
        "worker_init_fn",
        faulty=lambda _: train(Augmented(1.6), batch_size=1, worker_init_fn=all_on_one_cpu),
        healthy=lambda _: train(Augmented(1.6), batch_size=1),
        fixed=lambda _: train(Augmented(1.6), batch_size=1, worker_init_fn=bound_and_freed),
        cpus=4,
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
        "spawn, and a long list of files",
        "worker start",
        "persistent_workers",
        faulty=lambda _: short_epochs(Catalogue(200_000, 80), persistent=False),
        healthy=lambda _: short_epochs(Catalogue(300, 80), persistent=True),
        fixed=lambda _: short_epochs(Catalogue(200_000, 80), persistent=True),
    ),
    Program(
        "spawn, and annotations in memory",
        "worker start",
        "dataset small",
        faulty=lambda _: short_epochs(Annotations(BOXES, 80), persistent=False, workers=2),
        healthy=lambda folder: short_epochs(
            MappedAnnotations(folder, BOXES, 80), persistent=True, workers=2
        ),
        fixed=lambda folder: short_epochs(
            MappedAnnotations(folder, BOXES, 80), persistent=False, workers=2
        ),
        follows="smaller_dataset",
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
        "try persistent_workers",
        faulty=lambda _: with_vocabulary(persistent=False),
        healthy=lambda _: with_vocabulary(persistent=True),
        looks_inside=False,
    ),
    Program(
        "an iterator for each batch",
        "loader re-created",
        "iter",
        faulty=lambda _: train(Augmented(0.5), batch_size=1, workers=1, fresh=75),
        healthy=lambda _: train(Augmented(0.5), batch_size=1, workers=1),
    ),
    Program(
        "workers that keep what they read",
        "worker memory",
        "",
        faulty=lambda _: train(Remembering(1800, keeps=True), batch_size=4),
        healthy=lambda _: train(Remembering(1800, keeps=False), batch_size=4),
        costs_time=False,
    ),
)
