"""Observes a training for some time: its stacks and its workers', and the kernel's figures."""

from __future__ import annotations

import os
import random
import resource
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from loadeval.probes.gpu import JobGPUs
from loadeval.probes.host import MachineLoad
from loadeval.probes.limits import affinity_of, cpuset_cpus, groups, quota_cores
from loadeval.probes.looks import ThreadFigures, thread_state
from loadeval.probes.processes import content_of, usage_of
from loadeval.probes.schedstat import Files
from loadeval.probes.stacks import GONE, ProcessStacks, Recording, StacksError

TRAINING_HZ, WORKER_HZ = 8, 2
"""Stacks of the training and of each worker that is recorded, a second."""
MOST_RECORDED = 4
"""So many workers are recorded."""
EVERY_S = 1.0
"""The kernel is asked about main threads so often, on average."""
MOST_ASKED = 16
"""Workers whose main threads are asked about."""


@dataclass(frozen=True, slots=True)
class ObservedProcess:
    """One process: its stacks, and its main thread at some moments; None is not known.

    `problem` is why there are no stacks. The rest are means over the time that it was seen;
    `run_queue_cores` is of its main thread: how long that was runnable without a CPU.
    """

    pid: int
    stacks: ProcessStacks | None = None
    problem: str | None = None
    moments: tuple[ThreadFigures, ...] = ()
    cpus_allowed: frozenset[int] | None = None
    cpu_cores: float | None = None
    run_queue_cores: float | None = None
    read_bytes_per_s: float | None = None
    disk_read_bytes_per_s: float | None = None


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


@dataclass(frozen=True, slots=True)
class Observation:
    """What was read of a training in `elapsed_ns`, which took `cost_ns` of CPU time.

    It has `ended` if its process was over before that.
    """

    elapsed_ns: int
    cost_ns: int
    training: ObservedProcess
    workers: tuple[ObservedProcess, ...]
    machine: ObservedMachine
    ended: bool = False


class Observer:
    """Observes the training `pid`, and the `workers` that load for it, for `seconds`."""

    def __init__(self, pid: int, seconds: float, workers: Sequence[int]) -> None:
        self._pid, self._seconds = pid, seconds
        self._pids = [pid, *sorted(set(workers) - {pid})]
        self._stopped = threading.Event()
        self._random = random.Random(pid)  # noqa: S311 - moments, no secret

    def observe(self) -> Observation:
        """What was read. Raises StacksError where the training is over before anything was."""
        began_ns, cost_ns = time.monotonic_ns(), _cost_ns()
        load, gpus, runnable = MachineLoad(), JobGPUs(self._pid), list[int]()
        load.read()
        training, *workers = processes = [_Watched(pid) for pid in self._pids]
        if training.first is None:
            raise StacksError(GONE)
        try:
            training.record(TRAINING_HZ, self._seconds)
            for worker in workers[:MOST_RECORDED]:
                worker.record(WORKER_HZ, self._seconds)
            until_ns = began_ns + round(1e9 * self._seconds)
            while not self._pauses_until(until_ns) and usage_of(self._pid) is not None:
                for process in (training, *workers[:MOST_ASKED]):
                    process.ask()
                gpus.read()
                with suppress(IndexError, ValueError):  # besides this one
                    running = content_of("/proc/loadavg").split()[3].partition(b"/")[0]
                    runnable.append(max(int(running) - 1, 0))
        finally:
            for process in processes:  # all at once, for each ends at its next sample
                if process.recording is not None:
                    process.recording.interrupt()
            observed = [process.observed() for process in processes]
        machine = load.read()
        return Observation(
            elapsed_ns=time.monotonic_ns() - began_ns,
            cost_ns=_cost_ns() - cost_ns,
            training=observed[0],
            workers=tuple(observed[1:]),
            machine=ObservedMachine(
                cpus=cpuset_cpus(groups("cpuset", self._pid)) or os.cpu_count() or 1,
                quota_cores=quota_cores(self._pid),
                runnable=tuple(runnable),
                busy_cpus=machine["cpu_cores"],
                received_bytes_per_s=machine["received_bytes_per_s"],
                gpus=gpus.close(),
            ),
            ended=usage_of(self._pid) is None,
        )

    def stop(self) -> None:
        """Let `observe`, in another thread, end soon."""
        self._stopped.set()

    def _pauses_until(self, until_ns: int) -> bool:
        """Wait until the next of some random moments; whether time is over before it."""
        pause_s = self._random.expovariate(1 / EVERY_S)
        left_s = (until_ns - time.monotonic_ns()) / 1e9
        return self._stopped.wait(max(min(pause_s, left_s), 0.0)) or pause_s >= left_s


class _Watched:
    """What is gathered of one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.recording: Recording | None = None
        self._problem: str | None = None
        self._moments: list[ThreadFigures] = []
        self._files = Files(pid)
        self._cpus: frozenset[int] | None = None
        self.first = self._last = self._counted()

    def record(self, rate_hz: int, longest_s: float) -> None:
        """Begin to record its stacks."""
        try:
            self.recording = Recording(self.pid, rate_hz, longest_s)
        except StacksError as error:
            self._problem = error.problem

    def ask(self) -> None:
        """Read what its main thread does, and its counters."""
        state = thread_state(self.pid, self.pid, self._files)
        if state is not None:
            self._moments.append(state)
            self._last = self._counted() or self._last

    def observed(self) -> ObservedProcess:
        """What was gathered, up to now."""
        stacks = None
        try:
            if self.recording is not None:
                stacks = self.recording.stop()
        except StacksError as error:
            self._problem = error.problem
        self._last = self._counted() or self._last
        rates: dict[str, float] = {}
        if self.first is not None and self._last is not None and self.first[0] < self._last[0]:
            (began_s, before), (ended_s, now) = self.first, self._last
            names = before.keys() & now.keys()
            rates = {name: (now[name] - before[name]) / (ended_s - began_s) for name in names}
        return ObservedProcess(
            self.pid, stacks, self._problem, tuple(self._moments), self._cpus, **rates
        )

    def _counted(self) -> tuple[float, dict[str, float]] | None:
        """The time, and by the name of its rate each counter that is known."""
        usage, times = usage_of(self.pid), self._files.times_of(self.pid)
        if usage is None:
            return None
        self._cpus = affinity_of(self.pid) or self._cpus
        counters = {
            "cpu_cores": usage.cpu_s,
            "run_queue_cores": None if times is None else times.run_queue_ns / 1e9,
            "read_bytes_per_s": usage.read_bytes,
            "disk_read_bytes_per_s": usage.disk_read_bytes,
        }
        known = {name: float(count) for name, count in counters.items() if count is not None}
        return time.monotonic(), known


def _cost_ns() -> int:
    """The CPU time of this process and of what it has started and waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return round(1e9 * sum(usage.ru_utime + usage.ru_stime for usage in both))


def source_lines(pid: int, files: Iterable[str]) -> dict[tuple[str, int], str]:
    """The text of each line of these files, as process `pid` sees them; of those it can be read."""
    texts: dict[tuple[str, int], str] = {}
    for file in files:
        with suppress(OSError):
            seen_by_it = Path(f"/proc/{pid}/root{file}")
            path = seen_by_it if os.access(seen_by_it, os.R_OK) else Path(file)
            lines = path.read_text(errors="replace").splitlines()
            texts |= {(file, number): text for number, text in enumerate(lines, 1)}
    return texts
