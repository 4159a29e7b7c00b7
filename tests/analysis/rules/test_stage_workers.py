"""What keeps the workers of a loader: a lock, storage, no CPU, one that is slow, no shard.

Each in a run that has it, and one that hardly: see `test_stages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.predict.whatif import whatif
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import RULES, diagnose
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule
from loadeval.analysis.rules.fixes import FIXES
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import CodeSamples
from loadeval.data.log import read_run
from loadeval.report.wording.findings import describe
from tests.analysis.rules.conftest import (
    NOTHING,
    advised,
    diagnosed,
    finding_of,
    gains,
    numbers,
    outcome,
)
from tests.runs import BLUR
from tests.runs.given import MS, cores_read
from tests.runs.looked_into import COUNT, code, looked_into
from tests.runs.tables import readings_lines, replace, rows_of

if TYPE_CHECKING:
    from loadeval.data.run import Run

NUMBER = np.arange(COUNT)
GETITEM, LOCKED = "data.py:31 __getitem__", "data.py:35 locked"
A_THIRD = pytest.approx(1 / 3, abs=0.02)
"""What is lost where a batch comes every 30 ms: 10 of them."""


def rules_inside(run: Run) -> list[Rule]:
    return [finding.rule for finding in diagnosed(run).findings if finding.rule in FIXES]


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
        (  # they wait for who reads
            "futex_wait_queue",
            {"read_bytes": 100_000, "disk_bytes": 31_000},
            Rule.DISK,
            Problem.READ_FROM_DISK,
        ),
        (  # all of it came from the page cache
            "futex_wait_queue",
            {"read_bytes": 100_000, "disk_bytes": 0},
            Rule.LOCK,
            Problem.WORKERS_WAIT_FOR_LOCK,
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
    kernel: str, given: dict[str, Any], rule: Rule, problem: Problem
) -> None:
    """The kernel tells what in, or the bytes that came from the disk; one rule is found."""
    staged_run = looked_into(fetch=60, blocked=0.6, seen=seen_blocked(kernel), **given)
    assert rules_inside(staged_run) == [rule]
    cause = finding_of(rule, staged_run)
    assert cause.problem.code is problem
    assert cause.problem.values["share"] == pytest.approx(0.6)
    assert cause.problem.values["place"] == LOCKED
    assert cause.problem.values["kernel"] == (kernel or "not known")
    assert cause.cost_share == A_THIRD


RESULT = "concurrent.futures._base.result_iterator"


def waiting_on_futex(calls: int = 0, **given: Any) -> Run:
    """Workers that wait on a futex, in so many of a hundred samples of code for a pool's result."""
    (seen,) = seen_blocked("futex_wait_queue")
    seen = replace(seen, calls={f"{LOCKED} > {RESULT}": calls} if calls else {})
    return looked_into(**{"fetch": 60, "blocked": 0.6, "seen": (seen,), **given})


@pytest.mark.parametrize(
    ("given", "rule", "problem"),
    [
        ({}, Rule.LOCK, Problem.WORKERS_WAIT_FOR_LOCK),
        ({"calls": 29}, Rule.LOCK, Problem.WORKERS_WAIT_FOR_LOCK),
        ({"calls": 31}, Rule.STORAGE_LATENCY, Problem.THREADS_AWAITED),
        # Of two workers one has nothing to load, and holds no lock.
        (
            {"workers": 1, "loader": {"workers": 2, "prefetch_depth": 4}, "fetch": 80},
            Rule.STORAGE_LATENCY,
            Problem.WORKERS_BLOCKED,
        ),
    ],
)
def test_a_futex_whose_waker_is_of_the_same_worker_is_no_lock(
    given: dict[str, Any], rule: Rule, problem: Problem
) -> None:
    """The functions that it waits in say so in half of the samples, or it loads alone."""
    finding = finding_of(rule, waiting_on_futex(**given))
    assert finding.problem.code is problem


def test_more_workers_help_those_that_wait_for_threads_of_their_own() -> None:
    """Each has its own, so twice as many load twice as fast; not behind a lock that they share."""
    pools, lock = (
        whatif(waiting_on_futex(calls, fetch=400), num_workers=4).speedup.value for calls in (60, 0)
    )
    assert pools == pytest.approx(2, rel=0.1)
    assert lock == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(("others", "rule"), [(0.7, Rule.LOCK), (0.8, Rule.SLOW_FETCH)])
