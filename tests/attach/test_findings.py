"""What is wrong with a training that was looked at from outside."""

from __future__ import annotations

from typing import Any

import pytest

from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule
from loadeval.probes.observing import ObservedMachine, ObservedProcess
from tests import attached
from tests.attached import PID, growth, moment, process, report_of

WAITS = (attached.WAIT, attached.STEP) * 20
HARDLY = (attached.WAIT, *(attached.STEP,) * 60)
TWO, FOUR = frozenset({0, 1}), frozenset({0, 1, 2, 3})


def findings(
    *workers: ObservedProcess,
    stacks: tuple[attached.Stack, ...] = WAITS,
    machine: ObservedMachine | None = None,
    **training: Any,
) -> dict[Rule, Finding]:
    report = report_of(process(PID, *stacks, **training), workers, machine=machine)
    return {finding.rule: finding for finding in report.findings}


def worker(*stacks: attached.Stack, **other: Any) -> ObservedProcess:
    return process(101, *(stacks or (attached.FETCH,) * 10), **other)


def test_a_training_that_hardly_waits_has_no_finding_of_its_loader() -> None:
    confined = worker(cpus_allowed=TWO, growth=growth(0.1, 0.8))
    assert findings(confined, stacks=HARDLY) == {}


def test_waiting_that_nothing_explains_is_said() -> None:
    (finding,) = findings(worker(attached.LOOP, growth=growth(0.9))).values()
    assert finding.rule is Rule.WAITING
    assert finding.problem.values == {"wait_share": 0.5}
    assert finding.severity == "high"
    assert finding.cost_share is None


def test_a_training_that_loads_itself_loads_nothing_ahead() -> None:
    stacks = (attached.OWN_LOADING, attached.STEP) * 20
    found = findings(stacks=stacks)
    assert found[Rule.ZERO_WORKERS].confidence == "measured"
    (change,) = found[Rule.ZERO_WORKERS].changes
    values = {"setting": "num_workers", "present": 0, "proposed": 1}
    assert (change.code, change.values) == (Advice.TRY_WORKERS, values)
    assert found[Rule.SLOW_FETCH].problem.values["place"] == "train/data.py:12 __getitem__ > open"


def test_a_loader_that_has_no_workers_is_read_by_a_thread_instead() -> None:
    pipeline = (*attached.DATASET, attached.frame("iterator", "/v/webdataset/pipeline.py"))
    (change,) = findings(stacks=(pipeline, attached.STEP) * 20)[Rule.ZERO_WORKERS].changes
    assert change.code is Advice.LOAD_IN_BACKGROUND


def test_a_line_that_takes_most_of_loading_is_named() -> None:
    found = findings(worker(growth=growth(0.9)))
    assert set(found) == {Rule.SLOW_FETCH}
    assert found[Rule.SLOW_FETCH].changes[0].values == {"name": "__getitem__"}


def test_no_line_is_named_where_many_share_loading() -> None:
    def load(line: int) -> attached.Stack:
        function = attached.frame(f"load{line}", "/home/me/data.py", line)
        return (function, attached.FETCHING, *attached.LOOP)

    found = findings(worker(*map(load, range(1, 11)), growth=growth(0.9)))
    assert set(found) == {Rule.WAITING}


@pytest.mark.parametrize(
    ("kernel", "disk_bytes", "rule", "problem", "advice"),
    [
        *(
            (name, 0, Rule.LOCK, Problem.WORKERS_WAIT_FOR_LOCK, Advice.SHORTER_LOCK)
            for name in ("futex_do_wait", "flock_lock_inode_wait")
        ),
        ("io_schedule", 0, Rule.DISK, Problem.WORKERS_BLOCKED, Advice.READ_LESS),
        ("any", 900_000, Rule.DISK, Problem.WORKERS_BLOCKED, Advice.READ_LESS),
        (
            *("sk_wait_data", 0, Rule.STORAGE_LATENCY),
            *(Problem.WORKERS_BLOCKED, Advice.MORE_REQUESTS_AT_ONCE),
        ),
    ],
)
def test_what_blocks_workers_is_told_apart(
    kernel: str, disk_bytes: int, rule: Rule, problem: Problem, advice: Advice
) -> None:
    used = growth(0.1, read_bytes=1_000_000, disk_read_bytes=disk_bytes)
    found = findings(worker(growth=used, moments=(moment(kernel),) * 8))
    assert set(found) == {rule}
    assert found[rule].problem.code is problem
    assert found[rule].problem.values["kernel"] == kernel
    assert found[rule].changes[0].code is advice


