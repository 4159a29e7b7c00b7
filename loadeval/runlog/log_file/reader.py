"""Reading runs: a run log, whole or while it is written, a metrics file, DALI's JSON."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from loadeval.errors import RunLogError
from loadeval.runlog.log_file.bulk import decoded_lines
from loadeval.runlog.log_file.codec import Line, RunEnd, decode
from loadeval.runlog.log_file.dali import is_dali, run_from_dali
from loadeval.runlog.log_file.sequence import LineValidator
from loadeval.runlog.model import (
    Block,
    EpochEnd,
    Event,
    GpuIdle,
    Header,
    PaddedBatches,
    Prefetch,
    Readings,
    Run,
    Steps,
    Window,
    join_readings,
)
from loadeval.runlog.stages import CodeSamples, OperatorTimes, StageTimes, WorkerStart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LineKind = TypeVar("LineKind")

ASK_FOR_A_LOG = (
    "give a file that log_file= or save_metrics() wrote, and read it with the loadeval that did"
)
NO_END = "there is no end line: the run was still going on, or its process was killed"
DAMAGED = "the file is damaged there; cut off before this line, it can still be read"
LOG_START = b'{"type":'
"""A run log begins so; looking for it spares parsing all of one as something else."""
PART_BYTES = 1_000_000
"""So much of a log is decoded at a time, so that a long one is not held in memory whole."""


def read_run(path: str | os.PathLike[str]) -> Run:
    """The run in `path`: a run log, a metrics file, or the JSON of DALI's LoaderEvaluator.

    Raises RunLogError, with the line number where there is one, when it is none of them.
    """
    path = Path(path)
    content = _object_in(path)
    if content is None:
        return Assembly.of_file(path).run()
    if "run" not in content:
        return run_from_dali(content, path)
    lines, assembly = content["run"], Assembly(path, unit="item of 'run'")
    for line in lines if isinstance(lines, list) else [lines]:
        assembly.add(line)
    return assembly.run()


def _object_in(path: Path) -> dict[str, Any] | None:
    """What a metrics file holds; None for any other file, which may yet be a run log."""
    with opened(path) as file:
        if file.read(len(LOG_START)) == LOG_START:
            return None
        file.seek(0)
        try:
            content = json.load(file)
        except (ValueError, RecursionError):
            return None
    known = isinstance(content, dict) and ("run" in content or is_dali(content))
    return content if known else None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file at `path`, to read. Raises RunLogError when it cannot be opened or read."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise RunLogError(
            f"cannot read {path}: {error.strerror or error}; expected a file that "
            "log_file= or save_metrics() wrote; give the path of one"
        ) from error


def parts_of(file: Iterable[bytes], size_bytes: int | None = None) -> Iterator[list[bytes]]:
    """The lines of `file`, or those in its first `size_bytes`, some PART_BYTES at a time."""
    left = sys.maxsize if size_bytes is None else size_bytes
    texts: list[bytes] = []
    room = PART_BYTES
    for text in file:
        texts.append(text)
        room -= len(text)
        left -= len(text)
        if left <= 0:
            break
        if room <= 0:
            yield texts
            texts, room = [], PART_BYTES
    yield texts


class Assembly:
    """Lines, one after the other, become a Run. `unit` is what errors call a line."""

    def __init__(self, path: Path | None, unit: str = "line") -> None:
        self.path = path
        self.unit = unit
        self.header: Header | None = None
        self.lines: list[Line] = []
        self.notes: list[str] = []
        self.closed = False
        self._number = 0
        self._validator = LineValidator()

    @classmethod
    def of_file(
        cls, path: Path, size_bytes: int | None = None, without: Sequence[str] = ()
    ) -> Assembly:
        """The lines of the run log at `path`, or those in its first `size_bytes`.

        Whole lines of the types in `without` are left out, unchecked. A log whose process was
        killed has no end line, and may have half a last line: both are told in `Run.notes`.
        Anything else that is wrong raises RunLogError with its line number.
        """
        assembly = cls(path)
        with opened(path) as file:
            for texts in parts_of(file, size_bytes):
                assembly.add_texts(texts, without)
        return assembly

    def add_texts(self, texts: Sequence[bytes], without: Sequence[str] = ()) -> None:
        """Take the next lines; of those with batches and readings many become one."""
        beginnings = tuple(b'{"type":"%s",' % name.encode() for name in without)
        before = self._number
        numbered = [
            (number, text)
            for number, text in enumerate(texts, before)
            if not (text.startswith(beginnings) and text.endswith(b"\n"))
        ]
        decoded = decoded_lines([text for _, text in numbered])
        validator, taken = self._validator.copied(), len(self.lines)
        try:
            self._add_numbered(numbered, decoded)
        except RunLogError:  # one by one they tell which is wrong: a joined line holds later ones
            self._validator = validator
            del self.lines[taken:]
            self._add_numbered(numbered, {})
        self._number = before + len(texts)

    def _add_numbered(
        self, numbered: Sequence[tuple[int, bytes]], decoded: dict[int, Block | Readings | None]
    ) -> None:
        for place, (number, text) in enumerate(numbered):
            self._number = number
            line = decoded.get(place)
            if place not in decoded:
                self.add_text(text)
            elif line is not None:
                self._validator.check(line)
                self.take(line)

    def add_text(self, text: bytes) -> None:
        """Take the next line; only a last line, without its newline, may be cut off."""
        try:
            content = json.loads(text.decode())
        except (ValueError, RecursionError):
            self._number += 1
            cut_off = text.startswith(b"{") and not text.endswith(b"\n")
            if self.header is None or self.closed or not cut_off:
                raise self._error("is no line of a run log, which is JSON in UTF-8") from None
            self.notes.append(
                f"line {self._number} is cut off, as when a process is killed; it was left out"
            )
        else:
            self.add(content)

    def add(self, content: Any) -> None:
        """Take the next line, parsed. Raises RunLogError when it is wrong, or not in order."""
        self._number += 1
        try:
            line = decode(content)
            self._validator.check(line)
        except RunLogError as error:
            raise self._error(str(error)) from None
        self.take(line)

    def take(self, line: Line) -> None:
        """Take `line`, decoded and in order."""
        if isinstance(line, Header):
            self.header = line
        self.closed = self.closed or isinstance(line, RunEnd)
        self.lines.append(line)

    def run(self) -> Run:
        """The run that the lines make. Raises RunLogError when there was no line at all."""
        if self.header is None:
            raise self._error(
                "is missing, where the header of a run log was expected: nothing was written"
            )
        blocks, ends = self._all(Block), self._all(EpochEnd)
        over = {end.epoch for end in ends}
        # Between two epochs of a live run no line is missing.
        is_cut_short = not self.closed and (
            not over or any(block.epoch not in over for block in blocks)
        )
        return Run(
            header=self.header,
            steps=Steps.from_blocks(blocks, ends, self._all(GpuIdle)),
            ends=ends,
            prefetches=self._all(Prefetch),
            windows=self._all(Window),
            readings=join_readings(self._all(Readings)),
            events=self._all(Event),
            closed=self.closed,
            notes=(*self.notes, *([NO_END] if is_cut_short else [])),
            path=self.path,
            stages=StageTimes.joined(self._all(StageTimes)),
            worker_starts=self._all(WorkerStart),
            code=self._all(CodeSamples),
            operators=self._all(OperatorTimes),
            padding=self._all(PaddedBatches),
        )

    def _all(self, kind: type[LineKind]) -> tuple[LineKind, ...]:
        return tuple(line for line in self.lines if isinstance(line, kind))

    def _error(self, what: str) -> RunLogError:
        number = max(self._number, 1)
        advice = ASK_FOR_A_LOG if number == 1 else DAMAGED
        return RunLogError(f"{self.path}, {self.unit} {number} {what}; {advice}")


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
        self._assembly = Assembly(path)
        self._head = b""
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
        state = os.fstat(file.fileno())
        identity = (state.st_dev, state.st_ino)
        same = identity == self._file and state.st_size >= self._offset
        if not same or file.read(len(self._head)) != self._head:
            self._begin_anew()
        start = self._offset
        file.seek(start)
        texts = next(parts_of(file))
        if texts and not texts[-1].endswith(b"\n"):
            del texts[-1]
        self._file = None  # if a line is wrong, the next reading begins anew
        self._assembly.add_texts(texts)
        self._file = identity
        self._head = self._head or b"".join(texts[:1])
        size_bytes = sum(map(len, texts))
        self._offset += size_bytes
        lines, self._assembly.lines = self._assembly.lines, []
        return Appended(lines, start == 0, size_bytes >= PART_BYTES, state.st_mtime)

    def _begin_anew(self) -> None:
        self._assembly = Assembly(self.path)
        self._head = b""
        self._offset = 0
