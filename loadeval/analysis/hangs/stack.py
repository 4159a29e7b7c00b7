"""What a process of a training does, by its stacks: which batch it reads, and what it waits in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from loadeval.analysis.attach.marks import Activity, Told, plain_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.attach.marks import Marks
    from loadeval.probes.looks import LookedAt
    from loadeval.probes.processes import ThreadFigures
    from loadeval.probes.stacks import Frame, ThreadStack

PROCESS, SPAWN, FORK = (
    "multiprocessing/process.py",
    "multiprocessing/spawn.py",
    "multiprocessing/popen_fork.py",
)
QUEUES, POOL = "multiprocessing/queues.py", "multiprocessing/pool.py"
EXECUTOR = "concurrent/futures/process.py"
THREADING = ("/threading.py", "/queue.py", "concurrent/futures/_base.py")
SHARED_LOCKS = "multiprocessing/synchronize.py"
SERVING = "/loadeval/runtime/serving/"
"""Where training waits for a loader that no mark knows, under `loadeval run` or wrapped."""
NATIVE_SEMAPHORE = "SemLock_acquire"
HELPERS = re.compile(r"QueueFeederThread|.*\(_serve\)$|loadeval|py-spy|$")
"""Threads of multiprocessing's and ours, which hold no lock of the program's."""
SUPERVISORS = re.compile(r".*\(_handle_(workers|tasks|results)\)$|loadeval")
"""Threads of a pool of multiprocessing's, and ours: they may be busy while nothing is loaded."""
STANDARD = re.compile(r"/lib/python3[^/]*/(?!site-packages|dist-packages)|^<")
INSTALLED = re.compile(r"/(site|dist)-packages/|/loadeval/(runtime|launch)/|/loadeval_adapters/")
READS = frozenset(
    {
        *("read", "readv", "pread64", "preadv", "recvfrom", "recvmsg", "recvmmsg", "open"),
        *("openat", "stat", "newfstatat", "statx", "fstat", "getdents64", "connect", "accept"),
        *("accept4", "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"),
        *("restart_syscall", "flock", "fcntl", "io_getevents", "io_uring_enter", "splice"),
        *("wait4", "waitid", "sendfile", "copy_file_range", "readahead"),
    }
)
WRITES = frozenset({"write", "writev", "pwrite64", "sendto", "sendmsg"})
SLEEPS = frozenset({"nanosleep", "clock_nanosleep"})


class Doing(Enum):
    """What a process does in the loader."""

    STARTING = "starting"
    IDLE = "idle"
    FETCHING = "fetching"
    SENDING = "sending"
    OTHER = "other"


class WaitsIn(Enum):
    """What the thread that loads waits in, as the system and its stack tell."""

    READ = "read"
    WRITE = "write"
    LOCK = "lock"
    THREAD = "thread"
    SHARED_LOCK = "shared lock"
    QUEUE = "queue"
    SLEEP = "sleep"
    STOPPED = "stopped"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


OF_STATE = {
    "T": WaitsIn.STOPPED,
    "t": WaitsIn.STOPPED,
    "R": WaitsIn.NOTHING,
    "D": WaitsIn.READ,  # of a disk or a network file system
}
"""By the kernel's letter for a thread's state."""
OF_CALL = {WaitsIn.READ: READS, WaitsIn.WRITE: WRITES, WaitsIn.SLEEP: SLEEPS}


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
class Loading:
    """A process, and what its thread that loads does.

    `worker` is its number in the loader, None for the training process and for processes that the
    program itself started, and `tid` that of the thread. `batch` is the number of the batch, from 0
    in the epoch, `sample` the index in the dataset, or the place in the worker's own epoch.
    """

    process: LookedAt
    tid: int
    doing: Doing
    waits: WaitsIn
    place: StuckAt
    worker: int | None = None
    batch: int | None = None
    sample: int | None = None
    is_forked: bool = False


