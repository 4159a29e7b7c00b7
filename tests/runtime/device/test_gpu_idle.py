"""How long the device has nothing to do in each wait, by the times that it noted itself."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.runtime.cuda import GpuIdleTimer
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.runlog.model import GpuIdle
    from tests.runtime.device.conftest import Device


def gpu_idle_on(device: Device, epoch: int = 0) -> GpuIdleTimer:
    """Watches one epoch."""
    return GpuIdleTimer(epoch, lambda: device.event(enable_timing=True), deque())


def batches(waits_ns: list[int], clock: FakeClock) -> Iterator[Any]:
    return iter(ScriptedLoader(range(len(waits_ns)), waits_ns, clock))


def starved(found: GpuIdle | None) -> list[int] | None:
    return None if found is None else found.gpu_idle_ns.tolist()


def test_a_wait_that_is_hidden_starves_nothing(device: Device, clock: FakeClock) -> None:
    """While the device still works, the host may wait: it is 0."""
    starving = gpu_idle_on(device)
    device.work(100)
    for _ in starving.watched(batches([100, 20, 30], clock)):
        device.work(100)
    starving.wait()
    assert starved(starving.take()) == [0, 0, 0]


def test_a_wait_that_is_not_hidden_starves_for_the_gap(device: Device, clock: FakeClock) -> None:
    """It is the time from the end of the device's work to the delivery."""
    starving = gpu_idle_on(device)
    for _ in starving.watched(batches([50, 130, 100, 101], clock)):
        device.work(100)
    assert starved(starving.take()) == [50, 30, 0, 1]


def test_a_step_that_waits_for_the_device_starves_it_for_the_whole_wait(
    device: Device, clock: FakeClock
) -> None:
    """Where nothing is queued when a batch is asked for, nothing hides the wait."""
    starving = gpu_idle_on(device)
    for _ in starving.watched(batches([40, 60], clock)):
        device.work(10)
        clock.advance(10)
    assert starved(starving.take()) == [40, 60]


def test_long_waits_are_told_to_the_microsecond(device: Device, clock: FakeClock) -> None:
    """CUDA's milliseconds become nanoseconds."""
    starving = gpu_idle_on(device)
    list(starving.watched(batches([3_217_000_000], clock)))
    assert starved(starving.take()) == [3_217_000_000]


def test_only_what_the_device_has_passed_is_read(device: Device, clock: FakeClock) -> None:
    """What is still queued is told later, with the number of its first batch."""
    starving = gpu_idle_on(device, epoch=3)
    assert starving.take() is None
    for _ in starving.watched(batches([10, 10, 10], clock)):
        device.work(100)
    found = starving.take()
    assert found is not None
    assert (found.epoch, found.first, starved(found)) == (3, 0, [10])
    assert starving.take() is None
    clock.advance(300)
    found = starving.take()
    assert found is not None
    assert (found.epoch, found.first, starved(found)) == (3, 1, [0, 0])


def test_events_that_were_read_are_used_again(device: Device, clock: FakeClock) -> None:
    """Two events are enough for a device that keeps up, in this epoch and the next."""
    spare: deque[Any] = deque()
    for epoch in range(2):
        starving = GpuIdleTimer(epoch, lambda: device.event(enable_timing=True), spare)
        for _ in starving.watched(batches([5] * 10, clock)):
            assert starved(starving.take()) == [5]
    assert len(device.events) == 2
    assert len(spare) == 2


def test_events_that_are_still_queued_are_not_used_again(device: Device, clock: FakeClock) -> None:
    """As many are made as the host is ahead of the device: here only the first two come back."""
    starving = gpu_idle_on(device)
    for _ in starving.watched(batches([0] * 4, clock)):
        device.work(1000)
        starving.take()
    assert len(device.events) == 2 * 3 + 1  # the request that finds the end needs one too


def test_the_request_that_finds_the_end_counts_for_nothing(
    device: Device, clock: FakeClock
) -> None:
    """An exhausted source leaves its event for others, and no figure."""
    spare: deque[Any] = deque()
    starving = GpuIdleTimer(0, lambda: device.event(enable_timing=True), spare)
    assert list(starving.watched(iter(()))) == []
    assert starving.take() is None
    assert len(spare) == 1
    clock.advance(1)
    list(starving.watched(batches([7], clock)))
    assert starved(starving.take()) == [7]
    assert len(device.events) == 3


def test_what_the_source_raises_passes_through(device: Device, clock: FakeClock) -> None:
    """The batches before it are told."""
    starving = gpu_idle_on(device)
    source = ScriptedLoader([0, ValueError("bad image")], [5, 5], clock)
    with pytest.raises(ValueError, match="bad image"):
        list(starving.watched(iter(source)))
    assert starved(starving.take()) == [5]


def test_parts_of_an_epoch_are_counted_through(device: Device, clock: FakeClock) -> None:
    """Stretches from other sources, as of two arms, are batches of the same epoch."""
    starving = gpu_idle_on(device)
    list(islice(starving.watched(batches([1] * 9, clock)), 2))
    list(islice(starving.watched(batches([2] * 9, clock)), 1))
    assert starved(starving.take()) == [1, 1, 2]


def test_an_epoch_is_done_once_all_is_read(device: Device, clock: FakeClock) -> None:
    """Not while it goes on, nor while the device has events of it queued."""
    starving = gpu_idle_on(device)
    seen = [starving.done]
    device.work(100)
    list(starving.watched(batches([10], clock)))
    starving.ended = True
    seen.append(starving.done)
    starving.take()
    seen.append(starving.done)
    starving.wait()
    seen.append(starving.done)
    starving.take()
    seen.append(starving.done)
    assert seen == [False, False, False, False, True]


def test_waiting_is_for_the_last_event_alone(device: Device, clock: FakeClock) -> None:
    """It ends when the device has passed all; where nothing is queued, at once."""
    starving = gpu_idle_on(device)
    starving.wait()
    for _ in starving.watched(batches([10, 10, 10], clock)):
        device.work(100)
    starving.wait()
    assert clock() == 210
    assert sum(event.waited_for for event in device.events) == 1
    assert starved(starving.take()) == [10, 0, 0]
