"""The GPU probe: NVIDIA GPUs that a process uses, and their driver, through NVML."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pynvml  # type: ignore[import-untyped]  # it ships no type information
from pynvml import NVMLError

from loadeval.errors import ProbeError
from loadeval.probes import Probe

EACH_PCIE_NS = 1_000_000_000
"""Asking for PCIe throughput takes 20 ms, so each direction of each GPU is asked this seldom."""
BETWEEN_SAMPLES_NS = 150_000_000
"""NVML asks for more than 100 ms, at which the counters are brought up to date."""
MIB = 2**20
METRICS = {
    "kernel_busy_percent": (pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL, 1),
    "sm_busy_percent": (pynvml.NVML_GPM_METRIC_SM_UTIL, 1),
    "sm_occupancy_percent": (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, 1),
    "tensor_busy_percent": (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, 1),
    "dram_bandwidth_percent": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, 1),
    "pcie_receive_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, MIB),
    "pcie_transmit_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, MIB),
}
"""A quantity has its number in NVML, and the factor by which NVML's value is multiplied."""
SLOWED_BY = {
    "power_slowdown_flag": (
        pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
    ),
    "thermal_slowdown_flag": (
        pynvml.nvmlClocksEventReasonSwThermalSlowdown
        | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    ),
    "hardware_slowdown_flag": pynvml.nvmlClocksEventReasonHwSlowdown,
}
KERNEL_BUSY = "kernel_busy_percent"
NO_DRIVER = "no NVIDIA driver found"
MISMATCH = "the driver in the kernel and its library are of different versions, as after an update"

QUERIES: dict[str, Callable[[Any], float]] = {
    "memory_used_bytes": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2).used,
    "power_watts": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "sm_clock_hz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM) * 1e6,
    KERNEL_BUSY: lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
}
PCIE = {
    "pcie_receive_bytes_per_s": pynvml.NVML_PCIE_UTIL_RX_BYTES,
    "pcie_transmit_bytes_per_s": pynvml.NVML_PCIE_UTIL_TX_BYTES,
}
"""Each watches the bus for 20 ms, and so takes as long to answer."""


class GPUProbe(Probe):
    """Reads the GPUs that this process computes on, or process `pid`.

    Of each: `kernel_busy_percent` (the time in which any kernel ran, however small, over the last
    1/6 to 1 s: coarse, and no sign that the GPU is full), `memory_used_bytes` by all processes,
    `power_watts` of the board (on most GPUs over the last second), `sm_clock_hz`;
    `power_slowdown_flag`, `thermal_slowdown_flag` and `hardware_slowdown_flag` are 1 where the
    clock is held down for that reason. `pcie_receive_bytes_per_s` (to the GPU) and
    `pcie_transmit_bytes_per_s` are of 20 ms, about once a second.

    Hopper and later count `sm_busy_percent` (multiprocessors), `sm_occupancy_percent` (active
    warps, of those that fit), `tensor_busy_percent` and `dram_bandwidth_percent`, and
    `kernel_busy_percent` and PCIe too: means since the one before, at least 150 ms. What a device
    does not support is not among its quantities.
    """

    name = "gpu"
    is_light = True

    def __init__(
        self, clock: Callable[[], int] = time.perf_counter_ns, pid: int | None = None
    ) -> None:
        self._clock, self._pid = clock, pid
        self._devices: list[Device] = []
        self._counters: dict[str, GPMCounters] = {}
        self._pcie: list[tuple[Device, str]] = []
        self._pcie_due_ns = 0

    def open(self) -> None:
        """Find the GPUs. Raises ProbeError when there is no driver, or no GPU to be used."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError_LibraryNotFound:
            raise ProbeError(NO_DRIVER) from None
        except NVMLError as error:
            raise ProbeError(f"the NVIDIA driver cannot be asked: {error}") from None
        try:
            self._devices = used_devices(self._pid or os.getpid())
        except ProbeError:
            _let_go()
            raise
        self._pcie_due_ns = self._clock()
        for device in self._devices:
            with suppress(NVMLError):  # an older driver, or no permission
                if pynvml.nvmlGpmQueryDeviceSupport(device.handle).isSupportedDevice:
                    self._counters[device.subject] = GPMCounters(device.handle, self._clock)
            if device.subject not in self._counters:
                self._pcie += [(device, name) for name in PCIE]

    def read(self) -> Mapping[str, Mapping[str, float]]:
        """The quantities of each GPU now."""
        readings = {device.subject: self._quantities(device) for device in self._devices}
        now_ns = self._clock()
        if self._pcie and now_ns >= self._pcie_due_ns:  # one direction of one GPU at a time
            self._pcie_due_ns = now_ns + EACH_PCIE_NS // len(self._pcie)
            device, name = self._pcie.pop(0)
            self._pcie.append((device, name))
            with suppress(NVMLError):
                traffic = pynvml.nvmlDeviceGetPcieThroughput(device.handle, PCIE[name])
                readings[device.subject][name] = traffic * 1e3
        return readings

    def _quantities(self, device: Device) -> dict[str, float]:
        """What the device and its driver support, and tell now."""
        quantities: dict[str, float] = {}
        counters = self._counters.get(device.subject)
        for name, ask in QUERIES.items():
            if name != KERNEL_BUSY or counters is None:
                with suppress(NVMLError):
                    quantities[name] = ask(device.handle)
        with suppress(NVMLError, AttributeError):  # nvidia-ml-py is to drop the old name
            try:
                reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(device.handle)
            except pynvml.NVMLError_FunctionNotFound:  # before driver 535
                reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device.handle)
            quantities |= {name: bool(reasons & bits) for name, bits in SLOWED_BY.items()}
        if counters is not None:
            with suppress(NVMLError):
                quantities |= counters.read()
        return quantities

    def close(self) -> None:
        """Let go of NVML."""
        for counters in self._counters.values():
            counters.close()
        if self._devices:
            _let_go()
        self._devices, self._counters, self._pcie = [], {}, []


class GPMCounters:
    """What a device counts while it runs, if it is Hopper or later: means between two samples.

    Raises NVMLError where it cannot be sampled.
    """

    def __init__(self, handle: Any, clock: Callable[[], int]) -> None:
        self._handle, self._clock = handle, clock
        self._samples: list[Any] = []
        self._asked = pynvml.c_nvmlGpmMetricsGet_t()
        self._asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._asked.numMetrics = len(METRICS)
        for place, (number, _) in enumerate(METRICS.values()):
            self._asked.metrics[place].metricId = number
        try:
            for _ in range(2):
                self._samples.append(pynvml.nvmlGpmSampleAlloc())
            self._sample(0)
        except NVMLError:
            self.close()
            raise

    def read(self) -> dict[str, float]:
        """The means since the last time, once it was long enough ago: all in one call."""
        if self._clock() - self._sampled_ns < BETWEEN_SAMPLES_NS:
            return {}
        self._sample(1)
        self._asked.sample1, self._asked.sample2 = self._samples
        pynvml.nvmlGpmMetricsGet(self._asked)
        self._samples.reverse()
        means = {}
        for place, (name, (_, factor)) in enumerate(METRICS.items()):
            metric = self._asked.metrics[place]
            if metric.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(metric.value):
                means[name] = metric.value * factor
        return means

    def close(self) -> None:
        """Give the samples back."""
        for sample in self._samples:
            with suppress(NVMLError):  # the driver may be gone, and they with it
                pynvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _sample(self, which: int) -> None:
        now_ns = self._clock()
        pynvml.nvmlGpmSampleGet(self._handle, self._samples[which])
        self._sampled_ns = now_ns


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU; `index` is NVML's, which counts in the order of the PCI bus."""

    index: int
    handle: Any
    name: str
    uuid: str

    @property
    def subject(self) -> str:
        """What its readings are of."""
        return f"GPU {self.index} ({self.name})"


