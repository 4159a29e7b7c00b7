"""What Hopper and later GPUs count while they run: means between two samples (NVML's GPM)."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pynvml  # type: ignore[import-untyped]  # it ships no type information
from pynvml import NVMLError

from loadeval.probes.queries import GONE, UNSUPPORTED

if TYPE_CHECKING:
    from loadeval.probes.devices import Device

BETWEEN_SAMPLES_NS = 150_000_000
"""NVML asks for more than 100 ms, at which the counters are brought up to date."""
MIB = 2**20
METRICS = {
    "sm_busy_percent": (pynvml.NVML_GPM_METRIC_SM_UTIL, 1),
    "sm_occupancy_percent": (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, 1),
    "dram_bandwidth_percent": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, 1),
    "pcie_receive_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, MIB),
    "pcie_transmit_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, MIB),
}
"""Each quantity's number, and what NVML's value of it is multiplied by."""


def supports_gpm(device: Device) -> bool:
    """Whether the GPU counts."""
    try:
        return bool(pynvml.nvmlGpmQueryDeviceSupport(device.gpu.handle).isSupportedDevice)
    except NVMLError:
        return False


class Counters:
    """The counters of one device. Raises NVMLError where they cannot be sampled."""

    def __init__(self, device: Device, now_ns: int) -> None:
        self._device = device
        self._samples: list[Any] = []
        self._asked = pynvml.c_nvmlGpmMetricsGet_t()
        self._asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._asked.numMetrics = len(METRICS)
        for place, (number, _) in enumerate(METRICS.values()):
            self._asked.metrics[place].metricId = number
        try:
            for _ in range(2):
                self._samples.append(pynvml.nvmlGpmSampleAlloc())
            self._sample(0, now_ns)
        except NVMLError:
            self.close()
            raise

    def read(self, now_ns: int) -> dict[str, float]:
        """The means since the last time, once it was long enough ago.

        Raises one of GONE once the device is.
        """
        if not self._samples or now_ns - self._sampled_ns < BETWEEN_SAMPLES_NS:
            return {}
        try:
            self._sample(1, now_ns)
            self._asked.sample1, self._asked.sample2 = self._samples
            pynvml.nvmlGpmMetricsGet(self._asked)
        except UNSUPPORTED:
            self.close()
            return {}
        except GONE:
            raise
        except NVMLError:  # it may work the next time
            return {}
        self._samples.reverse()
        return dict(self._found())

    def close(self) -> None:
        """Give the samples back."""
        for sample in self._samples:
            with suppress(NVMLError):  # the driver may be gone, and they with it
                pynvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _sample(self, which: int, now_ns: int) -> None:
        device, sample = self._device, self._samples[which]
        if device.gpu_instance is None:
            pynvml.nvmlGpmSampleGet(device.handle, sample)
        else:
            pynvml.nvmlGpmMigSampleGet(device.gpu.handle, device.gpu_instance, sample)
        self._sampled_ns = now_ns

    def _found(self) -> Any:
        for place, (name, (_, factor)) in enumerate(METRICS.items()):
            metric = self._asked.metrics[place]
            if metric.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(metric.value):
                yield name, metric.value * factor
