"""How long the GPU is idle in each wait, by a device that stands in: a test has no CUDA device."""

from __future__ import annotations

import sys
from collections import deque
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from loadeval import LoaderEvaluator, diagnose, read_run
from loadeval.runlog.columns import UNKNOWN
from loadeval.runtime.cuda import GpuIdleTimer, synchronize, timing_events
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loadeval import Headroom
    from loadeval.runlog.model import GpuIdle

MS = 1_000_000


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
        self.clock.now_ns = max(self.clock.now_ns, self.free_at_ns)


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


def timer_on(device: Device, epoch: int = 0) -> GpuIdleTimer:
    """Watches one epoch."""
    return GpuIdleTimer(epoch, lambda: device.event(enable_timing=True), deque())


def batches(waits_ns: list[int], clock: FakeClock) -> Iterator[Any]:
    return iter(ScriptedLoader(range(len(waits_ns)), waits_ns, clock))


def idle_ns(found: GpuIdle | None) -> list[int] | None:
    return None if found is None else found.gpu_idle_ns.tolist()


@pytest.mark.parametrize(
    ("queued_ns", "waits_ns", "work_ns", "host_ns", "expected"),
    [
        (100, [100, 20, 30], 100, 0, [0, 0, 0]),
        (0, [50, 130, 100, 101], 100, 0, [50, 30, 0, 1]),
        (0, [40, 60], 10, 10, [40, 60]),
        (0, [3_217_000_000], 100, 0, [3_217_000_000]),
    ],
    ids=["hidden", "in part", "steps that wait for the device", "milliseconds become nanoseconds"],
)
def test_the_gpu_is_idle_from_the_end_of_its_work_to_the_delivery(
    device: Device,
    queued_ns: int,
    waits_ns: list[int],
    work_ns: int,
    host_ns: int,
    expected: list[int],
) -> None:
    """A wait is hidden while the device still works; where nothing is queued, none of it is."""
    timer = timer_on(device)
    device.work(queued_ns)
    for _ in timer.watched(batches(waits_ns, device.clock)):
        device.work(work_ns)
        device.clock.advance(host_ns)
    timer.wait()
    assert idle_ns(timer.take()) == expected


def test_only_what_the_device_has_passed_is_read(device: Device, clock: FakeClock) -> None:
    """What is still queued is told later, with the number of its first batch."""
    timer = timer_on(device, epoch=3)
    assert timer.take() is None
    for _ in timer.watched(batches([10, 10, 10], clock)):
        device.work(100)
    assert timer.take() is None
    clock.advance(100)
    found = timer.take()
    assert found is not None
    assert (found.epoch, found.first, idle_ns(found)) == (3, 0, [10])
    assert timer.take() is None
    clock.advance(300)
    found = timer.take()
    assert found is not None
    assert (found.epoch, found.first, idle_ns(found)) == (3, 1, [0, 0])


def test_events_that_were_read_are_used_again(device: Device, clock: FakeClock) -> None:
    spare: deque[Any] = deque()
    for epoch in range(2):
        timer = GpuIdleTimer(epoch, lambda: device.event(enable_timing=True), spare)
        for number, _ in enumerate(timer.watched(batches([5] * 10, clock))):
            assert idle_ns(timer.take()) == ([5] if number else None)
        assert idle_ns(timer.take()) == [5]
    assert len(device.events) == len(spare) == 4


def test_the_request_that_finds_the_end_counts_for_nothing(
    device: Device, clock: FakeClock
) -> None:
    spare: deque[Any] = deque()
    timer = GpuIdleTimer(0, lambda: device.event(enable_timing=True), spare)
    assert list(timer.watched(iter(()))) == []
    assert timer.take() is None
    assert len(spare) == 1
    clock.advance(1)
    list(timer.watched(batches([7], clock)))
    assert idle_ns(timer.take()) == [7]
    assert len(device.events) == 3


