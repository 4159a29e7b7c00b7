"""Which of the processes of a job train, and which load for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from loadeval.attach.marks import Marks, plain_name
from loadeval.errors import UsageError
from loadeval.probes.jobs import SeenProcess, descendants_of, job_around, python_processes, seen
from loadeval.probes.usage import HELPERS

COMPILES = "compile_worker"
"""Torch's helper processes that compile have it in their command lines."""
SPAWNED = "multiprocessing.spawn import spawn_main"
MOST_NAMED = 10


class Training(NamedTuple):
    """A process that trains, and the processes that load for it."""

    pid: int
    command: tuple[str, ...] | None
    workers: tuple[int, ...]


class Job:
    """Processes as they were seen, by number, and what each is for.

    That is "training", "worker", "launcher", "helper", or "other".
    """

    def __init__(self, processes: Mapping[int, SeenProcess], marks: Marks) -> None:
        self.processes, self._marks = processes, marks
        self.kinds = {pid: self._kind(process) for pid, process in processes.items()}

    def _kind(self, process: SeenProcess) -> str:
        if not process.is_python:
            return "other"
        command = " ".join(process.command or ())
        main = process.stacks.main if process.stacks else None
        frames = () if main is None else main.frames
        reading = self._marks.read(frames)
        loads = reading.loads_for_others
        if process.stacks is None:
            # What a fork server has forked has its command line.
            parent = self.processes.get(process.parent or 0)
            is_forked = bool(parent and parent.is_python and parent.command == process.command)
            loads = is_forked or SPAWNED in command
        if loads:
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
        while self.kinds[pid] in {"worker", "helper"}:
            parent = self.processes[pid].parent
            if parent is None or parent not in self.processes:
                break
            pid = parent
        return pid

    def trainings(self, top: int) -> list[Training]:
        """Process `top`, if it trains; or the trainings that it has launched, by their numbers."""
        candidates = self._trainings_among({top, *self._below(top)})
        with_workers = [pid for pid in candidates if self.workers(pid)]
        if top in with_workers or (top in candidates and not with_workers):
            chosen = [top]
        else:
            chosen = with_workers or self._topmost(candidates)
        return list(map(self._training, chosen))

    def all_trainings(self) -> list[Training]:
        """Every process that trains: it has workers, waits for a batch, or loaded a framework.

        Of the latter, only those that no other of them has started.
        """
        frameworks = {mark.file.partition("/")[0] for mark in self._marks.functions}
        candidates = self._trainings_among(self.processes)
        evident = [pid for pid in candidates if self.workers(pid) or self._waits(pid)]
        likely = [pid for pid in candidates if frameworks & (self.processes[pid].packages or set())]
        return list(map(self._training, sorted({*evident, *self._topmost(likely)})))

    def workers(self, pid: int) -> list[int]:
        """Its workers: a fork server or another worker may have started them for it."""
        workers = []
        for child in self._children(pid):
            if self.kinds[child] == "worker":
                workers.append(child)
            if self.kinds[child] in {"worker", "helper"}:
                workers += self.workers(child)
        return workers

    def _trainings_among(self, pids: Iterable[int]) -> list[int]:
        return [pid for pid in sorted(pids) if self.kinds[pid] == "training"]

    def _training(self, pid: int) -> Training:
        return Training(pid, self.processes[pid].command, tuple(self.workers(pid)))

    def _waits(self, pid: int) -> bool:
        stacks = self.processes[pid].stacks
        threads = stacks.threads if stacks else ()
        return any(self._marks.read(thread.frames).waits for thread in threads)

    def _children(self, pid: int) -> list[int]:
        return sorted(child for child, seen in self.processes.items() if seen.parent == pid)

    def _below(self, pid: int) -> set[int]:
        children = self._children(pid)
        return set(children).union(*map(self._below, children))

    def _topmost(self, pids: list[int]) -> list[int]:
        below = set[int]().union(*map(self._below, pids))
        return [pid for pid in pids if pid not in below]


class Finder:
    """Finds trainings, and their workers from then on.

    A process that was seen to load is not read again: one that starts now does not show as a
    worker.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._known: dict[int, SeenProcess] = {}

    def every_training(self) -> list[Training]:
        """Those of this user. Raises UsageError where there are none."""
        trainings = self._job(python_processes()).all_trainings()
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
        job = Job(job_around(pid), self._marks)
        if pid not in job.processes:
            raise UsageError(
                f"there is no process {pid}; expected the number of one that runs, as ps shows it"
            )
        top = job.top(pid)
        job = self._job(job.processes if top == pid else job_around(top))
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

    def workers_of(self, pid: int) -> list[int]:
        """The workers that training `pid` has now."""
        present = {pid, *descendants_of(pid)}
        known = {number: self._known[number] for number in present & self._known.keys()}
        job = self._job(known | seen(present - known.keys()))
        return job.workers(pid) if job.kinds.get(pid) == "training" else []

    def _job(self, processes: Mapping[int, SeenProcess]) -> Job:
        job = Job(processes, self._marks)
        workers = {pid for pid, kind in job.kinds.items() if kind == "worker"}
        parents = {processes[pid].parent for pid in workers} & processes.keys()
        self._known.update((pid, processes[pid]) for pid in workers | parents if pid is not None)
        return job
