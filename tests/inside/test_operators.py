"""Which operator is the bottleneck, which threads are busy, and the wait for Python's lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from loadeval.data.columns import Columns
from loadeval.data.lines import Arm, OperatorTimes
from loadeval.data.run import Run
from loadeval.inside.operators import LockWait, Operators, Threads, operators, threads
from tests.builder import MS, run_of, steps

SECOND = 1000 * MS


def by_turns(
    *lines: OperatorTimes,
    arms: Sequence[Arm] = ("real", "ideal"),
    readings: Any = None,
    missing: Any = None,
    **known: Any,
) -> Run:
    """A second of each arm in turn: ten batches of 100 ms."""
    return run_of(
        [steps(arm, 50, 50, 10, pair=turn // 2) for turn, arm in enumerate(arms)],
        operators=lines,
        readings=readings or {},
        missing=missing or {},
        **{"workers": 4, **known},
    )


def line(name: str, order: int, **known: Any) -> OperatorTimes:
    """What an operator did in two seconds: 20 tasks. Times in ms are named `task`, `run`, `cpu`."""
    for each in ("task", "run", "cpu"):
        if each in known:
            known[f"{each}_ns"] = known.pop(each) * MS
    chosen = {"epoch": 0, "time_ns": 2 * SECOND, "elapsed_ns": 2 * SECOND, "tasks": 20}
    return OperatorTimes(operator=name, order=order, **{**chosen, **known})


def report_of(run: Run) -> Operators:
    report = operators(run)
    assert report is not None
    return report


def test_a_task_is_a_mean_and_waits_for_a_thread() -> None:
    """That wait is no part of what the operator does for a batch."""
    first = {"time_ns": SECOND, "elapsed_ns": SECOND, "task": 800, "run": 400, "cpu": 100}
    second = {"elapsed_ns": SECOND, "task": 400, "run": 200, "cpu": 300}
    lines = (line("decode", 1, concurrency=2, **part) for part in (first, second))
    (operator,) = report_of(by_turns(*lines, arms=("real", "real"))).operators
    assert (operator.name, operator.tasks_per_batch) == ("decode", 2)
    assert (operator.task_ns, operator.cpu_ns) == (30 * MS, 10 * MS)
    assert operator.batch_ns == 30 * MS
    assert operator.busy_share == pytest.approx(600 / (2000 * 2))


def test_the_time_in_which_a_pipeline_rests_does_not_count() -> None:
    """Its last queue is full."""
    decode = line("decode", 1, task=1000, run=1000, concurrency=1)
    resting = report_of(by_turns(line("sink", 9, queue_blocked_ns=SECOND // 2), decode))
    assert resting.operators[0].busy_share == pytest.approx(2 / 3)


SINK = line("sink", 9, queue_blocked_ns=0)


def test_of_two_that_are_busy_all_the_time_the_busier_one_is_the_bottleneck() -> None:
    """Their times are not exactly known, so that both may be over all of it."""
    lines = (line(f"{work}", 1, task=work, run=work, concurrency=1) for work in (2100, 2900))
    report = report_of(by_turns(*lines, SINK))
    assert (report.bottleneck or SINK).name == "2900"


def test_a_line_about_no_time_has_no_share() -> None:
    nothing = line("decode", 0, task=1, run=1, concurrency=1, elapsed_ns=0, tasks=0)
    report = report_of(by_turns(nothing))
    (operator,) = report.operators
    assert (operator.task_ns, operator.busy_share, operator.queue_share, operator.batch_ns) == (
        None,
    ) * 4
    assert report.bottleneck is None


def reading(**values: Sequence[float]) -> Columns:
    """Readings that were taken every 100 ms."""
    times = {"time_ns": np.arange(1, len(next(iter(values.values()))) + 1) * 100 * MS}
    return Columns({**times, **{name: np.array(column) for name, column in values.items()}})


def threads_of(run: Run, ideal: Run | None = None) -> Threads:
    report = threads(run, ideal)
    assert report is not None
    return report


def test_threads_are_told_in_both_arms_the_busiest_first() -> None:
    readings = {
        ("threads", "decode"): reading(cpu_cores=[2.0] * 10 + [0.5] * 10, threads=[3.0] * 20),
        ("threads", "busy"): reading(
            cpu_cores=[3.0] * 10 + [0.0] * 10, run_queue_cores=[0.25] * 20
        ),
    }
    busy, decode = threads_of(by_turns(readings=readings)).threads
    assert (busy.name, decode.name, decode.threads, busy.threads) == ("busy", "decode", 3, 0)
    assert decode.cpu_cores == {"real": 2, "ideal": 0.5}
    assert busy.run_queue_cores == {"real": 0.25, "ideal": 0.25}
    assert decode.run_queue_cores == {"real": None, "ideal": None}


def test_the_ideal_arm_may_be_another_run() -> None:
    readings = [{("threads", name): reading(cpu_cores=[2.0] * 9)} for name in ("decode", "x")]
    log = by_turns(arms=["real"], mode="log", warmup=0, readings=readings[0])
    replay = by_turns(arms=["ideal"], mode="replay", warmup=0, readings=readings[1])
    decode, other = threads_of(log, replay).threads
    assert (decode.name, decode.cpu_cores) == ("decode", {"real": 2, "ideal": None})
    assert (other.name, other.cpu_cores) == ("x", {"real": None, "ideal": 2})


def test_a_wait_for_pythons_lock_counts_for_the_arm_in_which_all_of_it_was() -> None:
    """One that was tried while the arm changed counts for neither, nor an unknown one."""
    waits = [5e6] * 10 + [5e6] + [1e5] * 8 + [np.nan]
    report = threads_of(
        by_turns(readings={("threads", "python lock"): reading(lock_wait_ns=waits)})
    )
    assert report.threads == ()
    assert report.lock_wait["real"] == LockWait(10, 5e6)
    ideal = report.lock_wait["ideal"]
    assert ideal is not None
    assert ideal.readings == 9


def test_where_no_thread_was_read_there_is_none() -> None:
    key = ("threads", "")
    report = threads_of(by_turns(readings={key: reading(x=[])}, missing={key: "no /proc"}))
    assert report.threads == ()
    assert report.lock_wait == {"real": None, "ideal": None}
    assert threads(by_turns()) is None
