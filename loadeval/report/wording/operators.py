"""Sentences about the operators of a loader's pipeline, and about Python's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.rules.operators import (
    OperatorAdvice,
    OperatorProblem,
    OperatorRule,
    OperatorUnknown,
)

if TYPE_CHECKING:
    from enum import Enum

QUESTIONS: dict[Enum, str] = {
    OperatorRule.SLOW_OPERATOR: "Does one stage of the pipeline hold up the others?",
}
SOURCES: dict[Enum, str] = {
    OperatorRule.SLOW_OPERATOR: (
        "task times of the stages by how many tasks they may work on at once, and their queues"
    ),
}
PROBLEMS: dict[Enum, str] = {
    OperatorProblem.OPERATOR_BUSY: (
        "{name:name} is busy {busy_share:share} of the time with {concurrency} at once."
    ),
    OperatorProblem.THREADS_BUSY: (
        "The {threads} threads of the pipeline are busy {busy_share:share} of the time, most of it "
        "with {name:name}."
    ),
    OperatorProblem.OPERATOR_STARVES_NEXT: (
        "{name:name} always has work waiting, and what comes after it waits for it."
    ),
    OperatorProblem.OPERATOR_COSTLIEST: (
        "{name:name} takes {share:share} of the time that all operators take for a batch."
    ),
    OperatorProblem.PYTHON_LOCK_HELD: (
        "Threads that load batches hold Python's lock (GIL): one that wants it waits "
        "{real_ns:duration}, and {ideal_ns:duration} with ideal loading."
    ),
}
ADVICE: dict[Enum, str] = {
    OperatorAdvice.RAISE_CONCURRENCY: (
        "Let {name:name} work on more items at once: raise its {setting}."
    ),
    OperatorAdvice.RAISE_THREADS: "Give the pipeline more threads: raise {setting}.",
    OperatorAdvice.CHEAPER_OPERATOR: "Make {name:name} cheaper.",
    OperatorAdvice.USE_PROCESSES: (
        "Load in processes instead of threads, or with functions that release the GIL."
    ),
}
IN_SHORT: dict[Enum, str] = {
    OperatorAdvice.RAISE_CONCURRENCY: "raise {setting} of {name:name}",
    OperatorAdvice.RAISE_THREADS: "raise {setting}",
    OperatorAdvice.CHEAPER_OPERATOR: "cheaper {name:name}",
    OperatorAdvice.USE_PROCESSES: "processes instead of threads",
}
WHY_UNKNOWN: dict[Enum, str] = {
    OperatorUnknown.LOCK_NOT_READ: "the threads of the process were not read",
    OperatorUnknown.FEW_LOCK_READINGS: (
        "the wait for Python's lock was read {readings} times in an arm, and {needed} are needed; "
        "measure for longer"
    ),
}
