"""The counters of Hopper and later GPUs: means between two samples."""

from __future__ import annotations

from typing import Any

import pynvml  # type: ignore[import-untyped]  # it ships no type information
import pytest

from loadeval.probes.gpu import BETWEEN_SAMPLES_NS, METRICS, GPUProbe
from loadeval.testing import FakeClock
from tests.probes.nvml.stub import Driver

KERNEL, SM, OCCUPANCY, TENSOR, DRAM = (
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
)
RECEIVE, TRANSMIT = pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC


def hopper(driver: Driver, **fields: Any) -> Any:
    """A GPU that has counted something already."""
    device = driver.add("NVIDIA H100 80GB HBM3", gpm=1, **fields)
    for number in (KERNEL, SM, OCCUPANCY, TENSOR, DRAM, RECEIVE, TRANSMIT):
        device.counted[number] = 1000
    return device


def count(device: Any, **percents: float) -> None:
    """Let the counters go on."""
    numbers = {"kernel": KERNEL, "sm": SM, "occupancy": OCCUPANCY, "dram": DRAM}
    numbers["tensor"] = TENSOR
    numbers |= {"receive": RECEIVE, "transmit": TRANSMIT}
    for name, more in percents.items():
        device.counted[numbers[name]] += more


def counted(readings: Any) -> dict[str, float]:
    """What of the one GPU's quantities its counters told."""
    (quantities,) = readings.values()
    return {name: value for name, value in quantities.items() if name in METRICS}


def test_the_mean_between_two_readings_is_told(
    driver: Driver, probe: GPUProbe, clock: FakeClock
) -> None:
    device = hopper(driver)
    probe.open()
    means = []
    for sm, receive in ((40.5, 3), (7, 5)):
        count(device, kernel=90, sm=sm, occupancy=20, tensor=10, dram=30)
        count(device, receive=receive, transmit=1)
        clock.advance(BETWEEN_SAMPLES_NS)
        means.append(counted(probe.read()))
    assert means == [
        {
            "kernel_busy_percent": 90,
            "sm_busy_percent": sm,
            "sm_occupancy_percent": 20,
            "tensor_busy_percent": 10,
            "dram_bandwidth_percent": 30,
            "pcie_receive_bytes_per_s": receive * 2**20,
            "pcie_transmit_bytes_per_s": 2**20,
        }
        for sm, receive in ((40.5, 3), (7, 5))
    ]


def test_samples_are_not_taken_too_soon(driver: Driver, probe: GPUProbe, clock: FakeClock) -> None:
    """Before the counters are new for certain nothing is told, and nothing is lost."""
    device = hopper(driver)
    probe.open()
    count(device, sm=10)
    clock.advance(BETWEEN_SAMPLES_NS - 1)
    assert counted(probe.read()) == {}
    count(device, sm=10)
    clock.advance(1)
    assert counted(probe.read())["sm_busy_percent"] == 20


def test_a_gpu_that_counts_is_not_asked_for_pcie_in_the_slow_way(
    driver: Driver, probe: GPUProbe, clock: FakeClock
) -> None:
    """Its counters tell PCIe without 20 ms of watching; an older GPU beside it is watched."""
    hopper(driver)
    driver.add()
    probe.open()
    for _ in range(20):
        clock.advance(BETWEEN_SAMPLES_NS)
        probe.read()
    assert set(driver.calls("nvmlDeviceGetPcieThroughput")) == {1}
    assert set(driver.calls("nvmlGpmSampleGet")) == {0}


def test_a_metric_that_is_not_supported_is_not_known(
    driver: Driver, probe: GPUProbe, clock: FakeClock
) -> None:
    """A metric with an error of its own is left out, and so is one that is no number."""
    device = hopper(driver)
    probe.open()
    clock.advance(BETWEEN_SAMPLES_NS)
    device.counted[OCCUPANCY] = 0
    device.counted[DRAM] = float("nan")
    assert set(counted(probe.read())) == set(METRICS) - {
        "sm_occupancy_percent",
        "dram_bandwidth_percent",
    }


@pytest.mark.parametrize("function", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet"])
def test_a_driver_without_the_counters_is_asked_in_the_old_way(
    driver: Driver, probe: GPUProbe, function: str
) -> None:
    hopper(driver, receive_kb=8, kernel_busy=7)
    driver.fail(function, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    probe.open()
    assert counted(probe.read()) == {"kernel_busy_percent": 7, "pcie_receive_bytes_per_s": 8000}
    assert driver.get("live_samples") == 0
