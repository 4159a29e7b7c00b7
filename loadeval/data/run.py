"""A run as plain data: its loader, its batches, all that was read beside them, and its blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from loadeval.data.columns import UNKNOWN, Column, Columns, Values, column_of
from loadeval.data.lines import (
    Arm,
    Block,
    CodeSamples,
    EpochEnd,
    Event,
    GpuIdle,
    Header,
    LoaderInfo,
    OperatorTimes,
    Padding,
    Prefetch,
    Readings,
    StageTimes,
    Window,
    WorkerStart,
)

SECOND_NS = 1_000_000_000
ARMS: tuple[Arm, ...] = ("real", "ideal")
REAL, IDEAL = 0, 1
"""Which of ARMS a batch is of, in the column `arm`."""
STAGES = ("epoch", *StageTimes.COLUMNS)
NOT_RECORDED = "not recorded"
"""It stands for text that every run log has and a file of another tool does not."""


@dataclass(frozen=True, eq=False, repr=False)  # analysis keeps in it what it computed
class Run:
    """One run, read from disk or just measured.

    `steps` has a row for every batch, by epoch: `epoch`, `arm` (an index into ARMS), `pair`
    (UNKNOWN for batches of no pair, and for those that were served while the loader was
    `instrumented`), `request_ns`, `wait_ns`, `step_ns` (UNKNOWN for the last one of an epoch that
    was broken off), `samples`, `nbytes`, `gpu_idle_ns`, how long the training's stream had no work
    in the wait, `gpu_step_ns`, how long it took from the batch's delivery, or the end
    of what was queued before, to the end of what the step queued, and `batch`, its number in its
    epoch, from 0.

    `stages` has a row for every batch that the loader was seen to load, with the columns of
    StageTimes and its `epoch`; `transforms`, by name, `ns` and `calls` for each of these batches in
    which it was called; `sizes`, by transform, the numbers in a sample before and after.
    `readings`, by probe and subject, has `time_ns` and a column of each quantity, NaN where it was
    not read; `missing`, by the same, why there is none, or no more. `padding` has the columns of
    Padding and the `epoch`.

    `closed` tells whether the run said that it ended; `notes` is what reading it brought up.
    `path` is the file it was read from, None for a run that is held in memory.
    """

    header: Header
    steps: Columns
    ends: tuple[EpochEnd, ...] = ()
    events: tuple[Event, ...] = ()
    prefetches: tuple[Prefetch, ...] = ()
    windows: tuple[Window, ...] = ()
    readings: Mapping[tuple[str, str], Columns] = field(default_factory=dict)
    missing: Mapping[tuple[str, str], str] = field(default_factory=dict)
    stages: Columns = field(default_factory=lambda: Columns.empty(STAGES))
    transforms: Mapping[str, Columns] = field(default_factory=dict)
    sizes: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    worker_starts: tuple[WorkerStart, ...] = ()
    code: tuple[CodeSamples, ...] = ()
    operators: tuple[OperatorTimes, ...] = ()
    padding: Columns = field(default_factory=lambda: table_of(Padding, []))
    closed: bool = False
    notes: tuple[str, ...] = ()
    path: Path | None = None

    @property
    def loader(self) -> LoaderInfo:
        """What is known of the loader."""
        return self.header.loader

    @property
    def batches(self) -> int:
        """How many batches were served, as far as they are recorded."""
        return len(self.steps)

    def __repr__(self) -> str:
        name, mode = self.header.name, self.header.mode
        return f"Run({name!r}, mode={mode!r}, {self.batches} batches)"

    def between(self, begin_s: float, end_s: float) -> Run:
        """What happened in these seconds since the run's start: all is computed of that alone.

        Batches are those that were asked for in them; they keep their numbers.
        """
        begin_ns, end_ns = round(begin_s * SECOND_NS), round(end_s * SECOND_NS)

        def within(moment_ns: int | None) -> bool:
            return moment_ns is not None and begin_ns <= moment_ns < end_ns

        def rows_within(table: Columns, name: str) -> Columns:
            return table.take((begin_ns <= table[name]) & (table[name] < end_ns))

        steps = rows_within(self.steps, "request_ns")
        stages = rows_within(self.stages, "requested_ns")
        asked_ns = self.steps.request_ns
        later = asked_ns >= end_ns
        pairs = {*steps.pair.tolist()} - {*self.steps.pair[(asked_ns < begin_ns) | later].tolist()}
        ended = {*steps.epoch.tolist()} - {*self.steps.epoch[later].tolist()}
        return replace(
            self,
            steps=steps,
            ends=tuple(
                end
                for end in self.ends
                if within(end.request_ns) or (end.request_ns is None and end.epoch in ended)
            ),
            events=tuple(event for event in self.events if within(event.time_ns)),
            prefetches=tuple(
                each
                for each in self.prefetches  # batches of instrumented blocks are in no pair
                if (within(each.began_ns) if each.instrumented else each.pair in pairs)
            ),
            windows=tuple(each for each in self.windows if each.pair in pairs),
            readings={key: rows_within(table, "time_ns") for key, table in self.readings.items()},
            stages=stages,
            transforms={name: of_batches(table, stages) for name, table in self.transforms.items()},
            worker_starts=tuple(start for start in self.worker_starts if within(start.start_ns)),
            code=tuple(each for each in self.code if each.stage != "step" or within(each.time_ns)),
            operators=tuple(line for line in self.operators if within(line.time_ns)),
            padding=of_batches(self.padding, steps),
        )


def host_values(run: Run, subject: str, name: str) -> Values:
    """What the host's probe read of `subject` under this name, without what is not known."""
    values: Values = run.readings.get(("host", subject), Columns({})).get(name, np.empty(0))
    return values[~np.isnan(values)]


