"""How busy the GPUs are on which another process computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml  # type: ignore[import-untyped]  # it ships no type information

from loadeval.probes.gpu import JobGPUs

if TYPE_CHECKING:
    from tests.probes.nvml.stub import Driver

PID = 4242


def test_only_those_on_which_it_computes_are_read(driver: Driver) -> None:
    """Their mean of all readings; the driver is left at the end."""
    driver.add(pid=PID + 1, kernel_busy=90)
    used = driver.add(pid=PID, kernel_busy=30)
    gpus = JobGPUs(PID)
    gpus.read()
    used.kernel_busy = 50
    gpus.read()
    assert gpus.close() == {"GPU 1 (NVIDIA A100-SXM4-80GB)": 40.0}


def test_a_process_without_a_gpu_has_none(driver: Driver) -> None:
    driver.add(pid=PID + 1)
    gpus = JobGPUs(PID)
    gpus.read()
    assert gpus.close() == {}


def test_a_gpu_that_does_not_tell_is_left_out(driver: Driver) -> None:
    driver.add(pid=PID)
    driver.fail("nvmlDeviceGetUtilizationRates", pynvml.NVML_ERROR_NOT_SUPPORTED)
    gpus = JobGPUs(PID)
    gpus.read()
    assert gpus.close() == {}


def test_a_driver_that_does_not_start_has_none(driver: Driver) -> None:
    driver.fail("*", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    gpus = JobGPUs(PID)
    gpus.read()
    assert gpus.close() == {}
