"""The one reader of stacks, and which processes of a job train by them, and which load for them.

It has a table, which adapters declare, from functions to their meaning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import NamedTuple

import psutil

from loadeval.adapter import OWN
from loadeval.errors import UsageError
from loadeval.frames import COMPREHENSIONS
from loadeval.probes.looks import LookedAt, process_at
from loadeval.probes.processes import HELPERS
from loadeval.probes.stacks import GONE, NOT_PYTHON, Frame
from loadeval.words import shortened

LineOf = Callable[[str, int], str]
"""The text of a line of a file; "" where that cannot be read."""
LIBRARY = re.compile(r"-packages/|/lib/python3\.\d+/|^<(frozen|__array_function__)")
"""Files with such a path belong to Python or to an installed package."""
OURS = re.compile(r"/loadeval/(core|launch)/|/loadeval_adapters/")
"""And these to a loadeval that measures the training."""
PROCESS = "multiprocessing/process.py"
SPAWNED = "multiprocessing.spawn import spawn_main"


class Mark(NamedTuple):
    """What a thread does in a function; with `line`, where that is called.

    A training `waits` for a batch, `awaits` what workers have loaded, or `starts` an epoch. A
    worker `loads`, whatever that calls: it `asks` for what to load, `fetches`, `collates`, and
    `sends` the batch or waits until it can. A process that `launches` waits for others that it
    started. `file` is the end of a path, and `loader` what users call the loader.
    """

    file: str
    function: str
    activity: str
    line: str
    loader: str


class Variable(NamedTuple):
    """What the variable `name` of a function tells.

    A number: of the "worker", of the "batch" in the epoch, of the "sample", or of the worker that
    the batch is "owed by".
    """

    file: str
    function: str
    tells: str
    name: str


@dataclass(frozen=True)
class Reading:
    """What a stack shows of one thread at one moment.

    `activities` are those of the marks in it, from the outermost inwards. `loader` is that of the
    outermost one. `caller` is the line of the program that called it, and `inside` the frames that
    the innermost mark calls, innermost first.
    """

    activities: tuple[str, ...] = ()
    loader: str = ""
    caller: Frame | None = None
    inside: tuple[Frame, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether training waits for a batch, loads it itself, or begins an epoch."""
        return self.activities[:1] in {("waits",), ("starts",)}

    @property
    def loads_for_others(self) -> bool:
        """Whether the thread is a worker's, whatever it does."""
        return self.activities[:1] == ("loads",)

    @property
    def loads_itself(self) -> bool:
        """Whether training waits for a batch that it loads in the same thread."""
        is_loading = {"fetches", "collates"} & {*self.activities}
        return self.activities[:1] == ("waits",) and bool(is_loading)


@dataclass(frozen=True)
class Marks:
    """What adapters declare.

    `collectives` are the functions in which ranks wait for each other: a folder, and a pattern of
    names.
    """

    functions: tuple[Mark, ...]
    variables: tuple[Variable, ...]
    collectives: tuple[tuple[str, str], ...]

    def read(self, frames: Sequence[Frame], line_of: LineOf = lambda _file, _line: "") -> Reading:
        """What the frames of a thread show.

        A line is known by its text; where that cannot be read, by the function that it called.
        """
        frames = [frame for frame in own_frames(frames) if not OURS.search(frame.file)]
        seen: list[tuple[int, Mark]] = []
        for index in range(len(frames) - 1, -1, -1):
            frame, name = frames[index], plain_name(frames[index])
            called = plain_name(frames[index - 1]) if index else ""
            for mark in self.functions:
                if mark.function != name or not frame.file.endswith(mark.file):
                    continue
                text = mark.line and line_of(frame.file, frame.line or 0)
                if mark.line in text or mark.line.rstrip("(").rpartition(".")[2] == called:
                    seen.append((index, mark))
        if not seen:
            return Reading()
        (outermost, first), (innermost, _) = seen[0], seen[-1]
        callers = (frame for frame in frames[outermost + 1 :] if not LIBRARY.search(frame.file))
        return Reading(
            activities=tuple(mark.activity for _, mark in seen),
            loader=first.loader,
            caller=next(callers, None),
            inside=tuple(frames[:innermost]),
        )

    def number(self, frames: Iterable[Frame], tells: str) -> int | None:
        """The whole number that tells this, in the innermost function with such a variable."""
        for frame in frames:
            for variable in self.variables:
                is_there = variable.tells == tells and frame.file.endswith(variable.file)
                if is_there and plain_name(frame) == variable.function:
                    text = dict(frame.variables).get(variable.name, "")
                    return int(text) if re.fullmatch(r"-?\d+", text) else None
        return None

    def collective(self, frames: Iterable[Frame]) -> str | None:
        """The collective operation that a thread is in, if it is in one."""
        for frame in frames:
            for folder, pattern in self.collectives:
                if folder in frame.file and re.search(pattern, plain_name(frame)):
                    return plain_name(frame)
        return None