def test_threads_of_a_worker_that_compute_are_its_loading(others: float, rule: Rule) -> None:
    """A worker that waits while its threads compute for half of that time is not blocked."""
    run = waiting_on_futex(others=others)
    assert rules_inside(run) == [rule]


def test_what_helps_workers_that_are_blocked() -> None:
    """More of them where they wait for answers, beyond CPUs too; not where they share a lock."""
    given: dict[str, Any] = {"fetch": 120, "blocked": 0.9, "environment": {"cpus_usable": 2}}
    finding = finding_of(
        Rule.STORAGE_LATENCY, looked_into(**given, seen=seen_blocked("sk_wait_data", 90))
    )
    assert advised(finding) == [Advice.RAISE, Advice.MORE_REQUESTS_AT_ONCE]
    assert int(str(numbers(finding)[Advice.RAISE]["proposed"])) > 4
    finding = finding_of(Rule.LOCK, looked_into(**given, seen=seen_blocked("futex_wait_queue", 90)))
    assert advised(finding) == [Advice.SHORTER_LOCK]
    finding = finding_of(Rule.DISK, looked_into(**given, seen=seen_blocked("io_schedule", 90)))
    assert advised(finding) == [Advice.READ_LESS]


def test_that_more_workers_help_is_not_denied_and_said() -> None:
    """Where some have nothing to load, they are said to wait, and no more."""
    given = looked_into(fetch=120, blocked=0.9, loader={"workers": 4, "prefetch_depth": 8})
    finding = RULES[Rule.STORAGE_LATENCY](Case(given))
    assert isinstance(finding, Finding)
    assert Advice.NO_MORE_WORKERS not in advised(finding)


@pytest.mark.parametrize("blocked", [None, {}])
def test_where_workers_are_blocked_may_not_be_seen(blocked: dict[str, int] | None) -> None:
    """No line is blamed that they were not blocked in."""
    seen = () if blocked is None else code({GETITEM: 40}, blocked)
    finding = finding_of(Rule.STORAGE_LATENCY, looked_into(fetch=60, blocked=0.6, seen=seen))
    assert finding.problem.values["place"] == "a place not seen"
    assert GETITEM not in describe(finding)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"blocked": 0.41}, "found"),
        ({"blocked": 0.39}, NOTHING),
        ({"blocked": 0.9, "fetch": 30}, NOTHING),  # nothing is waited for
        ({"fetch": 30, "collate": 30}, NOTHING),
        ({"cpu_ns": UNKNOWN, "run_queue_ns": UNKNOWN}, NOTHING),
    ],
)
def test_when_workers_are_blocked(given: dict[str, Any], expected: str) -> None:
    """For two fifths of the time, as the kernel counts it."""
    values = {"fetch": 60, "blocked": 0.6, **given}
    assert outcome(Rule.STORAGE_LATENCY, looked_into(**values)) == expected


@pytest.mark.parametrize(
    ("workers", "step", "rule"),
    [(4, 2.0, Rule.LOCK), (4, 12.0, Rule.STORAGE_LATENCY), (1, 2.0, Rule.STORAGE_LATENCY)],
)
def test_workers_that_sleep(workers: int, step: float, rule: Rule) -> None:
    """They try a lock again and again where one works at a time: 15 ms of each batch in 60."""
    seen = seen_blocked("hrtimer_nanosleep", 75)
    given = looked_into(fetch=60, blocked=0.75, workers=workers, step=step, seen=seen)
    assert rules_inside(given)[0] == rule


def test_workers_that_wait_for_a_cpu() -> None:
    """For as long as that takes; other threads of theirs are why."""
    finding = finding_of(Rule.OVERSUBSCRIPTION, looked_into(fetch=60, run_queue=0.4, others=2.0))
    assert finding.problem.values == {"share": pytest.approx(0.4)}
    assert advised(finding) == [Advice.ONE_THREAD_EACH]
    assert finding.cost_share == A_THIRD
    assert [(fact.name, fact.value) for fact in finding.evidence] == [
        ("waiting for a CPU", pytest.approx(0.4)),
        ("CPU time of other threads of a worker, in a batch", pytest.approx(72e6)),
        ("workers", 2),
        ("CPUs", 8),
    ]


