"""What is recorded of the place where a run was made."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from loadeval.data import environment
from loadeval.data.environment import describe_environment

ELSEWHERE = """
from loadeval.data.environment import describe_environment
import json, numpy
print(json.dumps(describe_environment()["packages"]))
"""


def test_facts_are_of_this_process() -> None:
    facts = describe_environment()
    assert facts["python"] == sys.version.split()[0]
    assert facts["pid"] == os.getpid()
    assert 1 <= facts["cpus_usable"] <= facts["cpus"]
    assert facts["memory_bytes"] > 0


def test_packages_are_those_that_were_imported_and_the_loaders_own() -> None:
    """A module that has no distribution is not listed, nor a distribution that is not installed."""
    command = [sys.executable, "-c", ELSEWHERE]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert set(json.loads(done.stdout)) == {"loadeval", "numpy"}
    packages = describe_environment(["psutil", "no-such-package"])["packages"]
    assert "psutil" in packages
    assert "no-such-package" not in packages


@pytest.mark.parametrize(("text", "named"), [("close", ["OMP_PROC_BIND"]), ("FALSE", []), ("", [])])
def test_variables_that_bind_threads_to_cpus(
    monkeypatch: pytest.MonkeyPatch, text: str, named: list[str]
) -> None:
    """OpenMP does it where one of them is set."""
    for name in environment.BINDING:
        monkeypatch.delenv(name, raising=False)
    assert describe_environment()["cpu_binding"] == []
    monkeypatch.setenv("OMP_PROC_BIND", text)
    assert describe_environment()["cpu_binding"] == named


def test_what_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training goes on without the facts, without /proc or in a sandbox that forbids to ask."""

    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Operation not permitted")

    for name in ("os.sched_getaffinity", "psutil.virtual_memory", "shutil.disk_usage"):
        monkeypatch.setattr(name, forbidden)
    for name in ("platform.node", "platform.platform", "importlib.metadata.version"):
        monkeypatch.setattr(name, forbidden)
    monkeypatch.setattr(environment, "installed_version", environment.installed_version.__wrapped__)
    facts = describe_environment()
    unknown = ("host", "platform", "memory_bytes", "shm_free_bytes")
    assert [facts[name] for name in unknown] == [None] * len(unknown)
    assert facts["packages"] == {}
    assert facts["cpus_usable"] == os.cpu_count()
