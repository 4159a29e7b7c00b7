"""The tables of a run as Parquet; what is not known is null. Imports pyarrow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from loadeval.export.tables import batch_columns, readings_path, series
from loadeval.runlog.lines import encode
from loadeval.runlog.model import ARMS, UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.export.files import NewFiles
    from loadeval.export.tables import Series
    from loadeval.runlog.model import Run
    from loadeval.runlog.steps import Steps

READINGS = pa.schema(
    [
        ("probe", pa.string()),
        ("subject", pa.string()),
        ("quantity", pa.string()),
        ("time_ns", pa.int64()),
        ("value", pa.float64()),
    ]
)


def write_parquet(run: Run, path: Path, files: NewFiles) -> None:
    """The batches at `path`, and the readings at `readings_path(path)`.

    The metadata of both have the run log's header, as JSON, under the key `loadeval`.
    """
    parts = files.part(path), files.part(readings_path(path))
    header = {"loadeval": json.dumps(encode(run.header), default=np.generic.item)}
    with parts[0].open("wb") as file:
        pq.write_table(_batches(run.steps).replace_schema_metadata(header), file)
    schema = READINGS.with_metadata(header)
    with parts[1].open("wb") as file, pq.ParquetWriter(file, schema) as writer:
        for one in series(run):
            writer.write_table(_table(one, schema))


def _batches(steps: Steps) -> Any:
    columns = batch_columns(steps)
    arrays = {name: pa.array(column, mask=column == UNKNOWN) for name, column in columns.items()}
    arrays["arm"] = pa.array(ARMS).take(arrays["arm"])
    return pa.table(arrays)


def _table(one: Series, schema: Any) -> Any:
    count = len(one.time_ns)
    names = [pa.repeat(name, count) for name in (one.probe, one.subject, one.quantity)]
    values = pa.array(one.values, pa.float64(), mask=~np.isfinite(one.values))
    return pa.table([*names, pa.array(one.time_ns), values], schema=schema)
