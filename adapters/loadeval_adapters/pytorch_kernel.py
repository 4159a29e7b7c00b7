"""What the kernel tells of a thread and of this process: what they use, and what they wait for."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from time import perf_counter_ns, process_time_ns, thread_time_ns

from loadeval_adapters.pytorch_channel import UNKNOWN

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

Figures = tuple[int, int, int, int, int, int, int, int]
"""CPU time, that of all threads, time waiting for a CPU, bytes read, from disk, faults with the
disk, faults without it, CPU time in the kernel."""
UNKNOWN_FIGURES = (UNKNOWN,) * 8
BY_THREAD = getattr(resource, "RUSAGE_THREAD", None)
UNREAD = (UNKNOWN, UNKNOWN)
LEAST_GAP_NS, MOST_GAP_NS, NEVER = 500_000_000, 30 * 10**9, 1 << 63
FIRST_SHARE, LATER_SHARE = 0.004, 0.0003
"""The share of a CPU that reading the memory of all workers may take, and of each one later."""
EARLY_SHARE = 0.1
"""The share of the kernel's CPU time so far that the second reading may take before it is due."""
MOST_RESIDENT = 16 << 30
"""In a process with more memory it would take over 0.2 s, and is not read."""
MOSTLY = 0.95
"""A thread that was on a CPU so much since the look before is taken to be on one."""


class KernelFile:
    """A file of /proc that stays open, since it is read for many batches.

    A program that becomes a daemon closes descriptors that it does not know, and may open files of
    its own under the same numbers: those are not closed.
    """

    def __init__(self, path: str) -> None:
        self._identity: tuple[int, int] | None = None
        self._file = UNKNOWN
        with suppress(OSError):
            self._file = os.open(path, os.O_RDONLY)
            self._identity = _identity(self._file)

    @property
    def is_open(self) -> bool:
        """Whether it could be opened, and was not closed here."""
        return self._file >= 0

    def read(self, size: int) -> bytes:
        """What it says now, at most `size` bytes. Raises OSError where the program closed it."""
        return os.pread(self._file, size, 0)

    def close(self) -> None:
        """Close it, unless the program has."""
        file, self._file = self._file, UNKNOWN
        with suppress(OSError):
            if file >= 0 and _identity(file) == self._identity:
                os.close(file)


def _identity(file: int) -> tuple[int, int]:
    state = os.fstat(file)
    return state.st_dev, state.st_ino


class Consumption:
    """What the kernel says this thread, and this process, have used."""

    def __init__(self) -> None:
        self._own_bytes = 0  # the kernel counts what is read of its files, too
        self._open()

    def _open(self) -> None:
        self._thread = get_ident()
        self._last: Figures | None = None
        self._sched = KernelFile("/proc/thread-self/schedstat")
        self._io = KernelFile("/proc/self/io")

    def close(self) -> None:
        """Close the kernel's files."""
        self._sched.close()
        self._io.close()

    def start(self, *, asks: bool) -> int:
        """The CPU time of this thread; with `asks`, also reads what `since` counts from."""
        if asks:
            self._last = self._so_far()
            return self._last[0]
        return thread_time_ns()

    def _so_far(self) -> Figures:
        if get_ident() != self._thread:
            self.close()
            self._open()
        run_queue = read = disk = major = minor = system = UNKNOWN
        if self._sched.is_open:
            text = self._sched.read(96)
            run_queue = int(text.split()[1])
            self._own_bytes += len(text)
        if self._io.is_open:
            text = self._io.read(256)
            lines = text.split()
            read, disk = int(lines[1]) - self._own_bytes, int(lines[9])
            self._own_bytes += len(text)
        if BY_THREAD is not None:
            used = resource.getrusage(BY_THREAD)
            major, minor, system = used.ru_majflt, used.ru_minflt, int(used.ru_stime * 1e9)
        own, every = thread_time_ns(), process_time_ns()
        return own, every, run_queue, read, disk, major, minor, system

    def since(self, began: int, took_ns: int) -> Figures:
        """What a batch has used, which began when this thread's CPU time was `began`.

        The CPU time of other threads is separate. It, and all else but this thread's CPU time, is
        counted since the kernel was last asked: before this batch, or before quick ones. Of these,
        no time is longer than the batch took.
        """
        now = self._so_far()
        last, self._last = self._last, now
        used = now[0] - began
        if last is None:
            return (used, *UNKNOWN_FIGURES[1:])
        # The clocks are read one after the other.
        others = min(took_ns, max(0, now[1] - last[1] - (now[0] - last[0])))
        queued, *rest = [
            b - a if b >= 0 else UNKNOWN for a, b in zip(last[2:], now[2:], strict=True)
        ]
        return used, others, min(queued, took_ns), *rest  # type: ignore[return-value]


