"""Observes a training for some time: its stacks and its workers', and the kernel's figures."""

from __future__ import annotations

import os
import random
import resource
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from loadeval.probes.cgroup import cpuset_cpus, groups, tightest_cpu
from loadeval.probes.host import MachineLoad
from loadeval.probes.job_gpus import JobGPUs
from loadeval.probes.processes import ThreadFigures, thread_state
from loadeval.probes.stacks import ProcessSamples, Recording, StackProblem, StacksError
from loadeval.probes.threads import Files
from loadeval.probes.usage import affinity_of, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from loadeval.probes.threads import Times
    from loadeval.probes.usage import Usage

PART_S = 20.0
"""A recording takes about so long, since each takes CPU time to begin; workers that have come
meanwhile are in the next one."""
TRAINING_HZ, WORKER_HZ = 8, 2
"""Stacks of the training and of each worker that is recorded, a second, where they are cheap."""
LEAST_HZ = 2
MOST_RECORDED = 4
"""So many workers are recorded at a time."""
EVERY_S = 1.0
"""The kernel is asked about main threads so often, on average."""
MOST_ASKED = 16
"""Workers whose main threads are asked about."""
MOST_SHARE = 0.005
"""Recording may take this share of the CPUs."""


@dataclass(frozen=True, slots=True)
class ProcessGrowth:
    """What a process has used in `elapsed_ns`; None is not known.

    `run_queue_ns` is of its main thread: how long that was runnable without a CPU.
    """

    elapsed_ns: int
    cpu_ns: int | None = None
    run_queue_ns: int | None = None
    read_bytes: int | None = None
    disk_read_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ObservedProcess:
    """One process: its stacks, one part for each recording, and its main thread at some moments.

    `problem` is why there are no stacks.
    """

    pid: int
    samples: tuple[ProcessSamples, ...] = ()
    problem: StackProblem | None = None
    growth: ProcessGrowth | None = None
    moments: tuple[ThreadFigures, ...] = ()
    cpus_allowed: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class ObservedMachine:
    """The machine meanwhile; None is not known.

    `cpus` are those that its container may use, at `quota_cores` at a time if that is limited.
    `runnable` counts the threads that ran or could run, at some moments. `busy_cpus` are in use,
    by whomever, and `received_bytes_per_s` came over the network. `gpus` has the percentage of the
    time that kernels ran on each that the training uses.
    """

    cpus: int
    quota_cores: float | None = None
    runnable: tuple[int, ...] = ()
    busy_cpus: float | None = None
    received_bytes_per_s: float | None = None
    gpus: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean_runnable(self) -> float | None:
        """How many threads ran or could run, on average."""
        return sum(self.runnable) / len(self.runnable) if self.runnable else None


@dataclass(frozen=True, slots=True)
class Observation:
    """What was read of a training in `elapsed_ns`, which took `cost_ns` of CPU time.

    It has `ended` if its process was over before that. Of `workers`, who may end with an epoch,
    there were `at_once` at a time.
    """

    elapsed_ns: int
    cost_ns: int
    training: ObservedProcess
    workers: tuple[ObservedProcess, ...]
    at_once: int
    machine: ObservedMachine
    ended: bool = False


