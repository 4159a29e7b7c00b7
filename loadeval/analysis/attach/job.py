"""Which of the processes of a job train, and which load for them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from loadeval.analysis.attach.marks import Activity, read_stack
from loadeval.probes.usage import HELPERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from loadeval.analysis.attach.marks import Marks, Reading
    from loadeval.probes.jobs import SeenProcess

COMPILES = "compile_worker"
"""Torch's helper processes that compile have it in their command lines."""
SPAWNED = "multiprocessing.spawn import spawn_main"
WAITS_FOR_CHILD = ("subprocess.py", ("wait", "communicate"))
"""Who is in such a function of a file launches others."""


class ProcessKind(Enum):
    """What a process is for."""

    TRAINING = "training"
    WORKER = "worker"
    LAUNCHER = "launcher"
    HELPER = "helper"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Training:
    """A process that trains, and the processes that load for it."""

    pid: int
    command: tuple[str, ...] | None
    workers: tuple[int, ...]


def top_of(pid: int, processes: Mapping[int, SeenProcess], marks: Marks) -> int:
    """The process that `pid` works for: `pid` itself, unless it is a worker or a helper."""
    kinds = kinds_of(processes, marks)
    top = pid
    while (
        kinds[top] in (ProcessKind.WORKER, ProcessKind.HELPER)
        and processes[top].parent in processes
    ):
        top = processes[top].parent or top
    return top


def trainings_below(
    top: int, processes: Mapping[int, SeenProcess], marks: Marks
) -> tuple[Training, ...]:
    """Process `top`, if it trains; or the trainings that it has launched, by their numbers."""
    kinds = kinds_of(processes, marks)
    below = {top, *_descendants(top, processes)}
    candidates = [pid for pid in sorted(below) if kinds[pid] is ProcessKind.TRAINING]
    with_workers = [pid for pid in candidates if _workers_of(pid, processes, kinds)]
    if top in with_workers or (top in candidates and not with_workers):
        chosen = [top]
    else:
        chosen = with_workers or _topmost(candidates, processes)
    return tuple(_training(pid, processes, kinds) for pid in chosen)


def all_trainings(processes: Mapping[int, SeenProcess], marks: Marks) -> tuple[Training, ...]:
    """Every process that trains: it has workers, waits for a batch now, or has loaded a framework.

    Of the latter, only those that no other of them has started.
    """
    kinds = kinds_of(processes, marks)
    frameworks = {mark.file.partition("/")[0] for mark in marks.functions}
    candidates = [pid for pid in sorted(processes) if kinds[pid] is ProcessKind.TRAINING]
    evident = [
        pid
        for pid in candidates
        if _workers_of(pid, processes, kinds)
        or any(reading.waits for reading in _readings(processes[pid], marks))
    ]
    likely = [pid for pid in candidates if frameworks & (processes[pid].packages or frozenset())]
    chosen = sorted({*evident, *_topmost(likely, processes)})
    return tuple(_training(pid, processes, kinds) for pid in chosen)


def kinds_of(processes: Mapping[int, SeenProcess], marks: Marks) -> dict[int, ProcessKind]:
    """What each process is for."""
    return {
        pid: _kind(process, processes.get(process.parent or 0), marks)
        for pid, process in processes.items()
    }


def _kind(process: SeenProcess, parent: SeenProcess | None, marks: Marks) -> ProcessKind:
    if not process.is_python:
        return ProcessKind.OTHER
    command = " ".join(process.command or ())
    main = process.stacks.main if process.stacks else None
    reading = read_stack(() if main is None else main.frames, marks, {})
    loads = reading.loads_for_others
    if process.stacks is None:
        # What a fork server has forked has its command line.
        is_forked = parent is not None and parent.is_python and parent.command == process.command
        loads = is_forked or SPAWNED in command
    if loads:
        return ProcessKind.WORKER
    if any(helper in command for helper in (*HELPERS, COMPILES)):
        return ProcessKind.HELPER
    launches = Activity.LAUNCHES in reading.activities
    return ProcessKind.LAUNCHER if launches or _waits_for_child(process) else ProcessKind.TRAINING


def _readings(process: SeenProcess, marks: Marks) -> Iterator[Reading]:
    for thread in process.stacks.threads if process.stacks else ():
        yield read_stack(thread.frames, marks, {})


def _waits_for_child(process: SeenProcess) -> bool:
    main = process.stacks.main if process.stacks else None
    file, functions = WAITS_FOR_CHILD
    return main is not None and any(
        frame.file.endswith(f"/{file}") and frame.function.rpartition(".")[2] in functions
        for frame in main.frames
    )


def _training(
    pid: int, processes: Mapping[int, SeenProcess], kinds: Mapping[int, ProcessKind]
) -> Training:
    workers = _workers_of(pid, processes, kinds)
    return Training(pid, processes[pid].command, tuple(workers))


def _workers_of(
    pid: int, processes: Mapping[int, SeenProcess], kinds: Mapping[int, ProcessKind]
) -> list[int]:
    """Its workers: a fork server or another worker may have started them for it."""
    workers = []
    for child in sorted(_children(pid, processes)):
        if kinds[child] is ProcessKind.WORKER:
            workers.append(child)
        if kinds[child] in (ProcessKind.WORKER, ProcessKind.HELPER):
            workers += _workers_of(child, processes, kinds)
    return workers


def _children(pid: int, processes: Mapping[int, SeenProcess]) -> list[int]:
    return [number for number, process in processes.items() if process.parent == pid]


def _descendants(pid: int, processes: Mapping[int, SeenProcess]) -> set[int]:
    children = set(_children(pid, processes))
    return children.union(*(_descendants(child, processes) for child in children))


def _topmost(pids: Collection[int], processes: Mapping[int, SeenProcess]) -> list[int]:
    below = set[int]().union(*(_descendants(pid, processes) for pid in pids))
    return [pid for pid in pids if pid not in below]
