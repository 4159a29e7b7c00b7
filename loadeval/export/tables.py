"""A run as tables, batches, system metrics and the loader's stages, in CSV or Parquet."""

from __future__ import annotations

import csv
import json
from dataclasses import fields
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.log_file.codec import encode
from loadeval.runlog.model import ARMS, COLUMNS
from loadeval.runlog.stages import StageTimes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from loadeval.export.files import NewFiles
    from loadeval.runlog.columns import Column, Values
    from loadeval.runlog.model import Readings, Run, Steps

BATCH_COLUMNS = ("epoch", "batch", "arm", "pair", *COLUMNS, "gpu_idle_ns")
"""The columns of the first table."""
READING_COLUMNS = ("probe", "subject", "quantity", "time_ns", "value")
"""The columns of the second table."""
STAGE_COLUMNS = (
    "epoch",
    *(column.name for column in fields(StageTimes) if column.type == "Column"),
)
"""The columns of the third table."""
CHUNK = 50_000
"""How many batches to convert at a time."""


def write_csv(run: Run, path: Path, files: NewFiles) -> None:
    """Write batches to `path`, other tables beside it; unknown is empty."""
    batches, readings = files.part(path), files.part(readings_path(path))
    _write_rows(batches, BATCH_COLUMNS, _batch_rows(run.steps))
    _write_rows(readings, READING_COLUMNS, _reading_rows(run))
    if run.stages:
        _write_rows(files.part(stages_path(path)), STAGE_COLUMNS, _stage_rows(run))


def _write_rows(path: Path, names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)


def _batch_rows(steps: Steps) -> Iterator[Iterable[Any]]:
    columns = _batch_columns(steps)
    for start in range(0, len(steps), CHUNK):
        part = {name: column[start : start + CHUNK].tolist() for name, column in columns.items()}
        cells = {
            name: ["" if value == UNKNOWN else value for value in values]
            for name, values in part.items()
        }
        cells["arm"] = [ARMS[code] for code in part["arm"]]
        yield from zip(*cells.values(), strict=True)


def _stage_rows(run: Run) -> Iterator[Iterable[Any]]:
    for times in run.stages:
        columns = [column.tolist() for column in _stage_columns(times).values()]
        for row in zip(*columns, strict=True):
            yield ["" if value == UNKNOWN else value for value in row]


def _reading_rows(run: Run) -> Iterator[Iterable[Any]]:
    for readings, quantity, values in reading_series(run):
        for time_ns, value in zip(readings.time_ns.tolist(), values.tolist(), strict=True):
            yield (
                readings.probe,
                readings.subject,
                quantity,
                time_ns,
                value if isfinite(value) else "",
            )


def write_parquet(run: Run, path: Path, files: NewFiles) -> None:
    """Write batches to `path`, other tables beside it; unknown is null.

    The metadata of all has the run log's header, as JSON, under the key `loadeval`.
    """
    import pyarrow as pa  # noqa: PLC0415 - only for this format
    import pyarrow.parquet as pq  # noqa: PLC0415 - only for this format

    parts = files.part(path), files.part(readings_path(path))
    header = {"loadeval": json.dumps(encode(run.header), default=np.generic.item)}
    columns = _batch_columns(run.steps)
    arrays = _masked(columns)
    arrays["arm"] = pa.array(ARMS).take(arrays["arm"])
    with parts[0].open("wb") as file:
        pq.write_table(pa.table(arrays).replace_schema_metadata(header), file)
    if run.stages:
        stages = [pa.table(_masked(_stage_columns(times))) for times in run.stages]
        table = pa.concat_tables(stages).replace_schema_metadata(header)
        with files.part(stages_path(path)).open("wb") as file:
            pq.write_table(table, file)
    types = (pa.string(), pa.string(), pa.string(), pa.int64(), pa.float64())
    schema = pa.schema(zip(READING_COLUMNS, types, strict=True)).with_metadata(header)
    with parts[1].open("wb") as file, pq.ParquetWriter(file, schema) as writer:
        for readings, quantity, values in reading_series(run):
            texts = [
                pa.repeat(name, len(readings))
                for name in (readings.probe, readings.subject, quantity)
            ]
            known = pa.array(values, pa.float64(), mask=~np.isfinite(values))
            writer.write_table(pa.table([*texts, pa.array(readings.time_ns), known], schema=schema))


def _batch_columns(steps: Steps) -> dict[str, Column]:
    """The columns of the first table; `arm` is an index into ARMS, UNKNOWN is -1."""
    return {name: getattr(steps, name) for name in BATCH_COLUMNS}


def _stage_columns(times: StageTimes) -> dict[str, Column]:
    """The columns of the third table, of one epoch."""
    epoch = np.full(len(times), times.epoch)
    return {"epoch": epoch, **{name: getattr(times, name) for name in STAGE_COLUMNS[1:]}}


def _masked(columns: Mapping[str, Column]) -> dict[str, Any]:
    """Arrow's arrays, in which what is UNKNOWN is null."""
    import pyarrow as pa  # noqa: PLC0415 - only for this format

    return {name: pa.array(column, mask=column == UNKNOWN) for name, column in columns.items()}


def reading_series(run: Run) -> Iterator[tuple[Readings, str, Values]]:
    """All system metrics: of what, the name of the quantity, its values; unknown is not finite."""
    for readings in run.readings:
        for quantity, values in readings.values.items():
            yield readings, quantity, values


def readings_path(path: Path) -> Path:
    """Where the second table is, next to the first one at `path`."""
    return path.with_name(f"{path.stem}-readings{path.suffix}")


def stages_path(path: Path) -> Path:
    """Where the third table is."""
    return path.with_name(f"{path.stem}-stages{path.suffix}")
