"""What happened inside a loader: the stages of each batch, worker starts, code, operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.runlog.columns import UNKNOWN, Column, ValuesByName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Self

MOMENTS = ("requested_ns", "delivered_ns", "fetch_start_ns", "pickle_start_ns", "received_ns")
"""These columns are times since the run's start; the others in nanoseconds are durations."""
TORCHS_OWN = ("torch/", "_utils/", "data/dataloader.py", "multiprocessing/")
"""Places in torch's own code begin so, and nobody makes them faster."""


@dataclass(frozen=True, slots=True, eq=False)
class StageTimes:
    """What a loader did for some batches of one epoch, in columns of equal length; UNKNOWN is -1.

    `batch` is each one's number among those that the loader gave in this epoch, from 0. In an
    alternating run training gets some of them later, in another order. `worker` is UNKNOWN where
    the training process loaded it.

    In order: `requested_ns`, when the loader was asked for a batch, and `delivered_ns`, when it
    gave it. `index_ns`: the sampler and handing indices to a worker, in the training process,
    within that request; of an epoch's first batch also since the epoch was opened, when indices of
    several batches are drawn. `fetch_start_ns`; `fetch_ns`: reading the `samples`; `collate_ns`. Of
    these two: `cpu_ns` of their thread and `other_cpu_ns` of other threads of the worker,
    `run_queue_ns` runnable without a CPU, `read_bytes` read by system calls and `disk_bytes` of
    them from the disk, `major_faults`; `minor_faults`, page faults without the disk, and
    `system_ns`, that part of `cpu_ns` which was spent in the kernel. Of few batches, behind them:
    `private_bytes` of the worker's memory that are its own, and `shared_bytes` that it shares with
    other processes, such as the one that it was forked from; neither are files or shared memory.
    Bytes of a page that it copies pass from the latter to the former. Of one batch of each worker:
    `opened_files` by Python's `open`, `connections` over the internet protocol, and `requests` by
    Python's http.client, all by the thread that fetches. `slowest_ns` is the time of the slowest
    sample, and `slowest_index` its index in the dataset, or of an iterable one its place in the
    epoch of its worker. `pickle_start_ns`, `pickle_ns`, `pickled_bytes`: pickling in the worker's
    queue thread.
    `received_ns`: when the training process had it, and `receive_ns` how long reading and
    unpickling took once it was ready. `pin_ns`: copying to pinned memory. `tensors`: how many a
    batch has, counted of some that the training process loaded.

    `transform_ns` and `transform_calls` have the time in each transform, without that of
    transforms inside it, and its calls, under its name; NaN where that is not known. The numbers
    that an array, tensor or image had on average when it went into a transform and when it came
    out, `elements_before` and `elements_after`, are looked at once for each worker, and are in the
    order in which transforms are called.
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
    minor_faults: Column
    system_ns: Column
    private_bytes: Column
    shared_bytes: Column
    opened_files: Column
    connections: Column
    requests: Column
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
    tensors: Column
    elements_before: ValuesByName = dataclasses.field(default_factory=dict)
    elements_after: ValuesByName = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, epoch: int, batch: Sequence[int], **known: Any) -> Self:
        """Times of which only the columns in `known` are known, as sequences of any kind."""
        values: dict[str, Any] = {"epoch": epoch, "transform_ns": {}, "transform_calls": {}}
        for field in fields(cls):
            if field.type == "Column":
                values[field.name] = np.full(len(batch), UNKNOWN)
        for name, value in {"batch": batch, **known}.items():
            by_name = isinstance(value, Mapping)
            values[name] = dict(value) if by_name else np.array(value, dtype=np.int64)
        return cls(**values)

    def __len__(self) -> int:
        return len(self.batch)

    def since(self, origin_ns: int) -> Self:
        """The same, with moments that count from `origin_ns`."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in MOMENTS:
            known = values[name] != UNKNOWN
            values[name] = np.where(known, values[name] - origin_ns, UNKNOWN)
        return type(self)(**values)

    def part(self, rows: Any) -> Self:
        """These rows alone: `rows` is an index or a mask of NumPy's."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                values[name] = value[rows]
            elif isinstance(value, Mapping):
                values[name] = {key: column[rows] for key, column in value.items()}
        return type(self)(**values)

    @classmethod
    def joined(cls, parts: Iterable[StageTimes]) -> tuple[StageTimes, ...]:
        """The `parts` as one StageTimes for each epoch, its batches in order."""
        ordered = sorted(parts, key=lambda part: part.epoch)
        epochs = (list(group) for _, group in groupby(ordered, key=lambda part: part.epoch))
        return tuple(cls._of_one_epoch(group) for group in epochs)

    @classmethod
    def _of_one_epoch(cls, parts: list[StageTimes]) -> StageTimes:
        values: dict[str, Any] = {"epoch": parts[0].epoch}
        for field in fields(cls):
            columns = [getattr(part, field.name) for part in parts]
            if isinstance(columns[0], Mapping):
                names = dict.fromkeys(name for column in columns for name in column)
                gaps = [np.full(len(part), np.nan) for part in parts]
                values[field.name] = {
                    name: np.concatenate(
                        [c.get(name, gap) for c, gap in zip(columns, gaps, strict=True)]
                    )
                    for name in names
                }
            elif field.name != "epoch":
                values[field.name] = np.concatenate(columns)
        times = cls(**values)
        return times.part(np.argsort(times.batch, kind="stable"))


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """How one worker of an epoch's loader started.

    `start_ns`, since the run's start, is when the training process began to start the workers;
    `starting_ns` how long it was busy with that, which with spawn includes pickling the dataset
    for each; `ready_ns` when this worker had imported and unpickled everything; `init_ns` how long
    the user's `worker_init_fn` took.

    A worker that is not forked is sent what it needs, the dataset included: the training process
    pickled that from `pickling_start_ns`, since the run's start, for `pickling_ns`, into
    `sent_bytes`; tensors are in shared memory beside it. In the worker Python started and imported
    the main module, and then it unpickled for `unpickling_ns`, until it was ready. None is not
    known, or of a worker that was forked.
    """

    epoch: int
    worker: int
    start_ns: int
    starting_ns: int
    ready_ns: int
    init_ns: int
    pickling_start_ns: int | None = None
    pickling_ns: int | None = None
    sent_bytes: int | None = None
    unpickling_ns: int | None = None

    def since(self, origin_ns: int) -> WorkerStart:
        """The same, with moments that count from `origin_ns`."""
        pickled_ns = self.pickling_start_ns
        return replace(
            self,
            start_ns=self.start_ns - origin_ns,
            ready_ns=self.ready_ns - origin_ns,
            pickling_start_ns=None if pickled_ns is None else pickled_ns - origin_ns,
        )


@dataclass(frozen=True, slots=True)
class CodeSamples:
    """The lines of code in which a worker was while it fetched and collated, looked at regularly.

    `worker` is None for the training process where that loads itself.

    `running` and `blocked` count under `FILE:LINE FUNCTION`, the innermost line that is not
    Python's own library; what it is blocked in follows, as the kernel or Python's library names
    it: `data.py:31 __getitem__ > futex_do_wait`. `calls` counts both under what that line called,
    with its module: `data.py:31 __getitem__ > json.loads`. It is empty in older logs, and some
    functions that are not written in Python are only known from Python 3.11 on. Each counts since
    the line before.
    """

    worker: int | None
    running: Mapping[str, int]
    blocked: Mapping[str, int]
    calls: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def since(self, origin_ns: int) -> CodeSamples:  # noqa: ARG002 - as the others
        """The samples themselves: they have no moments."""
        return self


@dataclass(frozen=True, slots=True)
class OperatorTimes:
    """What one operator of a loader's pipeline did, such as a stage of SPDL's.

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
