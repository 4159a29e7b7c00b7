"""Operators of a loader's pipeline and threads of the training process, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.operators import Limit
from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    duration,
    filled,
    printable,
    short_name,
    whole_share,
)
from loadeval.report.wording.stages import LEAST_IN_SHORT, TITLE

if TYPE_CHECKING:
    from loadeval.analysis.operators import Operator, OperatorReport, ThreadReport
    from loadeval.runlog.model import Arm

OPERATORS_HEAD = ("operator", "tasks", "a task", "running", "on CPU", "at once", "busy", "queue")
TASKS = "Tasks are those of a batch."
QUEUE = "Queue: for how much of the time the queue behind the operator is not empty."
BOTTLENECK = {
    Limit.BUSY: "Bottleneck: {name:name}, which is busy {busy:share} of the time.",
    Limit.THREADS_BUSY: (
        "Bottleneck: the pipeline's threads, busy {threads:share} of the time, most of it with "
        "{name:name}."
    ),
    Limit.QUEUES: (
        "Bottleneck: {name:name}, which always has work waiting, and what comes after it waits "
        "for it."
    ),
    Limit.COSTLIEST: (
        "Bottleneck: possibly {name:name}, which takes the most time for a batch; how busy it is "
        "is not known."
    ),
}
NO_BOTTLENECK = "Bottleneck: none found."
MOST_IN_SHORT = 4
LONGEST_IN_SHORT = 24
"""Operators in a line with others, and characters of a name."""
THREADS = "Threads of the training process"
LOCK = "A thread that wants Python's lock (GIL) waits for it"
NOT_KNOWN = "-"


def operators_headline(found: OperatorReport) -> str:
    """How many there are, and over how many batches."""
    operators = counted(len(found.operators), "operator", "operators")
    return f"{TITLE}: {operators}, over {counted(found.batches, 'batch', 'batches')}"


def bottleneck_in_words(found: OperatorReport) -> str:
    """Which operator holds up the others, and how that is known."""
    one, limit = found.bottleneck, found.limit
    if one is None or limit is None:
        return NO_BOTTLENECK
    threads = min(found.threads_share or 0.0, 1.0)
    values = {"name": one.name, "busy": one.busy_share, "threads": threads}
    return filled(BOTTLENECK[limit], values)


def heads_in_words(head: tuple[str, ...]) -> str:
    """What those columns of OPERATORS_HEAD are that `head` has."""
    return f"{TASKS} {QUEUE}" if "queue" in head else TASKS


def operators_in_short(found: OperatorReport, most: int = MOST_IN_SHORT) -> str:
    """The `most` busiest operators, or the costliest where none is known to be busy; or ""."""
    busy = [one for one in found.operators if (one.busy_share or 0.0) >= LEAST_IN_SHORT]
    if busy:
        busy.sort(key=lambda one: -(one.busy_share or 0.0))
        first, *others = (f"{_named(one)} {whole_share(one.busy_share or 0.0)}" for one in busy)
        return ", ".join([f"{first} busy", *others][:most])
    costly = [one for one in found.operators if one.batch_ns]
    costly.sort(key=lambda one: -(one.batch_ns or 0.0))
    told = [f"{_named(one)} {duration(one.batch_ns)}" for one in costly[:most]]
    return f"{', '.join(told)} a batch" if told else ""


def _named(one: Operator) -> str:
    return short_name(one.name, LONGEST_IN_SHORT)


def threads_head(arms: list[Arm]) -> tuple[str, ...]:
    """What the columns are, where `arms` were read."""
    return ("thread", "threads", f"CPUs ({', '.join(arms)})", "waiting for a CPU")


def no_threads_in_words(found: ThreadReport) -> str:
    """Why no threads are known; "" where that is not told."""
    return f"{THREADS}: {NOT_MEASURED}: {printable(found.missing)}" if found.missing else ""


def lock_in_words(found: ThreadReport) -> str:
    """How long a thread waits for Python's lock in each arm; "" where that was never read."""
    told = [
        f"{duration(one.wait_ns)} ({arm}, {counted(one.readings, 'reading', 'readings')})"
        for arm, one in found.lock_wait.items()
        if one is not None
    ]
    return f"{LOCK}: {', '.join(told)}." if told else ""
