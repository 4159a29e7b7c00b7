"""What a process of a training does, at one moment: which batch it loads, and what it waits in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from loadeval.attach.marks import Marks, plain_name
from loadeval.probes.looks import LookedAt
from loadeval.probes.processes import ThreadFigures
from loadeval.probes.stacks import Frame, ThreadStack

PROCESS, SPAWN, FORK = (
    "multiprocessing/process.py",
    "multiprocessing/spawn.py",
    "multiprocessing/popen_fork.py",
)
QUEUES, POOL = "multiprocessing/queues.py", "multiprocessing/pool.py"
POOLS = ((POOL, "worker"), ("concurrent/futures/process.py", "_process_worker"))
THREADING = ("/threading.py", "/queue.py", "concurrent/futures/_base.py")
SHARED_LOCKS, NATIVE_SEMAPHORE = "multiprocessing/synchronize.py", "SemLock_acquire"
SERVING = "/loadeval/core/loop.py"
"""Where training waits for a loader that no mark knows, under `loadeval run` or wrapped."""
HELPERS = re.compile(r"QueueFeederThread|.*\(_serve\)$|loadeval|py-spy|$")
"""Threads of multiprocessing's and ours, which hold no lock of the program's."""
STANDARD = re.compile(r"/lib/python3[^/]*/(?!site-packages|dist-packages)|^<")
INSTALLED = re.compile(
    r"/(site|dist)-packages/|/loadeval/(core|runtime|launch)/|/loadeval_adapters/"
)
POLLS = frozenset(
    "poll ppoll select pselect6 epoll_wait epoll_pwait restart_syscall".split()  # noqa: SIM905
)
"""Idle workers wait in one of these for the next index, with a time limit."""
OF_CALL = {
    "read": POLLS
    | frozenset(
        (  # noqa: SIM905 - names, many on a line
            "read readv pread64 preadv recvfrom recvmsg recvmmsg open openat stat newfstatat statx "
            "fstat getdents64 connect accept accept4 flock fcntl io_getevents io_uring_enter "
            "splice wait4 waitid sendfile copy_file_range readahead"
        ).split()
    ),
    "write": frozenset({"write", "writev", "pwrite64", "sendto", "sendmsg"}),
    "sleep": frozenset({"nanosleep", "clock_nanosleep"}),
}
OF_STATE = {"T": "stopped", "t": "stopped", "R": "nothing", "D": "read"}
"""What a thread waits in, by the kernel's letter; D is of a disk or a network file system."""


@dataclass(frozen=True, slots=True)
class StuckAt:
    """Where a thread is; None is not known.

    `line` is the innermost line of the program's own code, of an installed package where there is
    none. `called` is the innermost function, where that is another one, and `native` the compiled
    one that it is in. `call` is the system call, `path` the file that it is of, with the other end
    of a connection, and `wchan` the kernel's function that the thread sleeps in.
    """

    line: str | None = None
    called: str | None = None
    native: str | None = None
    call: str | None = None
    path: str | None = None
    wchan: str | None = None


@dataclass(frozen=True, slots=True)
class Doing:
    """A process, and what its thread that loads does.

    `what` is "starting", "idle", "fetching", "sending" or "other". `worker` is its number in the
    loader, None for the training process and for processes that the program itself started, and
    `tid` that of the thread. `batch` is the number of the batch, from 0 in the epoch, `sample` the
    index in the dataset, or the place in the worker's own epoch.
    """

    process: LookedAt
    tid: int
    what: str
    waits_in: str
    place: StuckAt
    frames: tuple[Frame, ...]
    worker: int | None = None
    batch: int | None = None
    sample: int | None = None
    is_forked: bool = False

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.process.state.pid

    @property
    def at(self) -> tuple[int | None, int | None, str | None]:
        """What it moves on from."""
        return self.batch, self.sample, self.place.line

    @property
    def other_threads(self) -> bool:
        """Whether the program itself began threads beside the main one."""
        threads = () if self.process.stacks is None else self.process.stacks.threads
        return any(each.tid != self.pid and not HELPERS.match(each.name) for each in threads)


def doing_of(process: LookedAt, marks: Marks, *, trains: bool = False) -> Doing:
    """What a process does: one that `trains` by its thread that asks for batches."""
    stack = None if process.stacks is None else process.stacks.main
    if trains and process.stacks is not None:
        asking = (each for each in process.stacks.threads if is_in_loader(_own_frames(each), marks))
        stack = next(asking, stack)
    frames = _own_frames(stack)
    threads = (
        each for each in process.state.threads if stack is not None and each.tid == stack.tid
    )
    state = next(threads, process.state.main)
    if trains:
        what, batch = "fetching" if marks.show(frames, "fetches") else "other", None
    else:
        what, batch = _what(frames, marks)
    return Doing(
        process,
        process.state.pid if state is None else state.tid,
        what,
        _waits_in(state, frames),
        _place(process, state, frames),
        frames,
        None if trains else marks.number(frames, "worker"),
        batch,
        _sample(frames, marks) if what == "fetching" else None,
        any(is_of(frame, FORK) for frame in (stack.frames if stack else ())),
    )


