"""Whether the processes that load are busy."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from loadeval.core import alternate
from loadeval.core.alternate import NAP_S, WorkerActivity
from loadeval.testing import FakeClock

MS = 1_000_000


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Time passes by it, in sleep alone."""
    clock = FakeClock()
    moving = SimpleNamespace(
        sleep=lambda seconds: clock.advance(round(seconds * 1e9)),
        process_time=lambda: 0.0,
        thread_time=lambda: 0.0,
    )
    monkeypatch.setattr(alternate, "time", moving)
    monkeypatch.setattr(alternate, "NAP_S", NAP_S)  # which is shorter in other tests
    return clock


@pytest.mark.parametrize(("limit_s", "until_s"), [(0.2, 0.2), (20, 0.3)])
def test_workers_are_waited_for_until_they_are_idle(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, limit_s: float, until_s: float
) -> None:
    """Or it waits until the limit; these compute for 0.3 s."""
    activity = WorkerActivity()
    monkeypatch.setattr(activity, "workers_cpu_ns", lambda: min(clock(), 300 * MS))
    activity.wait_until_idle(limit_s)
    assert until_s <= clock() / 1e9 <= until_s + 2 * NAP_S


FAMILY = """
import os, sys, time
os.fork()
while time.process_time() < 0.2:
    pass
sys.stdin.read()
"""
"""A process and its child, which both work for a moment, and live until their input ends."""


def test_the_cpu_time_of_workers_is_that_of_all_descendants() -> None:
    activity = WorkerActivity()
    before_ns = activity.workers_cpu_ns() or 0
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdin=subprocess.PIPE):
        totals_ns = (activity.workers_cpu_ns() or 0 for _ in range(10**6))
        # More than one of them has alone.
        assert next(now_ns for now_ns in totals_ns if now_ns - before_ns > 350_000_000)
