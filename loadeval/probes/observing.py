"""Observes a training for some time: its stacks and its workers', and the kernel's figures."""

from __future__ import annotations

import os
import random
import resource
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean

from loadeval.errors import ProbeError
from loadeval.probes.gpu import KERNEL_BUSY, GPUProbe
from loadeval.probes.host import MachineLoad
from loadeval.probes.limits import cpuset_cpus, quota_cores
from loadeval.probes.looks import ThreadFigures, thread_at
from loadeval.probes.processes import content_of, usage_of
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
    cpu_cores: float | None = None
    run_queue_cores: float | None = None


@dataclass(frozen=True, slots=True)
class ObservedMachine:
    """The machine meanwhile; None is not known.

    `cpus` are those that its container may use, at `quota_cores` at a time if that is limited.
    `busy_cpus` are in use, by whomever. `gpus` has the percentage of the time that kernels ran on
    each that the training uses.
    """

    cpus: int
    quota_cores: float | None = None
    busy_cpus: float | None = None
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

    def observe(self) -> Observation:  # noqa: C901 - one moment after another
        """What was read. Raises StacksError where the training is over before anything was."""
        began_ns, cost_ns = time.monotonic_ns(), _cost_ns()
        moments = random.Random(self._pid)  # noqa: S311 - no secret
        load, gpu, busy = MachineLoad(), GPUProbe(pid=self._pid), dict[str, list[float]]()
        load.read()
        with suppress(ProbeError):  # it uses none, or in a container that is not told
            gpu.open()
        processes = list(map(_Watched, self._pids))
        if not processes[0].counts:
            raise StacksError(GONE)
        try:
            processes[0].record(TRAINING_HZ, self._seconds)
            for worker in processes[1 : 1 + MOST_RECORDED]:
                worker.record(WORKER_HZ, self._seconds)
            until_ns = began_ns + round(1e9 * self._seconds)
            while (left_s := (until_ns - time.monotonic_ns()) / 1e9) > 0:
                if self._stopped.wait(min(moments.expovariate(1 / EVERY_S), left_s)):
                    break
                for process in processes[: 1 + MOST_ASKED]:
                    process.ask()
                with suppress(ProbeError):
                    for name, readings in gpu.read().items():
                        if KERNEL_BUSY in readings:
                            busy.setdefault(name, []).append(readings[KERNEL_BUSY])
                if usage_of(self._pid) is None:
                    break
        finally:
            gpu.close()
            for process in processes:  # all at once, for each ends at its next sample
                if process.recording is not None:
                    process.recording.interrupt()
            observed = [process.observed() for process in processes]
        return Observation(
            elapsed_ns=time.monotonic_ns() - began_ns,
            cost_ns=_cost_ns() - cost_ns,
            training=observed[0],
            workers=tuple(observed[1:]),
            machine=ObservedMachine(
                cpus=cpuset_cpus(self._pid) or os.cpu_count() or 1,
                quota_cores=quota_cores(self._pid),
                busy_cpus=load.read()["cpu_cores"],
                gpus={name: fmean(percents) for name, percents in busy.items()},
            ),
            ended=usage_of(self._pid) is None,
        )

    def stop(self) -> None:
        """Let `observe`, in another thread, end soon."""
        self._stopped.set()


class _Watched:
    """What is gathered of one process: its counters at the beginning and now, and its moments."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.recording: Recording | None = None
        self._problem: str | None = None
        self._moments: list[ThreadFigures] = []
        self.counts = self._last = self._counted()

    def record(self, rate_hz: int, longest_s: float) -> None:
        """Begin to record its stacks."""
        try:
            self.recording = Recording(self.pid, rate_hz, longest_s)
        except StacksError as error:
            self._problem = error.problem

    def ask(self) -> None:
        """Read what its main thread does, and its counters."""
        state = thread_at(self.pid, self.pid)
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
        first, last = self.counts, self._counted() or self._last
        rates: dict[str, float] = {}
        if first and (elapsed_s := last.pop("time_s") - first["time_s"]) > 0:
            rates = {name: (last[name] - first[name]) / elapsed_s for name in last if name in first}
        return ObservedProcess(self.pid, stacks, self._problem, tuple(self._moments), **rates)

    def _counted(self) -> dict[str, float]:
        """The time, and counters by the names of their rates; none once it is over."""
        usage = usage_of(self.pid)
        if usage is None:
            return {}
        # Nanoseconds on a CPU, and runnable without one.
        times = content_of(f"/proc/{self.pid}/schedstat").split()
        counters = {
            "time_s": time.monotonic(),
            "cpu_cores": usage.cpu_s,
            "run_queue_cores": int(times[1]) / 1e9 if times else None,
        }
        return {name: float(count) for name, count in counters.items() if count is not None}


def _cost_ns() -> int:
    """The CPU time of this process and of what it has started and waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return round(1e9 * sum(usage.ru_utime + usage.ru_stime for usage in both))
