"""What is read of a GPU, in which units, and what is not known of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml  # type: ignore[import-untyped]  # it ships no type information
import pytest

from loadeval.probes.gpu import METRICS, GPUProbe
from loadeval.testing import FakeClock
from tests.probes.nvml.stub import Driver

SUBJECT = "GPU 0 (NVIDIA A100-SXM4-80GB)"
FIELDS: dict[str, Any] = {
    "kernel_busy": 87,
    "memory_used": 3 * 2**30,
    "power_mw": 312_500,
    "sm_mhz": 1410,
    "receive_kb": 12_000,
    "transmit_kb": 450,
}
QUANTITIES = {
    "kernel_busy_percent": 87,
    "memory_used_bytes": 3 * 2**30,
    "power_watts": 312.5,
    "sm_clock_hz": 1_410_000_000,
    "power_slowdown_flag": 0,
    "thermal_slowdown_flag": 0,
    "hardware_slowdown_flag": 0,
}
MS = 1_000_000


def only(readings: Any) -> dict[str, float]:
    """The quantities of the one GPU."""
    (quantities,) = readings.values()
    return dict(quantities)


def test_every_quantity_is_in_the_unit_of_its_name(driver: Driver, probe: GPUProbe) -> None:
    """Milliwatts become watts, MHz become Hz, KB/s become bytes per second."""
    driver.add(**FIELDS)
    probe.open()
    assert probe.read() == {SUBJECT: {**QUANTITIES, "pcie_receive_bytes_per_s": 12_000_000}}


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (pynvml.nvmlClocksEventReasonGpuIdle, (0, 0, 0)),
        (pynvml.nvmlClocksEventReasonSwPowerCap, (1, 0, 0)),
        (pynvml.nvmlClocksEventReasonHwThermalSlowdown, (0, 1, 0)),
        (pynvml.nvmlClocksEventReasonHwSlowdown, (0, 0, 1)),
        (pynvml.nvmlClocksEventReasonAll, (1, 1, 1)),
    ],
)
def test_what_holds_the_clock_down_is_told(
    driver: Driver, probe: GPUProbe, reasons: int, expected: tuple[int, ...]
) -> None:
    """Power, heat and the hardware are told, each as 0 or 1; idling is no slowdown."""
    driver.add(reasons=reasons)
    probe.open()
    names = ("power_slowdown_flag", "thermal_slowdown_flag", "hardware_slowdown_flag")
    for _ in range(2):
        quantities = only(probe.read())
        assert tuple(quantities[name] for name in names) == expected
        # An older driver has another name for it.
        driver.fail("nvmlDeviceGetCurrentClocksEventReasons", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def test_the_old_name_for_that_may_go() -> None:
    """From nvidia-ml-py, with CUDA 14."""
    removed = "import pynvml; del pynvml.nvmlDeviceGetCurrentClocksThrottleReasons"
    command = [sys.executable, "-c", f"{removed}; import loadeval.probes.gpu"]
    subprocess.run(command, check=True, timeout=60)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("nvmlDeviceGetPowerUsage", "power_watts"),
        ("nvmlDeviceGetPcieThroughput", "pcie_receive_bytes_per_s"),
    ],
)
def test_what_a_gpu_does_not_support_is_not_among_its_quantities(
    driver: Driver, probe: GPUProbe, clock: FakeClock, function: str, name: str
) -> None:
    driver.add(**FIELDS)
    driver.add(**FIELDS)
    driver.fail(function, pynvml.NVML_ERROR_NOT_SUPPORTED, device=0)
    probe.open()
    names: list[set[str]] = [set(), set()]
    for _ in range(30):
        for number, read in enumerate(probe.read().values()):
            names[number] |= set(read)
        clock.advance(100 * MS)
    assert names[1] - names[0] >= {name}


def test_what_is_not_known_for_a_moment_is_asked_again(driver: Driver, probe: GPUProbe) -> None:
    driver.add(**FIELDS)
    probe.open()
    driver.fail("nvmlDeviceGetPowerUsage", pynvml.NVML_ERROR_TIMEOUT)
    assert "power_watts" not in only(probe.read())
    driver.heal()
    assert only(probe.read())["power_watts"] == 312.5


def test_pcie_is_asked_seldom_and_one_direction_at_a_time(
    driver: Driver, probe: GPUProbe, clock: FakeClock
) -> None:
    """Each direction of each GPU is asked once a second at most, no two in one reading."""
    driver.add()
    driver.add()
    probe.open()
    asked = 0
    for _ in range(100):
        probe.read()
        now = len(driver.calls("nvmlDeviceGetPcieThroughput"))
        assert now - asked <= 1
        asked = now
        clock.advance(100 * MS)
    made = driver.calls("nvmlDeviceGetPcieThroughput")
    assert (made.count(0), made.count(1)) == (18, 16)


def test_every_quantity_is_described() -> None:
    page = (Path(__file__).parents[3] / "docs" / "run-log.md").read_text()
    pcie = {"pcie_receive_bytes_per_s", "pcie_transmit_bytes_per_s"}
    for name in {*QUANTITIES, *METRICS, *pcie}:
        assert f"`{name}`" in page
