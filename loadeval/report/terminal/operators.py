"""Operators of a loader's pipeline, and threads of the training process, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.data.run import ARMS
from loadeval.report.formatting import duration, number, share, short_name
from loadeval.report.tables import Table, wrapped
from loadeval.report.wording import operators as wording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.analysis.inside.operators import Operator, OperatorReport, ThreadReport
    from loadeval.data.lines import Arm

    Rows = list[tuple[str, ...]]

LONGEST_OPERATOR, LONGEST_THREAD = 22, 24
MOST_OPERATORS, MOST_THREADS = 16, 8
"""A table in the terminal has at most so many rows."""


def operators_lines(operators: OperatorReport, width: int) -> list[str]:
    """What each operator does, and which is the bottleneck."""
    head, *rows = operator_table(operators, LONGEST_OPERATOR)
    return [
        *wrapped(wording.operators_headline(operators), width),
        *Table("", head, first_rows(rows, MOST_OPERATORS)).lines(width),
        *wrapped(wording.heads_in_words(head), width),
        *wrapped(wording.bottleneck_in_words(operators), width),
    ]


def threads_lines(threads: ThreadReport, width: int) -> list[str]:
    """How busy threads are, the wait for Python's lock, and why something is missing."""
    rows = thread_table(threads, LONGEST_THREAD)
    table = [rows[0], *first_rows(rows[1:], MOST_THREADS)] if rows else []
    sentences = [wording.lock_in_words(threads), wording.no_threads_in_words(threads)]
    lines = Table(rows=table).lines(width)
    return [*lines, *(line for text in sentences for line in wrapped(text, width))]


def operator_table(operators: OperatorReport, longest: int) -> Rows:
    """A row for each operator, below a head; a column is left out if nothing in it is known."""
    rows = [_operator(operator, longest) for operator in operators.operators]
    columns = [
        column
        for column in zip(wording.OPERATORS_HEAD, *rows, strict=True)
        if column[0] == wording.OPERATORS_HEAD[0] or any(column[1:])
    ]
    return list(zip(*columns, strict=True))


def _operator(operator: Operator, longest: int) -> tuple[str, ...]:
    """The cells of an operator; unknown ones are empty, since a source has no tasks to time."""
    times = (operator.task_ns, operator.run_ns, operator.cpu_ns)
    return (
        short_name(operator.name, longest),
        number(operator.tasks_per_batch),
        *("" if ns is None else duration(ns) for ns in times),
        "" if operator.concurrency is None else f"{operator.concurrency}",
        *(
            "" if part is None else share(part)
            for part in (operator.busy_share, operator.queue_share)
        ),
    )


def thread_table(threads: ThreadReport, longest: int) -> Rows:
    """A row for each name of threads below the heading, in the arms that were read; or nothing."""
    arms = [
        arm for arm in ARMS if any(thread.cpu_cores[arm] is not None for thread in threads.threads)
    ]
    rows = [
        (
            short_name(thread.name, longest),
            f"{thread.threads:.3g}",
            _cores(thread.cpu_cores, arms),
            _cores(thread.run_queue_cores, arms),
        )
        for thread in threads.threads
    ]
    return [wording.threads_head(arms), *rows] if arms else []


def _cores(cores: Mapping[Arm, float | None], arms: list[Arm]) -> str:
    known = (cores[arm] for arm in arms)
    return ", ".join(wording.NOT_KNOWN if count is None else f"{count:.2f}" for count in known)


def first_rows(rows: Rows, most: int) -> Rows:
    """The first of `rows`, and how many there are more."""
    if len(rows) <= most:
        return rows
    return [*rows[:most], (f"and {len(rows) - most} more", *("" for _ in rows[0][1:]))]
