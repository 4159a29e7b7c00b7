"""Batches that are slow to collate, or slow to pass from a worker to the training process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

from bench.faults.programs import BATCHES, SIZE, Program, as_it_is, stacked, train
from bench.faults.transforms import photographs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from bench.faults.programs import Training

    Floats = npt.NDArray[np.float32]

KEPT = 16


class Sentences(Dataset[Any]):
    """Lists of numbers of words, of different lengths."""

    def __init__(self, longest: int) -> None:
        draw = np.random.default_rng(0)
        lengths = draw.integers(longest // 2, longest, KEPT).tolist()
        self.sentences = [draw.integers(0, 30_000, length).tolist() for length in lengths]

    def __len__(self) -> int:
        return BATCHES * SIZE

    def __getitem__(self, index: int) -> list[int]:
        return list(self.sentences[index % KEPT])


def pad_word_by_word(sentences: list[list[int]]) -> npt.NDArray[np.int32]:
    longest = max(map(len, sentences))
    padded = torch.zeros(len(sentences), longest, dtype=torch.int32)
    for row, sentence in enumerate(sentences):
        for column, word in enumerate(sentence):
            padded[row, column] = word
    return padded.numpy()[:, ::4]


def pad_by_rows(sentences: list[list[int]]) -> npt.NDArray[np.int32]:
    longest = max(map(len, sentences))
    padded = np.zeros((len(sentences), longest), dtype=np.int32)
    for row, sentence in zip(padded, sentences, strict=True):
        row[: len(sentence)] = sentence
    return padded[:, ::4]


class Spectra(Dataset[Any]):
    def __init__(self, *, lists: bool) -> None:
        drawn = np.random.default_rng(0).random((KEPT, 90_000), dtype=np.float32)
        self.spectra: list[Any] = drawn.tolist() if lists else list(drawn)

    def __len__(self) -> int:
        return BATCHES * SIZE

    def __getitem__(self, index: int) -> Any:
        return self.spectra[index % KEPT]


def stack_spectra(spectra: list[Any]) -> Floats:
    return np.stack(spectra)[:, ::300].astype(np.float32)


class Clouds(IterableDataset[Any]):
    """Clouds of points."""

    def __init__(self, points: int) -> None:
        self.clouds = torch.rand(KEPT, points, 3, generator=torch.Generator().manual_seed(0))

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, BATCHES * SIZE, workers):
            yield self.clouds[index % KEPT]


def nearest_neighbours(clouds: list[torch.Tensor]) -> npt.NDArray[np.int64]:
    """For each point which one is nearest to it."""
    points = torch.stack(clouds)
    return torch.cdist(points, points).argsort(-1)[..., 1].numpy()


def points_alone(clouds: list[torch.Tensor]) -> Floats:
    return torch.stack(clouds).numpy()


class Volumes(Dataset[Any]):
    """Big arrays, which cost nothing to get."""

    def __init__(self, values: int) -> None:
        self.volumes = np.random.default_rng(0).random((KEPT, values), dtype=np.float32)

    def __len__(self) -> int:
        return BATCHES * SIZE

    def __getitem__(self, index: int) -> Floats:
        volume: Floats = self.volumes[index % KEPT]
        return volume


def as_tensors(volumes: list[Floats]) -> torch.Tensor:
    """Written into shared memory, as PyTorch's own collate function does."""
    batch = torch.empty(len(volumes), *volumes[0].shape)
    batch.share_memory_()  # type: ignore[no-untyped-call]
    np.stack(volumes, out=batch.numpy())
    return batch


class Tables(Dataset[Any]):
    """Many small columns for each sample."""

    def __init__(self, columns: int, *, apart: bool) -> None:
        self.columns = columns
        self.apart = apart

    def __len__(self) -> int:
        return BATCHES * SIZE

    def __getitem__(self, index: int) -> Any:
        if self.apart:
            return {f"column {column}": float(index + column) for column in range(self.columns)}
        return np.arange(index, index + self.columns, dtype=np.float64)


class Stretches(IterableDataset[Any]):
    """Sequences of different lengths, whole batches of them."""

    def __init__(self, count: int, *, packed: bool) -> None:
        self.count = count
        self.packed = packed

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, BATCHES, workers):
            lengths = [10 + (index + number) % 7 for number in range(self.count)]
            if self.packed:
                yield np.zeros(sum(lengths), dtype=np.float32), np.array(lengths)
            else:
                yield [torch.zeros(length) for length in lengths]


