"""Whether the processes that load are busy."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from loadeval.core import worker_activity
from loadeval.core.worker_activity import NAP_S, WorkerActivity
from loadeval.testing import FakeClock

MS = 1_000_000


@pytest.mark.parametrize(("limit_s", "is_idle", "until_s"), [(0.2, False, 0.2), (20, True, 0.3)])
def test_workers_are_waited_for_until_they_are_idle(
    monkeypatch: pytest.MonkeyPatch, limit_s: float, is_idle: bool, until_s: float
) -> None:
    """Or it waits until the limit; these compute for 0.3 s."""
    clock = FakeClock()
    moving = SimpleNamespace(
        monotonic=lambda: clock() / 1e9,
        sleep=lambda seconds: clock.advance(round(seconds * 1e9)),
        process_time=lambda: 0.0,
        thread_time=lambda: 0.0,
    )
    monkeypatch.setattr(worker_activity, "time", moving)
    monkeypatch.setattr(worker_activity, "NAP_S", NAP_S)
    activity = WorkerActivity()
    monkeypatch.setattr(activity, "workers_cpu_ns", lambda: min(clock(), 300 * MS))
    assert activity.wait_until_idle(limit_s) is is_idle
    assert until_s <= clock() / 1e9 <= until_s + 2 * NAP_S


FAMILY = """
import os, sys, time
os.fork()
while time.process_time() < 0.2:
    pass
sys.stdin.read()
"""
"""A process and its child, which both work for a moment, and live until their input ends."""


@pytest.mark.parametrize("has_proc", [True, False])
def test_the_cpu_time_of_workers_is_that_of_all_descendants(
    monkeypatch: pytest.MonkeyPatch, has_proc: bool
) -> None:
    monkeypatch.setattr(worker_activity, "HAS_PROC", has_proc and worker_activity.HAS_PROC)
    activity = WorkerActivity()
    before_ns = activity.workers_cpu_ns() or 0
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdin=subprocess.PIPE):
        totals_ns = (activity.workers_cpu_ns() or 0 for _ in range(10**6))
        # More than one of them has alone.
        assert next(now_ns for now_ns in totals_ns if now_ns - before_ns > 350_000_000)


def test_a_process_that_has_ended_has_no_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.listdir", lambda _: ["4194305", "self"])  # more than a pid can be
    monkeypatch.setattr(worker_activity, "HAS_PROC", True)
    assert WorkerActivity().workers_cpu_ns() == 0


def test_where_processes_cannot_be_listed_their_cpu_time_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_: str) -> list[str]:
        raise PermissionError

    monkeypatch.setattr("os.listdir", refused)
    monkeypatch.setattr(worker_activity, "HAS_PROC", True)
    assert WorkerActivity().workers_cpu_ns() is None


def test_without_proc_a_process_that_has_ended_has_none_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(worker_activity, "HAS_PROC", False)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE):
        monkeypatch.setattr(psutil.Process, "cpu_times", gone)
        assert WorkerActivity().workers_cpu_ns() == 0
        monkeypatch.setattr(psutil.Process, "children", gone)
        assert WorkerActivity().workers_cpu_ns() is None


def test_without_proc_cpu_time_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for then."""

    def gone(*_: Any, **__: Any) -> None:
        raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(psutil.Process, "_init", gone)
    activity = WorkerActivity()
    assert activity.workers_cpu_ns() is None
    assert activity.wait_until_idle(20)
