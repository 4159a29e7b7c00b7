"""Where a run was made: host, Python, CPUs, memory, and the packages that were in use."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SHM = "/dev/shm"  # noqa: S108 - where loaders share batches, not a file of ours
MODULES = {
    "loadeval": "loadeval",
    "numpy": "numpy",
    "torch": "torch",
    "nvidia-dali-cuda120": "nvidia.dali",
    "nvidia-dali-cuda130": "nvidia.dali",
    "spdl-core": "spdl",
}


def describe_environment() -> dict[str, Any]:
    """Facts about this process as JSON-ready values; what cannot be read is None.

    `packages` lists the installed versions of loadeval, and of each framework that this
    process has imported. `cpus_usable` counts the CPUs that the process may run on.
    """
    import psutil  # noqa: PLC0415 - kept out of `import loadeval`

    return {
        "host": platform.node() or None,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "pid": os.getpid(),
        "cpus": os.cpu_count(),
        "cpus_usable": cpus_usable(),
        "memory_bytes": _read(lambda: psutil.virtual_memory().total),
        "shm_free_bytes": _read(lambda: shutil.disk_usage(SHM).free),
        "packages": {
            package: version
            for package, module in MODULES.items()
            if module in sys.modules and (version := installed_version(package))
        },
    }


def _read(value: Callable[[], int]) -> int | None:
    """What the system says; None where it does not, as without /proc."""
    try:
        return int(value())
    except OSError:
        return None


def cpus_usable() -> int | None:
    """How many CPUs this process may run on."""
    # macOS and Windows have no affinity call.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def installed_version(package: str) -> str | None:
    """The version of `package`; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def own_version() -> str:
    """The version of loadeval; "(not installed)" where Python finds its files alone."""
    return installed_version("loadeval") or "(not installed)"
