"""A run that goes on, from the lines of its log so far: what `loadeval watch` and trackers show.

Sums are kept, and the iterations of the last minute, so that a run of days takes no more memory.
"""

from __future__ import annotations

import math
import os
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from loadeval.data import lines, log
from loadeval.data.columns import Values
from loadeval.data.run import SECOND_NS
from loadeval.errors import RunLogError

MINUTE_NS = 60 * SECOND_NS
MOST_RECENT, MOST_EVENTS = 4096, 3
"""So many iterations of the last minute are kept, and events."""
LEAST_SILENCE_NS, SILENT_ITERATIONS = 10 * SECOND_NS, 10
"""No batch for so long, and for so many iterations, is a silence."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Batches and samples per second over some batches, and the share of the time that was waited.

    `elapsed_ns` is the time that the batches took. `samples_per_s` is None where samples are not
    known.
    """

    batches: int
    elapsed_ns: int
    batches_per_s: float
    samples_per_s: float | None
    wait_share: float


@dataclass(slots=True)
class LiveState:
    """How far a run has come and how fast it is; what is not known is None.

    `elapsed_ns` is the time since its start. `epoch` and `batch` are the last ones that are
    known, counted from 0; `batches` counts all that are, and `epoch_batches` is the loader's
    length. `now` is of the steady batches of the last minute, or of the last one where none ended
    in it; `overall` is of all. Of an alternating run both are of the counted real blocks, of a
    replay of the kept batches. `wait_ns` is how long training has waited for the loader so far,
    warm-up included; `epoch_start_ns` and `last_epoch_start_ns` are the first waits of the first
    epoch and of the last one, if there were more. `silent_ns` is for how long no batch came, where
    that is far longer than usual and the run has not said that it, or its recording, ended.
    `events` are the last three.
    """

    name: str = ""
    mode: lines.Mode = "log"
    unit: str = "samples"
    created: str = ""
    epoch_batches: int | None = None
    elapsed_ns: int = 0
    epoch: int | None = None
    batch: int | None = None
    batches: int = 0
    now: Rates | None = None
    overall: Rates | None = None
    wait_ns: int = 0
    epoch_start_ns: int | None = None
    last_epoch_start_ns: int | None = None
    events: tuple[str, ...] = ()
    ended: bool = False
    silent_ns: int | None = None


