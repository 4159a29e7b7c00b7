"""What NVML tells of a device at once, each quantity as long as the device knows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pynvml  # type: ignore[import-untyped]  # it ships no type information
from pynvml import NVMLError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Query = Callable[[Any], dict[str, float]]
"""Asks about a handle of NVML's."""

UNSUPPORTED = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_NoPermission,
    pynvml.NVMLError_InvalidArgument,  # of a handle of MIG's
    pynvml.NVMLError_FunctionNotFound,  # in an older driver
    AttributeError,  # in an older nvidia-ml-py
)
"""It will not be known later either."""
GONE = (
    pynvml.NVMLError_GpuIsLost,
    pynvml.NVMLError_GpuNotFound,
    pynvml.NVMLError_ResetRequired,
    pynvml.NVMLError_DriverNotLoaded,
    pynvml.NVMLError_Uninitialized,
)
"""The device answers no more."""

HEAT = pynvml.nvmlClocksEventReasonSwThermalSlowdown | pynvml.nvmlClocksEventReasonHwThermalSlowdown
POWER = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown


def _busy(handle: Any) -> dict[str, float]:
    return {"kernel_busy_percent": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu}


def _memory(handle: Any) -> dict[str, float]:
    found = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return {"memory_used_bytes": found.used}


def _memory_and_reserve(handle: Any) -> dict[str, float]:
    return {"memory_used_bytes": pynvml.nvmlDeviceGetMemoryInfo(handle).used}


def _power(handle: Any) -> dict[str, float]:
    return {"power_watts": pynvml.nvmlDeviceGetPowerUsage(handle) / 1000}


def _clock(handle: Any) -> dict[str, float]:
    mhz = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
    return {"sm_clock_hz": mhz * 1e6}


def _temperature(handle: Any) -> dict[str, float]:
    celsius = pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
    return {"temperature_celsius": celsius}


def _temperature_v(handle: Any) -> dict[str, float]:
    celsius = pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU)
    return {"temperature_celsius": celsius}


def _event_reasons(handle: Any) -> dict[str, float]:
    return _slowdowns(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))


def _throttle_reasons(handle: Any) -> dict[str, float]:
    return _slowdowns(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _slowdowns(reasons: int) -> dict[str, float]:
    return {
        "power_slowdown_flag": bool(reasons & POWER),
        "thermal_slowdown_flag": bool(reasons & HEAT),
        "hardware_slowdown_flag": bool(reasons & pynvml.nvmlClocksEventReasonHwSlowdown),
    }


def _pcie_receive(handle: Any) -> dict[str, float]:
    counter = pynvml.NVML_PCIE_UTIL_RX_BYTES
    return {"pcie_receive_bytes_per_s": pynvml.nvmlDeviceGetPcieThroughput(handle, counter) * 1e3}


def _pcie_transmit(handle: Any) -> dict[str, float]:
    counter = pynvml.NVML_PCIE_UTIL_TX_BYTES
    return {"pcie_transmit_bytes_per_s": pynvml.nvmlDeviceGetPcieThroughput(handle, counter) * 1e3}


AT_ONCE: tuple[tuple[Query, ...], ...] = (
    (_busy,),
    (_memory, _memory_and_reserve),
    (_power,),
    (_clock,),
    (_temperature, _temperature_v),  # the first goes with CUDA 14, older drivers lack the second
    (_event_reasons, _throttle_reasons),
)
"""Each with what to ask instead where a driver does not know it."""
PCIE_RECEIVE: tuple[tuple[Query, ...], ...] = ((_pcie_receive,),)
PCIE_TRANSMIT: tuple[tuple[Query, ...], ...] = ((_pcie_transmit,),)
"""Each watches the bus for 20 ms, and so takes as long to answer."""


class Queries:
    """What is asked of one device; what it does not support is asked once."""

    def __init__(self, handle: Any, queries: Iterable[Sequence[Query]]) -> None:
        self._handle = handle
        self._left = [list(alternatives) for alternatives in queries]

    def read(self) -> dict[str, float]:
        """The quantities that are known now. Raises one of GONE once the device is."""
        found: dict[str, float] = {}
        for alternatives in self._left:
            found |= self._ask(alternatives)
        return found

    def _ask(self, alternatives: list[Query]) -> dict[str, float]:
        if not alternatives:
            return {}
        try:
            return alternatives[0](self._handle)
        except UNSUPPORTED:
            del alternatives[0]
            return self._ask(alternatives)
        except GONE:
            raise
        except NVMLError:  # as when it times out: it may know the next time
            return {}
