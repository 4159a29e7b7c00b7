"""Whether a machine is in order for loading data, and what to change: codes and numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from loadeval.analysis.remark import Remark
from loadeval.probes.machine import DALI, NVML, WITHOUT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loadeval.analysis.remark import Value
    from loadeval.probes.machine import Machine

DEFAULT_PREFETCH = 2
DEFAULT_BATCH_BYTES = 32_000_000
TENSORS = 8
"""Tensors in a batch. Each takes a file descriptor from when it is sent until the step is over."""
LONGEST_NS = 100 * 3.6e12
"""Memory that is full after more than 100 hours of training is taken to be enough."""
OTHER_FILES = 128
"""What a training process has open besides: libraries, logs, sockets."""


class CheckStatus(Enum):
    """What a check came to."""

    OK = "ok"
    CHANGE = "change"
    NOT_MEASURED = "not measured"


class DoctorCode(Enum):
    """What a check found."""

    CPUS = "cpus"
    CPUS_UNDER_QUOTA = "cpus under quota"
    ONE_CPU_OF_MANY = "one cpu of many"
    THREADS = "threads"
    MORE_THREADS_THAN_CPUS = "more threads than cpus"
    THREADS_AND_WORKERS = "threads and workers compete"
    WORKERS = "workers"
    WORKERS_ASSUMED = "workers assumed"
    MORE_WORKERS_THAN_CPUS = "more workers than cpus"
    NO_SHARED_MEMORY = "no shared memory"
    SHARED_MEMORY_UNUSED = "shared memory unused"
    SHARED_MEMORY_PASSED_BY = "shared memory passed by"
    SHARED_MEMORY = "shared memory"
    SHARED_MEMORY_TOO_SMALL = "shared memory too small"
    OPEN_FILES_NOT_KNOWN = "open files not known"
    OPEN_FILES_UNLIMITED = "open files unlimited"
    OPEN_FILES = "open files"
    OPEN_FILES_TOO_FEW = "open files too few"
    START_METHOD = "start method"
    DRIVER = "driver"
    NO_DRIVER = "no driver"
    BROKEN_DRIVER = "broken driver"
    NVML = "nvml"
    NVML_WITHOUT_DRIVER = "nvml without driver"
    NO_GPU = "no gpu"
    GPM = "gpm"
    GPM_NOT_ON_ALL = "gpm not on all"
    GPM_NOT_KNOWN = "gpm not known"
    NO_DALI = "no dali"
    DALI = "dali"
    DALI_FOR_NEWER_CUDA = "dali for newer cuda"
    MEMORY_NOT_KNOWN = "memory not known"
    MEMORY_NOT_READ = "memory not read"
    MEMORY = "memory"
    MEMORY_TOO_SMALL = "memory too small"
    MEMORY_FILLS = "memory fills"


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """One thing that was looked at; `remark` is a DoctorCode and its numbers."""

    name: str
    status: CheckStatus
    remark: Remark


@dataclass(frozen=True, slots=True)
class RunMemory:
    """What a run took of memory: training, each worker, and what workers keep more of each batch.

    An epoch has `epoch_batches`, each of which takes `iteration_ns`. Workers that `start_anew` in
    each epoch keep nothing longer. `by_pipe` tells that batches are pickled, and are not in shared
    memory. None is not known.
    """

    process_bytes: float | None
    worker_bytes: float | None
    kept_bytes: float
    epoch_batches: float
    iteration_ns: float
    start_anew: bool
    by_pipe: bool


@dataclass(frozen=True, slots=True)
class LoaderPlan:
    """The loader that the machine is judged for.

    `workers` is None where as many as there are CPUs are assumed, and `memory` where no run was
    given.
    """

    workers: int | None = None
    prefetch: int = DEFAULT_PREFETCH
    batch_bytes: int = DEFAULT_BATCH_BYTES
    memory: RunMemory | None = None


Result: TypeAlias = tuple[CheckStatus, Remark]


def checkup(machine: Machine, plan: LoaderPlan) -> tuple[MachineCheck, ...]:
    """Every check, in the order in which they are shown; memory is one of a run's loader."""
    checks = [MachineCheck(name, *check(machine, plan)) for name, check in CHECKS.items()]
    if plan.memory is not None:
        checks.append(MachineCheck("memory", *_memory(machine, plan, plan.memory)))
    return tuple(checks)


def _cpus(machine: Machine, _: LoaderPlan) -> Result:
    cores, cpus = _cores(machine), machine.cpus or machine.cpus_usable
    if cores <= 1 < cpus:
        return _change(DoctorCode.ONE_CPU_OF_MANY, cores=cores, cpus=cpus)
    if machine.quota_cores is None:
        return _ok(DoctorCode.CPUS, cpus_usable=machine.cpus_usable, cpus=cpus)
    return _ok(
        DoctorCode.CPUS_UNDER_QUOTA,
        cpus_usable=machine.cpus_usable,
        cpus=cpus,
        quota_cores=machine.quota_cores,
    )


