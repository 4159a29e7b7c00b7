"""Facts about the machine that bear on loading data; read at once, without a framework."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loadeval.data.environment import cpus_usable, installed_version
from loadeval.probes.gpu import Driver, driver
from loadeval.probes.host import MachineLoad
from loadeval.probes.limits import quota_cores

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""The first of these that is set tells torch how many threads to use."""
SHM = Path("/dev/shm")  # noqa: S108 - where loaders share batches, not a file of ours
NVML = "nvidia-ml-py"
DALI = "nvidia-dali-cuda"
WITHOUT_LIMIT = sys.maxsize


@dataclass(frozen=True, slots=True)
class Machine:
    """What one process finds; None is not known, and WITHOUT_LIMIT is no limit.

    `threads` is what `threads_from`, a variable of the environment, allows torch; None where
    none is set. `packages` are the installed versions that matter.
    """

    cpus: int | None
    cpus_usable: int
    quota_cores: float | None
    threads: int | None
    threads_from: str | None
    shm_bytes: int | None
    shm_free_bytes: int | None
    open_files: int | None
    open_files_at_most: int | None
    start_method: str
    memory_bytes: int | None
    memory_available_bytes: int | None
    driver: Driver
    packages: Mapping[str, str]


def read_machine() -> Machine:
    """The facts now."""
    threads_from, threads = _threads(os.environ)
    shared = None
    with suppress(OSError):
        shared = shutil.disk_usage(SHM)
    open_files, open_files_at_most = (
        WITHOUT_LIMIT if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    memory = MachineLoad().read()
    limit, available = memory["memory_limit_bytes"], memory["memory_available_bytes"]
    names = ("torch", NVML, *(f"{DALI}{major}0" for major in (11, 12, 13)))
    versions = {name: installed_version(name) for name in names}
    # What a process would use, without deciding it for this one.
    chosen = multiprocessing.get_start_method(allow_none=True)
    return Machine(
        cpus=os.cpu_count(),
        cpus_usable=cpus_usable() or 1,
        quota_cores=quota_cores(),
        threads=threads,
        threads_from=threads_from,
        shm_bytes=None if shared is None else shared.total,
        shm_free_bytes=None if shared is None else shared.free,
        open_files=open_files,
        open_files_at_most=open_files_at_most,
        start_method=chosen or multiprocessing.get_all_start_methods()[0],
        memory_bytes=None if limit is None else int(limit),
        memory_available_bytes=None if available is None else int(available),
        driver=driver(),
        packages={name: version for name, version in versions.items() if version is not None},
    )


def _threads(environment: Mapping[str, str]) -> tuple[str | None, int | None]:
    for name in THREAD_VARIABLES:
        first = environment.get(name, "").split(",")[0].strip()  # "8,2": 2 in nested regions
        if first.isdigit() and int(first) > 0:
            return name, int(first)
    return None, None
