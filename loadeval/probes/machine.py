"""Facts about the machine that bear on loading data; read at once, without a framework."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass

from loadeval.data.environment import cpus_usable
from loadeval.probes.gpu import Driver, driver
from loadeval.probes.limits import quota_cores

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""The first of these that is set tells torch how many threads to use."""
SHM = "/dev/shm"  # noqa: S108 - where loaders share batches, not a file of ours
WITHOUT_LIMIT = sys.maxsize


@dataclass(frozen=True, slots=True)
class Machine:
    """What one process finds; None is not known, and WITHOUT_LIMIT is no limit.

    `threads` is what `threads_from`, a variable of the environment, allows torch; None where
    none is set.
    """

    cpus: int | None
    cpus_usable: int
    quota_cores: float | None
    threads: int | None
    threads_from: str | None
    shm_free_bytes: int | None
    open_files: int | None
    driver: Driver


def read_machine() -> Machine:
    """The facts now."""
    threads_from, threads, free_bytes = None, None, None
    for name in reversed(THREAD_VARIABLES):
        first = os.environ.get(name, "").split(",")[0].strip()  # "8,2": 2 in nested regions
        if first.isdigit() and int(first) > 0:
            threads_from, threads = name, int(first)
    with suppress(OSError):
        free_bytes = shutil.disk_usage(SHM).free
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Machine(
        cpus=os.cpu_count(),
        cpus_usable=cpus_usable() or 1,
        quota_cores=quota_cores(),
        threads=threads,
        threads_from=threads_from,
        shm_free_bytes=free_bytes,
        open_files=WITHOUT_LIMIT if open_files == resource.RLIM_INFINITY else open_files,
        driver=driver(),
    )
