"""A run that goes on, from the lines of its log so far: what trackers and looks for hangs need.

Sums are kept, and the iterations of the last minute, so that a run of days takes no more memory.
"""

from __future__ import annotations

import math
import os
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from loadeval.data import lines, log
from loadeval.data.columns import Values
from loadeval.data.run import SECOND_NS
from loadeval.errors import RunLogError

MINUTE_NS = 60 * SECOND_NS
MOST_RECENT = 4096
"""So many iterations of the last minute are kept."""


class LiveRun:
    """Takes the lines of a run log, checked, from its header on.

    `batches` came, the last one in `epoch`, `elapsed_ns` since the run's start. Training has waited
    `wait_ns` for the loader, warm-up included, `epoch_start_ns` of it for the first batch.
    `longest_wait_ns` is the longest wait. An epoch `is_open` where the last one that had a batch
    has not ended, and before the first batch.
    """

    def __init__(self) -> None:
        self.name = ""
        self.environment: Mapping[str, Any] = {}
        self.batches = self.elapsed_ns = self.wait_ns = 0
        self.epoch: int | None = None
        self.epoch_start_ns: int | None = None
        self.longest_wait_ns = 0
        self.is_open = True
        self._header: lines.Header | None = None
        self._goes_on = True  # neither it nor its recording has ended
        self._came_ns = 0
        self._batches = Counter[int]()  # of each epoch that goes on
        self._last: dict[int, tuple[int, int, float]] = {}  # its last batch, if its step is open
        # When iterations that count ended, their time, waits and samples.
        self._recent = deque[tuple[int, Values]](maxlen=MOST_RECENT)

    def take(self, line: lines.Line) -> None:
        """Take the next line."""
        time_ns = 0
        match line:
            case lines.Header():
                self._header, self.name, self.environment = line, line.name, line.environment
            case lines.Block() if self._header:
                self._serve(line, self._header)
                time_ns = self._came_ns
            case lines.EpochEnd(epoch=epoch, request_ns=request_ns):
                if request_ns is not None:
                    self._close(epoch, request_ns)
                    time_ns = request_ns + (line.wait_ns or 0)
                self._batches.pop(epoch, None)
                self._last.pop(epoch, None)
                self.is_open &= self.epoch not in {None, epoch}
                self._goes_on = line.cause != "unmeasured"
            case lines.Readings(time_ns=[*_, time_ns]) | lines.Event(time_ns=time_ns):
                pass
            case lines.RunEnd():
                self._goes_on = False
        self.elapsed_ns = max(self.elapsed_ns, time_ns)

    def _serve(self, block: lines.Block, header: lines.Header) -> None:
        """Batches of one arm: all were waited for, and some count."""
        epoch, is_real, alternates = block.epoch, block.arm == "real", header.mode == "alternate"
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
                self.epoch_start_ns is None
                and not number
                and (epoch or not header.loader.ready_batches)
                and (is_real or not alternates)
            ):
                self.epoch_start_ns = wait_ns
            self.longest_wait_ns = max(self.longest_wait_ns, wait_ns)
            self._came_ns, self._goes_on, self.is_open = came_ns, True, True
            self._batches[epoch] += 1
            self.epoch = epoch
            self.batches += 1
            self.wait_ns += wait_ns * is_real

    def _close(self, epoch: int, end_ns: int) -> None:
        """End the step of the epoch's last batch, where it is open and counts."""
        request_ns, wait_ns, samples = self._last.pop(epoch, (end_ns, 1, 0))
        if end_ns >= request_ns + wait_ns:
            self._recent.append((end_ns, np.array([1, end_ns - request_ns, wait_ns, samples])))
            while self._recent[0][0] <= end_ns - MINUTE_NS:
                self._recent.popleft()

    def silent_ns(self, quiet_ns: int) -> int | None:
        """How long no batch has come, `quiet_ns` after the log was last written.

        None without a header, and once the run or its recording has ended.
        """
        if self._header is None or not self._goes_on:
            return None
        return self.elapsed_ns + quiet_ns - self._came_ns

    def last_minute(self) -> dict[str, float]:
        """Batches and samples per second, and the share that was waited, as far as they are known.

        They are of the steady batches that ended in it: of an alternating run of the counted real
        blocks, of a replay of the kept batches.
        """
        times = [times for end_ns, times in self._recent if end_ns > self.elapsed_ns - MINUTE_NS]
        batches, elapsed_ns, wait_ns, samples = np.sum([np.zeros(4), *times], axis=0).tolist()
        if not elapsed_ns:
            return {}
        per_s = SECOND_NS / elapsed_ns
        rates = {"batches_per_s": batches * per_s, "wait_share": wait_ns / elapsed_ns}
        return rates if math.isnan(samples) else {**rates, "samples_per_s": samples * per_s}


class FollowedRun:
    """Reads the log at `path` bit by bit into its `run`."""

    def __init__(self, path: Path) -> None:
        self.run = LiveRun()
        self._path, self._first = path, b""
        self._read_bytes, self._told_s = 0, 0.0

    def read(self) -> bool:
        """Take all lines that were appended, but for damaged ones; False where there is no log.

        An incomplete last line waits for its end. A log that was replaced by another one is read
        from its beginning. Raises RunLogError when it is no log, or cannot be read.
        """
        if not self._path.exists():
            return False
        with log.opened(self._path) as file:
            state, first = os.fstat(file.fileno()), file.readline(log.LONGEST_LINE_BYTES)
            if not first.endswith(b"\n"):
                return True
            told_ns = self.run.elapsed_ns
            if first != self._first:
                log.LogReader(self._path).add([first])  # it must be a header
                self.run, told_ns = LiveRun(), -1
                self._first, self._read_bytes = first, 0
            file.seek(self._read_bytes)
            while (text := file.readline(log.LONGEST_LINE_BYTES)).endswith(b"\n"):
                self._read_bytes += len(text)
                with suppress(RunLogError):
                    self.run.take(lines.decode(text))
        if self.run.elapsed_ns > told_ns:
            self._told_s = state.st_mtime
        return True

    def quiet_ns(self, now_s: float) -> int:
        """How long ago the log told a time, at `now_s` since the epoch of its file's clock."""
        return max(round((now_s - self._told_s) * SECOND_NS), 0)
