"""`loadeval doctor`, on machines that are given."""

from __future__ import annotations

import os
import resource
import shutil
from typing import Any

import numpy as np
import psutil
import pytest

from loadeval import Run
from loadeval.cli import doctor as command
from loadeval.doctor import WITHOUT_LIMIT, checkup, read_machine
from loadeval.probes.gpu import Driver
from tests.builder import run_of, stage_rows, steps
from tests.cli.commands import runner

MB, GB = 10**6, 10**9
H100 = Driver("550.54.15", (12, 4), ("NVIDIA H100",) * 2)
NONE = Driver(missing="no NVIDIA driver found")
FINE: dict[str, Any] = {
    "cpus": 64,
    "cpus_usable": 64,
    "quota_cores": None,
    "omp_num_threads": None,
    "shm_free_bytes": 60 * GB,
    "open_files": 65_536,
    "disk_free_bytes": 300 * GB,
    "driver": H100,
}
CONTAINER = FINE | {
    "quota_cores": 2.5,
    "shm_free_bytes": 64 * MB,
    "open_files": 64,
    "driver": Driver(missing="the driver's parts differ", broken=True),
}

run = runner("doctor", columns=400)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the command find a machine."""
    monkeypatch.setattr(command, "installed_loaders", lambda: ["nvidia.dali", "torch"])
    return lambda machine: monkeypatch.setattr(command, "read_machine", lambda: machine)


IN_ORDER = """\
ok            CPUs           64 of 64 usable
ok            threads        torch uses up to 64 threads in the training process (one per CPU)
ok            shared memory  60.0 GB free; 129 batches (64 workers x 2 prefetched, and the one in \
the step) of 32.0 MB need 4.13 GB
ok            open files     65,536 at most
ok            disk           300 GB free in this folder
not measured  NVIDIA driver  no NVIDIA driver found
ok            loaders        nvidia.dali, torch
"""
TO_CHANGE = """\
ok            CPUs           64 of 64 usable, 2.5 of them at a time (cgroup quota)
change        threads        torch uses up to 64 threads in the training process (one per CPU), \
but only 2.5 can run at a time: set OMP_NUM_THREADS=2
change        shared memory  64.0 MB free, but 5 batches (2 workers x 2 prefetched, and the one in \
the step) of 32.0 MB need 160 MB: make it larger (--shm-size in Docker, an emptyDir of medium \
Memory in Kubernetes), or use fewer workers, less prefetch or smaller batches
change        open files     64 at most, but 5 batches (2 workers x 2 prefetched, and the one in \
the step) of 8 tensors may need 168, one for each tensor: run ulimit -n 336, or \
torch.multiprocessing.set_sharing_strategy('file_system')
ok            disk           300 GB free in this folder
change        NVIDIA driver  the driver's parts differ: restart the machine, or load the driver anew
ok            loaders        nvidia.dali, torch
"""


@pytest.mark.parametrize(
    ("machine", "code", "printed"),
    [(FINE | {"driver": NONE}, 0, IN_ORDER), (CONTAINER, 1, TO_CHANGE)],
)
def test_what_is_printed(on: Any, machine: dict[str, Any], code: int, printed: str) -> None:
    """A line for each check, what to do behind a colon, and exit code 1 where something is."""
    on(machine)
    assert run() == (code, printed, "")


def made(start_method: str | None = "fork", **stages: int) -> Run:
    """A run of batches of half a GB."""
    columns = {name: np.full(9, value) for name, value in stages.items()}
    return run_of(
        [steps("real", 0, 0, 9, nbytes=GB // 2)],
        mode="log",
        workers=8,
        prefetch_depth=16,
        start_method=start_method,
        stages=stage_rows(0, 9).replace(**columns),
    )


NOT_USED = "ok: 0 bytes free; not used by this loader"
QUEUES = "17 batches (8 workers x 2 prefetched, and the one in the step) of"
IN_QUEUES, OPENED = f"{QUEUES} 500 MB need 8.50 GB", f"{QUEUES} 4 tensors may need 196"


@pytest.mark.parametrize(
    ("name", "facts", "loaded", "text"),
    [
        ("CPUs", {"cpus_usable": 1}, None, "change: only 1 of 64 usable: ask for more: --cpus"),
        (
            "threads",
            {"omp_num_threads": 1},
            None,
            "ok: torch uses up to 1 thread in the training process",
        ),
        ("open files", {"open_files": WITHOUT_LIMIT}, None, "ok: no limit"),
        ("shared memory", {"shm_free_bytes": None}, None, "not measured: none"),
        ("NVIDIA driver", {}, None, "ok: 550.54.15, CUDA up to 12.4: 2 x NVIDIA H100"),
        ("NVIDIA driver", {"driver": Driver("550.1")}, None, "ok: 550.1: no GPU"),
        ("workers", {"cpus_usable": 8, "quota_cores": 4.5}, made(), "change: 8 on 4.5 CPUs"),
        ("shared memory", {"shm_free_bytes": 9 * GB}, made(), f"ok: 9.00 GB free; {IN_QUEUES}"),
        ("shared memory", {"shm_free_bytes": 0}, made(start_method=None), NOT_USED),
        ("shared memory", {"shm_free_bytes": 0}, made(pickled_bytes=GB // 4), NOT_USED),
        ("open files", {"open_files": 195}, made(tensors=4), f"change: 195 at most, but {OPENED}"),
    ],
)
def test_a_machine_that_is_fine_but_for_some_facts(
    name: str, facts: dict[str, Any], loaded: Run | None, text: str
) -> None:
    """By itself, or for the loader of a run: threads, and what is pickled, need no memory."""
    (check,) = (each for each in checkup(FINE | facts, loaded, []) if each.name == name)
    assert f"{check.status}: {check.says}: {check.do}".startswith(text)


def test_a_name_cannot_steer_the_terminal(on: Any) -> None:
    on(FINE | {"driver": Driver("\x1b[2J")})
    assert r"\x1b[2J" in run()[1]


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system tells it by other ways; there may be no shared memory."""
    machine = read_machine()
    assert machine["cpus"] == psutil.cpu_count()
    assert machine["cpus_usable"] == len(os.sched_getaffinity(0))
    assert 0 < (machine["shm_free_bytes"] or 0) <= shutil.disk_usage("/dev/shm").total  # noqa: S108
    monkeypatch.setattr("loadeval.data.environment.SHM", "/no/such/folder")
    assert read_machine()["shm_free_bytes"] is None


@pytest.mark.parametrize(
    ("soft", "open_files"), [(512, 512), (resource.RLIM_INFINITY, WITHOUT_LIMIT)]
)
def test_the_limit_of_open_files_is_that_in_force(
    monkeypatch: pytest.MonkeyPatch, soft: int, open_files: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, 65_536))
    assert read_machine()["open_files"] == open_files


@pytest.mark.parametrize(("omp", "threads"), [("", None), ("8", 8), ("many", None)])
def test_the_variable_for_threads(
    monkeypatch: pytest.MonkeyPatch, omp: str, threads: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", omp)
    assert read_machine()["omp_num_threads"] == threads
