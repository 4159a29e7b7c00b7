"""Runs whose every time is given; nothing is served, and no clock runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadeval.data.columns import UNKNOWN, listed
from loadeval.data.dali import write_metrics
from loadeval.data.lines import Arm, Block, GpuIdle, Header, Line, LoaderInfo, RunEnd, encode
from loadeval.data.log import RunLog
from loadeval.data.run import Run, completed, steps_of
from tests.runs.tables import lines_of, replace, tables

MS = 1_000_000
HEADER = Header(
    run_id="id",
    name="run",
    mode="alternate",
    created="",
    unit="images",
    warmup=1,
    loader=LoaderInfo("loader"),
)


def make_header(**changes: Any) -> Header:
    """A header in which all is known, with `changes`."""
    header = Header(
        run_id="1a2b",
        name="a run",
        mode="log",
        created="2026-01-31T12:00:00+00:00",
        unit="images",
        warmup=1,
        loader=LoaderInfo("torch.utils.data.DataLoader", workers=2, pinned=False),
        settings={"num_cached_batches": 20, "epoch_batches": None},
        environment={"host": "a", "packages": {"numpy": "2.0"}},
    )
    return replace(header, **changes)


def block(
    arm: Arm,
    wait_ns: npt.ArrayLike,
    step_ns: npt.ArrayLike,
    count: int | None = None,
    *,
    request_ns: npt.ArrayLike = UNKNOWN,
    epoch: int = 0,
    pair: int | None = None,
    samples: npt.ArrayLike = UNKNOWN,
    nbytes: npt.ArrayLike = UNKNOWN,
) -> Block:
    """A block of `count` batches: each column has one value for all of them, or one for each.

    One `request_ns` is the first batch's: each other is asked for when the step before it ends.
    """
    given = (request_ns, wait_ns, step_ns, samples, nbytes)
    if count is None:
        count = max(np.size(column) for column in given if np.ndim(column))
    columns = [np.full(count, column, dtype=np.int64) for column in given]
    requests, waits, steps, *_ = columns
    if np.ndim(request_ns) == 0 and request_ns != UNKNOWN:
        requests += np.cumsum(waits + steps) - waits - steps
    gaps = [listed(column) for column in columns[2:]]
    return Block(epoch, arm, requests.tolist(), waits.tolist(), *gaps, pair)


def run_of(blocks: Iterable[Block] = (), *, gpu_idle: Iterable[GpuIdle] = (), **known: Any) -> Run:
    """The run of `blocks`, which alternates unless `mode` is given.

    `known` are fields of the run, in which lines may stand for tables, or of its header, which is
    HEADER but for them.
    """
    header = known.pop("header", HEADER)
    of_header = set(Header.__struct_fields__) & known.keys()
    header = replace(header, **{name: known.pop(name) for name in of_header})
    in_order = sorted(blocks, key=lambda block: block.epoch)
    steps = completed(steps_of(in_order), known.get("ends", ()), [*gpu_idle])
    return Run(header, steps, **tables(known))


def write_run(run: Run, path: Path) -> Path:
    """The run log of `run`, as the recorder would write it."""
    return write_log(path, run.header, *lines_of(run), RunEnd(len(run.steps)))


def save_metrics(run: Run, path: Path) -> None:
    """The metrics file of `run`."""
    lines = run.header, *lines_of(run), RunEnd(len(run.steps))
    write_metrics(run, map(encode, lines), path)


def write_log(path: Path, header: Header, *lines: Line) -> Path:
    """A run log of these lines."""
    log = RunLog(path, header)
    log.append(b"".join(map(encode, lines)))
    log.close()
    return path
