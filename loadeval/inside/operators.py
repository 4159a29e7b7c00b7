"""Who is busy beside training: the operators of a pipeline, and threads.

A stage of SPDL's is the bottleneck if it works all the time. While nobody takes batches, as in the
ideal blocks of an alternating run, the pipeline soon rests, for its last queue is full. This time
does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np

from loadeval.data.lines import Arm
from loadeval.data.run import ARMS, Run
from loadeval.estimate.metrics import THREADS, ByArm, quantities, served
from loadeval.estimate.steady import once_per_run

BUSY = 0.8
"""An operator limits the others if it does at least this share of what it can do at once."""
LOCK = "python lock"
MOST_TRIES = 5
"""The most tries in a reading of Python's lock, which lasts as long as they take."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: means of a task in nanoseconds, and shares of the time; None: not known.

    `busy_share` is how much it did of what it may do at once; `queue_share` for how much of the
    time the queue behind it held something. `batch_ns` is how long its tasks for a batch take in
    turn, without the wait for threads.
    """

    name: str
    tasks_per_batch: float
    task_ns: float | None
    cpu_ns: float | None
    concurrency: int | None
    busy_share: float | None
    queue_share: float | None
    batch_ns: float | None


@dataclass(frozen=True, slots=True)
class Operators:
    """The operators, from the source on, and the busiest if it is the bottleneck."""

    operators: tuple[Operator, ...]
    bottleneck: Operator | None


@once_per_run
def operators(run: Run) -> Operators | None:
    """What the operators of `run`'s loader did; None where they were not timed."""
    if not run.operators:
        return None
    epochs = list({line.epoch for line in run.operators})
    batches = max(int(np.isin(run.steps.epoch, epochs).sum()), 1)
    place = attrgetter("order", "operator")
    in_order = sorted(run.operators, key=place)
    loading_ns = {  # until each time that lines are of; the last operator tells
        (line.epoch, line.time_ns): max(line.elapsed_ns - (line.queue_blocked_ns or 0), 0)
        for line in in_order
    }
    made: list[Operator] = []
    busy: list[float] = []
    for (_, name), group in groupby(in_order, key=place):
        lines = list(group)
        tasks, concurrency = sum(line.tasks for line in lines), lines[0].concurrency
        task_ns = _ratio((line.task_ns, line.tasks) for line in lines)
        run_ns = _ratio((line.run_ns, line.tasks) for line in lines)
        work_ns = task_ns if run_ns is None else run_ns
        could_ns = sum(loading_ns[line.epoch, line.time_ns] for line in lines) * (concurrency or 0)
        did = work_ns * tasks / could_ns if work_ns and could_ns else None
        busy.append(did or 0.0)  # it may be more than 1 where that is not exactly known
        operator = Operator(
            name=name,
            tasks_per_batch=tasks / batches,
            task_ns=task_ns,
            cpu_ns=_ratio((line.cpu_ns, line.tasks) for line in lines),
            concurrency=concurrency,
            busy_share=None if did is None else min(did, 1.0),
            queue_share=_ratio((line.queue_occupied_ns, line.elapsed_ns) for line in lines),
            batch_ns=None if work_ns is None else tasks / batches * work_ns,
        )
        made.append(operator)
    return Operators(tuple(made), made[int(np.argmax(busy))] if max(busy) >= BUSY else None)


def _ratio(parts: Iterable[tuple[int | None, int]]) -> float | None:
    """The sum of the known values, divided by that of their counts; None if that is 0."""
    known = [(value, count) for value, count in parts if value is not None]
    count = sum(count for _, count in known)
    return sum(value for value, _ in known) / count if count else None


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """Threads of one name, in each arm; None: not read there.

    CPUs in use, and threads that were runnable without a CPU, on average.
    """

    name: str
    threads: float
    cpu_cores: ByArm
    run_queue_cores: ByArm


@dataclass(frozen=True, slots=True)
class LockWait:
    """How long a thread waits for Python's lock: a mean over `readings`."""

    readings: int
    wait_ns: float


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of the training process, the busiest in the real arm first.

    `lock_wait` is None where an arm has no reading.
    """

    threads: tuple[ThreadUse, ...]
    lock_wait: Mapping[Arm, LockWait | None]


@once_per_run
def threads(real: Run, ideal: Run | None = None) -> Threads | None:
    """The threads of a run, or of a real and an ideal one; None where none were read."""
    if not any(probe == THREADS for probe, _ in real.readings):
        return None
    levels: dict[str, dict[str, ByArm]] = {}
    for each in quantities(real, ideal):
        if each.probe == THREADS and each.subject != LOCK:
            levels.setdefault(each.subject, {})[each.name] = each.means
    unknown: ByArm = dict.fromkeys(ARMS)
    uses = [
        ThreadUse(
            name,
            max((count for count in read.get("threads", unknown).values() if count), default=0.0),
            read.get("cpu_cores", unknown),
            read.get("run_queue_cores", unknown),
        )
        for name, read in levels.items()
    ]
    runs = zip(ARMS, (real, ideal or real), strict=True)
    return Threads(
        tuple(sorted(uses, key=lambda use: -(use.cpu_cores["real"] or 0.0))),
        {arm: _lock_wait(run, arm) for arm, run in runs},
    )


def _lock_wait(run: Run, arm: Arm) -> LockWait | None:
    """The readings of Python's lock that were taken while batches of `arm` were served."""
    table = run.readings.get((THREADS, LOCK))
    if table is None or "lock_wait_ns" not in table:
        return None
    table = table.take(~np.isnan(table.lock_wait_ns))
    # No reading takes longer than the run, whatever a log says.
    tried_ns = np.clip(MOST_TRIES * table.lock_wait_ns, 0.0, table.time_ns).astype(np.int64) + 1
    # It is tried in the instruments' blocks, which do not count.
    until = served(run, run.steps.arm == ARMS.index(arm))
    is_of_arm = until(table.time_ns) - until(table.time_ns - tried_ns) >= tried_ns
    wait_ns = table.lock_wait_ns[is_of_arm]
    return LockWait(len(wait_ns), float(wait_ns.mean())) if len(wait_ns) else None
