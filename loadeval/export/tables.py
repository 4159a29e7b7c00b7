"""A run as tables, batches, system metrics and the loader's stages, in CSV."""

from __future__ import annotations

import csv
from math import isfinite
from typing import TYPE_CHECKING, Any

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.lines import Block
from loadeval.data.run import ARMS, STAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from loadeval.data.run import Run
    from loadeval.export.files import NewFiles

BATCH_COLUMNS = ("epoch", "batch", "arm", "pair", *Block.COLUMNS, "gpu_idle_ns")
"""The columns of the first table."""
READING_COLUMNS = ("probe", "subject", "quantity", "time_ns", "value")
"""The columns of the second table."""
CHUNK = 50_000
"""How many batches to convert at a time."""


def write_csv(run: Run, path: Path, files: NewFiles) -> None:
    """Write batches to `path`, other tables beside it; unknown is empty."""
    batches = files.part(path)
    readings = files.part(path.with_name(f"{path.stem}-readings{path.suffix}"))
    _write_rows(batches, BATCH_COLUMNS, _batch_rows(run.steps))
    _write_rows(readings, READING_COLUMNS, _reading_rows(run))
    if run.stages:
        stages = files.part(path.with_name(f"{path.stem}-stages{path.suffix}"))
        _write_rows(stages, STAGES, _stage_rows(run))


def _write_rows(path: Path, names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)


def _batch_rows(steps: Columns) -> Iterator[Iterable[Any]]:
    for start in range(0, len(steps), CHUNK):
        part = {
            name: getattr(steps, name)[start : start + CHUNK].tolist() for name in BATCH_COLUMNS
        }
        cells = {
            name: ["" if value == UNKNOWN else value for value in values]
            for name, values in part.items()
        }
        cells["arm"] = [ARMS[code] for code in part["arm"]]
        yield from zip(*cells.values(), strict=True)


def _stage_rows(run: Run) -> Iterator[Iterable[Any]]:
    for row in zip(*(run.stages[name].tolist() for name in STAGES), strict=True):
        yield ["" if value == UNKNOWN else value for value in row]


def _reading_rows(run: Run) -> Iterator[Iterable[Any]]:
    for key, read in run.readings.items():
        for quantity in read.names[1:]:
            rows = zip(read.time_ns.tolist(), read[quantity].tolist(), strict=True)
            for time_ns, value in rows:
                yield (*key, quantity, time_ns, value if isfinite(value) else "")
