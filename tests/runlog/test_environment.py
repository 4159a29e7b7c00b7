"""What is recorded of the place where a run was made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from loadeval.runlog import environment
from loadeval.runlog.environment import describe_environment, own_version


def described_elsewhere(*imports: str) -> Any:
    """What a fresh process that imported `imports` says of itself."""
    code = (
        "from loadeval.runlog.environment import describe_environment; import json; "
        f"{''.join(f'import {name}; ' for name in imports)}"
        "print(json.dumps(describe_environment()))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_facts_are_of_this_process() -> None:
    facts = describe_environment()
    assert facts["python"] == sys.version.split()[0]
    assert facts["pid"] == os.getpid()
    assert 1 <= facts["cpus_usable"] <= facts["cpus"]
    assert facts["memory_bytes"] > 0


@pytest.mark.parametrize(("folder", "is_there"), [("/", True), ("/no/such/folder", False)])
def test_free_shared_memory(
    monkeypatch: pytest.MonkeyPatch, folder: str, *, is_there: bool
) -> None:
    """Unknown where the system has none."""
    monkeypatch.setattr(environment, "SHM", folder)
    assert (describe_environment()["shm_free_bytes"] is not None) == is_there


def test_packages_lists_only_what_was_imported() -> None:
    assert set(described_elsewhere("numpy")["packages"]) == {"loadeval", "numpy"}


def test_packages_lists_an_imported_framework_with_its_version() -> None:
    torch = pytest.importorskip("torch")
    packages = describe_environment()["packages"]
    assert packages["torch"].split("+")[0] == torch.__version__.split("+")[0]


def test_packages_lists_the_loaders_distributions() -> None:
    """Only those that are installed are listed."""
    packages = describe_environment(["psutil", "no-such-package"])["packages"]
    assert "psutil" in packages
    assert "no-such-package" not in packages


def test_a_module_without_a_distribution_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module whose distribution is unknown has no version to tell, nor has one not imported."""
    monkeypatch.setattr(
        environment, "MODULES", {"sys": "sys", "numpy": "a_module_that_is_not_imported"}
    )
    assert describe_environment()["packages"] == {}


def test_a_host_without_a_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", str)
    assert describe_environment()["host"] is None


def test_without_affinity_every_cpu_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems that cannot tie a process to CPUs let it run on all of them."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert describe_environment()["cpus_usable"] == os.cpu_count()


def test_copied_files_have_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note stands for the version where loadeval is on PYTHONPATH and not installed."""
    monkeypatch.setattr(environment, "installed_version", lambda _: None)
    assert own_version() == "(not installed)"


@pytest.mark.parametrize(("variable", "threads"), [("1", 1), ("many", None)])
def test_threads_that_a_variable_allows(
    monkeypatch: pytest.MonkeyPatch, variable: str, threads: int | None
) -> None:
    """OMP_NUM_THREADS says it, where that is a number."""
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert describe_environment()["omp_num_threads"] == threads


def test_cpus_when_python_started() -> None:
    """Whatever the process was bound to since."""
    facts = describe_environment()
    assert facts["cpus_at_start"] == len(os.sched_getaffinity(0))
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        assert describe_environment()["cpus_usable"] == 1
        assert describe_environment()["cpus_at_start"] == len(cpus)
    finally:
        os.sched_setaffinity(0, cpus)


@pytest.mark.parametrize(
    ("text", "named"), [("close", ["OMP_PROC_BIND"]), ("FALSE", []), ("", []), (None, [])]
)
def test_variables_that_bind_threads_to_cpus(
    monkeypatch: pytest.MonkeyPatch, text: str | None, named: list[str]
) -> None:
    """OpenMP does it where one of them is set."""
    for name in environment.BINDING:
        monkeypatch.delenv(name, raising=False)
    if text is not None:
        monkeypatch.setenv("OMP_PROC_BIND", text)
    assert describe_environment()["cpu_binding"] == named


def test_what_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training goes on without the facts, without /proc or in a sandbox that forbids to ask."""

    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Operation not permitted")

    monkeypatch.setattr(os, "sched_getaffinity", forbidden)
    monkeypatch.setattr("psutil.virtual_memory", forbidden)
    monkeypatch.setattr("shutil.disk_usage", forbidden)
    monkeypatch.setattr("platform.node", forbidden)
    monkeypatch.setattr("platform.platform", forbidden)
    monkeypatch.setattr(environment, "installed_version", environment.installed_version.__wrapped__)
    monkeypatch.setattr("importlib.metadata.version", forbidden)
    facts = describe_environment()
    unknown = ("host", "platform", "memory_bytes", "shm_free_bytes")
    assert [facts[name] for name in unknown] == [None] * len(unknown)
    assert facts["packages"] == {}
    assert facts["cpus_usable"] == os.cpu_count()
