"""A run in forms that other tools open: a timeline in the Trace Event Format, or tables in CSV.

What is not known is left out of a timeline, and is an empty cell of a table.
"""

from __future__ import annotations

import csv
import json
import os
from enum import Enum
from itertools import chain, count, repeat
from math import isfinite
from operator import itemgetter
from typing import TYPE_CHECKING, TextIO

import msgspec
import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.lines import Block
from loadeval.data.run import ARMS, STAGES
from loadeval.errors import UsageError
from loadeval.estimate.steady import rows_of_epochs
from loadeval.inside.lanes import spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from loadeval.data.lines import Arm, EpochEnd, Mode, Prefetch, Window
    from loadeval.data.run import Run
    from loadeval.inside.stages import Stage

    TraceEvent = dict[str, object]

BATCHES = ("epoch", "batch", "arm", "pair", *Block.COLUMNS, "gpu_idle_ns")
READINGS = ("probe", "subject", "quantity", "time_ns", "value")
CHUNK = 20_000
"""So many batches are objects of Python at a time."""
PROCESS = 1
OF_A_STAGE = {
    "fetch": ("samples", "slowest_index", "slowest_ns"),
    "pickle": ("pickled_bytes",),
}
"""What a timeline tells of a batch, where its slice of a stage is selected."""


class Format(str, Enum):
    """What other tools open."""

    CHROME = "chrome"
    CSV = "csv"


ENDINGS = {Format.CHROME: ".trace.json", Format.CSV: ".csv"}


def export_run(run: Run, form: Format, path: Path, *, overwrite: bool = False) -> list[Path]:
    """Write `run` to `path`: a timeline, or the first of two or three tables.

    Returns the files that were written. If one of them fails, all are as they were before. Raises
    UsageError if one exists and `overwrite` is not set, if they cannot be written, or if a timeline
    needs times that the run does not have.
    """
    tables: dict[str, Iterable[Sequence[object]]] = {"": ()}
    if form is Format.CSV:
        steps = run.steps.replace(arm=np.array(ARMS)[run.steps.arm])
        tables = {"": _rows(steps, BATCHES), "-readings": chain([READINGS], _readings(run))}
        if len(run.stages):
            tables["-stages"] = _rows(run.stages, STAGES)
    written = [path.with_name(f"{path.stem}{end}{path.suffix}") for end in tables]
    for whole in written:
        if whole.exists() and not overwrite:
            raise UsageError(
                f"{whole} already exists; give another path with --output, or replace it with "
                "--overwrite"
            )
    parts = [whole.with_name(f".{whole.name}.{os.getpid()}.part") for whole in written]
    try:
        try:
            for part, rows in zip(parts, tables.values(), strict=True):
                with part.open("w", encoding="utf-8", newline="") as file:
                    if form is Format.CSV:
                        csv.writer(file, lineterminator="\n").writerows(rows)
                    else:
                        _write_timeline(run, file)
            for part, whole in zip(parts, written, strict=True):
                part.replace(whole)
        finally:
            for part in parts:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; expected a path in a folder that "
            "exists and can be written, with space left; give another one with --output"
        ) from error
    return written


# Tables


def _rows(table: Columns, names: Sequence[str]) -> Iterator[Sequence[object]]:
    yield names
    for part in _chunks(table):
        columns = (part[name].tolist() for name in names)
        cells = (["" if value == UNKNOWN else value for value in column] for column in columns)
        yield from zip(*cells, strict=True)


def _readings(run: Run) -> Iterator[tuple[str, str, str, int, float | str]]:
    for (probe, subject), read in run.readings.items():
        for quantity in read.names[1:]:
            for time_ns, value in zip(read.time_ns.tolist(), read[quantity].tolist(), strict=True):
                yield probe, subject, quantity, time_ns, value if isfinite(value) else ""


# The timeline


