"""Checks of CPUs, memory and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.doctor_check import Check, cores_of, counted, size, whole, workers_of
from loadeval.probes.machine import WITHOUT_LIMIT

if TYPE_CHECKING:
    from loadeval.analysis.doctor_check import Plan
    from loadeval.probes.machine import Machine

TENSORS = 8
"""In a batch, each of which takes a file descriptor while it waits in a queue."""
OTHER_FILES = 128
"""What a training process has open beside: libraries, logs, sockets."""
STARTING = {
    "fork": "workers share the memory of the training process until either writes to it",
    "forkserver": "workers unpickle the dataset anew: persistent_workers=True starts them once",
    "spawn": "workers import and unpickle anew: persistent_workers=True starts them once",
}


def cpus(machine: Machine, _: Plan) -> Check:
    """How many CPUs there are for this process."""
    all_of_them = machine.cpus or machine.cpus_usable
    found = f"{machine.cpus_usable} of {all_of_them} may be used"
    if machine.quota_cores is not None:
        found += f", and {machine.quota_cores:g} of them at a time (quota of a control group)"
    if cores_of(machine) <= 1 < all_of_them:
        return Check(
            "CPUs",
            "change",
            f"{found}: ask for more, by --cpus-per-task in Slurm, --cpus in Docker, or the CPU "
            "limit of the pod",
        )
    return Check("CPUs", "ok", found)


def threads(machine: Machine, plan: Plan) -> Check:
    """Whether torch's threads have CPUs to run on."""
    cores, workers = cores_of(machine), workers_of(machine, plan)
    threads = machine.threads or machine.cpus_usable
    source = f"{machine.threads_from}={threads}" if machine.threads else "one for each CPU"
    found = f"torch takes up to {counted(threads, 'thread')} in the training process ({source})"
    if threads > cores:
        return Check(
            "threads",
            "change",
            f"{found}, where {cores:g} can run at a time: set OMP_NUM_THREADS={whole(cores)}",
        )
    if plan.workers and not machine.driver.gpus and threads + workers > cores:
        rest = whole(cores - workers)
        if threads > rest:
            return Check(
                "threads",
                "change",
                f"{found}, and {counted(workers, 'worker')} 1 each, on {cores:g} CPUs without a "
                f"GPU: set OMP_NUM_THREADS={rest}",
            )
    elsewhere = f"; in each worker 1, other libraries there up to {threads}" if threads > 1 else ""
    return Check("threads", "ok", f"{found}{elsewhere}")


def workers(machine: Machine, plan: Plan) -> Check:
    """Whether the workers have CPUs to run on."""
    cores, workers = cores_of(machine), workers_of(machine, plan)
    if workers > cores and workers > 1:
        return Check(
            "workers",
            "change",
            f"{workers} on {cores:g} CPUs take the time from one another and from training: use "
            f"{whole(cores)} or fewer",
        )
    if plan.workers is None:
        return Check("workers", "ok", f"up to {workers}, one for each CPU (--workers)")
    return Check("workers", "ok", f"{workers} on {cores:g} CPUs")


def shared_memory(machine: Machine, plan: Plan) -> Check:
    """Whether the batches that wait have room where workers put them."""
    free, workers = machine.shm_free_bytes, workers_of(machine, plan)
    if free is None:
        return Check("shared memory", "not measured", "there is none")
    # One more is held by the training step.
    needed = (workers * plan.prefetch + 1) * plan.batch_bytes if workers else 0
    found = f"{size(free)} free of {size(machine.shm_bytes or free)}"
    purpose = (
        f"{counted(workers, 'worker')} x {plan.prefetch} batches of {size(plan.batch_bytes)} "
        f"ahead take {size(needed)}"
    )
    if needed > free:
        return Check(
            "shared memory",
            "change",
            f"{found}, and {purpose}: make it larger (--shm-size in Docker, an emptyDir of medium "
            "Memory in Kubernetes), or use fewer workers, less prefetch or smaller batches",
        )
    return Check("shared memory", "ok", f"{found}; {purpose} (--batch-bytes, --prefetch)")


def open_files(machine: Machine, plan: Plan) -> Check:
    """Whether the batches that wait have file descriptors."""
    limit = machine.open_files
    if limit is None:
        return Check("open files", "not measured", "this system tells no limit")
    if limit == WITHOUT_LIMIT:
        return Check("open files", "ok", "no limit")
    workers = workers_of(machine, plan)
    needed = OTHER_FILES + workers * plan.prefetch * TENSORS
    found = f"{limit:,} at most"
    if needed > limit:
        highest = machine.open_files_at_most
        allowed = "" if highest in (None, WITHOUT_LIMIT) else f" (up to {highest:,} is allowed)"
        return Check(
            "open files",
            "change",
            f"{found}, and {counted(workers, 'worker')} x {plan.prefetch} batches of {TENSORS} "
            f"tensors may take {needed:,}: ulimit -n {needed * 2}{allowed}, or "
            "torch.multiprocessing.set_sharing_strategy('file_system')",
        )
    return Check("open files", "ok", found)


def start_method(machine: Machine, _: Plan) -> Check:
    """How workers begin, unless the loader is told otherwise."""
    method = machine.start_method
    return Check("start method", "ok", f"{method}: {STARTING.get(method, 'not known here')}")


def page_cache(machine: Machine, plan: Plan) -> Check:
    """Whether the data set can stay in memory from epoch to epoch."""
    room = machine.memory_available_bytes
    found = f"room for {size(room)} of files in {size(machine.memory_bytes)} of memory"
    if plan.data is None:
        return Check(
            "page cache", "not measured", f"{found}; tell of the data by --data or --data-bytes"
        )
    least = "" if plan.data.whole else "at least "
    data = f"{least}{size(plan.data.nbytes)}"
    if plan.data.nbytes > room:
        return Check(
            "page cache",
            "change",
            f"{found}, and {data} of data: each epoch reads from the disk, so use a fast one, "
            "smaller files, or more memory",
        )
    if not plan.data.whole:
        return Check("page cache", "not measured", f"{found}, and {data} of data: --data-bytes")
    return Check("page cache", "ok", f"{found}, and {data} of data, which may stay there")
