"""Only the devices that the process uses, or may use, are read."""

from __future__ import annotations

import os

import pynvml  # type: ignore[import-untyped]  # it ships no type information
import pytest

from loadeval.errors import ProbeError
from loadeval.probes.gpu import GPUProbe
from tests.probes.nvml.stub import Driver

UUIDS = ("GPU-8932f937-d72c", "GPU-8932aaaa-17b0", "GPU-c3f4be00-42a1")


@pytest.fixture
def three(driver: Driver) -> Driver:
    """A driver of three GPUs of one kind."""
    for uuid in UUIDS:
        driver.add(uuid=uuid)
    return driver


def read_numbers(probe: GPUProbe) -> list[int]:
    """The numbers of the GPUs that are read."""
    probe.open()
    return [int(subject.split()[1]) for subject in probe.read()]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("visible", "numbers"),
    [(None, [0, 1, 2]), ("1", [1]), ("2, 0", [0, 2]), ("GPU-8932f,GPU-c", [0, 2])],
)
def test_cuda_visible_devices_is_understood_as_cuda_does(
    probe: GPUProbe, monkeypatch: pytest.MonkeyPatch, visible: str | None, numbers: list[int]
) -> None:
    """Numbers, UUIDs and beginnings of UUIDs."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert read_numbers(probe) == numbers


@pytest.mark.parametrize(("visible", "shown"), [("", "''"), ("-1", "'-1'")])
def test_no_visible_gpu_is_said(
    three: Driver, probe: GPUProbe, monkeypatch: pytest.MonkeyPatch, visible: str, shown: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(ProbeError) as caught:
        probe.open()
    assert str(caught.value) == f"no GPU is visible: CUDA_VISIBLE_DEVICES={shown}"
    assert three.get("starts") == 0


def test_only_gpus_on_which_the_process_computes_are_read(three: Driver, probe: GPUProbe) -> None:
    three.devices[0].pid = os.getpid() + 1
    three.devices[1].pid = os.getpid()
    assert read_numbers(probe) == [1]


def test_the_gpus_of_another_process_are_those_on_which_it_computes(three: Driver) -> None:
    """Never those that this one may use; the driver is left where there are none."""
    other = GPUProbe(pid=4242)
    with pytest.raises(ProbeError, match="process 4242 computes on no GPU"):
        other.open()
    assert three.get("starts") == 0
    three.devices[2].pid = 4242
    assert read_numbers(other) == [2]


def test_numbers_of_gpus_that_differ_are_not_guessed(
    driver: Driver, probe: GPUProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA puts the fastest first unless told otherwise; then its numbers are NVML's."""
    driver.add("NVIDIA T4")
    driver.add("NVIDIA H100", uuid="GPU-fast")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(ProbeError, match="set CUDA_DEVICE_ORDER=PCI_BUS_ID, or give their UUIDs"):
        probe.open()
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert read_numbers(probe) == [0]
    probe.close()
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-fast")
    assert read_numbers(probe) == [1]


def test_a_gpu_that_mig_has_divided_is_not_read(driver: Driver, probe: GPUProbe) -> None:
    driver.add(mig_mode=1)
    with pytest.raises(ProbeError, match="that MIG does not divide"):
        probe.open()
    driver.add()
    assert read_numbers(probe) == [1]


def test_a_gpu_that_cannot_be_divided_is_whole(driver: Driver, probe: GPUProbe) -> None:
    """GPUs before Ampere know no MIG."""
    driver.add("Tesla V100")
    driver.fail("nvmlDeviceGetMigMode", pynvml.NVML_ERROR_NOT_SUPPORTED)
    probe.open()
    assert list(probe.read()) == ["GPU 0 (Tesla V100)"]
