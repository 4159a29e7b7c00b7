"""The host probe: CPU, memory and disk reads of training, its workers and the machine."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import psutil

from loadeval.errors import ProbeError
from loadeval.probes import Probe, limits
from loadeval.probes.limits import affinity_of, cpuset_cpus, memory_limit, memory_used, quota
from loadeval.probes.processes import Family, Usage, amounts_in, content_of, usage_of

T = TypeVar("T")
Quantities = dict[str, "float | None"]
Processes = dict[str, dict[int, Usage]]
"""What "process" and the "workers" have used, by pid."""

RATES = {
    "cpu_cores": "cpu_s",
    "read_bytes_per_s": "read_bytes",
    "disk_read_bytes_per_s": "disk_read_bytes",
}
"""A rate is how fast its counter grows."""
SHARED_ONCE = {"pss_bytes": "Pss", "pss_file_bytes": "Pss_File"}
RESIDENT = {
    "anonymous_bytes": "RssAnon",
    "shared_memory_bytes": "RssShmem",
    "mapped_file_bytes": "RssFile",
}
"""What smaps_rollup and status of /proc/PID call it."""
MEMORY_EVERY_S = 5.0
LIMITS_EVERY_S = 1.0
LEAST_OF_BUSIEST = 0.1
"""A process that used less CPU time than this share of the busiest one's loads nothing: it may be a
tracker's, or an idle worker of another loader."""
MOST_SHARE = 0.001
"""Costly readings may take this share of one CPU's time."""
NOT_BUSY = ("idle", "iowait", "steal", "guest", "guest_nice")
"""Nobody had this time, or another machine, or it is contained in other times of this one."""
OF_MACHINE = {
    "cpu_cores": ("busy_s", "time_s"),
    "cgroup_throttled_share": ("nr_throttled", "nr_periods"),
    "stolen_cores": ("stolen_s", "time_s"),
    "received_bytes_per_s": ("received", "time_s"),
    "loopback_bytes_per_s": ("loopback", "time_s"),
}
"""A rate of the machine is how fast the first of these counters grows, while the second does."""


