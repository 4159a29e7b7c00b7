"""A run as a timeline in the Trace Event Format, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import ARMS
from loadeval.export.events import PROCESS, enclosing, event, length, moment, track_names
from loadeval.export.stage_tracks import stage_events

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from loadeval.data.columns import Column
    from loadeval.data.lines import Arm, EpochEnd, Prefetch, Window
    from loadeval.data.run import Run
    from loadeval.export.files import NewFiles

Fields = dict[str, Any]

CHUNK = 20_000
"""Batches that are text in memory at a time."""
OPTIONAL = ("samples", "nbytes", "gpu_idle_ns")


def write_timeline(run: Run, path: Path, files: NewFiles) -> None:
    """One JSON object at `path`; times are in microseconds from the run's start."""
    names = ("run_id", "name", "mode", "created", "unit")
    other = {
        "tool": "loadeval",
        **{name: getattr(run.header, name) for name in names},
        "missing readings": {probe: why for (probe, _), why in run.missing.items()},
        "notes": run.notes,
    }
    with files.part(path).open("w", encoding="ascii") as file:
        for number, text in enumerate(Timeline(run).events()):
            file.write(",\n" if number else '{"traceEvents":[\n')
            file.write(text)
        file.write(f'\n],"displayTimeUnit":"ms","otherData":{json.dumps(other)}}}\n')


