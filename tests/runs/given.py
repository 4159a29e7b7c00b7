"""Logs of runs that were never measured."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns, listed
from loadeval.data.lines import Block, Header, Line, Readings, RunEnd, encode
from loadeval.data.log import RunLog
from loadeval.data.run import ARMS, Run

MS = 1_000_000


def blocks_of(steps: Columns) -> Iterator[Block]:
    """The batches in as few blocks as can be: one for each span of one arm and pair."""
    kinds = [steps[name] for name in ("epoch", "arm", "pair", "instrumented")]
    changes = np.flatnonzero(np.logical_or.reduce([np.diff(kind) != 0 for kind in kinds])) + 1
    for start, stop in pairwise([0, *changes.tolist(), len(steps)]):
        epoch, arm, pair, instrumented = (kind[start].item() for kind in kinds)
        rows = steps.take(slice(start, stop))
        columns = {name: listed(rows[name]) for name in Block.COLUMNS}
        columns |= {name: rows[name].tolist() for name in ("request_ns", "wait_ns")}
        number = None if pair == UNKNOWN else pair
        yield Block(epoch, ARMS[arm], **columns, pair=number, instrumented=instrumented)


def write_run(run: Run, path: Path) -> Path:
    """The run log of `run`: its batches, what was read beside them, and how its epochs ended."""
    lines: list[Line] = [*blocks_of(run.steps)]
    for key, table in run.readings.items():
        values = {name: table[name].tolist() for name in table.names if name != "time_ns"}
        lines.append(Readings(*key, table.time_ns.tolist(), values))
    return write_log(path, run.header, *lines, *run.ends, RunEnd(len(run.steps)))


def write_log(path: Path, header: Header, *lines: Line) -> Path:
    """A run log of these lines."""
    log = RunLog(path, header)
    log.append(b"".join(map(encode, lines)))
    log.close()
    return path
