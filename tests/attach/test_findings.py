"""What is wrong with a training that was looked at from outside."""

from __future__ import annotations

from typing import Any

import pytest

from loadeval.attach.observe import SOURCE
from loadeval.findings.engine import Finding
from loadeval.probes.looks import ObservedProcess
from tests.attach import seen
from tests.attach.seen import PID, moment, process, report_of

WAITS = (seen.WAIT, seen.STEP) * 20
HARDLY = (seen.WAIT, *(seen.STEP,) * 60)


def findings(
    *workers: ObservedProcess, stacks: tuple[seen.Stack, ...] = WAITS
) -> dict[str, Finding]:
    report = report_of(process(PID, *stacks), workers)
    return {finding.rule: finding for finding in report.findings}


def worker(*stacks: seen.Stack, **other: Any) -> ObservedProcess:
    return process(101, *(stacks or (seen.FETCH,) * 10), **other)


def to_do(finding: Finding) -> list[str]:
    return [do.says for do in finding.do]


def test_a_training_that_hardly_waits_has_no_finding() -> None:
    report = report_of(process(PID, *HARDLY), [worker(cpu=0.1, run_queue=0.8)])
    assert report.findings == ()
    assert report.headline.endswith("Loading is not what limits it.")


def test_a_training_that_loads_itself_loads_nothing_ahead() -> None:
    """As many workers keep up as the time of a batch is that of steps; no simulation says so."""
    found = findings(stacks=(seen.OWN_LOADING, seen.STEP) * 20)
    assert set(found) == {"zero workers", "slow fetch"}
    assert to_do(found["zero workers"]) == ["num_workers 0 -> 1"]
    assert to_do(found["slow fetch"]) == ["make __getitem__ cheaper"]
    assert (found["slow fetch"].cost, found["slow fetch"].source) == (None, SOURCE)


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

    assert not findings(worker(*map(load, range(1, 11)), cpu=0.9))
    assert set(findings(worker(cpu=0.9))) == {"slow fetch"}


@pytest.mark.parametrize(
    ("kernel", "rule"),
    [
        ("futex_do_wait", "lock"),
        ("flock_lock_inode_wait", "lock"),
        ("io_schedule", "disk"),
        ("sk_wait_data", "storage latency"),
    ],
)
def test_what_blocks_workers_is_told_apart(kernel: str, rule: str) -> None:
    found = findings(worker(cpu=0.1, moments=(moment(kernel),) * 8))
    assert set(found) == {rule}
    assert "at train/data.py:12 __getitem__" in found[rule].says


def test_workers_that_wait_for_what_to_load_are_not_blocked_by_it() -> None:
    """In the kernel it is a poll."""
    moments = (moment("poll_schedule_timeout"),) * 6 + (moment("futex_do_wait"),) * 4
    stacks = (seen.FETCH, seen.ASK) * 10
    assert "lock" in findings(worker(*stacks, cpu=0.1, moments=moments))


def test_workers_that_wait_for_a_cpu() -> None:
    found = findings(worker(cpu=0.4, run_queue=0.6))
    assert to_do(found["oversubscription"]) == [
        "make decoding and transforms cheaper, or free CPUs"
    ]
    assert "60.0% of its time" in found["oversubscription"].says
