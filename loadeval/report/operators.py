"""Operators of a loader's pipeline, and threads of the training process, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import duration, number, share, short_name
from loadeval.report.tables import table_lines, wrapped
from loadeval.report.wording.operators import (
    NOT_KNOWN,
    OPERATORS_HEAD,
    bottleneck_in_words,
    heads_in_words,
    lock_in_words,
    no_threads_in_words,
    operators_headline,
    threads_head,
)
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.analysis.operators import Operator, OperatorReport, ThreadReport
    from loadeval.runlog.model import Arm

    Table = list[tuple[str, ...]]

LONGEST_OPERATOR, LONGEST_THREAD = 22, 24
MOST_OPERATORS, MOST_THREADS = 16, 8
"""Rows of a table in the terminal."""


def operators_lines(found: OperatorReport, width: int) -> list[str]:
    """What each operator does, and which is the bottleneck."""
    head, *rows = operator_table(found, LONGEST_OPERATOR)
    return [
        *wrapped(operators_headline(found), width),
        *table_lines([head, *first_rows(rows, MOST_OPERATORS)], width),
        *wrapped(heads_in_words(head), width),
        *wrapped(bottleneck_in_words(found), width),
    ]


def threads_lines(found: ThreadReport, width: int) -> list[str]:
    """How busy threads are, the wait for Python's lock, and why something is missing."""
    rows = thread_table(found, LONGEST_THREAD)
    table = [rows[0], *first_rows(rows[1:], MOST_THREADS)] if rows else []
    told = [lock_in_words(found), no_threads_in_words(found)]
    lines = table_lines(table, width) if table else []
    return [*lines, *(line for text in told for line in wrapped(text, width))]


def operator_table(found: OperatorReport, longest: int) -> Table:
    """A row for each operator below the heading; a column in which nothing is known is left out."""
    rows = [_operator(one, longest) for one in found.operators]
    columns = [
        column
        for column in zip(OPERATORS_HEAD, *rows, strict=True)
        if column[0] == OPERATORS_HEAD[0] or any(column[1:])
    ]
    return list(zip(*columns, strict=True))


def _operator(one: Operator, longest: int) -> tuple[str, ...]:
    """What is not known is empty: a source has no tasks to time."""
    times = (one.task_ns, one.run_ns, one.cpu_ns)
    return (
        short_name(one.name, longest),
        number(one.tasks_per_batch),
        *("" if ns is None else duration(ns) for ns in times),
        "" if one.concurrency is None else f"{one.concurrency}",
        *("" if part is None else share(part) for part in (one.busy_share, one.queue_share)),
    )


def thread_table(found: ThreadReport, longest: int) -> Table:
    """A row for each name of threads below the heading, in the arms that were read; or nothing."""
    arms = [arm for arm in ARMS if any(one.cpu_cores[arm] is not None for one in found.threads)]
    rows = [
        (
            short_name(one.name, longest),
            f"{one.threads:.3g}",
            _cores(one.cpu_cores, arms),
            _cores(one.run_queue_cores, arms),
        )
        for one in found.threads
    ]
    return [threads_head(arms), *rows] if arms else []


def _cores(cores: Mapping[Arm, float | None], arms: list[Arm]) -> str:
    known = (cores[arm] for arm in arms)
    return ", ".join(NOT_KNOWN if one is None else f"{one:.2f}" for one in known)


def first_rows(rows: Table, most: int) -> Table:
    """The first of `rows`, and how many there are more."""
    if len(rows) <= most:
        return rows
    return [*rows[:most], (f"and {len(rows) - most} more", *("" for _ in rows[0][1:]))]