@cache
def declared_marks() -> Marks:
    """What the adapters that come with loadeval declare; no framework is imported."""
    declared = import_module(f"{OWN}.in_stacks")
    return Marks(
        tuple(Mark(*row) for row in declared.IN_STACKS),
        tuple(Variable(*row) for row in declared.VARIABLES),
        declared.COLLECTIVES,
    )


def own_frames(frames: Sequence[Frame]) -> Sequence[Frame]:
    """What a thread does in its own process: a forked one has its parent's frames below."""
    for place, frame in enumerate(frames):
        if frame.file.endswith(PROCESS) and plain_name(frame) == "_bootstrap":
            return frames[:place]
    return frames


def plain_name(frame: Frame) -> str:
    """The function's own name, without those around it: `Photos.__getitem__` is `__getitem__`.

    That of a comprehension is the function's that has it.
    """
    parts = [part for part in frame.function.split(".") if part != "<locals>"]
    while len(parts) > 1 and parts[-1] in COMPREHENSIONS:
        parts.pop()
    return parts[-1]


def place_of(frame: Frame) -> str:
    """A line as FOLDER/FILE:LINE FUNCTION."""
    return f"{'/'.join(frame.file.rsplit('/', 2)[-2:])}:{frame.line} {plain_name(frame)}"


class Training(NamedTuple):
    """A process that trains, and the processes that load for it."""

    pid: int
    command: tuple[str, ...]
    workers: tuple[int, ...]


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
    return trainings_among(there, pid, marks)


def trainings_among(there: Iterable[LookedAt], pid: int, marks: Marks) -> list[Training]:
    """The same, of these processes, by their numbers.

    Those that have workers, if any has; without those that another one has started.
    """
    processes = {each.pid: each for each in there}
    if pid not in processes:
        raise UsageError(f"there is no process {pid}; expected one of the training, as ps shows it")
    kinds = {
        each.pid: _kind(each, processes.get(each.parent), marks) for each in processes.values()
    }
    # Each, and those that it descends from, the nearest first; and the one that it works for.
    ancestries = {each: [each] for each in sorted(processes)}
    tops = dict[int, int]()
    for each, pids in ancestries.items():
        while (parent := processes[pids[-1]].parent) in processes:
            pids.append(parent)
        served = (other for other in pids if kinds[other] not in {"worker", "helper"})
        tops[each] = next(served, pids[-1])
    workers = [each for each in ancestries if kinds[each] == "worker"]
    found = [
        Training(
            each,
            processes[each].command or (),
            tuple(worker for worker in workers if tops[worker] == each),
        )
        for each, pids in ancestries.items()
        if kinds[each] == "training" and tops[pid] in pids
    ]
    found = [each for each in found if each.workers] or found
    trains = {each.pid for each in found}
    found = [each for each in found if trains.intersection(ancestries[each.pid]) == {each.pid}]
    if not found:
        command = shortened(" ".join(processes[tops[pid]].command or ("unknown",)), 80)
        raise UsageError(
            f"process {tops[pid]} ({command}) runs no Python program, and has started none that "
            "runs; expected a process of the training, as ps shows it"
        )
    return found


def _kind(process: LookedAt, parent: LookedAt | None, marks: Marks) -> str:
    """What it is for: "training", "worker", "launcher", "helper", or "other"."""
    command = " ".join(process.command or ())
    if process.stacks is None and (process.problem == NOT_PYTHON or not runs_python(command)):
        return "other"
    main = process.stacks.main if process.stacks else None
    frames = () if main is None else main.stacks[-1]
    reading = marks.read(frames)
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


def runs_python(command: str) -> bool:
    """Whether this command line is of a Python program, as far as it tells."""
    return command.partition(" ")[0].rpartition("/")[2].startswith("python")
