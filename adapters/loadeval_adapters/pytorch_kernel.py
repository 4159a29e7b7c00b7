"""What the kernel tells of a thread and of this process: what they use, and what they wait for."""

from __future__ import annotations

import mmap
import os
import time
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

import numpy as np

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
MOST_SHARE = 0.005
"""The share of a worker's time that reading its memory may take, from the second reading on."""
WINDOWS, WINDOW_PAGES = 512, 8
PAGE = mmap.PAGESIZE
PRESENT, OF_FILE, EXCLUSIVE = np.uint64(1 << 63), np.uint64(1 << 61), np.uint64(1 << 56)
"""Bits of a word of /proc/PID/pagemap, by Linux's Documentation/admin-guide/mm/pagemap.rst."""
MOSTLY = 0.95
"""A thread that was on a CPU so much since the look before is taken to be on one."""


class Consumption:
    """What the kernel says this thread, and this process, have used."""

    def __init__(self) -> None:
        self._thread = self._sched = self._io = UNKNOWN
        self._last: Figures | None = None
        self._own_bytes = 0  # the kernel counts what is read of its files, too
        self._open()

    def _open(self) -> None:
        self.close()
        self._thread = get_ident()
        self._last = None
        self._sched = _opened("/proc/thread-self/schedstat")
        self._io = _opened("/proc/self/io")

    def close(self) -> None:
        """Close the kernel's files."""
        descriptors = self._sched, self._io
        self._sched = self._io = UNKNOWN
        _close(*descriptors)

    def start(self, *, asks: bool) -> int:
        """The CPU time of this thread; with `asks`, also reads what `since` counts from."""
        if asks:
            self._last = self._so_far()
            return self._last[0]
        return thread_time_ns()

    def _so_far(self) -> Figures:
        if get_ident() != self._thread:
            self._open()
        run_queue = read = disk = major = minor = system = UNKNOWN
        if self._sched >= 0:
            text = os.pread(self._sched, 96, 0)
            run_queue = int(text.split()[1])
            self._own_bytes += len(text)
        if self._io >= 0:
            text = os.pread(self._io, 256, 0)
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

    The kernel would walk all pages to tell, some 15 ms a GB. So it is asked of the same few
    thousand pages each time, spread over the memory that there is when this is made; memory that
    comes later is not shared. It is read when this is made, and then at intervals that double up to
    MOST_GAP_NS, and are longer where reading takes more than MOST_SHARE of the time.
    """

    def __init__(self) -> None:
        self._began_ns, self._spent_ns = perf_counter_ns(), 0
        self._due_ns = NEVER
        began_ns = thread_time_ns()
        self._windows, self._pages_each = _windows()
        self._spent_ns = thread_time_ns() - began_ns
        self._first: tuple[int, int] | None = self._read()

    def take(self) -> tuple[int, int]:
        """Its private and its shared bytes, without files and shared memory; UNKNOWN: not due."""
        first, self._first = self._first, None
        if first is not None:
            return first
        return self._read() if perf_counter_ns() >= self._due_ns else UNREAD

    def _read(self) -> tuple[int, int]:
        began_ns = thread_time_ns()
        flags = _flags_of(self._windows)
        own_bytes = _anonymous_bytes()
        if own_bytes is None or not (flags & PRESENT).any():
            return UNREAD
        is_shared = (flags & PRESENT != 0) & (flags & (OF_FILE | EXCLUSIVE) == 0)
        shared_bytes = min(round(int(is_shared.sum()) * self._pages_each) * PAGE, own_bytes)
        cost_ns = thread_time_ns() - began_ns
        self._spent_ns += cost_ns
        since_ns = perf_counter_ns() - self._began_ns
        doubled_ns = min(max(2 * since_ns, LEAST_GAP_NS), since_ns + MOST_GAP_NS)
        allowed_ns = int((self._spent_ns + cost_ns) / MOST_SHARE)
        self._due_ns = self._began_ns + max(doubled_ns, allowed_ns)
        return own_bytes - shared_bytes, shared_bytes


class _Windows:
    """Windows of pages: the first page of each, and how many.

    Numbers alone: many new containers would have Python's garbage collected, which copies pages.
    """

    def __init__(self) -> None:
        self.pages: list[int] = []
        self.counts: list[int] = []


def _windows() -> tuple[_Windows, float]:
    """Windows of pages to look at, and for how many pages each of their pages stands.

    They are spread evenly over what this process may write to and no file is in, area behind area:
    a window goes on in the next area where one ends.
    """
    areas = []
    for line in _content("/proc/self/maps").splitlines():
        bounds, access, _, _, inode = line.split()[:5]
        if access.startswith(b"rw") and access.endswith(b"p") and inode == b"0":
            first, end = (int(bound, 16) // PAGE for bound in bounds.split(b"-"))
            areas.append((first, end))
    step = max(sum(end - first for first, end in areas) // WINDOWS, WINDOW_PAGES)
    windows = _Windows()
    behind = 0  # how far into its step an area begins
    for first, end in areas:
        for window in range(first - behind, end, step):
            page = max(window, first)
            count = min(window + WINDOW_PAGES, end) - page
            if count > 0:
                windows.pages.append(page)
                windows.counts.append(count)
        behind = (behind + end - first) % step
    return windows, step / WINDOW_PAGES


def _flags_of(windows: _Windows) -> Any:
    """What the kernel says of the pages in each window, in words; none where it does not tell."""
    read = [b""]
    with suppress(OSError), Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        read += [
            os.pread(pagemap.fileno(), 8 * count, 8 * page)
            for page, count in zip(windows.pages, windows.counts, strict=True)
        ]
    return np.frombuffer(b"".join(read), dtype=np.uint64)


def _anonymous_bytes() -> int | None:
    """What this process has in memory without files and shared memory; None: not told."""
    fields = _content("/proc/self/statm").split()
    return (int(fields[1]) - int(fields[2])) * PAGE if fields else None


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


class ThreadState:
    """What the kernel says of a thread: whether it is blocked, and in what."""

    def __init__(self, thread: int, native: int) -> None:
        task = f"/proc/self/task/{native}"
        self._stat = _opened(f"{task}/stat")
        self.tells = self._stat >= 0
        self._schedstat = _opened(f"{task}/schedstat")
        self._wchan = _opened(f"{task}/wchan")
        self._clock = getattr(time, "pthread_getcpuclockid", lambda _: None)(thread)
        self._queued_ns = self._queued()
        self._before = self._moment()

    def close(self) -> None:
        """Close the kernel's files; nothing can be asked afterwards. Called once."""
        _close(self._stat, self._schedstat, self._wchan)

    def blocked_in(self) -> str | None:
        """What the thread is blocked in, "" where the kernel does not tell, and None while it runs.

        A thread that waits for Python's lock, which ours has, runs: since the look before it was
        on a CPU, or waited for one, most of the time.
        """
        before, self._before = self._before, self._moment()
        active, passed = (b - a for a, b in zip(before, self._before, strict=True))
        if active >= MOSTLY * passed:
            return None  # to read a file would take Python's lock from it once more
        state = os.pread(self._stat, 512, 0).rpartition(b") ")[2][:1]
        queued, self._queued_ns = self._queued_ns, self._queued()
        if state == b"R":
            return None
        where = "" if self._wchan < 0 else os.pread(self._wchan, 64, 0).decode().strip()
        where = "" if where == "0" else where
        active += self._queued_ns - queued
        if state == b"S" and (not where or "futex" in where) and 2 * active > passed:
            return None
        return where

    def _queued(self) -> int:
        """Nanoseconds that the thread has waited for a CPU."""
        return 0 if self._schedstat < 0 else int(os.pread(self._schedstat, 96, 0).split()[1])

    def _moment(self) -> tuple[int, int]:
        """Nanoseconds that the thread was on a CPU, and the time."""
        on_cpu = 0 if self._clock is None else time.clock_gettime_ns(self._clock)
        return on_cpu, time.perf_counter_ns()


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return UNKNOWN


def _close(*descriptors: int) -> None:
    """Close those that are open; a program that becomes a daemon may have closed them all."""
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)
