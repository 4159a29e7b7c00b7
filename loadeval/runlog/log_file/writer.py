"""Writing runs: the run log, line by line, and the metrics file, whose keys are DALI's."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from loadeval.errors import RunLogError
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.log_file.codec import Line, RunEnd, encode, to_text
from loadeval.runlog.model import SECOND_NS, Header, Run

STDERR = 2
REMOVED = "it was removed"
CHANGED = "it was cut off, or another program writes to it"
WHY = {
    errno.ENXIO: "it is a pipe that nobody reads",
    errno.EBADF: "the program closed its file descriptor",
}
# Without O_NONBLOCK a pipe waits for its reader.
FLAGS = sum(getattr(os, name, 0) for name in ("O_CREAT", "O_NONBLOCK", "O_NOCTTY", "O_BINARY"))


class RunLog:
    """Appends lines to a new file; each line is handed to the system whole and at once.

    Nothing is buffered in the process, so a killed process loses nothing that was written. Only
    the process that made it writes: a forked child's lines go nowhere. `written_bytes` are those
    of the lines that the system has taken. `is_file` tells whether it
    can be read back, which a pipe cannot; `is_lost` whether it was removed or cut off, which
    `append` finds; `is_overwritten` whether another run of this process has its place.
    Raises RunLogError when the file exists already or cannot be written.
    """

    def __init__(
        self, path: str | os.PathLike[str], header: Header, *, overwrite: bool = False
    ) -> None:
        self.path = Path(path)
        self.is_lost = self.is_overwritten = False
        self.written_bytes = self._taken_bytes = self._seen_bytes = 0
        self._process = os.getpid()
        self._file: int | None = None
        try:
            self._open(os.O_TRUNC if overwrite else os.O_EXCL)
            self.write(header)
        except FileExistsError:
            what = "is a folder" if self.path.is_dir() else "already exists"
            raise RunLogError(
                f"{self.path} {what}, and a measurement is not overwritten unasked; "
                "give log_file another name, or pass overwrite=True to replace a file"
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
        file = os.open(self.path, os.O_WRONLY | how | FLAGS, 0o666)
        low: list[int] = []
        while file <= STDERR:  # the program has closed these, and others still write there
            low.append(file)
            file = os.dup(file)
        for number in low:
            os.close(number)
        with suppress(AttributeError, OSError):  # Windows has no such files
            os.set_blocking(file, True)
        state = os.fstat(file)
        self._file, self._identity = file, (state.st_dev, state.st_ino)
        self.is_file = stat.S_ISREG(state.st_mode)
        self._had_name = state.st_nlink > 0
        if self.is_file:
            earlier = _open_logs.get(self._identity)
            if earlier is not None:
                earlier.is_overwritten = earlier.is_lost = True
            _open_logs[self._identity] = self

    def write(self, line: Line) -> None:
        """Append `line`. Raises OSError when the system does not take it."""
        self.append(text_of_line(line))

    def append(self, text: bytes) -> None:
        """Append the text of a line; see `write`."""
        if os.getpid() != self._process:
            return
        self._check()
        rest = memoryview(text)
        while rest:
            taken = os.write(self._open_file(), rest)
            self._taken_bytes += taken
            rest = rest[taken:]
        self.written_bytes += len(text)
        self._seen_bytes = os.fstat(self._open_file()).st_size

    def _open_file(self) -> int:
        if self._file is None:
            raise OSError(errno.EBADF, "it is closed")
        return self._file

    def _check(self) -> None:
        """Raises OSError where the file is not as it was left: more lines would damage it."""
        if self.is_overwritten:
            raise OSError(errno.EEXIST, "another run has overwritten it")
        state = os.fstat(self._open_file())
        if (state.st_dev, state.st_ino) != self._identity:
            self._file = None  # it is the program's now
            raise OSError(errno.EBADF, "the program closed its file descriptor")
        if not self.is_file:
            return
        # Some file systems tell neither names nor the size of what is being written.
        is_removed = self._had_name and not state.st_nlink
        is_changed = not self._seen_bytes <= state.st_size <= self._taken_bytes
        self.is_lost = is_removed or is_changed
        if self.is_lost:
            raise OSError(errno.ENODATA, REMOVED if is_removed else CHANGED)

    def end(self, batches: int) -> None:
        """Append the line that says the run ended by itself, and close the file."""
        try:
            self.write(RunEnd(batches))
        finally:
            self.close()

    def close(self) -> None:
        """Close the file without saying that the run ended: it did not, or not here."""
        file, self._file = self._file, None
        if file is None:
            return
        if _open_logs.get(self._identity) is self:
            del _open_logs[self._identity]
        with suppress(OSError):
            state = os.fstat(file)
            if (state.st_dev, state.st_ino) == self._identity:  # else it is the program's
                os.close(file)


_open_logs: WeakValueDictionary[tuple[int, int], RunLog] = WeakValueDictionary()
"""A file is known by its device and number; a log that another one replaces must write no more."""


def text_of_line(line: Line) -> bytes:
    """`line` as it is in a log, its newline included."""
    return to_text(encode(line)).encode()


def why(error: OSError) -> str:
    """Why a file cannot be written."""
    return WHY.get(error.errno or 0) or error.strerror or str(error)


def write_metrics(run: Run, path: str | os.PathLike[str]) -> None:
    """Write the metrics of `run`, and under the key `run` the whole of it, as JSON."""
    fields = {**metrics_of(run), "run": [encode(line) for line in lines_of(run)]}
    Path(path).write_text(to_text(fields), encoding="utf-8")


def lines_of(run: Run) -> list[Line]:
    """The lines of a log of `run`, those of a type together."""
    lines: list[Line] = [
        run.header,
        *run.steps.blocks(),
        *run.prefetches,
        *run.windows,
        *run.stages,
        *run.worker_starts,
        *run.code,
        *run.operators,
        *run.steps.gpu_idle(),
        *run.padding,
        *run.ends,
        *run.readings,
        *run.events,
    ]
    if run.closed:
        lines.append(RunEnd(run.batches))
    return lines


def metrics_of(run: Run) -> dict[str, Any]:
    """The figures of `run` under the keys of DALI's class, times in seconds; {} before any batch.

    `batch_times` are the waits of every epoch; `total_time` goes from each epoch's first request to
    its last delivery, or to the request that found the epoch exhausted.
    """
    if not run.batches:
        return {}
    waits, steps = run.steps.wait_ns, run.steps.step_ns
    wait_ns, step_ns = int(waits.sum()), int(steps[steps != UNKNOWN].sum())
    return {
        "mode": run.header.mode,
        "total_batches": run.batches,
        "total_time": (wait_ns + step_ns) / SECOND_NS,
        "avg_batch_time": wait_ns / run.batches / SECOND_NS,
        "min_batch_time": int(waits.min()) / SECOND_NS,
        "max_batch_time": int(waits.max()) / SECOND_NS,
        "batch_times": (waits / SECOND_NS).tolist(),
        "cached_batches": run.header.cache.batches if run.header.cache else 0,
        "cache_ready": run.header.cache is not None,
    }


def span_of(run: Run) -> tuple[float | None, float | None]:
    """When the first batch was asked for, and when the last epoch was read to its end.

    In seconds since 1970; None before the first batch, and while or after an epoch goes on that
    was not read to its end.
    """
    steps = run.steps
    if not len(steps):
        return None, None
    created_s = datetime.fromisoformat(run.header.created).timestamp()
    began_s = created_s + int(steps.request_ns[0]) / SECOND_NS
    last = next((end for end in run.ends if end.epoch == steps.epoch[-1]), None)
    if last is None or last.cause != "exhausted" or last.request_ns is None:
        return began_s, None
    return began_s, created_s + (last.request_ns + (last.wait_ns or 0)) / SECOND_NS


def summary_of(run: Run, dataset_size: int | None) -> str:
    """What `print_summary` prints: the lines of DALI's class, unknown where it would fail."""
    header, metrics = run.header, metrics_of(run)
    kept = header.cache.batches if header.cache else 0
    lines = [
        "Loader Evaluator Summary:",
        f"  Mode: {header.mode}",
        f"  Dataset size: {_known(dataset_size)}",
        f"  Number of batches: {_known(header.loader.length)}",
        f"  Cache size: {kept}/{_known(header.settings.get('num_cached_batches'))}",
        f"  Cache ready: {header.cache is not None}",
    ]
    if metrics:
        lines += [
            f"  Total batches processed: {metrics['total_batches']}",
            f"  Total time: {metrics['total_time']:.2f}s",
            f"  Average batch time: {metrics['avg_batch_time']:.4f}s",
            f"  Min batch time: {metrics['min_batch_time']:.4f}s",
            f"  Max batch time: {metrics['max_batch_time']:.4f}s",
        ]
    return "\n".join(lines)


def _known(number: int | None) -> str:
    return "unknown" if number is None else str(number)
