"""The threads probes: CPU use of this process by thread name, and waiting for Python's lock."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

from loadeval.errors import ProbeError
from loadeval.probes.schedstat import Files, Times

MOST_NAMES = 22
"""So many names have a subject each, beside the training thread and all others together."""
TRAINING, OTHERS, LOCK = "training thread", "other threads", "python lock"
PAUSES_S = (0.002, 0.003, 0.005)
"""A reading gives Python's lock up for so long each, and so asks for it at moments that do not
follow from when other threads release it."""
NUMBERS = re.compile(r"[-_#: ]?\d+(?![^\W_])")
"""Numbers tell the threads of one pool apart: `pool-0_3`, `[DALI][TP3]`."""


class ThreadsProbe:
    """Reads the threads of this process, those of one name together.

    `cpu_cores` and `run_queue_cores` are means since the reading before: of how many threads on a
    CPU, and runnable without one. The training thread is the one that made the probe. Beyond 22
    names, those of the busiest threads, the rest are "other threads".
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
        self._distinct: set[str] = set()
        self._before: dict[int, Times] = {}
        self._before_ns: int | None = None

    def read(self) -> Mapping[str, Mapping[str, float | None]]:
        """The quantities of each subject now."""
        all_times = ((tid, self._files.times_of(tid)) for tid in self._files.threads())
        now = {tid: times for tid, times in all_times if times is not None}
        now_ns = time.perf_counter_ns()
        used = {tid: times.since(self._before.get(tid)) for tid, times in now.items()}
        elapsed_ns = None if self._before_ns is None else now_ns - self._before_ns
        self._before, self._before_ns = now, now_ns
        readings: dict[str, Mapping[str, float | None]] = {}
        for subject, tids in self._subjects(used).items():
            cpu_ns = sum(used[tid].cpu_ns for tid in tids)
            run_queue_ns = sum(used[tid].run_queue_ns for tid in tids)
            readings[subject] = {
                "cpu_cores": cpu_ns / elapsed_ns if elapsed_ns else None,
                "run_queue_cores": run_queue_ns / elapsed_ns if elapsed_ns else None,
                "threads": len(tids),
            }
        return readings

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def _subjects(self, used: dict[int, Times]) -> dict[str, list[int]]:
        """The threads of each subject; a name that was told once is told on."""
        python = {thread.native_id: thread.name for thread in threading.enumerate()}
        self._names = {
            tid: python.get(tid) or self._names.get(tid) or self._files.name_of(tid) for tid in used
        }
        subjects: dict[str, list[int]] = defaultdict(list)
        for tid in sorted(used, key=lambda tid: -used[tid].cpu_ns):
            name = TRAINING if tid == self._training else subject_of(self._names[tid])
            if name != TRAINING and len(self._distinct) < MOST_NAMES:
                self._distinct.add(name)
            subjects[name if name in {TRAINING, *self._distinct} else OTHERS].append(tid)
        return subjects


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
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise ProbeError("this Python has no lock that its threads share")

    def read(self) -> Mapping[str, Mapping[str, float | None]]:
        """The wait now."""
        return {LOCK: {"lock_wait_ns": fmean(map(self._wait_ns, PAUSES_S))}}

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def _wait_ns(self, pause_s: float) -> int:
        me = threading.get_native_id()
        before, began_ns = self._files.times_of(me), time.perf_counter_ns()
        time.sleep(pause_s)
        took_ns = time.perf_counter_ns() - began_ns - round(pause_s * 1e9)
        after = self._files.times_of(me)
        queued_ns = 0
        if before is not None and after is not None:
            queued_ns = after.since(before).run_queue_ns
        return max(took_ns - queued_ns, 0)


def subject_of(name: str) -> str:
    """The name without what tells the threads of one pool apart."""
    return NUMBERS.sub("", name).strip() or name
