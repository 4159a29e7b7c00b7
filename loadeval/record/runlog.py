"""A run log on disk: written line by line while the run goes on, read back whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from loadeval.errors import RunLogError
from loadeval.record.lines import Line, decode, encode, to_text
from loadeval.record.model import Block, EpochEnd, Event, Header, Run, Steps


class RunLog:
    """Appends lines to a new file; each line is handed to the system whole and at once.

    Nothing is buffered in the process, so a killed process loses nothing that was written.
    `broken` is for the writer's owner to set, once the system takes no more.
    Raises RunLogError when the file exists already or its folder cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], header: Header, *, overwrite: bool = False):
        self.path = Path(path)
        try:
            self._file = self.path.open("wb" if overwrite else "xb", buffering=0)
        except FileExistsError:
            raise RunLogError(
                f"{self.path} already exists, and a measurement is not overwritten unasked; "
                "give log_file another name, or pass overwrite=True"
            ) from None
        except OSError as error:
            raise RunLogError(
                f"cannot write the run log {self.path}: {error.strerror or error}; "
                "give log_file a path in a folder that exists and can be written"
            ) from error
        self.broken = False
        self.write(header)

    def write(self, line: Line) -> None:
        """Append `line`. Raises OSError when the system does not take it."""
        self._append(encode(line))

    def end(self, batches: int) -> None:
        """Append the line that says the run ended by itself, and close the file."""
        with self._file:
            self._append({"type": "end", "batches": batches})

    def _append(self, fields: dict[str, Any]) -> None:
        rest = to_text(fields).encode()
        while rest:
            rest = rest[self._file.write(rest) :]


def read_run_log(path: str | os.PathLike[str]) -> Run:
    """The run in `path`.

    A log whose process was killed has no end line, and may have half a last line: both are
    told in `Run.notes`. Anything else that is wrong raises RunLogError with its line number.
    """
    return Assembly.of_file(Path(path)).run()


class Assembly:
    """Lines, one after the other, become a Run."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.header: Header | None = None
        self.blocks: list[Block] = []
        self.ends: list[EpochEnd] = []
        self.events: list[Event] = []
        self.notes: list[str] = []
        self.closed = False

    @classmethod
    def of_file(cls, path: Path) -> Assembly:
        """The lines of the run log at `path`."""
        assembly = cls(path)
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                assembly.add_text(number, text)
        return assembly

    def add_text(self, number: int, text: bytes) -> None:
        """Take line `number`; only a last line, without its newline, may be cut off."""
        try:
            fields = json.loads(text)
        except ValueError:
            if self.header is not None and not text.endswith(b"\n"):
                self.notes.append(
                    f"line {number} is cut off, as when a process is killed; it was left out"
                )
                return
            raise self._error(
                number,
                "is not JSON, where a line of a run log was expected; "
                "is this a file that log_file= wrote?",
            ) from None
        self.add(number, fields)

    def add(self, number: int, fields: Any) -> None:
        """Take line `number`, parsed."""
        if not isinstance(fields, dict):
            raise self._error(number, "is not a JSON object, where a line of a run log is one")
        if fields.get("type") == "end":
            self._end(number, fields)
            return
        try:
            line = decode(fields)
        except RunLogError as error:
            raise self._error(number, str(error)) from None
        if isinstance(line, Header) is (self.header is not None):
            raise self._error(
                number, "is out of order: a run log has one header, and it is the first line"
            )
        self.take(line)

    def take(self, line: Line) -> None:
        """Take `line`, decoded and in order."""
        if isinstance(line, Header):
            self.header = line
        elif isinstance(line, Block):
            self.blocks.append(line)
        elif isinstance(line, EpochEnd):
            self.ends.append(line)
        else:
            self.events.append(line)

    def run(self) -> Run:
        """The run that the lines make. Raises RunLogError when there was no line at all."""
        if self.header is None:
            raise self._error(
                1,
                "is missing, where the header of a run log was expected: the file is empty; "
                "was the process killed before it began?",
            )
        if not self.closed:
            self.notes.append(
                "the log has no end line: the run is still going on, or its process was killed"
            )
        return Run(
            header=self.header,
            steps=Steps.from_blocks(self.blocks, self.ends),
            ends=tuple(self.ends),
            events=tuple(self.events),
            closed=self.closed,
            notes=tuple(self.notes),
            path=self.path,
        )

    def _end(self, number: int, fields: dict[str, Any]) -> None:
        batches = sum(len(block) for block in self.blocks)
        if fields.get("batches") != batches:
            raise self._error(
                number,
                f"says that the run had {fields.get('batches')!r} batches, and the lines before "
                f"it hold {batches}; lines were lost or added",
            )
        self.closed = True

    def _error(self, number: int, what: str) -> RunLogError:
        where = f"{self.path}, line {number}" if self.path else f"line {number}"
        return RunLogError(f"{where} {what}")
