"""A run log on disk: written line by line while the run goes on, read back whole."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from loadeval.errors import RunLogError
from loadeval.runlog.lines import Line, RunEnd, decode, encode, to_text
from loadeval.runlog.model import Block, EpochEnd, Event, Header, Pull, Run, Window
from loadeval.runlog.order import Order
from loadeval.runlog.readings import Readings, Starvation, joined
from loadeval.runlog.steps import Steps
from loadeval.runlog.tally import Tally, said_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

ASK_FOR_A_LOG = (
    "give a file that log_file= or save_metrics() wrote, and read it with the loadeval that did"
)
NO_END = "there is no end line: the run was still going on, or its process was killed"
DAMAGED = "the file is damaged there; cut off before this line, it can still be read"


class RunLog:
    """Appends lines to a new file; each line is handed to the system whole and at once.

    Nothing is buffered in the process, so a killed process loses nothing that was written.
    `broken` is for the writer's owner to set, once the system takes no more. `written_bytes` is
    what it has taken.
    Raises RunLogError when the file exists already or cannot be written.
    """

    def __init__(
        self, path: str | os.PathLike[str], header: Header, *, overwrite: bool = False
    ) -> None:
        self.path = Path(path)
        self.written_bytes = 0
        self.broken = False
        try:
            self._file = self.path.open("wb" if overwrite else "xb", buffering=0)
            self._begin(header)
        except FileExistsError:
            what = "is a folder" if self.path.is_dir() else "already exists"
            raise RunLogError(
                f"{self.path} {what}, and a measurement is not overwritten unasked; "
                "give log_file another name, or pass overwrite=True to replace a file"
            ) from None
        except OSError as error:
            raise RunLogError(
                f"cannot write the run log {self.path}: {error.strerror or error}; expected a "
                "path in a folder that exists and can be written, with space left; give log_file "
                "such a path"
            ) from error

    def _begin(self, header: Header) -> None:
        try:
            self.write(header)
        except BaseException:
            self.close()
            raise

    def write(self, line: Line) -> None:
        """Append `line`. Raises OSError when the system does not take it."""
        rest = to_text(encode(line)).encode()
        while rest:
            taken = self._file.write(rest)
            self.written_bytes += taken
            rest = rest[taken:]

    def end(self, batches: int) -> None:
        """Append the line that says the run ended by itself, and close the file."""
        with self._file:
            self.write(RunEnd(batches))

    def close(self) -> None:
        """Close the file without saying that the run ended: it did not, or not here."""
        self._file.close()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file at `path`, to read. Raises RunLogError when it cannot be opened or read."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise RunLogError(
            f"cannot read {path}: {error.strerror or error}; expected a file that log_file= or "
            "save_metrics() wrote; give the path of one"
        ) from error


class Assembly:
    """Lines, one after the other, become a Run. `unit` is what errors call a line."""

    def __init__(self, path: Path | None, unit: str = "line") -> None:
        self.path = path
        self.unit = unit
        self.header: Header | None = None
        self.blocks: list[Block] = []
        self.tallies: list[Tally] = []
        self.ends: list[EpochEnd] = []
        self.pulls: list[Pull] = []
        self.windows: list[Window] = []
        self.readings: list[Readings] = []
        self.starvations: list[Starvation] = []
        self.events: list[Event] = []
        self.notes: list[str] = []
        self.closed = False
        self._order = Order()

    @classmethod
    def of_file(cls, path: Path, size_bytes: int | None = None) -> Assembly:
        """The lines of the run log at `path`, or those in its first `size_bytes`.

        A log whose process was killed has no end line, and may have half a last line: both
        are told in `Run.notes`. Anything else that is wrong raises RunLogError with its line
        number.
        """
        assembly = cls(path)
        with opened(path) as file:
            for number, text in enumerate(file, start=1):
                assembly.add_text(number, text)
                if size_bytes is not None:
                    size_bytes -= len(text)
                    if size_bytes <= 0:
                        break
        return assembly

    def add_text(self, number: int, text: bytes) -> None:
        """Take line `number`; only a last line, without its newline, may be cut off."""
        try:
            fields = json.loads(text.decode())
        except (ValueError, RecursionError):
            cut_off = text.startswith(b"{") and not text.endswith(b"\n")
            if self.header is None or self.closed or not cut_off:
                raise self._error(
                    number, "is not JSON in UTF-8, where a line of a run log was expected"
                ) from None
            self.notes.append(
                f"line {number} is cut off, as when a process is killed; it was left out"
            )
        else:
            self.add(number, fields)

    def add(self, number: int, fields: Any) -> None:
        """Take line `number`, parsed. Raises RunLogError when it is wrong, or not in order."""
        try:
            line = decode(fields)
            self._order.check(line)
        except RunLogError as error:
            raise self._error(number, str(error)) from None
        self.take(line)

    def take(self, line: Line) -> None:
        """Take `line`, decoded and in order."""
        if isinstance(line, Header):
            self.header = line
        elif isinstance(line, Block):
            self.blocks.append(line)
        elif isinstance(line, Tally):
            self.tallies.append(line)
        elif isinstance(line, EpochEnd):
            self.ends.append(line)
        elif isinstance(line, Pull):
            self.pulls.append(line)
        elif isinstance(line, Window):
            self.windows.append(line)
        elif isinstance(line, Readings):
            self.readings.append(line)
        elif isinstance(line, Starvation):
            self.starvations.append(line)
        elif isinstance(line, Event):
            self.events.append(line)
        else:
            self.closed = True

    def run(self) -> Run:
        """The run that the lines make. Raises RunLogError when there was no line at all."""
        if self.header is None:
            raise self._error(
                1, "is missing, where the header of a run log was expected: nothing was written"
            )
        every = self.header.every
        thinned = [said_of(every)] if every > 1 else []
        stopped = [NO_END] if self._stopped_short() else []
        return Run(
            header=self.header,
            steps=Steps.from_blocks(self.blocks, self.ends, self.starvations),
            ends=tuple(self.ends),
            pulls=tuple(self.pulls),
            windows=tuple(self.windows),
            readings=joined(self.readings),
            events=tuple(self.events),
            closed=self.closed,
            notes=(*thinned, *self.notes, *stopped),
            path=self.path,
            tallies=tuple(self.tallies),
        )

    def _stopped_short(self) -> bool:
        """Whether the last lines are missing; between two epochs of a live run none is."""
        over = {end.epoch for end in self.ends}
        return not self.closed and (not over or any(b.epoch not in over for b in self.blocks))

    def _error(self, number: int, what: str) -> RunLogError:
        advice = ASK_FOR_A_LOG if number == 1 else DAMAGED
        return RunLogError(f"{self.path}, {self.unit} {number} {what}; {advice}")