class HostProbe(Probe):
    """Reads the subjects "process", "workers" and "machine".

    The workers are all that descend from the training process, and have no reading while there
    are none: `alive_workers` live, and `started_workers` were seen so far. `cpu_cores`,
    `read_bytes_per_s` (by system calls) and `disk_read_bytes_per_s` are means since the reading
    before, and sums over the processes that live at the end of it.

    What is costly is done no more often than it can afford: looking for new workers, every
    second or two on a small machine, and reading memory in which what is shared counts once, every
    `memory_every_s` seconds at most: `pss_bytes`, of which `pss_file_bytes` are of mapped files. In
    `anonymous_bytes`, of no file, `shared_memory_bytes` and `mapped_file_bytes` it counts for each
    process. `open_files` are those of the process, or of the worker that has the most, and one may
    have `open_files_limit`. The CPUs are those that the process's main thread and any worker may
    run on, `allowed_cpus`; any thread of the process, `threads_allowed_cpus`; the worker with the
    fewest, `fewest_allowed_cpus`; and both the main thread and a worker, `shared_allowed_cpus`.

    Of the machine, `cpu_cores` counts all processes, and `stolen_cores` is what other virtual
    machines took. `cgroup_throttled_share` is of the periods of the control group, which allows
    `allowed_cpus`. `received_bytes_per_s` came over the network, `loopback_bytes_per_s` of
    them from this machine.
    `memory_limit_bytes` and what is left of it, `memory_available_bytes`, are those of the control
    group where it limits memory.
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
        self._started: set[tuple[int, int]] = set()
        self._before: dict[str, dict[int, Usage]] = {}
        self._before_s = 0.0
        self._look, self._machine = RateLimit(self._family.look), RateLimit(MachineLoad().read)
        memory = partial(memory_of, file="smaps_rollup", kernels=SHARED_ONCE)
        self._costly = (
            RateLimit(partial(memory_of, file="status", kernels=RESIDENT)),
            RateLimit(memory, self._memory_every_s),
            RateLimit(open_files_of),
            RateLimit(cpus_allowed, LIMITS_EVERY_S),
        )

    def read(self) -> Mapping[str, Mapping[str, float | None]]:
        """The quantities of each subject now."""
        self._look()
        own, workers = usage_of(self._pid), self._family.usages()
        processes: Processes = {"process": {self._pid: own} if own else {}, "workers": workers}
        before, elapsed_s = self._before, time.perf_counter() - self._before_s
        self._before, self._before_s = processes, self._before_s + elapsed_s
        readings: dict[str, Quantities] = {
            name: rates(usages, before[name], elapsed_s) if before else {}
            for name, usages in processes.items()
        }
        self._started |= {(pid, usage.started) for pid, usage in workers.items()}
        readings["workers"]["alive_workers"] = len(workers)
        readings["workers"]["started_workers"] = len(self._started)
        for costly in self._costly:
            for name, quantities in (costly(processes) or {}).items():
                readings[name] |= quantities
        readings = {name: readings[name] for name, usages in processes.items() if usages}
        machine = self._machine()
        return readings if machine is None else readings | {"machine": machine}


def rates(usages: dict[int, Usage], before: dict[int, Usage], elapsed_s: float) -> Quantities:
    """How fast the counters of processes grow, without what is not known of one of them.

    A process that was not there before has begun since, and its counters with it.
    """
    known: Quantities = {}
    for name, counter in RATES.items():
        grown = 0.0
        for pid, usage in usages.items():
            earlier = before.get(pid)
            is_new = earlier is None or earlier.started != usage.started
            grown += getattr(usage, counter) - (0 if is_new else getattr(earlier, counter))
        if usages and not math.isnan(grown):
            known[name] = grown / elapsed_s
    return known


def memory_of(processes: Processes, file: str, kernels: Mapping[str, str]) -> dict[str, Quantities]:
    """The memory of these processes, as a file says: smaps_rollup in 5 ms a GB, status at once."""
    known: dict[str, Quantities] = {}
    for subject, usages in processes.items():
        told = [amounts_in(content_of(f"/proc/{pid}/{file}")) for pid in usages]
        known[subject] = {
            name: 1024 * sum(amounts[kernel] for amounts in told)
            for name, kernel in kernels.items()
            if told and all(kernel in amounts for amounts in told)
        }
    return known


def open_files_of(processes: Processes) -> dict[str, Quantities]:
    """The descriptors of the process that has the most, and how many one may have."""
    known: dict[str, Quantities] = {}
    for subject, usages in processes.items():
        most, allowed = 0, [math.inf]
        for pid in usages:
            with suppress(OSError):  # it is over
                most = max(most, len(os.listdir(f"/proc/{pid}/fd")))  # noqa: PTH208 - many, often
            limit = content_of(f"/proc/{pid}/limits").partition(b"Max open files")[2].split()[:1]
            allowed += [int(each) for each in limit if each.isdigit()]
        known[subject] = {"open_files": most, "open_files_limit": min(allowed)} if most else {}
    return known


def cpus_allowed(processes: Processes) -> dict[str, Quantities]:
    """The CPUs that this process may run on, and those that its workers may.

    Of the process these are the CPUs of its main thread, and of any of its threads; of the workers
    those of any of them, of the one that may use the fewest, and those of them that the main thread
    may use too. Processes that hardly used a CPU do not count. Nothing where the system does not
    tell.
    """
    own, workers = affinity_of(os.getpid()), processes["workers"]
    if not own:
        return {}
    least_s = LEAST_OF_BUSIEST * max((usage.cpu_s for usage in workers.values()), default=0.0)
    loading = (worker for worker, usage in workers.items() if usage.cpu_s >= least_s)
    affinities = [cpus for worker in loading if (cpus := affinity_of(worker))]
    threads = [affinity_of(int(path.name)) for path in Path("/proc/self/task").iterdir()]
    of_process: Quantities = {
        "allowed_cpus": len(own),
        "threads_allowed_cpus": len(own.union(*threads)),
    }
    if not affinities:
        return {"process": of_process}
    allowed = frozenset[int]().union(*affinities)
    of_workers: Quantities = {
        "allowed_cpus": len(allowed),
        "fewest_allowed_cpus": min(map(len, affinities)),
        "shared_allowed_cpus": len(allowed & own),
    }
    return {"process": of_process, "workers": of_workers}


class RateLimit(Generic[T]):
    """Does costly `work` every `every_s` at most, and no more often than it can be afforded."""

    def __init__(self, work: Callable[..., T], every_s: float = 0.0) -> None:
        self._work, self._every_s = work, every_s
        self._due_s = 0.0

    def __call__(self, *given: Any) -> T | None:
        """What the work returns, or None if it is not due yet."""
        now_s = time.perf_counter()
        if now_s < self._due_s:
            return None
        began_s = time.thread_time()
        result = self._work(*given)
        cost_s = time.thread_time() - began_s
        self._due_s = now_s + max(self._every_s, cost_s / MOST_SHARE)
        return result


class MachineLoad:
    """Reads how busy the machine is, how much memory it has, and what throttles its CPUs.

    Memory and CPU time are those that the tightest control group leaves, where one limits them.
    Memory and allowed CPUs take longest, and are read every second at most.
    """

    def __init__(self) -> None:
        self._quota, self._memory = quota(), memory_limit()
        self._before: dict[str, float] = {}
        self._limits = RateLimit(self._read_limits, LIMITS_EVERY_S)

    def read(self) -> Quantities:
        """The quantities of a HostProbe's machine that are known now, rates since the last time."""
        now = self._counters()
        grown = {name: now[name] - self._before[name] for name in now if name in self._before}
        self._before = now
        known = dict(self._limits() or {})
        for name, (part, whole) in OF_MACHINE.items():
            if part in grown and grown.get(whole):
                known[name] = grown[part] / grown[whole]
        return known

    def _counters(self) -> dict[str, float]:
        """What has been counted since the machine began."""
        counters: dict[str, float] = {"time_s": time.perf_counter()}
        with suppress(OSError):  # without /proc
            times = psutil.cpu_times()._asdict()
            counters["busy_s"] = sum(times[name] for name in times if name not in NOT_BUSY)
            if "steal" in times:
                counters["stolen_s"] = times["steal"]
            # Each interface begins with what it received; a host of many containers has many.
            if interfaces := amounts_in((limits.ROOT / "proc/net/dev").read_bytes()):
                counters["received"] = sum(interfaces.values())
                counters["loopback"] = interfaces.get("lo", 0)
        if self._quota is not None:
            counters |= amounts_in(content_of(self._quota[1] / "cpu.stat"))
        return counters

    def _read_limits(self) -> Quantities:
        known: Quantities = {}
        if (cpus := cpuset_cpus()) is not None:
            known["allowed_cpus"] = cpus
        with suppress(OSError):
            memory = psutil.virtual_memory()
            known |= {
                "memory_limit_bytes": memory.total,
                "memory_available_bytes": memory.available,
            }
            if self._memory is not None and self._memory[0] < memory.total:
                most, used = self._memory[0], memory_used(self._memory[1])
                left = None if used is None else min(memory.available, max(most - used, 0))
                known |= {"memory_limit_bytes": most, "memory_available_bytes": left}
        return known