class Words(IterableDataset[Any]):
    """Whole batches of a few small tensors, or of one array with as many rows."""

    def __init__(self, *, packed: bool = False) -> None:
        self.packed = packed

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, 2 * BATCHES, workers):
            batch = [torch.full((8,), float(index + number)) for number in range(4)]
            yield torch.stack(batch).numpy() if self.packed else batch


def shared_by(strategy: str) -> Training:
    """A training whose tensors are passed by that strategy of torch's, until it is closed."""
    sharing: Any = torch.multiprocessing
    before = sharing.get_sharing_strategy()
    sharing.set_sharing_strategy(strategy)
    close = partial(sharing.set_sharing_strategy, before)
    return train(Words(), batch_size=None, step_ms=6.0, close=close)


class Pictures(Dataset[Any]):
    def __init__(self, side: int, *, packed: bool) -> None:
        self.images = [image.resize((side, side)) for image in photographs()]
        self.tensors = [torch.from_numpy(np.array(image)) for image in self.images]
        self.packed = packed

    def __len__(self) -> int:
        return BATCHES * SIZE

    def __getitem__(self, index: int) -> Any:
        return (self.tensors if self.packed else self.images)[index % KEPT]


@dataclass
class Box:
    left: float
    upper: float
    right: float
    lower: float
    label: str


class Annotations(Dataset[Any]):
    def __init__(self, boxes: int) -> None:
        self.boxes = boxes

    def __len__(self) -> int:
        return BATCHES * SIZE

    def __getitem__(self, index: int) -> Floats:
        return np.full((self.boxes, 4), index, dtype=np.float32)


def as_objects(samples: list[Floats]) -> list[list[Box]]:
    return [
        [Box(left, upper, right, lower, str(left)) for left, upper, right, lower in sample.tolist()]
        for sample in samples
    ]


def as_columns(samples: list[Floats]) -> tuple[Floats, list[str]]:
    return np.stack(samples), [str(sample[0, 0]) for sample in samples]


PROGRAMS = (
    Program(
        "padding word by word",
        "slow collate",
        "pad_word_by_word",
        faulty=lambda _: train(Sentences(900), collate_fn=pad_word_by_word),
        healthy=lambda _: train(Sentences(900), collate_fn=pad_by_rows),
    ),
    Program(
        "stacking lists of floats",
        "slow collate",
        "stack_spectra",
        faulty=lambda _: train(Spectra(lists=True), collate_fn=stack_spectra),
        healthy=lambda _: train(Spectra(lists=False), collate_fn=stack_spectra),
    ),
    Program(
        "neighbours of points when a stream is collated",
        "slow collate",
        "nearest_neighbours",
        faulty=lambda _: train(Clouds(200), collate_fn=nearest_neighbours),
        healthy=lambda _: train(Clouds(200), collate_fn=points_alone),
    ),
    Program(
        "NumPy arrays through the pipe",
        "transfer",
        "",
        faulty=lambda _: train(Volumes(80 * 1024), collate_fn=stacked),
        healthy=lambda _: train(Volumes(512), collate_fn=stacked),
        fixed=lambda _: train(Volumes(80 * 1024), collate_fn=as_tensors),
    ),
    Program(
        "a dict of 40 tensors",
        "transfer",
        "",
        faulty=lambda _: train(Tables(40, apart=True), collate_fn=default_collate),
        healthy=lambda _: train(Tables(40, apart=False)),
    ),
    Program(
        "a list of 48 small tensors from a stream",
        "transfer",
        "",
        faulty=lambda _: train(Stretches(48, packed=False), batch_size=None),
        healthy=lambda _: train(Stretches(48, packed=True), batch_size=None),
    ),
    Program(
        "four small tensors a batch",
        "transfer",
        "whatever its size",
        faulty=lambda _: shared_by("file_descriptor"),
        healthy=lambda _: train(Words(packed=True), batch_size=None, step_ms=6.0),
        fixed=lambda _: shared_by("file_system"),
        follows="send_less_often",
    ),
    Program(
        "a list of PIL images",
        "transfer",
        "",
        faulty=lambda _: train(Pictures(256, packed=False), collate_fn=as_it_is),
        healthy=lambda _: train(Pictures(32, packed=True)),
        fixed=lambda _: train(Pictures(256, packed=True), collate_fn=default_collate),
    ),
    Program(
        "lists of dataclasses",
        "transfer",
        "",
        faulty=lambda _: train(Annotations(130), collate_fn=as_objects),
        healthy=lambda _: train(Annotations(130), collate_fn=as_columns),
    ),
)
