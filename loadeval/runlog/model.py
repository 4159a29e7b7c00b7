"""A run as plain data: what was wrapped and where, its batches, epochs and readings."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - dataclass fields
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from loadeval.runlog.columns import UNKNOWN, Column, ValuesByName, constant
from loadeval.runlog.stages import (  # noqa: TC001 - dataclass fields
    CodeSamples,
    OperatorTimes,
    StageTimes,
    WorkerStart,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

SECOND_NS = 1_000_000_000
Mode = Literal["log", "replay", "alternate"]
Arm = Literal["real", "ideal"]
EventKind = Literal[
    "note",
    "failed backend",
    "error read on",
    "stages missing",
    "worker died",
    "within a step",
    "read in a thread",
]
Cause = Literal["exhausted", "broken off", "failed", "unmeasured"]

ARMS: tuple[Arm, ...] = ("real", "ideal")
COLUMNS = ("request_ns", "wait_ns", "step_ns", "samples", "nbytes")
"""These columns of a block tell what is known of each batch."""
NOT_RECORDED = "not recorded"
"""It stands for text that every run log has and a file of another tool does not."""


@dataclass(frozen=True, slots=True)
class LoaderInfo:
    """What is known of a loader; None is "not known".

    `prefetch_depth` and `length` count batches; `length` is one epoch's. `ready_batches` are
    those that it had loaded before it was wrapped, so that the first request does not show what
    they cost. `dataset`, `sampler` and `worker_init` name the classes and the function. `in_order`
    tells whether batches come in the order in which they were asked for. `made_by` is the package
    whose trainer made it, of arguments of its own, and `made_at` the line of the program that did,
    FILE:LINE, its file from the working directory where it is below that. `shards` are those that
    the dataset says it has, each of which one worker reads. `dataset_objects` are the Python
    objects that it holds, of `dataset_object_bytes` without the buffers of arrays, both estimated
    from a few of each of its lists, tuples and dicts.

    `setting_names` has what the user calls the settings that can be changed, by what loadeval calls
    them: `num_workers` (processes or threads), `prefetch_factor` (batches ready for each worker) or
    `prefetch_depth` (batches ready altogether), `persistent_workers`, `pin_memory`,
    `concurrency` (items that one operator works on at once), and `num_shards` (what makes more
    shards of a dataset).

    `overrides` are the settings that it has in place of the program's, by the user's names, as
    `loadeval run --set` gave them, and the `threads` that torch computes with beside it; None if
    nothing was changed.
    """

    backend: str
    adapter: str = "loadeval.IterableAdapter"
    workers: int | None = None
    prefetch_depth: int | None = None
    batch_size: int | None = None
    pinned: bool | None = None
    device: str | None = None
    length: int | None = None
    start_method: str | None = None
    persistent_workers: bool | None = None
    ready_batches: int | None = None
    dataset: str | None = None
    sampler: str | None = None
    worker_init: str | None = None
    in_order: bool | None = None
    made_by: str | None = None
    setting_names: Mapping[str, str] | None = None
    shards: int | None = None
    dataset_objects: int | None = None
    dataset_object_bytes: int | None = None
    overrides: Mapping[str, Any] | None = None
    made_at: str | None = None


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What replay keeps: how many batches, their bytes, how long filling took; None: not known."""

    batches: int
    nbytes: int | None
    fill_ns: int | None


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of a run before its first batch.

    `created` is the wall-clock time, ISO 8601 in UTC, at which the run's own clock read 0.
    `warmup` is how many batches of each epoch the steady part leaves out.
    """

    run_id: str
    name: str
    mode: Mode
    created: str
    unit: str
    warmup: int
    loader: LoaderInfo
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    cache: CacheInfo | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Consecutive batches of one epoch and one arm; columns of equal length, UNKNOWN is -1.

    `pair` numbers the pair of an alternating run for which the batches count; it is None for
    batches that are served between, and in other runs. `request_ns` counts from the run's
    start, and is UNKNOWN throughout where another tool measured. A step that was still open is
    UNKNOWN. Where it is `instrumented`, what was read inside the loader took time too, so that its
    batches do not count.
    """

    epoch: int
    arm: Arm
    request_ns: Column
    wait_ns: Column
    step_ns: Column
    samples: Column
    nbytes: Column
    pair: int | None = None
    instrumented: bool = False

    def __len__(self) -> int:
        return len(self.request_ns)

    def with_steps(self) -> Block:
        """The same block with each step that its next request closes."""
        step_ns = np.full(len(self), UNKNOWN)
        step_ns[:-1] = self.request_ns[1:] - (self.request_ns + self.wait_ns)[:-1]
        return replace(self, step_ns=step_ns)

    def part(self, rows: slice | npt.NDArray[np.bool_]) -> Block:
        """These rows alone."""
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in COLUMNS}
        return replace(self, **columns)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Every batch of a run, in columns of equal length; UNKNOWN is -1.

    `arm` holds indices into ARMS; `pair` is UNKNOWN for batches of no pair, and for those that were
    served while the loader was `instrumented`. The last step of an epoch that was broken off is
    UNKNOWN. `gpu_idle_ns` is how long the device had nothing to do while the batch was waited for,
    and `gpu_step_ns` how long it took from the batch's delivery, or the end of what was queued
    before, to the end of what the step queued; UNKNOWN where there was no device whose clock could
    tell. `batch` is each one's number in its epoch, from 0.
    """

    epoch: Column
    arm: Column
    pair: Column
    request_ns: Column
    wait_ns: Column
    step_ns: Column
    samples: Column
    nbytes: Column
    gpu_idle_ns: Column
    gpu_step_ns: Column
    batch: Column = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    instrumented: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))

    def __post_init__(self) -> None:
        if not len(self.batch):
            object.__setattr__(self, "batch", rank_in_epoch(self.epoch))
        if not len(self.instrumented):
            object.__setattr__(self, "instrumented", np.zeros(len(self.epoch), dtype=np.bool_))

    def __len__(self) -> int:
        return len(self.request_ns)

    @classmethod
    def from_blocks(
        cls,
        blocks: Sequence[Block],
        ends: Iterable[EpochEnd],
        gpu_idle: Iterable[GpuIdle] = (),
    ) -> Steps:
        """Join `blocks`, epoch by epoch, and close each step that the next request closes."""
        blocks = sorted(blocks, key=lambda block: block.epoch)
        lengths = [len(block) for block in blocks]
        pairs = _repeated(
            [UNKNOWN if block.pair is None else block.pair for block in blocks], lengths
        )
        instrumented = _repeated([block.instrumented for block in blocks], lengths) == 1
        steps = cls(
            epoch=_repeated([block.epoch for block in blocks], lengths),
            arm=_repeated([ARMS.index(block.arm) for block in blocks], lengths),
            pair=np.where(instrumented, UNKNOWN, pairs),
            instrumented=instrumented,
            gpu_idle_ns=constant(UNKNOWN, sum(lengths)),
            gpu_step_ns=constant(UNKNOWN, sum(lengths)),
            **{name: _concatenated([getattr(part, name) for part in blocks]) for name in COLUMNS},
        )
        steps._close(ends)
        gpu_idle = tuple(gpu_idle)
        return steps._with_gpu_idle(gpu_idle) if gpu_idle else steps

    def blocks(self) -> list[Block]:
        """The same batches in as few blocks as can be: one for each span of one arm and pair."""
        return [self._block(rows) for rows in self._spans()]

    def gpu_idle(self) -> Iterator[GpuIdle]:
        """How long the device was idle in each wait, a line for each epoch."""
        for epoch in np.unique(self.epoch).tolist():
            rows = self.epoch == epoch
            if (self.gpu_idle_ns[rows] != UNKNOWN).any():
                yield GpuIdle(epoch, 0, self.gpu_idle_ns[rows], self.gpu_step_ns[rows])

    def _spans(self) -> list[slice]:
        names = ("epoch", "arm", "pair", "instrumented")
        differs = [np.diff(getattr(self, name)) != 0 for name in names]
        changes = np.flatnonzero(np.logical_or.reduce(differs)) + 1
        bounds = pairwise([0, *changes.tolist(), len(self)])
        return [slice(*bound) for bound in bounds] if len(self) else []

    def _block(self, rows: slice) -> Block:
        return Block(
            epoch=int(self.epoch[rows][0]),
            arm=ARMS[self.arm[rows][0]],
            pair=None if self.pair[rows][0] == UNKNOWN else int(self.pair[rows][0]),
            instrumented=bool(self.instrumented[rows][0]),
            **{name: getattr(self, name)[rows] for name in COLUMNS},
        )

    def _close(self, ends: Iterable[EpochEnd]) -> None:
        if not len(self):
            return
        next_ns = np.append(self.request_ns[1:], UNKNOWN)
        (last,) = np.nonzero(np.append(self.epoch[1:] != self.epoch[:-1], True))
        ends_ns = {end.epoch: end.request_ns for end in ends if end.request_ns is not None}
        next_ns[last] = [ends_ns.get(epoch, UNKNOWN) for epoch in self.epoch[last].tolist()]
        known = (next_ns != UNKNOWN) & (self.request_ns != UNKNOWN)
        still_open = (self.step_ns == UNKNOWN) & known
        self.step_ns[still_open] = (next_ns - self.request_ns - self.wait_ns)[still_open]

    def _with_gpu_idle(self, gpu_idle: Sequence[GpuIdle]) -> Steps:
        gpu_idle_ns, gpu_step_ns = (np.full(len(self), UNKNOWN) for _ in range(2))
        epochs, starts = np.unique(self.epoch, return_index=True)
        bounds = pairwise([*starts.tolist(), len(self)])
        rows_of = dict(zip(epochs.tolist(), bounds, strict=True))
        for times in gpu_idle:
            start, stop = rows_of.get(times.epoch, (0, 0))
            first = min(start + times.first, stop)
            count = min(stop - first, len(times))  # of a killed process, batches may be missing
            gpu_idle_ns[first : first + count] = times.gpu_idle_ns[:count]
            gpu_step_ns[first : first + count] = times.gpu_step_ns[:count]
        return replace(self, gpu_idle_ns=gpu_idle_ns, gpu_step_ns=gpu_step_ns)


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """How an epoch ended.

    `exhausted` and `failed` carry the request that got no batch and how long it waited;
    `unmeasured` the request from which on the epoch was served without measuring; an epoch that
    was broken off has none. `error` is the loader's exception, as text.
    """

    epoch: int
    cause: Cause
    request_ns: int | None = None
    wait_ns: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Batches that an alternating run took back to back, without handing them out.

    The last `timed` of the `batches`, those that the loader had not prefetched, took
    `elapsed_ns` and hold `samples` (None: unknown). The first batch of an epoch is never timed.
    `waits_ns` has the wait for each of all of them, in order, and `began_ns` is when the first was
    asked for; empty and None where that is not known. `end_ns` is how long the loader took to end
    its epoch; None if it did not end it here. Where it is `instrumented`, looking into the loader
    took a part of that time.
    """

    pair: int
    epoch: int
    batches: int
    timed: int
    elapsed_ns: int
    samples: int | None
    waits_ns: tuple[int, ...] = ()
    end_ns: int | None = None
    began_ns: int | None = None
    instrumented: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """The counted part of one arm in one pair, or what of it fell into one epoch.

    `workers_cpu_ns` is the CPU time of the process's children in that time, in ticks of some
    10 ms; None where it could not be read. `minor_faults` are the page faults of this process in
    it that needed no disk; None where they are not known.
    """

    pair: int
    epoch: int
    arm: Arm
    elapsed_ns: int
    workers_cpu_ns: int | None
    minor_faults: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """What one probe read of one subject, a device or a process, in columns of equal length.

    `time_ns` counts from the run's start. The name of each quantity ends in its unit, and its
    value is of that moment, or a mean since the reading before; NaN is "not known". `missing`
    says why there are none, or from some time on no more.
    """

    probe: str
    subject: str
    time_ns: Column
    values: ValuesByName
    missing: str | None = None

    def __len__(self) -> int:
        return len(self.time_ns)

    def since(self, origin_ns: int) -> Readings:
        """The same, with times that count from `origin_ns`."""
        return replace(self, time_ns=self.time_ns - origin_ns)


