"""The host probe: CPU, memory and disk reads of training, its workers and the machine."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from loadeval.errors import ProbeError
from loadeval.probes.cgroup import PROC, cpuset_cpus, groups, tightest_cpu, tightest_memory
from loadeval.probes.usage import (
    Family,
    Memory,
    affinity_of,
    amounts_in,
    content_of,
    memory_of,
    usage_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from loadeval.probes.usage import Usage

T = TypeVar("T")
Quantities = dict[str, "float | None"]

RATES = {
    "cpu_cores": "cpu_s",
    "minor_faults_per_s": "minor_faults",
    "major_faults_per_s": "major_faults",
    "read_bytes_per_s": "read_bytes",
    "disk_read_bytes_per_s": "disk_read_bytes",
}
"""A rate is how fast its counter grows."""
MEMORY_EVERY_S = 5.0
AFFINITY_EVERY_S = LIMITS_EVERY_S = 1.0
LEAST_OF_BUSIEST = 0.1
"""A process that lately used less CPU time than this share of the busiest one's loads nothing: it
may be an idle worker of another loader."""
MOST_SHARE = 0.001
"""Costly readings may take this share of one CPU's time."""
CPUS = Path("/sys/devices/system/cpu")
THERMAL = "cpu[0-9]*/thermal_throttle/*_count"
FREQUENCY = "cpu{}/cpufreq/scaling_cur_freq"
"""It has kHz, where the system tells them; not in most virtual machines."""
IDLE = ("idle", "iowait")
ELSEWHERE = ("steal", "guest", "guest_nice")
"""Other machines had this time, or it is contained in other times of this one."""


class HostProbe:
    """Reads the subjects "process", "workers" and "machine".

    The workers are all that descend from the training process, and have no reading while there
    are none; `started_workers` counts those seen so far. Rates are means since the reading
    before, and sums over the processes that live at the end of it.

    What is costly is done no more often than it can afford: looking for new workers, every
    second or two on a small machine, and reading memory, every `memory_every_s` seconds at most.
    That is `pss_bytes`, in which what is shared counts once (`pss_file_bytes` of it are of mapped
    files), and `anonymous_bytes`, in which it counts for each; or `rss_bytes`, where the system
    tells no better. So are the CPUs that the training process and its workers may run on, see
    `cpus_allowed`.
    """

    name = "host"
    every = 20

    def __init__(self, memory_every_s: float = MEMORY_EVERY_S) -> None:
        self._memory_every_s = memory_every_s

    def open(self) -> None:
        """Begin. Raises ProbeError where the system tells nothing, not even of this process."""
        self._pid = os.getpid()
        if usage_of(self._pid) is None:
            raise ProbeError("the system tells nothing of processes: /proc cannot be read")
        self._family = Family(self._pid)
        self._family.look()
        self._rates = {"process": UsageRates(), "workers": UsageRates()}
        self._machine = MachineLoad()
        self._family_limit = RateLimit(0.0)
        self._memory_limit = RateLimit(self._memory_every_s)
        self._affinity_limit = RateLimit(AFFINITY_EVERY_S)
        self._machine_limit = RateLimit(0.0)
        self._started: set[tuple[int, float]] = set()
        self._workers_before = self._family.usages()

    def read(self) -> Mapping[str, Mapping[str, float | None]]:
        """The quantities of each subject now."""
        self._family_limit.of(self._family.look)
        own = usage_of(self._pid)
        processes = {
            "process": {} if own is None else {self._pid: own},
            "workers": self._family.usages(),
        }
        readings = {name: self._rates[name].since(usages) for name, usages in processes.items()}
        workers = processes["workers"]
        self._started |= {(pid, usage.started) for pid, usage in workers.items()}
        readings["workers"] |= {
            "alive_workers": len(workers),
            "started_workers": len(self._started),
        }
        memory = self._memory_limit.of(lambda: list(map(_memory_sums, processes.values())))
        allowed = self._affinity_limit.of(lambda: self._cpus_allowed(workers))
        for of_both in (memory or [], allowed or []):
            for quantities, more in zip(readings.values(), of_both, strict=False):
                quantities.update(more)
        living = {name: quantities for name, quantities in readings.items() if processes[name]}
        cpus = {usage.last_cpu for usages in processes.values() for usage in usages.values()}
        machine = self._machine_limit.of(lambda: self._machine.read(cpus))
        return living if machine is None else living | {"machine": machine}

    def _cpus_allowed(self, workers: dict[int, Usage]) -> list[Quantities]:
        before, self._workers_before = self._workers_before, workers
        return cpus_allowed(self._pid, workers, before)

    def close(self) -> None:
        """Do nothing: nothing is held."""


