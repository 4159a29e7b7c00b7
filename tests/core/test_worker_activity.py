"""Whether the processes that load are busy."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from loadeval.core import alternate
from loadeval.core.alternate import NAP_S, wait_until_idle
from loadeval.probes.processes import Family
from loadeval.testing import FakeClock


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
    usage = SimpleNamespace(cpu_s=0.0)
    workers = Family(os.getpid())

    def usages() -> dict[int, SimpleNamespace]:
        usage.cpu_s = min(clock() / 1e9, 0.3)
        return {1: usage}

    monkeypatch.setattr(workers, "usages", usages)
    wait_until_idle(workers, limit_s)
    assert until_s <= clock() / 1e9 <= until_s + 2 * NAP_S
