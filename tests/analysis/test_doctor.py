"""What is in order on a machine, and what is to be changed, by facts that are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadeval.analysis.doctor import CHECKS, checkup
from loadeval.analysis.doctor_check import Plan, size
from loadeval.probes.gpu import Driver
from loadeval.probes.machine import WITHOUT_LIMIT, DataSize, Machine

GB = 10**9
H100 = Driver("550.54.15", (12, 4), ("NVIDIA H100",) * 2, (True, True))
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


def told(name: str, plan: Plan | None = None, **facts: Any) -> tuple[str, str]:
    """Status and text of the check of that name, of a machine that is fine but for `facts`."""
    found = checkup(replace(FINE, **facts), plan or Plan())
    return next((one.status, one.text) for one in found if one.name == name)


def test_a_machine_in_order() -> None:
    """Nothing is to be changed, and only what was not asked is not measured."""
    found = checkup(FINE, Plan())
    assert len(found) == len(CHECKS)
    assert {one.status for one in found if one.name != "page cache"} == {"ok"}
    assert found[-1].status == "not measured"


def test_cpus() -> None:
    """Those that may be used, of all."""
    assert told("CPUs", cpus_usable=8) == ("ok", "8 of 64 may be used")
    assert told("CPUs", cpus=None) == ("ok", "64 of 64 may be used")


def test_one_cpu_of_many() -> None:
    """As when a batch system was not asked for more."""
    status, text = told("CPUs", cpus_usable=1)
    assert status == "change"
    assert "--cpus-per-task" in text
    assert told("CPUs", cpus=1, cpus_usable=1)[0] == "ok"
    assert told("CPUs", quota_cores=0.5)[0] == "change"


def test_a_quota_is_told() -> None:
    """It is not wrong by itself."""
    assert told("CPUs", quota_cores=2.5) == (
        "ok",
        "64 of 64 may be used, and 2.5 of them at a time (quota of a control group)",
    )


def test_more_threads_than_a_quota_allows() -> None:
    """OpenMP counts CPUs, and knows nothing of quotas."""
    status, text = told("threads", quota_cores=2.5)
    assert status == "change"
    assert text.endswith("where 2.5 can run at a time: set OMP_NUM_THREADS=2")
    assert told("threads", quota_cores=2.5, threads=2, threads_from="OMP_NUM_THREADS")[0] == "ok"


def test_more_threads_than_cpus() -> None:
    """The variable that says so is named."""
    status, text = told("threads", threads=128, threads_from="MKL_NUM_THREADS")
    assert status == "change"
    assert "128 threads in the training process (MKL_NUM_THREADS=128)" in text


def test_one_thread() -> None:
    """There is nothing to say of other libraries then."""
    assert told("threads", threads=1, threads_from="OMP_NUM_THREADS") == (
        "ok",
        "torch takes up to 1 thread in the training process (OMP_NUM_THREADS=1)",
    )


def test_threads_beside_workers_without_a_gpu() -> None:
    """Training computes on the CPUs that the workers need too."""
    none = Driver(missing="no NVIDIA driver found")
    facts: dict[str, Any] = {"cpus": 8, "cpus_usable": 8, "driver": none}
    status, text = told("threads", Plan(workers=2), **facts)
    assert status == "change"
    assert text.endswith("and 2 workers 1 each, on 8 CPUs without a GPU: set OMP_NUM_THREADS=6")
    few = {"threads": 6, "threads_from": "OMP_NUM_THREADS"}
    assert told("threads", Plan(workers=2), **facts, **few)[0] == "ok"
    assert told("threads", Plan(workers=2), **facts | {"driver": H100})[0] == "ok"
    assert told("threads", Plan(), **facts)[0] == "ok"


def test_one_thread_cannot_be_fewer() -> None:
    """However many workers there are: that is said of the workers."""
    facts: dict[str, Any] = {"cpus_usable": 2, "driver": Driver(missing="none")}
    one = {"threads": 1, "threads_from": "OMP_NUM_THREADS"}
    assert told("threads", Plan(workers=2), **facts, **one)[0] == "ok"


def test_workers() -> None:
    """As many as there are CPUs are meant where that was not said."""
    assert told("workers") == ("ok", "up to 64, one for each CPU (--workers)")
    assert told("workers", Plan(workers=8)) == ("ok", "8 on 64 CPUs")
    assert told("workers", quota_cores=0.5)[0] == "ok"


def test_more_workers_than_cpus() -> None:
    """The most that fit are told."""
    status, text = told("workers", Plan(workers=16), cpus_usable=8, quota_cores=4.5)
    assert status == "change"
    assert text.startswith("16 on 4.5 CPUs")
    assert text.endswith("use 4 or fewer")


def test_shared_memory_of_a_container() -> None:
    """Docker gives 64 MB unasked."""
    facts = {"shm_bytes": 64_000_000, "shm_free_bytes": 64_000_000}
    status, text = told("shared memory", Plan(workers=8), **facts)
    assert status == "change"
    assert "8 workers x 2 batches of 32 MB ahead take 544 MB" in text
    assert "--shm-size" in text


def test_shared_memory_that_is_enough() -> None:
    """The batches of all workers, and one that the step holds."""
    plan = Plan(workers=1, prefetch=4, batch_bytes=10_000)
    assert told("shared memory", plan, shm_free_bytes=50_000)[0] == "ok"
    assert told("shared memory", plan, shm_free_bytes=49_999)[0] == "change"
    assert told("shared memory", Plan(workers=0), shm_free_bytes=0)[0] == "ok"


def test_no_shared_memory() -> None:
    """On another system."""
    assert told("shared memory", shm_free_bytes=None) == ("not measured", "there is none")


def test_file_descriptors() -> None:
    """Each tensor that waits in a queue takes one."""
    status, text = told("open files", Plan(workers=64), open_files=1024)
    assert status == "change"
    assert "may take 1,152: ulimit -n 2304 (up to 65,536 is allowed)" in text
    assert told("open files", Plan(workers=8), open_files=1024) == ("ok", "1,024 at most")


@pytest.mark.parametrize("highest", [None, WITHOUT_LIMIT])
def test_file_descriptors_without_a_highest_limit(highest: int | None) -> None:
    """Nothing is said of what is not known or not limited."""
    status, text = told("open files", open_files=64, open_files_at_most=highest)
    assert status == "change"
    assert "is allowed" not in text


def test_file_descriptors_that_are_not_limited() -> None:
    """Or of which the system tells nothing."""
    assert told("open files", open_files=WITHOUT_LIMIT) == ("ok", "no limit")
    assert told("open files", open_files=None)[0] == "not measured"


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_start_methods(method: str) -> None:
    """Each has its price, and none is wrong."""
    status, text = told("start method", start_method=method)
    assert status == "ok"
    assert text.startswith(f"{method}: workers ")


def test_data_that_fits_into_memory() -> None:
    """It may be read from the disk once."""
    plan = Plan(data=DataSize(140 * GB))
    assert told("page cache", plan) == (
        "ok",
        "room for 200 GB of files in 256 GB of memory, and 140 GB of data, which may stay there",
    )


def test_data_that_does_not_fit() -> None:
    """It is read from the disk in each epoch, as much as was counted or more."""
    assert told("page cache", Plan(data=DataSize(201 * GB)))[0] == "change"
    status, text = told("page cache", Plan(data=DataSize(201 * GB, whole=False)))
    assert status == "change"
    assert "at least 201 GB of data" in text


def test_data_that_was_counted_in_part() -> None:
    """Nothing follows from a part that fits."""
    status, text = told("page cache", Plan(data=DataSize(3 * GB, whole=False)))
    assert status == "not measured"
    assert text.endswith("--data-bytes")


@pytest.mark.parametrize(
    ("nbytes", "text"), [(999, "999 bytes"), (64_000, "64 kB"), (1_500_000_000, "1.5 GB")]
)
def test_sizes(nbytes: int, text: str) -> None:
    """To three digits."""
    assert size(nbytes) == text
