"""Slow operators, and Python's lock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import Finding, OperatorTimes, Readings, Remark
from loadeval.analysis.rules import operators as rules
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.finding import Advice, Problem, Rule, Unknown
from loadeval.analysis.rules.operators import python_lock, slow_operator
from loadeval.report.formatting import filled
from loadeval.report.wording.advice import ADVICE, SHORT_CHANGES
from loadeval.report.wording.findings import PROBLEMS, UNKNOWNS

if TYPE_CHECKING:
    from enum import Enum

    from loadeval import Run
    from tests.analysis.rules.conftest import MakeRun

MS = 1_000_000
SPDL = "spdl.pipeline._pipeline.Pipeline"
SLOW: dict[str, Any] = {"wait": 50, "alone": 100, "backend": SPDL, "workers": 4}
"""Half of the time training waits for a loader that takes as long as twice a step."""


def line(name: str, order: int, **known: Any) -> OperatorTimes:
    """What an operator did in ten seconds, in which the pipeline did not rest."""
    chosen = {"epoch": 0, "time_ns": 10**10, "elapsed_ns": 10**10, "tasks": 100}
    return OperatorTimes(operator=name, order=order, **{**chosen, "queue_blocked_ns": 0, **known})


DECODE = line("decode", 1, task_ns=19_500 * MS, run_ns=19_000 * MS, concurrency=2)
SINK = line("sink", 2)


def with_operators(run: Run, *operators: OperatorTimes) -> Case:
    return Case.of(replace(run, operators=operators))


def with_lock(
    run: Run, real_ms: float, ideal_ms: float, *operators: OperatorTimes, every: int = 1
) -> Run:
    """The lock read every 10 ms, and threads that load with one CPU and wait for half of one."""
    steps, time_ns = run.steps, np.arange(3000, dtype=np.int64) * 10 * MS
    rows = np.searchsorted(steps.request_ns, time_ns) - 1
    in_ideal = steps.arm[rows.clip(min=0)] == 1
    chosen = slice(None, None, every)
    wait_ns = np.where(in_ideal, ideal_ms, real_ms) * MS
    # Not where the arm changes: those count for neither.
    lock = Readings("threads", "python lock", time_ns[chosen], {"lock_wait_ns": wait_ns[chosen]})
    cores = {"cpu_cores": np.full(3000, 1.0), "run_queue_cores": np.full(3000, 0.5)}
    threads = [Readings("threads", name, time_ns, cores) for name in ("decode", "training thread")]
    return replace(run, readings=(lock, *threads), operators=operators)


def found_by(answer: Any) -> Finding:
    """A finding, all of whose remarks have a sentence that their numbers fill."""
    assert isinstance(answer, Finding)
    told: dict[Enum, str] = {**PROBLEMS, **ADVICE}
    for remark in (answer.problem, *answer.changes):
        sentence = filled(told[remark.code], remark.values)
        assert sentence.endswith(".")
        assert "None" not in sentence
    for change in answer.changes:
        assert filled(SHORT_CHANGES[change.code], change.values)
    return answer


def codes(found: Finding) -> list[Enum]:
    return [change.code for change in found.changes]


def test_a_busy_operator_is_found(alternating: MakeRun) -> None:
    """It costs all the waiting."""
    case = with_operators(alternating(**SLOW), DECODE, SINK)
    found = found_by(slow_operator(case))
    assert found.rule.value == Rule.SLOW_OPERATOR.value
    assert found.problem == Remark(
        Problem.OPERATOR_BUSY, {"name": "decode", "busy_share": 0.95, "concurrency": 2}
    )
    assert (found.confidence, found.severity) == ("measured", "high")
    assert found.cost_share == pytest.approx(case.waiting_share)
    assert codes(found) == [Advice.RAISE_CONCURRENCY, Advice.CHEAPER_OPERATOR]
    assert found.changes[0].values == {"name": "decode", "setting": "concurrency", "now": 2}


@pytest.mark.parametrize(
    ("backend", "setting"),
    [
        ("spdl.dataloader._dataloader.DataLoader", "num_threads"),
        ("spdl.dataloader._pytorch_dataloader.PyTorchDataLoader", "num_workers"),
        ("ray.data.iterator._IterableFromIterator", "concurrency"),
    ],
)
def test_what_to_raise_is_called_as_the_loader_calls_it(
    alternating: MakeRun, backend: str, setting: str
) -> None:
    run = alternating(**{**SLOW, "backend": backend})
    found = found_by(slow_operator(with_operators(run, DECODE, SINK)))
    assert found.changes[0].values["setting"] == setting


def test_busy_threads_are_found(alternating: MakeRun) -> None:
    decode = replace(DECODE, concurrency=8, run_ns=38_000 * MS, task_ns=50_000 * MS)
    found = found_by(slow_operator(with_operators(alternating(**SLOW), decode, SINK)))
    assert found.problem == Remark(
        Problem.THREADS_BUSY, {"name": "decode", "busy_share": 0.95, "threads": 4}
    )
    assert codes(found) == [Advice.RAISE_THREADS, Advice.CHEAPER_OPERATOR]
    assert found.changes[0].values == {"setting": "num_threads", "now": 4}


def test_an_operator_that_starves_the_next_is_likely(alternating: MakeRun) -> None:
    """A source can only be made cheaper."""
    starving = line("src", 0, queue_occupied_ns=0)
    found = found_by(slow_operator(with_operators(alternating(**SLOW), starving, SINK)))
    assert (found.problem.code, found.confidence) == (
        Problem.OPERATOR_STARVES_NEXT,
        "likely",
    )
    assert codes(found) == [Advice.CHEAPER_OPERATOR]


def test_the_costliest_of_rays_operators_may_be_it(alternating: MakeRun) -> None:
    run = alternating(**{**SLOW, "workers": None, "backend": "ray.data"})
    parts = [line("Map", 0, task_ns=300 * MS), line("collate", 1, task_ns=100 * MS)]
    found = found_by(slow_operator(with_operators(run, *parts)))
    assert found.problem == Remark(Problem.OPERATOR_COSTLIEST, {"name": "Map", "share": 0.75})
    assert found.confidence == "possible"


def test_no_operator_is_slow_where_nothing_is_lost(alternating: MakeRun) -> None:
    idle = replace(DECODE, run_ns=100 * MS)
    assert slow_operator(with_operators(alternating(alone=20), DECODE, SINK)) is None
    assert slow_operator(with_operators(alternating(**SLOW), idle, SINK)) is None
    assert slow_operator(with_operators(alternating(**SLOW))) is None


def test_without_an_ideal_arm_no_operator_can_be_judged(timed_run: Run) -> None:
    assert slow_operator(with_operators(timed_run, DECODE)) == Remark(Unknown.NO_IDEAL)


def test_a_held_lock_is_found(alternating: MakeRun) -> None:
    """It costs what steps are slower by, where no operator was timed."""
    case = Case.of(with_lock(alternating(**SLOW, real=60), 5, 0.07))
    found = found_by(python_lock(case))
    assert (found.rule, found.confidence) == (Rule.PYTHON_LOCK, "likely")
    assert found.problem.code is Problem.PYTHON_LOCK_HELD
    assert found.problem.values == {
        "threads": "decode",
        "real_ns": pytest.approx(5 * MS),
        "ideal_ns": pytest.approx(0.07 * MS),
    }
    assert case.contention_share > 0
    assert found.cost_share == pytest.approx(case.contention_share)


def test_the_lock_explains_the_work_that_is_neither_computing_nor_queued(
    alternating: MakeRun,
) -> None:
    """A fifth of the time on a CPU, half as much in the run queue: 70% in the lock.

    Of that half, if it is held half of the time.
    """
    decode = replace(DECODE, run_ns=10_000 * MS, cpu_ns=2_000 * MS)
    for wait_ms, held in ((10, 1.0), (2.5, 0.5)):
        case = Case.of(with_lock(alternating(**SLOW), wait_ms, 0.07, decode, SINK))
        found = found_by(python_lock(case))
        expected = case.contention_share + 0.7 * held * case.waiting_share
        assert found.cost_share == pytest.approx(expected)


def test_threads_that_were_on_no_cpu_did_not_queue(alternating: MakeRun) -> None:
    decode = replace(DECODE, run_ns=10_000 * MS, cpu_ns=2_000 * MS)
    run = with_lock(alternating(**SLOW), 10, 0.07, decode, SINK)
    case = Case.of(replace(run, readings=run.readings[:1]))
    assert found_by(python_lock(case)).cost_share == pytest.approx(0.8 * case.waiting_share)


def test_more_at_once_is_no_help_where_the_lock_is_held(alternating: MakeRun) -> None:
    case = Case.of(with_lock(alternating(**SLOW), 5, 0.07, DECODE, SINK))
    assert codes(found_by(slow_operator(case))) == [Advice.CHEAPER_OPERATOR]


@pytest.mark.parametrize(("real_ms", "ideal_ms"), [(0.4, 0.07), (5, 2)])
def test_a_lock_that_is_soon_free_or_held_by_training_is_not_found(
    alternating: MakeRun, real_ms: float, ideal_ms: float
) -> None:
    assert python_lock(Case.of(with_lock(alternating(**SLOW), real_ms, ideal_ms))) is None


PROCESSES = "spdl.dataloader._pytorch_dataloader.PyTorchDataLoader"


@pytest.mark.parametrize(
    "loader", [{"start_method": "fork"}, {"backend": PROCESSES}, {"workers": 0}]
)
def test_a_loader_of_processes_or_of_none_has_no_threads(
    alternating: MakeRun, loader: dict[str, Any]
) -> None:
    run = alternating(**{**SLOW, **loader})
    assert python_lock(Case.of(with_lock(run, 5, 0.07))) is None


def test_a_lock_that_was_not_read_cannot_be_judged(alternating: MakeRun) -> None:
    """Of a loader that has threads; what others have nobody knows."""
    answer = python_lock(Case.of(alternating(**SLOW)))
    assert answer == Remark(Unknown.LOCK_NOT_READ)
    assert python_lock(Case.of(alternating(**{**SLOW, "workers": None}))) is None
    few = with_lock(alternating(**SLOW), 5, 0.07, every=2999)
    unknown = python_lock(Case.of(few))
    assert isinstance(unknown, Remark)
    assert unknown.values == {"readings": 0, "needed": rules.FEWEST_READINGS}
    for remark in (answer, unknown):
        assert isinstance(remark, Remark)
        assert filled(UNKNOWNS[remark.code], remark.values)


def test_no_lock_matters_where_nothing_is_lost(alternating: MakeRun, timed_run: Run) -> None:
    assert python_lock(Case.of(with_lock(alternating(alone=20, workers=4), 5, 0.07))) is None
    logged = replace(timed_run, header=replace(timed_run.header, loader=_threads(timed_run)))
    assert python_lock(Case.of(with_lock(logged, 5, 0.07))) == Remark(Unknown.NO_IDEAL)


def _threads(run: Run) -> Any:
    return replace(run.header.loader, workers=4)
