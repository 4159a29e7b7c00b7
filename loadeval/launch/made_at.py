"""Which line of the program made a loader, noted when `loadeval run` sees its constructor called.

Only frames are read, and nothing of the program is called: a dataset may have a hash of its own.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from loadeval.runtime.adapter import PLACES, made_at

if TYPE_CHECKING:
    from collections.abc import Container
    from types import FrameType

PYTHONS_OWN = os.path.dirname(os.__file__)  # noqa: PTH120 - frames have such names, and pathlib takes 5 ms
OWN = {"loadeval", "loadeval_adapters"}


def note_made(loader: Any, caller: FrameType | None, rebuilders: Container[str]) -> None:
    """Note that `loader` was made in the line that `caller`, or the program below it, is at.

    `rebuilders` are packages that make loaders again which the program has made. Such a loader
    has the line of the one before it, of the same dataset. Nothing is raised.
    """
    with suppress(Exception):
        dataset = vars(loader).get("dataset")
        place, is_rebuilt = _line_of_program(caller, rebuilders)
        if is_rebuilt:
            place = made_at(dataset)
        if place is not None and made_at(loader) is None:  # a subclass may call this one
            _note(loader, place)
            _note(dataset, place)


def is_library(path: str) -> bool:
    """Whether a file belongs to Python or a package, or is none."""
    return path.startswith(("<", PYTHONS_OWN)) or "-packages" in path


def _note(thing: Any, place: str) -> None:
    number = id(thing)
    with suppress(TypeError):  # a list takes no weak reference
        PLACES[number] = weakref.ref(thing, lambda _: PLACES.pop(number, None)), place


def _line_of_program(
    frame: FrameType | None, rebuilders: Container[str]
) -> tuple[str | None, bool]:
    """The innermost line that is no library's, and whether a rebuilder is further in."""
    is_rebuilt = False
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        path = frame.f_code.co_filename
        is_rebuilt = is_rebuilt or package in rebuilders
        if package not in OWN and not is_library(path):
            return f"{_from_here(path)}:{frame.f_lineno}", is_rebuilt
        frame = frame.f_back
    return None, is_rebuilt


def _from_here(path: str) -> str:
    """`path` from the working directory, where it is below that."""
    with suppress(OSError):  # it may be gone
        return path.removeprefix(f"{os.getcwd()}{os.sep}")  # noqa: PTH109 - pathlib takes 5 ms
    return path
