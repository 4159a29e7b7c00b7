"""Reading a run log while it is written: each time what was appended since."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.errors import RunLogError
from loadeval.runlog.reader import Assembly, opened

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from loadeval.runlog.lines import Line

MOST_BYTES = 4_000_000
"""After so many bytes one reading ends, so that a long log is not held in memory whole."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The lines that came since the last reading.

    `anew` tells that they are the first ones, of a log that was not read before, or that has
    another one's place; `more` that there are more already. `written_s` is when the file was last
    written to, in seconds since the epoch.
    """

    lines: list[Line]
    anew: bool
    more: bool
    written_s: float


class Follower:
    """Reads the log at `path` bit by bit. An incomplete last line waits for its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: tuple[int, int] | None = None
        self._lines = _Lines(path)
        self._head = b""
        self._number = 0
        self._offset = 0

    def read(self) -> Appended | None:
        """What was appended since the last time; None when there is no such file.

        A log that was cut off, or replaced by another one, is read from its beginning. Raises
        RunLogError, with the number of the line, when one is wrong, or the file cannot be read.
        """
        try:
            with opened(self.path) as file:
                return self._appended(file)
        except RunLogError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            self._begin_anew()
            return None

    def _appended(self, file: BinaryIO) -> Appended:
        found = os.fstat(file.fileno())
        identity = (found.st_dev, found.st_ino)
        same = identity == self._file and found.st_size >= self._offset
        if not same or file.read(len(self._head)) != self._head:
            self._begin_anew()
        self._file = identity
        anew, start = self._offset == 0, self._offset
        file.seek(start)
        for text in file:
            if not text.endswith(b"\n"):
                break
            self._take(text)
            if self._offset - start > MOST_BYTES:
                break
        more = self._offset - start > MOST_BYTES
        lines, self._lines.taken = self._lines.taken, []
        return Appended(lines, anew, more, found.st_mtime)

    def _take(self, text: bytes) -> None:
        self._number += 1
        self._lines.add_text(self._number, text)
        self._head = self._head or text
        self._offset += len(text)

    def _begin_anew(self) -> None:
        self._lines = _Lines(self.path)
        self._head = b""
        self._number = 0
        self._offset = 0


class _Lines(Assembly):
    """Checks lines as when a log is read whole, and hands them on instead of keeping them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.taken: list[Line] = []

    def take(self, line: Line) -> None:
        """See Assembly."""
        self.taken.append(line)
