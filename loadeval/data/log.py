"""The file of a run: a run log, written line by line and read whole or as it grows.

Metrics files, which hold a log, and the JSON that DALI's LoaderEvaluator saves are read too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

import msgspec
import numpy as np
import numpy.typing as npt

from loadeval.data import lines
from loadeval.data.columns import Columns
from loadeval.data.dali import run_of_dali
from loadeval.data.run import Run, completed, readings_of, stages_of_lines, steps_of, table_of
from loadeval.errors import RunLogError
from loadeval.words import counted

ASK_FOR_A_LOG = (
    "give a log that loadeval run or log_file= wrote, and read it with the loadeval that did"
)
NO_END = "there is no end line: the run was still going on, or its process was killed"
BACKWARDS = "whose times go back, which cannot be"
MOST_TOLD = 3
"""So many lines that were left out are told one by one."""
LOG_START = b'{"type":'
PART_BYTES = 1_000_000
"""So much of a log is decoded at a time, so that a long one is not held in memory as objects."""
LARGEST_METRICS_BYTES = 1_000_000_000
"""That is more than ten million batches; a sparse file that begins as one may have a terabyte."""
LONGEST_LINE_BYTES = 100_000_000
"""No line of a log is longer; without a bound, a file without line ends would fill memory."""

# Writing

STDERR = 2
LOST = "it was removed or cut off, or another program writes to it"
WHY = {errno.EBADF: "the program closed its file descriptor"}
# Without O_NONBLOCK a pipe waits for its reader.
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY


class RunLog:
    """Appends lines to a new file; each line is handed to the system whole and at once.

    Nothing is buffered in the process, so a killed process loses nothing that was written. Only
    the process that made it writes: a forked child's lines go nowhere. `written_bytes` are those
    of the lines that the system has taken. `is_lost` tells whether it was removed or cut off, which
    `append` finds; `is_overwritten` whether another run of this process has its place. Raises
    RunLogError when the file exists already, cannot be written, or cannot be read back, as a pipe.
    """

    def __init__(
        self, path: str | os.PathLike[str], header: lines.Header, *, overwrite: bool = False
    ) -> None:
        self.path = Path(path)
        self.is_lost = self.is_overwritten = False
        self.written_bytes = self._seen_bytes = 0
        self._process = os.getpid()
        self._file: int | None = None
        try:
            self._open(os.O_TRUNC if overwrite else os.O_EXCL)
            self.append(lines.encode(header))
        except FileExistsError:
            raise RunLogError(
                f"{self.path} exists already; give another log_file, or overwrite=True"
            ) from None
        except OSError as error:
            self.close()
            raise RunLogError(
                f"cannot write the run log {self.path}: {why(error)}; expected a "
                "path in a folder that exists and can be written, with space left; give log_file "
                "such a path"
            ) from error
        # A program may change to another folder.
        self.path = self.path.absolute()

    def _open(self, how: int) -> None:
        file = os.open(self.path, how | FLAGS, 0o666)
        if file <= STDERR:  # the program has closed that, and others still write there
            low, file = file, fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, STDERR + 1)
            os.close(low)
        state = os.fstat(file)
        self._file, self._identity = file, _identity(state)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        self._had_name = state.st_nlink > 0
        if earlier := _written.get(self._identity):
            earlier.is_overwritten = earlier.is_lost = True
        _written[self._identity] = self

    def append(self, text: bytes) -> None:
        """Append the text of whole lines.

        Raises OSError when the system does not take it, and where the file is not as it was left:
        more lines would damage it.
        """
        if os.getpid() != self._process:
            return
        if self.is_overwritten:
            raise OSError(errno.EEXIST, "another run has overwritten it")
        if self._file is None:
            raise OSError(errno.EBADF, "it is closed")
        state = os.fstat(self._file)
        if _identity(state) != self._identity:
            self._file = None  # it is the program's now
            raise OSError(errno.EBADF, WHY[errno.EBADF])
        # Some file systems tell neither names nor the size of what is being written.
        is_there = state.st_nlink > 0 or not self._had_name
        is_ours = self._seen_bytes <= state.st_size <= self.written_bytes
        self.is_lost = not (is_there and is_ours)
        if self.is_lost:
            raise OSError(errno.ENODATA, LOST)
        rest = memoryview(text)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self.written_bytes += len(text)
        self._seen_bytes = os.fstat(self._file).st_size

    def close(self) -> None:
        """Close the file, unless the program did: then the number is one of its own."""
        file, self._file = self._file, None
        with suppress(OSError):
            if file is not None and _identity(os.fstat(file)) == self._identity:
                os.close(file)


_written: WeakValueDictionary[tuple[int, int], RunLog] = WeakValueDictionary()
"""The logs of this process by their files: one that another log replaces must write no more."""


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino


def why(error: OSError) -> str:
    """Why a file cannot be written."""
    return WHY.get(error.errno or 0) or error.strerror or str(error)


# Reading


def read_run(path: str | os.PathLike[str]) -> Run:
    """The run in `path`: a run log, a metrics file, or the JSON of DALI's LoaderEvaluator.

    A line that is damaged, or tells what cannot be, is left out. `Run.notes` say so, and that a log
    has no end, as after a kill. Raises RunLogError when `path` is no such file.
    """
    path = Path(path)
    reader = LogReader(path)
    with opened(path) as file:
        start = file.read(len(LOG_START))
        if start == LOG_START:
            file.seek(0)
            while texts := next_part(file):
                reader.add(texts)
            return reader.run()
        # What is no JSON object, as an image of a disk, is not read into memory.
        more = LARGEST_METRICS_BYTES if start.lstrip().startswith(b"{") else 0
        text = start + file.read(more)
    try:
        metrics = msgspec.json.decode(text, type=_MetricsFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RunLogError(
            f"{path} is no run log: its first line is no header; {ASK_FOR_A_LOG}"
        ) from None
    if metrics.run is None:
        return run_of_dali(path, text)
    reader.add(bytes(line) + b"\n" for line in metrics.run)
    return reader.run()


class _MetricsFile(msgspec.Struct):
    run: list[msgspec.Raw] | None = None


def next_part(file: BinaryIO) -> list[bytes]:
    """The next lines, some PART_BYTES; a line that is too long ends the file."""
    texts: list[bytes] = []
    room = PART_BYTES
    while room > 0 and (text := file.readline(LONGEST_LINE_BYTES)):
        texts.append(text)
        room -= len(text)
        if len(text) == LONGEST_LINE_BYTES:
            file.seek(0, os.SEEK_END)
    return texts


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file at `path`, to read. Raises RunLogError when it cannot be opened or read."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise RunLogError(
            f"cannot read {path}: {error.strerror or error}; expected a log that loadeval run or "
            "log_file= wrote"
        ) from error


class LogReader:
    """Takes the lines of a log, one after the other, and makes a Run of them."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lines = defaultdict[type[lines.Line], list[Any]](list)
        self._steps = [steps_of([])]
        self._number = 0
        self._left_out: list[str] = []

    def add(self, texts: Iterable[bytes]) -> None:
        """Take the next lines. Raises RunLogError when the first is no header."""
        blocks: list[lines.Block] = []
        for text in texts:
            self._number += 1
            try:
                line = self._decoded(text)
            except RunLogError as error:
                if not self._lines[lines.Header]:
                    raise RunLogError(f"{self.path}, line 1 {error}; {ASK_FOR_A_LOG}") from None
                is_cut_off = not text.endswith(b"\n")
                what = "is cut off, as when a process is killed" if is_cut_off else str(error)
                self._left_out.append(f"line {self._number} {what}; it was left out")
                continue
            if isinstance(line, lines.Block):
                blocks.append(line)
            else:
                self._lines[type(line)].append(line)
        self._steps.append(steps_of(blocks))

    def _decoded(self, text: bytes) -> lines.Line:
        line = lines.decode(text)
        if isinstance(line, lines.Header) is bool(self._lines[lines.Header]):
            raise RunLogError("is out of order: one header was expected, before everything else")
        return line

    def run(self) -> Run:
        """The run that the lines make. Raises RunLogError when there was no line at all."""
        if not self._number:
            raise RunLogError(
                f"{self.path} is empty, where the header of a run log was expected; {ASK_FOR_A_LOG}"
            )
        by_type = self._lines
        steps = Columns.concat(self._steps)
        self._steps = [steps]  # the parts would take as much memory once more
        notes = self._left_out[:MOST_TOLD]
        if more := self._left_out[MOST_TOLD:]:
            notes.append(f"left out {counted(len(more), 'more line')}")
        for end in by_type[lines.RunEnd]:
            if end.batches != len(steps) and not notes:
                had = counted(end.batches, "batch", "batches")
                notes.append(f"the run had {had}, of which the log has {len(steps):,}")
        if (np.diff(steps.epoch) < 0).any():
            steps = steps.take(np.argsort(steps.epoch, kind="stable"))
        backwards = _back_in_time(steps)
        if backwards.any():
            count = counted(int(backwards.sum()), "batch", "batches")
            notes.append(f"left out {count} {BACKWARDS}")
            steps = steps.take(~backwards)
        stages, transforms, sizes = stages_of_lines(by_type[lines.StageTimes])
        readings, missing = readings_of(by_type[lines.Readings])
        for key, table in readings.items():
            earlier = np.diff(table.time_ns, prepend=0) < 0
            if earlier.any():
                count = counted(int(earlier.sum()), "reading")
                notes.append(f"left out {count} of {key[1] or key[0]} {BACKWARDS}")
                readings[key] = table.take(~earlier)
        # Between two epochs of a live run no line is missing.
        is_closed, ends = bool(by_type[lines.RunEnd]), tuple(by_type[lines.EpochEnd])
        over = {end.epoch for end in ends}
        if not is_closed and (not ends or set(np.unique(steps.epoch).tolist()) - over):
            notes.append(NO_END)
        return Run(
            header=by_type[lines.Header][0],
            steps=completed(steps, ends, by_type[lines.GpuIdle]),
            ends=ends,
            events=tuple(by_type[lines.Event]),
            prefetches=tuple(by_type[lines.Prefetch]),
            windows=tuple(by_type[lines.Window]),
            readings=readings,
            missing=missing,
            stages=stages,
            transforms=transforms,
            sizes=sizes,
            worker_starts=tuple(by_type[lines.WorkerStart]),
            code=tuple(by_type[lines.CodeSamples]),
            operators=tuple(by_type[lines.OperatorTimes]),
            padding=table_of(lines.Padding, by_type[lines.Padding]),
            closed=is_closed,
            notes=tuple(notes),
            path=self.path,
        )


def _back_in_time(steps: Columns) -> npt.NDArray[np.bool_]:
    """Which of the batches, in order of epochs, were asked for before an earlier one had come."""
    came_ns = steps.request_ns + steps.wait_ns
    backwards = np.zeros(len(steps), dtype=np.bool_)
    backwards[1:] = (steps.request_ns[1:] < came_ns[:-1]) & (np.diff(steps.epoch) == 0)
    for epoch in np.unique(steps.epoch[backwards]):
        (rows,) = np.nonzero(steps.epoch == epoch)
        latest_ns = np.maximum.accumulate(came_ns[rows])
        backwards[rows[1:]] = steps.request_ns[rows[1:]] < latest_ns[:-1]
    return backwards