def used_devices(pid: int) -> list[Device]:
    """The devices on which process `pid` has a context.

    All that this process may use where it has none: before CUDA begins, and in a container whose
    process ids are its own. Raises ProbeError when there is no device, or it is not known which
    ones are used.
    """
    devices, used = list[Device](), list[Device]()
    try:
        count = pynvml.nvmlDeviceGetCount()
    except NVMLError as error:
        raise ProbeError(f"the GPUs cannot be counted: {error}") from None
    for index in range(count):
        with suppress(NVMLError):  # lost, or of another container: others may be ours
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
            device = Device(
                index, gpu, pynvml.nvmlDeviceGetName(gpu), pynvml.nvmlDeviceGetUUID(gpu)
            )
            with suppress(NVMLError):  # before Ampere
                if pynvml.nvmlDeviceGetMigMode(gpu)[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
                    continue
            devices.append(device)
            processes = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu)
            if any(process.pid == pid for process in processes):
                used.append(device)
    if not devices:
        raise ProbeError("there is no NVIDIA GPU that may be asked and that MIG does not divide")
    if pid != os.getpid() and not used:
        raise ProbeError(f"process {pid} computes on no GPU")
    return used or _visible_devices(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _visible_devices(devices: list[Device], visible: str | None) -> list[Device]:
    """The devices that CUDA_VISIBLE_DEVICES names."""
    if visible is None:
        return devices
    entries = [entry.strip() for entry in visible.split(",")]
    numbers = {int(entry) for entry in entries if entry.isdecimal()}
    uuids = tuple(entry for entry in entries if entry.startswith("GPU-"))
    by_bus = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if numbers and not by_bus and len({device.name for device in devices}) > 1:
        raise ProbeError(
            f"it is not known which GPUs CUDA_VISIBLE_DEVICES={visible!r} stands for: the GPUs "
            "here differ, and CUDA numbers them by their speed; set "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID, or give their UUIDs"
        )
    chosen = [each for each in devices if each.index in numbers or each.uuid.startswith(uuids)]
    if not chosen:
        raise ProbeError(f"no GPU is visible: CUDA_VISIBLE_DEVICES={visible!r}")
    return chosen


@dataclass(frozen=True, slots=True)
class Driver:
    """What the driver says of itself and its GPUs.

    `missing` says why there is nothing, and `broken` that something must be done about it.
    `cuda` is the newest CUDA that it runs, as (major, minor). None is not known.
    """

    version: str | None = None
    cuda: tuple[int, int] | None = None
    gpus: tuple[str, ...] = ()
    missing: str | None = None
    broken: bool = False


def driver() -> Driver:
    """The driver of this machine, if there is one; never raises."""
    try:
        pynvml.nvmlInit()
    except NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            return Driver(missing=MISMATCH, broken=True)
        absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        return Driver(missing=NO_DRIVER if error.value in absent else str(error))
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        number = pynvml.nvmlSystemGetCudaDriverVersion()  # 12040 is 12.4
        return Driver(
            version=pynvml.nvmlSystemGetDriverVersion(),
            cuda=(number // 1000, number % 1000 // 10),
            gpus=tuple(map(pynvml.nvmlDeviceGetName, handles)),
        )
    except NVMLError as error:
        return Driver(missing=str(error))
    finally:
        _let_go()


def _let_go() -> None:
    with suppress(NVMLError):  # the driver may be gone
        pynvml.nvmlShutdown()
