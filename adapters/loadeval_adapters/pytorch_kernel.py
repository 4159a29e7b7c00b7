"""What the kernel tells of a thread and of this process: what they use, and what they wait for."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from threading import get_ident
from time import process_time_ns, thread_time_ns

from loadeval_adapters.pytorch_channel import UNKNOWN

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

Figures = tuple[int, int, int, int, int, int]
"""CPU time, that of all threads, time without a CPU, bytes read, from disk, faults."""
UNKNOWN_FIGURES = (UNKNOWN,) * 6
BY_THREAD = getattr(resource, "RUSAGE_THREAD", None)
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
        """Close the files of the kernel's."""
        descriptors = self._sched, self._io
        self._sched = self._io = UNKNOWN
        _close(*descriptors)

    def start(self, *, asks: bool) -> int:
        """The CPU time of this thread; `asks` for all else too, which `since` begins with."""
        if asks:
            self._last = self._so_far()
            return self._last[0]
        return thread_time_ns()

    def _so_far(self) -> Figures:
        if get_ident() != self._thread:
            self._open()
        run_queue = read = disk = faults = UNKNOWN
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
            faults = resource.getrusage(BY_THREAD).ru_majflt
        return thread_time_ns(), process_time_ns(), run_queue, read, disk, faults

    def since(self, began: int, took_ns: int) -> Figures:
        """What a batch has used that began with so much CPU time, with that of other threads alone.

        All but that is counted since the kernel was asked the last time: before this batch, or
        before quick ones. No time is longer than the batch took.
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
        """Close the files of the kernel's; nothing can be asked any more. Called once."""
        _close(self._stat, self._schedstat, self._wchan)

    def blocked_in(self) -> str | None:
        """None while it runs; what it is blocked in, or "" where the kernel does not tell.

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
        """Nanoseconds in which it waited for a CPU."""
        return 0 if self._schedstat < 0 else int(os.pread(self._schedstat, 96, 0).split()[1])

    def _moment(self) -> tuple[int, int]:
        """Nanoseconds on a CPU, and the time."""
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
