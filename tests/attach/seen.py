"""A training that was looked at from outside, as plain data that tests change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from loadeval.attach.marks import Training, declared_marks
from loadeval.attach.observe import Attached, attached
from loadeval.probes.looks import (
    Look,
    LookedAt,
    Observation,
    ObservedMachine,
    ObservedProcess,
    ThreadFigures,
)
from loadeval.probes.stacks import Frame, ProcessStacks, ThreadStacks

Stack = tuple[Frame, ...]
MARKS = declared_marks()
PID, WORKERS = 100, (101, 102)
SECOND_NS = 1_000_000_000
STANDARD = "/usr/lib/python3.11"
PACKAGES = "/venv/lib/python3.11/site-packages"
TORCH = f"{PACKAGES}/torch/utils/data"
ASKS_AT, SENDS_AT, FETCHES_AT, COLLATES_AT = 10, 20, 30, 40
SOURCES = {
    (f"{TORCH}/_utils/worker.py", ASKS_AT): "    r = index_queue.get(timeout=5)",
    (f"{TORCH}/_utils/worker.py", SENDS_AT): "    data_queue.put((idx, data))",
    (f"{TORCH}/_utils/fetch.py", COLLATES_AT): "    return self.collate_fn(data)",
    (f"{STANDARD}/concurrent/futures/thread.py", 81): "    work_item = work_queue.get(block=True)",
}


def frame(
    function: str, file: str = "/home/me/train/train.py", line: int | None = 1, **variables: object
) -> Frame:
    texts = tuple((name, str(value)) for name, value in variables.items())
    return Frame(function, file, line, variables=texts)


BOOTSTRAP = frame("BaseProcess._bootstrap", f"{STANDARD}/multiprocessing/process.py")
MAIN = (frame("main", line=48), frame("<module>", line=60))
LOOP = (frame("_worker_loop", f"{TORCH}/_utils/worker.py", 15), *MAIN)
STEP = (frame("step", line=31), *MAIN)
NEXT = (frame("_BaseDataLoaderIter.__next__", f"{TORCH}/dataloader.py", 725), *MAIN)
WAIT = (frame("Queue.get", f"{STANDARD}/multiprocessing/queues.py", 113), *NEXT)
START = (
    frame("_MultiProcessingDataLoaderIter.__init__", f"{TORCH}/dataloader.py", 1176),
    frame("DataLoader.__iter__", f"{TORCH}/dataloader.py", 505),
    *MAIN,
)
DATASET = (
    frame("open", f"{PACKAGES}/PIL/Image.py", 3),
    frame("Photos.__getitem__", "/home/me/train/data.py", 12),
)
FETCHING = frame("_MapDatasetFetcher.fetch", f"{TORCH}/_utils/fetch.py", FETCHES_AT)
OWN_LOADING = (*DATASET, FETCHING, *NEXT)
ASK = (
    frame("Queue.get", f"{STANDARD}/multiprocessing/queues.py", 113),
    frame("_worker_loop", f"{TORCH}/_utils/worker.py", ASKS_AT),
    BOOTSTRAP,
    *WAIT,  # of the training process, when the worker was forked
)
SEND = (
    frame("Queue.put", f"{STANDARD}/multiprocessing/queues.py", 93),
    frame("_worker_loop", f"{TORCH}/_utils/worker.py", SENDS_AT),
    BOOTSTRAP,
    *START,
)
FETCH = (*DATASET, FETCHING, *LOOP)
COLLATE = (
    frame("pad", "/home/me/train/data.py", 40),
    frame("_MapDatasetFetcher.fetch", f"{TORCH}/_utils/fetch.py", COLLATES_AT),
    *LOOP,
)


def process(
    pid: int, *moments: Stack, cpu: float | None = 0.5, run_queue: float | None = 0.0, **other: Any
) -> ObservedProcess:
    """A process with a recording of its main thread; none without stacks.

    It used CPUs for that share of the time, and waited for one for the other.
    """
    main = ThreadStacks(pid, "MainThread", moments)
    stacks = ProcessStacks(pid, (main,)) if moments else None
    used = {"cpu_cores": cpu, "run_queue_cores": run_queue}
    return ObservedProcess(pid, **{"stacks": stacks, **used, **other})


def moment(wchan: str, call: str | None = None, path: str | None = None) -> ThreadFigures:
    """A main thread that sleeps in a function of the kernel."""
    return ThreadFigures(1, "python", "S", 0, wchan, call, path)


def report_of(
    training: ObservedProcess,
    workers: Sequence[ObservedProcess] = (),
    *,
    command: tuple[str, ...] = ("python", "train.py"),
    machine: ObservedMachine | None = None,
    ended: bool = False,
) -> Attached:
    """What is said of a training that was observed for a second."""
    seen = Observation(
        elapsed_ns=SECOND_NS,
        training=training,
        workers=tuple(workers),
        machine=machine or ObservedMachine(cpus=4),
        ended=ended,
    )
    told = Training(PID, command, tuple(worker.pid for worker in workers))
    return attached(told, seen, MARKS, lambda file, line: SOURCES.get((file, line), ""))


def half_waiting(**machine: Any) -> Attached:
    """A training that waits half of the time for two workers, which mostly decode images."""
    given = {"cpus": 4, "busy_cpus": 1.6, **machine}
    workers = [
        process(
            pid,
            *(FETCH,) * 16,
            *(COLLATE,) * 2,
            ASK,
            SEND,
            cpu=0.2,
            run_queue=0.05,
            moments=(moment("sk_wait_data", "recvfrom", "socket:[7]"),) * 6,
        )
        for pid in WORKERS
    ]
    return report_of(
        process(PID, *(WAIT, STEP) * 50, START), workers, machine=ObservedMachine(**given)
    )


# Looks at processes whose every thread is given


POLL = (
    frame("_PollLikeSelector.select", f"{STANDARD}/selectors.py"),
    frame("Queue.get", f"{STANDARD}/multiprocessing/queues.py"),
)
READ = frame("Photographs.__getitem__", "/home/me/data.py", 31)
LOGGING = frame("Handler.acquire", f"{STANDARD}/logging/__init__.py", 927)
CONDITION = frame("Condition.wait", f"{STANDARD}/threading.py", 327)
FORKED = (
    BOOTSTRAP,
    frame("Popen._launch", f"{STANDARD}/multiprocessing/popen_fork.py"),
    frame("_MultiProcessingDataLoaderIter.__init__", f"{TORCH}/dataloader.py"),
    frame("main", "/home/me/train.py"),
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


def observed(
    pid: int,
    frames: tuple[Frame, ...] | None,
    call: str | None = "restart_syscall",
    path: str | None = None,
    state: str | None = "S",
    **options: Any,
) -> LookedAt:
    """A process whose main thread has these frames, and is in this call, of that.

    `threads` has the names of its other threads, `cpu_ns` and `sleeps` are of the main one.
    """
    threads = dict(enumerate(options.pop("threads", ()), pid + 1000))
    cpu_ns, sleeps = options.pop("cpu_ns", 0), options.pop("sleeps", None)
    main = ThreadFigures(pid, "python", state, cpu_ns, "a_function", call, path, sleeps)
    others = [ThreadFigures(tid, name, "S", 0) for tid, name in threads.items()]
    stacks = None
    if frames is not None:
        named = [ThreadStacks(tid, name, ((),)) for tid, name in threads.items()]
        stacks = ProcessStacks(pid, (*named, ThreadStacks(pid, "MainThread", (frames,))))
    command, parent = ("python", "train.py"), options.pop("parent", PID)
    return LookedAt(pid, parent, command, (main, *others), stacks, **options)


def looks(
    training: LookedAt, *others: LookedAt, after_s: float = 1.0, **options: Any
) -> list[Look]:
    """Two looks `after_s` apart, between which nothing has moved."""
    first = Look(10.0, training, others)
    return [first, replace(first, time_s=10.0 + after_s, **options)]
