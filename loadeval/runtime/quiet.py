"""Waiting until a loader's background work has filled its queue and gone idle."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

NAP_S = 0.03
"""Three ticks of the clock by which systems count CPU time."""
IDLE_SHARE = 0.1
"""Of one CPU: what a process that does nothing in particular may take."""


class Background:
    """What this process and its children do while the training step does nothing."""

    def __init__(self) -> None:
        import psutil  # noqa: PLC0415 - kept out of `import loadeval`

        self._psutil = psutil
        self._self = psutil.Process()

    def workers_cpu_ns(self) -> int | None:
        """CPU time that the living children have taken so far; None where it cannot be read."""
        try:
            children = self._self.children(recursive=True)
        except self._psutil.Error:
            return None
        return round(sum(map(self._cpu_s, children)) * 1e9)

    def wait_until_idle(self, limit_s: float) -> bool:
        """Nap until nobody works in the background; False when `limit_s` passed before."""
        deadline = time.monotonic() + limit_s
        busy_s = self._busy_s()
        while time.monotonic() < deadline:
            time.sleep(NAP_S)
            before_s, busy_s = busy_s, self._busy_s()
            if busy_s - before_s <= IDLE_SHARE * NAP_S:
                return True
        return False

    def _busy_s(self) -> float:
        # This thread's own time is that of asking.
        others_s = time.process_time() - time.thread_time()
        return others_s + (self.workers_cpu_ns() or 0) / 1e9

    def _cpu_s(self, process: psutil.Process) -> float:
        try:
            times = process.cpu_times()
        except self._psutil.Error:  # it ended meanwhile
            return 0.0
        return float(times.user + times.system)
