"""Whether a machine is in order for loading data, and what to change.

A check is one function: it looks at the machine, and at the run whose loader is to fit it, where
one is given. Without a run a loader is assumed that has a worker for each CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.estimate.memory import HOUR_NS, LEAST_SHARE, bytes_kept
from loadeval.estimate.steady import epoch_lengths, length_of_epochs, steady
from loadeval.model.costs import worker_bytes
from loadeval.probes.machine import DALI, NVML, WITHOUT_LIMIT
from loadeval.words import counted, duration, size

if TYPE_CHECKING:
    from loadeval.data.columns import Column
    from loadeval.data.run import Run
    from loadeval.probes.machine import Machine

PREFETCH, BATCH_BYTES, TENSORS = 2, 32_000_000, 8
"""Batches ready for each worker, and what one is, where no run tells.

Each of its tensors takes a file descriptor from when it is sent until the step is over.
"""
OTHER_FILES = 128
"""What a training process has open besides: libraries, logs, sockets."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of one thing; `do` says what to change, where something is to be changed."""

    name: str
    status: Literal["ok", "change", "not measured"]
    says: str
    do: str | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """What a loader takes: `batches` of `batch_bytes` in `tensors` at once, `ahead` says which.

    `processes` are those of its `workers` that are no threads. Where its batches are `piped`, half
    of one or more is pickled, and not in shared memory.
    """

    workers: int
    processes: int
    batches: int
    ahead: str
    batch_bytes: float
    tensors: int
    piped: bool


