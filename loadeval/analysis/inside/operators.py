"""Operators of a loader's pipeline, and the threads of the training process: who is busy.

A stage of SPDL's is the bottleneck if it works all the time, or if what comes before it has work
ready while what comes after it waits. While nobody takes batches, as
in the ideal blocks of an alternating run, the pipeline soon rests, for its last queue is full. This
time does not count; if nothing is known about that queue, the ideal blocks do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loadeval.analysis.estimate.metrics import THREADS, quantities
from loadeval.analysis.once import once_per_run
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loadeval.analysis.estimate.metrics import Level
    from loadeval.data.columns import Column
    from loadeval.data.lines import Arm, OperatorTimes
    from loadeval.data.run import Run

Time: TypeAlias = tuple[int, int, int]

BUSY = 0.8
"""An operator limits the others if it does at least this share of what it can do at once."""
EMPTY, FULL = 0.2, 0.8
"""A queue that holds something for at most EMPTY of the time is empty, for FULL or more full."""
LOCK = "python lock"
MOST_TRIES = 5
"""The most tries in a reading of Python's lock, which lasts as long as they take."""


class OperatorLimit(Enum):
    """How it is known which operator is the bottleneck."""

    BUSY = "busy"
    THREADS_BUSY = "threads busy"
    QUEUES = "queues"


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: means of a task in nanoseconds, and shares of the time; None: not known.

    `work_share` is how much it did of what it may do at once, which may be more than 1 where
    that is not exactly known; `queue_share` for how much of the time the queue behind it held
    something.
    """

    name: str
    order: int
    tasks_per_batch: float
    task_ns: float | None
    run_ns: float | None
    cpu_ns: float | None
    concurrency: int | None
    work_share: float | None
    queue_share: float | None

    @property
    def busy_share(self) -> float | None:
        """`work_share`, at most 1."""
        return None if self.work_share is None else min(self.work_share, 1.0)

    @property
    def batch_ns(self) -> float | None:
        """How long its tasks for a batch take in turn, without the wait for threads."""
        work_ns = self.task_ns if self.run_ns is None else self.run_ns
        return None if work_ns is None else self.tasks_per_batch * work_ns


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """The operators, from the source on, and which of them is the bottleneck, if one is.

    `loading_ns` is the time in which the pipeline did not rest. `threads_share` is how much of it
    the pipeline's threads worked, where it has as many as the loader has workers.
    """

    operators: tuple[Operator, ...]
    batches: int
    loading_ns: float
    threads_share: float | None
    bottleneck: Operator | None
    limit: OperatorLimit | None


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """Threads of one name, in each arm; None: not read there.

    CPUs in use, and threads that were runnable without a CPU, on average.
    """

    name: str
    threads: float
    cpu_cores: Mapping[Arm, float | None]
    run_queue_cores: Mapping[Arm, float | None]


@dataclass(frozen=True, slots=True)
class LockWait:
    """How long a thread waits for Python's lock: a mean over `readings`."""

    readings: int
    wait_ns: float


@dataclass(frozen=True, slots=True)
class ThreadReport:
    """The threads of the training process, the busiest in the real arm first.

    `lock_wait` is None where an arm has no reading; `missing` why there are none at all.
    """

    threads: tuple[ThreadUse, ...]
    lock_wait: Mapping[Arm, LockWait | None]
    missing: str | None = None


@once_per_run
def operators_of(run: Run) -> OperatorReport | None:
    """What the operators of `run`'s loader did; None where they were not timed."""
    if not run.operators:
        return None
    epochs = {line.epoch for line in run.operators}
    batches = int(np.isin(run.steps.epoch, list(epochs)).sum())
    loading = _loading_ns(run)
    ordered = sorted(run.operators, key=_place)
    operators = tuple(
        _operator(list(lines), max(batches, 1), loading)
        for _, lines in groupby(ordered, key=_place)
    )
    loading_ns = sum(loading.values())
    share = _threads_share(run, loading_ns)
    bottleneck, limit = _bottleneck(operators, share)
    return OperatorReport(operators, batches, loading_ns, share, bottleneck, limit)