def keys_of(table: Columns) -> Column:
    """The epoch and the number in it of each batch, as one number."""
    return np.asarray((table.epoch << 32) | table.batch)


def of_batches(table: Columns, batches: Columns) -> Columns:
    """The rows of `table` that are of one of these batches."""
    return table.take(np.isin(keys_of(table), keys_of(batches)))


BatchLine = Block | StageTimes | Padding
"""What has an epoch, and columns with a value for each batch."""


def table_of(kind: type[BatchLine], lines: Sequence[BatchLine]) -> Columns:
    """The columns of `lines`, all of that kind, one after the other, with the epoch of each row."""
    counts = column_of([len(getattr(line, kind.COLUMNS[0])) for line in lines])
    columns = {"epoch": np.repeat(column_of([line.epoch for line in lines]), counts)}
    for name in kind.COLUMNS:
        parts = [getattr(line, name) for line in lines]
        if all(part is None for part in parts):
            columns[name] = np.full(len(columns["epoch"]), UNKNOWN)
            continue
        values: list[int | None] = []
        for part, count in zip(parts, counts.tolist(), strict=True):
            values += part or [None] * count
        columns[name] = column_of(values)
    return Columns(columns)


def steps_of(blocks: Sequence[Block]) -> Columns:
    """The batches of `blocks`, in their order; the steps are as in the blocks."""
    table = table_of(Block, blocks)
    counts = column_of([len(block.request_ns) for block in blocks])
    arms = [ARMS.index(block.arm) for block in blocks]
    pairs = [None if block.instrumented else block.pair for block in blocks]
    instrumented = np.array([block.instrumented for block in blocks], dtype=np.bool_)
    return table.replace(
        arm=np.repeat(column_of(arms), counts),
        pair=np.repeat(column_of(pairs), counts),
        instrumented=np.repeat(instrumented, counts),
    )


def completed(steps: Columns, ends: Sequence[EpochEnd], gpu_idle: Sequence[GpuIdle]) -> Columns:
    """`steps`, in order of epochs: the next request closes an open step; with devices' times."""
    epochs, firsts, lengths = np.unique(steps.epoch, return_index=True, return_counts=True)
    ends_ns = {end.epoch: end.request_ns for end in ends}
    next_ns = np.append(steps.request_ns[1:], UNKNOWN)
    next_ns[firsts + lengths - 1] = column_of([ends_ns.get(epoch) for epoch in epochs.tolist()])
    until_next_ns = next_ns - steps.request_ns - steps.wait_ns
    closes = (steps.step_ns == UNKNOWN) & (next_ns != UNKNOWN) & (until_next_ns >= 0)
    gpu = {name: np.full(len(steps), UNKNOWN) for name in GpuIdle.COLUMNS}
    for times in gpu_idle:
        start, stop = np.searchsorted(steps.epoch, [times.epoch, times.epoch + 1])
        for name, column in gpu.items():
            rows = column[start + times.first : stop]
            values = (getattr(times, name) or [])[: len(rows)]
            rows[: len(values)] = column_of(values)
    return steps.replace(
        step_ns=np.where(closes, until_next_ns, steps.step_ns),
        **gpu,
        batch=np.arange(len(steps)) - np.repeat(firsts, lengths),
    )


