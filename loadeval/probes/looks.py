"""All that the system tells at one moment of a training process and the processes below it.

No process is paused for it: a call that writes to a pipe, for one, would return early, with a part
of what it was to write.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from loadeval.probes.cgroup import groups
from loadeval.probes.processes import ProcessState, process_state
from loadeval.probes.stacks import ProcessStacks, StackProblem, StacksError, dump
from loadeval.probes.usage import is_helper

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where batches of workers are
EXIT_CODE = 49
"""The field of /proc/PID/stat behind the name, from 0, as Linux counts it since 3.5."""
SIGNAL = 0x7F
"""The bits of it that have the signal."""
SLEEPS = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
MOST_PROCESSES = 64
"""So many processes are looked at: a dump of each takes a fraction of a second."""


@dataclass(frozen=True, slots=True)
class LookedAt:
    """One process: what its threads do; what is not known is None.

    `problem` is why there are no stacks. `pipes` are those that are open, each with whether it is
    open for writing, and `connections` the addresses that its sockets are connected to, by the
    number of the open file. `sleeps` counts how often each of its threads went to sleep so far.
    """

    state: ProcessState
    stacks: ProcessStacks | None = None
    problem: StackProblem | None = None
    pipes: frozenset[tuple[str, bool]] = frozenset()
    connections: tuple[tuple[int, str], ...] = ()
    sleeps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class KernelMemory:
    """What there is of memory; bytes are of /dev/shm, and None is not known.

    `oom_kills` counts the processes that the kernel killed to get memory: of the control group of
    this process, or of the machine where it is in none.
    """

    oom_kills: int | None = None
    shared_bytes: int | None = None
    free_shared_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """A training process and all processes below it, at `time_s` of a monotonic clock.

    `killed` has the processes that it started, that were killed, and that it has not asked about
    since, each with the signal.
    """

    time_s: float
    training: LookedAt
    others: tuple[LookedAt, ...] = ()
    killed: tuple[tuple[int, int], ...] = ()
    memory: KernelMemory = KernelMemory()


def look_at(pid: int) -> Look | None:
    """Look at process `pid` and at what it started; None where it is over."""
    began_s = time.monotonic()
    training = _observed(pid)
    if training is None:
        return None
    others = [seen for below in _below(training.state) if (seen := _observed(below)) is not None]
    return Look(began_s, training, tuple(others), tuple(_killed(pid)), memory())


def with_native_frames(look: Look, pid: int) -> Look:
    """`look` with the functions of compiled code among the frames of process `pid`.

    It is paused for some milliseconds; the look stays as it was where that fails.
    """
    try:
        stacks = dump(pid, native=True, variables=True)
    except StacksError:
        return look
    training, *others = (
        replace(seen, stacks=stacks) if seen.state.pid == pid else seen
        for seen in (look.training, *look.others)
    )
    return replace(look, training=training, others=tuple(others))


def memory() -> KernelMemory:
    """What the kernel has killed for want of memory until now, and the room in /dev/shm."""
    shared = free = None
    with suppress(OSError):
        sizes = os.statvfs(SHARED_MEMORY)
        shared, free = sizes.f_blocks * sizes.f_frsize, sizes.f_bavail * sizes.f_frsize
    return KernelMemory(_oom_kills(), shared, free)


def _below(state: ProcessState) -> Iterator[int]:
    """The processes below this one, nearest first, without the helpers of multiprocessing."""
    waiting, count = [(pid, state.command) for pid in state.children], 0
    while waiting and count < MOST_PROCESSES:
        pid, parents_command = waiting.pop(0)
        below = process_state(pid)
        if below is None:
            continue
        waiting += [(child, below.command) for child in below.children]
        if not is_helper(below.command, parents_command):
            count += 1
            yield pid


def _observed(pid: int) -> LookedAt | None:
    state, stacks, problem = process_state(pid), None, None
    if state is None:
        return None
    try:
        stacks = dump(pid, nonblocking=True, variables=True)
    except StacksError as error:
        problem = error.problem
    return LookedAt(
        state,
        stacks,
        problem,
        frozenset(_pipes(pid)),
        tuple(_connections(pid)),
        tuple(_sleeps(state)),
    )


def _killed(parent: int) -> Iterator[tuple[int, int]]:
    for pid in psutil.pids():
        fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        if len(fields) > EXIT_CODE and fields[:2] == ["Z", str(parent)]:
            signal = int(fields[EXIT_CODE]) & SIGNAL
            if signal:
                yield pid, signal


def _pipes(pid: int) -> Iterator[tuple[str, bool]]:
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                name = str(path.readlink())
                if name.startswith("pipe:"):
                    yield name, bool(path.lstat().st_mode & stat.S_IWUSR)


def _connections(pid: int) -> Iterator[tuple[int, str]]:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        # psutil calls it so from 6.0 on.
        listed = getattr(process, "net_connections", None) or process.connections
        for connection in listed():
            if connection.raddr:
                yield connection.fd, f"{connection.raddr.ip}:{connection.raddr.port}"


def _sleeps(state: ProcessState) -> Iterator[tuple[int, int]]:
    for thread in state.threads:
        text = _text(Path(f"/proc/{state.pid}/task/{thread.tid}/status"))
        count = SLEEPS.search(text)
        if count is not None:
            yield thread.tid, int(count[1])


def _oom_kills() -> int | None:
    for group in groups("memory"):
        for name in ("memory.events", "memory.oom_control"):
            count = _counter(group.folder / name)
            if count is not None:
                return count
    return _counter(Path("/proc/vmstat"))


def _counter(path: Path) -> int | None:
    counts = dict(line.split()[:2] for line in _text(path).splitlines() if " " in line)
    text = counts.get("oom_kill", "")
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
