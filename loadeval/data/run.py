"""A run as plain data: its loader, its batches, and all that was read beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns, column_of, constant, values_of
from loadeval.data.lines import (
    Block,
    CodeSamples,
    EpochEnd,
    Event,
    GpuIdle,
    Header,
    OperatorTimes,
    Padding,
    Prefetch,
    Readings,
    StageTimes,
    Window,
    WorkerStart,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from loadeval.data.columns import Column, Rows
    from loadeval.data.lines import Arm, LoaderInfo

SECOND_NS = 1_000_000_000
ARMS: tuple[Arm, ...] = ("real", "ideal")
STEPS = (
    *("epoch", "arm", "pair", "instrumented", "request_ns", "wait_ns", "step_ns", "samples"),
    *("nbytes", "gpu_idle_ns", "gpu_step_ns", "batch"),
)
STAGES = ("epoch", *StageTimes.COLUMNS)
TRANSFORMS = ("epoch", "batch", "ns", "calls")
NOT_RECORDED = "not recorded"
"""It stands for text that every run log has and a file of another tool does not."""


@dataclass(frozen=True, eq=False, repr=False)  # analysis keeps in it what it computed
class Run:
    """One run, read from disk or just measured.

    `steps` has a row for every batch, by epoch: `epoch`, `arm` (an index into ARMS), `pair`
    (UNKNOWN for batches of no pair, and for those that were served while the loader was
    `instrumented`), `request_ns`, `wait_ns`, `step_ns` (UNKNOWN for the last one of an epoch that
    was broken off), `samples`, `nbytes`, `gpu_idle_ns`, how long the device had nothing to do while
    the batch was waited for, `gpu_step_ns`, how long it took from the batch's delivery, or the end
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
    padding: Columns = field(default_factory=lambda: Columns.empty(("epoch", *Padding.COLUMNS)))
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

        def within(time_ns: Column) -> Rows:
            return np.asarray((time_ns >= begin_ns) & (time_ns < end_ns))

        steps = self.steps.take(within(self.steps.request_ns))
        stages = self.stages.take(within(self.stages.requested_ns))
        pairs, seen = set(steps.pair.tolist()), keys_of(stages)
        return replace(
            self,
            steps=steps,
            ends=tuple(
                end for end in self.ends if end.request_ns and begin_ns <= end.request_ns < end_ns
            ),
            events=tuple(event for event in self.events if begin_ns <= event.time_ns < end_ns),
            prefetches=tuple(
                each
                for each in self.prefetches
                if each.pair in pairs
                and (each.began_ns is None or begin_ns <= each.began_ns < end_ns)
            ),
            windows=tuple(window for window in self.windows if window.pair in pairs),
            readings={
                key: table.take(within(table.time_ns)) for key, table in self.readings.items()
            },
            stages=stages,
            transforms={
                name: table.take(np.isin(keys_of(table), seen))
                for name, table in self.transforms.items()
            },
            worker_starts=tuple(
                start for start in self.worker_starts if begin_ns <= start.start_ns < end_ns
            ),
            operators=tuple(line for line in self.operators if begin_ns <= line.time_ns < end_ns),
            padding=self.padding.take(np.isin(keys_of(self.padding), keys_of(steps))),
        )


def keys_of(table: Columns) -> Column:
    """The epoch and the number in it of each batch, as one number."""
    return np.asarray((table.epoch << 32) | table.batch)


def steps_of(blocks: Sequence[Block]) -> Columns:
    """The batches of `blocks`, in their order; the steps are as in the blocks."""
    lengths = [len(block.request_ns) for block in blocks]
    count = sum(lengths)

    def repeated(values: list[int]) -> Column:
        if len(set(values)) == 1:
            return constant(values[0], count)
        return np.repeat(np.array(values, dtype=np.int64), lengths)

    def joined(name: str) -> Column:
        columns = [getattr(block, name) for block in blocks]
        if all(column is None for column in columns):
            return constant(UNKNOWN, count)
        known = (
            [None] * length if column is None else column
            for column, length in zip(columns, lengths, strict=True)
        )
        return column_of(list(chain.from_iterable(known)))

    pairs = repeated([UNKNOWN if block.pair is None else block.pair for block in blocks])
    instrumented = repeated([block.instrumented for block in blocks]) == 1
    return Columns(
        {
            "epoch": repeated([block.epoch for block in blocks]),
            "arm": repeated([ARMS.index(block.arm) for block in blocks]),
            "pair": np.where(instrumented, UNKNOWN, pairs) if instrumented.any() else pairs,
            "instrumented": instrumented,
            **{name: joined(name) for name in Block.COLUMNS},
        }
    )


