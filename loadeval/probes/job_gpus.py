"""How busy the GPUs are on which another process computes."""

from __future__ import annotations

from contextlib import suppress
from statistics import fmean
from typing import TYPE_CHECKING

import pynvml  # type: ignore[import-untyped]  # it ships no type information
from pynvml import NVMLError

from loadeval.errors import ProbeError
from loadeval.probes.gpu import devices_used_by

if TYPE_CHECKING:
    from loadeval.probes.gpu import Device


class JobGPUs:
    """The GPUs on which process `pid` has a context; none where there is no driver.

    In a container whose process ids are its own the driver tells of none.
    """

    def __init__(self, pid: int) -> None:
        self._devices: list[Device] = []
        self._percents: dict[str, list[float]] = {}
        self._is_open = False
        with suppress(NVMLError, ProbeError, OSError):
            pynvml.nvmlInit()
            self._is_open = True
            self._devices = devices_used_by(pid)

    def read(self) -> None:
        """Ask once how busy they are; NVML tells of the last fraction of a second."""
        for device in self._devices:
            with suppress(NVMLError):  # a part of a GPU is not told of
                percent = pynvml.nvmlDeviceGetUtilizationRates(device.handle).gpu
                self._percents.setdefault(device.subject, []).append(float(percent))

    def close(self) -> dict[str, float]:
        """The mean percentage of the time that kernels ran on each, of all readings."""
        if self._is_open:
            with suppress(NVMLError):
                pynvml.nvmlShutdown()
        return {subject: fmean(percents) for subject, percents in self._percents.items()}
