"""Whether a machine is in order for loading data, and what to change.

A check is one function: it looks at the machine, and at the run whose loader is to fit it, where
one is given. Without a run a loader is assumed that has a worker for each CPU.
"""

from __future__ import annotations

import math
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from loadeval.data.columns import mean_known
from loadeval.data.environment import describe_environment
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


def read_machine() -> dict[str, Any]:
    """The facts now: those of a run's environment, and what else limits loading.

    `open_files` is WITHOUT_LIMIT where there is none, and `driver` a gpu.Driver.
    """
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        **describe_environment(),
        "quota_cores": quota_cores(),
        "open_files": WITHOUT_LIMIT if open_files == resource.RLIM_INFINITY else open_files,
        "disk_free_bytes": shutil.disk_usage(Path.cwd()).free,
        "driver": gpu.driver(),
    }


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of one thing; `do` says what to change, where something is to be changed."""

    name: str
    status: Literal["ok", "change", "not measured"]
    says: str
    do: str | None = None


def checkup(
    machine: Mapping[str, Any], run: Run | None, adapters: Sequence[str]
) -> Iterator[Check]:
    """Every check, in the order in which they are shown."""
    usable = machine["cpus_usable"] or 1
    cores = min(usable, machine["quota_cores"] or math.inf)  # CPUs' worth of time
    yield from cpus(machine, usable, cores, run)
    yield from shared(machine, cores, run)
    free_bytes, elsewhere = machine["disk_free_bytes"], "write logs elsewhere with --output"
    is_full = free_bytes < LEAST_DISK_BYTES
    says = f"{size(free_bytes)} free in this folder"
    yield _check("disk", says, f"free some, or {elsewhere}" if is_full else None)
    yield driver(machine["driver"])
    yield _check("loaders", ", ".join(adapters) or "none is installed that loadeval knows")


def _check(name: str, says: str, do: str | None = None) -> Check:
    return Check(name, "change" if do else "ok", says, do)


def cpus(machine: Mapping[str, Any], usable: int, cores: float, run: Run | None) -> Iterator[Check]:
    """CPUs, and who is to share them: the threads of torch, and the loader's workers."""
    there, quota, threads = machine["cpus"] or 1, machine["quota_cores"], machine["omp_num_threads"]
    says, do = f"{usable} of {there} usable", None
    if cores <= 1 < there:  # what a batch system gives unasked; a quota is not wrong by itself
        says = f"only {cores:g} of {there} usable"
        do = "ask for more: --cpus-per-task in Slurm, --cpus in Docker, the CPU limit of the pod"
    elif quota is not None:
        says += f", {quota:g} of them at a time (cgroup quota)"
    yield _check("CPUs", says, do)

    # Torch takes one for each CPU, knows nothing of quotas, and is told by a variable.
    is_told = threads is not None and threads > 0
    most = threads if is_told else usable
    source = f"OMP_NUM_THREADS={most}" if is_told else "one per CPU"
    says = f"torch uses up to {counted(most, 'thread')} in the training process ({source})"
    do = None
    if most > cores:
        says += f", but only {cores:g} can run at a time"
        do = f"set OMP_NUM_THREADS={_whole(cores)}"
    yield _check("threads", says, do)

    workers = None if run is None else run.loader.workers
    if workers is not None and workers > max(cores, 1):
        says = f"{workers} on {cores:g} CPUs compete with each other and with training"
        yield _check("workers", says, f"use {_whole(cores)} or fewer")
    elif workers is not None:
        yield _check("workers", f"{workers} on {cores:g} CPUs")


def shared(machine: Mapping[str, Any], cores: float, run: Run | None) -> Iterator[Check]:
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

    free_bytes, needed = machine["shm_free_bytes"], batches * batch_bytes
    need = f"{them} of {size(batch_bytes)} need {size(needed)}"
    if free_bytes is None:
        yield Check("shared memory", "not measured", "none")
    elif not batches:
        yield _check("shared memory", f"{size(free_bytes)} free; not used by this loader")
    elif needed <= free_bytes:
        yield _check("shared memory", f"{size(free_bytes)} free; {need}")
    else:
        larger = (
            "make it larger (--shm-size in Docker, an emptyDir of medium Memory in "
            "Kubernetes), or use fewer workers, less prefetch or smaller batches"
        )
        yield _check("shared memory", f"{size(free_bytes)} free, but {need}", larger)

    limit, files = machine["open_files"], OTHER_FILES + batches * math.ceil(tensors)
    says, do = "no limit" if limit == WITHOUT_LIMIT else f"{limit:,} at most", None
    if files > limit:
        says += f", but {them} of {math.ceil(tensors)} tensors may need {files:,}, "
        says += "one for each tensor"
        do = (
            f"run ulimit -n {2 * files}, or "
            "torch.multiprocessing.set_sharing_strategy('file_system')"
        )
    yield _check("open files", says, do)


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
