"""Processes seen from outside: all that the system tells of them at one moment, and for some time.

No process is paused for it, and no right beyond those of the process' user is needed; where one is
missing, or the system is not Linux, what cannot be read is None.
"""

from __future__ import annotations

import os
import platform
import random
import re
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import psutil

from loadeval.errors import ProbeError
from loadeval.probes.gpu import KERNEL_BUSY, GPUProbe
from loadeval.probes.host import MachineLoad
from loadeval.probes.limits import cpuset_cpus, quota_cores
from loadeval.probes.processes import command_of, content_of, is_helper, stat_of, usage_of
from loadeval.probes.stacks import GONE, ProcessStacks, Recording, StacksError, dump

CALLS = """
read 0 63, write 1 64, open 2 -, stat 4 -, fstat 5 80, poll 7 -, ioctl 16 29, pread64 17 67,
pwrite64 18 68, readv 19 65, writev 20 66, select 23 -, nanosleep 35 101, sendfile 40 71,
connect 42 203, accept 43 202, sendto 44 206, recvfrom 45 207, sendmsg 46 211, recvmsg 47 212,
wait4 61 260, fcntl 72 25, flock 73 32, fsync 74 82, futex 202 98, io_getevents 208 4,
getdents64 217 61, restart_syscall 219 128, clock_nanosleep 230 115, epoll_wait 232 -,
waitid 247 95, openat 257 56, newfstatat 262 79, pselect6 270 72, ppoll 271 73, splice 275 76,
epoll_pwait 281 22, accept4 288 242, recvmmsg 299 243, copy_file_range 326 285, statx 332 291,
io_uring_enter 426 426
"""
"""Linux' system calls in which a program may wait, with their numbers on x86-64 and on aarch64."""
MACHINES = {"x86_64": 1, "aarch64": 2}
NAMES = {
    words[MACHINES[platform.machine()]]: words[0]
    for words in map(str.split, CALLS.split(","))
    if platform.machine() in MACHINES
}
OF_NO_FILE = frozenset(
    (  # noqa: SIM905 - names, many on a line
        "poll ppoll select pselect6 restart_syscall nanosleep clock_nanosleep io_getevents wait4 "
        "waitid"
    ).split()
)
"""The first argument of any other is the number of an open file."""
OF_A_PATH = {"open": 0, "stat": 0, "openat": 1, "newfstatat": 1, "statx": 1}
"""Which argument of these has the address of a path."""
LONGEST_PATH = 4096
PRIVATE = 128
"""The bit of a futex that only threads of one process wait for."""
SHARED = "a lock of several processes"
EXIT_CODE = 49
"""The field of /proc/PID/stat behind the name, from 0, as Linux counts it since 3.5."""
SIGNAL = 0x7F
"""The bits of it that have the signal."""
SLEEPS = re.compile(rb"^voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
MOST_PROCESSES = 64
"""So many processes are looked at: a dump of each takes a fraction of a second."""
TRAINING_HZ, WORKER_HZ = 8, 2
"""Stacks of the training and of each worker that is recorded, a second."""
MOST_RECORDED, MOST_ASKED = 4, 16
"""So many workers are recorded, and of so many main threads the kernel is asked."""
EVERY_S = 1.0
"""So often, on average."""


@dataclass(frozen=True, slots=True)
class ThreadFigures:
    """One thread now; None is not known.

    `state` is the kernel's letter: R running or runnable, S asleep, D asleep in a disk's or a
    network file system's call, T stopped. `wchan` is the kernel's function that it sleeps in, and
    `call` the system call, by its number where it is none of CALLS. `path` is what that is of: a
    path, `pipe:[123]`, `socket:[123] connected to 10.0.0.1:80`, or of a futex SHARED. It went to
    sleep so many times so far; so long it was on a CPU, and runnable without one.
    """

    tid: int
    name: str
    state: str | None
    cpu_ns: int | None = None
    wchan: str | None = None
    call: str | None = None
    path: str | None = None
    sleeps: int | None = None
    run_queue_ns: int | None = None


@dataclass(frozen=True, slots=True)
class LookedAt:
    """One process now: what its threads do; what is not known is None.

    `problem` is why there are no stacks. `pipes` are those that are open, each with whether it is
    open for writing.
    """

    pid: int
    parent: int
    command: tuple[str, ...] | None
    threads: Sequence[ThreadFigures] = ()
    stacks: ProcessStacks | None = None
    problem: str | None = None
    pipes: frozenset[tuple[str, bool]] = frozenset()

    @property
    def main(self) -> ThreadFigures | None:
        """The main thread."""
        return next((thread for thread in self.threads if thread.tid == self.pid), None)


Moment = tuple[float, float, ThreadFigures]
"""When it was, in seconds, the CPU seconds of a process until then, and its main thread."""


@dataclass(frozen=True, slots=True)
class Look:
    """A training process and all processes below it, at `time_s` of a monotonic clock.

    `killed` has the processes that it started, that were killed, and that it has not asked about
    since, each with the signal.
    """

    time_s: float
    training: LookedAt
    others: Sequence[LookedAt] = ()
    killed: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class ObservedProcess:
    """One process for some time: its stacks, and its main thread at some moments.

    `problem` is why there are no stacks. It used `cpu_cores` on average, and its main thread was
    runnable without a CPU for `run_queue_cores` of the time; None is not known.
    """

    pid: int
    stacks: ProcessStacks | None = None
    problem: str | None = None
    moments: Sequence[ThreadFigures] = ()
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
    """What was read of a training in `elapsed_ns`; it has `ended` if it was over before that."""

    elapsed_ns: int
    training: ObservedProcess
    workers: Sequence[ObservedProcess]
    machine: ObservedMachine
    ended: bool = False


def look_at(pid: int) -> Look | None:
    """Look at process `pid` and at what it started; None where it is over.

    Helpers of multiprocessing are left out.
    """
    began_s, training = time.monotonic(), process_at(pid)
    if training is None:
        return None
    below: list[psutil.Process] = []
    with suppress(psutil.Error):
        below = psutil.Process(pid).children(recursive=True)  # parents before their children
    others, killed = list[LookedAt](), list[tuple[int, int]]()
    for process in below:
        fields = stat_of(f"/proc/{process.pid}")
        if len(fields) > EXIT_CODE and fields[:2] == ["Z", str(pid)]:
            signal = int(fields[EXIT_CODE]) & SIGNAL
            killed += [(process.pid, signal)] if signal else []
        elif len(others) < MOST_PROCESSES:
            seen = process_at(process.pid)
            if seen is not None and not is_helper(process.pid, seen.parent):
                others.append(seen)
    return Look(began_s, training, others, killed)


def process_at(pid: int) -> LookedAt | None:
    """Look at one process, which takes some 15 ms; None where it is over."""
    usage, stacks, problem = usage_of(pid), None, None
    if usage is None:
        return None
    try:
        stacks = dump(pid)
    except StacksError as error:
        problem = error.problem
    threads, pipes = list[ThreadFigures | None](), set[tuple[str, bool]]()
    with suppress(OSError):
        tids = sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
        threads = [thread_at(pid, tid) for tid in tids]
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                name = str(path.readlink())
                if name.startswith("pipe:"):
                    pipes.add((name, bool(path.lstat().st_mode & stat.S_IWUSR)))
    known = [thread for thread in threads if thread is not None]
    command = command_of(pid) or None
    return LookedAt(pid, usage.parent, command, known, stacks, problem, frozenset(pipes))


def thread_at(pid: int, tid: int) -> ThreadFigures | None:
    """What thread `tid` of process `pid` does now; None when it is over."""
    folder = f"/proc/{pid}/task/{tid}"
    fields = stat_of(folder)
    if not fields:
        return None
    times = [*map(int, content_of(f"{folder}/schedstat").split()[:2]), None, None]
    wchan = content_of(f"{folder}/wchan").decode()
    sleeps = SLEEPS.search(content_of(f"{folder}/status"))
    call, path = _system_call(pid, content_of(f"{folder}/syscall").decode().split())
    return ThreadFigures(
        tid,
        content_of(f"{folder}/comm").decode(errors="replace").strip(),
        fields[0],
        times[0],
        None if wchan in {"", "0"} else wchan,
        call,
        path,
        None if sleeps is None else int(sleeps[1]),
        times[1],
    )


def _system_call(pid: int, words: list[str]) -> tuple[str | None, str | None]:
    """The name of the call that a thread is in, and what it is of."""
    # "running", or "-1 SP PC" outside of any call, or number, six arguments, SP and PC.
    if not words or not words[0].isdigit():
        return None, None
    name, path = NAMES.get(words[0], words[0]), None
    with suppress(OSError, ValueError, OverflowError, psutil.Error):
        arguments = [int(argument, 16) for argument in words[1:7]]
        if name == "futex":
            path = None if arguments[1] & PRIVATE else SHARED
        elif name in OF_A_PATH:  # it stands in the memory of the process
            with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
                file.seek(arguments[OF_A_PATH[name]])
                text = file.read(LONGEST_PATH).partition(b"\0")[0]
            path = text.decode(errors="replace") or None
        elif name not in {words[0], *OF_NO_FILE}:
            path = str(Path(f"/proc/{pid}/fd/{arguments[0]}").readlink())
            if path.startswith("socket:"):
                process = psutil.Process(pid)
                # psutil calls it so from 6.0 on.
                listed = getattr(process, "net_connections", None) or process.connections
                for each in listed():
                    if each.fd == arguments[0] and each.raddr:
                        path += f" connected to {each.raddr.ip}:{each.raddr.port}"
    return name, path


def observe(
    pid: int, workers: Sequence[int], seconds: float, stopped: threading.Event
) -> Observation:
    """What is seen of the training `pid`, and the `workers` that load for it, for `seconds`.

    Ends soon after `stopped` was set. Raises StacksError where the training is over before that.
    """
    began_ns, pids = time.monotonic_ns(), [pid, *sorted(set(workers) - {pid})]
    pauses = random.Random(pid)  # noqa: S311 - no secret
    moments = {each: moment_of(each) for each in pids}
    if not moments[pid]:
        raise StacksError(GONE)
    load, gpu, busy = MachineLoad(), GPUProbe(pid=pid), dict[str, list[float]]()
    load.read()
    with suppress(ProbeError):  # it uses none, or in a container that is not told
        gpu.open()
    recordings: dict[int, Recording] = {}
    try:
        for each in pids[: 1 + MOST_RECORDED]:
            recordings[each] = Recording(each, TRAINING_HZ if each == pid else WORKER_HZ, seconds)
        until_ns = began_ns + round(1e9 * seconds)
        while usage_of(pid) and (left_s := (until_ns - time.monotonic_ns()) / 1e9) > 0:
            if stopped.wait(min(pauses.expovariate(1 / EVERY_S), left_s)):
                break
            for each in pids[: 1 + MOST_ASKED]:
                moments[each] += moment_of(each)
            for name, readings in gpu.read().items():
                if KERNEL_BUSY in readings:
                    busy.setdefault(name, []).append(readings[KERNEL_BUSY])
    finally:
        gpu.close()
        for recording in recordings.values():  # all at once, for each ends at its next sample
            recording.interrupt()
        stacks = {each: recording.stop() for each, recording in recordings.items()}
    processes = [_observed(each, moments[each], *stacks.get(each, (None, None))) for each in pids]
    machine = ObservedMachine(
        cpus=cpuset_cpus(pid) or os.cpu_count() or 1,
        quota_cores=quota_cores(pid),
        busy_cpus=load.read().get("cpu_cores"),
        gpus={name: fmean(percents) for name, percents in busy.items()},
    )
    elapsed_ns, ended = time.monotonic_ns() - began_ns, usage_of(pid) is None
    return Observation(elapsed_ns, processes[0], processes[1:], machine, ended)


def moment_of(pid: int) -> list[Moment]:
    """A process now; nothing where it is over."""
    usage, main = usage_of(pid), thread_at(pid, pid)
    return [] if usage is None or main is None else [(time.monotonic(), usage.cpu_s, main)]


def _observed(
    pid: int, moments: Sequence[Moment], stacks: ProcessStacks | None, problem: str | None
) -> ObservedProcess:
    cpu = queued = None
    if len(moments) > 1:
        (began_s, cpu_s, first), *_, (ended_s, until_s, last) = moments
        cpu = (until_s - cpu_s) / (ended_s - began_s)
        if first.run_queue_ns is not None and last.run_queue_ns is not None:
            queued = (last.run_queue_ns - first.run_queue_ns) / 1e9 / (ended_s - began_s)
    return ObservedProcess(pid, stacks, problem, [main for *_, main in moments], cpu, queued)