def _threads(machine: Machine, plan: LoaderPlan) -> Result:
    """Whether torch's threads have CPUs to run on."""
    cores, workers = _cores(machine), _workers_of(machine, plan)
    threads = machine.threads or machine.cpus_usable
    values: dict[str, Value] = {"threads": threads, "threads_from": machine.threads_from}
    if threads > cores:
        return _change(
            DoctorCode.MORE_THREADS_THAN_CPUS, **values, cores=cores, most_threads=_whole(cores)
        )
    # Without a GPU the step computes on the CPUs that the workers need.
    left = _whole(cores - workers)
    if plan.workers and not machine.driver.gpus and threads > left:
        return _change(
            DoctorCode.THREADS_AND_WORKERS,
            **values,
            workers=workers,
            cores=cores,
            most_threads=left,
        )
    return _ok(DoctorCode.THREADS, **values)


def _workers(machine: Machine, plan: LoaderPlan) -> Result:
    cores, workers = _cores(machine), _workers_of(machine, plan)
    if workers > cores and workers > 1:
        return _change(
            DoctorCode.MORE_WORKERS_THAN_CPUS,
            workers=workers,
            cores=cores,
            most_workers=_whole(cores),
        )
    if plan.workers is None:
        return _ok(DoctorCode.WORKERS_ASSUMED, workers=workers)
    return _ok(DoctorCode.WORKERS, workers=workers, cores=cores)


def _shared_memory(machine: Machine, plan: LoaderPlan) -> Result:
    """Whether there is room for the batches that workers have made."""
    free_bytes, batches = machine.shm_free_bytes, _batches(machine, plan)
    if free_bytes is None:
        return _not_measured(DoctorCode.NO_SHARED_MEMORY)
    room: dict[str, Value] = {
        "free_bytes": free_bytes,
        "total_bytes": machine.shm_bytes or free_bytes,
    }
    if not batches:
        return _ok(DoctorCode.SHARED_MEMORY_UNUSED, **room)
    if plan.memory is not None and plan.memory.by_pipe:
        return _ok(DoctorCode.SHARED_MEMORY_PASSED_BY, **room)
    needed_bytes = batches["batches"] * plan.batch_bytes
    values = room | batches | {"batch_bytes": plan.batch_bytes, "needed_bytes": needed_bytes}
    if needed_bytes > free_bytes:
        return _change(DoctorCode.SHARED_MEMORY_TOO_SMALL, **values)
    return _ok(DoctorCode.SHARED_MEMORY, **values)


def _open_files(machine: Machine, plan: LoaderPlan) -> Result:
    """Whether the tensors of the same batches have file descriptors."""
    limit, batches = machine.open_files, _batches(machine, plan)
    if limit is None:
        return _not_measured(DoctorCode.OPEN_FILES_NOT_KNOWN)
    if limit == WITHOUT_LIMIT:
        return _ok(DoctorCode.OPEN_FILES_UNLIMITED)
    needed = OTHER_FILES + batches.get("batches", 0) * TENSORS
    if needed <= limit:
        return _ok(DoctorCode.OPEN_FILES, limit=limit)
    most = machine.open_files_at_most
    return _change(
        DoctorCode.OPEN_FILES_TOO_FEW,
        limit=limit,
        most=None if most == WITHOUT_LIMIT else most,
        **batches,
        tensors=TENSORS,
        needed=needed,
        suggested=2 * needed,
    )


def _start_method(machine: Machine, _: LoaderPlan) -> Result:
    """How workers begin, unless the loader is told otherwise."""
    return _ok(DoctorCode.START_METHOD, start_method=machine.start_method)


def _driver(machine: Machine, _: LoaderPlan) -> Result:
    driver = machine.driver
    if driver.missing is not None:
        if driver.broken:
            return _change(DoctorCode.BROKEN_DRIVER, missing=driver.missing)
        return _not_measured(DoctorCode.NO_DRIVER, missing=driver.missing)
    major, minor = driver.cuda or (None, None)
    kinds = [f"{driver.gpus.count(name)} x {name}" for name in dict.fromkeys(driver.gpus)]
    return _ok(
        DoctorCode.DRIVER,
        version=driver.version,
        cuda_major=major,
        cuda_minor=minor,
        gpus=", ".join(kinds) or None,
    )


def _nvml(machine: Machine, _: LoaderPlan) -> Result:
    """The package that asks the driver."""
    values: dict[str, Value] = {"package": NVML, "version": machine.packages.get(NVML)}
    if machine.driver.missing is not None:
        return _not_measured(DoctorCode.NVML_WITHOUT_DRIVER, **values)
    return _ok(DoctorCode.NVML, **values)


