"""The threads probe: CPU use of this process by thread name, and waiting for Python's lock.

A system call that Python makes gives up its lock, and where other threads run Python code it gets
it back 5 ms later. Reading dozens of files would take seconds, so they are read by calls that
keep the lock: some 10 us a thread.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from loadeval.errors import ProbeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TASKS = "/proc/self/task"
MOST_NAMES = 22
"""So many names have a subject each, beside the training thread and all others together."""
TRAINING, OTHERS, LOCK = "training thread", "other threads", "python lock"
PAUSES_S = (0.002, 0.003, 0.005)
"""A reading gives Python's lock up for so long each, and so asks for it at moments that do not
follow from when other threads release it."""
NUMBERS = re.compile(r"[-_#: ]?\d+(?![^\W_])")
"""Numbers tell the threads of one pool apart: `pool-0_3`, `[DALI][TP3]`."""
NAME_AT = 19
"""The name begins at this byte of a directory entry, on 64-bit Linux."""
MOST_BYTES = 128


class Times(NamedTuple):
    """Nanoseconds that a thread was on a CPU since it began, and runnable without one."""

    cpu_ns: int
    run_queue_ns: int


class ThreadsProbe:
    """Reads the threads of this process, those of one name together, and the lock of Python.

    `cpu_cores` and `run_queue_cores` are means since the reading before: of how many threads on a
    CPU, and runnable without one. The training thread is the one that made the probe. Beyond 22
    names, the busiest of those that were met together, the rest are "other threads".
    """

    name = "threads"
    every = 10

    def __init__(self) -> None:
        self._training = threading.get_native_id()

    def open(self) -> None:
        """Begin. Raises ProbeError where the system does not tell of threads."""
        self._files = Files()
        if self._files.times_of("self") is None:
            raise ProbeError(
                "this system does not tell the CPU time of threads: it has no "
                "/proc/self/task/*/schedstat"
            )
        self._names: dict[str, str] = {}
        self._distinct: set[str] = set()
        self._before: dict[str, Times] | None = None
        self._before_ns = 0

    def read(self) -> Mapping[str, Mapping[str, float | None]]:
        """The quantities of each subject now."""
        return dict(self._threads())

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def _threads(self) -> Iterator[tuple[str, Mapping[str, float | None]]]:
        all_times = ((tid, self._files.times_of(tid)) for tid in self._files.threads())
        now = {tid: times for tid, times in all_times if times is not None}
        before, self._before = self._before, now
        before_ns, self._before_ns = self._before_ns, time.perf_counter_ns()
        elapsed_ns = self._before_ns - before_ns
        groups = self._groups(now, before or {})
        for subject, threads in groups.items():
            used = [_since(now[tid], (before or {}).get(tid)) for tid in threads]
            cpu, run_queue = (sum(column) / elapsed_ns for column in zip(*used, strict=True))
            yield (
                subject,
                {
                    "cpu_cores": None if before is None else cpu,
                    "run_queue_cores": None if before is None else run_queue,
                    "threads": len(threads),
                },
            )

    def _groups(self, now: dict[str, Times], before: dict[str, Times]) -> dict[str, list[str]]:
        """The threads of each subject; a name that was told once is told on."""
        self._names = {tid: self._names[tid] for tid in now if tid in self._names}
        python = {str(thread.native_id): thread.name for thread in threading.enumerate()}
        groups: dict[str, list[str]] = defaultdict(list)
        for tid in now:
            name = python.get(tid)
            if name is None:
                name = self._names.get(tid) or self._files.name_of(tid)
            self._names[tid] = name
            groups[TRAINING if tid == str(self._training) else subject_of(name)].append(tid)
        busiest = sorted(
            groups,
            key=lambda name: -sum(_since(now[tid], before.get(tid)).cpu_ns for tid in groups[name]),
        )
        for name in busiest:
            if name != TRAINING and len(self._distinct) < MOST_NAMES:
                self._distinct.add(name)
        for name in busiest:
            if name not in self._distinct and name != TRAINING:
                groups[OTHERS] += groups.pop(name)
        return dict(groups)


class PythonLockProbe:
    """Reads how long a thread of this process waits for Python's lock (GIL).

    `lock_wait_ns` is how long one that gave it up waits until it has it again, without waiting for
    a CPU: the mean of some tries. While a thread runs Python code that is up to
    `sys.getswitchinterval()`, 5 ms, or a multiple where several do; where they release the lock
    some 70 us, by which a sleep takes longer than asked for. At the edges of blocks, where training
    waits for the reading, it is not read.
    """

    name = "threads"
    every = 1
    at_edges = False

    def open(self) -> None:
        """Begin. Raises ProbeError where there is no such lock."""
        self._files = Files()
        if not _has_lock():
            raise ProbeError("this Python has no lock that its threads share")

    def read(self) -> Mapping[str, Mapping[str, float | None]]:
        """The wait now."""
        return {LOCK: {"lock_wait_ns": fmean(map(self._wait_ns, PAUSES_S))}}

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def _wait_ns(self, pause_s: float) -> int:
        me = str(threading.get_native_id())
        before, began_ns = self._files.times_of(me), time.perf_counter_ns()
        time.sleep(pause_s)
        took_ns = time.perf_counter_ns() - began_ns - round(pause_s * 1e9)
        after = self._files.times_of(me)
        queued_ns = 0 if before is None or after is None else _since(after, before).run_queue_ns
        return max(took_ns - queued_ns, 0)


def subject_of(name: str) -> str:
    """The name without what tells the threads of one pool apart."""
    return NUMBERS.sub("", name).strip() or name


def _since(now: Times, before: Times | None) -> Times:
    """What a thread has used since `before`; one that has another's number began since then."""
    if before is None or now.cpu_ns < before.cpu_ns:
        return now
    return Times(now.cpu_ns - before.cpu_ns, now.run_queue_ns - before.run_queue_ns)


