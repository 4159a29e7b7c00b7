"""Facts about this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from loadeval.probes import machine as machines
from loadeval.probes.machine import SHM, read_machine


def facts_after(setting: str) -> str:
    """What a process of its own tells of itself, after `setting`: start method, limits."""
    script = (
        "import multiprocessing, resource\n"
        f"{setting}\n"
        "from loadeval.probes.machine import read_machine\n"
        "found = read_machine()\n"
        "print(found.start_method, found.open_files, found.cpus_usable)"
    )
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_this_machine() -> None:
    """As the system tells it by other ways."""
    machine = read_machine()
    assert machine.cpus == psutil.cpu_count()
    assert machine.cpus_usable == len(os.sched_getaffinity(0))
    limit, available = machine.memory_bytes, machine.memory_available_bytes
    assert limit is not None
    assert available is not None
    assert 0 < available <= limit <= psutil.virtual_memory().total
    shared = shutil.disk_usage(SHM)
    assert machine.shm_bytes == shared.total
    assert machine.shm_free_bytes is not None
    assert {"torch", "nvidia-ml-py"} <= set(machine.packages)


def test_without_proc_its_memory_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in some containers; nothing of it is taken for 0."""

    def missing(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/proc/stat")

    monkeypatch.setattr(psutil, "virtual_memory", missing)
    monkeypatch.setattr(psutil, "cpu_times", missing)
    machine = read_machine()
    assert (machine.memory_bytes, machine.memory_available_bytes) == (None, None)


def test_limits_of_the_process() -> None:
    setting = (
        "import os\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (512, 1024))\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    )
    assert facts_after(setting).split()[1:] == ["512", "1"]


def test_the_start_method_that_was_chosen() -> None:
    assert facts_after("multiprocessing.set_start_method('spawn')").startswith("spawn ")
    assert facts_after("").split()[0] == _default_start_method()


def _default_start_method() -> str:
    command = [sys.executable, "-c", "import multiprocessing as m; print(m.get_start_method())"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("omp", "mkl", "threads", "source"),
    [
        (None, None, None, None),
        ("8,2", "4", 8, "OMP_NUM_THREADS"),
        ("", "4", 4, "MKL_NUM_THREADS"),
        ("0", None, None, None),
    ],
)
def test_variables_for_threads(
    monkeypatch: pytest.MonkeyPatch,
    omp: str | None,
    mkl: str | None,
    threads: int | None,
    source: str | None,
) -> None:
    """The first that holds a number; of nested numbers the first."""
    for name, value in (("OMP_NUM_THREADS", omp), ("MKL_NUM_THREADS", mkl)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    machine = read_machine()
    assert (machine.threads, machine.threads_from) == (threads, source)


def test_no_shared_memory_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machines, "SHM", tmp_path / "gone")
    machine = read_machine()
    assert (machine.shm_bytes, machine.shm_free_bytes) == (None, None)
