"""What a thread does, as its stack shows: adapters declare the functions that tell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loadeval.probes.stacks import Frame

Sources = dict[tuple[str, int], str]
"""The text of lines of files."""
LIBRARY = re.compile(r"-packages/|/lib/python3\.\d+/|^<(frozen|__array_function__)")
"""Files with such a path belong to Python or to an installed package."""
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


class Activity(Enum):
    """What a thread does in a function that an adapter declares."""

    WAITS = "waits"
    """The training loop asks for a batch."""
    AWAITS = "awaits"
    """It waits for what workers have loaded."""
    STARTS = "starts"
    """The training loop begins an epoch, which may start workers."""
    LOADS = "loads"
    """A thread or process does nothing but load, in whatever this calls."""
    ASKS = "asks"
    """It waits for what to load next."""
    FETCHES = "fetches"
    COLLATES = "collates"
    SENDS = "sends"
    """It hands a batch over, or waits until it can."""
    LAUNCHES = "launches"
    """The process waits for others that it has started."""


class Told(Enum):
    """What a variable tells of a function that an adapter declares."""

    WORKER = "worker"
    """The number of the worker whose loop the function is."""
    BATCH = "batch"
    """The number of the batch that it loads, from 0 in the epoch."""
    SAMPLE = "sample"
    """The sample that it reads: its index, or its place in the worker's own epoch."""
    ALL_READ = "all read"
    """Once it is there, all samples of the batch are read."""
    OWED_BY = "owed by"
    """The number of the worker that owes the batch which training waits for."""


@dataclass(frozen=True, slots=True)
class InFunction:
    """Something of a function, which has the end of its file's path and its name."""

    file: str
    function: str

    def is_function_of(self, frame: Frame) -> bool:
        """Whether `frame` is in this function."""
        return frame.file.endswith(self.file) and plain_name(frame) == self.function


@dataclass(frozen=True, slots=True)
class Mark(InFunction):
    """What a thread does in a function; with `line`, where that is called.

    `loader` is what users call the loader that it belongs to.
    """

    activity: Activity
    line: str
    loader: str

    @property
    def called(self) -> str:
        """The function that its line calls: `get` of `queue.get(`."""
        return self.line.rstrip("(").rpartition(".")[2]

    def is_at(self, frame: Frame, sources: Mapping[tuple[str, int], str]) -> bool:
        """Whether `frame` is in this function, and at this line."""
        return self.is_function_of(frame) and (
            not self.line or self.line in sources.get((frame.file, frame.line or 0), "")
        )


@dataclass(frozen=True, slots=True)
class Variable(InFunction):
    """What the variable `name` of a function tells."""

    tells: Told
    name: str


@dataclass(frozen=True, slots=True)
class Marks:
    """What adapters declare.

    `collectives` are the functions in which ranks wait for each other: a folder of Python files, or
    "" for compiled code, and a pattern of names.
    """

    functions: tuple[Mark, ...] = ()
    variables: tuple[Variable, ...] = ()
    collectives: tuple[tuple[str, str], ...] = ()

    def show(self, frames: Iterable[Frame], *activities: Activity) -> bool:
        """Whether a thread with these frames is in a function in which it does one of those."""
        marks = [mark for mark in self.functions if mark.activity in activities]
        return any(mark.is_function_of(frame) for frame in frames for mark in marks)

    def activities_of_call(self, frame: Frame, called: str) -> set[Activity]:
        """What a thread does that has called the function `called` in this frame."""
        return {
            mark.activity
            for mark in self.functions
            if mark.called == called and mark.is_function_of(frame)
        }

    def variable(self, frame: Frame, tells: Told) -> str | None:
        """The name of the variable of the frame's function that tells this."""
        names = (
            variable.name
            for variable in self.variables
            if variable.tells is tells and variable.is_function_of(frame)
        )
        return next(names, None)

    def number(self, frames: Iterable[Frame], tells: Told) -> int | None:
        """The whole number that tells this, in the innermost function with such a variable."""
        for frame in frames:
            name = self.variable(frame, tells)
            if name is not None:
                text = dict(frame.variables).get(name, "")
                return int(text) if re.fullmatch(r"-?\d+", text) else None
        return None


