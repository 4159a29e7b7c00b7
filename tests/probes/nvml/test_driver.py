"""What NVIDIA's driver says of itself and its GPUs."""

from __future__ import annotations

import pynvml  # type: ignore[import-untyped]  # it ships no type information
import pytest

from loadeval.probes import gpu
from loadeval.probes.gpu import MISMATCH, NO_DRIVER
from tests.probes.nvml.stub import Driver


@pytest.fixture
def two(driver: Driver) -> Driver:
    """A driver of two GPUs."""
    for _ in range(2):
        driver.add("NVIDIA H100", gpm=1)
    return driver


WHOLE = gpu.Driver("550.54.15", (12, 4), ("NVIDIA H100", "NVIDIA H100"))


def test_a_driver(two: Driver) -> None:
    assert gpu.driver() == WHOLE
    assert two.get("starts") == 0


@pytest.mark.parametrize(
    ("function", "code", "expected"),
    [
        # As good as none.
        ("nvmlInitWithFlags", pynvml.NVML_ERROR_DRIVER_NOT_LOADED, gpu.Driver(missing=NO_DRIVER)),
        # Something must be done about it.
        (
            "nvmlInitWithFlags",
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            gpu.Driver(missing=MISMATCH, broken=True),
        ),
        # Its own words are the reason.
        ("nvmlInitWithFlags", 21, gpu.Driver(missing="No data")),
        ("nvmlDeviceGetCount_v2", 21, gpu.Driver(missing="No data")),
        # It may be gone once it was asked.
        ("nvmlShutdown", 21, WHOLE),
    ],
)
def test_a_driver_that_fails(two: Driver, function: str, code: int, expected: gpu.Driver) -> None:
    two.fail(function, code)
    assert gpu.driver() == expected
