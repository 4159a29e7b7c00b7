"""The host probe: CPU, memory and disk reads of the training process, its workers and the machine.

On Linux, process data comes straight from /proc, where one file has most of it within a few
microseconds; elsewhere from psutil, which knows less.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import psutil

from loadeval.errors import ProbeError
from loadeval.probes.cgroup import PROC, cpuset_cpus, groups, tightest_cpu, tightest_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Processes of multiprocessing's, which load nothing."""
MOST_SHARE = 0.001
"""Costly readings may take this share of one CPU's time."""
HAS_PROC = Path("/proc/self/stat").exists()
MOST_BYTES = 65536
"""No more is read of a file in /proc; none is as large."""
ENDED = (b"Z", b"X")
"""A process in these states is over, and was not waited for."""
# What stands where in /proc/PID/stat, counted behind the name of the program: see proc(5).
STATE, PARENT, MINOR, MAJOR, USER, SYSTEM, STARTED, RESIDENT = 0, 1, 7, 9, 11, 12, 19, 21
LAST_CPU = 36
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


def affinity_of(pid: int) -> frozenset[int]:
    """The CPUs that the process or thread `pid` may run on; none where that is not told."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except (OSError, AttributeError):  # it is over; macOS and Windows have no such call
        return frozenset()


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


class Usage(NamedTuple):
    """What a process has used since it began; None is not known.

    `started` tells two processes apart that have had the same pid. `read_bytes` counts what was
    read by calls, not through mapped memory; `disk_read_bytes` what was fetched from the disk for
    it, either way. It ran last on `last_cpu`, by its number.
    """

    parent: int
    started: float
    cpu_s: float
    rss_bytes: int
    minor_faults: int | None = None
    major_faults: int | None = None
    read_bytes: int | None = None
    disk_read_bytes: int | None = None
    last_cpu: int | None = None


class Memory(NamedTuple):
    """Memory of a process; None is not known.

    In `pss_bytes` what it shares is divided among those who share it. `pss_file_bytes` of that
    are of mapped files, which the system may drop. `anonymous_bytes` are of no file, those that
    it shares with a process that it forked included in full.
    """

    pss_bytes: int
    pss_file_bytes: int | None
    anonymous_bytes: int | None


def usage_of(pid: int) -> Usage | None:
    """What process `pid` has used; None when it is over, or may not be asked."""
    if not HAS_PROC:
        return usage_by_psutil(pid)
    fields = _stat(pid)
    if fields is None:
        return None
    ticks_a_second = os.sysconf("SC_CLK_TCK")
    io = _amounts(_content(f"/proc/{pid}/io"))
    return Usage(
        parent=int(fields[PARENT]),
        started=float(fields[STARTED]),
        cpu_s=(int(fields[USER]) + int(fields[SYSTEM])) / ticks_a_second,
        rss_bytes=int(fields[RESIDENT]) * os.sysconf("SC_PAGE_SIZE"),
        minor_faults=int(fields[MINOR]),
        major_faults=int(fields[MAJOR]),
        read_bytes=io.get(b"rchar"),
        disk_read_bytes=io.get(b"read_bytes"),
        last_cpu=int(fields[LAST_CPU]),
    )


def usage_by_psutil(pid: int) -> Usage | None:
    """The same, without what only Linux tells."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        times = process.cpu_times()
        return Usage(
            parent=process.ppid(),
            started=process.create_time(),
            cpu_s=times.user + times.system,
            rss_bytes=process.memory_info().rss,
        )
    except psutil.Error:
        return None


def memory_of(pid: int) -> Memory | None:
    """The memory of process `pid`; None where the system does not tell.

    The system walks all of the process' memory for it: some 5 ms a GB.
    """
    amounts = _amounts(_content(f"/proc/{pid}/smaps_rollup"))
    if b"Pss" not in amounts:
        return None
    nbytes = {name: kilobytes * 1024 for name, kilobytes in amounts.items()}
    return Memory(nbytes[b"Pss"], nbytes.get(b"Pss_File"), nbytes.get(b"Anonymous"))


class Family:
    """The processes that descend from process `pid`, without the helpers of multiprocessing.

    To look for new ones all pids of the machine are listed; only those that were not there the
    time before are asked for their parents.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._asked: set[int] = set()
        self._members: set[int] = set()
        self._helpers: set[int] = set()

    def look(self) -> None:
        """Find those that have come since the time before."""
        pids = set(psutil.pids())
        parents = {pid: parent_of(pid) for pid in pids - self._asked}
        self._asked = pids
        self._members &= pids
        self._helpers &= pids
        while joining := self._children_among(parents):
            self._members |= joining
            self._helpers |= {
                pid for pid in joining if parents[pid] == self._pid and self._is_helper(pid)
            }

    def usages(self) -> dict[int, Usage]:
        """What each of those that were found and still live has used, by pid."""
        # One whose parent is over is nobody's here, and its pid may be another's by now.
        usages = {pid: usage for pid in self._members if (usage := usage_of(pid)) is not None}
        self._members = {pid for pid in usages if self._knows(usages[pid].parent)}
        return {pid: usages[pid] for pid in sorted(self._members - self._helpers)}

    def _is_helper(self, pid: int) -> bool:
        command = command_of(pid)
        # What is forked has the command of its parent, which a forkserver may have started.
        return command != command_of(self._pid) and any(name in command for name in HELPERS)

    def _children_among(self, parents: dict[int, int | None]) -> set[int]:
        return {pid for pid, parent in parents.items() if self._knows(parent)} - self._members

    def _knows(self, parent: int | None) -> bool:
        return parent == self._pid or parent in self._members


def command_of(pid: int) -> str:
    """The command line of process `pid`; nothing where it is over, or the system does not tell."""
    if HAS_PROC:
        return _content(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")
    with suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline())
    return ""


def parent_of(pid: int) -> int | None:
    """The pid of the parent of process `pid`; None when it is over."""
    if HAS_PROC:
        fields = _stat(pid)
        return None if fields is None else int(fields[PARENT])
    usage = usage_by_psutil(pid)
    return None if usage is None else usage.parent


def _stat(pid: int) -> list[bytes] | None:
    # The name of the program stands in brackets, and may hold any character.
    fields = _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return None if not fields or fields[STATE] in ENDED else fields


def _amounts(content: bytes) -> dict[bytes, int]:
    """The whole numbers of lines like `rchar: 6976` or `Pss: 278 kB`, by name."""
    amounts = {}
    for line in content.splitlines():
        name, _, amount = line.partition(b":")
        number = amount.split()[:1]
        if number and number[0].isdigit():
            amounts[name] = int(number[0])
    return amounts


def _content(path: str) -> bytes:
    """What stands in a file of /proc; nothing where it is gone, or may not be read."""
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            return os.read(file, MOST_BYTES)
        finally:
            os.close(file)
    except OSError:
        return b""


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
        interfaces = _amounts(_content(self._network))  # each begins with what it received
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
        text = _content(self._clock.format(cpu)).strip()
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
