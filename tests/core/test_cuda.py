"""How long the GPU is idle in each wait, by a device that stands in: a test has no CUDA device."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from loadeval import Gap, LoaderEvaluator, read_run
from loadeval.adapter import IterableAdapter
from loadeval.core import cuda
from loadeval.core.cuda import COPIED_BYTES, GpuIdleTimer, timing_events
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import GpuIdle
from loadeval.testing import FakeClock, ScriptedLoader

MS = 1_000_000


class Device:
    """A device with one stream: `work` is queued, and done in its order.

    `in_use` tells of each device of the machine whether torch uses it, and `asking` whether this
    thread asks as one that does not disturb the training, with which current device.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.free_at_ns = 0
        self.events: list[Event] = []
        self.in_use = [True]
        self.current = 0
        self.mode = 0
        self.failed = False
        self.synchronized: list[int] = []
        self.streams_waited_for: list[Any] = []

    def work(self, ns: int) -> None:
        self.free_at_ns = max(self.free_at_ns, self.clock()) + ns

    def event(self, *, enable_timing: bool) -> Event:
        assert enable_timing
        self.events.append(Event(self))
        return self.events[-1]

    def synchronize(self, device: int) -> None:
        self.check()
        self.synchronized.append(device)
        self.clock.now_ns = max(self.clock.now_ns, self.free_at_ns)

    def check(self) -> None:
        if self.failed:
            raise RuntimeError("CUDA error: device-side assert triggered")

    @contextmanager
    def made_current(self, device: int) -> Iterator[None]:
        before, self.current = self.current, device
        yield
        self.current = before

    def exchange_capture_mode(self, mode: Any) -> None:
        self.mode, mode._obj.value = mode._obj.value, self.mode

    def stream(self, device: torch.device) -> SimpleNamespace:
        return SimpleNamespace(synchronize=lambda: self.streams_waited_for.append(device))


class Event:
    """Notes when the device passes it, and with which current device and mode it was asked."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.time_ns: int | None = None
        self.asked: list[tuple[int, int]] = []

    def record(self, _stream: Any = None) -> None:
        self.device.check()
        self.time_ns = max(self.device.free_at_ns, self.device.clock())

    def query(self) -> bool:
        self.device.check()
        self.asked.append((self.device.current, self.device.mode))
        return self.time_ns is not None and self.time_ns <= self.device.clock()

    def synchronize(self) -> None:
        assert self.time_ns is not None
        self.device.check()
        self.asked.append((self.device.current, self.device.mode))
        self.device.clock.now_ns = max(self.device.clock.now_ns, self.time_ns)

    def elapsed_time(self, other: Event) -> float:
        """The milliseconds that CUDA would tell. An event that was not passed is an error too."""
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
    device = Device(clock)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(torch.cuda, "synchronize", device.synchronize)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(device.in_use))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: device.current)
    monkeypatch.setattr(torch.cuda, "device", device.made_current)
    monkeypatch.setattr(torch.cuda, "current_stream", device.stream)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (8000, 9000))
    monkeypatch.setattr(cuda, "exchange_capture_mode", lambda: device.exchange_capture_mode)
    monkeypatch.setattr(
        torch._C, "_cuda_hasPrimaryContext", lambda number: device.in_use[number], raising=False
    )
    return device


def timer_on(device: Device) -> GpuIdleTimer:
    """Watches one epoch."""
    return GpuIdleTimer(0, lambda: device.event(enable_timing=True), deque())


def batches(waits_ns: list[int], clock: FakeClock) -> Iterator[Any]:
    return iter(ScriptedLoader(range(len(waits_ns)), waits_ns, clock))


def taken_from(timer: GpuIdleTimer) -> GpuIdle:
    """What the device has passed since the last call."""
    (gpu_idle,) = timer.take()
    return gpu_idle


@pytest.mark.parametrize(
    ("queued_ns", "waits_ns", "work_ns", "host_ns", "expected"),
    [
        (100, [100, 20, 30], 100, 0, [0, 0, 0]),
        (0, [50, 130, 100, 101], 100, 0, [50, 30, 0, 1]),
        (0, [3_217_000_000], 10, 10, [3_217_000_000]),
    ],
    ids=["hidden", "in part", "steps that wait for the device"],
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
    assert taken_from(timer).gpu_idle_ns == expected


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
    gpu_idle = taken_from(timer)
    assert gpu_idle.gpu_idle_ns == [50, 0, 50, 0]
    assert gpu_idle.gpu_step_ns == [100, 120, 100, 100]


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


@pytest.mark.usefixtures("device")
def test_replayed_epochs_leave_nothing_in_memory(clock: FakeClock) -> None:
    """No device waits for their batches, so that nothing is timed."""
    evaluator = evaluator_of([50, 130], clock, mode="replay")
    for _ in range(3):
        list(evaluator)
    gc.collect()
    assert not any(isinstance(each, GpuIdleTimer) for each in gc.get_objects())
    evaluator.close()


def test_without_a_device_in_use_it_is_not_known(clock: FakeClock) -> None:
    assert timing_events() is None
    IterableAdapter().fence()
    evaluator = evaluator_of([50, 130], clock)
    list(evaluator)
    assert evaluator.recorded().steps.gpu_idle_ns.tolist() == [UNKNOWN] * 2
    assert read_of_copies(evaluator) == {}


def test_the_devices_in_use_are_waited_for(device: Device) -> None:
    """Waiting for another one would make a context on it, which takes some 500 MB."""
    device.in_use = [False, True, True]
    IterableAdapter().fence()
    assert device.synchronized == [1, 2]


def test_events_of_a_training_on_another_device_are_recorded_there(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training may use `.to("cuda:1")` where nobody has made that the current device."""
    streams: list[int] = []

    class Recorded(Event):
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing
            super().__init__(device)

    monkeypatch.setattr(torch.cuda, "Event", Recorded)
    monkeypatch.setattr(torch.cuda, "current_stream", streams.append)
    device.in_use = [False, True]
    event = timing_events()
    assert event is not None
    event().record()
    assert streams == [1]


