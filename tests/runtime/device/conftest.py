"""A device that is not there: no CUDA device is to be had in a test.

These events are stand-ins, over a device that takes up work when the work before is done, as a
stream does.
"""

from __future__ import annotations

import pytest
import torch

from loadeval.testing import FakeClock


class Device:
    """A device with one stream: `work` is queued, and done in its order."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.free_at_ns = 0
        self.events: list[Event] = []
        self.synchronized = 0

    def work(self, ns: int) -> None:
        self.free_at_ns = max(self.free_at_ns, self.clock()) + ns

    def event(self, *, enable_timing: bool) -> Event:
        assert enable_timing
        self.events.append(Event(self))
        return self.events[-1]

    def synchronize(self) -> None:
        self.synchronized += 1


class Event:
    """Notes when the device passes it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.time_ns: int | None = None
        self.waited_for = 0

    def record(self) -> None:
        self.time_ns = max(self.device.free_at_ns, self.device.clock())

    def query(self) -> bool:
        return self.time_ns is not None and self.time_ns <= self.device.clock()

    def synchronize(self) -> None:
        assert self.time_ns is not None
        self.waited_for += 1
        self.device.clock.now_ns = max(self.device.clock.now_ns, self.time_ns)

    def elapsed_time(self, other: Event) -> float:
        """In milliseconds, as CUDA's. Of an event that was not passed it is an error, as there."""
        assert self.query()
        assert other.query()
        assert self.time_ns is not None
        assert other.time_ns is not None
        return (other.time_ns - self.time_ns) / 1e6


@pytest.fixture
def clock() -> FakeClock:
    """The clock of host and device."""
    return FakeClock()


@pytest.fixture
def device(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device that torch has in use."""
    found = Device(clock)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "Event", found.event)
    monkeypatch.setattr(torch.cuda, "synchronize", found.synchronize)
    return found