def _write_timeline(run: Run, file: TextIO) -> None:
    """Write one JSON object, an event a line; its times are microseconds from the run's start."""
    if len(run.steps) and (run.steps.request_ns == UNKNOWN).all():
        raise UsageError(
            f"{run.path} has no times at which batches were requested, since DALI's "
            "LoaderEvaluator does not save them, so there is no timeline; export its waits as csv"
        )
    encode = msgspec.json.Encoder().encode
    file.write('{"traceEvents":[\n')
    for number, event in enumerate(_events(run)):
        file.write(",\n" if number else "")
        file.write(encode(event).decode())
    names = ("run_id", "name", "mode", "created", "unit")
    about = {
        "tool": "loadeval",
        **{name: getattr(run.header, name) for name in names},
        "missing readings": {probe: why for (probe, _), why in run.missing.items()},
        "notes": run.notes,
    }
    file.write(f'\n],"displayTimeUnit":"ms","otherData":{json.dumps(about)}}}\n')


def _events(run: Run) -> Iterator[TraceEvent]:
    header, tracks = run.header, count(PROCESS + 1)
    yield _event("M", "process_name", PROCESS, {"name": f"{header.name} ({header.mode})"})
    rows, stages = rows_of_epochs(run), dict(run.stages.by("epoch"))
    ends, arms = {end.epoch: end for end in run.ends}, dict[int, int]()
    windows = {(window.epoch, window.pair, window.arm): window for window in run.windows}
    for epoch in sorted({*rows, *ends, *stages}):
        steps, end = run.steps.take(rows.get(epoch, slice(0))), ends.get(epoch)
        steps = steps.take(steps.request_ns != UNKNOWN)
        delivered_ns = steps.request_ns + steps.wait_ns
        end_ns = delivered_ns + steps.step_ns.clip(0)
        steps = steps.replace(delivered_ns=delivered_ns, end_ns=end_ns)
        if len(steps) or (end is not None and end.request_ns is not None):
            arms[epoch] = next(tracks)
            yield from _track(arms[epoch], f"epoch {epoch}: arms")
            yield from _arms(arms[epoch], steps, windows, header.mode)
            track = next(tracks)
            yield from _track(track, f"epoch {epoch}: batches")
            yield from _batches(track, steps, end, epoch)
        if epoch in stages:
            yield from _loading(tracks, stages[epoch], epoch)
    for prefetch in run.prefetches:
        if prefetch.began_ns is not None and prefetch.epoch in arms:
            track, args = arms[prefetch.epoch], _known(prefetch)
            yield _event("i", "prefetch", track, args, ts=_moment(prefetch.began_ns), s="t")
    for probe, subject, quantity, time_ns, value in _readings(run):
        if value != "":
            name, ts = f"{probe} {subject}: {quantity}", _moment(time_ns)
            yield _event("C", name, PROCESS, {"value": value}, ts=ts)
    for event in run.events:
        yield _event("i", event.message, PROCESS, ts=_moment(event.time_ns), s="p")


def _arms(
    track: int, steps: Columns, windows: Mapping[tuple[int, int, Arm], Window], mode: Mode
) -> Iterator[TraceEvent]:
    """A slice for each part of an epoch whose batches are of one arm, and count in one pair."""
    (changes,) = np.nonzero(np.diff(steps.arm) | np.diff(steps.pair))
    for rows in np.split(np.arange(len(steps)), changes + 1) if len(steps) else ():
        part = steps.take(rows)
        arm, pair, begin_ns = ARMS[part.arm[0]], int(part.pair[0]), int(part.request_ns[0])
        args: TraceEvent = {"batches": len(part)}
        name = f"{arm}, not counted" if mode == "alternate" else arm
        if pair != UNKNOWN:
            name = f"{arm}, pair {pair}"
            if window := windows.get((int(part.epoch[0]), pair, arm)):
                args |= _known(window)
        yield _slice(name, track, begin_ns, int(part.end_ns[-1]), args)