class OwnMemory:
    """What of this process' memory is its own, and what it shares with the process it began in.

    The kernel walks all pages for it, some 15 ms a GB. So it is read when this is made, and then
    at intervals that double up to MOST_GAP_NS, longer where reading takes long: from the second
    reading on all `workers` take four thousandths of a CPU for it at most, and later each three in
    ten thousand. A worker that reads a large dataset once may have ended by then; so the second
    reading comes early where the kernel has worked ten times as long for the worker, as for pages
    that it copies.
    """

    def __init__(self, workers: int = 1) -> None:
        self._share = FIRST_SHARE / workers
        self._began_ns = self._due_ns = perf_counter_ns()
        self._cost_ns = self._system_ns = 0
        self._first: tuple[int, int] | None = self._read()
        self._early_system_ns = int(self._cost_ns / EARLY_SHARE)

    def take(self, system_ns: int = UNKNOWN) -> tuple[int, int]:
        """Its private and its shared bytes that were written to; UNKNOWN where none are due.

        `system_ns` is the kernel's CPU time for the latest batch.
        """
        first, self._first = self._first, None
        if first is not None:
            return first
        self._system_ns += max(system_ns, 0)
        now_ns = perf_counter_ns()
        is_worth_it = self._system_ns >= self._early_system_ns
        if now_ns < (self._began_ns + LEAST_GAP_NS if is_worth_it else self._due_ns):
            return UNREAD
        self._early_system_ns = NEVER
        return self._read()

    def _read(self) -> tuple[int, int]:
        if _resident_bytes() > MOST_RESIDENT:
            self._due_ns = NEVER
            return UNREAD
        began_ns = thread_time_ns()
        figures = _kilobytes("/proc/self/smaps_rollup")
        self._cost_ns, now_ns = thread_time_ns() - began_ns, perf_counter_ns()
        most_ns = max(MOST_GAP_NS, int(self._cost_ns / min(self._share, LATER_SHARE)))
        doubled_ns = min(now_ns - self._began_ns, most_ns)
        self._due_ns = now_ns + max(LEAST_GAP_NS, doubled_ns, int(self._cost_ns / self._share))
        if not {b"Private_Dirty", b"Shared_Dirty"} <= figures.keys():
            return UNREAD
        return figures[b"Private_Dirty"] * 1024, figures[b"Shared_Dirty"] * 1024


def _resident_bytes() -> int:
    """What this process has in memory; 0 where the kernel does not tell."""
    fields = _content("/proc/self/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else 0


def _kilobytes(path: str) -> dict[bytes, int]:
    """The numbers of lines such as `Private_Dirty: 278 kB`, by name; none where it is not told."""
    lines = (line.split() for line in _content(path).splitlines()[1:])
    return {line[0].rstrip(b":"): int(line[1]) for line in lines}


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


class ThreadState:
    """What the kernel says of a thread: whether it is blocked, and in what."""

    def __init__(self, thread: int, native: int) -> None:
        task = f"/proc/self/task/{native}"
        self._stat = KernelFile(f"{task}/stat")
        self.tells = self._stat.is_open
        self._schedstat = KernelFile(f"{task}/schedstat")
        self._wchan = KernelFile(f"{task}/wchan")
        self._clock = getattr(time, "pthread_getcpuclockid", lambda _: None)(thread)
        self._queued_ns = self._queued()
        self._before = self._moment()

    def close(self) -> None:
        """Close the kernel's files; nothing can be asked afterwards. Called once."""
        for file in (self._stat, self._schedstat, self._wchan):
            file.close()

    def blocked_in(self) -> str | None:
        """What the thread is blocked in, "" where the kernel does not tell, and None while it runs.

        A thread that waits for Python's lock, which ours has, runs: since the look before it was
        on a CPU, or waited for one, most of the time.
        """
        before, self._before = self._before, self._moment()
        active, passed = (b - a for a, b in zip(before, self._before, strict=True))
        if active >= MOSTLY * passed:
            return None  # to read a file would take Python's lock from it once more
        state = self._stat.read(512).rpartition(b") ")[2][:1]
        queued, self._queued_ns = self._queued_ns, self._queued()
        if state == b"R":
            return None
        where = self._wchan.read(64).decode().strip() if self._wchan.is_open else ""
        where = "" if where == "0" else where
        active += self._queued_ns - queued
        if state == b"S" and (not where or "futex" in where) and 2 * active > passed:
            return None
        return where

    def _queued(self) -> int:
        """Nanoseconds that the thread has waited for a CPU."""
        return int(self._schedstat.read(96).split()[1]) if self._schedstat.is_open else 0

    def _moment(self) -> tuple[int, int]:
        """Nanoseconds that the thread was on a CPU, and the time."""
        on_cpu = 0 if self._clock is None else time.clock_gettime_ns(self._clock)
        return on_cpu, time.perf_counter_ns()