def threads_of(real: Run, ideal: Run | None = None) -> ThreadReport | None:
    """The threads of a run, or of a real and an ideal one; None where none were read."""
    runs: dict[Arm, Run] = {"real": real, "ideal": ideal or real}
    readings = [key for key in (*real.readings, *real.missing) if key[0] == THREADS]
    if not readings:
        return None
    levels = {
        arm: {
            (quantity.subject, quantity.name): quantity.real if arm == "real" else quantity.ideal
            for quantity in quantities(run)
            if quantity.probe == THREADS
        }
        for arm, run in runs.items()
    }
    names = dict.fromkeys(
        subject for by_name in levels.values() for subject, _ in by_name if subject != LOCK
    )
    threads = [_use(name, levels) for name in names]
    threads.sort(key=lambda quantity: -(quantity.cpu_cores["real"] or 0.0))
    missing = next((why for key, why in real.missing.items() if key[0] == THREADS), None)
    waits = {arm: _lock_wait(run, arm) for arm, run in runs.items()}
    return ThreadReport(tuple(threads), waits, missing)


class Stretches:
    """When batches were served, in the order of time."""

    def __init__(self, begin_ns: Column, end_ns: Column) -> None:
        self._begin_ns, self._end_ns = begin_ns, end_ns
        self._before_ns = np.append(0, np.cumsum(end_ns - begin_ns))

    @classmethod
    def of_arm(cls, run: Run, arm: Arm) -> Stretches:
        """The stretches of one arm, each batch from its request to the end of its step."""
        steps = run.steps
        rows = (steps.arm == ARMS.index(arm)) & (steps.request_ns != UNKNOWN)
        begin_ns = steps.request_ns[rows]
        end_ns = begin_ns + steps.wait_ns[rows] + np.maximum(steps.step_ns[rows], 0)
        order = np.argsort(begin_ns, kind="stable")
        return cls(begin_ns[order], end_ns[order])

    def inside(self, begin_ns: Column, end_ns: Column) -> Column:
        """How much of each interval lies in the stretches."""
        return self._until(end_ns) - self._until(begin_ns)

    def _until(self, time_ns: Column) -> Column:
        before = np.searchsorted(self._begin_ns, time_ns, side="right")
        still_to_come = np.append(0, self._end_ns)[before] - time_ns
        until_ns: Column = self._before_ns[before] - np.where(
            before > 0, np.maximum(still_to_come, 0), 0
        )
        return until_ns


def _place(line: OperatorTimes) -> tuple[int, str]:
    return line.order, line.operator


def _time(line: OperatorTimes) -> Time:
    """The epoch of a line, and the beginning and end of the time that it covers."""
    return line.epoch, line.time_ns - line.elapsed_ns, line.time_ns


def _loading_ns(run: Run) -> dict[Time, float]:
    """How long the pipeline did not rest in each time that lines cover."""
    last: dict[Time, OperatorTimes] = {}
    for line in run.operators:
        time = _time(line)
        if time not in last or line.order > last[time].order:
            last[time] = line
    _, begin_ns, end_ns = (np.array(column, np.int64) for column in zip(*last, strict=True))
    in_ideal_ns = Stretches.of_arm(run, "ideal").inside(begin_ns, end_ns).tolist()
    rests = [
        ideal_ns if line.queue_blocked_ns is None else line.queue_blocked_ns
        for line, ideal_ns in zip(last.values(), in_ideal_ns, strict=True)
    ]
    return {
        time: float(max(line.elapsed_ns - rest_ns, 0))
        for (time, line), rest_ns in zip(last.items(), rests, strict=True)
    }


