"""Observes a training for some time: its stacks and its workers', and the kernel's figures."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

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

    `problem` is why there are no stacks. It used `cpu_cores` on average, and its main thread was
    runnable without a CPU for `run_queue_cores` of the time.
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
    """What was read of a training in `elapsed_ns`.

    It has `ended` if its process was over before that.
    """

    elapsed_ns: int
    training: ObservedProcess
    workers: tuple[ObservedProcess, ...]
    machine: ObservedMachine
    ended: bool = False


class Moment(NamedTuple):
    """A process at `time_s`: what it used since it began, and what its main thread does."""

    time_s: float
    cpu_s: float
    run_queue_s: float | None
    main: ThreadFigures


class Observer:
    """Observes the training `pid`, and the `workers` that load for it, for `seconds`."""

    def __init__(self, pid: int, seconds: float, workers: Sequence[int]) -> None:
        self._pid, self._seconds = pid, seconds
        self._pids = [pid, *sorted(set(workers) - {pid})]
        self._stopped = threading.Event()

    def observe(self) -> Observation:
        """What was read. Raises StacksError where the training is over before anything was."""
        began_ns = time.monotonic_ns()
        pauses = random.Random(self._pid)  # noqa: S311 - no secret
        load, gpu, busy = MachineLoad(), GPUProbe(pid=self._pid), dict[str, list[float]]()
        load.read()
        with suppress(ProbeError):  # it uses none, or in a container that is not told
            gpu.open()
        moments = {pid: [moment] for pid in self._pids if (moment := moment_of(pid)) is not None}
        if self._pid not in moments:
            raise StacksError(GONE)
        recordings: dict[int, Recording] = {}
        try:
            for pid in self._pids[: 1 + MOST_RECORDED]:
                rate_hz = TRAINING_HZ if pid == self._pid else WORKER_HZ
                recordings[pid] = Recording(pid, rate_hz, self._seconds)
            until_ns = began_ns + round(1e9 * self._seconds)
            while usage_of(self._pid) and (left_s := (until_ns - time.monotonic_ns()) / 1e9) > 0:
                if self._stopped.wait(min(pauses.expovariate(1 / EVERY_S), left_s)):
                    break
                for pid in self._pids[: 1 + MOST_ASKED]:
                    if pid in moments and (moment := moment_of(pid)) is not None:
                        moments[pid].append(moment)
                with suppress(ProbeError):
                    for name, readings in gpu.read().items():
                        if KERNEL_BUSY in readings:
                            busy.setdefault(name, []).append(readings[KERNEL_BUSY])
        finally:
            gpu.close()
            for recording in recordings.values():  # all at once, for each ends at its next sample
                recording.interrupt()
            stacks = {pid: recording.stop() for pid, recording in recordings.items()}
        processes = [
            _observed(pid, moments.get(pid, []), *stacks.get(pid, (None, None)))
            for pid in self._pids
        ]
        return Observation(
            elapsed_ns=time.monotonic_ns() - began_ns,
            training=processes[0],
            workers=tuple(processes[1:]),
            machine=ObservedMachine(
                cpus=cpuset_cpus(self._pid) or os.cpu_count() or 1,
                quota_cores=quota_cores(self._pid),
                busy_cpus=load.read().get("cpu_cores"),
                gpus={name: fmean(percents) for name, percents in busy.items()},
            ),
            ended=usage_of(self._pid) is None,
        )

    def stop(self) -> None:
        """Let `observe`, in another thread, end soon."""
        self._stopped.set()


def moment_of(pid: int) -> Moment | None:
    """A process now; None where it is over."""
    usage, main = usage_of(pid), thread_at(pid, pid)
    if usage is None or main is None:
        return None
    # Nanoseconds on a CPU, and runnable without one.
    times = content_of(f"/proc/{pid}/schedstat").split()
    return Moment(time.monotonic(), usage.cpu_s, int(times[1]) / 1e9 if times else None, main)


def _observed(
    pid: int, moments: Sequence[Moment], stacks: ProcessStacks | None, problem: str | None
) -> ObservedProcess:
    cpu = queued = None
    if len(moments) > 1:
        first, last = moments[0], moments[-1]
        cpu = (last.cpu_s - first.cpu_s) / (last.time_s - first.time_s)
        if first.run_queue_s is not None and last.run_queue_s is not None:
            queued = (last.run_queue_s - first.run_queue_s) / (last.time_s - first.time_s)
    mains = tuple(each.main for each in moments)
    return ObservedProcess(pid, stacks, problem, mains, cpu, queued)
