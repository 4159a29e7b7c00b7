"""What a loader does not take of its settings: noted for the command, and shown in one line."""

from __future__ import annotations

import sys
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from loadeval.errors import UsageError
from loadeval.launch.loadeval_inject import REFUSED_MARK
from loadeval.words import printable

SHOWN = "shown"
"""The last line of the mark once a program has ended with this error, and has said so."""


def note_refused(folder: Path, error: UsageError, *, in_one_line: bool) -> None:
    """Write down what a loader does not take.

    With `in_one_line`, a program that ends with `error` says no more than that, unless it has a
    sys.excepthook of its own.
    """
    mark = folder / REFUSED_MARK
    with suppress(OSError):
        mark.write_text(f"{error}\n", encoding="utf-8")
    if in_one_line and (
        sys.excepthook is sys.__excepthook__ or isinstance(sys.excepthook, OneLine)
    ):
        sys.excepthook = OneLine(error, mark)


def is_shown(folder: Path) -> bool:
    """Whether a program has said what its loader does not take."""
    with suppress(OSError):
        lines = (folder / REFUSED_MARK).read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1:] == [SHOWN]
    return False


class OneLine:
    """A sys.excepthook that shows one error as the command shows its own, and leaves the others."""

    def __init__(self, error: UsageError, mark: Path) -> None:
        self._error, self._mark = weakref.ref(error), mark

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Called by Python with what ends the program."""
        if error is not self._error():
            sys.__excepthook__(kind, error, trace)
            return
        print(f"Error: {printable(error)}", file=sys.stderr)  # noqa: T201 - the user must see it
        with suppress(OSError), self._mark.open("a", encoding="utf-8") as mark:
            mark.write(f"{SHOWN}\n")
