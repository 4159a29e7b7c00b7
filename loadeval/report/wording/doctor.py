"""The checks of `loadeval doctor` in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadeval.analysis.doctor import DoctorCode
from loadeval.report.formatting import counted, filled, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loadeval.analysis.doctor import MachineCheck

THREADS = "torch uses up to {thread_count} in the training process ({thread_source})"
ROOM = "{free_bytes:size} free of {total_bytes:size}"
AHEAD = "({worker_count} x {prefetch} prefetched, and the one in the step)"
NEEDED = f"{ROOM}; {{batches}} batches of {{batch_bytes:size}} {AHEAD} need {{needed_bytes:size}}"
TAKEN = (
    "{available_bytes:size} available of {memory_bytes:size}; training with {process_bytes:size}, "
    "{worker_memory}{batch_count} of {batch_bytes:size} need {needed_bytes:size}"
)

SENTENCES = {
    DoctorCode.CPUS: "{cpus_usable} of {cpus} usable",
    DoctorCode.CPUS_UNDER_QUOTA: (
        "{cpus_usable} of {cpus} usable, {quota_cores:g} of them at a time (cgroup quota)"
    ),
    DoctorCode.ONE_CPU_OF_MANY: (
        "only {cores:g} of {cpus} usable: ask for more, with --cpus-per-task in Slurm, --cpus in "
        "Docker, or the CPU limit of the pod"
    ),
    DoctorCode.THREADS: f"{THREADS}{{other_threads}}",
    DoctorCode.MORE_THREADS_THAN_CPUS: (
        f"{THREADS}, but only {{cores:g}} can run at a time: set OMP_NUM_THREADS={{most_threads}}"
    ),
    DoctorCode.THREADS_AND_WORKERS: (
        f"{THREADS}, and {{worker_count}} one each, on {{cores:g}} CPUs without a GPU: set "
        "OMP_NUM_THREADS={most_threads}"
    ),
    DoctorCode.WORKERS: "{workers} on {cores:g} CPUs",
    DoctorCode.WORKERS_ASSUMED: "up to {workers}, one per CPU; give a run to check its own",
    DoctorCode.MORE_WORKERS_THAN_CPUS: (
        "{workers} on {cores:g} CPUs compete with each other and with training: use "
        "{most_workers} or fewer"
    ),
    DoctorCode.NO_SHARED_MEMORY: "none",
    DoctorCode.SHARED_MEMORY_UNUSED: f"{ROOM}; not used without workers",
    DoctorCode.SHARED_MEMORY_PASSED_BY: f"{ROOM}; not used: batches are pickled through a pipe",
    DoctorCode.SHARED_MEMORY: NEEDED,
    DoctorCode.SHARED_MEMORY_TOO_SMALL: (
        f"{NEEDED}: make it larger (--shm-size in Docker, an emptyDir of medium Memory in "
        "Kubernetes), or use fewer workers, less prefetch or smaller batches"
    ),
    DoctorCode.OPEN_FILES_NOT_KNOWN: "the system does not report its limit",
    DoctorCode.OPEN_FILES_UNLIMITED: "no limit",
    DoctorCode.OPEN_FILES: "{limit:,} at most",
    DoctorCode.OPEN_FILES_TOO_FEW: (
        f"{{limit:,}} at most, but {{batches}} batches of {{tensors}} tensors {AHEAD} may need "
        "{needed:,}: run ulimit -n {suggested}{allowed}, or "
        "torch.multiprocessing.set_sharing_strategy('file_system')"
    ),
    DoctorCode.START_METHOD: "{start_method}: {start_cost}",
    DoctorCode.DRIVER: "{version}{cuda}: {gpu_names}",
    DoctorCode.NO_DRIVER: "{missing}",
    DoctorCode.BROKEN_DRIVER: "{missing}",
    DoctorCode.NVML: "{package} {known_version}",
    DoctorCode.NVML_WITHOUT_DRIVER: "{package} {known_version}, but no driver answers",
    DoctorCode.NO_GPU: "no GPU",
    DoctorCode.GPM: "the GPU's performance counters can be read",
    DoctorCode.GPM_NOT_ON_ALL: (
        "not on every GPU (Hopper or newer have it): utilisation is coarser there"
    ),
    DoctorCode.GPM_NOT_KNOWN: "the driver does not say whether it supports GPM",
    DoctorCode.NO_DALI: "not installed: only DALI pipelines need it",
    DoctorCode.DALI: "{packages}",
    DoctorCode.DALI_FOR_NEWER_CUDA: (
        "{packages} is built for CUDA {needed_cuda_major}, but the driver runs CUDA up to "
        "{cuda_major}.{cuda_minor}: install {package}, or a newer driver"
    ),
    DoctorCode.MEMORY_NOT_KNOWN: "the system does not report its memory",
    DoctorCode.MEMORY_NOT_READ: (
        "the run has no readings of the memory of training and its workers: record one with "
        "system metrics"
    ),
    DoctorCode.MEMORY: TAKEN,
    DoctorCode.MEMORY_TOO_SMALL: (
        f"{TAKEN}, and the kernel will kill a process: use fewer workers, less prefetch or smaller "
        "batches, or ask for more memory"
    ),
    DoctorCode.MEMORY_FILLS: (
        f"{TAKEN}, and workers keep {{kept_bytes:size}} more of each batch: after "
        "{fills_batches:,} batches ({fills_epochs:.1f} epochs, {fills_ns:duration}) memory is full "
        "and the kernel kills a process, so bound what they keep, such as caches"
    ),
}

START_COSTS = {
    "fork": "workers share the training process's memory until either writes to it",
    "forkserver": "workers unpickle the dataset again: persistent_workers=True starts them once",
    "spawn": "workers import and unpickle again: persistent_workers=True starts them once",
}

CLAUSES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "thread_count": lambda values: counted(values["threads"], "thread", "threads"),
    "thread_source": lambda values: (
        "{threads_from}={threads}".format_map(values) if values["threads_from"] else "one per CPU"
    ),
    "other_threads": lambda values: (
        "; in each worker torch uses 1, other libraries up to {threads}".format_map(values)
        if values["threads"] > 1
        else ""
    ),
    "worker_count": lambda values: counted(values["workers"], "worker", "workers"),
    "worker_memory": lambda values: (
        f"{counted(values['workers'], 'worker', 'workers')} with {size(values['worker_bytes'])} "
        "each and "
        if values["workers"]
        else "and "
    ),
    "batch_count": lambda values: counted(values["batches"], "batch", "batches"),
    "allowed": lambda values: (
        "" if values["most"] is None else f" (up to {values['most']:,} allowed)"
    ),
    "start_cost": lambda values: START_COSTS.get(values["start_method"], "its cost is not known"),
    "cuda": lambda values: (
        ""
        if values["cuda_major"] is None
        else ", CUDA up to {cuda_major}.{cuda_minor}".format_map(values)
    ),
    "gpu_names": lambda values: values["gpus"] or "no GPU",
    "known_version": lambda values: values["version"] or "of unknown version",
}
"""Parts of sentences that numbers alone do not make, by the name that SENTENCES has for them."""


class _WithClauses(dict[str, Any]):
    def __missing__(self, clause: str) -> str:
        return CLAUSES[clause](self)


def check_text(check: MachineCheck) -> str:
    """What was found, and after a colon what to change."""
    return filled(SENTENCES[DoctorCode(check.remark.code)], _WithClauses(check.remark.values))
