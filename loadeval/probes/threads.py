"""The threads probes: CPU use by thread name, waiting for Python's lock, the training's lines.

A system call that Python makes gives up its lock, and where other threads run Python code it gets
it back 5 ms later. Reading dozens of files of /proc/self/task would take seconds, so they are read
by calls that keep the lock: some 10 us a thread.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from traceback import walk_stack
from types import CodeType
from typing import NamedTuple

from loadeval.data.lines import CodeSamples
from loadeval.errors import ProbeError
from loadeval.frames import current_line, short_switches
from loadeval.probes import Probe

FOLDER = "/proc/self/task"
NAME_AT = 19
"""The name begins at this byte of a directory entry, on 64-bit Linux."""
MOST_BYTES = 128
TRAINING, LOCK = "training thread", "python lock"
PAUSES_S = (0.002, 0.003, 0.005)
"""A reading gives Python's lock up for so long each, and so asks for it at moments that do not
follow from when other threads release it."""
NUMBERS = re.compile(r"[-_#: ]?\d+(?![^\W_])")
"""Numbers tell the threads of one pool apart: `pool-0_3`, `[DALI][TP3]`."""
OURS = tuple(f"{Path(__file__).parents[1]}/{room}/" for room in ("core", "launch"))
"""Files of ours stand in a stack too, and are no lines of the framework or the program."""
LOOKS = 2
"""A reading has so many, and there are some eight readings a second."""
LOOK_PAUSES_S = (0.003, 0.013, 0.009, 0.015, 0.005, 0.011, 0.001)
"""So long, in turn, a look waits first, while the thread may not keep Python's lock.

A reading begins where the thread gives the lock up, as at a sleep: some ms later it is anywhere.
"""


class Times(NamedTuple):
    """Nanoseconds that a thread was on a CPU since it began, and runnable without one."""

    cpu_ns: int
    run_queue_ns: int


class Files:
    """Reads about the threads of this process without giving up Python's lock."""

    def __init__(self) -> None:
        library = ctypes.PyDLL(None)
        self._open, self._read, self._close = library.open, library.read, library.close
        self._read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
        self._read.restype = ctypes.c_ssize_t
        self._opendir, self._readdir = library.opendir, library.readdir
        self._closedir = library.closedir
        self._opendir.restype = self._readdir.restype = ctypes.c_void_p
        self._readdir.argtypes = self._closedir.argtypes = (ctypes.c_void_p,)
        self._buffer = ctypes.create_string_buffer(MOST_BYTES)

    def threads(self) -> list[int]:
        """The numbers of all threads; none where the system does not tell."""
        tids: list[int] = []
        folder = self._opendir(FOLDER.encode())
        while folder is not None and (entry := self._readdir(folder)) is not None:
            name = ctypes.string_at(entry + NAME_AT)
            if name.isdigit():
                tids.append(int(name))
        if folder is not None:
            self._closedir(folder)
        return tids

    def times_of(self, tid: int) -> Times | None:
        """What thread `tid` has used; None where it is over, or the system does not tell."""
        fields = self._content(f"{tid}/schedstat").split()
        return Times(int(fields[0]), int(fields[1])) if len(fields) > 1 else None

    def name_of(self, tid: int) -> str:
        """The name that the system has for thread `tid`."""
        return self._content(f"{tid}/comm").decode(errors="replace").strip() or "?"

    def _content(self, path: str) -> bytes:
        file = self._open(f"{FOLDER}/{path}".encode(), os.O_RDONLY)
        if file < 0:
            return b""
        size = self._read(file, self._buffer, MOST_BYTES)
        self._close(file)
        return self._buffer.raw[:size] if size > 0 else b""


