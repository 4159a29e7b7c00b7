"""What keeps the workers of a loader: a lock, storage, no CPU, one that is slow, no shard.

Each in a run that has it, and one that hardly: see `test_stages`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.finding import Advice, Problem, Rule
from loadeval.analysis.rules.fixes import FIXES
from loadeval.report.wording.findings import describe
from loadeval.runlog.columns import UNKNOWN
from tests.analysis.rules.conftest import (
    MS,
    NOTHING,
    advised,
    cores_read,
    diagnosed,
    finding,
    numbers,
    outcome,
)
from tests.analysis.rules.looked_into import COUNT, code, looked_into

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run
    from tests.analysis.rules.conftest import MakeRun

NUMBER = np.arange(COUNT)
GETITEM, LOCKED = "data.py:31 __getitem__", "data.py:35 locked"
A_THIRD = pytest.approx(1 / 3, abs=0.02)
"""What is lost where a batch comes every 30 ms: 10 of them."""


@pytest.fixture(name="run")
def _run(alternating: MakeRun) -> Callable[..., Run]:
    """An alternating run."""
    return partial(looked_into, alternating)


def found_inside(run: Run) -> list[Rule]:
    return [one.rule for one in diagnosed(run).findings if one.rule in FIXES]


def seen_blocked(kernel: str, blocked: int = 60) -> Any:
    """Samples of code, so many percent of them blocked."""
    return code({GETITEM: 100 - blocked}, {f"{LOCKED} > {kernel}": blocked})


@pytest.mark.parametrize(
    ("kernel", "given", "rule", "problem"),
    [
        ("futex_wait_queue", {}, Rule.LOCK, Problem.WORKERS_WAIT_FOR_LOCK),
        ("locks_lock_inode_wait", {}, Rule.LOCK, Problem.WORKERS_WAIT_FOR_LOCK),
        ("folio_wait_bit_common", {}, Rule.DISK, Problem.READ_FROM_DISK),
        ("sk_wait_data", {}, Rule.STORAGE_LATENCY, Problem.WORKERS_BLOCKED),
        ("", {}, Rule.STORAGE_LATENCY, Problem.WORKERS_BLOCKED),
        (
            "sk_wait_data",
            {"read_bytes": 100_000, "disk_bytes": 31_000},
            Rule.DISK,
            Problem.READ_FROM_DISK,
        ),
        (  # too little to wait for
            "sk_wait_data",
            {"read_bytes": 1000, "disk_bytes": 1000},
            Rule.STORAGE_LATENCY,
            Problem.WORKERS_BLOCKED,
        ),
        (
            "sk_wait_data",
            {"read_bytes": 100_000, "disk_bytes": 29_000},
            Rule.STORAGE_LATENCY,
            Problem.WORKERS_BLOCKED,
        ),
    ],
)
def test_workers_that_are_blocked(
    run: Callable[..., Run], kernel: str, given: dict[str, Any], rule: Rule, problem: Problem
) -> None:
    """The kernel tells what in, or the bytes that came from the disk; one rule is found."""
    found = run(fetch=60, blocked=0.6, seen=seen_blocked(kernel), **given)
    assert found_inside(found) == [rule]
    cause = finding(rule, found)
    assert cause.problem.code is problem
    assert cause.problem.values["share"] == pytest.approx(0.6)
    assert cause.problem.values["place"] == LOCKED
    assert cause.problem.values["kernel"] == (kernel or "not told")
    assert cause.cost_share == A_THIRD


def test_what_helps_workers_that_are_blocked(run: Callable[..., Run]) -> None:
    """More of them where they wait for answers, beyond CPUs too; not where they share a lock."""
    given = {"fetch": 120, "blocked": 0.9, "environment": {"cpus_usable": 2}}
    found = finding(Rule.STORAGE_LATENCY, run(**given, seen=seen_blocked("sk_wait_data", 90)))
    assert advised(found) == [Advice.RAISE, Advice.MORE_REQUESTS_AT_ONCE]
    assert int(str(numbers(found)[Advice.RAISE]["proposed"])) > 4
    found = finding(Rule.LOCK, run(**given, seen=seen_blocked("futex_wait_queue", 90)))
    assert advised(found) == [Advice.SHORTER_LOCK]
    found = finding(Rule.DISK, run(**given, seen=seen_blocked("io_schedule", 90)))
    assert advised(found) == [Advice.READ_LESS]


def test_that_more_workers_help_is_not_denied_and_said(run: Callable[..., Run]) -> None:
    """Where the simulation finds no gain in them, they are said to wait, and no more."""
    given = run(
        fetch=200, blocked=0.45, workers=8, prefetch=1, step=5, environment={"cpus_usable": 1}
    )
    found = finding(Rule.STORAGE_LATENCY, given)
    assert Advice.NO_MORE_WORKERS not in advised(found)


@pytest.mark.parametrize("blocked", [None, {}])
def test_where_workers_are_blocked_may_not_be_seen(
    run: Callable[..., Run], blocked: dict[str, int] | None
) -> None:
    """No line is blamed that they were not blocked in."""
    seen = () if blocked is None else code({GETITEM: 40}, blocked)
    found = finding(Rule.STORAGE_LATENCY, run(fetch=60, blocked=0.6, seen=seen))
    assert found.problem.values["place"] == "a place not seen"
    assert GETITEM not in describe(found)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"blocked": 0.41}, "found"),
        ({"blocked": 0.39}, NOTHING),
        ({"blocked": 0.9, "fetch": 30}, NOTHING),  # nothing is waited for
        ({"fetch": 30, "collate": 30}, NOTHING),
        ({"cpu_ns": UNKNOWN, "run_queue_ns": UNKNOWN}, NOTHING),
    ],
)
def test_when_workers_are_blocked(
    run: Callable[..., Run], given: dict[str, Any], told: str
) -> None:
    """For two fifths of the time, as the kernel counts it."""
    values = {"fetch": 60, "blocked": 0.6, **given}
    assert outcome(Rule.STORAGE_LATENCY, run(**values)) == told


@pytest.mark.parametrize(
    ("workers", "step", "rule"),
    [(4, 2.0, Rule.LOCK), (4, 12.0, Rule.STORAGE_LATENCY), (1, 2.0, Rule.STORAGE_LATENCY)],
)
def test_workers_that_sleep(run: Callable[..., Run], workers: int, step: float, rule: Rule) -> None:
    """They try a lock again and again where one works at a time: 15 ms of each batch in 60."""
    seen = seen_blocked("hrtimer_nanosleep", 75)
    given = run(fetch=60, blocked=0.75, workers=workers, step=step, seen=seen)
    assert found_inside(given)[0] == rule


def test_workers_that_wait_for_a_cpu(run: Callable[..., Run]) -> None:
    """For as long as that takes; other threads of theirs are why."""
    found = finding(Rule.OVERSUBSCRIPTION, run(fetch=60, run_queue=0.4, others=2.0))
    assert found.problem.values == {"share": pytest.approx(0.4)}
    assert advised(found) == [Advice.ONE_THREAD_EACH]
    assert found.cost_share == A_THIRD
    assert [(one.name, one.value) for one in found.evidence] == [
        ("waiting for a CPU", pytest.approx(0.4)),
        ("CPU time of other threads of a worker, in a batch", pytest.approx(72e6)),
        ("workers", 2),
        ("CPUs", 8),
    ]


SPINNING = {"fetch": 20, "step": 10, "real": 30, "environment": {"cpus_usable": 4}}
"""A step of 10 ms takes 30 beside two workers."""


def test_a_step_whose_threads_spin(run: Callable[..., Run]) -> None:
    """It computes 90 ms beside workers, and 38 ms without; how settings act is not predicted."""
    given = cores_read(run(**SPINNING), process=(3.0, 3.8), workers=(0.9, 0.0))
    case = Case.of(given)
    assert case.model is None
    assert case.recorded is not None
    assert case.recorded.step_spins
    found = finding(Rule.OVERSUBSCRIPTION, given)
    assert found.problem.code is Problem.STEP_SPINS
    assert found.problem.values == {"threads": 4, "workers": 2, "cpus": 4}
    assert [round(float(one.value) / MS) for one in found.evidence] == [90, 38]
    assert found.cost_share == pytest.approx(case.contention_share)
    (change,) = found.changes
    assert change.code is Advice.FEWER_THREADS
    at_most = pytest.approx(1 / (1 - case.contention_share))
    assert change.values == {"threads": 2, "present": 4, "at_most": at_most}
    assert outcome(Rule.CONTENTION, given) == "found"
    assert Rule.CONTENTION not in {one.rule for one in diagnosed(given).findings}


@pytest.mark.parametrize(
    ("given", "cores"),
    [
        ({}, {"process": (1.0, 1.4), "workers": 0.9}),  # one thread
        ({}, {"process": (2.4, 3.8), "workers": 0.9}),  # 72 ms
        ({"receive": 15}, {"process": (1.9, 3.8), "workers": 0.9}),  # 86 ms, 15 of them to receive
        ({"environment": {"cpus_usable": 6}}, {"process": (3.0, 3.8), "workers": 0.9}),
        ({"environment": {"cpus_usable": None}}, {"process": (3.0, 3.8), "workers": 0.9}),
        ({"real": 10}, {"process": (9.0, 3.8), "workers": 0.9}),  # nothing is lost by it
        ({}, {"workers": 0.9}),
    ],
)
def test_when_threads_do_not_spin(
    run: Callable[..., Run], given: dict[str, Any], cores: dict[str, Any]
) -> None:
    assert Case.of(cores_read(run(**{**SPINNING, **given}), **cores)).spinning is None


@pytest.mark.parametrize(
    ("given", "others", "change"),
    [
        ({"others": 0.51}, 0.0, (Advice.ONE_THREAD_EACH, {})),
        ({"others": 0.49}, 0.0, (Advice.FREE_CPUS, {})),
        (
            {"others": 0.51, "environment": {"cpus_usable": 8, "omp_num_threads": 1}},
            0.0,
            (Advice.FREE_CPUS, {}),  # they have one each already
        ),
        ({}, 3.0, (Advice.FREE_CPUS, {"others_cpus": pytest.approx(3.0)})),
        (
            {"environment": {"cpus_usable": 1}},
            0.0,
            (Advice.LOWER, {"setting": "num_workers", "present": 2, "proposed": 1}),
        ),
        ({"environment": {"cpus_usable": None}}, 0.0, (Advice.FREE_CPUS, {})),
    ],
)
def test_what_frees_a_cpu(
    run: Callable[..., Run],
    with_cores: MakeRun,
    given: dict[str, Any],
    others: float,
    change: tuple[Advice, dict[str, Any]],
) -> None:
    """Threads of the workers first, then workers, then who else computes."""
    found = run(fetch=60, run_queue=0.4, **given)
    if others:
        found = with_cores(found, process=1.0, workers=2.0, machine=3.0 + others)
    cause = finding(Rule.OVERSUBSCRIPTION, found)
    assert list(numbers(cause).items()) == [change]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"run_queue": 0.16}, "found"),
        ({"run_queue": 0.14}, NOTHING),
        ({"run_queue": 0.25, "fetch": 30}, NOTHING),  # nothing is lost
        ({"run_queue": 0.4, "fetch": 30}, "found"),  # nor here, but it is much
        ({"run_queue": 0.14, "workers": 9, "fetch": 270}, NOTHING),  # nor do more than CPUs
        ({"run_queue": 0.4, "workers": 9, "fetch": 30}, "found"),  # they compete for CPUs
        (
            {"workers": 9, "fetch": 30, "cpu_ns": UNKNOWN, "run_queue_ns": UNKNOWN},
            "found",  # nobody knows
        ),
    ],
)
def test_when_workers_wait_for_a_cpu(
    run: Callable[..., Run], given: dict[str, Any], told: str
) -> None:
    """As it is measured; else there are more of them than CPUs."""
    assert outcome(Rule.OVERSUBSCRIPTION, run(**{"fetch": 60, **given})) == told


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"run_queue": 0.4}, Problem.WORKERS_WAIT_FOR_CPU),
        (
            {"workers": 9, "cpu_ns": UNKNOWN, "run_queue_ns": UNKNOWN},
            Problem.MORE_WORKERS_THAN_CPUS,
        ),
    ],
)
def test_workers_without_a_cpu_at_no_known_cost(
    run: Callable[..., Run], given: dict[str, Any], problem: Problem
) -> None:
    """They are among the findings: that the cost is not known does not make it nothing."""
    (found,) = diagnosed(run(fetch=30, **given)).findings
    assert (found.problem.code, found.cost_share) == (problem, None)
    assert found.severity == "low"


def test_a_slow_worker(run: Callable[..., Run]) -> None:
    """It takes 100 ms where the other takes 30; its batches come every 50."""
    found = finding(Rule.SLOW_WORKER, run(fetch=np.where(NUMBER % 2 == 1, 100.0, 30.0)))
    assert found.problem.values == {"worker": 1, "batch_ns": 100e6, "others_ns": 30e6}
    assert advised(found) == [Advice.BALANCE_WORKERS]
    assert [one.value for one in found.evidence] == [100e6, 30e6]
    assert found.cost_share == pytest.approx(30 / 50, abs=0.02)


@pytest.mark.parametrize(
    ("fetch", "given", "told"),
    [
        (np.where(NUMBER % 2, 76.0, 50.0), {}, "found"),
        (np.where(NUMBER % 2, 74.0, 50.0), {}, NOTHING),
        (np.where(NUMBER % 2, 39.0, 20.0), {}, NOTHING),  # fast enough
        (60.0, {"workers": 1}, NOTHING),
        (60.0, {"workers": 0}, NOTHING),
        (np.where(NUMBER % 16 == 1, 500.0, 60.0), {}, NOTHING),  # a batch in eight is no worker
    ],
)
def test_when_a_worker_is_slow(
    run: Callable[..., Run], fetch: Any, given: dict[str, Any], told: str
) -> None:
    """Half as long again in what it typically does, where that is waited for."""
    assert outcome(Rule.SLOW_WORKER, run(fetch=fetch, **given)) == told


def test_a_worker_of_few_batches_is_not_slow(run: Callable[..., Run]) -> None:
    """Three batches tell nothing."""
    given = run(fetch=np.where(np.isin(NUMBER, (41, 43, 45)), 900.0, 30.0))
    (times,) = given.stages
    other = np.where(times.fetch_ns > 800e6, 5, 0)
    assert outcome(Rule.SLOW_WORKER, replace(given, stages=(replace(times, worker=other),))) == (
        NOTHING
    )


def of_few_shards(run: Callable[..., Run], **given: Any) -> Run:
    """Two workers load, of four that there are."""
    return run(**{"fetch": 60, "loader": {"workers": 4, "prefetch_depth": 8}, **given})


def test_few_shards(run: Callable[..., Run]) -> None:
    """How many have nothing, and that two more would do."""
    found = finding(Rule.FEW_SHARDS, of_few_shards(run))
    assert found.problem.values == {"idle": 2, "workers": 4}
    assert numbers(found) == {Advice.MORE_SHARDS: {"idle": 2, "workers": 4}}
    assert found.cost_share == A_THIRD


def test_more_workers_are_not_advised_where_some_are_idle(run: Callable[..., Run]) -> None:
    """What they lack is data."""
    found = finding(Rule.SLOW_TRANSFORM, of_few_shards(run, fetch=120, transforms={"blur": 0.5}))
    assert advised(found) == [Advice.CHEAPER_NAMED, Advice.NO_MORE_WORKERS]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "found"),
        ({"fetch": 30}, NOTHING),
        ({"loader": {"workers": 2}}, NOTHING),
        ({"samples": np.where(NUMBER % 2 == 1, 0, 4)}, "found"),  # a worker with empty batches
        ({"samples": UNKNOWN}, NOTHING),  # nobody knows who has any
    ],
)
def test_when_shards_are_few(run: Callable[..., Run], given: dict[str, Any], told: str) -> None:
    """Some workers have none, and are needed."""
    assert outcome(Rule.FEW_SHARDS, of_few_shards(run, **given)) == told


@pytest.mark.parametrize(("batches", "told"), [(17, "found"), (15, NOTHING)])
def test_epochs_too_short_to_tell_shards(run: Callable[..., Run], batches: int, told: str) -> None:
    """In an epoch of few batches workers have none, however many epochs there are."""
    given = of_few_shards(run)
    (times,) = given.stages
    parts = [
        replace(times.part(NUMBER // batches == epoch), epoch=epoch, batch=np.arange(batches))
        for epoch in range(COUNT // batches)
    ]
    assert outcome(Rule.FEW_SHARDS, replace(given, stages=tuple(parts))) == told
