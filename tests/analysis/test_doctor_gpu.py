"""What is in order of NVIDIA's driver and what needs it, by facts that are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadeval.analysis.doctor import checkup
from loadeval.analysis.doctor_check import Plan
from loadeval.probes.gpu import Driver
from loadeval.probes.machine import Machine

H100 = Driver("550.54.15", (12, 4), ("NVIDIA H100",) * 2, (True, True))
MACHINE = Machine(
    cpus=64,
    cpus_usable=64,
    quota_cores=None,
    threads=None,
    threads_from=None,
    shm_bytes=None,
    shm_free_bytes=None,
    open_files=None,
    open_files_at_most=None,
    start_method="fork",
    memory_bytes=1,
    memory_available_bytes=1,
    driver=H100,
    packages={"nvidia-ml-py": "13.0", "nvidia-dali-cuda120": "1.51.2"},
)


def told(name: str, **facts: Any) -> tuple[str, str]:
    """Status and text of the check of that name, of MACHINE but for `facts`."""
    checks = checkup(replace(MACHINE, **facts), Plan())
    return next((one.status, one.text) for one in checks if one.name == name)


def test_the_driver() -> None:
    """With its GPUs, those of a kind counted."""
    assert told("NVIDIA driver") == ("ok", "550.54.15, CUDA up to 12.4: 2 x NVIDIA H100")
    bare = Driver("550.54.15")
    assert told("NVIDIA driver", driver=bare) == ("ok", "550.54.15: no GPU")
    assert told("GPM", driver=bare) == ("not measured", "no GPU")


def test_no_driver() -> None:
    """Nothing is wrong with a machine without a GPU."""
    none = Driver(missing="no NVIDIA driver found")
    assert told("NVIDIA driver", driver=none) == ("not measured", "no NVIDIA driver found")
    assert told("NVML", driver=none)[0] == "not measured"
    assert told("GPM", driver=none) == ("not measured", "no NVIDIA driver found")


def test_a_broken_driver() -> None:
    """It is to be mended."""
    broken = Driver(missing="restart the machine", broken=True)
    assert told("NVIDIA driver", driver=broken) == ("change", "restart the machine")


def test_nvml() -> None:
    """The version of the binding, where it is known."""
    assert told("NVML") == ("ok", "nvidia-ml-py 13.0")
    assert told("NVML", packages={}) == ("ok", "nvidia-ml-py of unknown version")


@pytest.mark.parametrize(
    ("support", "status", "text"),
    [
        ((True, True), "ok", "the GPU's own counters can be read"),
        ((True, False), "ok", "not on each GPU"),
        ((True, None), "not measured", "the driver does not tell"),
    ],
)
def test_gpm(support: tuple[bool | None, ...], status: str, text: str) -> None:
    """Support is a matter of the GPU, and never to be changed."""
    found = told("GPM", driver=replace(H100, gpm=support))
    assert found[0] == status
    assert found[1].startswith(text)


def test_dali() -> None:
    """It is needed by none but its own pipelines."""
    assert told("DALI") == ("ok", "nvidia-dali-cuda120 1.51.2")
    assert told("DALI", packages={})[0] == "ok"


def test_dali_for_a_newer_cuda() -> None:
    """The driver has to run the CUDA that it was built for."""
    newer = {"nvidia-dali-cuda130": "2.4.0"}
    status, text = told("DALI", packages=newer)
    assert status == "change"
    assert "for CUDA 13, and the driver runs CUDA up to 12.4: install nvidia-dali-cuda120" in text
    assert told("DALI", packages=newer, driver=Driver(missing="none"))[0] == "ok"