def _operator(lines: list[OperatorTimes], batches: int, loading: Mapping[Time, float]) -> Operator:
    """All that one operator did."""
    first, tasks = lines[0], sum(line.tasks for line in lines)
    task_ns, run_ns, cpu_ns = (
        _mean([(getattr(line, name), line.tasks) for line in lines])
        for name in ("task_ns", "run_ns", "cpu_ns")
    )
    work_ns, share = task_ns if run_ns is None else run_ns, None
    loading_ns = sum(loading[_time(line)] for line in lines)
    if work_ns is not None and first.concurrency and loading_ns > 0:
        share = work_ns * tasks / (loading_ns * first.concurrency)
    occupied = _mean([(line.queue_occupied_ns, line.elapsed_ns) for line in lines])
    return Operator(
        first.operator,
        first.order,
        tasks / batches,
        task_ns,
        run_ns,
        cpu_ns,
        first.concurrency,
        share,
        occupied,
    )


def _mean(parts: Sequence[tuple[int | None, int]]) -> float | None:
    """The sum of the known values, divided by that of their counts; None if that is 0."""
    known = [(value, count) for value, count in parts if value is not None]
    count = sum(count for _, count in known)
    return sum(value for value, _ in known) / count if count else None


def _threads_share(run: Run, loading_ns: float) -> float | None:
    """How much of the time the threads of a pipeline worked; None where there are none."""
    threads, context = run.header.loader.workers, run.header.loader.start_method
    lines = [line for line in run.operators if line.run_ns is not None and line.concurrency]
    if not threads or not lines or context is not None or loading_ns <= 0:
        return None
    return sum(line.run_ns or 0 for line in lines) / (loading_ns * threads)


def _bottleneck(
    operators: tuple[Operator, ...], threads_share: float | None
) -> tuple[Operator | None, OperatorLimit | None]:
    busiest = max(operators, key=lambda operator: operator.work_share or 0.0)
    if (busiest.work_share or 0.0) >= BUSY:
        return busiest, OperatorLimit.BUSY
    costliest = max(operators, key=lambda operator: operator.batch_ns or 0.0)
    if (threads_share or 0.0) >= BUSY:
        return costliest, OperatorLimit.THREADS_BUSY
    filled: float | None = FULL  # a source always has something to do
    starving = None
    for operator in operators:
        has_work = filled is not None and filled >= FULL
        hands_on = operator.queue_share is not None and operator.queue_share <= EMPTY
        if has_work and hands_on:
            starving = operator
        filled = operator.queue_share
    if starving is not None:
        return starving, OperatorLimit.QUEUES
    return None, None


def _use(name: str, levels: Mapping[Arm, Mapping[tuple[str, str], Level | None]]) -> ThreadUse:
    def means(quantity: str) -> dict[Arm, float | None]:
        level_by_arm = {
            arm: by_quantity.get((name, quantity)) for arm, by_quantity in levels.items()
        }
        return {arm: None if level is None else level.mean for arm, level in level_by_arm.items()}

    counts = [count for count in means("threads").values() if count is not None]
    return ThreadUse(name, max(counts, default=0.0), means("cpu_cores"), means("run_queue_cores"))


def _lock_wait(run: Run, arm: Arm) -> LockWait | None:
    """The readings of Python's lock that were taken while batches of `arm` were served."""
    read = run.readings.get((THREADS, LOCK))
    if read is None or "lock_wait_ns" not in read:
        return None
    wait_ns, time_ns = read.lock_wait_ns, read.time_ns
    known = ~np.isnan(wait_ns)
    wait_ns, time_ns = wait_ns[known], time_ns[known]
    # No reading takes longer than the run, whatever a log says.
    tried_ns = np.clip(MOST_TRIES * wait_ns, 0.0, time_ns).astype(np.int64)
    began_ns = time_ns - tried_ns - 1
    # In batches that count nobody tries it: that is for the instruments' blocks.
    served = Stretches.of_arm(run, arm).inside(began_ns, time_ns) >= time_ns - began_ns
    if not served.any():
        return None
    return LockWait(int(served.sum()), float(wait_ns[served].mean()))
