"""Workers that are kept from CPUs: runs in which each cause shows, and runs that hardly have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import diagnose
from loadeval.analysis.rules.finding import Advice, Problem, Rule, Unknown
from loadeval.analysis.rules.fixes import gain_of
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
from tests.analysis.rules.test_stage_workers import WAITING_WORKER
from tests.runs.given import alternating, cores_read
from tests.runs.looked_into import PLACES, code, looked_into
from tests.runs.tables import readings_lines, replace

if TYPE_CHECKING:
    from loadeval.data.lines import Readings
    from loadeval.data.run import Run


def with_cpus(
    run: Run,
    *,
    training: int = 8,
    workers: int = 1,
    shared: int = 1,
    threads: int | None = None,
    machine: int | None = 8,
    fewest: int | None = None,
    in_use: float = 1.0,
) -> Run:
    """The run with readings of how many CPUs the training process and its workers may use.

    Training uses a CPU, and its workers `in_use` of them.
    """
    read = cores_read(run, process=(0.9, 1.0), workers=(in_use, 0.0))
    allowed: dict[str, dict[str, float | None]] = {
        "process": {"allowed_cpus": training, "threads_allowed_cpus": threads},
        "workers": {
            "allowed_cpus": workers,
            "fewest_allowed_cpus": fewest,
            "first_allowed_cpu": 5,
            "shared_allowed_cpus": shared,
        },
        "machine": {"allowed_cpus": machine},
    }
    readings = []
    for reading in readings_lines(read):
        known = {
            name: np.full(len(reading.time_ns), value)
            for name, value in allowed[reading.subject].items()
            if value is not None
        }
        readings.append(replace(reading, values={**reading.values, **known}))
    return replace(read, readings=tuple(readings))


def crowded(**given: Any) -> Run:
    """Two workers that each wait for a CPU half of the time, and load too slowly for it."""
    return looked_into(**{"fetch": 60, "run_queue": 0.5, "seen": (), **given})


def test_workers_that_were_bound() -> None:
    """They may use other CPUs than training: that was set in them, maybe by worker_init_fn."""
    run = with_cpus(crowded(loader={"worker_init": "data.bind"}))
    first = diagnose(run).findings[0]
    assert first.rule is Rule.CONFINED
    assert first.confidence == "measured"
    assert first.problem.code is Problem.WORKERS_CONFINED
    assert first.problem.values == {"workers": 2, "cpus": 1, "more": 7, "own": 8}
    assert advised(first) == [Advice.ALLOW_IN_WORKERS, Advice.LOOK_AT_INIT]
    assert {fact.name: fact.value for fact in first.evidence} == {
        "CPUs that the workers may use": 1,
        "number of the first of them": 5,
        "CPUs that the training process may use": 8,
        "CPUs that there are": 8,
        "CPUs used by the workers": pytest.approx(1.0),
    }
    said = describe(first)
    assert "2 workers share 1 CPU and may not use the other 7 CPUs;" in said
    assert "worker_init_fn is data.bind" in said


def test_what_freeing_workers_brings() -> None:
    """A batch takes 30 ms of CPU time, and a step 20 ms: two workers with a CPU each keep up.

    CPU time grows a little where more CPUs are in use.
    """
    finding = finding_of(Rule.CONFINED, with_cpus(crowded()))
    assert finding.cost_share == pytest.approx(1 / 3, abs=0.05)
    assert gains(finding)[Advice.ALLOW_IN_WORKERS]["speedup"] == pytest.approx(1.45, abs=0.06)


def test_rivals_do_not_come_first() -> None:
    """Even where the loader would be far too slow with all CPUs, and that costs more."""
    seen = code({PLACES["fetch"]: 90})
    findings = diagnose(with_cpus(crowded(fetch=400, seen=seen))).findings
    assert [finding.rule for finding in findings] == [Rule.CONFINED, Rule.SLOW_FETCH]


def test_the_want_of_cpus_is_no_finding_beside_its_cause() -> None:
    """Workers that wait for a CPU were not told to be fewer where they may not use others."""
    assert outcome(Rule.OVERSUBSCRIPTION, with_cpus(crowded())) == "found"
    rules = {finding.rule for finding in diagnose(with_cpus(crowded())).findings}
    assert Rule.OVERSUBSCRIPTION not in rules


@pytest.mark.parametrize(
    ("start", "threads"),
    [(8, None), (1, 8)],
    ids=["it could use more at first", "one of its threads may use more"],
)
def test_a_process_that_was_bound(start: int, threads: int | None) -> None:
    """Something set its affinity after it started, and workers inherit it."""
    environment = {"cpus_usable": 1, "cpus": 8, "cpus_at_start": start, "cpu_binding": []}
    run = with_cpus(crowded(environment=environment), training=1, threads=threads, machine=None)
    finding = finding_of(Rule.CONFINED, run)
    assert finding.problem.code is Problem.PROCESS_CONFINED
    assert finding.problem.values["more"] == 7
    assert advised(finding) == [Advice.ALLOW_AFTER_IMPORTS]
    assert "speedup" in gains(finding)[Advice.ALLOW_AFTER_IMPORTS]


ONE_WAITS: dict[str, Any] = {"workers": 8, "shared": 8, "fewest": 1}


def test_one_worker_that_was_bound() -> None:
    """It waits 70 ms for the CPU that it may use, in each batch of 100 ms; the other may use all.

    A batch comes every 50 ms; after, steps of 20 ms are all that is left.
    """
    run = with_cpus(looked_into(**WAITING_WORKER, loader={"worker_init": "data.bind"}), **ONE_WAITS)
    first = diagnosed(run).findings[0]
    assert (first.rule, first.problem.code) == (Rule.CONFINED, Problem.WORKER_CONFINED)
    assert first.confidence == "likely"
    values = {"worker": 1, "batch_ns": 100e6, "others_ns": 30e6, "cpus": 1, "others_cpus": 8}
    assert first.problem.values == values
    assert [fact.value for fact in first.evidence] == [100e6, 30e6, 1, 8]
    assert advised(first) == [Advice.ALLOW_IN_WORKERS, Advice.LOOK_AT_INIT]
    assert first.cost_share == pytest.approx(30 / 50, abs=0.05)
    assert gains(first)[Advice.ALLOW_IN_WORKERS]["speedup"] == pytest.approx(50 / 20, abs=0.3)
    assert "One of the workers may use only 1 CPU, while the others may use 8 CPUs" in describe(
        first
    )


@pytest.mark.parametrize(
    ("given", "cpus"),
    [
        (WAITING_WORKER, {"fewest": 8}),  # they may all use all
        (WAITING_WORKER, {"fewest": None}),  # a log of before that was read
        ({"fetch": WAITING_WORKER["fetch"]}, {}),  # it waits for no CPU
        ({"fetch": 60}, {}),  # it is not slow
        (WAITING_WORKER | {"step": 60.0}, {}),  # nothing is lost
    ],
)
def test_when_one_worker_is_not_kept_from_cpus(given: dict[str, Any], cpus: dict[str, Any]) -> None:
    assert outcome(Rule.CONFINED, with_cpus(looked_into(**given), **ONE_WAITS | cpus)) == NOTHING


def test_slower_steps_are_not_for_one_worker_that_was_bound() -> None:
    """Training shares no CPU with it that others do not."""
    run = with_cpus(looked_into(**WAITING_WORKER, real=30.0), **ONE_WAITS)
    rules = [finding.rule for finding in diagnosed(run).findings]
    assert rules == [Rule.CONFINED, Rule.CONTENTION]


def test_a_variable_that_binds_threads_is_named() -> None:
    """OpenMP binds the thread that imports it."""
    environment = {"cpus_at_start": 8, "cpu_binding": ["OMP_PROC_BIND", "OMP_PLACES"]}
    run = with_cpus(crowded(environment=environment), training=1)
    changes = numbers(finding_of(Rule.CONFINED, run))
    assert changes[Advice.UNSET_BINDING] == {"variables": "OMP_PROC_BIND, OMP_PLACES"}


def test_a_process_that_openmp_has_bound() -> None:
    """Before loadeval was imported: little but the variable would bind it to one CPU."""
    environment = {"cpus_at_start": 1, "cpu_binding": ["OMP_PROC_BIND"]}
    one, two = (
        with_cpus(crowded(workers=4, fetch=120, environment=environment), **cpus)
        for cpus in (
            {"training": 1},
            {"training": 2, "workers": 2, "shared": 2, "in_use": 2.0},
        )
    )
    first = diagnose(one).findings[0]
    assert (first.problem.code, first.confidence) == (Problem.PROCESS_CONFINED, "likely")
    assert finding_of(Rule.CONFINED, two).problem.code is Problem.STARTED_CONFINED


def test_a_process_that_was_started_so() -> None:
    """By taskset or Slurm: it may be intended, is said last, and excludes nothing."""
    environment = {"cpus_usable": 1, "cpus": 8, "cpus_at_start": 1}
    run = with_cpus(crowded(environment=environment), training=1)
    findings = diagnose(run).findings
    finding = findings[-1]
    assert finding.rule is Rule.CONFINED
    assert finding.problem.code is Problem.STARTED_CONFINED
    assert (finding.severity, finding.confidence, finding.cost_share) == ("low", "possible", None)
    assert advised(finding) == [Advice.START_WITH_CPUS]
    assert Rule.OVERSUBSCRIPTION in {other.rule for other in findings}


def test_workers_with_nothing_to_load_need_no_cpu() -> None:
    """One of them has it all, and a CPU of its own; the others are not asked for theirs."""
    run = with_cpus(crowded(workers=1, loader={"workers": 4, "prefetch_depth": 8}), workers=1)
    assert outcome(Rule.CONFINED, run) == NOTHING


@pytest.mark.parametrize(
    ("given", "cpus"),
    [
        ({}, {"workers": 2, "shared": 2}),  # a CPU for each worker, and others for training
        ({}, {"workers": 8, "shared": 8}),  # they may use all
        ({}, {"workers": 1, "training": 1, "machine": 1}),  # there is but one in the container
        ({"fetch": 30}, {}),  # nothing is lost
        ({"workers": 0, "loader": {"workers": 0, "prefetch_depth": 0}}, {}),
    ],
)
def test_when_workers_are_not_kept_from_cpus(given: dict[str, Any], cpus: dict[str, Any]) -> None:
    assert outcome(Rule.CONFINED, with_cpus(crowded(**given), **cpus)) == NOTHING


def test_steps_that_lack_a_cpu_are_of_the_same_cause() -> None:
    """Where training may use no other CPU, slower steps are no finding of their own."""
    slower = crowded(real=30.0, environment={"cpus_at_start": 8})
    together = finding_of(Rule.CONFINED, with_cpus(slower, training=1))
    apart = diagnose(with_cpus(slower)).findings
    assert Rule.CONTENTION not in {
        finding.rule for finding in diagnose(with_cpus(slower, training=1)).findings
    }
    assert Rule.CONTENTION in {finding.rule for finding in apart}
    assert (together.cost_share or 0) > (apart[0].cost_share or 0)


def test_cpus_that_were_not_read() -> None:
    """A log of another version, or of a system that does not tell."""
    assert outcome(Rule.CONFINED, crowded()) is Unknown.AFFINITY_NOT_READ
    assert gain_of(Case(crowded()), Rule.CONFINED) == 0


@pytest.mark.parametrize(
    ("start", "in_use", "expected"),
    [(8, 0.95, "found"), (8, 0.5, Unknown.NOT_LOOKED_INTO), (1, 0.95, Unknown.NOT_LOOKED_INTO)],
)
def test_a_loader_that_was_not_looked_into(start: int, in_use: float, expected: object) -> None:
    """Workers that fill the CPUs that they may use are the cause of the waiting, of all of it."""
    run = alternating(
        wait=10, real=20, ideal=20, alone=30, environment={"cpus_usable": 1, "cpus_at_start": start}
    )
    run = with_cpus(run, training=1, in_use=in_use)
    assert outcome(Rule.CONFINED, run) == expected
    if expected == "found":
        first = diagnose(run).findings[0]
        assert first.rule is Rule.CONFINED
        assert first.cost_share == pytest.approx(1 / 3, abs=0.01)
        assert Rule.CAPACITY not in {finding.rule for finding in diagnose(run).findings}


def test_a_gain_where_nobody_read_what_others_use() -> None:
    """Workers that are kept from CPUs wait for one by that: what is gained is known as well."""
    run = with_cpus(crowded())
    unread = replace(run, readings=tuple(map(_without_cores, readings_lines(run))))
    assert Case(unread).cpu_use.others is None
    gain = gains(finding_of(Rule.CONFINED, unread))[Advice.ALLOW_IN_WORKERS]["speedup"]
    assert gain == gains(finding_of(Rule.CONFINED, run))[Advice.ALLOW_IN_WORKERS]["speedup"]


def _without_cores(reading: Readings) -> Readings:
    known = {name: column for name, column in reading.values.items() if name != "cpu_cores"}
    return replace(reading, values=known)
