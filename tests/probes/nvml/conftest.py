"""The real nvidia-ml-py over a driver's library of our own, compiled here."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pynvml  # type: ignore[import-untyped]  # it ships no type information
import pytest

from loadeval.probes.gpu import GPUProbe
from loadeval.testing import FakeClock
from tests.probes.nvml.stub import Driver, compiled


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub, compiled, under the name that nvidia-ml-py looks for."""
    if shutil.which("gcc") is None:
        pytest.skip("the driver's stand-in is written in C")
    return compiled(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(stub_library: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A driver without GPUs, which nvidia-ml-py asks during the test."""
    library = ctypes.CDLL(str(stub_library))
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    return Driver(library)


@pytest.fixture
def clock() -> FakeClock:
    """The clock of `probe`."""
    return FakeClock()


@pytest.fixture
def probe(driver: Driver, clock: FakeClock) -> GPUProbe:  # noqa: ARG001 - it asks that driver
    """A probe that is not yet open."""
    return GPUProbe(clock)
