"""Whether a machine is in order for loading data, and what to change.

A check is one function: it looks at the machine, and at the run whose loader is to fit it, where
one is given. Without a run a loader is assumed that has a worker for each CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from loadeval.data.columns import UNKNOWN, Column
from loadeval.data.run import Run
from loadeval.probes.machine import WITHOUT_LIMIT, Machine
from loadeval.words import counted, size

PREFETCH, BATCH_BYTES, TENSORS = 2, 32_000_000, 8
"""Batches ready for each worker, and what one is, where no run tells.

Each of its tensors takes a file descriptor from when it is sent until the step is over.
"""
OTHER_FILES = 128
"""What a training process has open besides: libraries, logs, sockets."""
LEAST_DISK_BYTES = 1_000_000_000
"""With less, logs, checkpoints and what is downloaded soon find no room."""


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
    return [
        cpus(machine),
        threads(machine),
        *workers(machine, run),
        *shared(machine, run),
        disk(disk_free_bytes),
        driver(machine),
        Check("loaders", "ok", ", ".join(adapters) or "none is installed that loadeval knows"),
    ]


def cpus(m: Machine) -> Check:
    """One CPU of many is what a batch system gives unasked; a quota is not wrong by itself."""
    cores, there = _cores(m), m.cpus or m.cpus_usable
    if cores <= 1 < there:
        do = "ask for more: --cpus-per-task in Slurm, --cpus in Docker, the CPU limit of the pod"
        return Check("CPUs", "change", f"only {cores:g} of {there} usable", do)
    quota = "" if m.quota_cores is None else f", {m.quota_cores:g} of them at a time (cgroup quota)"
    return Check("CPUs", "ok", f"{m.cpus_usable} of {there} usable{quota}")


def threads(m: Machine) -> Check:
    """Torch takes one for each CPU, knows nothing of quotas, and is told by a variable."""
    cores, most = _cores(m), m.threads or m.cpus_usable
    source = f"{m.threads_from}={most}" if m.threads_from else "one per CPU"
    says = f"torch uses up to {counted(most, 'thread')} in the training process ({source})"
    if most > cores:
        says += f", but only {cores:g} can run at a time"
        return Check("threads", "change", says, f"set OMP_NUM_THREADS={_whole(cores)}")
    return Check("threads", "ok", says)


def workers(m: Machine, run: Run | None) -> Iterator[Check]:
    """More workers than CPUs take them from each other, and from training."""
    if run is None or run.loader.workers is None:
        return
    cores, count = _cores(m), run.loader.workers
    if count > max(cores, 1):
        says = f"{count} on {cores:g} CPUs compete with each other and with training"
        yield Check("workers", "change", says, f"use {_whole(cores)} or fewer")
    else:
        yield Check("workers", "ok", f"{count} on {cores:g} CPUs")


def shared(m: Machine, run: Run | None) -> Iterator[Check]:
    """Whether what workers prefetch finds room, and file descriptors: Docker gives 64 MB.

    By its default sharing strategy torch opens a file for each tensor.
    """
    count, prefetch = _whole(_cores(m)), PREFETCH
    batch_bytes, tensors, pickled_bytes = float(BATCH_BYTES), float(TENSORS), 0.0
    if run is not None:
        loader, stages = run.loader, run.stages
        if loader.workers is not None:
            # Who has threads, as DALI and SPDL, names no start method.
            has_processes = (loader.start_method, loader.persistent_workers) != (None, None)
            count = loader.workers if has_processes else 0
        if loader.workers and loader.prefetch_depth:
            prefetch = max(loader.prefetch_depth // loader.workers, 1)
        batch_bytes = _mean(run.steps.nbytes, batch_bytes)
        tensors = _mean(stages.tensors, tensors) or tensors
        pickled_bytes = _mean(stages.pickled_bytes, 0.0)
    # Where half of a batch or more is pickled, it comes through a pipe.
    batches = count * prefetch + 1 if count and pickled_bytes < batch_bytes / 2 else 0
    ahead = f"({counted(count, 'worker')} x {prefetch} prefetched, and the one in the step)"
    them = f"{batches} batches {ahead}"

    free_bytes = m.shm_free_bytes
    if free_bytes is None:
        yield Check("shared memory", "not measured", "none")
    else:
        room, needed = f"{size(free_bytes)} free", batches * batch_bytes
        if not batches:
            yield Check("shared memory", "ok", f"{room}; not used by this loader")
        elif needed <= free_bytes:
            says = f"{room}; {them} of {size(batch_bytes)} need {size(needed)}"
            yield Check("shared memory", "ok", says)
        else:
            says = f"{room}, but {them} of {size(batch_bytes)} need {size(needed)}"
            do = (
                "make it larger (--shm-size in Docker, an emptyDir of medium Memory in "
                "Kubernetes), or use fewer workers, less prefetch or smaller batches"
            )
            yield Check("shared memory", "change", says, do)

    limit, files = m.open_files, OTHER_FILES + batches * math.ceil(tensors)
    if limit is None:
        yield Check("open files", "not measured", "the system does not report its limit")
    elif files <= limit:
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


def driver(m: Machine) -> Check:
    """A machine without a GPU is in order; a broken driver is to be mended."""
    missing, gpus = m.driver.missing, m.driver.gpus
    if missing is not None and m.driver.broken:
        do = "restart the machine, or load the driver anew"
        return Check("NVIDIA driver", "change", missing, do)
    if missing is not None:
        return Check("NVIDIA driver", "not measured", missing)
    cuda = ", CUDA up to {}.{}".format(*m.driver.cuda) if m.driver.cuda else ""
    kinds = ", ".join(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus))
    return Check("NVIDIA driver", "ok", f"{m.driver.version}{cuda}: {kinds or 'no GPU'}")


def _cores(m: Machine) -> float:
    """How many CPUs' worth of time there is."""
    return min(m.cpus_usable, m.quota_cores or math.inf)


def _whole(cores: float) -> int:
    return max(1, math.floor(cores))


def _mean(column: Column, otherwise: float) -> float:
    known = column[column != UNKNOWN]
    return float(known.mean()) if len(known) else otherwise