def test_asking_disturbs_neither_a_capture_nor_another_device(
    device: Device, clock: FakeClock
) -> None:
    """A query from another thread would end a capture, and make a context on device 0."""
    device.in_use = [False, True]
    timer = timer_on(device)
    for _ in timer.watched(batches([10], clock)):
        device.work(100)
    clock.advance(100)
    assert taken_from(timer).gpu_idle_ns == [10]
    for _ in timer.watched(batches([10], clock)):
        device.work(100)
    timer.wait()
    assert taken_from(timer).gpu_idle_ns == [10]
    assert {asked for event in device.events for asked in event.asked} == {(1, cuda.RELAXED)}
    assert (device.current, device.mode) == (0, 0)


@pytest.mark.filterwarnings("ignore:nothing more is measured")
@pytest.mark.parametrize("when", ["asked", "delivered"])
def test_batches_come_also_when_cuda_has_failed(
    device: Device, clock: FakeClock, when: str
) -> None:
    """The training hears of it by its own calls."""

    def failing() -> Iterator[int]:
        yield 0
        device.failed = when == "delivered"
        yield from range(1, 4)

    served = []
    with LoaderEvaluator(failing, clock=clock, probes=()) as evaluator:
        for batch in evaluator:
            served.append(batch)
            device.failed = device.failed or when == "asked"
    assert served == [0, 1, 2, 3]
    assert evaluator.recorded().closed


class OnDevice(torch.Tensor):
    """A tensor that says it is on a device."""

    is_cuda = property(lambda _: True)
    device = property(lambda _: torch.device("cuda", 1))


def test_a_copy_on_a_device_is_made_when_it_is_kept(device: Device) -> None:
    """What it is made of may be written to then, on any stream: once for each device."""
    on_device = torch.zeros(2).as_subclass(OnDevice)
    IterableAdapter().keep({"x": on_device, "y": [on_device, torch.zeros(2), "a label"]})
    assert device.streams_waited_for == [torch.device("cuda", 1)]
    IterableAdapter().keep([torch.zeros(2)])
    assert len(device.streams_waited_for) == 1