def of_process(process: LookedAt, marks: Marks) -> Loading:
    """What `process`, which is not the one that trains, does."""
    stack = None if process.stacks is None else process.stacks.main
    frames = own_frames(stack)
    doing, batch, sample = _doing(frames, marks)
    return Loading(
        process,
        process.state.pid,
        doing if frames else Doing.OTHER,
        waits_in(process.state.main, frames),
        place_of(process, process.state.main, frames),
        worker=marks.number(frames, Told.WORKER),
        batch=batch,
        sample=sample,
        is_forked=stack is not None and any(is_of(frame, FORK) for frame in stack.frames),
    )


def of_training(process: LookedAt, stack: ThreadStack | None, marks: Marks) -> Loading:
    """What the thread with `stack` does, that of the training process which asks for batches."""
    frames = own_frames(stack)
    state = next(
        (each for each in process.state.threads if stack is not None and each.tid == stack.tid),
        process.state.main,
    )
    return Loading(
        process,
        process.state.pid if state is None else state.tid,
        Doing.FETCHING if marks.show(frames, Activity.FETCHES) else Doing.OTHER,
        waits_in(state, frames),
        place_of(process, state, frames),
        sample=_sample(frames, marks),
    )


def training_stack(process: LookedAt, marks: Marks) -> ThreadStack | None:
    """The stack of the thread that asks for batches, else that of the main thread."""
    if process.stacks is None:
        return None
    threads = process.stacks.threads
    waiting = (thread for thread in threads if is_in_loader(own_frames(thread), marks))
    return next(waiting, process.stacks.main)


def is_of(frame: Frame, *ends: str) -> bool:
    """Whether it is Python code of one of these files."""
    return not frame.native and frame.file.endswith(ends)


def own_frames(stack: ThreadStack | None) -> tuple[Frame, ...]:
    """What a thread does in its own process: a forked one has its parent's frames below."""
    frames = () if stack is None else stack.frames
    for place, frame in enumerate(frames):
        if is_of(frame, PROCESS) and plain_name(frame) == "_bootstrap":
            return frames[:place]
    return frames


def is_in_loader(frames: Sequence[Frame], marks: Marks) -> bool:
    """Whether a thread of the training process waits for a batch, or begins an epoch."""
    is_served = any(SERVING in frame.file for frame in frames if not frame.native)
    return is_served or marks.show(frames, Activity.WAITS, Activity.STARTS)


def collective_of(frames: Sequence[Frame], marks: Marks) -> str | None:
    """The collective operation that a thread is in, if it is in one."""
    for folder, pattern in marks.collectives:
        for frame in frames:
            name = frame.function if frame.native else plain_name(frame)
            is_there = folder in frame.file and frame.native is not bool(folder)
            if is_there and re.search(pattern, name):
                return name
    return None


def asks_pool(frames: Sequence[Frame]) -> bool:
    """Whether a thread waits for a task of a pool of multiprocessing's."""
    return any(is_of(frame, POOL) for frame in frames)


def waits_in(state: ThreadFigures | None, frames: Sequence[Frame]) -> WaitsIn:
    """What a thread in this state, with these frames, waits in."""
    letter = (None if state is None else state.state) or "?"
    if state is None or letter in OF_STATE:
        return OF_STATE.get(letter, WaitsIn.UNKNOWN)
    call = (None if state.call is None else state.call.name) or "?"
    if call == "futex":
        return _of_futex(frames)
    return next((waits for waits, calls in OF_CALL.items() if call in calls), WaitsIn.UNKNOWN)


def _of_futex(frames: Sequence[Frame]) -> WaitsIn:
    """What a thread waits for by a futex, as locks, queues and other threads are."""
    inner = next((frame for frame in frames if not frame.native), None)
    if inner is None:
        return WaitsIn.LOCK
    if is_of(inner, QUEUES):
        return WaitsIn.QUEUE
    if is_of(inner, SHARED_LOCKS) or any(NATIVE_SEMAPHORE in f.function for f in frames):
        return WaitsIn.SHARED_LOCK
    return WaitsIn.THREAD if is_of(inner, *THREADING) else WaitsIn.LOCK


