"""Whether the processes that load are busy, by the CPU time that the system counts for them."""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

NAP_S = 0.03
"""It is three ticks of the clock that counts CPU time."""
IDLE_SHARE = 0.1
"""A process that uses no more than this share of one CPU is idle."""
HAS_PROC = os.path.exists("/proc/self/stat")  # noqa: PTH110 - pathlib is not needed here


class WorkerActivity:
    """CPU use of this process's workers and background threads."""

    def __init__(self) -> None:
        import psutil  # noqa: PLC0415 - kept out of `import loadeval`

        self._unread = psutil.Error, OSError  # such as too many open files
        self._strangers: set[int] = set()
        self._self: psutil.Process | None = None
        with suppress(*self._unread):  # /proc may be hidden
            self._self = psutil.Process()

    def workers_cpu_ns(self) -> int | None:
        """CPU time of all living child processes so far; None if it cannot be read."""
        if self._self is None:
            return None
        if HAS_PROC:
            return self._by_proc()
        try:
            children = self._self.children(recursive=True)
        except self._unread:
            return None
        return round(sum(map(self._cpu_s, children)) * 1e9)

    def _by_proc(self) -> int | None:
        """The same on Linux, where it takes a tenth of the time with many workers."""
        try:
            pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208 - quicker
        except OSError:
            return None
        self._strangers &= pids
        parents_and_ticks = {pid: _parent_and_ticks(pid) for pid in pids - self._strangers}
        own = os.getpid()
        family = {own}
        while (
            joining := {pid for pid, (parent, _) in parents_and_ticks.items() if parent in family}
            - family
        ):
            family |= joining
        # Who is of another family stays so, and is not asked again.
        self._strangers |= parents_and_ticks.keys() - family
        family.discard(own)
        ticks = sum(parents_and_ticks[pid][1] for pid in family)
        return round(ticks / os.sysconf("SC_CLK_TCK") * 1e9)

    def wait_until_idle(self, limit_s: float) -> bool:
        """Sleep until the background work is done; False if it is not after `limit_s`."""
        deadline = time.monotonic() + limit_s
        busy_s = self._busy_s()
        naps = math.ceil(limit_s / NAP_S)  # no more than that where the clock stands still
        while naps and time.monotonic() < deadline:
            naps -= 1
            time.sleep(NAP_S)
            before_s, busy_s = busy_s, self._busy_s()
            if busy_s - before_s <= IDLE_SHARE * NAP_S:
                return True
        return False

    def _busy_s(self) -> float:
        # This thread spends its time on reading these numbers.
        others_s = time.process_time() - time.thread_time()
        return others_s + (self.workers_cpu_ns() or 0) / 1e9

    def _cpu_s(self, process: psutil.Process) -> float:
        try:
            times = process.cpu_times()
        except self._unread:  # it has just ended
            return 0.0
        return float(times.user + times.system)


def _parent_and_ticks(pid: int) -> tuple[int, int]:
    """The parent of process `pid`, and the clock ticks that it was on a CPU; see proc(5).

    0 and 0 for one that is over.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - quicker
            # The name of the program stands in brackets, and may hold any character.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0, 0
    return int(fields[1]), int(fields[11]) + int(fields[12])