def marks_of(
    functions: Iterable[tuple[str, ...]],
    variables: Iterable[tuple[str, ...]] = (),
    collectives: Iterable[tuple[str, ...]] = (),
) -> Marks:
    """What adapters declare, as rows of the fields of Mark, of Variable, and of patterns."""
    return Marks(
        tuple(
            Mark(file, function, Activity(activity), line, loader)
            for file, function, activity, line, loader in functions
        ),
        tuple(
            Variable(file, function, Told(tells), name) for file, function, tells, name in variables
        ),
        tuple((folder, pattern) for folder, pattern in collectives),
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """What a stack shows of one thread at one moment.

    `activities` are those of the marks in it, from the outermost inwards. `loader` is that of the
    outermost one. `caller` is the line of the program that called it, and `inside` the frames that
    the innermost mark calls, innermost first.
    """

    activities: tuple[Activity, ...] = ()
    loader: str = ""
    caller: Frame | None = None
    inside: tuple[Frame, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether the thread waits for a batch, or loads it itself."""
        return self.activities[:1] == (Activity.WAITS,)

    @property
    def starts(self) -> bool:
        """Whether it begins an epoch."""
        return self.activities[:1] == (Activity.STARTS,)

    @property
    def loads_for_others(self) -> bool:
        """Whether it is a worker's, whatever it does."""
        return self.activities[:1] == (Activity.LOADS,)

    @property
    def loads_itself(self) -> bool:
        """Whether training waits for a batch that it loads in the same thread."""
        return self.waits and bool({Activity.FETCHES, Activity.COLLATES} & set(self.activities))

    @property
    def stage(self) -> Activity | None:
        """What a worker, or a loader in the training process, does; None where it does not load.

        LOADS where no mark tells what of loading it is.
        """
        innermost = self.activities[-1] if self.activities else None
        training = (Activity.WAITS, Activity.AWAITS, Activity.STARTS)
        return None if innermost in training else innermost


def read_stack(
    frames: Sequence[Frame], marks: Marks, sources: Mapping[tuple[str, int], str]
) -> Reading:
    """What the frames of a thread show; `sources` has lines of the files that marks are in.

    The stack of a worker that was forked begins with that of the training process, as it was then.
    """
    seen: list[tuple[int, Mark]] = []
    by_function = _by_function(marks.functions)
    for index in range(len(frames) - 1, -1, -1):
        candidates = by_function.get(plain_name(frames[index]), ())
        here = [mark for mark in candidates if mark.is_at(frames[index], sources)]
        if any(mark.activity is Activity.LOADS for mark in here):
            seen.clear()
        seen += ((index, mark) for mark in here)
    if not seen:
        return Reading()
    (outermost, first), (innermost, _) = seen[0], seen[-1]
    callers = (frame for frame in frames[outermost + 1 :] if not is_library(frame))
    return Reading(
        activities=tuple(mark.activity for _, mark in seen),
        loader=first.loader,
        caller=next(callers, None),
        inside=tuple(frames[:innermost]),
    )


@lru_cache(maxsize=1)
def _by_function(marks: tuple[Mark, ...]) -> dict[str, list[Mark]]:
    functions: dict[str, list[Mark]] = {}
    for mark in marks:
        functions.setdefault(mark.function, []).append(mark)
    return functions


def lines_to_know(stacks: Iterable[Sequence[Frame]], marks: Marks) -> set[tuple[str, int]]:
    """The lines whose text `read_stack` needs for these stacks: file and number."""
    by_line = [mark for mark in marks.functions if mark.line]
    return {
        (frame.file, frame.line)
        for stack in stacks
        for frame in stack
        if frame.line is not None and any(mark.is_function_of(frame) for mark in by_line)
    }


def plain_name(frame: Frame) -> str:
    """The function's own name, without those around it: `Photos.__getitem__` is `__getitem__`.

    That of a comprehension is the function's that has it.
    """
    name = frame.function.rpartition(".")[2]
    if not name.startswith("<"):
        return name
    parts = [part for part in frame.function.split(".") if part != "<locals>"]
    while len(parts) > 1 and parts[-1] in COMPREHENSIONS:
        parts.pop()
    return parts[-1]


def is_library(frame: Frame) -> bool:
    """Whether the function is Python's, a package's, or compiled."""
    return frame.native or LIBRARY.search(frame.file) is not None


def place_of(frame: Frame) -> str:
    """A line as FOLDER/FILE:LINE FUNCTION."""
    file = "/".join(PurePosixPath(frame.file).parts[-2:])
    line = "" if frame.line is None else f":{frame.line}"
    return f"{file}{line} {plain_name(frame)}"
