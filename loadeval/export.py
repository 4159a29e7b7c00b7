"""A run in forms that other tools open: a timeline in the Trace Event Format, or tables in CSV.

What is not known is left out of a timeline, and is an empty cell of a table.
"""

from __future__ import annotations

import csv
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path

import msgspec
import numpy as np

from loadeval.data.columns import UNKNOWN, Column, Columns
from loadeval.data.lines import Block
from loadeval.data.run import ARMS, STAGES, Run
from loadeval.errors import UsageError
from loadeval.estimate.steady import rows_of_epochs
from loadeval.inside.stages import spans

TraceEvent = dict[str, object]
Slice = tuple[int, int, str, TraceEvent]
"""When it begins, how long it takes, its name, and what is known of it; in nanoseconds."""
ENDINGS = {"chrome": ".trace.json", "csv": ".csv"}
BATCHES = ("epoch", "batch", "arm", "pair", *Block.COLUMNS, "gpu_idle_ns")
READINGS = ("probe", "subject", "quantity", "time_ns", "value")
PROCESS = 1


def export_run(run: Run, form: str, path: Path) -> list[Path]:
    """Write `run` to `path`: a timeline of form "chrome", or the first of some tables, "csv".

    Returns the files that were written. Raises UsageError if one exists, if they cannot be written,
    or if a timeline needs times that the run does not have.
    """
    if form == "chrome" and len(run.steps) and (run.steps.request_ns == UNKNOWN).all():
        raise UsageError(
            f"{run.path} has no times at which batches were requested, since DALI's "
            "LoaderEvaluator does not save them, so there is no timeline; export its waits as csv"
        )
    tables: dict[Path, Iterable[Sequence[object]]] = {path: ()}
    if form == "csv":
        steps = run.steps.replace(arm=np.array(ARMS)[run.steps.arm])
        readings = path.parent / f"{path.stem}-readings{path.suffix}"
        tables = {
            path: _rows(steps, BATCHES),
            readings: itertools.chain([READINGS], _readings(run)),
        }
        if len(run.stages):
            stages = path.parent / f"{path.stem}-stages{path.suffix}"
            tables[stages] = _rows(run.stages, STAGES)
    try:
        for each, rows in tables.items():
            with each.open("x", encoding="utf-8", newline="") as file:
                if form == "csv":
                    csv.writer(file, lineterminator="\n").writerows(rows)
                else:
                    file.writelines(_timeline(run))
    except OSError as error:
        raise UsageError(
            f"cannot write {each}: {error.strerror or error}; give another path with --output, in "
            "a folder that exists and has room"
        ) from error
    return list(tables)


def _rows(table: Columns, names: Sequence[str]) -> Iterator[Sequence[object]]:
    yield names
    columns = (table[name].tolist() for name in names)
    cells = (["" if value == UNKNOWN else value for value in column] for column in columns)
    yield from zip(*cells, strict=True)


def _readings(run: Run) -> Iterator[tuple[str, str, str, int, float | str]]:
    for (probe, subject), read in run.readings.items():
        for quantity in read.names[1:]:
            for time_ns, value in zip(read.time_ns.tolist(), read[quantity].tolist(), strict=True):
                yield probe, subject, quantity, time_ns, value if math.isfinite(value) else ""


def _timeline(run: Run) -> Iterator[str]:
    """One JSON object, an event a line; its times are microseconds from the run's start."""
    encode = msgspec.json.Encoder().encode
    yield '{"traceEvents":[\n'
    for number, event in enumerate(_events(run)):
        yield ",\n" if number else ""
        yield encode(event).decode()
    yield '\n],"displayTimeUnit":"ms"}\n'


