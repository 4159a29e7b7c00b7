"""What happened inside a loader, batch by batch: fetch, collate, pickling, hand-over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.runlog.columns import UNKNOWN, Column, ValuesByName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Self

MOMENTS = ("requested_ns", "delivered_ns", "fetch_start_ns", "pickle_start_ns", "received_ns")
"""Columns that are times since the run's start; the others in nanoseconds are durations."""
TORCHS_OWN = ("torch/", "_utils/", "data/dataloader.py", "multiprocessing/")
"""How places in torch's own code begin, which nobody makes faster."""


@dataclass(frozen=True, slots=True, eq=False)
class StageTimes:
    """What a loader did for some batches of one epoch, in columns of equal length; UNKNOWN is -1.

    `batch` is each one's number among those that the loader gave in this epoch, from 0. In an
    alternating run training gets some of them later, in another order. `worker` is UNKNOWN where
    the training process loaded it.

    In order: `requested_ns`, when the loader was asked for a batch, and `delivered_ns`, when it
    gave it. `index_ns`: the sampler and handing indices to a worker, in the training process,
    within that request. `fetch_start_ns`; `fetch_ns`: reading the `samples`; `collate_ns`. Of
    these two: `cpu_ns` of their thread and `other_cpu_ns` of other threads of the worker,
    `run_queue_ns` runnable without a CPU, `read_bytes` read by system calls and `disk_bytes` of
    them from the disk, `major_faults`. `slowest_ns` is the time of the slowest sample, and
    `slowest_index` its index in the dataset, or of an iterable one its place in the epoch of its
    worker. `pickle_start_ns`, `pickle_ns`, `pickled_bytes`: pickling in the worker's queue thread.
    `received_ns`: when the training process had it, and `receive_ns` how long reading and
    unpickling took once it was ready. `pin_ns`: copying to pinned memory. `tensors`: how many a
    batch has, counted of some that the training process loaded.

    `transform_ns` and `transform_calls` have the time in each transform, without that of
    transforms inside it, and its calls, under its name; NaN where that is not known.
    """

    epoch: int
    batch: Column
    worker: Column
    samples: Column
    requested_ns: Column
    delivered_ns: Column
    index_ns: Column
    fetch_start_ns: Column
    fetch_ns: Column
    collate_ns: Column
    cpu_ns: Column
    other_cpu_ns: Column
    run_queue_ns: Column
    read_bytes: Column
    disk_bytes: Column
    major_faults: Column
    slowest_ns: Column
    slowest_index: Column
    pickle_start_ns: Column
    pickle_ns: Column
    pickled_bytes: Column
    received_ns: Column
    receive_ns: Column
    pin_ns: Column
    transform_ns: ValuesByName
    transform_calls: ValuesByName
    tensors: Column = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not len(self.tensors):
            object.__setattr__(self, "tensors", np.full(len(self.batch), UNKNOWN))

    @classmethod
    def of(cls, epoch: int, batch: Sequence[int], **known: Any) -> Self:
        """Times of which only the columns in `known` are known, as sequences of any kind."""
        values: dict[str, Any] = {"epoch": epoch, "transform_ns": {}, "transform_calls": {}}
        for one in fields(cls):
            if one.type == "Column":
                values[one.name] = np.full(len(batch), UNKNOWN)
        for name, value in {"batch": batch, **known}.items():
            by_name = isinstance(value, Mapping)
            values[name] = dict(value) if by_name else np.array(value, dtype=np.int64)
        return cls(**values)

    def __len__(self) -> int:
        return len(self.batch)

    def since(self, origin_ns: int) -> Self:
        """The same, with moments that count from `origin_ns`."""
        values: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in MOMENTS:
            known = values[name] != UNKNOWN
            values[name] = np.where(known, values[name] - origin_ns, UNKNOWN)
        return type(self)(**values)

    def part(self, rows: Any) -> Self:
        """Some of its rows: an index or a mask of NumPy's."""
        values: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                values[name] = value[rows]
            elif isinstance(value, Mapping):
                values[name] = {key: column[rows] for key, column in value.items()}
        return type(self)(**values)

    @classmethod
    def joined(cls, parts: Iterable[StageTimes]) -> tuple[StageTimes, ...]:
        """One of each epoch, its batches in order."""
        ordered = sorted(parts, key=lambda part: part.epoch)
        epochs = (list(group) for _, group in groupby(ordered, key=lambda part: part.epoch))
        return tuple(cls._of_one_epoch(group) for group in epochs)

    @classmethod
    def _of_one_epoch(cls, parts: list[StageTimes]) -> StageTimes:
        values: dict[str, Any] = {"epoch": parts[0].epoch}
        for one in fields(cls):
            columns = [getattr(part, one.name) for part in parts]
            if isinstance(columns[0], Mapping):
                names = dict.fromkeys(name for column in columns for name in column)
                gaps = [np.full(len(part), np.nan) for part in parts]
                values[one.name] = {
                    name: np.concatenate(
                        [c.get(name, gap) for c, gap in zip(columns, gaps, strict=True)]
                    )
                    for name in names
                }
            elif one.name != "epoch":
                values[one.name] = np.concatenate(columns)
        found = cls(**values)
        return found.part(np.argsort(found.batch, kind="stable"))


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """How one worker of an epoch's loader started.

    `start_ns`, since the run's start, is when the training process began to start the workers;
    `starting_ns` how long it was busy with that, which with spawn includes pickling the dataset
    for each; `ready_ns` when this worker had imported and unpickled everything; `init_ns` how long
    the user's `worker_init_fn` took.
    """

    epoch: int
    worker: int
    start_ns: int
    starting_ns: int
    ready_ns: int
    init_ns: int

    def since(self, origin_ns: int) -> WorkerStart:
        """The same, with moments that count from `origin_ns`."""
        start_ns, ready_ns = self.start_ns - origin_ns, self.ready_ns - origin_ns
        return WorkerStart(
            self.epoch, self.worker, start_ns, self.starting_ns, ready_ns, self.init_ns
        )


