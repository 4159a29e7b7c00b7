"""Which of the processes of a job train, and which load for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from loadeval.attach.marks import Marks, plain_name
from loadeval.errors import UsageError
from loadeval.probes.looks import LookedAt, process_at
from loadeval.probes.processes import HELPERS
from loadeval.probes.stacks import GONE, NOT_PYTHON

COMPILES = "compile_worker"
"""Torch's helper processes that compile have it in their command lines."""
SPAWNED = "multiprocessing.spawn import spawn_main"
MOST_NAMED = 10


class Training(NamedTuple):
    """A process that trains, and the processes that load for it."""

    pid: int
    command: tuple[str, ...] | None
    workers: tuple[int, ...]


def packages_of(pid: int) -> set[str]:
    """The packages whose compiled libraries process `pid` has loaded, as far as that is told."""
    lines: list[str] = []
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    return {line.partition("-packages/")[2].partition("/")[0] for line in lines}


class Job:
    """Processes as they were seen, and what each is for.

    That is "training", "worker", "launcher", "helper", or "other".
    """

    def __init__(self, processes: Iterable[LookedAt], marks: Marks) -> None:
        self.processes, self._marks = {process.pid: process for process in processes}, marks
        self.kinds = {pid: self._kind(process) for pid, process in self.processes.items()}

    def _kind(self, process: LookedAt) -> str:
        command = " ".join(process.command or ())
        if process.stacks is None and (process.problem == NOT_PYTHON or not runs_python(command)):
            return "other"
        main = process.stacks.main if process.stacks else None
        frames = () if main is None else main.stacks[-1]
        reading = self._marks.read(frames)
        parent = self.processes.get(process.parent)
        # Where stacks do not tell it: who was forked has the command line of its parent.
        is_forked = parent is not None and parent.command == process.command
        if reading.loads_for_others or (
            process.stacks is None and (is_forked or SPAWNED in command)
        ):
            return "worker"
        if any(helper in command for helper in (*HELPERS, COMPILES)):
            return "helper"
        waits_for_child = any(
            frame.file.endswith("/subprocess.py") and plain_name(frame) in {"wait", "communicate"}
            for frame in frames
        )
        return "launcher" if waits_for_child or "launches" in reading.activities else "training"

    def top(self, pid: int) -> int:
        """The process that `pid` works for: `pid` itself, unless it is a worker or a helper."""
        while self.kinds[pid] in {"worker", "helper"} and self.processes[pid].parent in self.kinds:
            pid = self.processes[pid].parent
        return pid

    def workers(self, pid: int) -> list[int]:
        """Its workers: a fork server or another worker may have started them for it."""
        workers = (each for each, kind in self.kinds.items() if kind == "worker")
        return sorted(each for each in workers if self.top(each) == pid != each)

    def trainings(self, top: int) -> list[Training]:
        """Process `top`, if it trains; or the trainings that it has launched, by their numbers."""
        candidates = [pid for pid in self._trainings() if top in {pid, *self._above(pid)}]
        with_workers = [pid for pid in candidates if self.workers(pid)]
        if top in (with_workers or candidates):
            return [self._training(top)]
        return list(map(self._training, with_workers or self._topmost(candidates)))

    def all_trainings(self, packages_of: Callable[[int], set[str]] = packages_of) -> list[Training]:
        """Every process that trains: it has workers, waits for a batch, or loaded a framework.

        Of the latter, only those that no other of them has started.
        """
        frameworks = {mark.file.partition("/")[0] for mark in self._marks.functions}
        evident = [pid for pid in self._trainings() if self.workers(pid) or self._waits(pid)]
        likely = [pid for pid in self._trainings() if frameworks & packages_of(pid)]
        return list(map(self._training, sorted({*evident, *self._topmost(likely)})))

    def _trainings(self) -> list[int]:
        return sorted(pid for pid, kind in self.kinds.items() if kind == "training")

    def _training(self, pid: int) -> Training:
        return Training(pid, self.processes[pid].command, tuple(self.workers(pid)))

    def _waits(self, pid: int) -> bool:
        stacks = self.processes[pid].stacks
        threads = stacks.threads if stacks else ()
        return any(self._marks.read(thread.stacks[-1]).waits for thread in threads)

    def _above(self, pid: int) -> list[int]:
        """Its parent, and that one's parent, as far as they were seen."""
        above = []
        while (pid := self.processes[pid].parent) in self.processes:
            above.append(pid)
        return above

    def _topmost(self, pids: list[int]) -> list[int]:
        return [pid for pid in pids if set(pids).isdisjoint(self._above(pid))]


class Finder:
    """Finds trainings that run."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def every_training(self) -> list[Training]:
        """Those of this user. Raises UsageError where there are none."""
        own = {os.geteuid()}
        trainings = self._job(
            process.pid
            for process in psutil.process_iter(["uids", "cmdline"])
            if own & {*(process.info["uids"] or ())}
            and runs_python(" ".join(process.info["cmdline"] or ()))
        ).all_trainings()
        if not trainings:
            raise UsageError(
                "no training of this user was found: none of its Python processes has workers of "
                "a loader or has loaded a framework; give the number of one"
            )
        return trainings

    def training_of(self, pid: int) -> Training:
        """The training of the job that process `pid` is of.

        Raises UsageError where there is none, or several.
        """
        job = self._job(_around(pid))
        if pid not in job.processes:
            raise UsageError(
                f"there is no process {pid}; expected the number of one that runs, as ps shows it"
            )
        top = job.top(pid)
        if top != pid:
            job = self._job(_around(top))
        trainings = job.trainings(top)
        if not trainings:
            command = " ".join(job.processes[top].command or ("unknown",))
            raise UsageError(
                f"process {pid} ({command}) runs no Python program, and has started none that runs"
            )
        if len(trainings) > 1:
            numbers = ", ".join(str(training.pid) for training in trainings[:MOST_NAMED])
            raise UsageError(
                f"process {pid} has {len(trainings)} trainings; give the number of one "
                f"({numbers}), or --all"
            )
        return trainings[0]

    def _job(self, pids: Iterable[int]) -> Job:
        seen = (process_at(pid) for pid in pids if pid != os.getpid())
        living = (process for process in seen if process is not None)
        return Job((process for process in living if process.problem != GONE), self._marks)


def _around(pid: int) -> list[int]:
    """Process `pid`, the Python processes that it descends from, and all that descend from it."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        line = [process, *process.children(recursive=True)]
        for ancestor in process.parents():
            if not runs_python(" ".join(ancestor.cmdline())):
                break
            line.append(ancestor)
        return [each.pid for each in line]
    return []


def runs_python(command: str) -> bool:
    """Whether this command line is of a Python program, as far as it tells."""
    return command.partition(" ")[0].rpartition("/")[2].startswith("python")
