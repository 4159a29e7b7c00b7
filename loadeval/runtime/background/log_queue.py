"""The lines of a run on their way to its log, whose file may stall for as long as it likes."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from loadeval.data.log import why
from loadeval.errors import warn
from loadeval.runtime.background.threads import is_own, within

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.data.log import RunLog

THREAD = "loadeval-log"
MOST_WAITING_BYTES = 16_000_000
"""A stalled file makes lines wait: at 1000 batches a second these are minutes."""
STALLED_S = 0.05
LONGEST_END_S = 3.0
"""The end of a run waits no longer for a file that stalls."""
BROKEN = (
    "the run log {path} cannot be written any more ({why}); the run continues in memory, and "
    "save_metrics() can save it"
)
DROPPED = (
    "batches are not recorded: the run log {path} cannot be written ({why}); it will tell how many"
)
LEFT = "the last lines of the run log {path} are missing ({why})"
STALLS = "it takes nothing at present"
_warned: set[tuple[Path, str]] = set()
"""A warning has said that something in this folder is not written, for this reason."""
_stalling: set[Path] = set()
"""Files in these folders took nothing when last a run ended."""


class LogQueue:
    """Takes lines from a training, which never waits, and writes them to `log` on other threads.

    `is_broken` is True once the file takes no more: what was put and is not in the file by then
    stays here. `written_bytes` are those of whole lines in the file. One thread puts at a time,
    and any number of threads may write.
    """

    def __init__(self, log: RunLog) -> None:
        self.is_broken = False
        self.written_bytes = log.written_bytes
        self._log = log
        self._texts: deque[tuple[int, bytes]] = deque()
        self._writing = threading.Lock()
        self._busy_since_s: float | None = None
        self._is_ended = False

    @property
    def path(self) -> Path:
        """The log's."""
        return self._log.path

    @property
    def is_file(self) -> bool:
        """Whether what was written can be read: of a pipe it cannot."""
        return self._log.is_file

    @property
    def is_lost(self) -> bool:
        """Whether the file no longer has what was written."""
        return self._log.is_lost

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the file that nothing more should be put."""
        return self._put_bytes() - self.written_bytes > MOST_WAITING_BYTES

    def snapshot(self) -> tuple[int, list[bytes]]:
        """How many bytes of the file are whole lines, and the lines behind those."""
        texts = self._texts.copy()
        written_bytes = self.written_bytes  # after what it counts was copied
        return written_bytes, [text for start, text in texts if start >= written_bytes]

    def put(self, text: bytes) -> None:
        """Let the `text` of a line be written."""
        # It is one step, as a signal may come between two.
        self._texts.append((self._put_bytes(), text))

    def _put_bytes(self) -> int:
        try:
            start, text = self._texts[-1]
        except IndexError:  # all is written
            return self.written_bytes
        return start + len(text)

    def write(self) -> None:
        """Write what waits, unless another thread does so, or hangs in it."""
        if self._writing.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._writing.release()

    def relieve(self) -> None:
        """Write here too, where much waits though the file takes it: its thread gets no CPU."""
        is_much = self._put_bytes() - self.written_bytes > MOST_WAITING_BYTES // 2
        if is_much and self._stalled_s() < STALLED_S and self._writing.acquire(timeout=STALLED_S):
            try:
                self._write()
            finally:
                self._writing.release()

    def end(self) -> None:
        """Write what waits, and close the file; a file that stalls is not waited for long."""
        if self._is_ended:
            return
        self._is_ended = True
        limit_s = max(patience_s(self.path.parent) - self._stalled_s(), 0.0)
        if not within(limit_s, THREAD, self._end) and not self.is_broken:
            _stalling.add(self.path.parent)
            self.warn(LEFT)

    def _stalled_s(self) -> float:
        """How long the file has not taken what it was given."""
        since_s = self._busy_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def warn(self, message: str, reason: str = STALLS) -> None:
        """Warn of this log; see warn_once."""
        warn_once(self.path, message, reason)

    def _end(self) -> None:
        if self._writing.acquire(timeout=-1 if is_own() else LONGEST_END_S):
            try:
                self._write()
                self._log.close()
            finally:
                self._writing.release()

    def _write(self) -> None:
        while (waiting := self.snapshot()[1]) and not self.is_broken:
            self._busy_since_s = time.monotonic()
            try:
                # It is one call: after each of them a thread waits for Python's lock.
                self._log.append(b"".join(waiting))
            except OSError as error:
                self.is_broken = True
                self._log.close()
                if not self._log.is_overwritten:  # as was asked for
                    self.warn(BROKEN, why(error))
            else:
                _stalling.discard(self.path.parent)
                self.written_bytes += sum(map(len, waiting))
                for _ in waiting:
                    self._texts.popleft()
        self._busy_since_s = None


def patience_s(folder: Path) -> float:
    """How long to wait, at the end of a run, for files in `folder`: not for each of them."""
    return STALLED_S if folder in _stalling else LONGEST_END_S


def warn_once(path: Path, message: str, reason: str) -> None:
    """Warn that `path` is not written, unless another file beside it was not for that reason."""
    if is_news(path.parent, reason):
        warn(message.format(path=path, why=reason))


def is_news(folder: Path, reason: str) -> bool:
    """Whether nothing was said yet of files in `folder` that are not written, for that reason."""
    was_warned = (folder, reason) in _warned
    _warned.add((folder, reason))
    return not was_warned
