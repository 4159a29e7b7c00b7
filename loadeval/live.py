"""A run while it goes on: the lines of its log go in one by one, and its state comes out.

What is held does not grow with the run: sums over all that counts, the iterations of the last
minute, and the last batch of each epoch that is open.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from loadeval.data import lines
from loadeval.data.log import ASK_FOR_A_LOG, next_part, opened
from loadeval.data.run import SECOND_NS
from loadeval.errors import RunLogError

RECENT_NS = 60 * SECOND_NS
"""What counts as now."""
ITERATIONS_KEPT = 4096
"""Of a run that has more in the last minute, they are what counts as now."""
SILENT_NS, SILENT_ITERATIONS = 10 * SECOND_NS, 10
"""A run is silent after so long, and so many iterations."""
EVENTS_KEPT = 3


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


def together(ranks: Collection[Rates | None]) -> Rates | None:
    """The rates of all ranks, which leave a step together; None where one has none yet.

    The job waits no less than the rank that waits most: how much longer, only batches that are
    aligned tell.
    """
    known = [rates for rates in ranks if rates is not None]
    if not known or len(known) < len(ranks):
        return None
    samples = [rates.samples_per_s for rates in known if rates.samples_per_s is not None]
    return Rates(
        batches=min(rates.batches for rates in known),
        elapsed_ns=max(rates.elapsed_ns for rates in known),
        batches_per_s=min(rates.batches_per_s for rates in known),
        samples_per_s=sum(samples) if len(samples) == len(known) else None,
        wait_share=max(rates.wait_share for rates in known),
    )


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
    unit: str = ""
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


OpenStep = tuple[int, int, int | None, int | None]
"""When a batch came, its wait, its step, where that is known already, and its samples."""
Figures = tuple[int, int, float]
"""The wait and the step of a batch, and its samples, NaN where these are not known."""


class LiveRun:
    """Takes the lines of a run log, checked, from its header on.

    `so_far` is what they told, without what depends on the time; `latest_ns` is the latest time
    that one of them told. `longest_wait_ns` is the longest wait, and `longest_gap_ns` the longest
    time between two batches, with the step between them. An epoch `is_open` where the last one that
    had a batch has not ended, and before the first batch.
    """

    def __init__(self) -> None:
        self.header: lines.Header | None = None
        self.so_far = LiveState()
        self.latest_ns = 0
        self.longest_wait_ns = self.longest_gap_ns = 0
        self.is_open = True
        self._is_left = False  # what goes on is not recorded any more
        self._last_batch_ns = 0
        self._next: dict[int, int] = {}  # how many batches each open epoch has had
        self._open: dict[int, OpenStep] = {}  # and its last one, if it counts
        self._count = 0
        self._sums: list[float] = [0, 0, 0]
        self._recent: deque[tuple[int, Figures]] = deque(maxlen=ITERATIONS_KEPT)

    @property
    def environment(self) -> Mapping[str, Any]:
        """What is known of the process that writes the log."""
        return {} if self.header is None else self.header.environment

    def take(self, line: lines.Line) -> None:
        """Take the next line."""
        so_far = self.so_far
        match line:
            case lines.Header(loader=loader):
                self.header = line
                so_far.name, so_far.mode, so_far.unit = line.name, line.mode, line.unit
                so_far.created, so_far.epoch_batches = line.created, loader.length
            case lines.Block() if line.request_ns and self.header is not None:
                self._take_block(line, self.header.warmup)
            case lines.EpochEnd():
                self._close(line.epoch, line.request_ns)
                self._next.pop(line.epoch, None)
                self.is_open, self._is_left = False, line.cause == "unmeasured"
                self._reach((line.request_ns or 0) + (line.wait_ns or 0))
            case lines.Readings():
                self._reach(max(line.time_ns, default=0))
            case lines.Event():
                self._reach(line.time_ns)
                so_far.events = (*so_far.events, line.message)[-EVENTS_KEPT:]
            case lines.RunEnd():
                so_far.ended = True

    def silent_ns(self, quiet_ns: int) -> int | None:
        """How long no batch has come, `quiet_ns` after the log was last written.

        None without a header, and once the run or its recording has ended.
        """
        if self.header is None or self.so_far.ended or self._is_left:
            return None
        return self.latest_ns + quiet_ns - self._last_batch_ns

    def state(self, quiet_ns: int) -> LiveState | None:
        """The state `quiet_ns` after the log was last written; None without a header."""
        if self.header is None:
            return None
        elapsed_ns = self.latest_ns + (0 if self.so_far.ended else quiet_ns)
        silent_ns = self.silent_ns(quiet_ns)
        usual_ns = SILENT_ITERATIONS * (self._sums[0] + self._sums[1]) / max(self._count, 1)
        if silent_ns is not None and silent_ns <= max(SILENT_NS, usual_ns):
            silent_ns = None
        recent = [each for ended_ns, each in self._recent if ended_ns > elapsed_ns - RECENT_NS]
        if self._recent and not recent and silent_ns is None:
            recent = [self._recent[-1][1]]
        return replace(
            self.so_far,
            elapsed_ns=elapsed_ns,
            now=_rates(len(recent), *(sum(each[of] for each in recent) for of in range(3))),
            overall=_rates(self._count, *self._sums),
            silent_ns=silent_ns,
        )

    def _take_block(self, block: lines.Block, warmup: int) -> None:
        so_far, is_real = self.so_far, block.arm == "real"
        is_alternating, is_replay = so_far.mode == "alternate", so_far.mode == "replay"
        is_counted = is_real is not is_replay
        if is_alternating:
            is_counted &= block.pair is not None and not block.instrumented
        first, count = self._next.get(block.epoch, 0), len(block.request_ns)
        unknown: list[int | None] = [None] * count
        steps_ns, samples = block.step_ns or unknown, block.samples or unknown
        for row, (request_ns, wait_ns) in enumerate(
            zip(block.request_ns, block.wait_ns, strict=True)
        ):
            self._close(block.epoch, request_ns)
            came_ns = request_ns + wait_ns
            self.longest_gap_ns = max(self.longest_gap_ns, came_ns - self._last_batch_ns)
            self._last_batch_ns = max(self._last_batch_ns, came_ns)
            if is_counted and (is_alternating or first + row >= warmup):
                self._open[block.epoch] = came_ns, wait_ns, steps_ns[row], samples[row]
        self.longest_wait_ns = max(self.longest_wait_ns, *block.wait_ns)
        self._reach(self._last_batch_ns)
        self.is_open, self._is_left = True, False
        self._next[block.epoch] = first + count
        so_far.epoch, so_far.batch = block.epoch, first + count - 1
        so_far.batches += count
        so_far.wait_ns += sum(block.wait_ns) if is_real else 0
        if not first and (is_real or is_replay):
            if so_far.epoch_start_ns is None:
                so_far.epoch_start_ns = block.wait_ns[0]
            else:
                so_far.last_epoch_start_ns = block.wait_ns[0]

    def _close(self, epoch: int, request_ns: int | None) -> None:
        """The last step ended with a request at that time; None: nobody knows when it did."""
        if epoch not in self._open:
            return
        came_ns, wait_ns, step_ns, samples = self._open.pop(epoch)
        if step_ns is None and request_ns is not None:
            step_ns = max(request_ns - came_ns, 0)
        if step_ns is None:
            return
        ended_ns = came_ns + step_ns
        figures = wait_ns, step_ns, math.nan if samples is None else samples
        self._count += 1
        self._sums = [total + figure for total, figure in zip(self._sums, figures, strict=True)]
        self._recent.append((ended_ns, figures))
        while self._recent[0][0] <= ended_ns - RECENT_NS:
            self._recent.popleft()

    def _reach(self, time_ns: int) -> None:
        self.latest_ns = max(self.latest_ns, time_ns)


def _rates(batches: int, wait_ns: float, step_ns: float, samples: float) -> Rates | None:
    """The rates of so many batches, by their sums; None of no time."""
    elapsed_ns = wait_ns + step_ns
    if not elapsed_ns:
        return None
    per_s = SECOND_NS / elapsed_ns
    return Rates(
        batches=batches,
        elapsed_ns=int(elapsed_ns),
        batches_per_s=batches * per_s,
        samples_per_s=None if math.isnan(samples) else samples * per_s,
        wait_share=wait_ns / elapsed_ns,
    )


class FollowedRun:
    """Reads the log at `path` bit by bit into its `run`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = LiveRun()
        self._told_s = 0.0
        self._file: tuple[int, int] | None = None
        self._first_line = b""
        self._read_bytes = 0

    def read(self) -> bool:
        """Take all lines that were appended, but for damaged ones; False where there is no log.

        An incomplete last line waits for its end. A log that was cut off, or replaced by another
        one, is read from its beginning. Raises RunLogError when it is no log, or cannot be read.
        """
        try:
            with opened(self.path) as file:
                self._read_on(file)
        except RunLogError as error:
            self._file = None
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise
        return True

    def _read_on(self, file: BinaryIO) -> None:
        state = os.fstat(file.fileno())
        identity = state.st_dev, state.st_ino
        is_same = identity == self._file and state.st_size >= self._read_bytes
        if not is_same or file.read(len(self._first_line)) != self._first_line:
            self._file, self._first_line, self._read_bytes = identity, b"", 0
        if not self._read_bytes:
            self.run, self._told_s = LiveRun(), state.st_mtime
        before_ns = self.run.latest_ns
        file.seek(self._read_bytes)
        while texts := next_part(file):
            whole = [text for text in texts if text.endswith(b"\n")]
            for text in whole:
                with suppress(RunLogError):  # it is damaged
                    self.run.take(lines.decode(text))
            if whole and self.run.header is None:
                raise RunLogError(f"{self.path}, line 1 is no header of a run log; {ASK_FOR_A_LOG}")
            self._first_line = self._first_line or b"".join(whole[:1])
            self._read_bytes += sum(map(len, whole))
            if len(whole) < len(texts):  # the rest of the last line may have come meanwhile
                break
        # Some lines tell no time: what a worker was seen doing, also where it hangs.
        if self.run.latest_ns != before_ns:
            self._told_s = state.st_mtime

    def quiet_ns(self, now_s: float) -> int:
        """How long ago the log told a time, at `now_s` since the epoch of its file's clock."""
        return max(round((now_s - self._told_s) * SECOND_NS), 0)
