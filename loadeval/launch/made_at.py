"""Where a program made a DataLoader: the file and line of its own code, not of a framework's."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

MADE_AT = "_loadeval_made_at"
"""A loader's attribute: where it was made, a file and a line."""
INSTALLED = tuple(
    os.path.join(sysconfig.get_path(name), "")  # noqa: PTH118 - pathlib takes 5 ms
    for name in ("purelib", "platlib", "stdlib", "platstdlib")
)
"""The folders of packages and of Python, whose code is not the user's."""
OURS = ("loadeval", "loadeval_adapters")


class Place(NamedTuple):
    """A line of a file."""

    file: str
    line: int


def noting(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces a loader's `__init__`, to note where it was called."""

    @functools.wraps(original)
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807 - it replaces that method
        original(self, *arguments, **options)
        place = _users(sys._getframe(1))  # noqa: SLF001 - nothing else shows the caller
        if place is not None:
            vars(self).setdefault(MADE_AT, place)

    return __init__


def made_at(loader: Any) -> Place | None:
    """Where the user's code made `loader`; None if that is not known."""
    return getattr(loader, MADE_AT, None)


def _users(frame: FrameType | None) -> Place | None:
    """The innermost frame of the user's own code."""
    while frame is not None:
        file = frame.f_code.co_filename
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if not file.startswith((*INSTALLED, "<")) and package not in OURS:
            return Place(file, frame.f_lineno)
        frame = frame.f_back
    return None