@dataclass(frozen=True, slots=True)
class CodeSamples:
    """In which lines of code a worker was while it fetched and collated, looked at regularly.

    `worker` is None for the training process where that loads itself.

    `running` and `blocked` count under `FILE:LINE FUNCTION`, the innermost line that is not
    Python's own library; what it is blocked in follows, as the kernel or Python's library names
    it: `data.py:31 __getitem__ > futex_do_wait`. Each counts since the line before.
    """

    worker: int | None
    running: Mapping[str, int]
    blocked: Mapping[str, int]

    def since(self, origin_ns: int) -> CodeSamples:  # noqa: ARG002 - as the others
        """Itself: it has no moments."""
        return self


@dataclass(frozen=True, slots=True)
class OperatorTimes:
    """What one operator of a loader's pipeline did: a stage of SPDL's, an operator of Ray Data's.

    `operator` is its name, and `order` its place in the pipeline, from 0 at the source. `time_ns`,
    since the run's start, is when it was read; what follows is of the `elapsed_ns` before, since
    its last line or since the epoch began. In that time `tasks` ended, which took `task_ns` in
    all, the wait for a thread included: of it `run_ns` in a thread, and `cpu_ns` on a CPU.
    `concurrency` is how many tasks it may work on at once. `queue_items` went into the queue
    behind it, which held something for `queue_occupied_ns`; for `queue_blocked_ns`, added up over
    tasks, they waited until that had room. None is not known.
    """

    epoch: int
    operator: str
    order: int
    time_ns: int
    elapsed_ns: int
    tasks: int
    task_ns: int | None = None
    run_ns: int | None = None
    cpu_ns: int | None = None
    concurrency: int | None = None
    queue_items: int | None = None
    queue_occupied_ns: int | None = None
    queue_blocked_ns: int | None = None

    def since(self, origin_ns: int) -> OperatorTimes:
        """The same, with a moment that counts from `origin_ns`."""
        return replace(self, time_ns=self.time_ns - origin_ns)
