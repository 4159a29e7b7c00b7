"""What is wrong with a training that was looked at from outside."""

from __future__ import annotations

from typing import Any

import pytest

from loadeval.attach.findings import SOURCE
from loadeval.findings.engine import Finding
from loadeval.probes.observing import ObservedMachine, ObservedProcess
from tests.attach import seen
from tests.attach.seen import PID, growth, moment, process, report_of

WAITS = (seen.WAIT, seen.STEP) * 20
HARDLY = (seen.WAIT, *(seen.STEP,) * 60)
TWO, FOUR = frozenset({0, 1}), frozenset({0, 1, 2, 3})


def findings(
    *workers: ObservedProcess,
    stacks: tuple[seen.Stack, ...] = WAITS,
    machine: ObservedMachine | None = None,
    **training: Any,
) -> dict[str, Finding]:
    report = report_of(process(PID, *stacks, **training), workers, machine=machine)
    return {finding.rule: finding for finding in report.findings}


def worker(*stacks: seen.Stack, **other: Any) -> ObservedProcess:
    return process(101, *(stacks or (seen.FETCH,) * 10), **other)


def to_do(finding: Finding) -> list[str]:
    return [do.says for do in finding.do]


def test_a_training_that_hardly_waits_has_no_finding_of_its_loader() -> None:
    """And it is said that loading does not limit it."""
    confined = worker(cpus_allowed=TWO, growth=growth(0.1, 0.8))
    report = report_of(process(PID, *HARDLY), [confined])
    assert report.findings == ()
    assert report.headline.endswith("Loading is not what limits it.")


def test_waiting_that_nothing_explains_is_said() -> None:
    """Without a cost, and no simulation is its source."""
    (finding,) = findings(worker(seen.LOOP, growth=growth(0.9))).values()
    assert (finding.rule, finding.cost, finding.source) == ("waiting", None, SOURCE)
    assert finding.says.startswith("Training waits 50.0% of its time.")


def test_a_training_that_loads_itself_loads_nothing_ahead() -> None:
    """As many workers keep up as the time of a batch is that of steps."""
    found = findings(stacks=(seen.OWN_LOADING, seen.STEP) * 20)
    assert set(found) == {"zero workers", "slow fetch"}
    assert to_do(found["zero workers"]) == ["num_workers 0 -> 1"]
    assert to_do(found["slow fetch"]) == ["make __getitem__ cheaper"]


def test_no_more_workers_are_advised_than_there_are_cpus_for() -> None:
    found = findings(stacks=((seen.OWN_LOADING,) * 12 + (seen.STEP,)) * 3)
    assert to_do(found["zero workers"]) == ["num_workers 0 -> 3"]


def test_a_loader_that_has_no_workers_is_read_by_a_thread_instead() -> None:
    pipeline = (*seen.DATASET, seen.frame("iterator", "/v/webdataset/pipeline.py"))
    found = findings(stacks=(pipeline, seen.STEP) * 20)
    assert to_do(found["zero workers"]) == ["load in the background"]


def test_no_line_is_named_where_many_share_loading() -> None:
    def load(line: int) -> seen.Stack:
        function = seen.frame(f"load{line}", "/home/me/data.py", line)
        return (function, seen.FETCHING, *seen.LOOP)

    assert set(findings(worker(*map(load, range(1, 11)), growth=growth(0.9)))) == {"waiting"}
    assert set(findings(worker(growth=growth(0.9)))) == {"slow fetch"}


@pytest.mark.parametrize(
    ("kernel", "disk_bytes", "rule"),
    [
        ("futex_do_wait", 0, "lock"),
        ("flock_lock_inode_wait", 0, "lock"),
        ("io_schedule", 0, "disk"),
        ("any", 900_000, "disk"),
        ("sk_wait_data", 0, "storage latency"),
    ],
)
def test_what_blocks_workers_is_told_apart(kernel: str, disk_bytes: int, rule: str) -> None:
    used = growth(0.1, read_bytes_per_s=1_000_000, disk_read_bytes_per_s=disk_bytes)
    found = findings(worker(growth=used, moments=(moment(kernel),) * 8))
    assert set(found) == {rule}
    assert "at train/data.py:12 __getitem__" in found[rule].says


def test_workers_that_wait_for_what_to_load_are_not_blocked_by_it() -> None:
    """In the kernel it is a poll: as many of these as stacks show."""
    moments = (moment("poll_schedule_timeout"),) * 6 + (moment("futex_do_wait"),) * 4
    stacks = (seen.FETCH, seen.ASK) * 10
    assert "lock" in findings(worker(*stacks, growth=growth(0.1), moments=moments))


def test_blocked_workers_of_which_no_line_is_known() -> None:
    found = findings(worker((seen.FETCHING, *seen.LOOP), growth=growth(0.1)))
    assert "at a place not seen" in found["storage latency"].says


@pytest.mark.parametrize(
    ("workers", "busy", "advice"),
    [
        (2, None, "make decoding and transforms cheaper, or give training more CPUs"),
        (1, 1.0, "free CPUs"),
        (1, 3.0, "free CPUs that others use"),
    ],
)
def test_workers_that_wait_for_a_cpu(workers: int, busy: float | None, advice: str) -> None:
    """More of them than CPUs, or others use these."""
    machine = ObservedMachine(cpus=4, quota_cores=1.0, busy_cpus=busy)
    each = [
        process(pid, *(seen.FETCH,) * 10, growth=growth(0.4, 0.6)) for pid in seen.WORKERS[:workers]
    ]
    found = findings(*each, machine=machine)
    assert to_do(found["oversubscription"]) == [advice]
    assert "60.0% of its time" in found["oversubscription"].says
    assert ("shared machine" in found) is (busy == 3.0)


@pytest.mark.parametrize(
    ("own", "theirs", "says"),
    [
        (FOUR, frozenset({0}), "Something set the affinity of the workers"),
        (frozenset({0}), frozenset({0}), "may be intended"),
        (FOUR, FOUR, None),
        (FOUR, None, None),
        (None, TWO, None),
    ],
)
def test_workers_that_are_kept_from_cpus(
    own: frozenset[int] | None, theirs: frozenset[int] | None, says: str | None
) -> None:
    workers = [process(pid, *(seen.FETCH,) * 10, cpus_allowed=theirs) for pid in seen.WORKERS]
    found = findings(*workers, cpus_allowed=own)
    assert ("confined workers" in found) is (says is not None)
    if says is not None:
        assert says in found["confined workers"].says
        assert found["confined workers"].says.startswith("2 workers share 1 CPU and may not use")


def test_without_stacks_it_is_still_said_what_the_kernel_tells() -> None:
    workers = [process(pid, cpus_allowed=frozenset({0})) for pid in seen.WORKERS]
    assert set(findings(*workers, stacks=())) == {"confined workers"}


@pytest.mark.parametrize(
    ("machine", "used", "is_said"),
    [
        (ObservedMachine(cpus=4, busy_cpus=4.0), growth(), True),
        (ObservedMachine(cpus=4, busy_cpus=3.0), growth(), False),
        (ObservedMachine(cpus=1, busy_cpus=1.0), {}, False),
    ],
)
def test_other_programs_matter_where_they_take_the_last_cpus(
    machine: ObservedMachine, used: Any, is_said: bool
) -> None:
    found = findings(stacks=HARDLY, machine=machine, growth=used)
    assert set(found) == ({"shared machine"} if is_said else set())