def need_of(m: Machine, run: Run | None) -> Need:
    """The need of the run's loader; without a run, of one that has a worker for each CPU."""
    workers = processes = _whole(_cores(m))
    prefetch, tensors, pickled_bytes = PREFETCH, TENSORS, 0.0
    batch_bytes: float = BATCH_BYTES
    if run is not None:
        loader, stages = run.loader, run.stages
        if loader.workers is not None:
            # Who has threads, as DALI and SPDL, names no start method.
            has_processes = (loader.start_method, loader.persistent_workers) != (None, None)
            workers, processes = loader.workers, loader.workers if has_processes else 0
        if loader.workers and loader.prefetch_depth:
            prefetch = max(loader.prefetch_depth // loader.workers, 1)
        batch_bytes = _mean(run.steps.nbytes, batch_bytes)
        tensors = math.ceil(_mean(stages.tensors, TENSORS) or TENSORS)
        pickled_bytes = _mean(stages.pickled_bytes, 0.0)
    return Need(
        workers,
        processes,
        # Those that workers prefetch, and the one in the step.
        batches=processes * prefetch + 1,
        ahead=f"({counted(processes, 'worker')} x {prefetch} prefetched, and the one in the step)",
        batch_bytes=batch_bytes,
        tensors=tensors,
        piped=run is not None and pickled_bytes >= batch_bytes / 2,
    )


def checkup(machine: Machine, run: Run | None = None) -> list[Check]:
    """Every check, in the order in which they are shown."""
    need = need_of(machine, run)
    checks = [
        cpus(machine),
        threads(machine, run, need),
        workers(machine, run, need),
        shared_memory(machine, need),
        open_files(machine, need),
        start_method(machine),
        nvidia_driver(machine),
        nvml(machine),
        gpm(machine),
        dali(machine),
    ]
    return checks if run is None else [*checks, memory(machine, run, need)]


def cpus(m: Machine) -> Check:
    """One CPU of many is what a batch system gives unasked; a quota is not wrong by itself."""
    cores, there = _cores(m), m.cpus or m.cpus_usable
    if cores <= 1 < there:
        do = (
            "ask for more, with --cpus-per-task in Slurm, --cpus in Docker, or the CPU limit of "
            "the pod"
        )
        return Check("CPUs", "change", f"only {cores:g} of {there} usable", do)
    quota = "" if m.quota_cores is None else f", {m.quota_cores:g} of them at a time (cgroup quota)"
    return Check("CPUs", "ok", f"{m.cpus_usable} of {there} usable{quota}")


def threads(m: Machine, run: Run | None, need: Need) -> Check:
    """Torch takes one for each CPU, knows nothing of quotas, and is told by a variable."""
    cores, most = _cores(m), m.threads or m.cpus_usable
    source = f"{m.threads_from}={most}" if m.threads_from else "one per CPU"
    says = f"torch uses up to {counted(most, 'thread')} in the training process ({source})"
    if most > cores:
        says += f", but only {cores:g} can run at a time"
        return Check("threads", "change", says, f"set OMP_NUM_THREADS={_whole(cores)}")
    # Without a GPU the step computes on the CPUs that workers need.
    of_workers = (run.loader.workers or 0) if run is not None and not m.driver.gpus else 0
    left = _whole(cores - of_workers)
    if of_workers and most > left:
        says += f", and {counted(of_workers, 'worker')} one each, on {cores:g} CPUs without a GPU"
        return Check("threads", "change", says, f"set OMP_NUM_THREADS={left}")
    if most > 1 and need.processes:
        says += f"; in each worker torch uses 1, other libraries up to {most}"
    return Check("threads", "ok", says)


def workers(m: Machine, run: Run | None, need: Need) -> Check:
    """More workers than CPUs take them from each other, and from training."""
    cores, count = _cores(m), need.workers
    if count > max(cores, 1):
        says = f"{count} on {cores:g} CPUs compete with each other and with training"
        return Check("workers", "change", says, f"use {_whole(cores)} or fewer")
    if run is None or run.loader.workers is None:
        says = f"up to {count}, one per CPU; give a run to check its own"
        return Check("workers", "ok", says)
    return Check("workers", "ok", f"{count} on {cores:g} CPUs")


def shared_memory(m: Machine, need: Need) -> Check:
    """Whether there is room for the batches that workers have made: Docker gives 64 MB."""
    if m.shm_free_bytes is None:
        return Check("shared memory", "not measured", "none")
    room = f"{size(m.shm_free_bytes)} free of {size(m.shm_bytes or m.shm_free_bytes)}"
    if not need.processes:
        why = ": workers are threads" if need.workers else " without workers"
        return Check("shared memory", "ok", f"{room}; not used{why}")
    if need.piped:
        says = f"{room}; not used: batches are pickled through a pipe"
        return Check("shared memory", "ok", says)
    each, needed = need.batch_bytes, need.batches * need.batch_bytes
    says = f"{room}; {need.batches} batches of {size(each)} {need.ahead} need {size(needed)}"
    if needed <= m.shm_free_bytes:
        return Check("shared memory", "ok", says)
    do = (
        "make it larger (--shm-size in Docker, an emptyDir of medium Memory in Kubernetes), or use "
        "fewer workers, less prefetch or smaller batches"
    )
    return Check("shared memory", "change", says, do)


def open_files(m: Machine, need: Need) -> Check:
    """Whether the tensors of the batches in shared memory have file descriptors."""
    limit, most = m.open_files, m.open_files_at_most
    if limit is None:
        return Check("open files", "not measured", "the system does not report its limit")
    if limit == WITHOUT_LIMIT:
        return Check("open files", "ok", "no limit")
    sent = need.batches if need.processes and not need.piped else 0
    needed = OTHER_FILES + sent * need.tensors
    if needed <= limit:
        return Check("open files", "ok", f"{limit:,} at most")
    says = (
        f"{limit:,} at most, but {need.batches} batches of {need.tensors} tensors {need.ahead} may "
        f"need {needed:,}"
    )
    allowed = "" if most is None or most == WITHOUT_LIMIT else f" (up to {most:,} allowed)"
    do = (
        f"run ulimit -n {2 * needed}{allowed}, or "
        "torch.multiprocessing.set_sharing_strategy('file_system')"
    )
    return Check("open files", "change", says, do)


def start_method(m: Machine) -> Check:
    """How workers begin, unless the loader is told otherwise: each way has its price."""
    prices = {
        "fork": "workers share the training process's memory until either writes to it",
        "forkserver": (
            "workers unpickle the dataset again: persistent_workers=True starts them once"
        ),
        "spawn": "workers import and unpickle again: persistent_workers=True starts them once",
    }
    price = prices.get(m.start_method, "its cost is not known")
    return Check("start method", "ok", f"{m.start_method}: {price}")


def nvidia_driver(m: Machine) -> Check:
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


def nvml(m: Machine) -> Check:
    """The package that asks the driver."""
    package = f"{NVML} {m.packages.get(NVML, 'of unknown version')}"
    if m.driver.missing is not None:
        return Check("NVML", "not measured", f"{package}, but no driver answers")
    return Check("NVML", "ok", package)


def gpm(m: Machine) -> Check:
    """The GPUs' performance counters: never to be changed, for they are a matter of the GPU."""
    support = m.driver.gpm
    if not support:
        return Check("GPM", "not measured", m.driver.missing or "no GPU")
    if None in support:
        says = "the driver does not say whether it supports GPM"
        return Check("GPM", "not measured", says)
    if not all(support):
        says = "not on every GPU (Hopper or newer have it): utilisation is coarser there"
        return Check("GPM", "ok", says)
    return Check("GPM", "ok", "the GPU's performance counters can be read")


def dali(m: Machine) -> Check:
    """Only its own pipelines need it; the driver has to run the CUDA that it was built for."""
    builds = {name: version for name, version in m.packages.items() if name.startswith(DALI)}
    if not builds:
        return Check("DALI", "ok", "not installed: only DALI pipelines need it")
    packages = ", ".join(f"{name} {version}" for name, version in builds.items())
    needed = min(int(name.removeprefix(DALI)) // 10 for name in builds)
    if m.driver.cuda is None or needed <= m.driver.cuda[0]:
        return Check("DALI", "ok", packages)
    major, minor = m.driver.cuda
    says = f"{packages} is built for CUDA {needed}, but the driver runs CUDA up to {major}.{minor}"
    return Check("DALI", "change", says, f"install {DALI}{major}0, or a newer driver")


def memory(m: Machine, run: Run, need: Need) -> Check:
    """Whether what the run took fits, and for how long: the kernel kills who wants more."""
    available, count = m.memory_available_bytes, need.processes
    if available is None:
        return Check("memory", "not measured", "the system does not report its memory")
    read = run.readings.get(("host", "process"), Columns({}))
    own = [read[name] for name in ("anonymous_bytes", "rss_bytes") if name in read]
    process = next((np.nanmax(values) for values in own if not np.isnan(values).all()), None)
    each = worker_bytes(run) if count else 0.0
    if process is None or each is None:
        says = (
            "the run has no readings of the memory of training and its workers: record one with "
            "system metrics"
        )
        return Check("memory", "not measured", says)
    left = available - (process + count * each + need.batches * need.batch_bytes)
    of_workers = f"{counted(count, 'worker')} with {size(each)} each and " if count else "and "
    says = (
        f"{size(available)} available of {size(m.memory_bytes or available)}; training with "
        f"{size(process)}, {of_workers}{counted(need.batches, 'batch', 'batches')} of "
        f"{size(need.batch_bytes)} need {size(available - left)}"
    )
    if left < 0:
        says += ", and the kernel will kill a process"
        do = "use fewer workers, less prefetch or smaller batches, or ask for more memory"
        return Check("memory", "change", says, do)
    kept, steps = bytes_kept(run), run.steps.take(steady(run, "real"))
    if not kept or not len(steps):
        return Check("memory", "ok", says)
    # Workers that start anew in each epoch keep nothing longer.
    start_anew = len({start.epoch for start in run.worker_starts}) > 1
    epoch = length_of_epochs(run) or max(epoch_lengths(run).values())
    fills = left / kept
    fills_ns = fills * float((steps.wait_ns + steps.step_ns).mean())
    if (start_anew and fills > epoch) or fills_ns > HOUR_NS / LEAST_SHARE:
        return Check("memory", "ok", says)
    says += (
        f", and workers keep {size(kept)} more of each batch: after {fills:,.0f} batches "
        f"({fills / epoch:.1f} epochs, {duration(fills_ns)}) memory is full and the kernel kills a "
        "process"
    )
    return Check("memory", "change", says, "bound what they keep, such as caches")


def _cores(m: Machine) -> float:
    """How many CPUs' worth of time there is."""
    return min(m.cpus_usable, m.quota_cores or math.inf)


def _whole(cores: float) -> int:
    return max(1, math.floor(cores))


def _mean(column: Column, otherwise: float) -> float:
    known = column[column != UNKNOWN]
    return float(known.mean()) if len(known) else otherwise
