"""Whether a machine is in order for loading data, and what to change.

A check is one function: it looks at the machine, and at the run whose loader is to fit it, where
one is given. Without a run a loader is assumed that has a worker for each CPU.
"""

from __future__ import annotations

import math
import os
import resource
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from loadeval.data.columns import mean_known
from loadeval.data.environment import SHM, cpus_usable
from loadeval.data.run import Run
from loadeval.probes import gpu
from loadeval.probes.limits import quota_cores
from loadeval.words import counted, size

WITHOUT_LIMIT = sys.maxsize
PREFETCH, BATCH_BYTES, TENSORS = 2, 32_000_000, 8
"""Batches ready for each worker, and what one is, where no run tells.

Each of its tensors takes a file descriptor from when it is sent until the step is over.
"""
OTHER_FILES = 128
"""What a training process has open besides: libraries, logs, sockets."""
LEAST_DISK_BYTES = 1_000_000_000
"""With less, logs, checkpoints and what is downloaded soon find no room."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What one process finds; None is not known, and WITHOUT_LIMIT is no limit.

    `threads` is what OMP_NUM_THREADS allows torch; None where it is no number.
    """

    cpus: int
    cpus_usable: int
    quota_cores: float | None
    threads: int | None
    shm_free_bytes: int | None
    open_files: int
    driver: gpu.Driver


def read_machine() -> Machine:
    """The facts now."""
    threads, free_bytes = os.environ.get("OMP_NUM_THREADS", ""), None
    with suppress(OSError):
        free_bytes = shutil.disk_usage(SHM).free
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Machine(
        cpus=os.cpu_count() or 1,
        cpus_usable=cpus_usable() or 1,
        quota_cores=quota_cores(),
        threads=int(threads) if threads.isdigit() else None,
        shm_free_bytes=free_bytes,
        open_files=WITHOUT_LIMIT if open_files == resource.RLIM_INFINITY else open_files,
        driver=gpu.driver(),
    )


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of one thing; `do` says what to change, where something is to be changed."""

    name: str
    status: Literal["ok", "change", "not measured"]
    says: str
    do: str | None = None


def checkup(
    machine: Machine, run: Run | None, disk_free_bytes: int, adapters: Sequence[str]
) -> list[Check]:
    """Every check, in the order in which they are shown."""
    cores = min(machine.cpus_usable, machine.quota_cores or math.inf)  # CPUs' worth of time
    return [
        *cpus(machine, cores, run),
        *shared(machine, cores, run),
        disk(disk_free_bytes),
        driver(machine.driver),
        Check("loaders", "ok", ", ".join(adapters) or "none is installed that loadeval knows"),
    ]


def cpus(m: Machine, cores: float, run: Run | None) -> Iterator[Check]:
    """CPUs, and who is to share them: the threads of torch, and the loader's workers."""
    quota, most = "", m.threads or m.cpus_usable
    if m.quota_cores is not None:
        quota = f", {m.quota_cores:g} of them at a time (cgroup quota)"
    if cores <= 1 < m.cpus:  # what a batch system gives unasked; a quota is not wrong by itself
        do = "ask for more: --cpus-per-task in Slurm, --cpus in Docker, the CPU limit of the pod"
        yield Check("CPUs", "change", f"only {cores:g} of {m.cpus} usable", do)
    else:
        yield Check("CPUs", "ok", f"{m.cpus_usable} of {m.cpus} usable{quota}")

    # Torch takes one for each CPU, knows nothing of quotas, and is told by a variable.
    source = f"OMP_NUM_THREADS={most}" if m.threads else "one per CPU"
    says = f"torch uses up to {counted(most, 'thread')} in the training process ({source})"
    if most > cores:
        says += f", but only {cores:g} can run at a time"
        yield Check("threads", "change", says, f"set OMP_NUM_THREADS={_whole(cores)}")
    else:
        yield Check("threads", "ok", says)

    workers = None if run is None else run.loader.workers
    if workers is not None and workers > max(cores, 1):
        says = f"{workers} on {cores:g} CPUs compete with each other and with training"
        yield Check("workers", "change", says, f"use {_whole(cores)} or fewer")
    elif workers is not None:
        yield Check("workers", "ok", f"{workers} on {cores:g} CPUs")


