"""Tables of a run, of the lines and rows that tests give; and lines and rows of a run's tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from loadeval.data.columns import UNKNOWN, Columns, listed
from loadeval.data.lines import Block, GpuIdle, Line, Padding, Readings, StageTimes
from loadeval.data.run import ARMS, Run, readings_of, stages_of_lines, table_of


class Rows:
    """What a loader did for some batches of one epoch: arrays, by the names of StageTimes.

    A column that is not given is UNKNOWN, and batches count from 0.
    """

    def __init__(self, epoch: int = 0, **columns: Any) -> None:
        self.epoch = epoch
        for name in StageTimes.BY_NAME:
            given = columns.pop(name, None) or {}
            arrays = {each: np.array(values, dtype=np.float64) for each, values in given.items()}
            setattr(self, name, arrays)
        count = max(map(len, columns.values()), default=0)
        known = {"batch": np.arange(count), **columns}
        assert not known.keys() - set(StageTimes.COLUMNS)
        for name in StageTimes.COLUMNS:
            column = known.get(name)
            unknown = np.full(count, UNKNOWN)
            setattr(self, name, unknown if column is None else np.array(column, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.batch)

    def replace(self, **columns: Any) -> Rows:
        """The same with other columns."""
        return Rows(**{**vars(self), **columns})

    def line(self) -> StageTimes:
        """The same as a line of a log."""
        return StageTimes.of(**vars(self))


def tables(known: dict[str, Any]) -> dict[str, Any]:
    """Fields of a run, with tables where `readings`, `stages` or `padding` are lines or Rows."""
    known = dict(known)
    if not isinstance(known.get("stages", Columns({})), Columns):
        lines = [rows.line() if isinstance(rows, Rows) else rows for rows in known["stages"]]
        known["stages"], known["transforms"], known["sizes"] = stages_of_lines(lines)
    if not isinstance(known.get("readings", {}), Mapping):
        known["readings"], known["missing"] = readings_of(known["readings"])
    if not isinstance(known.get("padding", Columns({})), Columns):
        known["padding"] = table_of(Padding, known["padding"])
    return known


def replace(what: Any, **changes: Any) -> Any:
    """A copy with `changes`, as `copy.replace` of Python 3.13 makes it of anything.

    A run's `readings`, `stages` and `padding` may be given as lines or Rows.
    """
    if isinstance(what, Run):
        return dataclasses.replace(what, **tables(changes))
    if isinstance(what, msgspec.Struct):
        return msgspec.structs.replace(what, **changes)
    if isinstance(what, Columns | Rows):
        return what.replace(**changes)
    return dataclasses.replace(what, **changes)


def blocks_of(steps: Columns) -> list[Block]:
    """The batches in as few blocks as can be: one for each span of one arm and pair."""
    kinds = [steps[name] for name in ("epoch", "arm", "pair", "instrumented")]
    changes = np.flatnonzero(np.logical_or.reduce([np.diff(kind) != 0 for kind in kinds])) + 1
    bounds = pairwise([0, *changes.tolist(), len(steps)] if len(steps) else [])
    blocks = []
    for start, stop in bounds:
        epoch, arm, pair, instrumented = (kind[start].item() for kind in kinds)
        rows = steps.take(slice(start, stop))
        columns = {name: listed(rows[name]) for name in Block.COLUMNS}
        columns |= {name: rows[name].tolist() for name in ("request_ns", "wait_ns")}
        number = None if pair == UNKNOWN else pair
        blocks.append(Block(epoch, ARMS[arm], **columns, pair=number, instrumented=instrumented))
    return blocks


def rows_of(run: Run) -> tuple[Rows, ...]:
    """The stages of the run, one Rows for each epoch."""
    return tuple(_rows(run, epoch, table) for epoch, table in run.stages.by("epoch"))


def _rows(run: Run, epoch: int, table: Columns) -> Rows:
    def spread(of_transform: Columns, name: str) -> np.ndarray:
        of_epoch = of_transform.where(epoch=epoch)
        values = np.full(len(table), np.nan)
        values[np.searchsorted(table.batch, of_epoch.batch)] = of_epoch[name]
        return values

    columns: dict[str, Any] = {name: table[name] for name in StageTimes.COLUMNS}
    for place, name in enumerate(("elements_before", "elements_after")):
        columns[name] = {each: np.full(len(table), size[place]) for each, size in run.sizes.items()}
    return Rows(
        epoch,
        transform_ns={name: spread(each, "ns") for name, each in run.transforms.items()},
        transform_calls={name: spread(each, "calls") for name, each in run.transforms.items()},
        **columns,
    )


def readings_lines(run: Run) -> tuple[Readings, ...]:
    """What was read beside the run, one line for each probe and subject: its columns are arrays."""
    lines = []
    for key in dict.fromkeys([*run.readings, *run.missing]):
        table = run.readings[key]
        values = {name: table[name] for name in table.names if name != "time_ns"}
        lines.append(Readings(*key, table.time_ns, values, run.missing.get(key)))
    return tuple(lines)


def lines_of(run: Run) -> Iterator[Line]:
    """The lines of the run's log, without its header and its end."""
    yield from blocks_of(run.steps)
    yield from run.prefetches
    yield from run.windows
    for epoch, steps in run.steps.by("epoch"):
        columns = [listed(steps[name]) for name in GpuIdle.COLUMNS]
        if columns[0] is not None:
            yield GpuIdle(epoch, 0, *columns)
    for line in readings_lines(run):
        values = {name: listed(column) for name, column in line.values.items()}
        yield replace(line, time_ns=line.time_ns.tolist(), values=values)
    yield from run.ends
    yield from run.events
    for rows in rows_of(run):
        yield rows.line()
    yield from run.worker_starts
    yield from run.code
    yield from run.operators
    for epoch, table in run.padding.by("epoch"):
        yield Padding(epoch, *(table[name].tolist() for name in Padding.COLUMNS))