class UsageRates:
    """How fast the counters of processes grow."""

    def __init__(self) -> None:
        self._before: dict[int, Usage] | None = None
        self._before_s = 0.0

    def since(self, usages: dict[int, Usage]) -> Quantities:
        """The rates since the last time, by name; None at the first, and of what is not known."""
        before, before_s = self._before, self._before_s
        self._before, self._before_s = usages, time.perf_counter()
        if before is None:
            return dict.fromkeys(RATES)
        elapsed_s = self._before_s - before_s
        grown = {name: _grown(usages, before, counter) for name, counter in RATES.items()}
        return {
            name: None if growth is None else growth / elapsed_s for name, growth in grown.items()
        }


def _grown(now: dict[int, Usage], before: dict[int, Usage], counter: str) -> float | None:
    """The growth of the counters of those that live now, all together.

    One that was not there before has begun since, and its counter with it.
    """
    total = 0.0
    for pid, usage in now.items():
        value = getattr(usage, counter)
        earlier = before.get(pid)
        same = earlier is not None and earlier.started == usage.started
        start = getattr(earlier, counter) if same else 0
        if value is None or start is None:
            return None
        total += value - start
    return total


def _memory_sums(usages: dict[int, Usage]) -> Quantities:
    memories = [memory for pid in usages if (memory := memory_of(pid)) is not None]
    if len(memories) < len(usages):
        return {"rss_bytes": sum(usage.rss_bytes for usage in usages.values())}
    columns = zip(Memory._fields, zip(*memories, strict=True), strict=False)  # none of no process
    return {name: None if None in parts else sum(parts) for name, parts in columns}


def cpus_allowed(pid: int, workers: dict[int, Usage], before: dict[int, Usage]) -> list[Quantities]:
    """The CPUs that process `pid` may run on, and those that its workers may, or ran on last.

    Of the process these are the CPUs of its main thread, and of any of its threads; of the workers
    those of any of them, of the one that may use the fewest, the first of these by its number, and
    those of them that the main thread may use too. Only workers count that have used CPU time
    since `before`, when they were read last, or at all where none has. Nothing where the system
    does not tell.
    """
    own = affinity_of(pid)
    threads = map(affinity_of, _threads_of(pid))
    used_s = {
        worker: usage.cpu_s - (before[worker].cpu_s if worker in before else 0.0)
        for worker, usage in workers.items()
    }
    if not any(used_s.values()):
        used_s = {worker: usage.cpu_s for worker, usage in workers.items()}
    busiest_s = max(used_s.values(), default=0.0)
    loading = {
        worker: usage
        for worker, usage in workers.items()
        if used_s[worker] >= LEAST_OF_BUSIEST * busiest_s
    }
    affinities = [cpus for worker in loading if (cpus := affinity_of(worker))]
    allowed = frozenset[int]().union(*affinities)
    last = {usage.last_cpu for usage in loading.values()} - {None}
    of_process: Quantities = {
        "allowed_cpus": len(own),
        "threads_allowed_cpus": len(own.union(*threads)),
    }
    of_workers: Quantities = {
        "allowed_cpus": len(allowed),
        "fewest_allowed_cpus": min(map(len, affinities), default=None),
        "first_allowed_cpu": min(allowed, default=None),
        "shared_allowed_cpus": len(allowed & own),
        "last_cpus": len(last),
    }
    return [of_process if own else {}, of_workers if own and allowed else {}]


def _threads_of(pid: int) -> list[int]:
    try:
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