def shared(m: Machine, cores: float, run: Run | None) -> Iterator[Check]:
    """Whether what workers prefetch finds room, and file descriptors: Docker gives 64 MB.

    By its default sharing strategy torch opens a file for each tensor.
    """
    count, prefetch = _whole(cores), PREFETCH
    batch_bytes, tensors, pickled_bytes = float(BATCH_BYTES), float(TENSORS), 0.0
    if run is not None:
        loader, stages = run.loader, run.stages
        batch_bytes = mean_known(run.steps.nbytes) or batch_bytes
        tensors = mean_known(stages.tensors) or tensors
        pickled_bytes = mean_known(stages.pickled_bytes) or 0.0
        if loader.workers is not None:
            # Who has threads, as DALI and SPDL, names no start method.
            has_processes = (loader.start_method, loader.persistent_workers) != (None, None)
            count = loader.workers if has_processes else 0
        if loader.workers and loader.prefetch_depth:
            prefetch = max(loader.prefetch_depth // loader.workers, 1)
    # Where half of a batch or more is pickled, it comes through a pipe.
    batches = count * prefetch + 1 if count and pickled_bytes < batch_bytes / 2 else 0
    ahead = f"({counted(count, 'worker')} x {prefetch} prefetched, and the one in the step)"
    them = f"{batches} batches {ahead}"

    free_bytes, needed = m.shm_free_bytes, batches * batch_bytes
    need = f"{them} of {size(batch_bytes)} need {size(needed)}"
    if free_bytes is None:
        yield Check("shared memory", "not measured", "none")
    elif not batches:
        says = f"{size(free_bytes)} free; not used by this loader"
        yield Check("shared memory", "ok", says)
    elif needed <= free_bytes:
        yield Check("shared memory", "ok", f"{size(free_bytes)} free; {need}")
    else:
        do = (
            "make it larger (--shm-size in Docker, an emptyDir of medium Memory in "
            "Kubernetes), or use fewer workers, less prefetch or smaller batches"
        )
        yield Check("shared memory", "change", f"{size(free_bytes)} free, but {need}", do)

    limit, files = m.open_files, OTHER_FILES + batches * math.ceil(tensors)
    if files <= limit:
        says = "no limit" if limit == WITHOUT_LIMIT else f"{limit:,} at most"
        yield Check("open files", "ok", says)
    else:
        says = (
            f"{limit:,} at most, but {them} of {math.ceil(tensors)} tensors may need {files:,}, "
            "one for each tensor"
        )
        do = (
            f"run ulimit -n {2 * files}, or "
            "torch.multiprocessing.set_sharing_strategy('file_system')"
        )
        yield Check("open files", "change", says, do)


def disk(free_bytes: int) -> Check:
    """Where logs are written by default."""
    says = f"{size(free_bytes)} free in this folder"
    if free_bytes < LEAST_DISK_BYTES:
        return Check("disk", "change", says, "free some, or write logs elsewhere with --output")
    return Check("disk", "ok", says)


def driver(found: gpu.Driver) -> Check:
    """A machine without a GPU is in order; a broken driver is to be mended."""
    if found.missing is not None:
        do = "restart the machine, or load the driver anew" if found.broken else None
        return Check("NVIDIA driver", "change" if do else "not measured", found.missing, do)
    cuda = ", CUDA up to {}.{}".format(*found.cuda) if found.cuda else ""
    kinds = (f"{found.gpus.count(name)} x {name}" for name in dict.fromkeys(found.gpus))
    return Check("NVIDIA driver", "ok", f"{found.version}{cuda}: {', '.join(kinds) or 'no GPU'}")


def _whole(cores: float) -> int:
    return max(1, math.floor(cores))
