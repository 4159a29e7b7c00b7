"""Arrays: in files and tables that are slow to read by sample, slow to collate or to pass on."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import default_collate

from bench.zoo.programs import BATCHES, SAMPLES, Program, Samples, Stream, Training, stacked, train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

FILES = 8
ROW = 64
"""The numbers of a sample."""
ROWS = 600
"""Rows of a table in a batch."""
COLUMNS = 256
"""The numbers in a row of a Parquet file."""
BYTES = 16_384
"""Those in a row of an HDF5 file."""
KEPT = 16
"""Different samples in memory; they come again and again."""


def noise(*shape: int) -> npt.NDArray[np.uint8]:
    """Numbers that can be compressed."""
    return np.random.default_rng(0).integers(0, 24, shape, dtype=np.uint8)


def drawn(*shape: int) -> Floats:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def archives(folder: Path, *, packed: bool) -> Training:
    """Arrays of 128 KB, a file for each scan, compressed or not; a sample uses some of it."""
    for number, scan in enumerate(noise(FILES, 128, 1024)):
        if packed:
            np.savez_compressed(folder / f"{number}.npz", scan=scan)
        else:
            np.save(folder / f"{number}.npy", scan)

    def from_archive(index: int) -> Any:
        with np.load(folder / f"{index % FILES}.npz") as archive:
            return archive["scan"][index % 128, :ROW].copy()

    maps: dict[int, Any] = {}

    def from_map(index: int) -> Any:
        number = index % FILES
        if number not in maps:
            maps[number] = np.load(folder / f"{number}.npy", mmap_mode="r")
        return np.array(maps[number][index % 128, :ROW])

    return train(Samples(from_archive if packed else from_map))


def shards(folder: Path, *, whole: bool) -> Training:
    """Shards of 12 MB, of which a sample is one row."""
    shard = np.random.default_rng(0).random((1000, 1500), dtype=np.float64)
    for number in range(FILES):
        np.save(folder / f"{number}.npy", shard)
    maps = [np.load(folder / f"{number}.npy", mmap_mode="r") for number in range(FILES)]

    def read_shard(index: int) -> Any:
        shard = np.load(folder / f"{index % FILES}.npy")
        return shard[index % 1000, :ROW].copy()

    def read_map(index: int) -> Any:
        return np.array(maps[index % FILES][index % 1000, :ROW])

    return train(Samples(read_shard if whole else read_map))


def compressed(*, packed: bool) -> Training:
    rows = noise(KEPT, 320 * 1024)
    blobs = [zlib.compress(row.tobytes()) if packed else row.tobytes() for row in rows]

    def read(index: int) -> torch.Tensor:
        blob = blobs[index % KEPT]
        values = unpack(blob) if packed else blob
        return torch.frombuffer(bytearray(values), dtype=torch.uint8)[::256]

    return train(Samples(read))


def unpack(blob: bytes) -> bytes:
    return zlib.decompress(blob)


def table(*, by_row: bool) -> Training:
    """Rows of a table, selected in a DataFrame or in arrays of its columns."""
    rows = np.arange(BATCHES * ROWS)
    frame = pd.DataFrame({"age": rows, "height": rows / 2, "name": "somebody"})
    ages, heights = frame["age"].to_numpy(), frame["height"].to_numpy()

    def select(index: int) -> Any:
        return np.array((frame.iloc[index]["age"], frame.iloc[index]["height"]))

    def of_columns(index: int) -> Any:
        return np.array((ages[index], heights[index]))

    return train(Samples(select if by_row else of_columns, len(rows)), batch_size=ROWS)


def lists(*, as_array: bool) -> Training:
    """A signal of 6,000 numbers a sample, as a list or as an array."""
    draw = random.Random(0)
    signals = [[draw.random() for _ in range(6000)] for _ in range(FILES)]
    arrays = np.array(signals, dtype=np.float32)

    def from_list(index: int) -> Any:
        return torch.tensor(signals[index % FILES])[:ROW]

    def from_array(index: int) -> Any:
        return torch.from_numpy(arrays[index % FILES])[:ROW]

    return train(Samples(from_array if as_array else from_list))


def row_groups(folder: Path, rows: int) -> Training:
    """A column of a Parquet file of so many rows in a group, of which a sample is one."""
    values = pa.FixedSizeListArray.from_arrays(drawn(SAMPLES, COLUMNS).ravel(), COLUMNS)
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"values": values}), path, row_group_size=rows)
    opened: list[Any] = []

    def read_row(index: int) -> Any:
        if not opened:
            opened.append(pq.ParquetFile(path))
        group = opened[0].read_row_group(index // rows, use_threads=False)
        return np.array(group["values"][index % rows].as_py()[:ROW])

    return train(Samples(read_row))


def chunks(folder: Path, rows: int) -> Training:
    """An array of an HDF5 file in compressed chunks of so many rows, of which a sample is one.

    The rows come in random order, and few chunks fit into HDF5's cache, of 1 or 8 MB.
    """
    path = folder / "rows.h5"
    with h5py.File(path, "w") as file:
        values, options = noise(SAMPLES, BYTES), {"compression": "lzf"}
        file.create_dataset("rows", data=values, chunks=(rows, BYTES), **options)
    opened: list[Any] = []

    def read_row(index: int) -> Any:
        if not opened:
            opened.append(h5py.File(path)["rows"])
        return opened[0][index * 7919 % SAMPLES, :ROW]

    return train(Samples(read_row))


def spectra(*, lists: bool) -> Training:
    kept: Any = drawn(KEPT, 90_000)
    kept = kept.tolist() if lists else list(kept)
    return train(Samples(lambda index: kept[index % KEPT]), collate_fn=stack_spectra)


def stack_spectra(spectra: list[Any]) -> Floats:
    return np.stack(spectra)[:, ::300].astype(np.float32)


def clouds(collate: Callable[[list[torch.Tensor]], Any]) -> Training:
    """A stream of clouds of points."""
    kept = torch.rand(KEPT, 200, 3, generator=torch.Generator().manual_seed(0))
    return train(Stream(lambda index: kept[index % KEPT]), collate_fn=collate)


def nearest_neighbours(clouds: list[torch.Tensor]) -> npt.NDArray[np.int64]:
    """For each point which one is nearest to it."""
    points = torch.stack(clouds)
    return torch.cdist(points, points).argsort(-1)[..., 1].numpy()


def points_alone(clouds: list[torch.Tensor]) -> Floats:
    return torch.stack(clouds).numpy()


def volumes(values: int, collate: Callable[[list[Floats]], Any] = stacked) -> Training:
    """Big arrays, which cost nothing to get."""
    kept = drawn(KEPT, values)
    return train(Samples(lambda index: kept[index % KEPT]), collate_fn=collate)


def as_tensors(volumes: list[Floats]) -> torch.Tensor:
    """Written into shared memory, as PyTorch's own collate function does."""
    batch = torch.empty(len(volumes), *volumes[0].shape)
    batch.share_memory_()  # type: ignore[no-untyped-call]
    np.stack(volumes, out=batch.numpy())
    return batch