def _gpm(machine: Machine, _: LoaderPlan) -> Result:
    """The GPUs' performance counters."""
    support = machine.driver.gpm
    if not support:
        missing = machine.driver.missing
        if missing is not None:
            return _not_measured(DoctorCode.NO_DRIVER, missing=missing)
        return _not_measured(DoctorCode.NO_GPU)
    if None in support:
        return _not_measured(DoctorCode.GPM_NOT_KNOWN)
    return _ok(DoctorCode.GPM if all(support) else DoctorCode.GPM_NOT_ON_ALL)


def _dali(machine: Machine, _: LoaderPlan) -> Result:
    """DALI, and whether the driver runs the CUDA that it was built for."""
    versions = {
        name: version for name, version in machine.packages.items() if name.startswith(DALI)
    }
    if not versions:
        return _ok(DoctorCode.NO_DALI)
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    needed = min(int(name.removeprefix(DALI)) // 10 for name in versions)
    cuda = machine.driver.cuda
    if cuda is None or needed <= cuda[0]:
        return _ok(DoctorCode.DALI, packages=packages)
    return _change(
        DoctorCode.DALI_FOR_NEWER_CUDA,
        packages=packages,
        needed_cuda_major=needed,
        cuda_major=cuda[0],
        cuda_minor=cuda[1],
        package=f"{DALI}{cuda[0]}0",
    )


def _memory(machine: Machine, plan: LoaderPlan, run: RunMemory) -> Result:
    """Whether what the run took fits, and for how long: the kernel kills who wants more."""
    available_bytes, workers = machine.memory_available_bytes, _workers_of(machine, plan)
    if available_bytes is None:
        return _not_measured(DoctorCode.MEMORY_NOT_KNOWN)
    if run.process_bytes is None or (workers and run.worker_bytes is None):
        return _not_measured(DoctorCode.MEMORY_NOT_READ)
    batches = _batches(machine, plan).get("batches", 1)
    workers_bytes = workers * (run.worker_bytes or 0.0)
    needed_bytes = run.process_bytes + workers_bytes + batches * plan.batch_bytes
    values: dict[str, Value] = {
        "available_bytes": available_bytes,
        "memory_bytes": machine.memory_bytes or available_bytes,
        "process_bytes": run.process_bytes,
        "workers": workers,
        "worker_bytes": run.worker_bytes,
        "batches": batches,
        "batch_bytes": plan.batch_bytes,
        "needed_bytes": needed_bytes,
    }
    if needed_bytes > available_bytes:
        return _change(DoctorCode.MEMORY_TOO_SMALL, **values)
    fills = (available_bytes - needed_bytes) / run.kept_bytes if run.kept_bytes else math.inf
    is_over = run.start_anew and fills > run.epoch_batches
    if not workers or is_over or fills * run.iteration_ns > LONGEST_NS:
        return _ok(DoctorCode.MEMORY, **values)
    return _change(
        DoctorCode.MEMORY_FILLS,
        **values,
        kept_bytes=run.kept_bytes,
        fills_batches=round(fills),
        fills_epochs=fills / run.epoch_batches,
        fills_ns=fills * run.iteration_ns,
    )


CHECKS: Mapping[str, Callable[[Machine, LoaderPlan], Result]] = {
    "CPUs": _cpus,
    "threads": _threads,
    "workers": _workers,
    "shared memory": _shared_memory,
    "open files": _open_files,
    "start method": _start_method,
    "NVIDIA driver": _driver,
    "NVML": _nvml,
    "GPM": _gpm,
    "DALI": _dali,
}


def _cores(machine: Machine) -> float:
    """How many CPUs' worth of time there is."""
    quota = math.inf if machine.quota_cores is None else machine.quota_cores
    return min(machine.cpus_usable, quota)


def _whole(cores: float) -> int:
    """The whole CPUs among `cores`, 1 at least."""
    return max(1, math.floor(cores))


def _workers_of(machine: Machine, plan: LoaderPlan) -> int:
    return _whole(_cores(machine)) if plan.workers is None else plan.workers


def _batches(machine: Machine, plan: LoaderPlan) -> dict[str, int]:
    """The batches that exist at once: those that workers prefetch, and the one in the step.

    Empty without workers, whose batches never leave the training process.
    """
    workers = _workers_of(machine, plan)
    if not workers:
        return {}
    count = workers * plan.prefetch + 1
    return {"batches": count, "workers": workers, "prefetch": plan.prefetch}


def _ok(code: DoctorCode, **values: Value) -> Result:
    return CheckStatus.OK, Remark(code, values)


def _change(code: DoctorCode, **values: Value) -> Result:
    return CheckStatus.CHANGE, Remark(code, values)


def _not_measured(code: DoctorCode, **values: Value) -> Result:
    return CheckStatus.NOT_MEASURED, Remark(code, values)
