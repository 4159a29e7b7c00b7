"""Operators of a pipeline and threads of the training process, as tables and in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from loadeval.analysis.inside.operators import (
    LockWait,
    Operator,
    OperatorLimit,
    OperatorReport,
    ThreadReport,
    ThreadUse,
)
from loadeval.analysis.inside.stages import NoStages
from loadeval.analysis.remark import Remark
from loadeval.analysis.report import Report, RunReport
from loadeval.report.terminal.operators import operators_lines, threads_lines
from loadeval.report.terminal.screen import screen
from loadeval.report.terminal.stages import inside_lines
from loadeval.report.terminal.text import full_report
from loadeval.report.wording.operators import bottleneck_in_words, operators_in_short
from tests.runs.staged import MS, staged
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 80
UNKNOWN_TIMES: dict[str, Any] = {
    "task_ns": None,
    "run_ns": None,
    "cpu_ns": None,
    "work_share": None,
    "queue_share": None,
}
DECODE = Operator("decode", 1, 16, 15 * MS, 14 * MS, 8 * MS, 2, 1.02, 0.001)
COLLATE = Operator("collate", 3, 1, 3 * MS, 1 * MS, 0.5 * MS, 1, 0.12, 0.9)
SOURCE = replace(DECODE, name="source", order=0, concurrency=1, **UNKNOWN_TIMES)


def operators(*parts: Operator, **values: Any) -> OperatorReport:
    """A report of `found`, of which decode is busy."""
    chosen = {"bottleneck": DECODE, "limit": OperatorLimit.BUSY, "threads_share": 0.5, **values}
    return OperatorReport(parts or (SOURCE, DECODE, COLLATE), 96, 12e9, **chosen)


def unknown_concurrency(name: str, task_ns: float) -> Operator:
    """An operator of Ray's, as far as it is known."""
    known = {**UNKNOWN_TIMES, "task_ns": task_ns}
    return replace(DECODE, name=name, tasks_per_batch=2, concurrency=None, **known)


def use(name: str, real: float | None, ideal: float | None) -> ThreadUse:
    cores: Any = {"real": real, "ideal": ideal}
    return ThreadUse(name, 2, cores, cores)


LOCK: Any = {"real": LockWait(10, 2 * MS), "ideal": LockWait(1, 0.1 * MS)}
NO_LOCK: Any = {"real": None, "ideal": None}
THREADS = ThreadReport((use("decode", 1.5, 0.25), use("source", 0.5, None)), LOCK)


@pytest.fixture(name="one", scope="module")
def _one() -> RunReport:
    """A run with stages."""
    (run_report,) = Report.of([staged()]).runs
    return run_report


def pipeline(run_report: RunReport, **values: Any) -> RunReport:
    """`one`, as if its loader had operators and threads in place of stages."""
    chosen: dict[str, Any] = {"stages": None, "operators": operators(), "threads": THREADS}
    return replace(run_report, **{**chosen, **values})


def cells(lines: Sequence[str], label: str) -> list[str]:
    (row,) = (line for line in lines if line.split("  ")[0] == label)
    return [cell.strip() for cell in row.split("  ")[1:] if cell.strip()]


def test_an_operator_has_its_times_and_shares() -> None:
    """No share of the time is over 100%."""
    lines = operators_lines(operators(), WIDTH)
    assert lines[0] == "Inside the loader: 3 operators, over 96 batches"
    heads = ["tasks", "a task", "running", "on CPU", "at once", "busy", "queue"]
    assert cells(lines, "operator") == heads
    times = ["15.0 ms", "14.0 ms", "8.00 ms"]
    assert cells(lines, "decode") == ["16.0", *times, "2", "100.0%", "0.1%"]


def test_what_is_not_known_of_an_operator_is_empty() -> None:
    """No time is known of a source."""
    assert cells(operators_lines(operators(), WIDTH), "source") == ["16.0", "1"]


def test_what_the_columns_are_is_told_of_those_there_are() -> None:
    shown = " ".join(operators_lines(operators(), WIDTH))
    assert "Tasks are those of a batch. Queue: for how much of the time" in shown
    shown = " ".join(operators_lines(operators(unknown_concurrency("Map", 5 * MS)), WIDTH))
    assert "Queue" not in shown


def test_what_is_known_of_no_operator_has_no_column() -> None:
    lines = operators_lines(operators(unknown_concurrency("Map", 5 * MS)), WIDTH)
    assert cells(lines, "operator") == ["tasks", "a task"]


def test_operators_fit_a_terminal() -> None:
    """They fit however many there are, and however long their names."""
    many = [replace(DECODE, name=f"{'long' * 20}{at}", tasks_per_batch=1234) for at in range(40)]
    lines = operators_lines(operators(*many), WIDTH)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= WIDTH
    assert "and 24 more" in lines


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (OperatorLimit.BUSY, "decode, which is busy 100.0% of the time"),
        (OperatorLimit.THREADS_BUSY, "the pipeline's threads, busy 50.0% of the time"),
        (OperatorLimit.QUEUES, "decode, which always has work waiting"),
        (None, "none found"),
    ],
)
def test_the_bottleneck_in_words(limit: OperatorLimit | None, expected: str) -> None:
    """The words say how it is known."""
    operator_report = operators(limit=limit, bottleneck=None if limit is None else DECODE)
    assert bottleneck_in_words(operator_report).startswith(f"Bottleneck: {expected}")