def columns_apart(index: int) -> Any:
    """Many small columns for each sample."""
    return {f"column {column}": float(index + column) for column in range(40)}


def columns_together(index: int) -> Any:
    return np.arange(index, index + 40, dtype=np.float64)


def stretches(*, packed: bool) -> Training:
    """A stream of whole batches of sequences of different lengths."""

    def read(index: int) -> Any:
        lengths = [10 + (index + number) % 7 for number in range(48)]
        if packed:
            return np.zeros(sum(lengths), dtype=np.float32), np.array(lengths)
        return [torch.zeros(length) for length in lengths]

    return train(Stream(read, BATCHES), batch_size=None)


def words(*, packed: bool = False, **options: Any) -> Training:
    """A stream of whole batches of a few small tensors, or of one array with as many rows."""

    def read(index: int) -> Any:
        batch = [torch.full((8,), float(index + number)) for number in range(4)]
        return torch.stack(batch).numpy() if packed else batch

    return train(Stream(read, 2 * BATCHES), batch_size=None, step_ms=6.0, **options)


def shared_by(strategy: str) -> Training:
    """A training whose tensors are passed by that strategy of torch's, until it is closed."""
    sharing: Any = torch.multiprocessing
    before = sharing.get_sharing_strategy()
    sharing.set_sharing_strategy(strategy)
    return words(close=partial(sharing.set_sharing_strategy, before))


