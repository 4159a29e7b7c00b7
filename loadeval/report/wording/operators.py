"""Operators of a loader's pipeline and threads of the training process, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.inside.operators import OperatorLimit
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
    from loadeval.analysis.inside.operators import Operator, OperatorReport, ThreadReport
    from loadeval.data.lines import Arm

OPERATORS_HEAD = ("operator", "tasks", "a task", "running", "on CPU", "at once", "busy", "queue")
TASKS = "Tasks are those of a batch."
QUEUE = "Queue: for how much of the time the queue behind the operator is not empty."
BOTTLENECK = {
    OperatorLimit.BUSY: "Bottleneck: {name:name}, which is busy {busy:share} of the time.",
    OperatorLimit.THREADS_BUSY: (
        "Bottleneck: the pipeline's threads, busy {threads:share} of the time, most of it with "
        "{name:name}."
    ),
    OperatorLimit.QUEUES: (
        "Bottleneck: {name:name}, which always has work waiting, and what comes after it waits "
        "for it."
    ),
}
NO_BOTTLENECK = "Bottleneck: none found."
MOST_IN_SHORT = 4
LONGEST_IN_SHORT = 24
"""At most so many operators in one line, and so many characters of a name."""
THREADS = "Threads of the training process"
LOCK = "Wait of a thread for Python's lock (GIL)"
NOT_KNOWN = "-"


def operators_headline(report: OperatorReport) -> str:
    """How many operators there are, and over how many batches they were measured."""
    operators = counted(len(report.operators), "operator", "operators")
    return f"{TITLE}: {operators}, over {counted(report.batches, 'batch', 'batches')}"


def bottleneck_in_words(operators: OperatorReport) -> str:
    """Which operator holds up the others, and how that is known."""
    operator, limit = operators.bottleneck, operators.limit
    if operator is None or limit is None:
        return NO_BOTTLENECK
    threads = min(operators.threads_share or 0.0, 1.0)
    values = {"name": operator.name, "busy": operator.busy_share, "threads": threads}
    return filled(BOTTLENECK[limit], values)


def heads_in_words(head: tuple[str, ...]) -> str:
    """What the columns in `head` mean."""
    return f"{TASKS} {QUEUE}" if "queue" in head else TASKS


def operators_in_short(operators: OperatorReport, most: int = MOST_IN_SHORT) -> str:
    """The `most` busiest operators, or the costliest where none is known to be busy; or ""."""
    busy = [
        operator
        for operator in operators.operators
        if (operator.busy_share or 0.0) >= LEAST_IN_SHORT
    ]
    if busy:
        busy.sort(key=lambda operator: -(operator.busy_share or 0.0))
        first, *others = (
            f"{_named(operator)} {whole_share(operator.busy_share or 0.0)}" for operator in busy
        )
        return ", ".join([f"{first} busy", *others][:most])
    costly = [operator for operator in operators.operators if operator.batch_ns]
    costly.sort(key=lambda operator: -(operator.batch_ns or 0.0))
    shown = [f"{_named(operator)} {duration(operator.batch_ns)}" for operator in costly[:most]]
    return f"{', '.join(shown)} a batch" if shown else ""


def _named(operator: Operator) -> str:
    return short_name(operator.name, LONGEST_IN_SHORT)


def threads_head(arms: list[Arm]) -> tuple[str, ...]:
    """What the columns are, where `arms` were read."""
    return ("thread", "threads", f"CPUs ({', '.join(arms)})", "waiting for a CPU")


def no_threads_in_words(threads: ThreadReport) -> str:
    """Why no threads are known; "" where that is not told."""
    return f"{THREADS}: {NOT_MEASURED}: {printable(threads.missing)}" if threads.missing else ""


def lock_in_words(threads: ThreadReport) -> str:
    """How long a thread waits for Python's lock in each arm; "" where that was never read."""
    waits = [
        f"{duration(wait.wait_ns)} ({arm}, {counted(wait.readings, 'reading', 'readings')})"
        for arm, wait in threads.lock_wait.items()
        if wait is not None
    ]
    return f"{LOCK}: {', '.join(waits)}." if waits else ""