class Observer:
    """Observes the training `pid` for `seconds`.

    `workers` finds the processes that load for it, at the start of each part, since those of an
    epoch may end with it.
    """

    def __init__(self, pid: int, seconds: float, workers: Callable[[], Iterable[int]]) -> None:
        self._pid, self._find_workers = pid, workers
        self._parts = max(round(seconds / PART_S), 1)
        self._part_s = seconds / self._parts
        self._stopped = threading.Event()
        self._gpus = JobGPUs(pid)
        self._random = random.Random(pid)  # noqa: S311 - moments, no secret
        self._load = MachineLoad()
        self._seen: dict[int, _Reading] = {}
        self._runnable: list[int] = []
        self._training_hz, self._worker_hz = TRAINING_HZ, WORKER_HZ

    def observe(self) -> Observation:
        """What was read. Raises StacksError where the training is over before anything was."""
        began_s, cost_s = time.monotonic(), _cost_s()
        self._load.read()
        at_once = 0
        for _ in range(self._parts):
            if self._stopped.is_set() or not self._lives():
                break
            workers = sorted(set(self._find_workers()) - {self._pid})
            for pid in (self._pid, *workers):
                self._seen.setdefault(pid, _Reading(pid)).count()
            at_once = max(at_once, len(workers))
            self._part(workers)
        for seen in self._seen.values():
            seen.count()
        if self._pid not in self._seen:
            raise StacksError(StackProblem.GONE, f"there is no process {self._pid}")
        observed = {pid: seen.observed() for pid, seen in self._seen.items()}
        return Observation(
            elapsed_ns=round((time.monotonic() - began_s) * 1e9),
            cost_ns=round((_cost_s() - cost_s) * 1e9),
            training=observed.pop(self._pid),
            workers=tuple(observed.values()),
            at_once=at_once,
            machine=self._machine(),
            ended=not self._lives(),
        )

    def stop(self) -> None:
        """Let `observe`, in another thread, end soon."""
        self._stopped.set()

    def _lives(self) -> bool:
        return usage_of(self._pid) is not None

    def _part(self, workers: Sequence[int]) -> None:
        recorded = sorted(workers, key=lambda pid: (len(self._seen[pid].samples), pid))
        recordings: dict[int, Recording] = {}
        began_s, cost_s = time.monotonic(), _cost_s()
        try:
            self._begin(recordings, self._pid, self._training_hz)
            for pid in recorded[:MOST_RECORDED]:
                self._begin(recordings, pid, self._worker_hz)
            self._ask([self._pid, *workers[:MOST_ASKED]], began_s + self._part_s)
        finally:
            for recording in recordings.values():
                recording.interrupt()
            for pid, recording in recordings.items():
                self._seen[pid].keep(recording)
        self._adapt((_cost_s() - cost_s) / (time.monotonic() - began_s))

    def _begin(self, recordings: dict[int, Recording], pid: int, hz: int) -> None:
        try:
            recordings[pid] = Recording(pid, hz, self._part_s)
        except StacksError as error:
            self._seen[pid].problem = error.problem

    def _ask(self, pids: Sequence[int], until_s: float) -> None:
        """Ask the kernel about main threads, at random moments."""
        while True:
            pause_s = self._random.expovariate(1 / EVERY_S)
            left_s = until_s - time.monotonic()
            if self._stopped.wait(max(min(pause_s, left_s), 0.0)) or pause_s >= left_s:
                return
            for pid in pids:
                self._seen[pid].ask()
            self._gpus.read()
            runnable = _runnable()
            if runnable is not None:
                self._runnable.append(runnable)
            if not self._lives():
                return

    def _adapt(self, cores: float) -> None:
        """Record as often as the CPU time that it takes allows."""
        allowed = MOST_SHARE * (os.cpu_count() or 1)
        if cores > allowed:
            self._training_hz = max(int(self._training_hz * allowed / cores), LEAST_HZ)
            self._worker_hz = max(int(self._worker_hz * allowed / cores), LEAST_HZ)

    def _machine(self) -> ObservedMachine:
        load = self._load.read()
        limit = tightest_cpu(pid=self._pid)
        return ObservedMachine(
            cpus=cpuset_cpus(groups("cpuset", pid=self._pid)) or os.cpu_count() or 1,
            quota_cores=None if limit is None else limit.quota_cores,
            runnable=tuple(self._runnable),
            busy_cpus=load["cpu_cores"],
            received_bytes_per_s=load["received_bytes_per_s"],
            gpus=self._gpus.close(),
        )


class _Reading:
    """What is gathered of one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.samples: list[ProcessSamples] = []
        self.problem: StackProblem | None = None
        self.moments: list[ThreadFigures] = []
        self._files = Files(f"/proc/{pid}/task")
        self._first: tuple[int, Usage, Times | None] | None = None
        self._last: tuple[int, Usage, Times | None] | None = None
        self._cpus: frozenset[int] | None = None

    def count(self) -> None:
        """Read its counters."""
        usage = usage_of(self.pid)
        if usage is None:
            return
        if self._first is not None and self._first[1].started != usage.started:
            return  # another process has its number
        self._last = (time.monotonic_ns(), usage, self._files.times_of(str(self.pid)))
        self._first = self._first or self._last
        self._cpus = affinity_of(self.pid) or self._cpus

    def ask(self) -> None:
        """Read what its main thread does."""
        state = thread_state(self.pid, self.pid, self._files)
        if state is not None:
            self.moments.append(state)
            self.count()

    def keep(self, recording: Recording) -> None:
        """Keep what was recorded."""
        try:
            self.samples.append(recording.stop())
        except StacksError as error:
            self.problem = error.problem

    def observed(self) -> ObservedProcess:
        return ObservedProcess(
            pid=self.pid,
            samples=tuple(self.samples),
            problem=None if self.samples else self.problem,
            growth=self._growth(),
            moments=tuple(self.moments),
            cpus_allowed=self._cpus,
        )

    def _growth(self) -> ProcessGrowth | None:
        if self._first is None or self._last is None or self._first is self._last:
            return None
        (began_ns, before, times_before), (ended_ns, now, times) = self._first, self._last
        queued = None
        if times is not None and times_before is not None:
            queued = times.run_queue_ns - times_before.run_queue_ns
        return ProcessGrowth(
            elapsed_ns=ended_ns - began_ns,
            cpu_ns=round((now.cpu_s - before.cpu_s) * 1e9),
            run_queue_ns=queued,
            read_bytes=_grown(now.read_bytes, before.read_bytes),
            disk_read_bytes=_grown(now.disk_read_bytes, before.disk_read_bytes),
        )


def _grown(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def _cost_s() -> float:
    """The CPU time of this process and of what it has started and waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def _runnable() -> int | None:
    """How many threads of the machine run or could run now, besides this one."""
    with suppress(OSError, ValueError, IndexError):
        running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
        return max(int(running) - 1, 0)
    return None


def source_lines(pid: int, lines: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """The text of these lines of files, as process `pid` sees them; those that can be read."""
    texts: dict[tuple[str, int], str] = {}
    by_file: dict[str, list[int]] = {}
    for file, line in lines:
        by_file.setdefault(file, []).append(line)
    for file, numbers in by_file.items():
        with suppress(OSError):
            seen_by_it = Path(f"/proc/{pid}/root{file}")
            path = seen_by_it if os.access(seen_by_it, os.R_OK) else Path(file)
            content = path.read_text(errors="replace").splitlines()
            texts |= {(file, line): content[line - 1] for line in numbers if line <= len(content)}
    return texts