def _has_lock() -> bool:
    """Whether this Python has a lock that its threads share."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


class Files:
    """Reads files of /proc about the threads of this process, without giving up Python's lock."""

    def __init__(self, folder: str = TASKS) -> None:
        self._folder = folder
        library = ctypes.PyDLL(None)
        self._open, self._read, self._close = library.open, library.read, library.close
        self._read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
        self._read.restype = ctypes.c_ssize_t
        self._opendir, self._readdir = library.opendir, library.readdir
        self._closedir = library.closedir
        self._opendir.restype = self._readdir.restype = ctypes.c_void_p
        self._readdir.argtypes = self._closedir.argtypes = (ctypes.c_void_p,)
        self._buffer = ctypes.create_string_buffer(MOST_BYTES)

    def threads(self) -> list[str]:
        """The numbers of all threads."""
        tids: list[str] = []
        folder = self._opendir(self._folder.encode())
        if folder is None:
            return tids
        while (entry := self._readdir(folder)) is not None:
            name = ctypes.string_at(entry + NAME_AT).decode()
            if name.isdigit():
                tids.append(name)
        self._closedir(folder)
        return tids

    def times_of(self, tid: str) -> Times | None:
        """What thread `tid` has used; None where it is over, or the system does not tell."""
        path = "/proc/thread-self" if tid == "self" else f"{self._folder}/{tid}"
        fields = self._content(f"{path}/schedstat").split()
        return Times(int(fields[0]), int(fields[1])) if len(fields) > 1 else None

    def name_of(self, tid: str) -> str:
        """The name that the system has for thread `tid`."""
        return self._content(f"{self._folder}/{tid}/comm").decode(errors="replace").strip() or "?"

    def _content(self, path: str) -> bytes:
        file = self._open(path.encode(), os.O_RDONLY)
        if file < 0:
            return b""
        size = self._read(file, self._buffer, MOST_BYTES)
        self._close(file)
        return self._buffer.raw[:size] if size > 0 else b""
