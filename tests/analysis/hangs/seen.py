"""Processes as they may be seen, of a training whose every thread is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loadeval.probes.looks import KernelMemory, Look, LookedAt
from loadeval.probes.processes import ProcessState, SystemCall, ThreadFigures
from loadeval.probes.stacks import Frame, ProcessStacks, ThreadStack

PACKAGES = "/venv/lib/python3.11/site-packages"
TORCH = f"{PACKAGES}/torch/utils/data"
STANDARD = "/usr/lib/python3.11"
TRAINING = 100
SECOND = 1_000_000_000


def frame(function: str, file: str, line: int | None = 1, **variables: object) -> Frame:
    texts = tuple((name, str(value)) for name, value in variables.items())
    return Frame(function, file, line, variables=texts)


def native(function: str) -> Frame:
    return Frame(function, "/usr/lib/libc.so.6", None, native=True)


POLL = (
    frame("_PollLikeSelector.select", f"{STANDARD}/selectors.py"),
    frame("Queue.get", f"{STANDARD}/multiprocessing/queues.py"),
)
READ = frame("Photographs.__getitem__", "/home/me/data.py", 31)
LOGGING = frame("Handler.acquire", f"{STANDARD}/logging/__init__.py", 927)
CONDITION = frame("Condition.wait", f"{STANDARD}/threading.py", 327)
BOOTSTRAP = frame("BaseProcess._bootstrap", f"{STANDARD}/multiprocessing/process.py")
FORKED = (
    BOOTSTRAP,
    frame("Popen._launch", f"{STANDARD}/multiprocessing/popen_fork.py"),
    frame("_MultiProcessingDataLoaderIter.__init__", f"{TORCH}/dataloader.py"),
    frame("main", "/home/me/train.py"),
)
SPAWNED = (
    frame("spawn_main", f"{STANDARD}/multiprocessing/spawn.py"),
    frame("<module>", "<string>"),
)


def loop(worker: int, **variables: object) -> Frame:
    return frame("_worker_loop", f"{TORCH}/_utils/worker.py", 374, worker_id=worker, **variables)


def fetching(
    *inner: Frame, worker: int = 0, batch: int = 4, sample: object = 9, below: Any = FORKED
) -> tuple[Frame, ...]:
    """The frames of a worker that reads a sample, `inner` innermost."""
    comprehension = frame("fetch.<locals>.<listcomp>", f"{TORCH}/_utils/fetch.py", 54, idx=sample)
    fetch = frame("_MapDatasetFetcher.fetch", f"{TORCH}/_utils/fetch.py", 54)
    return (*inner, comprehension, fetch, loop(worker, idx=batch), *below)


def idle(worker: int) -> tuple[Frame, ...]:
    return (*POLL, loop(worker), *FORKED)


def waiting(**variables: object) -> tuple[Frame, ...]:
    """The frames of training that waits for torch's workers."""
    return (
        *POLL,
        frame("_get_data", f"{TORCH}/dataloader.py", 1464),
        frame("_next_data", f"{TORCH}/dataloader.py", 1505, **variables),
        frame("__next__", f"{TORCH}/dataloader.py", 725),
        frame("main", "/home/me/train.py", 20),
    )


def loading_itself(*inner: Frame) -> tuple[Frame, ...]:
    """The frames of training that reads its own samples."""
    return (
        *inner,
        frame("fetch", f"{TORCH}/_utils/fetch.py", 54),
        frame("__next__", f"{TORCH}/dataloader.py", 725),
        frame("main", "/home/me/train.py", 20),
    )


def in_call(name: str, path: str | None = None, descriptor: int | None = None) -> SystemCall:
    return SystemCall(0, name, descriptor, path)


def observed(
    pid: int,
    frames: tuple[Frame, ...] | None,
    call: SystemCall | str | None = "restart_syscall",
    state: str | None = "S",
    **options: Any,
) -> LookedAt:
    """A process whose main thread has these frames, and is in this call.

    `threads` has the names of its other threads, `cpu_ns` what the main one has used.
    """
    threads = dict(enumerate(options.pop("threads", ()), pid + 1000))
    cpu_ns, parent = options.pop("cpu_ns", 0), options.pop("parent", TRAINING)
    system_call = in_call(call) if isinstance(call, str) else call
    main = ThreadFigures(pid, "python", state, cpu_ns, "a_function", system_call)
    others = [ThreadFigures(tid, name, "S", 0, None, None) for tid, name in threads.items()]
    stacks = None
    if frames is not None:
        stacks = ProcessStacks(
            pid,
            (
                *(ThreadStack(tid, name, ()) for tid, name in threads.items()),
                ThreadStack(pid, "MainThread", frames),
            ),
        )
    of_kernel = ProcessState(pid, parent, (), ("python", "train.py"), (main, *others))
    return LookedAt(of_kernel, stacks, **options)


def looks(
    training: LookedAt, *others: LookedAt, after_s: float = 1.0, **options: Any
) -> list[Look]:
    """Two looks `after_s` apart, between which nothing has moved."""
    first = Look(10.0, training, others, memory=KernelMemory(0, 1000, 1000))
    return [first, replace(first, time_s=10.0 + after_s, **options)]
