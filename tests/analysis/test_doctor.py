"""What is in order on a machine, and what is to be changed, by facts that are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadeval.analysis.doctor import (
    CHECKS,
    CheckStatus,
    DoctorCode,
    LoaderPlan,
    RunMemory,
    checkup,
)
from loadeval.probes.gpu import Driver
from loadeval.probes.machine import WITHOUT_LIMIT, Machine

GB = 10**9
OK, CHANGE, NOT_MEASURED = CheckStatus
Code = DoctorCode
H100 = Driver("550.54.15", (12, 4), ("NVIDIA H100",) * 2, (True, True))
NO_GPU = Driver(missing="no NVIDIA driver found")
FINE = Machine(
    cpus=64,
    cpus_usable=64,
    quota_cores=None,
    threads=None,
    threads_from=None,
    shm_bytes=64 * GB,
    shm_free_bytes=60 * GB,
    open_files=65_536,
    open_files_at_most=65_536,
    start_method="fork",
    memory_bytes=256 * GB,
    memory_available_bytes=200 * GB,
    driver=H100,
    packages={"nvidia-ml-py": "13.0", "nvidia-dali-cuda120": "1.51.2"},
)


PLAN = LoaderPlan()
NO_DRIVER = {"driver": NO_GPU}
SMALL = {"cpus_usable": 8, "driver": NO_GPU}
FOR_CUDA_13 = {"packages": {"nvidia-dali-cuda130": "2.4.0"}}


def openmp(threads: int) -> dict[str, Any]:
    return {"threads": threads, "threads_from": "OMP_NUM_THREADS"}


def shm(free_bytes: int | None) -> dict[str, Any]:
    return {"shm_free_bytes": free_bytes}


def files(limit: int | None, most: int | None = 4096) -> dict[str, Any]:
    return {"open_files": limit, "open_files_at_most": most}


def gpm(*support: bool | None) -> dict[str, Any]:
    return {"driver": replace(H100, gpm=support)}


def workers(count: int) -> LoaderPlan:
    return LoaderPlan(workers=count)


def test_a_machine_in_order() -> None:
    """Nothing is to be changed."""
    checks = checkup(FINE, PLAN)
    assert [check.name for check in checks] == list(CHECKS)
    assert {check.status for check in checks} == {OK}


# Machines that are FINE but for some facts: what a check finds, and some of its numbers.
CASES: dict[str, list[tuple[dict[str, Any], LoaderPlan, CheckStatus, Code, dict[str, Any]]]] = {
    # One CPU of many is what a batch system gives unasked; a quota is not wrong by itself.
    "CPUs": [
        ({"cpus_usable": 8}, PLAN, OK, Code.CPUS, {"cpus_usable": 8, "cpus": 64}),
        ({"cpus": None}, PLAN, OK, Code.CPUS, {"cpus_usable": 64, "cpus": 64}),
        ({"cpus": 1, "cpus_usable": 1}, PLAN, OK, Code.CPUS, {"cpus": 1}),
        ({"quota_cores": 2.5}, PLAN, OK, Code.CPUS_UNDER_QUOTA, {"quota_cores": 2.5}),
        ({"cpus_usable": 1}, PLAN, CHANGE, Code.ONE_CPU_OF_MANY, {"cores": 1, "cpus": 64}),
        ({"quota_cores": 0.5}, PLAN, CHANGE, Code.ONE_CPU_OF_MANY, {"cores": 0.5}),
    ],
    # OpenMP counts CPUs, knows nothing of quotas, and is told by a variable. Without a GPU
    # training computes on the CPUs that workers need; one thread cannot be fewer.
    "threads": [
        ({}, PLAN, OK, Code.THREADS, {"threads": 64, "threads_from": None}),
        ({"quota_cores": 2.5}, PLAN, CHANGE, Code.MORE_THREADS_THAN_CPUS, {"most_threads": 2}),
        ({"quota_cores": 2.5, **openmp(2)}, PLAN, OK, Code.THREADS, {"threads": 2}),
        (openmp(128), PLAN, CHANGE, Code.MORE_THREADS_THAN_CPUS, openmp(128)),
        (SMALL, workers(2), CHANGE, Code.THREADS_AND_WORKERS, {"most_threads": 6}),
        (SMALL | openmp(6), workers(2), OK, Code.THREADS, {}),
        (SMALL | {"driver": H100}, workers(2), OK, Code.THREADS, {}),
        (SMALL, PLAN, OK, Code.THREADS, {}),
        (SMALL | {"cpus_usable": 2} | openmp(1), workers(2), OK, Code.THREADS, {}),
    ],
    # Where no number was said, as many as there are CPUs are meant.
    "workers": [
        ({}, PLAN, OK, Code.WORKERS_ASSUMED, {"workers": 64}),
        ({"quota_cores": 0.5}, PLAN, OK, Code.WORKERS_ASSUMED, {"workers": 1}),
        ({}, workers(8), OK, Code.WORKERS, {"workers": 8, "cores": 64}),
        (
            {"cpus_usable": 8, "quota_cores": 4.5},
            workers(16),
            CHANGE,
            Code.MORE_WORKERS_THAN_CPUS,
            {"cores": 4.5, "most_workers": 4},
        ),
    ],
    # Room for the batches that workers prefetch and the one in the step; Docker gives 64 MB.
    "shared memory": [
        (
            shm(64_000_000),
            workers(8),
            CHANGE,
            Code.SHARED_MEMORY_TOO_SMALL,
            {"batches": 17, "needed_bytes": 544_000_000},
        ),
        (shm(50_000), LoaderPlan(1, 4, 10_000), OK, Code.SHARED_MEMORY, {"batches": 5}),
        (shm(49_999), LoaderPlan(1, 4, 10_000), CHANGE, Code.SHARED_MEMORY_TOO_SMALL, {}),
        (shm(0), workers(0), OK, Code.SHARED_MEMORY_UNUSED, {}),
        (shm(None), PLAN, NOT_MEASURED, Code.NO_SHARED_MEMORY, {}),
        ({"shm_bytes": None}, PLAN, OK, Code.SHARED_MEMORY, {"total_bytes": 60 * GB}),
    ],
    # Each tensor of the same batches takes a file descriptor: 129 x 8, and 128 others.
    "open files": [
        (files(1160), workers(64), OK, Code.OPEN_FILES, {"limit": 1160}),
        (
            files(1159),
            workers(64),
            CHANGE,
            Code.OPEN_FILES_TOO_FEW,
            {"batches": 129, "needed": 1160, "suggested": 2320, "most": 4096},
        ),
        (files(64, None), PLAN, CHANGE, Code.OPEN_FILES_TOO_FEW, {"most": None}),
        (files(64, WITHOUT_LIMIT), PLAN, CHANGE, Code.OPEN_FILES_TOO_FEW, {"most": None}),
        (files(128), workers(0), OK, Code.OPEN_FILES, {}),
        (files(WITHOUT_LIMIT), PLAN, OK, Code.OPEN_FILES_UNLIMITED, {}),
        (files(None), PLAN, NOT_MEASURED, Code.OPEN_FILES_NOT_KNOWN, {}),
    ],
    # Each has its price, and none is wrong.
    "start method": [
        ({"start_method": "spawn"}, PLAN, OK, Code.START_METHOD, {"start_method": "spawn"}),
    ],
    # A machine without a GPU is in order; a broken driver is to be mended.
    "NVIDIA driver": [
        ({}, PLAN, OK, Code.DRIVER, {"cuda_major": 12, "gpus": "2 x NVIDIA H100"}),
        ({"driver": Driver("5")}, PLAN, OK, Code.DRIVER, {"cuda_major": None, "gpus": None}),
        (NO_DRIVER, PLAN, NOT_MEASURED, Code.NO_DRIVER, {"missing": NO_GPU.missing}),
        (
            {"driver": Driver(missing="restart it", broken=True)},
            PLAN,
            CHANGE,
            Code.BROKEN_DRIVER,
            {"missing": "restart it"},
        ),
    ],
    "NVML": [
        ({}, PLAN, OK, Code.NVML, {"package": "nvidia-ml-py", "version": "13.0"}),
        ({"packages": {}}, PLAN, OK, Code.NVML, {"version": None}),
        (NO_DRIVER, PLAN, NOT_MEASURED, Code.NVML_WITHOUT_DRIVER, {"version": "13.0"}),
    ],
    # A matter of the GPU, and never to be changed.
    "GPM": [
        (gpm(True, True), PLAN, OK, Code.GPM, {}),
        (gpm(True, False), PLAN, OK, Code.GPM_NOT_ON_ALL, {}),
        (gpm(True, None), PLAN, NOT_MEASURED, Code.GPM_NOT_KNOWN, {}),
        (gpm(), PLAN, NOT_MEASURED, Code.NO_GPU, {}),
        (NO_DRIVER, PLAN, NOT_MEASURED, Code.NO_DRIVER, {"missing": NO_GPU.missing}),
    ],
    # Only its own pipelines need it; the driver has to run the CUDA that it was built for.
    "DALI": [
        ({}, PLAN, OK, Code.DALI, {"packages": "nvidia-dali-cuda120 1.51.2"}),
        ({"packages": {}}, PLAN, OK, Code.NO_DALI, {}),
        (
            FOR_CUDA_13,
            PLAN,
            CHANGE,
            Code.DALI_FOR_NEWER_CUDA,
            {"needed_cuda_major": 13, "cuda_major": 12, "package": "nvidia-dali-cuda120"},
        ),
        (FOR_CUDA_13 | NO_DRIVER, PLAN, OK, Code.DALI, {}),
    ],
}


@pytest.mark.parametrize(
    ("name", "facts", "plan", "status", "code", "values"),
    [(name, *case) for name, cases in CASES.items() for case in cases],
)
def test_a_check(
    name: str,
    facts: dict[str, Any],
    plan: LoaderPlan,
    status: CheckStatus,
    code: Code,
    values: dict[str, Any],
) -> None:
    """What it finds on a machine, as a code and numbers."""
    checks = checkup(replace(FINE, **facts), plan)
    (check,) = (check for check in checks if check.name == name)
    assert (check.status, check.remark.code) == (status, code)
    assert check.remark.values.items() >= values.items()


TAKEN = RunMemory(
    process_bytes=10.0 * GB,
    worker_bytes=2.0 * GB,
    kept_bytes=0.0,
    epoch_batches=1000,
    iteration_ns=1e8,
    start_anew=False,
    by_pipe=False,
)
ROOM: dict[str, Any] = {"memory_available_bytes": 36 * GB}


def fitting(room: dict[str, Any], **taken: Any) -> tuple[CheckStatus, Any, Any]:
    """What is said of the memory of eight workers, whose 17 batches have 0.5 GB each."""
    plan = LoaderPlan(8, 2, GB // 2, memory=replace(TAKEN, **taken))
    *others, memory = checkup(replace(FINE, **room), plan)
    assert [check.name for check in others] == list(CHECKS)
    assert memory.name == "memory"
    return memory.status, memory.remark.code, memory.remark.values


def test_what_a_run_takes_of_memory() -> None:
    """10 GB of training, 16 of workers and 8.5 of batches."""
    status, code, values = fitting(ROOM)
    assert (status, code, values["needed_bytes"]) == (OK, Code.MEMORY, 34.5 * GB)
    status, code, _ = fitting({"memory_available_bytes": 34 * GB})
    assert (status, code) == (CHANGE, Code.MEMORY_TOO_SMALL)


def test_when_memory_is_full() -> None:
    """1.5 GB are left, of which each batch of the loader takes 1 MB: 1,500 batches of 0.1 s."""
    status, code, values = fitting(ROOM, kept_bytes=1e6)
    assert (status, code, values["fills_batches"]) == (CHANGE, Code.MEMORY_FILLS, 1500)
    assert (values["fills_epochs"], values["fills_ns"]) == (1.5, 150e9)


@pytest.mark.parametrize(
    "taken",
    [
        {"kept_bytes": 1e6, "start_anew": True},  # after 1,000 batches
        {"kept_bytes": 1.0},  # in years
    ],
)
def test_what_fills_too_late(taken: dict[str, Any]) -> None:
    assert fitting(ROOM, **taken)[:2] == (OK, Code.MEMORY)


def test_workers_that_start_anew_may_fill_memory_within_an_epoch() -> None:
    assert fitting(ROOM, kept_bytes=2e6, start_anew=True)[1] is Code.MEMORY_FILLS


def test_without_workers_training_and_its_batch_count() -> None:
    plan = LoaderPlan(0, memory=replace(TAKEN, worker_bytes=None, kept_bytes=1e6))
    memory = checkup(replace(FINE, **ROOM), plan)[-1]
    assert (memory.status, memory.remark.code) == (OK, Code.MEMORY)
    assert memory.remark.values["needed_bytes"] == 10 * GB + plan.batch_bytes


@pytest.mark.parametrize(
    ("room", "taken", "code"),
    [
        ({"memory_available_bytes": None}, {}, Code.MEMORY_NOT_KNOWN),
        (ROOM, {"worker_bytes": None}, Code.MEMORY_NOT_READ),
        (ROOM, {"process_bytes": None}, Code.MEMORY_NOT_READ),
    ],
)
def test_memory_that_is_not_known(room: dict[str, Any], taken: dict[str, Any], code: Code) -> None:
    assert fitting(room, **taken)[:2] == (NOT_MEASURED, code)


def test_memory_of_a_machine_that_says_only_what_is_available() -> None:
    assert fitting({**ROOM, "memory_bytes": None})[2]["memory_bytes"] == 36 * GB


def test_batches_that_are_pickled_take_no_shared_memory() -> None:
    plan = LoaderPlan(8, memory=replace(TAKEN, by_pipe=True))
    found = {check.name: check.remark.code for check in checkup(replace(FINE, **shm(0)), plan)}
    assert found["shared memory"] is Code.SHARED_MEMORY_PASSED_BY
