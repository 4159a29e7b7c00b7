"""A run as plain data: what was wrapped and where, blocks of batches, how each epoch ended."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - `lines` reads the annotations at run time
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

    from loadeval.runlog.readings import Readings
    from loadeval.runlog.steps import Steps
    from loadeval.runlog.tally import Tally

Column = npt.NDArray[np.int64]
Mode = Literal["log", "replay", "alternate"]
Arm = Literal["real", "ideal"]
Cause = Literal["exhausted", "broken off", "failed", "unmeasured"]

ARMS: tuple[Arm, ...] = ("real", "ideal")
UNKNOWN = -1
"""Stands for "not known" in a column of integers; `null` on disk."""
NOT_RECORDED = "not recorded"
"""Stands for text that every run log has and a file of another tool does not."""


@dataclass(frozen=True, slots=True)
class LoaderInfo:
    """What is known of a loader; None is "not known".

    `prefetch_depth` and `length` count batches; `length` is one epoch's. `ready_batches` are
    those that it had loaded before it was wrapped, so that the first request does not show what
    they cost.
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
    `warmup` is how many batches of each epoch the steady part leaves out. Of a run that keeps
    the detail of every N-th batch, and totals of all, `every` is N.
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
    every: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Consecutive batches of one epoch and one arm; columns of equal length, UNKNOWN is -1.

    `pair` numbers the pair of an alternating run for which the batches count; it is None for
    batches that are served between, and in other runs. `request_ns` counts from the run's
    start, and is UNKNOWN throughout where another tool measured. A step that was still open is
    UNKNOWN.
    """

    epoch: int
    arm: Arm
    request_ns: Column
    wait_ns: Column
    step_ns: Column
    samples: Column
    nbytes: Column
    pair: int | None = None

    def __len__(self) -> int:
        return len(self.request_ns)

    def with_steps(self) -> Block:
        """The same block with each step that its next request closes."""
        step_ns = np.full(len(self), UNKNOWN)
        step_ns[:-1] = self.request_ns[1:] - (self.request_ns + self.wait_ns)[:-1]
        return replace(self, step_ns=step_ns)

    def numbered(self, batch: Column) -> Excerpt:
        """The same rows, with the number of each in its epoch."""
        return Excerpt(**{one.name: getattr(self, one.name) for one in fields(Block)}, batch=batch)

    def part(self, rows: slice | npt.NDArray[np.bool_]) -> Self:
        """Some of its rows."""
        columns = [
            one.name for one in fields(self) if isinstance(getattr(self, one.name), np.ndarray)
        ]
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt(Block):
    """Some batches of one epoch, in order: `batch` is the number of each in its epoch, from 0.

    What follows a row is not the next batch, so its step is known here or nowhere.
    """

    batch: Column = field(kw_only=True)

    def with_steps(self) -> Excerpt:
        """Itself: no row closes the step of another."""
        return self


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
class Pull:
    """Batches that an alternating run took back to back, without handing them out.

    The last `timed` of the `batches`, those that the loader had not prefetched, took
    `elapsed_ns` and hold `samples` (None: unknown). The first batch of an epoch is never timed.
    `longest_ns` is the longest wait for one of all of them; None where there was none.
    """

    pair: int
    epoch: int
    batches: int
    timed: int
    elapsed_ns: int
    samples: int | None
    longest_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """The counted part of one arm in one pair, or what of it fell into one epoch.

    `workers_cpu_ns` is the CPU time of the process's children meanwhile, in ticks of some
    10 ms; None where it could not be read.
    """

    pair: int
    epoch: int
    arm: Arm
    elapsed_ns: int
    workers_cpu_ns: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a run and bears on what its numbers mean."""

    time_ns: int
    message: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Run:
    """One run, read from disk or just measured.

    `closed` tells whether the run said that it ended; `notes` is what reading it brought up.
    `path` is the file it was read from, None for a run that is held in memory. Where the header
    says that every N-th batch was kept, `steps` has those alone, and `tallies` the totals of all;
    else there are none.
    """

    header: Header
    steps: Steps
    ends: tuple[EpochEnd, ...] = ()
    events: tuple[Event, ...] = ()
    readings: tuple[Readings, ...] = ()
    pulls: tuple[Pull, ...] = ()
    windows: tuple[Window, ...] = ()
    closed: bool = False
    notes: tuple[str, ...] = ()
    path: Path | None = None
    tallies: tuple[Tally, ...] = ()

    @property
    def batches(self) -> int:
        """How many batches were served, as far as they are recorded."""
        if self.header.every > 1:
            return sum(tally.batches for tally in self.tallies)
        return len(self.steps)

    def __repr__(self) -> str:
        name, mode = self.header.name, self.header.mode
        return f"Run({name!r}, mode={mode!r}, {self.batches} batches)"
