"""The tables of a run as CSV; what is not known is empty."""

from __future__ import annotations

import csv
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.export.tables import READINGS, batch_columns, readings_path, series
from loadeval.runlog.model import ARMS, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from loadeval.export.files import NewFiles
    from loadeval.runlog.model import Column, Run
    from loadeval.runlog.steps import Steps

CHUNK = 50_000
"""Batches that are text in memory at a time."""


def write_csv(run: Run, path: Path, files: NewFiles) -> None:
    """The batches at `path`, and the readings at `readings_path(path)`."""
    batches, readings = files.part(path), files.part(readings_path(path))
    _write(batches, batch_columns(run.steps), _batch_rows(run.steps))
    _write(readings, READINGS, _reading_rows(run))


def _write(path: Path, names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)


def _batch_rows(steps: Steps) -> Iterator[Iterable[Any]]:
    columns = batch_columns(steps)
    for start in range(0, len(steps), CHUNK):
        part = {name: column[start : start + CHUNK] for name, column in columns.items()}
        cells = {name: _cells(column) for name, column in part.items()}
        cells["arm"] = [ARMS[code] for code in part["arm"]]
        yield from zip(*cells.values(), strict=True)


def _cells(column: Column) -> list[Any]:
    values: list[Any] = column.tolist()
    if np.any(column == UNKNOWN):
        return ["" if value == UNKNOWN else value for value in values]
    return values


def _reading_rows(run: Run) -> Iterator[Iterable[Any]]:
    for one in series(run):
        for time_ns, value in zip(one.time_ns.tolist(), one.values.tolist(), strict=True):
            known = value if isfinite(value) else ""
            yield one.probe, one.subject, one.quantity, time_ns, known