@dataclass
class Box:
    left: float
    upper: float
    right: float
    lower: float
    label: str


def boxes(collate: Callable[[list[Floats]], Any]) -> Training:
    read = Samples(lambda index: np.full((130, 4), index, dtype=np.float32))
    return train(read, collate_fn=collate)


def as_objects(samples: list[Floats]) -> list[list[Box]]:
    return [
        [Box(left, upper, right, lower, str(left)) for left, upper, right, lower in sample.tolist()]
        for sample in samples
    ]


def as_columns(samples: list[Floats]) -> tuple[Floats, list[str]]:
    return np.stack(samples), [str(sample[0, 0]) for sample in samples]


PROGRAMS = (
    Program(
        "shards that are read whole for each sample",
        "data format",
        "times what it hands out",
        faulty=partial(shards, whole=True),
        healthy=partial(shards, whole=False),
    ),
    Program(
        "archives that are unpacked for each sample",
        "data format",
        "mmap_mode",
        faulty=partial(archives, packed=True),
        healthy=partial(archives, packed=False),
    ),
    Program(
        "compressed arrays",
        "data format",
        "unpack",
        faulty=lambda _: compressed(packed=True),
        healthy=lambda _: compressed(packed=False),
    ),
    Program(
        "rows of a DataFrame",
        "data format",
        "to_numpy",
        faulty=lambda _: table(by_row=True),
        healthy=lambda _: table(by_row=False),
    ),
    Program(
        "lists that become tensors",
        "data format",
        "from_numpy",
        faulty=lambda _: lists(as_array=False),
        healthy=lambda _: lists(as_array=True),
    ),
    Program(
        "a row group of Parquet for each row",
        "data format",
        "row group",
        faulty=partial(row_groups, rows=1600),
        healthy=partial(row_groups, rows=1),
    ),
    Program(
        "a chunk of HDF5 for each row",
        "data format",
        "one sample in a chunk",
        faulty=partial(chunks, rows=24),
        healthy=partial(chunks, rows=1),
    ),
    Program(
        "stacking lists of floats",
        "slow collate",
        "stack_spectra",
        faulty=lambda _: spectra(lists=True),
        healthy=lambda _: spectra(lists=False),
    ),
    Program(
        "neighbours of points when a stream is collated",
        "slow collate",
        "nearest_neighbours",
        faulty=lambda _: clouds(nearest_neighbours),
        healthy=lambda _: clouds(points_alone),
    ),
    Program(
        "NumPy arrays through the pipe",
        "transfer",
        "",
        faulty=lambda _: volumes(80 * 1024),
        healthy=lambda _: volumes(512),
        fixed=lambda _: volumes(80 * 1024, as_tensors),
    ),
    Program(
        "a dict of 40 tensors",
        "transfer",
        "",
        faulty=lambda _: train(Samples(columns_apart), collate_fn=default_collate),
        healthy=lambda _: train(Samples(columns_together)),
    ),
    Program(
        "a list of 48 small tensors from a stream",
        "transfer",
        "",
        faulty=lambda _: stretches(packed=False),
        healthy=lambda _: stretches(packed=True),
    ),
    Program(
        "four small tensors a batch",
        "transfer",
        "however small",
        faulty=lambda _: shared_by("file_descriptor"),
        healthy=lambda _: words(packed=True),
        fixed=lambda _: shared_by("file_system"),
        follows="larger batches",
    ),
    Program(
        "lists of dataclasses",
        "transfer",
        "",
        faulty=lambda _: boxes(as_objects),
        healthy=lambda _: boxes(as_columns),
    ),
)