SPINNING: dict[str, Any] = {"fetch": 20, "step": 10, "real": 30, "environment": {"cpus_usable": 4}}
"""A step of 10 ms takes 30 beside two workers."""


def test_a_step_whose_threads_spin() -> None:
    """It computes 90 ms beside workers, and 38 ms without; how settings act is not predicted."""
    given = cores_read(looked_into(**SPINNING), process=(3.0, 3.8), workers=(0.9, 0.0))
    case = Case(given)
    assert case.model is None
    assert case.recorded is not None
    assert case.recorded.spinning
    finding = finding_of(Rule.OVERSUBSCRIPTION, given)
    assert finding.problem.code is Problem.STEP_SPINS
    assert finding.problem.values == {"threads": 4, "workers": 2, "cpus": 4}
    assert [round(float(fact.value) / MS) for fact in finding.evidence] == [90, 38]
    assert finding.cost_share == pytest.approx(case.contention_share)
    (change,) = finding.changes
    assert change.code is Advice.FEWER_THREADS
    at_most = pytest.approx(1 / (1 - case.contention_share))
    assert change.values == {"threads": 2, "present": 4, "at_most": at_most}
    assert outcome(Rule.CONTENTION, given) == "found"
    assert Rule.CONTENTION not in {finding.rule for finding in diagnosed(given).findings}


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
def test_when_threads_do_not_spin(given: dict[str, Any], cores: dict[str, Any]) -> None:
    assert Case(cores_read(looked_into(**{**SPINNING, **given}), **cores)).spinning is None


ONE_THREAD = {"cpus_usable": 8, "omp_num_threads": 1}


@pytest.mark.parametrize(
    ("given", "others", "change"),
    [
        ({"others": 0.51}, 0.0, (Advice.ONE_THREAD_EACH, {})),
        ({"others": 0.49}, 0.0, (Advice.FREE_CPUS, {})),
        ({"others": 0.51, "pickle": 1}, 0.0, (Advice.FREE_CPUS, {})),  # in such a thread
        ({"others": 0.99, "environment": ONE_THREAD}, 0.0, (Advice.FREE_CPUS, {})),
        ({"others": 1.01, "environment": ONE_THREAD}, 0.0, (Advice.ONE_THREAD_EACH, {})),
        ({}, 3.0, (Advice.FREE_CPUS, {"others_cpus": pytest.approx(3.0)})),
        ({"environment": {"cpus_usable": 1}}, 0.0, (Advice.CHEAPER_OR_CPUS, {})),
        ({"environment": {"cpus_usable": None}}, 0.0, (Advice.FREE_CPUS, {})),
    ],
)
def test_what_frees_a_cpu(
    given: dict[str, Any], others: float, change: tuple[Advice, dict[str, Any]]
) -> None:
    """Threads of the workers first, then workers, then who else computes."""
    staged_run = looked_into(fetch=60, run_queue=0.4, **given)
    if others:
        staged_run = cores_read(staged_run, process=1.0, workers=2.0, machine=3.0 + others)
    cause = finding_of(Rule.OVERSUBSCRIPTION, staged_run)
    assert list(numbers(cause).items()) == [change]


@pytest.mark.parametrize(
    ("given", "lowered"),
    [
        ({}, [2]),
        ({"fetch": 200, "blocked": 0.3}, []),  # two would leave CPUs idle while they are blocked
    ],
)
def test_fewer_workers_where_as_many_as_cpus_load_as_fast(
    given: dict[str, Any], lowered: list[int]
) -> None:
    """By themselves they bring little, and nothing is promised: work is too much for the CPUs."""
    given = {"workers": 6, "fetch": 240, "run_queue": 0.6, **given}
    run = looked_into(environment={"cpus_usable": 2}, **given)
    run = cores_read(run, process=0.5, workers=1.4)
    first = diagnosed(run).findings[0]
    assert first.rule is Rule.OVERSUBSCRIPTION
    assert advised(first)[0] is Advice.CHEAPER_OR_CPUS
    assert [change.values["proposed"] for change in first.changes[1:]] == lowered
    assert not any(gains(first).values())


SLOW_CODE: dict[str, dict[str, Any]] = {
    "slow transform": {"transforms": {"blur": 0.9}},
    "slow fetch": {"seen": code({GETITEM: 90, LOCKED: 10})},
    "slow collate": {"fetch": 5, "collate": 75},
    "tokenising": {"seen": code({"data.py:31 tokenise": 90, LOCKED: 10})},
    "data format": {"seen": (CodeSamples(0, {GETITEM: 100}, {}, {f"{GETITEM} > json.loads": 90}),)},
}


