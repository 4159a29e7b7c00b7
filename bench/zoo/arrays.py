"""Arrays: in files and tables that are slow to read by sample, slow to collate or to pass on."""

import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import default_collate

from bench.zoo.programs import BATCHES, SAMPLES, Program, Samples, Stream, Training, stacked, train

FILES = 8
ROW = 64
"""The numbers of a sample."""
KEPT = 16
"""Different samples in memory; they come again and again."""


def noise(*shape: int) -> Any:
    """Numbers that can be compressed."""
    return np.random.default_rng(0).integers(0, 24, shape, dtype=np.uint8)


def drawn(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def archives(folder: Path, *, faulty: bool) -> Training:
    """Arrays of 128 KB, a file for each scan, compressed or not; a sample uses some of it."""
    for number, scan in enumerate(noise(FILES, 128, 1024)):
        if faulty:
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

    return train(Samples(from_archive if faulty else from_map))


def compressed(_: Path, *, faulty: bool) -> Training:
    rows = [row.tobytes() for row in noise(KEPT, 320 * 1024)]
    blobs = list(map(zlib.compress, rows)) if faulty else rows

    def unpack(blob: bytes) -> bytes:
        return zlib.decompress(blob)

    def read(index: int) -> torch.Tensor:
        blob = blobs[index % KEPT]
        values = unpack(blob) if faulty else blob
        return torch.frombuffer(bytearray(values), dtype=torch.uint8)[::256]

    return train(Samples(read))


def table(_: Path, *, faulty: bool) -> Training:
    """Rows of a table, selected in a DataFrame or in arrays of its columns; 600 in a batch."""
    rows = np.arange(BATCHES * 600)
    frame = pd.DataFrame({"age": rows, "height": rows / 2, "name": "somebody"})
    ages, heights = frame["age"].to_numpy(), frame["height"].to_numpy()

    def select(index: int) -> Any:
        return np.array((frame.iloc[index]["age"], frame.iloc[index]["height"]))

    def of_columns(index: int) -> Any:
        return np.array((ages[index], heights[index]))

    return train(Samples(select if faulty else of_columns, len(rows)), batch_size=600)


def row_groups(folder: Path, *, faulty: bool) -> Training:
    """A column of a Parquet file of many rows in a group, of which a sample is one."""
    rows = 1600 if faulty else 1
    values = pa.FixedSizeListArray.from_arrays(drawn(SAMPLES, 256).ravel(), 256)
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"values": values}), path, row_group_size=rows)
    opened: list[Any] = []

    def read_row(index: int) -> Any:
        if not opened:
            opened.append(pq.ParquetFile(path))
        group = opened[0].read_row_group(index // rows, use_threads=False)
        return np.array(group["values"][index % rows].as_py()[:ROW])

    return train(Samples(read_row))


def clouds(_: Path, *, faulty: bool) -> Training:
    """A stream of clouds of points."""
    kept = torch.rand(KEPT, 200, 3, generator=torch.Generator().manual_seed(0))
    collate = nearest_neighbours if faulty else stacked
    return train(Stream(lambda index: kept[index % KEPT]), collate_fn=collate)


def nearest_neighbours(clouds: list[torch.Tensor]) -> Any:
    """For each point which one is nearest to it."""
    points = torch.stack(clouds)
    return torch.cdist(points, points).argsort(-1)[..., 1].numpy()


def volumes(_: Path, values: int, collate: Callable[[list[Any]], Any] = stacked) -> Training:
    """Big arrays, which cost nothing to get."""
    kept = drawn(KEPT, values)
    return train(Samples(lambda index: kept[index % KEPT]), collate_fn=collate)


def as_tensors(volumes: list[Any]) -> torch.Tensor:
    """Written into shared memory, as PyTorch's own collate function does."""
    batch = torch.empty(len(volumes), *volumes[0].shape)
    batch.share_memory_()  # type: ignore[no-untyped-call]
    np.stack(volumes, out=batch.numpy())
    return batch


def columns(_: Path, *, faulty: bool) -> Training:
    """Many small columns for each sample, or one array of them."""

    def read(index: int) -> Any:
        if not faulty:
            return np.arange(index, index + 40, dtype=np.float64)
        return {f"column {column}": float(index + column) for column in range(40)}

    return train(Samples(read), collate_fn=default_collate if faulty else stacked)


def words(_: Path, strategy: str = "") -> Training:
    """A stream of whole batches of a few small tensors, or of one array with as many rows.

    Tensors are passed by that strategy of torch's, until training is closed.
    """

    def read(index: int) -> Any:
        batch = [torch.full((8,), float(index + number)) for number in range(4)]
        return batch if strategy else torch.stack(batch).numpy()

    sharing: Any = torch.multiprocessing
    before = sharing.get_sharing_strategy()
    sharing.set_sharing_strategy(strategy or before)
    close = partial(sharing.set_sharing_strategy, before)
    return train(Stream(read, 2 * BATCHES), batch_size=None, step_ms=6.0, close=close)


LARGE = 80 * 1024
PROGRAMS = {
    "archives that are unpacked for each sample": Program("data format", "mmap_mode", archives),
    "compressed arrays": Program("data format", "unpack", compressed),
    "rows of a DataFrame": Program("data format", "to_numpy", table),
    "a row group of Parquet for each row": Program("data format", "row group", row_groups),
    "neighbours of points when a stream is collated": Program(
        "slow collate", "nearest_neighbours", clouds
    ),
    "NumPy arrays through the pipe": Program(
        "transfer", "", volumes, {"values": LARGE}, {"values": 512}, {"collate": as_tensors}
    ),
    "a dict of 40 tensors": Program("transfer", "", columns),
    "four small tensors a batch": Program(
        "transfer",
        "however small",
        words,
        {"strategy": "file_descriptor"},
        {},
        {"strategy": "file_system"},
        "larger batches",
    ),
}