def test_blocked_workers_of_which_neither_line_nor_place_is_known() -> None:
    blocked = worker((attached.FETCHING, *attached.LOOP), growth=growth(0.1))
    values = findings(blocked)[Rule.STORAGE_LATENCY].problem.values
    assert (values["place"], values["kernel"]) == ("a place not seen", "not known")


def test_workers_that_wait_for_a_cpu() -> None:
    """More of them than CPUs: the work is too much for these."""
    machine = ObservedMachine(cpus=4, quota_cores=1.0, runnable=(3, 5))
    workers = [
        process(pid, *(attached.FETCH,) * 10, growth=growth(0.4, 0.6)) for pid in attached.WORKERS
    ]
    found = findings(*workers, machine=machine)[Rule.OVERSUBSCRIPTION]
    assert found.confidence == "measured"
    assert found.problem.values == {"share": pytest.approx(0.6)}
    assert [change.code for change in found.changes] == [Advice.CHEAPER_OR_CPUS]
    assert {fact.name: fact.value for fact in found.evidence}["CPUs"] == 1.0


@pytest.mark.parametrize(("busy", "values"), [(None, {}), (4.0, {"others_cpus": 3.1})])
def test_workers_that_wait_for_cpus_of_others(busy: float | None, values: dict[str, Any]) -> None:
    machine = ObservedMachine(cpus=4, busy_cpus=busy)
    found = findings(worker(growth=growth(0.4, 0.6)), machine=machine)
    change = found[Rule.OVERSUBSCRIPTION].changes[0]
    assert change.code is Advice.FREE_CPUS
    assert change.values == pytest.approx(values)
    assert (Rule.SHARED_MACHINE in found) is bool(values)


@pytest.mark.parametrize(
    ("own", "theirs", "problem"),
    [
        (FOUR, frozenset({0}), Problem.WORKERS_CONFINED),
        (frozenset({0}), frozenset({0}), Problem.STARTED_CONFINED),
        (FOUR, FOUR, None),
        (FOUR, None, None),
        (None, TWO, None),
    ],
)
def test_workers_that_are_kept_from_cpus(
    own: frozenset[int] | None, theirs: frozenset[int] | None, problem: Problem | None
) -> None:
    workers = [
        process(pid, *(attached.FETCH,) * 10, cpus_allowed=theirs) for pid in attached.WORKERS
    ]
    found = findings(*workers, cpus_allowed=own)
    assert (Rule.CONFINED in found) is (problem is not None)
    if problem is not None:
        assert found[Rule.CONFINED].problem.code is problem
        assert found[Rule.CONFINED].problem.values["cpus"] == 1


def test_without_stacks_it_is_still_said_what_the_kernel_tells() -> None:
    workers = [process(pid, cpus_allowed=frozenset({0})) for pid in attached.WORKERS]
    assert set(findings(*workers, stacks=())) == {Rule.CONFINED}


def test_other_programs_matter_where_they_take_the_last_cpus() -> None:
    for busy, is_said in ((4.0, True), (3.0, False)):
        found = findings(stacks=HARDLY, machine=ObservedMachine(cpus=4, busy_cpus=busy))
        assert (Rule.SHARED_MACHINE in found) is is_said


def test_of_processes_whose_cpu_time_is_not_known_no_other_is_told_apart() -> None:
    machine = ObservedMachine(cpus=1, busy_cpus=1.0)
    assert findings(stacks=HARDLY, machine=machine, growth=None) == {}
