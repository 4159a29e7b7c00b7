"""A run while it goes on: the lines of its log go in one by one, and its state comes out.

What is held does not grow with the run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.summary import FEWEST_FOR_OUTLIERS, OUTLIER_TIMES_MEDIAN
from loadeval.analysis.rates import (
    RECENT_NS,
    BatchSums,
    Rates,
    in_seconds,
    rates,
    sums_of,
    together,
    total,
)
from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.lines import Block, EpochEnd, Event, Header, Readings, RunEnd
from loadeval.data.run import ARMS, SECOND_NS, steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loadeval.data.lines import Arm, Line, Mode

SILENT_NS = 10 * SECOND_NS
SILENT_ITERATIONS = 10
"""A run is silent after so long, and so many iterations."""
EVENTS_KEPT = 3
OUTLIERS_KEPT = 5
MEMORY = ("host", "pss_bytes")
"""The probe and the quantity that tell the memory of the training process and of its workers."""
MEDIAN_GROWTH = 1.05
"""The median is computed again once there are so many times as many iterations."""
BINS_IN_A_DOUBLING = 32
"""For the median, iterations are counted in bins: it is right to some 2%."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """An iteration over twice the median; `request_ns` is when its batch was asked for."""

    epoch: int
    batch: int
    request_ns: int
    wait_ns: int
    step_ns: int


@dataclass(frozen=True, slots=True)
class LiveState:
    """How far a run has come and how fast it is; what is not known is None.

    `elapsed_ns` is the time since its start. `epoch` and `batch` are the last ones that are
    known, counted from 0; `batches` counts all that are, and `epoch_batches` is the loader's
    length. `now` is of the steady batches of the last minute, or of the last ones recorded where
    none ended in it; `overall` is of all. Of an alternating run both are of the counted real
    blocks. `epoch_start_ns` and `last_epoch_start_ns` are the first waits of the first epoch and
    of the last one, if there were more. `outlier_count` counts the outliers so far, and `outliers`
    are the last ones. `silent_ns` is for how long no batch came, where that is far longer than
    usual and the run has not said that it, or its recording, ended. `events` are the last three.

    `arms` has sums over all batches whose step has ended, warm-up included. `memory_bytes` is what
    the training `process` and its `workers` took when it was last read.
    """

    name: str
    mode: Mode
    unit: str
    created: str
    epoch_batches: int | None
    elapsed_ns: int
    epoch: int | None
    batch: int | None
    batches: int
    now: Rates | None
    overall: Rates | None
    epoch_start_ns: int | None
    last_epoch_start_ns: int | None
    median_iteration_ns: float | None
    outlier_count: int
    outliers: tuple[Outlier, ...]
    events: tuple[str, ...]
    ended: bool
    silent_ns: int | None
    arms: Mapping[Arm, BatchSums] = field(default_factory=dict)
    memory_bytes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiveJob:
    """The ranks of a job, under the names of their logs, in order."""

    ranks: tuple[tuple[str, LiveState], ...]

    @property
    def ended(self) -> bool:
        """Whether all of them have."""
        return all(state.ended for _, state in self.ranks)

    @property
    def now(self) -> Rates | None:
        """The rates of the last minute, as `together` has them."""
        return together([state.now for _, state in self.ranks])

    @property
    def overall(self) -> Rates | None:
        """The rates of the whole run."""
        return together([state.overall for _, state in self.ranks])

    @property
    def most_waiting(self) -> list[tuple[str, LiveState]]:
        """The ranks, those first that wait most of the time."""

        def share(rank: tuple[str, LiveState]) -> float:
            rates = rank[1].now or rank[1].overall
            return 0.0 if rates is None else -(rates.wait_share or 0.0)

        return sorted(self.ranks, key=share)


@dataclass(frozen=True, slots=True)
class Silence:
    """For how long a run that goes on has got no batch, and what it is used to.

    `longest_wait_ns` is the longest wait so far, and `longest_gap_ns` the longest time between two
    batches, with the step between them; None where there was none. An epoch `is_open` where the
    last one that had a batch has not ended, and before the first batch. What is known of the
    process that writes the log is in `environment`.
    """

    silent_ns: int
    longest_wait_ns: int | None
    longest_gap_ns: int | None
    is_open: bool
    batches: int
    environment: Mapping[str, Any]


class LiveRun:
    """Takes the lines of a run log, checked, from the first on."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._ended = False
        self.latest_ns = 0
        """The latest time that a line told."""
        self._last_batch_ns = 0
        self._place: tuple[int, int] | None = None
        self._longest_wait_ns: int | None = None
        self._longest_gap_ns: int | None = None
        self._is_open = True
        self._is_left = False
        """Whether what goes on is not recorded any more."""
        self._batches = 0
        self._next: dict[int, int] = {}
        self._open: dict[int, Columns] = {}
        """The last row of each epoch, whose step goes on."""
        self._overall = BatchSums()
        self._arms: dict[Arm, BatchSums] = {}
        self._memory_bytes: dict[str, float] = {}
        self._recent: deque[BatchSums] = deque()
        self._epoch_start_ns: int | None = None
        self._last_epoch_start_ns: int | None = None
        self._outliers = LiveOutliers()
        self._events: deque[str] = deque(maxlen=EVENTS_KEPT)

    def take(self, line: Line) -> None:
        """Take the next line."""
        if isinstance(line, Header):
            self._header = line
        elif isinstance(line, Block):
            self._take_block(line)
        elif isinstance(line, EpochEnd):
            self._close(line.epoch, line.request_ns)
            self._next.pop(line.epoch, None)
            self._is_open, self._is_left = False, line.cause == "unmeasured"
            if line.request_ns is not None:
                self._reach(line.request_ns + (line.wait_ns or 0))
        elif isinstance(line, Readings):
            self._take_readings(line)
        elif isinstance(line, Event):
            self._reach(line.time_ns)
            self._events.append(line.message)
        elif isinstance(line, RunEnd):
            self._ended = True

    def state(self, quiet_ns: int) -> LiveState | None:
        """The state `quiet_ns` after the log was last written; None without a header."""
        header = self._header
        if header is None:
            return None
        elapsed_ns = self.latest_ns + (0 if self._ended else quiet_ns)
        silent_ns = self._silent_ns(elapsed_ns)
        epoch, batch = self._place or (None, None)
        return LiveState(
            name=header.name,
            mode=header.mode,
            unit=header.unit,
            created=header.created,
            epoch_batches=header.loader.length,
            elapsed_ns=elapsed_ns,
            epoch=epoch,
            batch=batch,
            batches=self._batches,
            now=self._now(elapsed_ns, silent_ns),
            overall=rates([self._overall]),
            epoch_start_ns=self._epoch_start_ns,
            last_epoch_start_ns=self._last_epoch_start_ns,
            median_iteration_ns=self._outliers.median_ns,
            outlier_count=self._outliers.count,
            outliers=tuple(self._outliers.last),
            events=tuple(self._events),
            ended=self._ended,
            silent_ns=silent_ns,
            arms=dict(self._arms),
            memory_bytes=dict(self._memory_bytes),
        )

    def silence(self, quiet_ns: int) -> Silence | None:
        """How long no batch has come, `quiet_ns` after the log was last written.

        None without a header, and once the run or its recording has ended.
        """
        header, elapsed_ns = self._header, self.latest_ns + quiet_ns
        silent_ns = elapsed_ns - self._last_batch_ns
        if header is None or self._ended or self._is_left:
            return None
        return Silence(
            silent_ns,
            self._longest_wait_ns,
            self._longest_gap_ns,
            self._is_open,
            self._batches,
            header.environment,
        )

    def _take_block(self, block: Block) -> None:
        """Take a block. The next one of its epoch, or the epoch's end, closes its last step."""
        if not block.request_ns:
            return
        self._close(block.epoch, block.request_ns[0])
        first = self._next.get(block.epoch, 0)
        rows = steps_of([block])
        rows = rows.replace(batch=first + np.arange(len(rows)))
        self._next[block.epoch] = first + len(rows)
        self._batches += len(rows)
        self._note(rows)
        self._count(rows.take(slice(-1)))
        self._open[block.epoch] = rows.take(slice(-1, None))

    def _take_readings(self, readings: Readings) -> None:
        self._reach(max(readings.time_ns, default=0))
        probe, quantity = MEMORY
        known = [value for value in readings.values.get(quantity, []) if value is not None]
        if readings.probe == probe and known:
            self._memory_bytes[readings.subject] = known[-1]

    @property
    def _warmup(self) -> int:
        return 0 if self._header is None else self._header.warmup

    def _close(self, epoch: int, request_ns: int | None) -> None:
        """The last step ended with a request at that time; None: nobody knows when it did."""
        if epoch in self._open:
            rows = self._open.pop(epoch)
            if request_ns is not None:
                step_ns = np.maximum(request_ns - rows.request_ns - rows.wait_ns, 0)
                self._count(rows.replace(step_ns=step_ns))

    def _note(self, rows: Columns) -> None:
        """How far the run has come, and its epoch start."""
        came_ns = rows.request_ns + rows.wait_ns
        delivered_ns = int(came_ns[-1])
        gap_ns = int(np.diff(came_ns, prepend=self._last_batch_ns).max())
        self._is_open, self._is_left = True, False
        self._longest_wait_ns = max(self._longest_wait_ns or 0, int(rows.wait_ns.max()))
        self._longest_gap_ns = max(self._longest_gap_ns or 0, gap_ns)
        epoch, batch = int(rows.epoch[0]), int(rows.batch[0])
        self._reach(delivered_ns, (epoch, int(rows.batch[-1])))
        ready = self._header is not None and self._header.loader.ready_batches
        if batch == 0 and not (ready and epoch == 0):
            epoch_start_ns = int(rows.wait_ns[0])
            if self._epoch_start_ns is None:
                self._epoch_start_ns = epoch_start_ns
            else:
                self._last_epoch_start_ns = epoch_start_ns

    def _count(self, rows: Columns) -> None:
        """Add `rows` to their arm, and those that count to the rates."""
        rows = rows.take(rows.step_ns != UNKNOWN)
        if not len(rows):
            return
        arm = ARMS[rows.arm[0]]
        self._arms[arm] = total([self._arms.get(arm, BatchSums()), sums_of(rows)])
        steady = rows.batch >= self._warmup
        if self._header is not None and self._header.mode == "alternate":
            steady = (rows.arm == ARMS.index("real")) & (rows.pair != UNKNOWN)
        if not steady.any():
            return
        rows = rows.take(steady)
        for part in in_seconds(rows):
            self._add(sums_of(part))
        self._outliers.take(rows)

    def _add(self, sums: BatchSums) -> None:
        self._overall = total([self._overall, sums])
        self._recent.append(sums)
        while len(self._recent) > 1 and self._recent[0].end_ns <= self.latest_ns - RECENT_NS:
            self._recent.popleft()

    def _reach(self, time_ns: int, place: tuple[int, int] | None = None) -> None:
        self.latest_ns = max(self.latest_ns, time_ns)
        if place is not None:
            self._last_batch_ns = max(self._last_batch_ns, time_ns)
            self._place = place

    def _now(self, elapsed_ns: int, silent_ns: int | None) -> Rates | None:
        recent = [part for part in self._recent if part.end_ns > elapsed_ns - RECENT_NS]
        if not recent and silent_ns is None:
            recent = list(self._recent)[-1:]
        return rates(recent)

    def _silent_ns(self, elapsed_ns: int) -> int | None:
        overall = self._overall
        iteration_ns = (overall.wait_ns + overall.step_ns) // max(overall.batches, 1)
        silent_ns = elapsed_ns - self._last_batch_ns
        is_usual = silent_ns <= max(SILENT_NS, SILENT_ITERATIONS * iteration_ns)
        return None if is_usual or self._ended or self._is_left else silent_ns