def stages_of_lines(
    lines: Sequence[StageTimes],
) -> tuple[Columns, dict[str, Columns], dict[str, tuple[float, float]]]:
    """What `lines` say of batches, of transforms, and of sizes: see Run."""
    stages = table_of(StageTimes, lines)
    stages = stages.take(np.lexsort((stages.batch, stages.epoch)))
    transforms = defaultdict[str, list[Columns]](list)
    before, after = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for line in lines:
        numbers = {"epoch": np.full(len(line.batch), line.epoch), "batch": np.array(line.batch)}
        for name, ns in line.transform_ns.items():
            calls = line.transform_calls.get(name, [None] * len(ns))
            of_line = Columns(
                {**numbers, "ns": np.array(ns, float), "calls": np.array(calls, float)}
            )
            transforms[name].append(of_line.take(~np.isnan(of_line.ns)))
        for sizes, elements in ((before, line.elements_before), (after, line.elements_after)):
            for name, values in elements.items():
                sizes[name] += [value for value in values if value is not None]
    tables = {name: Columns.concat(parts) for name, parts in transforms.items()}
    return (
        stages,
        {name: table for name, table in tables.items() if len(table)},
        {
            name: (float(np.mean(values)), float(np.mean(after[name])))
            for name, values in before.items()
            if values and after[name]
        },
    )


SPARSEST = 100
"""A table has at most so many places for each value: else a small file could fill memory."""


def readings_of(
    lines: Sequence[Readings],
) -> tuple[dict[tuple[str, str], Columns], dict[tuple[str, str], str]]:
    """What was read of each subject by each probe, in order; and why nothing, or no more, was."""
    parts = defaultdict[tuple[str, str], list[Columns]](list)
    missing: dict[tuple[str, str], str | None] = {}
    for line in lines:
        key = line.probe, line.subject
        values = {name: np.array(each, float) for name, each in line.values.items()}
        parts[key].append(Columns({"time_ns": column_of(line.time_ns), **values}))
        missing[key] = line.missing
    readings = {}
    for key, of_subject in parts.items():
        names = {name for part in of_subject for name in part.names}
        rows = sum(map(len, of_subject))
        if len(names) * rows > SPARSEST * sum(len(part.names) * len(part) for part in of_subject):
            missing[key] = f"nearly all of its {len(names) - 1} quantities are unknown at any time"
        else:
            readings[key] = Columns.concat(of_subject)
    return readings, {key: why for key, why in missing.items() if why is not None}


# The blocks of an alternating run


SMALLEST_BLOCK = 8
"""An arm has at least so many counted batches in a pair."""
INSTRUMENTED_EVERY = 3
"""One pair in so many is for the instruments, whose cost is in no figure."""
SHORTEST_WARMUP = 3
"""After a switch of arms a memory-bound step runs at full speed from this batch on."""


def head_for(prefetch_depth: int) -> int:
    """Batches until a loader whose queue begins empty has refilled it, and steps are steady."""
    return max(prefetch_depth + 1, SHORTEST_WARMUP)


def block_for(prefetch_depth: int) -> int:
    """The smallest ideal block: prefetching it takes more than the queue holds.

    So there are batches that time the loader alone, and what a real block took out of the queue
    is served in the next ideal block.
    """
    return max(SMALLEST_BLOCK, 2 * prefetch_depth + 2)


def two_blocks_for(prefetch_depth: int) -> int:
    """Batches of a real and an ideal block; of shorter epochs each is a block."""
    return SMALLEST_BLOCK + block_for(prefetch_depth)


def with_instruments(pairs: int) -> int:
    """How many pairs it takes so that so many of them count, beside those for the instruments."""
    return pairs + max(pairs - 1, 0) // (INSTRUMENTED_EVERY - 1)


def batches_for(pairs: int, prefetch_depth: int) -> int:
    """How many batches it takes, in one epoch, until so many pairs of the smallest blocks count."""
    head = head_for(prefetch_depth)
    return head + with_instruments(pairs) * (
        two_blocks_for(prefetch_depth) + head + SHORTEST_WARMUP
    )