@pytest.mark.parametrize("rule", SLOW_CODE)
def test_code_that_others_keep_from_cpus_is_not_slow(rule: str) -> None:
    """Others use half of the CPUs, and workers wait for one half of the time: that is named."""
    given: dict[str, Any] = {"fetch": 80, "environment": {"cpus_usable": 2}, **SLOW_CODE[rule]}
    crowded, waits_less = (looked_into(run_queue=share, **given) for share in (0.55, 0.45))
    cores = {"process": 0.4, "workers": 0.5}
    assert outcome(Rule(rule), cores_read(crowded, machine=1.95, **cores)) == NOTHING
    assert outcome(Rule(rule), cores_read(crowded, machine=1.85, **cores)) == "found"
    assert outcome(Rule(rule), cores_read(waits_less, machine=1.95, **cores)) == "found"


@pytest.mark.parametrize(("fetch", "expected"), [(87, NOTHING), (90, "found")])
def test_code_that_is_too_slow_on_cpus_of_its_own_is_named(fetch: int, expected: str) -> None:
    """Two workers wait 55% of the time, and without that take over 40 ms, for a step of 20."""
    seen = code({"data.py:31 tokenise": 90, LOCKED: 10})
    run = looked_into(run_queue=0.55, fetch=fetch, environment={"cpus_usable": 2}, seen=seen)
    run = cores_read(run, process=0.4, workers=0.5, machine=1.95)
    assert outcome(Rule.TOKENISING, run) == expected


@pytest.mark.parametrize(("fetch", "first"), [(150, Rule.OVERSUBSCRIPTION), (200, Rule.TOKENISING)])
def test_code_that_is_too_slow_by_itself_comes_before_who_else_computes(
    fetch: int, first: Rule
) -> None:
    """Two workers wait for CPUs 75% of the time; a quarter of it is 19 ms or 25, a step 20."""
    seen = code({"data.py:31 tokenise": 90, LOCKED: 10})
    run = looked_into(run_queue=0.75, fetch=fetch, environment={"cpus_usable": 2}, seen=seen)
    run = cores_read(run, process=0.3, workers=0.3, machine=1.9)
    assert diagnosed(run).findings[0].rule is first


def test_others_that_keep_workers_from_cpus_come_first() -> None:
    """However much of what is lost a simulation gives back without them."""
    run = looked_into(fetch=110, run_queue=0.6, environment={"cpus_usable": 2})
    findings = diagnosed(cores_read(run, process=0.4, workers=0.5, machine=1.95)).findings
    assert findings[0].rule is Rule.OVERSUBSCRIPTION
    assert findings[0].changes[0].code is Advice.FREE_CPUS


@pytest.mark.parametrize(
    ("workers", "first"), [(1.3, Rule.SLOW_TRANSFORM), (0.9, Rule.OVERSUBSCRIPTION)]
)
def test_others_that_were_not_read_have_what_training_leaves(workers: float, first: Rule) -> None:
    """Of two CPUs it uses 0.3 itself: others cannot have half of one, or can."""
    run = looked_into(
        fetch=80, run_queue=0.6, environment={"cpus_usable": 2}, transforms={"blur": 0.9}
    )
    run = cores_read(run, process=0.3, workers=workers)
    of_training = tuple(each for each in readings_lines(run) if each.subject != "machine")
    assert diagnosed(replace(run, readings=of_training)).findings[0].rule is first


def test_work_that_fills_the_cpus_is_named_before_the_want_of_them() -> None:
    """A cheaper blur frees the CPUs; it costs what leaving it out was measured to bring."""
    first = diagnose(read_run(BLUR)).findings[0]
    assert first.rule is Rule.SLOW_TRANSFORM
    assert first.cost_share == pytest.approx(1 - 1 / 1.74, abs=0.05)


