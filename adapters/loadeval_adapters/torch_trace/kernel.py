"""What the kernel tells of a thread and of this process, and what a batch was fetched with.

Figures are columns of StageTimes, by name: those that are known.
"""

from __future__ import annotations

import io
import os
import resource
import socket
import sys
import time
import weakref
from collections import Counter
from contextlib import suppress
from http.client import HTTPConnection
from inspect import CO_GENERATOR
from itertools import islice
from math import prod
from pathlib import Path
from threading import get_ident
from time import perf_counter_ns, process_time_ns, thread_time_ns
from types import CodeType, FrameType
from typing import Any

from loadeval import leaves

Figures = dict[str, int]
Call = tuple[CodeType, int]  # a function, and which of its calls
LEAST_GAP_NS, MOST_GAP_NS, NEVER = 500_000_000, 30 * 10**9, 1 << 63
MEMORY_SHARE = 0.01
"""The most of its time that a worker reads about its memory."""
MOST_RESIDENT = 16 << 30
"""In a process with more memory it would take over 0.2 s, and is not read."""
MOSTLY = 0.95
"""A thread that was on a CPU so much since the look before is taken to be on one."""
OPENS = (io.open, os.open)  # the former is the builtin, too
REQUEST = HTTPConnection.putrequest.__code__
"""urllib, urllib3, requests and botocore all come by it."""
EVENT_NS = 500
"""What seeing a call, or its return, takes."""
LEAVES = 16
"""So many of a sample or batch are looked at."""
INTERNET = (socket.AF_INET, socket.AF_INET6)


class KernelFile:
    """A file of /proc that stays open, since it is read for many batches.

    A program that becomes a daemon closes descriptors that it does not know, and may open files of
    its own under the same numbers: those are not closed.
    """

    def __init__(self, path: str) -> None:
        self._file = -1
        with suppress(OSError):  # the kernel has no such file
            self._file = os.open(path, os.O_RDONLY)
            self._own = os.fstat(self._file)

    def read(self) -> bytes:
        """What it says now, b"" where there is none. Raises OSError where the program closed it."""
        return os.pread(self._file, 512, 0) if self._file >= 0 else b""

    def close(self) -> None:
        """Close it, unless the program has."""
        file, self._file = self._file, -1
        with suppress(OSError):  # the program has
            if file >= 0 and os.path.samestat(os.fstat(file), self._own):
                os.close(file)


class Consumption:
    """What the kernel says this thread, and this process, use for a batch."""

    def __init__(self) -> None:
        self._own_bytes = 0  # the kernel counts what is read of its files, too
        self._open()

    def _open(self) -> None:
        self._thread = get_ident()
        self._last: Figures = {}
        self._sched = KernelFile("/proc/thread-self/schedstat")
        self._io = KernelFile("/proc/self/io")

    def close(self) -> None:
        """Close the kernel's files."""
        self._sched.close()
        self._io.close()

    def start(self, *, asks: bool) -> None:
        """A batch begins. Whether this `asks` the kernel, which takes some time, too."""
        if asks:
            self._last = self._so_far()
        self._cpu_ns = self._last["cpu_ns"] if asks else thread_time_ns()

    def since_start(self, took_ns: int) -> Figures:
        """What a batch has used that took so long.

        All but this thread's CPU time is counted since the kernel was last asked: before this
        batch, or before quick ones. Of these, no time is longer than the batch took.
        """
        now = self._so_far()
        last, self._last = self._last, now
        figures = {"cpu_ns": now["cpu_ns"] - self._cpu_ns}
        if last:
            used = {name: value - last[name] for name, value in now.items() if name in last}
            # The clocks are read one after the other.
            others_ns = max(0, used.pop("process_ns") - used.pop("cpu_ns"))
            figures |= {**used, "other_cpu_ns": min(took_ns, others_ns)}
            if "run_queue_ns" in used:
                figures["run_queue_ns"] = min(took_ns, used["run_queue_ns"])
        return figures

    def _so_far(self) -> Figures:
        if get_ident() != self._thread:
            self.close()
            self._open()
        sched, read = self._sched.read(), self._io.read()
        figures = {"cpu_ns": thread_time_ns(), "process_ns": process_time_ns()}
        if sched:
            figures["run_queue_ns"] = int(sched.split()[1])
        if read:
            lines = read.split()
            figures["read_bytes"] = int(lines[1]) - self._own_bytes - len(sched)
            figures["disk_bytes"] = int(lines[9])
        self._own_bytes += len(sched) + len(read)
        used = resource.getrusage(resource.RUSAGE_THREAD)
        figures["minor_faults"], figures["system_ns"] = used.ru_minflt, int(used.ru_stime * 1e9)
        return figures


class OwnMemory:
    """What of this process' memory is its own, and what it shares with the process it began in.

    The kernel walks all pages for it, some 15 ms a GB. So it is read when this is made, and then at
    intervals that double up to MOST_GAP_NS, longer where reading takes long.
    """

    def __init__(self) -> None:
        self._began_ns = self._due_ns = perf_counter_ns()

    def take(self) -> Figures:
        """Its private and its shared bytes that were written to, if they are due."""
        if perf_counter_ns() < self._due_ns:
            return {}
        cost_ns, lines = thread_time_ns(), []
        with suppress(OSError):  # the kernel does not tell
            pages = int(Path("/proc/self/statm").read_bytes().split()[1])
            if pages * os.sysconf("SC_PAGE_SIZE") <= MOST_RESIDENT:
                lines = Path("/proc/self/smaps_rollup").read_bytes().splitlines()
        if not lines:
            self._due_ns = NEVER
            return {}
        kilobytes = {name: int(value) for name, value, *_ in map(bytes.split, lines[1:])}
        cost_ns, now_ns = thread_time_ns() - cost_ns, perf_counter_ns()
        doubled_ns = min(now_ns - self._began_ns, MOST_GAP_NS)
        self._due_ns = now_ns + max(LEAST_GAP_NS, doubled_ns, int(cost_ns / MEMORY_SHARE))
        return {
            "private_bytes": kilobytes[b"Private_Dirty:"] * 1024,
            "shared_bytes": kilobytes[b"Shared_Dirty:"] * 1024,
        }