def _events(run: Run) -> Iterator[TraceEvent]:
    yield _event("M", "process_name", PROCESS, {"name": f"{run.header.name} ({run.header.mode})"})
    tracks = itertools.count(PROCESS + 1)
    for name, parts in _tracks(run):
        track, over_ns = 0, 0
        for since_ns, took_ns, what, facts in heapq.merge(*parts, key=itemgetter(0)):
            if not track:
                track = next(tracks)
                yield _event("M", "thread_name", track, {"name": name})
                yield _event("M", "thread_sort_index", track, {"sort_index": track})
            # Two clocks may cross by a little, and slices of one track may not.
            begin_ns, over_ns = max(since_ns, over_ns), max(since_ns + took_ns, over_ns)
            took_us = (over_ns - begin_ns) / 1000
            yield _event("X", what, track, facts, ts=_moment(begin_ns), dur=took_us)
    for probe, subject, quantity, time_ns, value in _readings(run):
        if value != "":
            name, ts = f"{probe} {subject}: {quantity}", _moment(time_ns)
            yield _event("C", name, PROCESS, {"value": value}, ts=ts)
    for event in run.events:
        yield _event("i", event.message, PROCESS, {}, ts=_moment(event.time_ns), s="p")


def _tracks(run: Run) -> Iterator[tuple[str, list[Iterable[Slice]]]]:
    """The tracks of each epoch, by name, and what is on each, in some parts that are in order.

    Its arms and its batches, and one for each worker.
    """
    stages, rows = dict(run.stages.by("epoch")), rows_of_epochs(run)
    for epoch in sorted({*rows, *stages}):
        steps = run.steps.take(rows.get(epoch, slice(0)))
        steps = steps.take(steps.request_ns != UNKNOWN)
        if run.header.mode == "alternate":
            yield f"epoch {epoch}: arms", [_arms(steps)]
        facts = ("batch", "samples", "nbytes", "gpu_idle_ns")
        came_ns = steps.request_ns + steps.wait_ns
        waits = _slices("wait", steps.request_ns, steps.wait_ns, steps, facts)
        step = _slices("step", came_ns, steps.step_ns, steps)
        yield f"epoch {epoch}: batches", [waits, step]
        for worker, own in stages[epoch].by("worker") if epoch in stages else ():
            name, began = "loading" if worker == UNKNOWN else f"worker {worker}", spans(own)
            fetch, collate = (_slices(stage, *began[stage], own) for stage in ("fetch", "collate"))
            yield f"epoch {epoch}: {name}", [fetch, collate]


def _arms(steps: Columns) -> Iterator[Slice]:
    """A slice for each part of an epoch whose batches are of one arm, and count in one pair."""
    (changes,) = np.nonzero(np.diff(steps.arm) | np.diff(steps.pair))
    for rows in np.split(np.arange(len(steps)), changes + 1) if len(steps) else ():
        part = steps.take(rows)
        arm, pair = ARMS[part.arm[0]], int(part.pair[0])
        name = f"{arm}, not counted" if pair == UNKNOWN else f"{arm}, pair {pair}"
        begin_ns, last = int(part.request_ns[0]), part.take(slice(-1, None))
        end_ns = int((last.request_ns + last.wait_ns + last.step_ns.clip(0))[0])
        yield begin_ns, end_ns - begin_ns, name, {"batches": len(part)}


def _slices(
    name: str, began: Column, took: Column, table: Columns, facts: Sequence[str] = ("batch",)
) -> Iterator[Slice]:
    """Slices of a name in order, with what is known of each row in these columns of its table."""
    (known,) = np.nonzero((began != UNKNOWN) & (took != UNKNOWN))
    known = known[np.argsort(began[known], kind="stable")]
    rows = zip(*(table[fact][known].tolist() for fact in facts), strict=True)
    for begin_ns, took_ns, row in zip(
        began[known].tolist(), took[known].tolist(), rows, strict=True
    ):
        told = {fact: value for fact, value in zip(facts, row, strict=True) if value != UNKNOWN}
        yield begin_ns, took_ns, name, told


def _event(kind: str, name: str, track: int, args: TraceEvent, **more: float | str) -> TraceEvent:
    return {"ph": kind, "pid": PROCESS, "tid": track, "name": name, **more, "args": args}


def _moment(ns: int) -> float:
    """`ns` in microseconds, and a fifth of a nanosecond more.

    Some readers take microseconds times 1,000 and cut off what is behind the point. They would read
    1.001, which as a binary fraction is a little less, as 1,000 ns, and see overlaps.
    """
    return (10 * ns + 2) / 10_000
