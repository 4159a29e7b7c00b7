"""How busy the whole machine is, and what holds its CPUs back."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loadeval.probes.cgroup import PROC, tightest_cpu, tightest_memory

CPUS = Path("/sys/devices/system/cpu")
THERMAL = "cpu[0-9]*/thermal_throttle/*_count"
IDLE = ("idle", "iowait")
ELSEWHERE = ("steal", "guest", "guest_nice")
"""Time that other machines had, and what is contained in the times of others."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What has been counted since the machine began; None is not known."""

    busy_s: float
    throttled: tuple[int, int] | None
    heated: int | None
    time_s: float = field(default_factory=time.perf_counter)


class MachineLoad:
    """Reads how busy the machine is, how much memory there is, and what throttles its CPUs.

    Memory and CPU time are those that the tightest control group leaves, where one limits them.
    """

    def __init__(self, proc: Path = PROC, cpus: Path = CPUS) -> None:
        self._thermal = sorted(cpus.glob(THERMAL))
        self._cpu_group = tightest_cpu(proc)
        self._memory_group = tightest_memory(proc)
        self._before: Counters | None = None

    def read(self) -> dict[str, float | None]:
        """The quantities now, rates since the last time; None at the first, and of the unknown.

        `cpu_cores` counts all processes of the machine. `cgroup_throttled_share` is of the
        periods of the control group, `thermal_throttles_per_s` of all CPUs and packages.
        """
        before, now = self._before, self._counters()
        self._before = now
        return {**_rates(before, now), **self._memory()}

    def _counters(self) -> Counters:
        times = psutil.cpu_times()._asdict()
        busy_s = sum(times[name] for name in times if name not in (*IDLE, *ELSEWHERE))
        throttled = None if self._cpu_group is None else self._cpu_group.periods
        return Counters(busy_s, throttled, _sum_of(self._thermal))

    def _memory(self) -> dict[str, float | None]:
        memory = psutil.virtual_memory()
        limit, available = memory.total, memory.available
        group = self._memory_group
        allowed = None if group is None else group.memory_limit_bytes
        if group is not None and allowed is not None and allowed < limit:
            limit = allowed
            available = min(available, max(allowed - (group.memory_used_bytes or 0), 0))
        return {"memory_limit_bytes": limit, "memory_available_bytes": available}


def _rates(before: Counters | None, now: Counters) -> dict[str, float | None]:
    cores = share = heating = None
    if before is not None:
        elapsed_s = now.time_s - before.time_s
        cores = (now.busy_s - before.busy_s) / elapsed_s
        if now.heated is not None and before.heated is not None:
            heating = (now.heated - before.heated) / elapsed_s
        if now.throttled is not None and before.throttled is not None:
            held_back, periods = (
                late - early for late, early in zip(now.throttled, before.throttled, strict=True)
            )
            share = held_back / periods if periods else None
    return {
        "cpu_cores": cores,
        "cgroup_throttled_share": share,
        "thermal_throttles_per_s": heating,
    }


def _sum_of(paths: list[Path]) -> int | None:
    try:
        return sum(int(path.read_text()) for path in paths) if paths else None
    except (OSError, ValueError):  # a CPU that was taken offline
        return None