def test_parts_of_an_epoch_are_counted_through(device: Device, clock: FakeClock) -> None:
    """Batches from other sources, as of two arms, are batches of the same epoch."""
    timer = timer_on(device)
    for wait_ns, count in ((1, 2), (2, 1)):
        for _ in islice(timer.watched(batches([wait_ns] * 9, clock)), count):
            device.work(7)
        timer.end_step()
        clock.advance(1000)
    found = timer.take()
    assert found is not None
    assert (idle_ns(found), found.gpu_step_ns.tolist()) == ([1, 0, 2], [7, 7, 7])


def test_a_step_is_what_the_device_does_until_the_next_request(
    device: Device, clock: FakeClock
) -> None:
    """Whether the host waits for it or runs ahead; of an epoch that is broken off it is unknown."""
    timer = timer_on(device)
    for number in timer.watched(batches([50] * 4, clock)):
        device.work(100)
        if number == 1:
            clock.advance(170)
    timer.ended = True
    clock.advance(1000)
    found = timer.take()
    assert found is not None
    assert found.gpu_idle_ns.tolist() == [50, 0, 50, 0]
    assert found.gpu_step_ns.tolist() == [100, 120, 100, 100]


def test_a_request_that_fails_ends_a_step(device: Device, clock: FakeClock) -> None:
    def failing() -> Iterator[int]:
        clock.advance(50)
        yield 0
        clock.advance(500)
        raise OSError("the disk is gone")

    timer = timer_on(device)
    watched = timer.watched(failing())
    next(watched)
    device.work(100)
    with pytest.raises(OSError, match="the disk is gone"):
        next(watched)
    for _ in timer.watched(batches([30], clock)):
        device.work(100)
    timer.ended = True
    clock.advance(1000)
    found = timer.take()
    assert found is not None
    assert found.gpu_idle_ns.tolist() == [50, 30]
    assert found.gpu_step_ns.tolist() == [100, 100]


def test_an_epoch_is_done_once_all_is_read(device: Device, clock: FakeClock) -> None:
    timer = timer_on(device)
    assert not timer.done
    device.work(100)
    list(timer.watched(batches([10], clock)))
    timer.ended = True
    timer.take()
    assert not timer.done
    timer.wait()
    timer.take()
    assert timer.done


def test_waiting_is_for_the_last_event_alone(device: Device, clock: FakeClock) -> None:
    """It ends when the device has passed all; where nothing is queued, at once."""
    timer = timer_on(device)
    timer.wait()
    for _ in timer.watched(batches([10, 10, 10], clock)):
        device.work(100)
    timer.wait()
    assert clock() == 310
    assert sum(event.waited_for for event in device.events) == 1
    assert idle_ns(timer.take()) == [10, 0, 0]


def evaluator_of(waits_ns: list[int], clock: FakeClock, **options: Any) -> LoaderEvaluator:
    loader = ScriptedLoader(range(len(waits_ns)), waits_ns, clock)
    return LoaderEvaluator(loader, clock=clock, probes=(), **options)


@pytest.mark.parametrize("logged", [True, False])
def test_a_run_has_it_for_each_batch(
    device: Device, clock: FakeClock, tmp_path: Path, logged: bool
) -> None:
    """Two epochs, the second broken off; closing waits for what the device has yet to pass."""
    path = tmp_path / "run.jsonl" if logged else None
    evaluator = evaluator_of([50, 130, 70], clock, log_file=path)
    for _ in evaluator:
        device.work(100)
    clock.advance(1000)
    for batch in evaluator:
        device.work(100)
        if batch == 1:
            break
    assert evaluator.recorded().steps.gpu_idle_ns.tolist() == [50, 30, 0, 50, 30]
    device.work(5000)
    list(evaluator)
    assert evaluator.recorded().steps.gpu_idle_ns.tolist()[5:] == [UNKNOWN] * 3
    evaluator.close()
    steps = (evaluator.recorded() if path is None else read_run(path)).steps
    assert steps.gpu_idle_ns.tolist() == [50, 30, 0, 50, 30, 0, 0, 0]
    assert steps.wait_ns.tolist() == [50, 130, 70, 50, 130, 50, 130, 70]


