"""What blocks workers, by the lines and the places of the kernel that they were blocked in."""

from __future__ import annotations

import re
from typing import Literal

from loadeval.inside.code import CodeLine
from loadeval.inside.stages import Stages

FROM_DISK = 0.3
"""The disk blocks workers if at least this share of the bytes is read from it."""
LEAST_FROM_DISK = 16_384
"""The least bytes of a batch from the disk: less may be Python's own files."""
FUTEX, SLEEPS = "futex", "nanosleep"
LOCKS = (FUTEX, "flock", "locks_", "do_lock_file", "fcntl_setlk", "sem_", "semaphore")
DISKS = ("folio_wait", "io_schedule", "bit_wait_io", "wait_on_page", "filemap", "blk", "dio_")
"""How Linux names the places where a process waits for a lock, or for a disk."""
ONE_AT_A_TIME = 0.35
"""If one worker works at a time, all work differs from the loader's time by at most this share."""
PIPE = re.compile(r"(Connection|BaseProxy|_ForkingPickler)\.")
"""Functions of multiprocessing's that ask another process, such as a Manager's."""
THREADS = re.compile(r"(concurrent\.futures|queue|threading|multiprocessing\.pool|fsspec)\..+")
"""Functions in which a thread waits for others of its own process, by their full names."""
MOSTLY = 0.5
"""A worker waits for its own threads where it is seen in these, or they compute, for so long."""


def blockage(
    stages: Stages, workers: int, blocked: float
) -> Literal["lock", "disk", "server", "other"]:
    """What blocks `workers` that are blocked for a share of fetching and collating.

    A server is one process that all of them ask by a pipe of multiprocessing. Other is storage, the
    network, another process, or threads of their own.
    """
    line = stages.blocked_line
    blocked_in = "" if line is None else line.blocked_in
    read, from_disk = stages.read_bytes, stages.disk_bytes
    is_read = read and from_disk and from_disk >= max(FROM_DISK * read, LEAST_FROM_DISK)
    if blocked_in.startswith(DISKS) or is_read:
        return "disk"
    if FUTEX in blocked_in and (workers <= 1 or awaits_threads(stages)):
        return "other"
    if blocked_in.startswith(LOCKS):
        return "lock"
    if line is not None and asks_by_pipe(stages, line):
        return "server"
    # SQLite, for one, sleeps and tries again while another has its lock. Then what workers do
    # meanwhile adds up to the loader's time.
    active_ns = (1 - blocked) * (stages.fetch_ns + stages.collate_ns)
    is_serial = abs(active_ns - stages.total_ns) <= ONE_AT_A_TIME * stages.total_ns
    return "lock" if blocked_in.endswith(SLEEPS) and workers > 1 and is_serial else "other"


def asks_by_pipe(stages: Stages, line: CodeLine) -> bool:
    """Whether a line asks another process by a pipe; not by one that the program itself reads.

    Each worker may have that with a process of its own.
    """
    called = {call.function for call in stages.calls if call.place == line.place}
    own = any(function.startswith("multiprocessing.connection.") for function in called)
    return not own and PIPE.match(line.leaf) is not None


def awaits_threads(stages: Stages) -> bool:
    """Whether a worker that is blocked by a futex waits for threads of its own process.

    No other worker can hold these up. The functions that it waits in say so, or the threads compute
    meanwhile.
    """
    blocked = sum(line.blocked_share for line in stages.code)
    awaited = sum(call.share for call in stages.calls if THREADS.fullmatch(call.function))
    return awaited >= MOSTLY * blocked or computing_threads(stages) > 0


def computing_threads(stages: Stages) -> float:
    """The share of the time blocked by a futex in which other threads of a worker compute.

    0 where that is so little that it may be for something else.
    """
    line, blocked_ns = stages.blocked_line, stages.blocked_ns or 0.0
    if line is None or FUTEX not in line.blocked_in or not blocked_ns:
        return 0.0
    share = min((stages.other_cpu_ns or 0.0) / blocked_ns, 1.0)
    return share if share >= MOSTLY else 0.0
