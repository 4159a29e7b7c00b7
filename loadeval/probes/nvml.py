"""Readings of NVIDIA GPUs, through NVML."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import pynvml  # type: ignore[import-untyped]  # it ships no type information
from pynvml import NVMLError

from loadeval.errors import ProbeError
from loadeval.probes.devices import used_devices
from loadeval.probes.gpm import Counters, supports_gpm
from loadeval.probes.queries import AT_ONCE, GONE, PCIE_RECEIVE, PCIE_TRANSMIT, Queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loadeval.probes.devices import Device

EACH_PCIE_NS = 1_000_000_000
"""Asking for PCIe throughput takes 20 ms, so each direction of each GPU is asked this seldom."""


class GPUProbe:
    """Reads the GPUs that this process computes on.

    Of each: `kernel_busy_percent` (the time in which any kernel ran, however small, over the last
    1/6 to 1 s: coarse), `memory_used_bytes`, `power_watts`, `sm_clock_hz`, `temperature_celsius`;
    `power_slowdown_flag`, `thermal_slowdown_flag` and `hardware_slowdown_flag` are 1 where the
    clock is held down for that reason. `pcie_receive_bytes_per_s` and
    `pcie_transmit_bytes_per_s` are of 20 ms, about once a second.
    Hopper and later count `sm_busy_percent`, `sm_occupancy_percent` and `dram_bandwidth_percent`,
    and PCIe too: means since the one before, at least 150 ms. What a device does not support is
    not among its quantities. `clock` is in nanoseconds.
    """

    name = "gpu"
    every = 1

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._watched: dict[str, Watched] = {}
        self._pcie: deque[tuple[str, Queries]] = deque()
        self._pcie_due_ns = 0

    def open(self) -> None:
        """Find the GPUs. Raises ProbeError when there is no driver, or no GPU to be used."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError_LibraryNotFound:
            raise ProbeError("no NVIDIA driver found") from None
        except NVMLError as error:
            raise ProbeError(f"the NVIDIA driver cannot be asked: {error}") from None
        try:
            devices = used_devices()
        except ProbeError:
            self.close()
            raise
        self._pcie_due_ns = now_ns = self._clock()
        for device in devices:
            watched = self._watched[device.subject] = Watched(device, now_ns)
            self._pcie += [(device.subject, query) for query in watched.pcie]

    def read(self) -> Mapping[str, Mapping[str, float] | str]:
        """The quantities of each GPU now; of one that is lost since the last time, the reason.

        Raises ProbeError once all are lost.
        """
        now_ns = self._clock()
        found = {subject: one.read(now_ns) for subject, one in self._watched.items()}
        lost = {subject: why for subject, why in found.items() if isinstance(why, str)}
        for subject in lost:
            self._watched.pop(subject).close()
        if not self._watched:
            raise ProbeError("; ".join(f"{subject}: {why}" for subject, why in lost.items()))
        self._read_pcie(found, now_ns)
        return found

    def close(self) -> None:
        """Let go of NVML."""
        for one in self._watched.values():
            one.close()
        self._watched = {}
        self._pcie.clear()
        with suppress(NVMLError):  # the driver may be gone
            pynvml.nvmlShutdown()

    def _read_pcie(self, found: dict[str, dict[str, float] | str], now_ns: int) -> None:
        """One direction of one GPU, when it is due: never longer than 20 ms."""
        if not self._pcie or now_ns < self._pcie_due_ns:
            return
        self._pcie_due_ns = now_ns + EACH_PCIE_NS // len(self._pcie)
        subject, query = self._pcie[0]
        self._pcie.rotate(-1)
        quantities = found.get(subject)
        if isinstance(quantities, dict):
            with suppress(*GONE):  # the next reading will find so, and say it
                quantities.update(query.read())


class Watched:
    """One device, and what is asked of it."""

    def __init__(self, device: Device, now_ns: int) -> None:
        self._at_once = Queries(device.handle, AT_ONCE)
        self._counters: Counters | None = None
        if supports_gpm(device):
            with suppress(NVMLError):
                self._counters = Counters(device, now_ns)
        self.pcie: list[Queries] = []
        if self._counters is None:
            both = (PCIE_RECEIVE, PCIE_TRANSMIT)
            self.pcie = [Queries(device.handle, direction) for direction in both]

    def read(self, now_ns: int) -> dict[str, float] | str:
        """What is known of it now; the reason once it answers no more."""
        try:
            found = self._at_once.read()
            if self._counters is not None:
                found |= self._counters.read(now_ns)
        except GONE as error:
            return str(error)
        return found

    def close(self) -> None:
        """Give back what reading it took."""
        if self._counters is not None:
            self._counters.close()