class ThreadsProbe(Probe):
    """Reads the threads of this process, those of one name together: how many `threads` there are.

    `cpu_cores` and `run_queue_cores` are means since the reading before: of how many threads on a
    CPU, and runnable without one. The training thread is the one that made the probe.
    """

    name = "threads"
    every = 10

    def __init__(self, files: Files | None = None) -> None:
        self._training = threading.get_native_id()
        self._files = files or Files()

    def open(self) -> None:
        """Begin. Raises ProbeError where the system does not tell of threads."""
        if self._files.times_of(threading.get_native_id()) is None:
            raise ProbeError(
                "this system does not tell the CPU time of threads: it has no "
                "/proc/self/task/*/schedstat"
            )
        self._names: dict[int, str] = {}
        self._before: dict[int, Times] = {}
        self._before_ns: int | None = None

    def read(self) -> Mapping[str, Mapping[str, float | None]]:
        """The quantities of each subject now; a name that was told once is told on."""
        told = ((tid, self._files.times_of(tid)) for tid in self._files.threads())
        now = {tid: times for tid, times in told if times is not None}
        now_ns = time.perf_counter_ns()
        elapsed_ns = None if self._before_ns is None else now_ns - self._before_ns
        python = {thread.native_id: thread.name for thread in threading.enumerate()}
        self._names = {
            tid: python.get(tid) or self._names.get(tid) or self._files.name_of(tid) for tid in now
        }
        subjects: dict[str, list[Times]] = defaultdict(list)
        for tid, (cpu_ns, run_queue_ns) in now.items():
            before = self._before.get(tid, Times(0, 0))
            used = Times(cpu_ns - before.cpu_ns, run_queue_ns - before.run_queue_ns)
            name = TRAINING if tid == self._training else subject_of(self._names[tid])
            subjects[name].append(used)
        self._before, self._before_ns = now, now_ns
        readings: dict[str, dict[str, float | None]] = {}
        for subject, threads in subjects.items():
            readings[subject] = {"threads": len(threads)}
            if elapsed_ns:
                cpu_ns = sum(each.cpu_ns for each in threads)
                run_queue_ns = sum(each.run_queue_ns for each in threads)
                readings[subject]["cpu_cores"] = cpu_ns / elapsed_ns
                readings[subject]["run_queue_cores"] = run_queue_ns / elapsed_ns
        return readings


class PythonLockProbe(Probe):
    """Reads how long a thread of this process waits for Python's lock (GIL).

    `lock_wait_ns` is how long one that gave it up waits until it has it again, without waiting for
    a CPU: the mean of some tries. While a thread runs Python code that is up to
    `sys.getswitchinterval()`, 5 ms, or a multiple where several do; where they release the lock
    some 70 us, by which a sleep takes longer than asked for. At the edges of blocks, where training
    waits for the reading, it is not read.
    """

    name = "threads"
    at_edges = False

    def open(self) -> None:
        """Begin."""
        self._files = Files()

    def read(self) -> Mapping[str, Mapping[str, float | None]]:
        """The wait now."""
        return {LOCK: {"lock_wait_ns": sum(map(self._wait_ns, PAUSES_S)) / len(PAUSES_S)}}

    def _wait_ns(self, pause_s: float) -> int:
        me = threading.get_native_id()
        before, began_ns = self._files.times_of(me), time.perf_counter_ns()
        time.sleep(pause_s)
        took_ns = time.perf_counter_ns() - began_ns - round(pause_s * 1e9)
        after = self._files.times_of(me)
        if before is not None and after is not None:
            took_ns -= after.run_queue_ns - before.run_queue_ns
        return max(took_ns, 0)


def subject_of(name: str) -> str:
    """The name without what tells the threads of one pool apart."""
    return NUMBERS.sub("", name).strip() or name


class StepProbe(Probe):
    """Reads where the training thread, by default the one that made the probe, is in its step.

    `waits` is the code that it runs while it waits for a batch: what is seen in there is no step.
    What has called that code is the training loop. So where the loop is a framework's, a step is in
    lines that this calls, and not in the one line of the program that trains.
    """

    name = "step"
    at_edges = False

    def __init__(self, waits: CodeType) -> None:
        self.thread, self._waits, self._loop = threading.get_ident(), waits, {waits}
        self._pauses_s = cycle(LOOK_PAUSES_S)

    def open(self) -> None:
        """Begin. Raises ProbeError where other threads do not stand still for a look."""
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise ProbeError("this Python's threads run on while one looks at another")

    def read(self) -> Mapping[str, CodeSamples]:
        """The lines in which the thread is now, and what these call; nothing while it waits."""
        looks = (self._look() for _ in range(LOOKS))
        return {str(at): look for at, look in enumerate(looks) if look is not None}

    def _look(self) -> CodeSamples | None:
        with short_switches():
            time.sleep(next(self._pauses_s))
            place, _, call, frame = current_line(self.thread, self._loop, OURS, by_source=True)
        if frame is not None and frame.f_code is self._waits:
            self._loop |= {caller.f_code for caller, _ in walk_stack(frame)}
            return None
        calls = {f"{place} > {call}": 1} if call else {}
        return CodeSamples(None, {place: 1}, {}, calls, "step") if place else None