class LiveOutliers:
    """The outliers of a run so far: how many, and the last ones.

    Each is judged by the median of the iterations up to then.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: deque[Outlier] = deque(maxlen=OUTLIERS_KEPT)
        self.median_ns: float | None = None
        self._bins = np.zeros(64 * BINS_IN_A_DOUBLING, dtype=np.int64)
        self._iterations = 0
        self._iterations_in_median = 0

    def take(self, rows: Columns) -> None:
        """Take `rows`, whose steps are known."""
        iteration_ns = rows.wait_ns + rows.step_ns
        bins = (BINS_IN_A_DOUBLING * np.log2(np.maximum(iteration_ns, 1))).astype(np.int64)
        self._bins += np.bincount(bins, minlength=len(self._bins))
        self._iterations += len(rows)
        if self._iterations >= max(FEWEST_FOR_OUTLIERS, MEDIAN_GROWTH * self._iterations_in_median):
            self._iterations_in_median = self._iterations
            middle = np.searchsorted(np.cumsum(self._bins), self._iterations / 2)
            self.median_ns = float(2 ** ((middle + 0.5) / BINS_IN_A_DOUBLING))
        if self.median_ns is None:
            return
        long = np.flatnonzero(iteration_ns > OUTLIER_TIMES_MEDIAN * self.median_ns)
        self.count += len(long)
        for row in long[-OUTLIERS_KEPT:]:
            names = ("epoch", "batch", "request_ns", "wait_ns", "step_ns")
            self.last.append(Outlier(*(int(rows[name][row]) for name in names)))
