"""A training that was looked at from outside, as plain data that tests change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadeval.analysis.attach.job import Training
from loadeval.analysis.attach.marks import marks_of
from loadeval.analysis.attach.report import AttachedReport, attached_report
from loadeval.probes.observing import Observation, ObservedMachine, ObservedProcess, ProcessGrowth
from loadeval.probes.processes import SystemCall, ThreadFigures
from loadeval.probes.stacks import Frame, ProcessSamples, ThreadSamples
from loadeval.runtime.registry import declared_in_stacks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Stack = tuple[Frame, ...]
MARKS = marks_of(*declared_in_stacks())
PID, WORKERS = 100, (101, 102)
SECOND_NS = 1_000_000_000
PACKAGES = "/venv/lib/python3.11/site-packages"
TORCH = f"{PACKAGES}/torch/utils/data"
ASKS_AT, SENDS_AT, FETCHES_AT, COLLATES_AT = 10, 20, 30, 40
SOURCES = {
    (f"{TORCH}/_utils/worker.py", ASKS_AT): "    r = index_queue.get(timeout=5)",
    (f"{TORCH}/_utils/worker.py", SENDS_AT): "    data_queue.put((idx, data))",
    (f"{TORCH}/_utils/fetch.py", COLLATES_AT): "    return self.collate_fn(data)",
}


def frame(function: str, file: str = "/home/me/train/train.py", line: int = 1) -> Frame:
    return Frame(function, file, line)


MAIN = (frame("main", line=48), frame("<module>", line=60))
LOOP = (frame("_worker_loop", f"{TORCH}/_utils/worker.py", 15), *MAIN)
STEP = (frame("step", line=31), *MAIN)
NEXT = (frame("_BaseDataLoaderIter.__next__", f"{TORCH}/dataloader.py", 725), *MAIN)
WAIT = (frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113), *NEXT)
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
    frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
    frame("_worker_loop", f"{TORCH}/_utils/worker.py", ASKS_AT),
    *WAIT,  # of the training process, when the worker was forked
)
SEND = (
    frame("Queue.put", "/usr/lib/python3.11/multiprocessing/queues.py", 93),
    frame("_worker_loop", f"{TORCH}/_utils/worker.py", SENDS_AT),
    *START,
)
FETCH = (*DATASET, FETCHING, *LOOP)
COLLATE = (
    frame("pad", "/home/me/train/data.py", 40),
    frame("_MapDatasetFetcher.fetch", f"{TORCH}/_utils/fetch.py", COLLATES_AT),
    *LOOP,
)


def samples(
    pid: int, *stacks: Stack, name: str = "MainThread", tid: int | None = None, failed: int = 0
) -> ProcessSamples:
    """A recording of one thread, by default the main one."""
    thread = ThreadSamples(pid if tid is None else tid, name, stacks)
    return ProcessSamples(pid, (thread,), failed)


def growth(cpu: float = 0.5, run_queue: float = 0.0, **other: Any) -> ProcessGrowth:
    """What a process used in a second: CPU and run queue as shares of it."""
    counted = {"cpu_ns": round(cpu * SECOND_NS), "run_queue_ns": round(run_queue * SECOND_NS)}
    return ProcessGrowth(SECOND_NS, **{**counted, **other})


def process(pid: int, *stacks: Stack, **other: Any) -> ObservedProcess:
    """A process with one recording of its main thread; none without stacks."""
    recordings = (samples(pid, *stacks),) if stacks else ()
    given = {"samples": recordings, "growth": growth(), "cpus_allowed": frozenset(range(4))}
    return ObservedProcess(pid, **{**given, **other})


def moment(
    wchan: str | None, state: str = "S", call: str | None = None, path: str | None = None
) -> ThreadFigures:
    """A main thread that sleeps in a function of the kernel."""
    in_call = None if call is None else SystemCall(0, call, 3, path)
    return ThreadFigures(1, "python", state, 0, wchan, in_call)


def observation(
    training: ObservedProcess,
    workers: Sequence[ObservedProcess] = (),
    *,
    machine: ObservedMachine | None = None,
    ended: bool = False,
) -> Observation:
    return Observation(
        elapsed_ns=SECOND_NS,
        cost_ns=SECOND_NS // 100,
        training=training,
        workers=tuple(workers),
        at_once=len(workers),
        machine=machine or ObservedMachine(cpus=4),
        ended=ended,
    )


def report_of(
    training: ObservedProcess, workers: Sequence[ObservedProcess] = (), **other: Any
) -> AttachedReport:
    """What is said of an observation."""
    told = Training(PID, ("python", "train.py"), tuple(worker.pid for worker in workers))
    return attached_report(told, observation(training, workers, **other), MARKS, SOURCES)


def attached(**machine: Any) -> AttachedReport:
    """A training that waits half of the time for two workers, which mostly decode images."""
    given: Mapping[str, Any] = {"cpus": 4, "runnable": (3, 5), "busy_cpus": 1.6, **machine}
    workers = [
        process(
            pid,
            *(FETCH,) * 16,
            *(COLLATE,) * 2,
            ASK,
            SEND,
            growth=growth(0.2, 0.05, read_bytes=4_000_000, disk_read_bytes=1_000),
            moments=(moment("sk_wait_data", call="recvfrom", path="socket:[7]"),) * 6,
        )
        for pid in WORKERS
    ]
    return report_of(
        process(PID, *(WAIT, STEP) * 50, START), workers, machine=ObservedMachine(**given)
    )
