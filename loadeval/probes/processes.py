"""What processes have used since they began, which descend from one, and their command lines."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import NamedTuple

import psutil

HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Processes of multiprocessing's, which load nothing, by their command lines."""
MOST_BYTES = 65536
"""No more is read of a file of a process; of most, one read gives 4 kB at most, which is all."""


class Usage(NamedTuple):
    """What a process has used since it began; NaN is not known.

    `started` tells two processes apart that have had the same pid. `read_bytes` counts what was
    read by calls, not through mapped memory; `disk_read_bytes` what was fetched from the disk for
    it, either way.
    """

    parent: int
    started: int
    cpu_s: float
    read_bytes: float
    disk_read_bytes: float


def usage_of(pid: int) -> Usage | None:
    """What process `pid` has used; None when it is over, or may not be asked."""
    state, *fields = stat_of(f"/proc/{pid}") or ["X"]
    if state in ("Z", "X"):  # it is over, and was not waited for
        return None
    parent, user, system, started = (int(fields[place]) for place in (0, 10, 11, 18))
    io = amounts_in(content_of(f"/proc/{pid}/io"))
    return Usage(
        parent=parent,
        started=started,
        cpu_s=(user + system) / os.sysconf("SC_CLK_TCK"),
        read_bytes=io.get("rchar", math.nan),
        disk_read_bytes=io.get("read_bytes", math.nan),
    )


class Family:
    """The processes that descend from process `pid`, without the helpers of multiprocessing.

    To look for new ones all pids of the machine are listed; only those that were not there the
    time before are asked for their parents.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._asked: set[int] = set()
        self._members: set[int] = set()
        self._helpers: set[int] = set()

    def look(self) -> None:
        """Find those that have come since the time before."""
        pids = set(psutil.pids())
        new = {pid: usage.parent for pid in pids - self._asked if (usage := usage_of(pid))}
        self._asked = pids
        self._members &= pids
        while joining := {pid for pid, parent in new.items() if self._knows(parent)}:
            self._members |= joining
            self._helpers |= {pid for pid in joining if is_helper(pid, new.pop(pid))}

    def usages(self) -> dict[int, Usage]:
        """What each of those that were found and still live has used, by pid."""
        # One whose parent is over is nobody's here, and its pid may be another's by now.
        usages = {pid: usage for pid in self._members if (usage := usage_of(pid)) is not None}
        self._members = {pid for pid in usages if self._knows(usages[pid].parent)}
        return {pid: usages[pid] for pid in sorted(self._members - self._helpers)}

    def _knows(self, parent: int) -> bool:
        return parent == self._pid or parent in self._members


def is_helper(pid: int, parent: int) -> bool:
    """Whether process `pid` is one of HELPERS; what a forkserver forks has its command line."""
    command = command_of(pid)
    words = " ".join(command)
    return any(name in words for name in HELPERS) and command != command_of(parent)


def command_of(pid: int) -> tuple[str, ...]:
    """The words of its command line; none where it has none, or may not be asked."""
    line = content_of(f"/proc/{pid}/cmdline").decode(errors="replace")
    return tuple(line.rstrip("\0").split("\0")) if line else ()


def stat_of(folder: str) -> list[str]:
    """The fields behind the name of the program, which may hold any character: see proc(5)."""
    return content_of(f"{folder}/stat").decode(errors="replace").rpartition(")")[2].split()


def amounts_in(content: bytes) -> dict[str, int]:
    """The whole numbers of lines like `rchar: 6976`, `Pss: 278 kB` or `nr_periods 7`, by name."""
    amounts = {}
    for line in content.decode(errors="replace").splitlines():
        name, *amount = re.split("[: ]", line.strip(), maxsplit=1)
        number = "".join(amount).split()[:1]
        if number and number[0].isdigit():
            amounts[name] = int(number[0])
    return amounts


def content_of(path: str | Path) -> bytes:
    """What stands in a file of a process or group; nothing where it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            return os.read(file, MOST_BYTES)
        finally:
            os.close(file)
    except OSError:
        return b""
