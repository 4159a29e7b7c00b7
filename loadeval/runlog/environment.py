"""Where a run was made: host, Python, CPUs, memory, and the packages that were in use."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Fact = TypeVar("Fact")
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
    process has imported. `cpus_usable` counts the CPUs that the process may run on, and
    `omp_num_threads` is what the variable of that name allows.
    """
    return {
        "host": _known(platform.node) or None,
        "platform": _known(platform.platform),
        "python": platform.python_version(),
        "pid": os.getpid(),
        "cpus": os.cpu_count(),
        "cpus_usable": cpus_usable(),
        "omp_num_threads": _known(lambda: int(os.environ["OMP_NUM_THREADS"])),
        "memory_bytes": _known(_memory_bytes),
        "shm_free_bytes": _known(lambda: shutil.disk_usage(SHM).free),
        "packages": {
            package: version
            for package, module in MODULES.items()
            if module in sys.modules and (version := installed_version(package))
        },
    }


def _known(read: Callable[[], Fact]) -> Fact | None:
    """What `read` returns; None where it raises, as without /proc or in a sandbox."""
    try:
        return read()
    except Exception:  # noqa: BLE001 - whatever the reason is, training goes on without this fact
        return None


def _memory_bytes() -> int:
    import psutil  # noqa: PLC0415 - kept out of `import loadeval`

    return int(psutil.virtual_memory().total)


def cpus_usable() -> int | None:
    """How many CPUs this process may run on."""
    # macOS and Windows have no affinity call.
    found = _known(lambda: len(os.sched_getaffinity(0)))
    return os.cpu_count() if found is None else found


def installed_version(package: str) -> str | None:
    """The version of `package`; None where it is not installed."""
    return _known(lambda: metadata.version(package))


def own_version() -> str:
    """The version of loadeval; "(not installed)" where Python finds its files alone."""
    return installed_version("loadeval") or "(not installed)"
