"""Which of the processes of a job train, and which load for them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import psutil

from loadeval.attach.marks import Marks, plain_name
from loadeval.errors import UsageError
from loadeval.probes.looks import LookedAt, process_at
from loadeval.probes.processes import HELPERS
from loadeval.probes.stacks import GONE, NOT_PYTHON
from loadeval.words import shortened

SPAWNED = "multiprocessing.spawn import spawn_main"


class Training(NamedTuple):
    """A process that trains, and the processes that load for it."""

    pid: int
    command: tuple[str, ...]
    workers: tuple[int, ...]


class ProcessTree:
    """Processes as they were seen, and what each is for.

    That is "training", "worker", "launcher", "helper", or "other".
    """

    def __init__(self, processes: Iterable[LookedAt], marks: Marks) -> None:
        self.processes = {process.pid: process for process in processes}
        self.kinds = {pid: self._kind(process, marks) for pid, process in self.processes.items()}

    def _kind(self, process: LookedAt, marks: Marks) -> str:
        command = " ".join(process.command or ())
        if process.stacks is None and (process.problem == NOT_PYTHON or not runs_python(command)):
            return "other"
        main = process.stacks.main if process.stacks else None
        frames = () if main is None else main.stacks[-1]
        reading, parent = marks.read(frames), self.processes.get(process.parent)
        # Where stacks do not tell it: who was forked has the command line of its parent.
        is_forked = parent is not None and parent.command == process.command
        is_child = process.stacks is None and (is_forked or SPAWNED in command)
        if reading.loads_for_others or is_child:
            return "worker"
        if any(helper in command for helper in HELPERS):
            return "helper"
        waits_for_child = any(
            frame.file.endswith("/subprocess.py") and plain_name(frame) in {"wait", "communicate"}
            for frame in frames
        )
        return "launcher" if waits_for_child or "launches" in reading.activities else "training"

    def ancestry(self, pid: int) -> list[int]:
        """Process `pid`, and those that it descends from, the nearest first."""
        pids = [pid]
        while (parent := self.processes[pids[-1]].parent) in self.processes:
            pids.append(parent)
        return pids

    def top(self, pid: int) -> int:
        """The process that `pid` works for: `pid` itself, unless it is a worker or a helper."""
        pids = self.ancestry(pid)
        tops = (each for each in pids if self.kinds[each] not in {"worker", "helper"})
        return next(tops, pids[-1])

    def trainings(self, top: int) -> list[Training]:
        """Process `top`, if it trains, or the trainings that it has launched, by their numbers.

        Those that have workers, if any has; without those that another one has started.
        """
        workers = sorted(pid for pid, kind in self.kinds.items() if kind == "worker")
        ancestries = {pid: self.ancestry(pid) for pid in sorted(self.kinds)}
        found = [
            Training(
                pid,
                self.processes[pid].command or (),
                tuple(each for each in workers if self.top(each) == pid),
            )
            for pid, ancestry in ancestries.items()
            if self.kinds[pid] == "training" and top in ancestry
        ]
        found = [each for each in found if each.workers] or found
        pids = {each.pid for each in found}
        return [each for each in found if pids.intersection(ancestries[each.pid]) == {each.pid}]


def trainings_of(pid: int, marks: Marks) -> list[Training]:
    """The training that process `pid` is or works for, or those that it has launched.

    Raises UsageError where there is none.
    """
    family = list[int]()
    with suppress(psutil.Error):  # it may end
        process = psutil.Process(pid)
        for parent in process.parents():
            if not runs_python(" ".join(parent.cmdline())):
                break
            process = parent
        family = [process.pid, *(each.pid for each in process.children(recursive=True))]
    seen = (process_at(each) for each in family if each != os.getpid())
    there = (each for each in seen if each is not None and each.problem != GONE)
    tree = ProcessTree(there, marks)
    if pid not in tree.processes:
        raise UsageError(f"there is no process {pid}; expected one of the training, as ps shows it")
    top = tree.top(pid)
    trainings = tree.trainings(top)
    if not trainings:
        command = shortened(" ".join(tree.processes[top].command or ("unknown",)), 80)
        raise UsageError(
            f"process {pid} ({command}) runs no Python program, and has started none that runs; "
            "expected a process of the training, as ps shows it"
        )
    return trainings


def runs_python(command: str) -> bool:
    """Whether this command line is of a Python program, as far as it tells."""
    return command.partition(" ")[0].rpartition("/")[2].startswith("python")
