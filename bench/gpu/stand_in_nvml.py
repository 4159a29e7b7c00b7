"""What a driver says of the stand-in: the real nvidia-ml-py over the library of the stub."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml  # type: ignore[import-untyped]  # it ships no type information

from bench.gpu import stand_in
from bench.gpu.stand_in import ACCOUNT, CYCLES_PER_S, NAME, UUID
from tests.probes.nvml.stub import Driver, compiled

if TYPE_CHECKING:
    from bench.gpu.stand_in import Load

LIBRARY = "LOADEVAL_GPU_STAND_IN_NVML"
"""The variable that names the library, which the first process compiles for its children."""
MIB = 2**20
CONTEXT_BYTES = 500 * MIB
IDLE_W, BUSY_W = 100, 600
IDLE_MHZ = 345
UTILIZATION_NS = 250_000_000
POWER_NS = 1_000_000_000
CLOCK_NS = 100_000_000
KEPT_NS = 2_000_000_000
MOMENT_NS = 1_000_000
BUS_BITS = 5000
PEAK = 2.5
"""Times the bytes that a copy within the device moves: each is read and written."""


@dataclass
class Interval:
    """When a task kept something busy, and how much of that was counted."""

    begin_ns: int
    end_ns: int
    load: Load
    counted_ns: int = 0


class Counting:
    """Brings the stub's device up to date with what the stand-in did."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.running: list[Interval] = []
        self.busy: list[tuple[int, int]] = []
        self.updated_ns = time.perf_counter_ns() - MOMENT_NS
        self.energy_j = 0.0
        self.has_context = False
        for metric in range(len(device.counted)):
            device.counted[metric] = 1e-9  # what was never counted is not supported

    def update(self) -> None:
        """Count until now, unless that was done a moment ago: each function asks for it."""
        device = self.device
        self.has_context |= ACCOUNT.bytes_held > 0
        device.pid = os.getpid() if self.has_context else 0
        device.memory_used = ACCOUNT.bytes_held + CONTEXT_BYTES * self.has_context
        now_ns = time.perf_counter_ns()
        if now_ns - self.updated_ns < MOMENT_NS:
            return
        while ACCOUNT.loads:
            self.running.append(Interval(*ACCOUNT.loads.popleft()))
            self._note(self.running[-1])
        for interval in self.running:
            self._count(interval, now_ns)
        self.running = [interval for interval in self.running if interval.end_ns > now_ns]
        self.busy = [span for span in self.busy if span[1] > now_ns - KEPT_NS]
        peak = PEAK * stand_in.DEVICE_BYTES_PER_S
        device.kernel_busy = round(100 * self._busy(now_ns, UTILIZATION_NS))
        is_busy = self._busy(now_ns, CLOCK_NS) > 0
        device.sm_mhz = round(CYCLES_PER_S / 1e6) if is_busy else IDLE_MHZ
        device.memory_bits = BUS_BITS
        device.memory_mhz = round(peak * 8 / 2 / BUS_BITS / 1e6)
        device.celsius = 40
        device.power_mw = round(1000 * self._watts(now_ns, POWER_NS))
        span_ns = now_ns - self.updated_ns
        self.energy_j += self._watts(now_ns, span_ns) * span_ns / 1e9
        device.energy_mj = round(1000 * self.energy_j)
        device.seconds = now_ns / 1e9
        self.updated_ns = now_ns

    def _note(self, interval: Interval) -> None:
        """When any kernel runs; streams report nearly in order."""
        if not interval.load.sms:
            return
        begin_ns, end_ns = interval.begin_ns, interval.end_ns
        if self.busy and begin_ns <= self.busy[-1][1]:
            last = self.busy.pop()
            begin_ns, end_ns = min(begin_ns, last[0]), max(end_ns, last[1])
        self.busy.append((begin_ns, end_ns))

    def _count(self, interval: Interval, now_ns: int) -> None:
        done_ns = max(0, min(interval.end_ns, now_ns) - interval.begin_ns)
        seconds = (done_ns - interval.counted_ns) / 1e9
        part = (done_ns - interval.counted_ns) / (interval.end_ns - interval.begin_ns)
        interval.counted_ns = done_ns
        load, counted = interval.load, self.device.counted
        peak = PEAK * stand_in.DEVICE_BYTES_PER_S
        counted[pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL] += 100 * (load.sms > 0) * seconds
        counted[pynvml.NVML_GPM_METRIC_SM_UTIL] += 100 * load.sms * seconds
        counted[pynvml.NVML_GPM_METRIC_SM_OCCUPANCY] += 100 * load.warps * seconds
        counted[pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL] += 100 * load.dram_bytes * part / peak
        counted[pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC] += load.received_bytes * part / MIB
        counted[pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC] += load.sent_bytes * part / MIB

    def _watts(self, now_ns: int, span_ns: int) -> float:
        return IDLE_W + (BUSY_W - IDLE_W) * self._busy(now_ns, span_ns)

    def _busy(self, now_ns: int, span_ns: int) -> float:
        """The share of the last `span_ns` in which any kernel ran."""
        since_ns = now_ns - span_ns
        busy_ns = sum(
            max(0, min(end_ns, now_ns) - max(begin_ns, since_ns)) for begin_ns, end_ns in self.busy
        )
        return busy_ns / span_ns


def install() -> None:
    """Let nvidia-ml-py ask a driver with one GPU, the stand-in, in this process."""
    if isinstance(pynvml.nvmlLib, ctypes.CDLL) or shutil.which("gcc") is None:
        return
    library = ctypes.CDLL(str(_library()))
    pynvml.nvmlLib = library
    driver = Driver(library)
    counting = Counting(driver.add(NAME, UUID, gpm=1))
    driver.before_call(counting.update)
    _kept.append(driver)


_kept: list[Driver] = []


def _library() -> Path:
    there = os.environ.get(LIBRARY)
    if there:
        return Path(there)
    folder, owner = tempfile.mkdtemp(), os.getpid()

    @atexit.register
    def _remove() -> None:
        if os.getpid() == owner:  # not a fork of it
            shutil.rmtree(folder, ignore_errors=True)

    path = compiled(Path(folder))
    os.environ[LIBRARY] = str(path)
    return path