class Timeline:
    """The events of a run: each epoch has a track of arms, one of batches, and its loader's."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.ends = {end.epoch: end for end in run.ends}
        self.windows = {(window.epoch, window.pair, window.arm): window for window in run.windows}
        self.prefetches: dict[int, list[Prefetch]] = defaultdict(list)
        for prefetch in run.prefetches:
            self.prefetches[prefetch.epoch].append(prefetch)

    def events(self) -> Iterator[str]:
        """JSON objects, or several with commas between them."""
        name = f"{self.run.header.name} ({self.run.header.mode})"
        yield event("M", "process_name", args={"name": name})
        epochs = self.run.steps.epoch
        for epoch in sorted({*np.unique(epochs).tolist(), *self.ends}):
            first, stop = np.searchsorted(epochs, [epoch, epoch + 1])
            known = self.run.steps.request_ns[first:stop] != UNKNOWN
            yield from self._epoch(epoch, first + np.flatnonzero(known))
        yield from stage_events(self.run, 2 * max([int(epochs.max(initial=0)), *self.ends]) + 4)
        yield from _counters(self.run)
        for run_event in self.run.events:
            yield event("i", run_event.message, ts=moment(run_event.time_ns), s="p")

    def _epoch(self, epoch: int, rows: Column) -> Iterator[str]:
        arms, batches = 2 * epoch + 2, 2 * epoch + 3
        end = self.ends.get(epoch)
        spans = block_spans(self.run.steps, rows)
        span = _epoch_span(spans, end)
        if span is None:
            return
        yield from track_names(arms, f"epoch {epoch}: arms")
        yield from track_names(batches, f"epoch {epoch}: batches")
        for block in spans:
            yield self._block(arms, epoch, block)
        for prefetch in self.prefetches[epoch]:
            if prefetch.began_ns is not None:
                at = moment(prefetch.began_ns)
                yield event("i", "prefetch", arms, at, s="t", args=_known(prefetch))
        args = {"batches": len(rows), **({} if end is None else _known(end))}
        dur = enclosing(span[1] - span[0])
        yield event("X", f"epoch {epoch}", batches, moment(span[0]), dur, args=args)
        yield from self._batches(batches, rows)
        if end is not None and end.request_ns is not None and end.cause != "unmeasured":
            dur = length(end.wait_ns or 0)
            yield event("X", f"wait, {end.cause}", batches, moment(end.request_ns), dur)

    def _block(self, track: int, epoch: int, block: BlockSpan) -> str:
        args: Fields = {"batches": block.batches}
        name: str = block.arm
        if block.pair is not None:
            window: Window | None = self.windows.get((epoch, block.pair, block.arm))
            name = f"{block.arm}, pair {block.pair}"
            args |= {} if window is None else _known(window)
        elif self.run.header.mode == "alternate":
            name = f"{block.arm}, not counted"
        dur = length(block.end_ns - block.start_ns)
        return event("X", name, track, moment(block.start_ns), dur, args=args)

    def _batches(self, track: int, rows: Column) -> Iterator[str]:
        for start in range(0, len(rows), CHUNK):
            yield ",\n".join(self._waits_and_steps(track, rows[start : start + CHUNK]))

    def _waits_and_steps(self, track: int, rows: Column) -> Iterator[str]:
        steps = self.run.steps
        request_ns, wait_ns = steps.request_ns[rows], steps.wait_ns[rows]
        start = f'{{"ph":"X","pid":{PROCESS},"tid":{track},"name":'
        columns = zip(
            steps.batch[rows].tolist(),
            request_ns.tolist(),
            wait_ns.tolist(),
            (request_ns + wait_ns).tolist(),
            steps.step_ns[rows].tolist(),
            self._facts(rows),
            strict=True,
        )
        for number, request, wait, delivery, step, facts in columns:
            yield (
                f'{start}"wait","ts":{moment(request)},"dur":{length(wait)},'
                f'"args":{{"batch":{number}{facts}}}}}'
            )
            if step != UNKNOWN:
                yield (
                    f'{start}"step","ts":{moment(delivery)},"dur":{length(step)},'
                    f'"args":{{"batch":{number}}}}}'
                )

    def _facts(self, rows: Column) -> Sequence[str]:
        facts = [""] * len(rows)
        for name in OPTIONAL:
            column: Column = getattr(self.run.steps, name)[rows]
            if (column != UNKNOWN).any():
                facts = [
                    text if value == UNKNOWN else f'{text},"{name}":{value}'
                    for text, value in zip(facts, column.tolist(), strict=True)
                ]
        return facts


def _counters(run: Run) -> Iterator[str]:
    for (probe, subject), read in run.readings.items():
        for quantity in read.names[1:]:
            name = f"{probe} {subject}: {quantity}"
            for time_ns, value in zip(read.time_ns.tolist(), read[quantity].tolist(), strict=True):
                if isfinite(value):
                    yield event("C", name, ts=moment(time_ns), args={"value": value})


def _epoch_span(spans: Sequence[BlockSpan], end: EpochEnd | None) -> tuple[int, int] | None:
    """An epoch's first request and its last known time; None if nothing is known."""
    times = [time for block in spans for time in (block.start_ns, block.end_ns)]
    if end is not None and end.request_ns is not None:
        times += [end.request_ns, end.request_ns + (end.wait_ns or 0)]
    return (min(times), max(times)) if times else None


def _known(fact: EpochEnd | Prefetch | Window) -> Fields:
    return {
        name: value for name, value in msgspec.structs.asdict(fact).items() if value is not None
    }


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """Consecutive batches of one epoch, arm and pair: first request to the end of the last step.

    An unknown step ends at its delivery.
    """

    arm: Arm
    pair: int | None
    batches: int
    start_ns: int
    end_ns: int


def block_spans(steps: Columns, rows: Column) -> list[BlockSpan]:
    """The spans of `rows`, batches of one epoch with known requests."""
    if not len(rows):
        return []
    arm, pair = steps.arm[rows], steps.pair[rows]
    end_ns = steps.request_ns[rows] + steps.wait_ns[rows] + np.maximum(steps.step_ns[rows], 0)
    starts = np.flatnonzero(np.diff(arm, prepend=UNKNOWN) | np.diff(pair, prepend=pair[:1]))
    return [
        BlockSpan(
            ARMS[arm[start]],
            None if pair[start] == UNKNOWN else int(pair[start]),
            stop - start,
            int(steps.request_ns[rows[start]]),
            int(end_ns[stop - 1]),
        )
        for start, stop in pairwise([*starts.tolist(), len(rows)])
    ]
