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

LIMITED = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (512, 1024))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from loadeval.probes.machine import read_machine
found = read_machine()
print(found.open_files, found.cpus_usable)
"""


def test_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the system tells it by other ways; there may be no shared memory."""
    machine = read_machine()
    assert machine.cpus == psutil.cpu_count()
    assert machine.cpus_usable == len(os.sched_getaffinity(0))
    assert 0 < (machine.shm_free_bytes or 0) <= shutil.disk_usage(SHM).total
    monkeypatch.setattr(machines, "SHM", str(tmp_path / "gone"))
    assert read_machine().shm_free_bytes is None


def test_limits_of_the_process() -> None:
    command = [sys.executable, "-c", LIMITED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["512", "1"]


@pytest.mark.parametrize(
    ("omp", "mkl", "threads", "source"),
    [
        (None, None, None, None),
        ("8,2", "4", 8, "OMP_NUM_THREADS"),
        ("0", "4", 4, "MKL_NUM_THREADS"),
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