def place_of(process: LookedAt, state: ThreadFigures | None, frames: Sequence[Frame]) -> StuckAt:
    """Where a thread in this state, with these frames, is."""
    python = [frame for frame in frames if not frame.native]
    own = [frame for frame in python if not STANDARD.search(frame.file)]
    line = next((frame for frame in own if not INSTALLED.search(frame.file)), None)
    line = line or next(iter(own), None)
    named = (frame for frame in frames if not frame.function.startswith("0x"))
    inner = next(named, None)
    call = None if state is None else state.call
    path = None if call is None else call.path
    if path is not None and call is not None:
        peer = dict(process.connections).get(-1 if call.descriptor is None else call.descriptor)
        path = path if peer is None else f"{path} connected to {peer}"
    return StuckAt(
        line=None if line is None else text_of(line),
        called=None if not python or python[0] is line else text_of(python[0]),
        native=text_of(inner) if inner is not None and inner.native else None,
        call=None if call is None else call.name,
        path=path,
        wchan=None if state is None else state.wchan,
    )


def text_of(frame: Frame) -> str:
    """A frame as `data.py:31 Photographs.__getitem__`; compiled code by its name alone."""
    if frame.native:
        return frame.function.partition("(")[0].partition("<")[0]
    line = "" if frame.line is None else f":{frame.line}"
    parts = frame.file.split("/")
    file = "/".join(parts[-2 if parts[-1] == "__init__.py" else -1 :])
    return f"{file}{line} {frame.function}"


def others_of(process: LookedAt) -> list[ThreadStack]:
    """The threads beside the main one that the program itself has begun."""
    threads = () if process.stacks is None else process.stacks.threads
    return [
        thread
        for thread in threads
        if thread.tid != process.state.pid and not HELPERS.match(thread.name)
    ]


def supervisors_of(process: LookedAt) -> set[int | None]:
    """The numbers of the threads that SUPERVISORS names."""
    threads = () if process.stacks is None else process.stacks.threads
    return {thread.tid for thread in threads if SUPERVISORS.match(thread.name)}


def _doing(frames: Sequence[Frame], marks: Marks) -> tuple[Doing, int | None, int | None]:
    """What it does, of which batch, and of which sample."""
    python = [frame for frame in frames if not frame.native]
    tells = (place for place, frame in enumerate(python) if marks.variable(frame, Told.WORKER))
    loop = next(tells, None)
    if loop is None:
        return _doing_of_others(python), None, _sample(python, marks)
    calls = marks.activities_of_call(python[loop], plain_name(python[max(loop - 1, 0)]))
    if Activity.ASKS in calls:
        return Doing.IDLE, None, None
    batch = marks.number(python[loop:], Told.BATCH)
    if Activity.SENDS in calls:
        return Doing.SENDING, batch, None
    if not marks.show(python[:loop], Activity.FETCHES):
        return Doing.STARTING, None, None
    return Doing.FETCHING, batch, _sample(python[:loop], marks)


def _doing_of_others(python: Sequence[Frame]) -> Doing:
    """What a process does that is no loader's worker yet, or never will be."""
    of_pool = _first(python, POOL, "worker"), _first(python, EXECUTOR, "_process_worker")
    for loop in of_pool:
        if loop is not None:
            return Doing.IDLE if loop and plain_name(python[loop - 1]) == "get" else Doing.FETCHING
    return Doing.STARTING if _first(python, SPAWN, "spawn_main") is not None else Doing.OTHER


def _sample(frames: Sequence[Frame], marks: Marks) -> int | None:
    """The sample that is read, where the fetcher's own variables tell."""
    fetcher = next((frame for frame in frames if marks.variable(frame, Told.SAMPLE)), None)
    if fetcher is None or marks.variable(fetcher, Told.ALL_READ) in dict(fetcher.variables):
        return None
    return marks.number([fetcher], Told.SAMPLE)


def _first(python: Sequence[Frame], file: str, function: str) -> int | None:
    places = (
        place
        for place, frame in enumerate(python)
        if is_of(frame, file) and plain_name(frame) == function
    )
    return next(places, None)