def completed(steps: Columns, ends: Sequence[EpochEnd], gpu_idle: Sequence[GpuIdle]) -> Columns:
    """`steps` by epoch, with the steps that the next request closes, and what devices told."""
    if not len(steps):
        return Columns.empty(STEPS).replace(instrumented=np.empty(0, dtype=np.bool_))
    if (np.diff(steps.epoch) < 0).any():
        steps = steps.take(np.argsort(steps.epoch, kind="stable"))
    (firsts,) = np.nonzero(np.append(True, np.diff(steps.epoch) != 0))
    lengths = np.diff(firsts, append=len(steps))
    next_ns = np.append(steps.request_ns[1:], UNKNOWN)
    ends_ns = {end.epoch: end.request_ns for end in ends if end.request_ns is not None}
    epochs = steps.epoch[firsts].tolist()
    next_ns[firsts + lengths - 1] = [ends_ns.get(epoch, UNKNOWN) for epoch in epochs]
    until_next_ns = next_ns - steps.request_ns - steps.wait_ns
    closes = (steps.step_ns == UNKNOWN) & (next_ns != UNKNOWN) & (until_next_ns >= 0)
    gpu_idle_ns = gpu_step_ns = constant(UNKNOWN, len(steps))
    if gpu_idle:
        gpu_idle_ns, gpu_step_ns = (np.full(len(steps), UNKNOWN) for _ in range(2))
        rows_of = dict(zip(epochs, zip(firsts, firsts + lengths, strict=True), strict=True))
        for times in gpu_idle:
            start, stop = rows_of.get(times.epoch, (0, 0))
            first = min(start + times.first, stop)
            count = min(stop - first, len(times.gpu_idle_ns))
            gpu_idle_ns[first : first + count] = column_of(times.gpu_idle_ns[:count])
            if times.gpu_step_ns is not None:
                gpu_step_ns[first : first + count] = column_of(times.gpu_step_ns[:count])
    return steps.replace(
        step_ns=np.where(closes, until_next_ns, steps.step_ns),
        gpu_idle_ns=gpu_idle_ns,
        gpu_step_ns=gpu_step_ns,
        batch=np.arange(len(steps)) - np.repeat(firsts, lengths),
    )


def stages_of_lines(
    lines: Sequence[StageTimes],
) -> tuple[Columns, dict[str, Columns], dict[str, tuple[float, float]]]:
    """What `lines` say of batches, of transforms, and of sizes: see Run."""
    if not lines:
        return Columns.empty(STAGES), {}, {}
    counts = [len(line.batch) for line in lines]
    columns = {"epoch": np.repeat([line.epoch for line in lines], counts)}
    for name in StageTimes.COLUMNS:
        parts = (
            [None] * count if getattr(line, name) is None else getattr(line, name)
            for line, count in zip(lines, counts, strict=True)
        )
        columns[name] = column_of(list(chain.from_iterable(parts)))
    order = np.lexsort((columns["batch"], columns["epoch"]))
    by_transform: dict[str, list[Columns]] = {}
    for line in lines:
        for name, ns in line.transform_ns.items():
            table = Columns(
                {
                    "epoch": constant(line.epoch, len(ns)),
                    "batch": np.array(line.batch),
                    "ns": values_of(ns),
                    "calls": values_of(line.transform_calls.get(name, [None] * len(ns))),
                }
            )
            known = ~np.isnan(table.ns)
            if known.any():
                by_transform.setdefault(name, []).append(table.take(known))
    sizes: dict[str, tuple[list[float], list[float]]] = {}
    for line in lines:
        for at, elements in enumerate((line.elements_before, line.elements_after)):
            for name, values in elements.items():
                known_values = [value for value in values if value is not None]
                sizes.setdefault(name, ([], []))[at].extend(known_values)
    return (
        Columns(columns).take(order),
        {name: Columns.concat(parts) for name, parts in by_transform.items()},
        {
            name: (float(np.mean(before)), float(np.mean(after)))
            for name, (before, after) in sizes.items()
            if before and after
        },
    )


def readings_of(
    lines: Sequence[Readings],
) -> tuple[dict[tuple[str, str], Columns], dict[tuple[str, str], str]]:
    """What was read of each subject by each probe, in order; and why nothing, or no more, was."""
    parts: dict[tuple[str, str], list[Readings]] = {}
    for line in lines:
        parts.setdefault((line.probe, line.subject), []).append(line)
    tables, missing = {}, {}
    for key, of_subject in parts.items():
        names = dict.fromkeys(name for line in of_subject for name in line.values)
        columns: dict[str, Any] = {
            "time_ns": column_of(list(chain.from_iterable(line.time_ns for line in of_subject)))
        }
        for name in names:
            of_lines = (line.values.get(name, [None] * len(line.time_ns)) for line in of_subject)
            columns[name] = values_of(list(chain.from_iterable(of_lines)))
        tables[key] = Columns(columns)
        if of_subject[-1].missing is not None:
            missing[key] = of_subject[-1].missing
    return tables, missing


def padding_of(lines: Sequence[Padding]) -> Columns:
    """The padding of batches."""
    parts = [
        Columns(
            {
                "epoch": constant(line.epoch, len(line.batch)),
                **{name: column_of(getattr(line, name)) for name in Padding.COLUMNS},
            }
        )
        for line in lines
    ]
    return Columns.concat(parts) if parts else Columns.empty(("epoch", *Padding.COLUMNS))