class RateLimit:
    """Limits how often costly work is done."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due_s = 0.0

    def of(self, work: Callable[[], T]) -> T | None:
        """What `work` returns, or None if it is not due yet."""
        now_s = time.perf_counter()
        if now_s < self._due_s:
            return None
        began_s = time.thread_time()
        result = work()
        cost_s = time.thread_time() - began_s
        self._due_s = now_s + max(self._every_s, cost_s / MOST_SHARE)
        return result


class MachineLoad:
    """Reads how busy the machine is, how much memory it has, and what throttles its CPUs.

    Memory and CPU time are those that the tightest control group leaves, where one limits them.
    Memory and the CPUs that are allowed are read every `limits_every_s` seconds at most: that takes
    longer than all else.
    """

    def __init__(
        self, proc: Path = PROC, cpus: Path = CPUS, limits_every_s: float = LIMITS_EVERY_S
    ) -> None:
        self._clock = str(cpus / FREQUENCY)
        self._network = str(proc / "net/dev")
        self._thermal = sorted(cpus.glob(THERMAL))
        self._cpu_group = tightest_cpu(proc)
        self._memory_group = tightest_memory(proc)
        self._cpuset_groups = groups("cpuset", proc)
        self._before: Quantities = {}
        self._limits = RateLimit(limits_every_s)

    def read(self, cpus: Iterable[int | None] = ()) -> Quantities:
        """The quantities now, rates since the last time; None at the first, and of the unknown.

        `cpu_cores` counts all processes of the machine, and `stolen_cores` is what other virtual
        machines took. `cpu_clock_hz` is the clock of the fastest of `cpus`, by their numbers.
        `cgroup_throttled_share` is of the periods of the control group, `thermal_throttles_per_s`
        of all CPUs and packages. `received_bytes_per_s` came over the network, from this machine
        too. `allowed_cpus` are those that the control group allows.
        """
        now = self._counters()
        before, self._before = self._before, now
        grown = {name: _difference(value, before.get(name)) for name, value in now.items()}
        return {
            "cpu_cores": _ratio(grown["busy_s"], grown["time_s"]),
            "cgroup_throttled_share": _ratio(grown["throttled"], grown["periods"]),
            "stolen_cores": _ratio(grown["stolen_s"], grown["time_s"]),
            "cpu_clock_hz": max(filter(None, map(self._clock_hz, cpus)), default=None),
            "thermal_throttles_per_s": _ratio(grown["heated"], grown["time_s"]),
            "received_bytes_per_s": _ratio(grown["received"], grown["time_s"]),
            **(self._limits.of(self._read_limits) or {}),
        }

    def _counters(self) -> Quantities:
        """What has been counted since the machine began."""
        busy_s = stolen_s = None
        with suppress(OSError):  # without /proc
            times = psutil.cpu_times()._asdict()
            stolen_s = times.get("steal")
            busy_s = sum(times[name] for name in times if name not in (*IDLE, *ELSEWHERE))
        interfaces = amounts_in(content_of(self._network))  # each begins with what it received
        group = self._cpu_group
        throttled, periods = (None if group is None else group.periods) or (None, None)
        return {
            "time_s": time.perf_counter(),
            "busy_s": busy_s,
            "stolen_s": stolen_s,
            "throttled": throttled,
            "periods": periods,
            "heated": _throttles(self._thermal),
            "received": sum(interfaces.values()) if interfaces else None,
        }

    def _clock_hz(self, cpu: int | None) -> float | None:
        text = content_of(self._clock.format(cpu)).strip()
        return 1000.0 * int(text) if text.isdigit() else None

    def _read_limits(self) -> Quantities:
        return {"allowed_cpus": cpuset_cpus(self._cpuset_groups), **self._memory()}

    def _memory(self) -> Quantities:
        try:
            memory = psutil.virtual_memory()
        except OSError:
            return {"memory_limit_bytes": None, "memory_available_bytes": None}
        limit, available = memory.total, memory.available
        group = self._memory_group
        allowed = None if group is None else group.memory_limit_bytes
        if group is not None and allowed is not None and allowed < limit:
            limit = allowed
            available = min(available, max(allowed - (group.memory_used_bytes or 0), 0))
        return {"memory_limit_bytes": limit, "memory_available_bytes": available}


def _difference(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _throttles(paths: list[Path]) -> int | None:
    try:
        return sum(int(path.read_text()) for path in paths) if paths else None
    except (OSError, ValueError):  # a CPU that was taken offline
        return None
