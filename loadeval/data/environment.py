"""Where a run was made: host, Python, CPUs, memory, and the packages that were in use."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from typing import Any, TypeVar

Fact = TypeVar("Fact")
SHM = "/dev/shm"  # noqa: S108 - where loaders share batches, not a file of ours
PACKAGES = ("loadeval", "numpy", "torch")
"""They take part in training whatever the loader is."""
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""OpenMP binds the thread that imports it to a CPU where one of these is set."""
OFF = ("", "false", "disabled", "none")


def describe_environment(distributions: Iterable[str] = ()) -> dict[str, Any]:
    """Facts about this process as JSON-ready values; what cannot be read is None.

    `packages` lists the versions of loadeval, of NumPy and torch if they are imported, and of those
    of `distributions` that are installed. `cpus_usable` counts the CPUs that the process may run
    on, `cpus_at_start` those when it started, as far as that was seen, and `cpu_binding` lists the
    variables by which OpenMP binds threads to CPUs. `omp_num_threads` is what the variable of that
    name allows.
    """
    import psutil  # noqa: PLC0415 - kept out of `import loadeval`

    imported = [package for package in PACKAGES if package in sys.modules]
    return {
        "host": _known(platform.node) or None,
        "platform": _known(platform.platform),
        "python": platform.python_version(),
        "pid": os.getpid(),
        "cpus": os.cpu_count(),
        "cpus_usable": cpus_usable(),
        "cpus_at_start": CPUS_AT_START,
        "cpu_binding": [name for name in BINDING if os.environ.get(name, "").lower() not in OFF],
        "omp_num_threads": _known(lambda: int(os.environ["OMP_NUM_THREADS"])),
        "memory_bytes": _known(lambda: psutil.virtual_memory().total),
        "shm_free_bytes": _known(lambda: shutil.disk_usage(SHM).free),
        "packages": {
            package: version
            for package in dict.fromkeys((*imported, *distributions))
            if (version := installed_version(package))
        },
    }


def _known(read: Callable[[], Fact]) -> Fact | None:
    """What `read` returns; None where it raises, as without /proc or in a sandbox."""
    try:
        return read()
    except Exception:  # noqa: BLE001 - whatever the reason is, training goes on without this fact
        return None


def cpus_usable() -> int | None:
    """How many CPUs this process may run on."""
    return _known(lambda: len(os.sched_getaffinity(0))) or os.cpu_count()


CPUS_AT_START = getattr(sys.modules.get("loadeval_inject"), "CPUS_AT_START", None) or cpus_usable()
"""As `loadeval run` saw it when Python started, or when this module was imported."""


@cache
def installed_version(package: str) -> str | None:
    """The version of `package`; None where it is not installed."""
    return _known(lambda: metadata.version(package))
