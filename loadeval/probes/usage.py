"""What a process has used since it began, and which processes descend from one.

On Linux this comes straight from /proc, where one file has most of it within a few microseconds;
elsewhere from psutil, which knows less.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Processes of multiprocessing's, which load nothing, by their command lines."""
HAS_PROC = Path("/proc/self/stat").exists()
MOST_BYTES = 65536
"""No more is read of a file in /proc; none is as large."""
ENDED = (b"Z", b"X")
"""A process in these states is over, and was not waited for."""
# What stands where in /proc/PID/stat, counted behind the name of the program: see proc(5).
STATE, PARENT, MINOR, MAJOR, USER, SYSTEM, STARTED, RESIDENT = 0, 1, 7, 9, 11, 12, 19, 21
LAST_CPU = 36


class Usage(NamedTuple):
    """What a process has used since it began; None is not known.

    `started` tells two processes apart that have had the same pid. `read_bytes` counts what was
    read by calls, not through mapped memory; `disk_read_bytes` what was fetched from the disk for
    it, either way. It ran last on `last_cpu`, by its number.
    """

    parent: int
    started: float
    cpu_s: float
    rss_bytes: int
    minor_faults: int | None = None
    major_faults: int | None = None
    read_bytes: int | None = None
    disk_read_bytes: int | None = None
    last_cpu: int | None = None


class Memory(NamedTuple):
    """Memory of a process; None is not known.

    In `pss_bytes` what it shares is divided among those who share it. `pss_file_bytes` of that
    are of mapped files, which the system may drop. `anonymous_bytes` are of no file, those that
    it shares with a process that it forked included in full.
    """

    pss_bytes: int
    pss_file_bytes: int | None
    anonymous_bytes: int | None


def usage_of(pid: int) -> Usage | None:
    """What process `pid` has used; None when it is over, or may not be asked."""
    if not HAS_PROC:
        return usage_by_psutil(pid)
    fields = _stat(pid)
    if fields is None:
        return None
    ticks_a_second = os.sysconf("SC_CLK_TCK")
    io = amounts_in(content_of(f"/proc/{pid}/io"))
    return Usage(
        parent=int(fields[PARENT]),
        started=float(fields[STARTED]),
        cpu_s=(int(fields[USER]) + int(fields[SYSTEM])) / ticks_a_second,
        rss_bytes=int(fields[RESIDENT]) * os.sysconf("SC_PAGE_SIZE"),
        minor_faults=int(fields[MINOR]),
        major_faults=int(fields[MAJOR]),
        read_bytes=io.get(b"rchar"),
        disk_read_bytes=io.get(b"read_bytes"),
        last_cpu=int(fields[LAST_CPU]),
    )


def usage_by_psutil(pid: int) -> Usage | None:
    """The same, without what only Linux tells."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        times = process.cpu_times()
        return Usage(
            parent=process.ppid(),
            started=process.create_time(),
            cpu_s=times.user + times.system,
            rss_bytes=process.memory_info().rss,
        )
    except psutil.Error:
        return None


def memory_of(pid: int) -> Memory | None:
    """The memory of process `pid`; None where the system does not tell.

    The system walks all of the process' memory for it: some 5 ms a GB.
    """
    amounts = amounts_in(content_of(f"/proc/{pid}/smaps_rollup"))
    if b"Pss" not in amounts:
        return None
    nbytes = {name: kilobytes * 1024 for name, kilobytes in amounts.items()}
    return Memory(nbytes[b"Pss"], nbytes.get(b"Pss_File"), nbytes.get(b"Anonymous"))


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
        parents = {pid: parent_of(pid) for pid in pids - self._asked}
        self._asked = pids
        self._members &= pids
        self._helpers &= pids
        while joining := self._children_among(parents):
            self._members |= joining
            self._helpers |= {
                pid for pid in joining if is_helper(command_of(pid), command_of(parents[pid] or 0))
            }

    def usages(self) -> dict[int, Usage]:
        """What each of those that were found and still live has used, by pid."""
        # One whose parent is over is nobody's here, and its pid may be another's by now.
        usages = {pid: usage for pid in self._members if (usage := usage_of(pid)) is not None}
        self._members = {pid for pid in usages if self._knows(usages[pid].parent)}
        return {pid: usages[pid] for pid in sorted(self._members - self._helpers)}

    def _children_among(self, parents: dict[int, int | None]) -> set[int]:
        return {pid for pid, parent in parents.items() if self._knows(parent)} - self._members

    def _knows(self, parent: int | None) -> bool:
        return parent == self._pid or parent in self._members


def command_of(pid: int) -> tuple[str, ...] | None:
    """The words of its command line; None where it has none, or may not be asked."""
    if HAS_PROC:
        line = content_of(f"/proc/{pid}/cmdline").decode(errors="replace")
        words = line.rstrip("\0").split("\0")
    else:
        try:
            words = psutil.Process(pid).cmdline()
        except psutil.Error:
            return None
    return tuple(words) if any(words) else None


def is_helper(command: Sequence[str] | None, parents_command: Sequence[str] | None) -> bool:
    """Whether a process with this command line is one of HELPERS.

    What a forkserver forks has its command line, and is none.
    """
    is_forked = command == parents_command
    return not is_forked and any(name in " ".join(command or ()) for name in HELPERS)


def parent_of(pid: int) -> int | None:
    """The pid of the parent of process `pid`; None when it is over."""
    if HAS_PROC:
        fields = _stat(pid)
        return None if fields is None else int(fields[PARENT])
    usage = usage_by_psutil(pid)
    return None if usage is None else usage.parent


def _stat(pid: int) -> list[bytes] | None:
    # The name of the program stands in brackets, and may hold any character.
    fields = content_of(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return None if not fields or fields[STATE] in ENDED else fields


def amounts_in(content: bytes) -> dict[bytes, int]:
    """The whole numbers of lines like `rchar: 6976` or `Pss: 278 kB`, by name."""
    amounts = {}
    for line in content.splitlines():
        name, _, amount = line.partition(b":")
        number = amount.split()[:1]
        if number and number[0].isdigit():
            amounts[name] = int(number[0])
    return amounts


def content_of(path: str) -> bytes:
    """What stands in a file of /proc; nothing where it is gone, or may not be read."""
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            return os.read(file, MOST_BYTES)
        finally:
            os.close(file)
    except OSError:
        return b""


def affinity_of(pid: int) -> frozenset[int]:
    """The CPUs that the process or thread `pid` may run on; none where that is not told."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except (OSError, AttributeError):  # it is over; macOS and Windows have no such call
        return frozenset()