def test_one_line_has_the_busiest_operators() -> None:
    """The busiest first."""
    assert operators_in_short(operators(COLLATE, SOURCE, DECODE)) == "decode 100% busy, collate 12%"


def test_one_line_has_the_costliest_where_none_is_known_to_be_busy() -> None:
    operator_report = operators(
        unknown_concurrency("collate", 1 * MS), unknown_concurrency("Map", 5 * MS), SOURCE
    )
    assert operators_in_short(operator_report) == "Map 10.0 ms, collate 2.00 ms a batch"
    assert operators_in_short(operators(SOURCE)) == ""


def test_threads_have_both_arms() -> None:
    """A thread that is not there in one is marked."""
    lines = threads_lines(THREADS, WIDTH)
    assert cells(lines, "thread") == ["threads", "CPUs (real, ideal)", "waiting for a CPU"]
    assert cells(lines, "decode") == ["2", "1.50, 0.25", "1.50, 0.25"]
    assert cells(lines, "source") == ["2", "0.50, -", "0.50, -"]


def test_threads_of_one_arm_have_that() -> None:
    lines = threads_lines(ThreadReport((use("decode", 1.5, None),), NO_LOCK), WIDTH)
    assert lines[0].split("  ")[-2].strip() == "CPUs (real)"
    assert cells(lines, "decode") == ["2", "1.50", "1.50"]
    assert len(lines) == 2


def test_the_wait_for_the_lock_is_one_line() -> None:
    """It has the arms in which it was read."""
    expected = "Wait of a thread for Python's lock (GIL): 2.00 ms (real, 10 readings)"
    text = " ".join(threads_lines(THREADS, WIDTH)[3:])
    assert text == f"{expected}, 100 us (ideal, 1 reading)."
    real = ThreadReport((), {"real": LOCK["real"], "ideal": None})
    assert " ".join(threads_lines(real, WIDTH)) == f"{expected}."


def test_many_threads_are_cut_short() -> None:
    many = ThreadReport(tuple(use(f"t{at}", 1, 1) for at in range(20)), NO_LOCK)
    assert threads_lines(many, WIDTH)[-1] == "and 12 more"


def test_threads_that_were_not_read_say_why() -> None:
    lines = threads_lines(ThreadReport((), NO_LOCK, "no /proc"), WIDTH)
    assert lines == ["Threads of the training process: not measured: no /proc"]


def test_a_pipeline_has_operators_and_below_them_threads(one: RunReport) -> None:
    lines = inside_lines(pipeline(one), WIDTH)
    assert lines[0].startswith("Inside the loader: 3 operators")
    assert lines.index("") + 1 == next(
        at for at, line in enumerate(lines) if line.startswith("thread  ")
    )


def test_a_loader_without_stages_and_operators_has_threads(one: RunReport) -> None:
    """Below the reason."""
    why = Remark(NoStages.ENDED, {"message": "DALI tells nobody"})
    lines = inside_lines(pipeline(one, operators=None, no_stages=why), WIDTH)
    assert lines[0] == "Inside the loader: not measured: DALI tells nobody"
    assert lines[2].startswith("thread  ")


def test_threads_come_below_stages(one: RunReport) -> None:
    lines = inside_lines(replace(one, threads=THREADS), WIDTH)
    stages = inside_lines(replace(one, threads=None), WIDTH)
    assert lines[: len(stages)] == stages
    assert lines[len(stages) + 1].startswith("thread  ")


def test_a_name_cannot_steer_the_terminal(one: RunReport) -> None:
    """Names of operators and threads are text."""
    hostile = replace(DECODE, name="\x1b[2J")
    threads = ThreadReport((use("\x1b[2J", 1, 1),), LOCK, "\x1b[2J")
    operator_report = operators(hostile, bottleneck=hostile)
    lines = inside_lines(pipeline(one, operators=operator_report, threads=threads), WIDTH)
    assert "\x1b" not in "".join([*lines, operators_in_short(operator_report)])


# In the whole report


def compared(*parts: Operator) -> Report:
    """A run that alternated, as if its loader had these operators."""
    report = Report.of([staged()])
    assert report.comparison is not None
    changes: dict[str, Any] = {"stages": None, "operators": operators(*parts)}
    (run_report,) = report.runs
    comparison = replace(report.comparison, **changes)
    return replace(report, runs=(replace(run_report, **changes),), comparison=comparison)


def inside_line(report: Report, width: int = WIDTH) -> list[str]:
    return [line for line in screen(report, [], width) if line.startswith("inside the loader")]


def test_the_screen_has_a_line_of_the_operators() -> None:
    assert inside_line(compared()) == ["inside the loader  decode 100% busy, collate 12%"]
    assert inside_line(compared(SOURCE)) == []


def test_the_screen_has_as_many_operators_as_fit() -> None:
    """In one line."""
    long = [
        replace(DECODE, name=letter * 20, work_share=share)
        for letter, share in (("a", 0.9), ("b", 0.5), ("c", 0.2))
    ]
    (line,) = inside_line(compared(*long))
    assert line == f"inside the loader  {'a' * 20} 90% busy, {'b' * 20} 50%"
    (line,) = inside_line(compared(*long), 30)
    assert line.endswith("...")


def test_the_full_comparison_has_the_operators() -> None:
    console = Console(width=WIDTH, no_color=True)
    with console.capture() as captured:
        console.print(*full_report(compared()))
    assert "Inside the loader: 3 operators, over 96 batches" in captured.get()
