"""Datasets whose files, or whose rows in memory, are slow to read sample by sample."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import Dataset

from bench.faults.programs import BATCHES, SIZE, Program, train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.faults.programs import Training

SAMPLES = BATCHES * SIZE
FILES = 8
ROW = 64
"""The numbers of a sample."""
ROWS = 600
"""Rows of a table in a batch."""
COLUMNS = 256
"""The numbers in a row of a Parquet file."""
BYTES = 16_384
"""Those in a row of an HDF5 file."""


class Samples(Dataset[Any]):
    def __init__(self, read: Callable[[int], Any]) -> None:
        self.read = read

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return self.read(index)


def archives(folder: Path, *, packed: bool) -> Training:
    """Arrays of 128 KB, a file for each scan, compressed or not; a sample uses some of it."""
    noise = np.random.default_rng(0).integers(0, 24, (FILES, 128, 1024), dtype=np.uint8)
    for number, scan in enumerate(noise):
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


class Table(Dataset[Any]):
    """Rows of a table, selected in a DataFrame or in arrays of its columns."""

    def __init__(self, *, by_row: bool) -> None:
        rows = np.arange(BATCHES * ROWS)
        self.frame = pd.DataFrame({"age": rows, "height": rows / 2, "name": "somebody"})
        self.ages = None if by_row else self.frame["age"].to_numpy()
        self.heights = self.frame["height"].to_numpy()

    def __len__(self) -> int:
        return BATCHES * ROWS

    def __getitem__(self, index: int) -> Any:
        if self.ages is not None:
            return np.array((self.ages[index], self.heights[index]))
        return np.array((self.frame.iloc[index]["age"], self.frame.iloc[index]["height"]))


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
    values = np.random.default_rng(0).random((SAMPLES, COLUMNS), dtype=np.float32)
    table = pa.table({"values": pa.FixedSizeListArray.from_arrays(values.ravel(), COLUMNS)})
    pq.write_table(table, folder / "rows.parquet", row_group_size=rows)
    opened: list[Any] = []

    def read_row(index: int) -> Any:
        if not opened:
            opened.append(pq.ParquetFile(folder / "rows.parquet"))
        group = opened[0].read_row_group(index // rows, use_threads=False)
        return np.array(group["values"][index % rows].as_py()[:ROW])

    return train(Samples(read_row))


def chunks(folder: Path, rows: int) -> Training:
    """An array of an HDF5 file in compressed chunks of so many rows, of which a sample is one.

    The rows come in random order, and few chunks fit into HDF5's cache, of 1 or 8 MB.
    """
    path = folder / "rows.h5"
    values = np.random.default_rng(0).integers(0, 24, (SAMPLES, BYTES), dtype=np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("rows", data=values, chunks=(rows, BYTES), compression="lzf")
    opened: list[Any] = []

    def read_row(index: int) -> Any:
        if not opened:
            opened.append(h5py.File(path)["rows"])
        return opened[0][index * 7919 % SAMPLES, :ROW]

    return train(Samples(read_row))


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


PROGRAMS = (
    Program(
        "shards that are read whole for each sample",
        "data format",
        "times what it hands out",
        faulty=lambda folder: shards(folder, whole=True),
        healthy=lambda folder: shards(folder, whole=False),
    ),
    Program(
        "archives that are unpacked for each sample",
        "data format",
        "mmap_mode",
        faulty=lambda folder: archives(folder, packed=True),
        healthy=lambda folder: archives(folder, packed=False),
    ),
    Program(
        "rows of a DataFrame",
        "data format",
        "to_numpy",
        faulty=lambda _: train(Table(by_row=True), batch_size=ROWS),
        healthy=lambda _: train(Table(by_row=False), batch_size=ROWS),
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
        faulty=lambda folder: row_groups(folder, rows=1600),
        healthy=lambda folder: row_groups(folder, rows=1),
    ),
    Program(
        "a chunk of HDF5 for each row",
        "data format",
        "one sample in a chunk",
        faulty=lambda folder: chunks(folder, rows=24),
        healthy=lambda folder: chunks(folder, rows=1),
    ),
)
