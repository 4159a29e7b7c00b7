"""How a GPU probe begins and ends: without a driver, with one that goes away, and with a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml  # type: ignore[import-untyped]  # it ships no type information
import pytest

from loadeval.errors import ProbeError
from loadeval.probes.gpu import GPUProbe
from tests.probes.nvml.stub import Driver

LOST = pynvml.NVML_ERROR_GPU_IS_LOST
A100 = "GPU {} (NVIDIA A100-SXM4-80GB)"


def refused(probe: GPUProbe) -> str:
    """Why it does not open."""
    with pytest.raises(ProbeError) as caught:
        probe.open()
    return str(caught.value)


def test_without_a_driver_that_is_said(probe: GPUProbe, monkeypatch: pytest.MonkeyPatch) -> None:

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    assert refused(probe) == "no NVIDIA driver found"


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        ("nvmlInitWithFlags", pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"),
        ("nvmlDeviceGetCount_v2", 21, "the GPUs cannot be counted: No data"),
        ("nvmlDeviceGetHandleByIndex_v2", LOST, "no NVIDIA GPU that may be asked"),
        ("nothing", 0, "no NVIDIA GPU that may be asked"),
    ],
)
def test_why_nothing_can_be_read_is_said(
    driver: Driver, probe: GPUProbe, function: str, code: int, reason: str
) -> None:
    if function.startswith("nvmlDeviceGetHandle"):
        driver.add()
    driver.fail(function, code)
    assert reason in refused(probe)
    assert driver.get("starts") == 0


def test_a_gpu_of_somebody_else_is_left_out(driver: Driver, probe: GPUProbe) -> None:
    driver.add()
    driver.add()
    driver.fail("*", pynvml.NVML_ERROR_NO_PERMISSION, device=0)
    probe.open()
    assert list(probe.read()) == [A100.format(1)]


def test_of_a_gpu_that_is_gone_nothing_is_told(driver: Driver, probe: GPUProbe) -> None:
    driver.add()
    driver.add()
    probe.open()
    driver.fail("*", LOST, device=0)
    readings = probe.read()
    assert not readings[A100.format(0)]
    assert readings[A100.format(1)]


def test_closing_lets_go_of_everything(driver: Driver, probe: GPUProbe) -> None:
    for _ in range(2):
        driver.add(gpm=1)
        probe.open()
        probe.read()
        assert (driver.get("starts"), driver.get("live_samples")) == (1, 2 * driver.gpus)
        probe.close()
        assert (driver.get("starts"), driver.get("live_samples")) == (0, 0)


SCRIPT = """
from itertools import count
from loadeval import LoaderEvaluator
with LoaderEvaluator(count(), log_file="run.jsonl", probes=("gpu",), probe_interval_s=0.001) as it:
    for _ in it:
        if it.recorded().readings:
            break
"""


def readings_with(library: Path, folder: Path) -> dict[str, Any]:
    """The first readings in the log of a training process that finds the driver in `library`."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-c", SCRIPT]
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=60)
    with (folder / "run.jsonl").open() as log:
        lines = [json.loads(line) for line in log]
    readings: dict[str, Any] = next(line for line in lines if line["type"] == "readings")
    return readings


def test_a_run_reads_the_gpus_of_the_drivers_library(stub_library: Path, tmp_path: Path) -> None:
    """The library is found as a driver's is, and what it says is in the log."""
    readings = readings_with(stub_library, tmp_path)
    assert (readings["probe"], readings["subject"], readings.get("missing")) == (
        "gpu",
        "GPU 0 (Stub)",
        None,
    )
    assert set(readings["values"]["kernel_busy_percent"]) == {70}