class LiveRun:
    """Takes the lines of a run log, checked, from its header on.

    `so_far` is what they told, without what depends on the time. `longest_wait_ns` is the longest
    wait.
    """

    def __init__(self) -> None:
        self.so_far = LiveState()
        self.environment: Mapping[str, Any] = {}
        self.longest_wait_ns = 0
        self._header: lines.Header | None = None
        self._is_measured = True
        self._came_ns = 0
        self._batches = Counter[int]()  # of each epoch that goes on
        self._last: dict[int, tuple[int, int, float]] = {}  # its last batch, if its step is open
        self._all = np.zeros(4)  # iterations that count, their time, their waits, their samples
        self._recent = deque(
            [(0, self._all)], MOST_RECENT
        )  # when they ended, and the same, of the last minute

    def take(self, line: lines.Line) -> None:
        """Take the next line."""
        so_far, time_ns = self.so_far, 0
        match line:
            case lines.Header():
                self._header, self.environment = line, line.environment
                known = line.name, line.mode, line.unit, line.created, line.loader.length
                self.so_far = LiveState(*known)
            case lines.Block() if self._header:
                self._serve(line, self._header)
                time_ns = self._came_ns
            case lines.EpochEnd(epoch=epoch, request_ns=request_ns):
                if request_ns is not None:
                    self._close(epoch, request_ns)
                    time_ns = request_ns + (line.wait_ns or 0)
                self._batches.pop(epoch, None)
                self._last.pop(epoch, None)
                self._is_measured = line.cause != "unmeasured"
            case lines.Readings(time_ns=[*_, time_ns]):
                pass
            case lines.Event(time_ns=time_ns):
                so_far.events = (*so_far.events, line.message)[-MOST_EVENTS:]
            case lines.RunEnd():
                so_far.ended = True
        self.so_far.elapsed_ns = max(self.so_far.elapsed_ns, time_ns)

    def _serve(self, block: lines.Block, header: lines.Header) -> None:
        """Batches of one arm: all were waited for, and some count."""
        so_far, epoch, is_real = self.so_far, block.epoch, block.arm == "real"
        alternates = header.mode == "alternate"
        is_in_pair = block.pair is not None and not block.instrumented
        unknown = [None] * len(block.request_ns)
        columns = (
            block.request_ns,
            block.wait_ns,
            block.step_ns or unknown,
            block.samples or unknown,
        )
        for request_ns, wait_ns, step_ns, samples in zip(*columns, strict=True):
            self._close(epoch, request_ns)
            number, came_ns = self._batches[epoch], request_ns + wait_ns
            is_steady = is_in_pair if alternates else number >= header.warmup
            if is_steady and is_real is (header.mode != "replay"):
                self._last[epoch] = request_ns, wait_ns, math.nan if samples is None else samples
            if step_ns is not None:
                self._close(epoch, came_ns + step_ns)
            if (
                not number
                and (epoch or not header.loader.ready_batches)
                and (is_real or not alternates)
            ):
                if so_far.epoch_start_ns is None:
                    so_far.epoch_start_ns = wait_ns
                else:
                    so_far.last_epoch_start_ns = wait_ns
            self.longest_wait_ns = max(self.longest_wait_ns, wait_ns)
            self._came_ns, self._is_measured = came_ns, True
            self._batches[epoch] += 1
            so_far.epoch, so_far.batch = epoch, number
            so_far.batches += 1
            so_far.wait_ns += wait_ns * is_real

    def _close(self, epoch: int, end_ns: int) -> None:
        """End the step of the epoch's last batch, where it is open and counts."""
        request_ns, wait_ns, samples = self._last.pop(epoch, (end_ns, 1, 0))
        if end_ns >= request_ns + wait_ns:
            times = np.array([1, end_ns - request_ns, wait_ns, samples])
            self._all = self._all + times
            self._recent.append((end_ns, times))
            while self._recent[0][0] <= end_ns - MINUTE_NS:
                self._recent.popleft()

    def silent_ns(self, quiet_ns: int) -> int | None:
        """How long no batch has come, `quiet_ns` after the log was last written.

        None without a header, and once the run or its recording has ended.
        """
        if self._header is None or self.so_far.ended or not self._is_measured:
            return None
        return self.so_far.elapsed_ns + quiet_ns - self._came_ns

    def state(self, quiet_ns: int) -> LiveState | None:
        """The state `quiet_ns` after the log was last written; None without a header."""
        if self._header is None:
            return None
        now_ns = self.so_far.elapsed_ns + (0 if self.so_far.ended else quiet_ns)
        silent_ns = self.silent_ns(quiet_ns)
        if silent_ns is not None:
            usual_ns = self._all[1] / max(self._all[0], 1)
            if silent_ns <= max(LEAST_SILENCE_NS, SILENT_ITERATIONS * usual_ns):
                silent_ns = None
        recent = [times for end_ns, times in self._recent if end_ns > now_ns - MINUTE_NS]
        if not recent and silent_ns is None:
            recent = [self._recent[-1][1]]
        return replace(
            self.so_far,
            elapsed_ns=now_ns,
            now=_rates(np.sum(recent, axis=0)) if recent else None,
            overall=_rates(self._all),
            silent_ns=silent_ns,
        )


def _rates(times: Values) -> Rates | None:
    batches, elapsed_ns, wait_ns, samples = times.tolist()
    if not elapsed_ns:
        return None
    per_s = SECOND_NS / elapsed_ns
    samples_per_s = None if math.isnan(samples) else samples * per_s
    return Rates(
        int(batches), int(elapsed_ns), batches * per_s, samples_per_s, wait_ns / elapsed_ns
    )


class FollowedRun:
    """Reads the log at `path` bit by bit into its `run`."""

    def __init__(self, path: Path) -> None:
        self.run = LiveRun()
        self._path, self._first = path, b""
        self._read_bytes, self._told_s = 0, 0.0

    def read(self) -> bool:
        """Take all lines that were appended, but for damaged ones; False where there is no log.

        An incomplete last line waits for its end. A log that was cut off, or replaced by another
        one, is read from its beginning. Raises RunLogError when it is no log, or cannot be read.
        """
        if not self._path.exists():
            return False
        with log.opened(self._path) as file:
            state, first = os.fstat(file.fileno()), file.readline(log.LONGEST_LINE_BYTES)
            if not first.endswith(b"\n"):
                return True
            told_ns = self.run.so_far.elapsed_ns
            if first != self._first or state.st_size < self._read_bytes:
                log.LogReader(self._path).add([first])  # it must be a header
                self.run, told_ns = LiveRun(), -1
                self._first, self._read_bytes = first, 0
            file.seek(self._read_bytes)
            while (text := file.readline(log.LONGEST_LINE_BYTES)).endswith(b"\n"):
                self._read_bytes += len(text)
                with suppress(RunLogError):
                    self.run.take(lines.decode(text))
        if self.run.so_far.elapsed_ns > told_ns:
            self._told_s = state.st_mtime
        return True

    def quiet_ns(self, now_s: float) -> int:
        """How long ago the log told a time, at `now_s` since the epoch of its file's clock."""
        return max(round((now_s - self._told_s) * SECOND_NS), 0)