@dataclass(frozen=True, slots=True, eq=False)
class GpuIdle:
    """How long the device had nothing to do before batches of an epoch, by its own clock.

    `gpu_idle_ns` has a value for each batch from number `first` of the epoch on, and `gpu_step_ns`
    how long the device took for its step; UNKNOWN is -1.
    """

    epoch: int
    first: int
    gpu_idle_ns: Column
    gpu_step_ns: Column

    def __len__(self) -> int:
        return len(self.gpu_idle_ns)


@dataclass(frozen=True, slots=True, eq=False)
class PaddedBatches:
    """How much of some batches of sequences is padding, in columns of equal length.

    `batch` is the number of each in its epoch, from 0. It has `positions` in all, of which `padded`
    hold nothing: each of its sequences is padded to `length`, and the longest has `longest`.
    """

    epoch: int
    batch: Column
    positions: Column
    padded: Column
    length: Column
    longest: Column

    def __len__(self) -> int:
        return len(self.batch)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a run and bears on what its numbers mean.

    Of a failed backend `message` is its loader's error.
    """

    time_ns: int
    message: str
    kind: EventKind = "note"


@dataclass(frozen=True, eq=False, repr=False)  # analysis keeps in it what it computed
class Run:
    """One run, read from disk or just measured.

    `closed` tells whether the run said that it ended; `notes` is what reading it brought up.
    `path` is the file it was read from, None for a run that is held in memory. `stages` has one
    item for each epoch whose loader was looked into.
    """

    header: Header
    steps: Steps
    ends: tuple[EpochEnd, ...] = ()
    events: tuple[Event, ...] = ()
    readings: tuple[Readings, ...] = ()
    prefetches: tuple[Prefetch, ...] = ()
    windows: tuple[Window, ...] = ()
    closed: bool = False
    notes: tuple[str, ...] = ()
    path: Path | None = None
    stages: tuple[StageTimes, ...] = ()
    worker_starts: tuple[WorkerStart, ...] = ()
    code: tuple[CodeSamples, ...] = ()
    operators: tuple[OperatorTimes, ...] = ()
    padding: tuple[PaddedBatches, ...] = ()

    @property
    def batches(self) -> int:
        """How many batches were served, as far as they are recorded."""
        return len(self.steps)

    def __repr__(self) -> str:
        name, mode = self.header.name, self.header.mode
        return f"Run({name!r}, mode={mode!r}, {self.batches} batches)"


def rank_in_epoch(epoch: Column) -> Column:
    """Each batch's number within its epoch, from 0; `epoch` is the steps' column, sorted."""
    (first,) = np.nonzero(np.append(True, epoch[1:] != epoch[:-1])[: len(epoch)])
    lengths = np.diff(first, append=len(epoch))
    return np.arange(len(epoch)) - np.repeat(first, lengths)


def join_readings(parts: Iterable[Readings]) -> tuple[Readings, ...]:
    """One Readings for each probe and subject, in the order in which they came first."""
    by_subject: dict[tuple[str, str], list[Readings]] = {}
    for part in parts:
        by_subject.setdefault((part.probe, part.subject), []).append(part)
    return tuple(map(_joined, by_subject.values()))


def _joined(parts: list[Readings]) -> Readings:
    names = dict.fromkeys(name for part in parts for name in part.values)
    gaps = [np.full(len(part), np.nan) for part in parts]
    values = {
        name: np.concatenate(
            [part.values.get(name, gap) for part, gap in zip(parts, gaps, strict=True)]
        )
        for name in names
    }
    time_ns = np.concatenate([part.time_ns for part in parts])
    return replace(parts[0], time_ns=time_ns, values=values, missing=parts[-1].missing)


def _repeated(values: list[int], counts: list[int]) -> Column:
    if len(set(values)) == 1:
        return constant(values[0], sum(counts))
    return np.repeat(np.array(values, dtype=np.int64), np.array(counts, dtype=np.int64))


def _concatenated(columns: list[Column]) -> Column:
    return np.concatenate(columns) if columns else np.empty(0, dtype=np.int64)