def is_in_loader(frames: Sequence[Frame], marks: Marks) -> bool:
    """Whether a thread of the training process waits for a batch, or begins an epoch."""
    is_served = any(SERVING in frame.file for frame in frames if not frame.native)
    return is_served or marks.show(frames, "waits", "starts")


def _own_frames(stack: ThreadStack | None) -> tuple[Frame, ...]:
    """What a thread does in its own process: a forked one has its parent's frames below."""
    frames = () if stack is None else stack.frames
    for place, frame in enumerate(frames):
        if is_of(frame, PROCESS) and plain_name(frame) == "_bootstrap":
            return frames[:place]
    return frames


def _what(frames: Sequence[Frame], marks: Marks) -> tuple[str, int | None]:
    """What a process that does not train does, and of which batch."""
    python = [frame for frame in frames if not frame.native]
    loops = (place for place, frame in enumerate(python) if marks.variable(frame, "worker"))
    loop = next(loops, None)
    if loop is not None:
        calls = marks.activities_of_call(python[loop], plain_name(python[max(loop - 1, 0)]))
        if "asks" in calls:
            return "idle", None
        if "sends" in calls or marks.show(python[:loop], "fetches"):
            return "sending" if "sends" in calls else "fetching", marks.number(frames, "batch")
        return "starting", None
    # It is no loader's worker yet, or never will be.
    for place, frame in enumerate(python):
        if any(is_of(frame, file) and plain_name(frame) == name for file, name in POOLS):
            is_idle = place and plain_name(python[place - 1]) == "get"
            return "idle" if is_idle else "fetching", None
        if is_of(frame, SPAWN) and plain_name(frame) == "spawn_main":
            return "starting", None
    return "other", None


def _sample(frames: Sequence[Frame], marks: Marks) -> int | None:
    """The sample that is read, where the fetcher's own variables tell."""
    fetcher = next((frame for frame in frames if marks.variable(frame, "sample")), None)
    if fetcher is None or marks.variable(fetcher, "all read") in dict(fetcher.variables):
        return None
    return marks.number([fetcher], "sample")


def _waits_in(state: ThreadFigures | None, frames: Sequence[Frame]) -> str:
    """What a thread in this state, with these frames, waits in."""
    letter = (None if state is None else state.state) or "?"
    if state is None or letter in OF_STATE:
        return OF_STATE.get(letter, "unknown")
    call = (None if state.call is None else state.call.name) or "?"
    if call != "futex":
        return next((waits for waits, calls in OF_CALL.items() if call in calls), "unknown")
    # Locks, queues and other threads are waited for by a futex.
    inner = next((frame for frame in frames if not frame.native), None)
    if inner is None:
        return "lock"
    if is_of(inner, QUEUES):
        return "queue"
    if is_of(inner, SHARED_LOCKS) or any(NATIVE_SEMAPHORE in each.function for each in frames):
        return "shared lock"
    return "thread" if is_of(inner, *THREADING) else "lock"


def _place(process: LookedAt, state: ThreadFigures | None, frames: Sequence[Frame]) -> StuckAt:
    """Where a thread in this state, with these frames, is."""
    python = [frame for frame in frames if not frame.native]
    own = [frame for frame in python if not STANDARD.search(frame.file)]
    line = next((frame for frame in own if not INSTALLED.search(frame.file)), None)
    line = line or next(iter(own), None)
    inner = next((frame for frame in frames if not frame.function.startswith("0x")), None)
    call = None if state is None else state.call
    path = None if call is None else call.path
    if path is not None and call is not None:
        peer = dict(process.connections).get(-1 if call.descriptor is None else call.descriptor)
        path = path if peer is None else f"{path} connected to {peer}"
    return StuckAt(
        line=None if line is None else frame_text(line),
        called=None if not python or python[0] is line else frame_text(python[0]),
        native=frame_text(inner) if inner is not None and inner.native else None,
        call=None if call is None else call.name,
        path=path,
        wchan=None if state is None else state.wchan,
    )


def is_of(frame: Frame, *ends: str) -> bool:
    """Whether it is Python code of one of these files."""
    return not frame.native and frame.file.endswith(ends)


def frame_text(frame: Frame) -> str:
    """A frame as `data.py:31 Photographs.__getitem__`; compiled code by its name alone."""
    if frame.native:
        return frame.function.partition("(")[0].partition("<")[0]
    line = "" if frame.line is None else f":{frame.line}"
    parts = frame.file.split("/")
    file = "/".join(parts[-2 if parts[-1] == "__init__.py" else -1 :])
    return f"{file}{line} {frame.function}"
