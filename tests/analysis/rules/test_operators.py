"""Slow operators, and Python's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import Finding, OperatorTimes, Readings, Remark
from loadeval.analysis.rules import operators as rules
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.finding import Advice, Problem, Rule, Unknown
from loadeval.analysis.rules.operators import is_lock_free, python_lock, slow_operator
from loadeval.analysis.rules.workers import in_users_words
from loadeval.report.formatting import filled
from loadeval.report.wording.advice import ADVICE
from loadeval.report.wording.findings import PROBLEMS, UNKNOWNS
from tests.analysis.rules.conftest import diagnosed, finding_of
from tests.runs.given import MS, alternating, level
from tests.runs.looked_into import logged
from tests.runs.tables import readings_lines, replace

if TYPE_CHECKING:
    from enum import Enum

    from loadeval import Run

CORES = level("host", "process", "cpu_cores", 1.5)
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
    return Case(replace(run, operators=operators))


def with_lock(
    run: Run,
    real_ms: float,
    ideal_ms: float,
    *operators: OperatorTimes,
    every: int = 1,
    rests: bool = False,
    queued: float = 0.0,
    stopped: float = 0.0,
) -> Run:
    """The lock read every 10 ms, and threads that load with one CPU and wait for half of one.

    Those that rest do so in the ideal arm. Training is `queued` for that part of the real arm, and
    `stopped` for that part of it.
    """
    steps, time_ns = run.steps, np.arange(3000, dtype=np.int64) * 10 * MS
    rows = np.searchsorted(steps.request_ns, time_ns) - 1
    in_ideal = steps.arm[rows.clip(min=0)] == 1
    chosen = slice(None, None, every)
    wait_ns = np.where(in_ideal, ideal_ms, real_ms) * MS
    # Not where the arm changes: those count for neither.
    lock = Readings("threads", "python lock", time_ns[chosen], {"lock_wait_ns": wait_ns[chosen]})
    loading = np.where(in_ideal & rests, 0.0, 1.0)
    threads = (
        Readings("threads", name, time_ns, {"cpu_cores": cpus, "run_queue_cores": run_queue})
        for name, cpus, run_queue in (
            ("decode", loading, 0.5 * loading),
            (
                "training thread",
                np.where(in_ideal, 1.0, 1.0 - stopped),
                np.where(in_ideal, 0.0, queued),
            ),
        )
    )
    return replace(run, readings=(lock, *threads), operators=operators)


def checked_finding(answer: Any) -> Finding:
    """A finding, all of whose remarks have a sentence that their numbers fill."""
    assert isinstance(answer, Finding)
    sentences: dict[Enum, str] = {
        **PROBLEMS,
        **{code: words.sentence for code, words in ADVICE.items()},
    }
    for remark in (answer.problem, *answer.changes):
        sentence = filled(sentences[remark.code], remark.values)
        assert sentence.endswith(".")
        assert "None" not in sentence
    for change in answer.changes:
        assert filled(ADVICE[change.code].short, change.values)
    return answer


def codes(finding: Finding) -> list[Enum]:
    return [change.code for change in finding.changes]


def test_a_busy_operator_is_found() -> None:
    """It costs all the waiting."""
    case = with_operators(alternating(**SLOW), DECODE, SINK)
    finding = checked_finding(slow_operator(case))
    assert finding.rule.value == Rule.SLOW_OPERATOR.value
    assert finding.problem == Remark(
        Problem.OPERATOR_BUSY, {"name": "decode", "busy_share": 0.95, "concurrency": 2}
    )
    assert (finding.confidence, finding.severity) == ("measured", "high")
    assert finding.cost_share == pytest.approx(case.waiting_share)
    assert codes(finding) == [Advice.RAISE_CONCURRENCY, Advice.CHEAPER_OPERATOR]
    assert finding.changes[0].values == {"name": "decode", "setting": "concurrency", "now": 2}


@pytest.mark.parametrize(
    ("names", "setting"), [({"concurrency": "num_threads"}, "num_threads"), ({}, "concurrency")]
)
def test_what_to_raise_is_called_as_the_loader_calls_it(
    names: dict[str, str], setting: str
) -> None:
    """It is called "concurrency" where the name is not known."""
    case = with_operators(alternating(**SLOW, setting_names=names), DECODE, SINK)
    advised = in_users_words(case.loader, checked_finding(slow_operator(case)))
    assert advised.changes[0].values["setting"] == setting


def test_busy_threads_are_found() -> None:
    decode = replace(DECODE, concurrency=8, run_ns=38_000 * MS, task_ns=50_000 * MS)
    finding = checked_finding(slow_operator(with_operators(alternating(**SLOW), decode, SINK)))
    assert finding.problem == Remark(
        Problem.THREADS_BUSY, {"name": "decode", "busy_share": 0.95, "threads": 4}
    )
    assert codes(finding) == [Advice.RAISE_THREADS, Advice.CHEAPER_OPERATOR]
    assert finding.changes[0].values == {"setting": "num_workers", "now": 4}


def test_an_operator_that_starves_the_next_is_likely() -> None:
    """A source can only be made cheaper."""
    starving = line("src", 0, queue_occupied_ns=0)
    finding = checked_finding(slow_operator(with_operators(alternating(**SLOW), starving, SINK)))
    assert (finding.problem.code, finding.confidence) == (
        Problem.OPERATOR_STARVES_NEXT,
        "likely",
    )
    assert codes(finding) == [Advice.CHEAPER_OPERATOR]


def test_no_operator_is_slow_where_nothing_is_lost() -> None:
    idle = replace(DECODE, run_ns=100 * MS)
    assert slow_operator(with_operators(alternating(alone=20), DECODE, SINK)) is None
    assert slow_operator(with_operators(alternating(**SLOW), idle, SINK)) is None
    assert slow_operator(with_operators(alternating(**SLOW))) is None


def test_without_an_ideal_arm_no_operator_can_be_judged(timed_run: Run) -> None:
    assert slow_operator(with_operators(timed_run, DECODE)) == Remark(Unknown.NO_IDEAL)


def test_a_held_lock_is_found() -> None:
    """It costs what steps are slower by, where no operator was timed."""
    case = Case(with_lock(alternating(**SLOW, real=60), 5, 0.07))
    finding = checked_finding(python_lock(case))
    assert (finding.rule, finding.confidence) == (Rule.PYTHON_LOCK, "likely")
    assert finding.problem.code is Problem.PYTHON_LOCK_HELD
    assert finding.problem.values == {
        "threads": "decode",
        "real_ns": pytest.approx(5 * MS),
        "ideal_ns": pytest.approx(0.07 * MS),
    }
    assert case.contention_share > 0
    assert finding.cost_share == pytest.approx(case.contention_share)


def test_the_lock_explains_the_work_that_is_neither_computing_nor_queued() -> None:
    """A fifth of the time on a CPU, half as much in the run queue: 70% in the lock.

    Of that half, if it is held half of the time.
    """
    decode = replace(DECODE, run_ns=10_000 * MS, cpu_ns=2_000 * MS)
    for wait_ms, held in ((10, 1.0), (2.5, 0.5)):
        case = Case(with_lock(alternating(**SLOW), wait_ms, 0.07, decode, SINK))
        finding = checked_finding(python_lock(case))
        expected = case.contention_share + 0.7 * held * case.waiting_share
        assert finding.cost_share == pytest.approx(expected)


def test_threads_that_were_on_no_cpu_did_not_queue() -> None:
    decode = replace(DECODE, run_ns=10_000 * MS, cpu_ns=2_000 * MS)
    run = with_lock(alternating(**SLOW), 10, 0.07, decode, SINK)
    case = Case(replace(run, readings=readings_lines(run)[:1]))
    assert checked_finding(python_lock(case)).cost_share == pytest.approx(0.8 * case.waiting_share)


def test_more_at_once_is_no_help_where_the_lock_is_held() -> None:
    case = Case(with_lock(alternating(**SLOW), 5, 0.07, DECODE, SINK))
    assert codes(checked_finding(slow_operator(case))) == [Advice.CHEAPER_OPERATOR]


@pytest.mark.parametrize(("real_ms", "ideal_ms"), [(0.4, 0.07), (5, 2)])
def test_a_lock_that_is_soon_free_or_held_by_training_is_not_found(
    real_ms: float, ideal_ms: float
) -> None:
    assert python_lock(Case(with_lock(alternating(**SLOW), real_ms, ideal_ms))) is None


@pytest.mark.parametrize(
    "loader", [{"start_method": "fork"}, {"persistent_workers": False}, {"workers": 0}]
)
def test_a_loader_of_processes_or_of_none_has_no_threads(loader: dict[str, Any]) -> None:
    run = alternating(**{**SLOW, **loader})
    assert python_lock(Case(with_lock(run, 5, 0.07))) is None


SLOWER: dict[str, Any] = {"real": 60, "alone": 30}


@pytest.mark.parametrize(
    ("loader", "advice"),
    [
        ({"workers": 0, "wait": 1}, [Advice.USE_PROCESSES, Advice.RELEASE_LOCK]),
        ({"workers": 2, "start_method": "fork"}, [Advice.LESS_IN_THREADS]),
    ],
)
def test_a_thread_that_reads_a_loader_ahead_may_hold_the_lock(
    loader: dict[str, Any], advice: list[Advice]
) -> None:
    """Whatever loads, or receives from processes, only while batches are loaded."""
    run = alternating(**SLOWER, **loader)
    finding = checked_finding(python_lock(Case(with_lock(run, 5, 0.07, rests=True))))
    assert codes(finding) == advice
    assert finding.problem.values["threads"] == "decode"
    assert python_lock(Case(with_lock(run, 5, 0.07))) is None
    short = alternating(**{**SLOWER, **loader, "real": 51})
    assert python_lock(Case(with_lock(short, 5, 0.07, rests=True))) is None


@pytest.mark.parametrize(
    ("cpus", "at_most"),
    [
        (8, {Advice.USE_PROCESSES: 1.2, Advice.RELEASE_LOCK: 1.2}),
        (None, {Advice.USE_PROCESSES: 1.2, Advice.RELEASE_LOCK: 1.2}),
        (2, {Advice.USE_PROCESSES: 60 / 55, Advice.RELEASE_LOCK: 1.2}),
        (1, {Advice.RELEASE_LOCK: 1.2}),
    ],
)
def test_processes_gain_what_cpus_allow(cpus: int | None, at_most: dict[Advice, float]) -> None:
    """Of 60 ms; a step computes for 50, and a batch for 60. Less work may gain all."""
    run = alternating(**SLOWER, workers=0, wait=0.01, environment={"cpus_usable": cpus})
    finding = diagnosed(with_lock(run, 5, 0.07, rests=True)).findings[0]
    gained = {change.code: change.values["at_most"] for change in finding.changes}
    assert gained == {code: pytest.approx(most, rel=0.02) for code, most in at_most.items()}


@pytest.mark.parametrize(("queued", "confidence"), [(0.05, "likely"), (0.15, "possible")])
def test_where_training_waits_for_a_cpu_the_lock_is_less_sure(
    queued: float, confidence: str
) -> None:
    """Of steps of 60 ms in place of 50 it waits 3 ms or 9 ms for one."""
    run = alternating(real=60, workers=4, backend=SPDL)
    finding = checked_finding(python_lock(Case(with_lock(run, 5, 0.07, queued=queued))))
    assert finding.confidence == confidence
    assert finding.evidence[-1].value == pytest.approx(queued * 60 * MS, rel=0.05)


@pytest.mark.parametrize("of_arm", [{}, {"rests": True}])
@pytest.mark.parametrize("stopped", [0.05, 0.15])
def test_many_short_waits_for_the_lock_stop_a_step(of_arm: dict[str, bool], stopped: float) -> None:
    """Of steps of 60 ms in place of 50 it neither computes nor waits for a CPU for 3 ms or 9 ms.

    Threads that are as busy with ideal loading are not why.
    """
    run = alternating(real=60, workers=4, backend=SPDL)
    case = Case(with_lock(run, 0.1, 0.07, stopped=stopped, **of_arm))
    answer = python_lock(case)
    if not of_arm or stopped < 0.1:
        assert answer is None
        return
    finding = checked_finding(answer)
    assert (finding.rule, finding.confidence) == (Rule.PYTHON_LOCK, "possible")
    assert finding.problem.code is Problem.PYTHON_LOCK_OFTEN_TAKEN
    assert finding.problem.values["stopped_ns"] == pytest.approx(9 * MS, rel=0.05)
    assert finding.cost_share == pytest.approx(case.contention_share)
    assert not is_lock_free(case)


def test_a_training_thread_that_was_not_read_does_not_stop() -> None:
    run = with_lock(alternating(real=60, workers=4, backend=SPDL), 0.1, 0.07, rests=True)
    *others, training = readings_lines(run)
    for readings in ((*others,), (*others, replace(training, values={}))):
        assert python_lock(Case(replace(run, readings=readings))) is None


def test_without_the_held_lock_training_gains_what_it_costs() -> None:
    run = alternating(real=60, workers=4, backend=SPDL)
    finding = diagnosed(with_lock(run, 5, 0.07)).findings[0]
    assert finding.rule == Rule.PYTHON_LOCK
    assert finding.changes[0].values["at_most"] == pytest.approx(1.2, rel=0.02)


@pytest.mark.parametrize(
    ("real_ms", "advice"), [(0.07, Advice.CPUS_AND_LOCK_FREE), (None, Advice.CPUS_FREE)]
)
def test_a_lock_that_was_free_is_not_what_threads_compete_for(
    real_ms: float | None, advice: Advice
) -> None:
    """Where it was not read, it may be."""
    run = alternating(real=60, backend=SPDL, workers=1, readings=[CORES])
    if real_ms is not None:
        run = with_lock(run, real_ms, 0.07)
        run = replace(run, readings=(*readings_lines(run), CORES))
    finding = finding_of(Rule.CONTENTION, run)
    assert codes(finding) == [Advice.LIGHTER_LOADING, advice]
    assert filled(ADVICE[advice].sentence, finding.changes[1].values).startswith("With 6.5 CPUs")


def test_a_lock_that_was_not_read_cannot_be_judged() -> None:
    """This is about a loader with threads; nobody knows what others have."""
    answer = python_lock(Case(alternating(**SLOW)))
    assert answer == Remark(Unknown.LOCK_NOT_READ)
    assert python_lock(Case(alternating(**{**SLOW, "workers": None}))) is None
    few = with_lock(alternating(**SLOW), 5, 0.07, every=2999)
    unknown = python_lock(Case(few))
    assert isinstance(unknown, Remark)
    assert unknown.values == {"readings": 0, "needed": rules.FEWEST_READINGS}
    for remark in (answer, unknown):
        assert isinstance(remark, Remark)
        assert filled(UNKNOWNS[remark.code], remark.values)


def test_no_lock_matters_where_nothing_is_lost(timed_run: Run) -> None:
    assert python_lock(Case(with_lock(alternating(alone=20, workers=4), 5, 0.07))) is None
    logged = replace(timed_run, header=replace(timed_run.header, loader=_threads(timed_run)))
    assert python_lock(Case(with_lock(logged, 5, 0.07))) == Remark(Unknown.NO_IDEAL)


def test_of_a_log_of_processes_it_is_not_known_whether_threads_hold_the_lock() -> None:
    """Whether steps are slower beside them was not measured."""
    run = logged(fetch=60, workers=2)
    loader = replace(run.header.loader, start_method="fork")
    run = replace(run, header=replace(run.header, loader=loader))
    assert python_lock(Case(with_lock(run, 5, 0.07))) == Remark(Unknown.NO_IDEAL)
    assert python_lock(Case(run)) is None


def _threads(run: Run) -> Any:
    return replace(run.header.loader, workers=4)