@pytest.mark.parametrize(
    ("cpus", "first"),
    [(2, Rule.SLOW_TRANSFORM), (4, Rule.OVERSUBSCRIPTION), (None, Rule.OVERSUBSCRIPTION)],
)
def test_cpus_of_others_that_were_not_read(cpus: int | None, first: Rule) -> None:
    """What a batch and its step compute shows whether loading and steps fill the CPUs."""
    run = looked_into(
        fetch=60, run_queue=0.4, transforms={"blur": 0.9}, environment={"cpus_usable": cpus}
    )
    assert diagnosed(run).findings[0].rule is first


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_when_workers_wait_for_a_cpu(given: dict[str, Any], expected: str) -> None:
    """The wait is measured; else there are more of them than CPUs."""
    assert outcome(Rule.OVERSUBSCRIPTION, looked_into(**{"fetch": 60, **given})) == expected


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
def test_workers_without_a_cpu_at_no_known_cost(given: dict[str, Any], problem: Problem) -> None:
    """They are among the findings: that the cost is not known does not make it nothing."""
    (finding,) = diagnosed(looked_into(fetch=30, **given)).findings
    assert (finding.problem.code, finding.cost_share) == (problem, None)
    assert finding.severity == "low"


def test_a_slow_worker() -> None:
    """It takes 100 ms where the other takes 30; its batches come every 50."""
    finding = finding_of(
        Rule.SLOW_WORKER, looked_into(fetch=np.where(NUMBER % 2 == 1, 100.0, 30.0))
    )
    assert finding.problem.values == {"worker": 1, "batch_ns": 100e6, "others_ns": 30e6}
    assert advised(finding) == [Advice.BALANCE_WORKERS]
    assert [fact.value for fact in finding.evidence] == [100e6, 30e6]
    assert finding.cost_share == pytest.approx(30 / 50, abs=0.02)


@pytest.mark.parametrize(
    ("fetch", "given", "expected"),
    [
        (np.where(NUMBER % 2, 76.0, 50.0), {}, "found"),
        (np.where(NUMBER % 2, 74.0, 50.0), {}, NOTHING),
        (np.where(NUMBER % 2, 39.0, 20.0), {}, NOTHING),  # fast enough
        (60.0, {"workers": 1}, NOTHING),
        (60.0, {"workers": 0}, NOTHING),
        (np.where(NUMBER % 16 == 1, 500.0, 60.0), {}, NOTHING),  # a batch in eight is no worker
    ],
)
def test_when_a_worker_is_slow(fetch: Any, given: dict[str, Any], expected: str) -> None:
    """Half as long again in what it typically does, where that is waited for."""
    assert outcome(Rule.SLOW_WORKER, looked_into(fetch=fetch, **given)) == expected


WAITING_WORKER: dict[str, Any] = {
    "fetch": np.where(NUMBER % 2, 100.0, 30.0),
    "cpu_ns": 30 * MS,
    "run_queue_ns": np.where(NUMBER % 2, 70, 0) * MS,
}
"""The second of two workers takes 100 ms for 30 ms of work, for it waits for a CPU."""


def test_a_worker_that_waits_for_its_cpu_is_not_slow() -> None:
    """It does no more than the other; that they wait for CPUs is said instead."""
    run = looked_into(**WAITING_WORKER)
    assert outcome(Rule.SLOW_WORKER, run) == NOTHING
    assert rules_inside(run) == [Rule.OVERSUBSCRIPTION]
    slower = looked_into(**WAITING_WORKER | {"cpu_ns": np.where(NUMBER % 2, 46, 30) * MS})
    assert outcome(Rule.SLOW_WORKER, slower) == "found"


@pytest.mark.parametrize("worker", [0, 1])
def test_whether_a_worker_waits_is_not_guessed(worker: int) -> None:
    """Nothing tells where all batches that count are of one worker."""
    inside = Case(looked_into(**WAITING_WORKER)).inside
    assert inside is not None
    assert inside.waiting_worker is not None
    costs = replace(inside.costs, worker=np.full(len(inside.costs), worker))
    assert replace(inside, recorded=replace(inside.recorded, costs=costs)).waiting_worker is None


def test_a_worker_of_few_batches_is_not_slow() -> None:
    """Three batches tell nothing."""
    given = looked_into(fetch=np.where(np.isin(NUMBER, (41, 43, 45)), 900.0, 30.0))
    (times,) = rows_of(given)
    other = np.where(times.fetch_ns > 800e6, 5, 0)
    assert outcome(Rule.SLOW_WORKER, replace(given, stages=(replace(times, worker=other),))) == (
        NOTHING
    )