def test_a_prefetch_leaves_a_device_memory(device: Device, clock: FakeClock) -> None:
    """It takes no more of 4000 bytes than three batches of 1200, however many may be cached."""
    batch = torch.zeros(300).as_subclass(OnDevice)
    evaluator = LoaderEvaluator([batch] * 200, mode="alternate", clock=clock, probes=())
    for _ in evaluator:
        device.work(10)
        clock.advance(100)
    run = evaluator.recorded()
    assert {prefetch.batches for prefetch in run.prefetches} <= {1, 2, 3}
    assert run.windows


def speedup_of(device: Device, clock: FakeClock, load_ns: int, work_ns: int, *, syncs: bool) -> Gap:
    """An alternating run of 400 batches, whose steps queue work, and wait for it if they sync."""
    evaluator = evaluator_of([load_ns] * 400, clock, mode="alternate")
    for _ in evaluator:
        clock.advance(MS // 10)  # to launch it
        device.work(work_ns)
        if syncs:
            device.synchronize(0)
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
    headroom = speedup_of(device, clock, round(load_ms * MS), round(work_ms * MS), syncs=syncs)
    speedup = headroom.steady_speedup
    assert speedup is not None
    assert speedup.value == pytest.approx(expected, rel=0.01)
    assert speedup.low == pytest.approx(expected, rel=0.02)
    assert speedup.high == pytest.approx(expected, rel=0.02)


@pytest.fixture
def copied(device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each copy to the device was from pinned memory: that takes 1 ms, others 4."""
    copies: list[bool] = []

    class Memory:
        def __init__(self, nbytes: int, *, pin_memory: bool = False, **_: Any) -> None:
            assert nbytes == COPIED_BYTES
            self.is_pinned = pin_memory

        def copy_(self, source: Any, *, non_blocking: bool) -> None:
            assert non_blocking
            copies.append(isinstance(source, Memory))
            device.work(MS if copies[-1] else 4 * MS)

    monkeypatch.setattr(torch, "empty", Memory)
    monkeypatch.setattr(torch.cuda, "Stream", lambda number: number)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2**30, 2**31))
    cuda.copy_speeds.cache_clear()
    yield copies
    cuda.copy_speeds.cache_clear()


def read_of_copies(evaluator: LoaderEvaluator) -> dict[str, float]:
    """What a run has read of how its batches get to the device."""
    table = evaluator.recorded().readings.get(("copies", "batch"))
    return {} if table is None else {name: float(table[name][0]) for name in table.names[1:]}


def test_how_fast_batches_are_copied_is_measured_once_in_a_process(
    copied: list[bool], clock: FakeClock
) -> None:
    """And what memory the first batch of a run is in is seen; no batch waits for it."""
    batch = {"images": torch.zeros(2, 3, 8, 8), "labels": torch.zeros(2, dtype=torch.int64)}
    for _ in range(2):
        evaluator = LoaderEvaluator([batch] * 3, clock=clock, probes=())
        for _ in range(2):
            list(evaluator)
        assert read_of_copies(evaluator) == {
            "pinned_bytes_per_s": COPIED_BYTES * 1000,
            "pageable_bytes_per_s": COPIED_BYTES * 250,
            "host_bytes": 2 * 3 * 8 * 8 * 4 + 16,
            "pinned_bytes": 0,
            "float32_bytes": 2 * 3 * 8 * 8 * 4,
        }
        assert not evaluator.recorded().steps.wait_ns.any()
    assert copied == [True, False] * 3


def test_on_a_device_without_memory_left_nothing_is_copied(
    copied: list[bool], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch would free for it what it keeps for training."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2**27, 2**31))
    evaluator = evaluator_of([50, 130], clock)
    assert list(evaluator) == [0, 1]
    assert (copied, read_of_copies(evaluator)) == ([], {})


@pytest.mark.usefixtures("copied")
def test_training_goes_on_where_a_copy_fails(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for want of pinned memory."""

    def failing(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch, "empty", failing)
    evaluator = evaluator_of([50, 130], clock)
    assert list(evaluator) == [0, 1]
    assert read_of_copies(evaluator) == {}
    assert evaluator.recorded().steps.wait_ns.tolist() == [50, 130]