class ThreadState:
    """What the kernel says of a thread: whether it is blocked, and in what."""

    def __init__(self, thread: int, native: int) -> None:
        task = f"/proc/self/task/{native}"
        self._stat = KernelFile(f"{task}/stat")
        self.tells = bool(self._stat.read())
        self._schedstat = KernelFile(f"{task}/schedstat")
        self._wchan = KernelFile(f"{task}/wchan")
        self._clock = time.pthread_getcpuclockid(thread)
        self._queued_ns = self._queued()
        self._before = self._moment()

    def close(self) -> None:
        """Close the kernel's files; nothing can be asked afterwards."""
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
        state = self._stat.read().rpartition(b") ")[2][:1]
        queued, self._queued_ns = self._queued_ns, self._queued()
        if state == b"R":
            return None
        where = self._wchan.read().decode().strip().removesuffix("\0")
        where = "" if where == "0" else where
        active += self._queued_ns - queued
        if state == b"S" and (not where or "futex" in where) and 2 * active > passed:
            return None
        return where

    def _queued(self) -> int:
        """Nanoseconds that the thread has waited for a CPU."""
        fields = self._schedstat.read().split()
        return int(fields[1]) if fields else 0

    def _moment(self) -> tuple[int, int]:
        """Nanoseconds that the thread was on a CPU, and the time."""
        return time.clock_gettime_ns(self._clock), perf_counter_ns()


class CallCounter:
    """Counts the files that this thread opens, its connections and HTTP requests, in one batch.

    And the samples that it makes, if functions written in Python return or yield their arrays.
    Meanwhile each call takes 0.2 to 1 us longer, so it takes up to half of the batch's time. An
    audit hook would see all threads, but it stays for good, and is called for each `id()`.
    """

    def __init__(self) -> None:
        self._counts = {"opened_files": 0, "connections": 0, "requests": 0}
        self._profile = self._count
        self._returns = Counter[CodeType]()
        self._makers: dict[int, tuple[weakref.ref[Any], Call]] = {}

    def start(self, batch_ns: int) -> None:
        """Count in a batch that takes some `batch_ns`, unless somebody profiles this thread."""
        self._left = batch_ns // (2 * EVENT_NS)
        if sys.getprofile() is None:
            sys.setprofile(self._profile)

    def stop(self) -> Figures:
        """The counts; none after too many calls, or where another profiler was there."""
        if sys.getprofile() is not self._profile:
            return {}
        sys.setprofile(None)
        return self._counts

    def read(self, samples: list[Any]) -> None:
        """Count how many were made for these samples, the ones that nobody gets included.

        What has made them is the function that has returned, or yielded, the largest array of each.
        If it has done so twice as often as they came of it, it has made twice as many samples. Not
        a generator, while anything that others made stays in a buffer: it may yield older ones.
        """
        if sys.getprofile() is not self._profile:
            return
        sys.setprofile(None)
        served, makers = set[Call](), set[CodeType | None]()
        for sample in samples:
            parts = [*islice(leaves(sample), LEAVES)]
            largest = max(parts, key=lambda part: prod(getattr(part, "shape", ())), default=None)
            makers.add((self._maker(largest) or (None,))[0])
            served |= {*filter(None, map(self._maker, parts))}
        maker = makers.pop() if len(makers) == 1 else None
        if maker is not None:
            kept = {call for part, call in self._makers.values() if part() is not None} - served
            if not maker.co_flags & CO_GENERATOR or kept <= {*self._returns.items()}:
                came = sum(code is maker for code, _ in served)
                self._counts["made"] = round(self._returns[maker] / came * len(samples))
        sys.setprofile(self._profile)

    def _count(self, frame: FrameType, event: str, called: Any) -> None:
        self._left -= 1
        if self._left < 0:
            sys.setprofile(None)
        elif event == "c_call":
            if called in OPENS:
                self._counts["opened_files"] += 1
            elif called.__name__ in {"connect", "connect_ex"}:
                of_socket = getattr(called, "__self__", None)
                self._counts["connections"] += getattr(of_socket, "family", None) in INTERNET
        elif event == "call":
            self._counts["requests"] += frame.f_code is REQUEST
        elif event == "return":
            # A generator may pass on what others made; so may a tuple of an image and its label.
            code, is_one = frame.f_code, type(called) not in {tuple, list, dict}
            passes_on = not is_one or code.co_flags & CO_GENERATOR
            parts = called.values() if type(called) is dict else [called] if is_one else called
            made = [part for part in islice(parts, LEAVES) if type(part).__weakrefoffset__]
            if passes_on:
                made = [part for part in made if self._maker(part) is None]
            if made:
                self._returns[code] += 1
                call = code, self._returns[code]
                self._makers |= {id(part): (weakref.ref(part), call) for part in made}

    def _maker(self, made: Any) -> Call | None:
        """The call that has returned it last; None is not known."""
        known = self._makers.get(id(made))
        return known[1] if known is not None and known[0]() is made else None
