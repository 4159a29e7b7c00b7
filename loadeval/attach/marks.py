"""The one reader of stacks: a table, which adapters declare, from functions to their meaning."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import NamedTuple

from loadeval.adapter import OWN
from loadeval.frames import COMPREHENSIONS
from loadeval.probes.stacks import Frame

LineOf = Callable[[str, int], str]
"""The text of a line of a file; "" where that cannot be read."""
LIBRARY = re.compile(r"-packages/|/lib/python3\.\d+/|^<(frozen|__array_function__)")
"""Files with such a path belong to Python or to an installed package."""
OURS = re.compile(r"/loadeval/(core|launch)/|/loadeval_adapters/")
"""And these to a loadeval that measures the training."""
PROCESS = "multiprocessing/process.py"


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


@dataclass(frozen=True, slots=True)
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