def _batches(track: int, steps: Columns, end: EpochEnd | None, epoch: int) -> Iterator[TraceEvent]:
    """An epoch, and in it the waits and steps, and the wait that got no batch."""
    times_ns = [*steps.request_ns[:1].tolist(), *steps.end_ns[-1:].tolist()]
    args: TraceEvent = {"batches": len(steps)}
    if end is not None:
        args |= _known(end)
        if end.request_ns is not None:
            times_ns += [end.request_ns, end.request_ns + (end.wait_ns or 0)]
    begin_ns = min(times_ns)
    # With a margin, so that it does not look shorter than what is in it.
    took = _moment(max(times_ns) - begin_ns)
    yield _event("X", f"epoch {epoch}", track, args, ts=_moment(begin_ns), dur=took)
    for part in _chunks(steps):
        columns = (part.request_ns, part.delivered_ns, part.step_ns, part.end_ns)
        facts = _facts(part, ("batch", "samples", "nbytes", "gpu_idle_ns"))
        for request_ns, delivered_ns, step_ns, end_ns, known in zip(
            *(column.tolist() for column in columns), facts, strict=True
        ):
            yield _slice("wait", track, request_ns, delivered_ns, known)
            if step_ns != UNKNOWN:
                yield _slice("step", track, delivered_ns, end_ns, {"batch": known["batch"]})
    if end is not None and end.request_ns is not None and end.cause != "unmeasured":
        stop_ns = end.request_ns + (end.wait_ns or 0)
        yield _slice(f"wait, {end.cause}", track, end.request_ns, stop_ns, {})


def _loading(tracks: Iterator[int], stages: Columns, epoch: int) -> Iterator[TraceEvent]:
    """A track for each worker, one beside it for its other thread, and two for training's part."""
    on_tracks: list[tuple[str, Columns, tuple[Stage, ...]]] = []
    for worker, own in stages.by("worker"):
        name = "loading" if worker == UNKNOWN else f"worker {worker}"
        on_tracks += [(name, own, ("fetch", "collate")), (f"{name}, queue", own, ("pickle",))]
    on_tracks.append(("receive and pin", stages, ("receive", "pin")))
    on_tracks.append(("indices", stages, ("indices",)))
    for name, batches, of_track in on_tracks:
        slices: list[tuple[int, int, Stage, TraceEvent]] = []
        for stage in of_track:
            began, took = spans(batches)[stage]
            known = took != UNKNOWN
            told = _facts(batches.take(known), ("batch", *OF_A_STAGE.get(stage, ())))
            slices += zip(began[known].tolist(), took[known].tolist(), repeat(stage), told)
        if slices:
            track, over_ns = next(tracks), 0
            yield from _track(track, f"epoch {epoch}: {name}")
            for since_ns, took_ns, stage, facts in sorted(slices, key=itemgetter(0)):
                # Two clocks may cross by a little, and slices of one track may not.
                begin_ns, over_ns = max(since_ns, over_ns), max(since_ns + took_ns, over_ns)
                yield _slice(stage, track, begin_ns, over_ns, facts)


def _chunks(table: Columns) -> Iterator[Columns]:
    return (table.take(slice(at, at + CHUNK)) for at in range(0, len(table), CHUNK))


def _facts(table: Columns, names: Sequence[str]) -> Iterator[TraceEvent]:
    """What is known of each row, in these columns."""
    for row in zip(*(table[name].tolist() for name in names), strict=True):
        yield {name: value for name, value in zip(names, row, strict=True) if value != UNKNOWN}


def _track(track: int, name: str) -> Iterator[TraceEvent]:
    yield _event("M", "thread_name", track, {"name": name})
    yield _event("M", "thread_sort_index", track, {"sort_index": track})


def _slice(name: str, track: int, begin_ns: int, end_ns: int, args: TraceEvent) -> TraceEvent:
    times = {"ts": _moment(begin_ns), "dur": (end_ns - begin_ns) / 1000}
    return {"ph": "X", "pid": PROCESS, "tid": track, "name": name, **times, "args": args}


def _event(
    kind: str, name: str, track: int, args: TraceEvent | None = None, **more: float | str
) -> TraceEvent:
    event: TraceEvent = {"ph": kind, "pid": PROCESS, "tid": track, "name": name, **more}
    return event if args is None else {**event, "args": args}


def _moment(ns: int) -> float:
    """`ns` in microseconds, and a fifth of a nanosecond more.

    Some readers take microseconds times 1,000 and cut off what is behind the point. They would read
    1.001, which as a binary fraction is a little less, as 1,000 ns, and see overlaps.
    """
    return (10 * ns + 2) / 10_000


def _known(line: EpochEnd | Prefetch | Window) -> TraceEvent:
    return {
        name: value for name, value in msgspec.structs.asdict(line).items() if value is not None
    }