def test_closing_may_come_while_it_is_closed(
    device: Device, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the garbage collector may do while the device is waited for."""
    evaluator = evaluator_of([50, 50], clock)
    for _ in evaluator:
        device.work(100)
    monkeypatch.setattr(Event, "synchronize", lambda _: evaluator._measurement.close())
    evaluator.close()
    assert evaluator.recorded().closed


def test_what_an_epoch_leaves_is_forgotten_once_it_is_read(
    device: Device, clock: FakeClock
) -> None:
    evaluator = evaluator_of([1], clock)
    for _ in range(5):
        list(evaluator)
        clock.advance(1)
    evaluator.recorded()
    assert len(device.events) <= 4


def test_without_a_device_in_use_it_is_not_known(clock: FakeClock) -> None:
    assert timing_events() is None
    synchronize()
    evaluator = evaluator_of([50, 130], clock)
    list(evaluator)
    assert evaluator.recorded().steps.gpu_idle_ns.tolist() == [UNKNOWN] * 2


def test_without_torch_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    assert timing_events() is None
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # as while it is being imported
    assert timing_events() is None


def test_a_device_in_use_is_waited_for(device: Device) -> None:
    synchronize()
    assert device.synchronized == 1


class Timed(Dataset[torch.Tensor]):
    """Numbers, each of which takes 40 ns by the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        self.clock.advance(40)
        return torch.tensor([index])


def rules_found(device: Device, clock: FakeClock, work_ns: int) -> list[str]:
    """What is found in a run whose steps give the device that much work."""
    with LoaderEvaluator(DataLoader(Timed(clock)), clock=clock, probes=()) as evaluator:
        for _ in evaluator:
            device.work(work_ns)
    return [one.rule.value for one in diagnose(evaluator.recorded()).findings]


@pytest.mark.parametrize(("work_ns", "hidden"), [(100, True), (10, False)])
def test_waits_that_the_device_does_not_feel_are_found(
    device: Device, clock: FakeClock, work_ns: int, hidden: bool
) -> None:
    """Where it has work for longer than a batch takes to load; and that nothing is pinned."""
    found = rules_found(device, clock, work_ns)
    assert ("hidden waits" in found) is hidden
    assert "unpinned memory" in found


def speedup_of(
    device: Device, clock: FakeClock, load_ns: int, work_ns: int, *, syncs: bool
) -> Headroom:
    """An alternating run of 400 batches, whose steps queue work, and wait for it if they sync."""
    evaluator = evaluator_of([load_ns] * 400, clock, mode="alternate")
    for _ in evaluator:
        clock.advance(MS // 10)  # to launch it
        device.work(work_ns)
        if syncs:
            device.synchronize()
    evaluator.close()
    return evaluator.headroom()


@pytest.mark.parametrize(
    ("load_ms", "work_ms", "syncs", "expected"),
    [
        (5, 10, False, 1.0),
        (9.8, 10, False, 1.0),
        (15, 10, False, 15.1 / 10),
        (5, 10, True, 15.1 / 10.1),
        (5, 0, False, 51.0),
    ],
    ids=["hidden", "just hidden", "in part", "synced", "no work"],
)
def test_the_speed_up_is_that_of_the_device(
    device: Device, clock: FakeClock, load_ms: float, work_ms: float, syncs: bool, expected: float
) -> None:
    """What the host waits matters as far as the device does, and the interval is narrow.

    The device runs behind the host, and blocks begin and end without waiting for it.
    """
    found = speedup_of(device, clock, round(load_ms * MS), round(work_ms * MS), syncs=syncs)
    speedup = found.steady_speedup
    assert speedup is not None
    assert speedup.value == pytest.approx(expected, rel=0.01)
    assert speedup.low == pytest.approx(expected, rel=0.02)
    assert speedup.high == pytest.approx(expected, rel=0.02)
