"""The processes of a job, as they are found: parents, commands, and stacks where permitted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from loadeval.probes.processes import user_of
from loadeval.probes.stacks import StackProblem, StacksError, dump
from loadeval.probes.usage import Family, command_of, parent_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loadeval.probes.stacks import ProcessStacks

PACKAGES = "-packages/"


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """One process; `packages` are those whose compiled libraries it has loaded, None: not told.

    Without `stacks`, `problem` is why they cannot be read.
    """

    pid: int
    parent: int | None
    command: tuple[str, ...] | None
    is_python: bool
    packages: frozenset[str] | None = None
    stacks: ProcessStacks | None = None
    problem: StackProblem | None = None


def job_around(pid: int) -> dict[int, SeenProcess]:
    """Process `pid`, the Python processes that it descends from, and all that descend from it.

    Empty where there is none. Takes some 15 ms for each that runs Python.
    """
    line, ancestor = {pid}, parent_of(pid)
    while ancestor is not None and ancestor > 1 and runs_python(ancestor):
        line.add(ancestor)
        ancestor = parent_of(ancestor)
    return seen({*line, *descendants_of(pid)})


def python_processes() -> dict[int, SeenProcess]:
    """All processes of this user that run Python, but this one."""
    own = os.getuid()
    others = (pid for pid in psutil.pids() if pid != os.getpid())
    return seen(pid for pid in others if user_of(pid) == own and runs_python(pid))


def seen(pids: Iterable[int]) -> dict[int, SeenProcess]:
    """These processes, as far as they still live, by number."""
    found = {}
    for pid in sorted(set(pids) - {os.getpid()}):
        process = see(pid)
        if process is not None:
            found[pid] = process
    return found


def see(pid: int) -> SeenProcess | None:
    """One process; None when it is over."""
    parent = parent_of(pid)
    if parent is None:
        return None
    stacks, problem = None, None
    try:
        stacks = dump(pid, nonblocking=True)
    except StacksError as error:
        problem = error.problem
    if problem is StackProblem.GONE:
        return None
    is_python = stacks is not None or (problem is not StackProblem.NOT_PYTHON and runs_python(pid))
    packages = packages_of(pid) if is_python else None
    return SeenProcess(pid, parent, command_of(pid), is_python, packages, stacks, problem)


def runs_python(pid: int) -> bool:
    """Whether the program of process `pid` is Python, as far as its name tells."""
    try:
        program = Path(f"/proc/{pid}/exe").readlink().name
    except OSError:  # another user's
        command = command_of(pid)
        program = Path(command[0]).name if command else ""
    return program.startswith("python")


def packages_of(pid: int) -> frozenset[str] | None:
    """The packages whose compiled libraries process `pid` has loaded; None where not told."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    paths = (line.partition(PACKAGES)[2] for line in lines)
    return frozenset(path.partition("/")[0] for path in paths if path)


def descendants_of(pid: int) -> list[int]:
    """All processes that descend from `pid`."""
    family = Family(pid)
    family.look()
    return list(family.usages())
