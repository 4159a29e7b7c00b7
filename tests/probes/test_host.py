"""What the host probe reads of real processes."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from torch.utils.data import DataLoader

from loadeval import LoaderEvaluator
from loadeval.probes.host import RATES, HostProbe, RateLimit, cpus_allowed, rates
from loadeval.probes.processes import Usage
from tests.probes.conftest import MakeChild

MEGABYTE = 2**20


def opened() -> HostProbe:
    probe = HostProbe()
    probe.open()
    return probe


def until(ask: Callable[[], Any]) -> Any:
    """The first answer that is something; each asks the system anew."""
    deadline = time.monotonic() + 20
    while not (answer := ask()):
        assert time.monotonic() < deadline
    return answer


def test_a_first_reading_has_no_rates() -> None:
    readings = opened().read()
    assert not set(RATES) & set(readings["process"])
    assert "cpu_cores" not in readings["machine"]


def test_the_cpu_of_a_worker(make_child: MakeChild) -> None:
    probe = opened()
    make_child().tell("burn")
    probe.read()
    assert until(lambda: probe.read()["workers"].get("cpu_cores"))
    assert until(lambda: probe.read().get("machine", {}).get("cpu_cores"))


def test_memory_of_workers(make_child: MakeChild) -> None:
    child = make_child()
    before = opened().read()["workers"]
    child.ask(f"hold {64 * MEGABYTE}")
    after = opened().read()["workers"]
    assert (after["pss_bytes"] or 0) - (before["pss_bytes"] or 0) > 60 * MEGABYTE
    assert (after["anonymous_bytes"] or 0) - (before["anonymous_bytes"] or 0) > 60 * MEGABYTE
    assert (after["pss_file_bytes"] or 0) - (before["pss_file_bytes"] or 0) < 30 * MEGABYTE


def test_the_cpus_of_a_worker(make_child: MakeChild) -> None:
    """Those that it may run on, and those that training shares."""
    child = make_child()
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(child.pid, {cpu})
    child.tell("burn")
    readings = until(lambda: _where_busy(opened()))
    assert readings["process"]["allowed_cpus"] == len(os.sched_getaffinity(0))
    workers = readings["workers"]
    assert workers["allowed_cpus"] == 1
    assert (workers["shared_allowed_cpus"], workers["fewest_allowed_cpus"]) == (1, 1)


def _where_busy(probe: HostProbe) -> Any:
    """A reading once a worker used a CPU: where it was started it may be idle."""
    readings = probe.read()
    return readings if readings["workers"].get("allowed_cpus") == 1 else None


def test_a_process_that_does_nothing_is_no_worker_to_ask(make_child: MakeChild) -> None:
    """Python's resource tracker may use all CPUs, and loads nothing."""
    make_child()
    child = make_child()
    os.sched_setaffinity(child.pid, {max(os.sched_getaffinity(0))})
    child.tell("burn")
    assert until(lambda: opened().read()["workers"]["allowed_cpus"] == 1)


def test_the_cpus_of_a_process_and_of_its_threads() -> None:
    """Its main thread may be bound, and others not."""
    cpus = os.sched_getaffinity(0)
    held = threading.Event()
    thread = threading.Thread(target=held.wait)
    thread.start()
    os.sched_setaffinity(0, {min(cpus)})
    try:
        (own,) = cpus_allowed({"workers": {}}).values()
    finally:
        os.sched_setaffinity(0, cpus)
        held.set()
        thread.join()
    assert own == {"allowed_cpus": 1, "threads_allowed_cpus": len(cpus)}


def used(started: int, cpu_s: float, read: float = 0) -> Usage:
    return Usage(1, started, cpu_s, read, read)


@pytest.mark.parametrize(
    ("now", "before", "name", "grown"),
    [
        ({7: used(2, 5), 8: used(2, 3)}, {7: used(1, 100)}, "cpu_cores", 8),
        ({8: used(1, 52)}, {7: used(1, 100), 8: used(1, 50)}, "cpu_cores", 2),
        ({8: used(1, 0, math.nan)}, {8: used(1, 0)}, "read_bytes_per_s", None),
    ],
    ids=[
        "what began since counts from zero, also under a pid of one that ended",
        "what ended leaves the sum",
        "unknown when a part is hidden",
    ],
)
def test_what_workers_used_between_two_readings(
    now: dict[int, Usage], before: dict[int, Usage], name: str, grown: float | None
) -> None:
    assert rates(now, before, 1.0).get(name) == grown


def test_what_is_costly_is_not_due_again_soon() -> None:
    """Even where it may be done at any time: the cost decides."""
    limited = RateLimit(lambda: sum(range(100_000)))
    assert limited()
    assert limited() is None


def test_a_run_with_workers_has_readings() -> None:
    loader: DataLoader[int] = DataLoader(range(10**9), num_workers=2)  # type: ignore[arg-type]  # torch takes any sequence
    evaluator = LoaderEvaluator(loader, probes=("host",), probe_interval_s=0.01)
    deadline = time.monotonic() + 60
    run, of_workers = evaluator.recorded(), ("host", "workers")
    for _ in evaluator:
        run = evaluator.recorded()
        if of_workers in run.readings and len(run.readings[of_workers]) > 1:
            break
        assert time.monotonic() < deadline
    evaluator.close()
    assert {subject for _, subject in run.readings} == {"process", "workers", "machine"}
    workers = run.readings[of_workers]
    assert of_workers not in run.missing
    assert workers.alive_workers.max() == workers.started_workers.max() == 2
    assert (workers.read_bytes_per_s[1:] >= 0).all()
