"""A run while it goes on: the lines of its log go in one by one, and its state comes out.

What is held does not grow with the run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.stats import quantiles
from loadeval.analysis.estimate.summary import FEWEST_FOR_OUTLIERS, OUTLIER_TIMES_MEDIAN
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.histogram import BINS, bin_counts
from loadeval.runlog.log_file.codec import RunEnd
from loadeval.runlog.model import (
    SECOND_NS,
    Aggregate,
    Block,
    EpochEnd,
    Event,
    Excerpt,
    Header,
    Readings,
    longest_aggregate_ns,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loadeval.runlog.columns import Column
    from loadeval.runlog.log_file.codec import Line
    from loadeval.runlog.model import Mode

RECENT_NS = 60 * SECOND_NS
"""What counts as now."""
SILENT_NS = 10 * SECOND_NS
SILENT_ITERATIONS = 10
SILENT_GAPS = 2
"""A run is silent after so long, so many iterations, and so many times between two lines."""
EVENTS_KEPT = 3
OUTLIERS_KEPT = 5
MEDIAN_GROWTH = 1.05
"""The median is computed again once there are so many times as many iterations."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Batches and samples per second over some batches, and the share of the time that was waited.

    `elapsed_ns` is the time that the batches took. What is not known is None.
    """

    batches: int
    elapsed_ns: int
    batches_per_s: float | None
    samples_per_s: float | None
    wait_share: float | None


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
    are the last ones; of a run that keeps one batch in `every`, only the slowest iteration of each
    aggregate is looked at. `silent_ns` is for how long no batch came, where that is far longer
    than usual and the run has not said that it ended. `events` are the last three.
    """

    name: str
    mode: Mode
    unit: str
    created: str
    every: int
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


class LiveRun:
    """Takes the lines of a run log, checked, from the first on."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._ended = False
        self._latest_ns = self._last_batch_ns = 0
        self._place: tuple[int, int] | None = None
        self._batches = 0
        self._next: dict[int, int] = {}
        self._open: dict[int, tuple[Block, Column]] = {}
        """The last row of each epoch, whose step goes on."""
        self._overall = BatchSums()
        self._recent: deque[BatchSums] = deque()
        self._epoch_start_ns: int | None = None
        self._last_epoch_start_ns: int | None = None
        self._outliers = LiveOutliers()
        self._events: deque[str] = deque(maxlen=EVENTS_KEPT)

    def take(self, line: Line) -> None:
        """Take the next line."""
        if isinstance(line, Header):
            self._header = line
        elif isinstance(line, Excerpt):
            self._take_excerpt(line)
        elif isinstance(line, Block):
            self._take_block(line)
        elif isinstance(line, Aggregate):
            self._take_aggregate(line)
        elif isinstance(line, EpochEnd):
            self._close(line.epoch, line.request_ns)
            self._next.pop(line.epoch, None)
            if line.request_ns is not None:
                self._reach(line.request_ns + (line.wait_ns or 0))
        elif isinstance(line, Readings):
            self._reach(int(line.time_ns.max(initial=0)))
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
        elapsed_ns = self._latest_ns + (0 if self._ended else quiet_ns)
        silent_ns = self._silent_ns(header, elapsed_ns)
        epoch, batch = self._place or (None, None)
        return LiveState(
            name=header.name,
            mode=header.mode,
            unit=header.unit,
            created=header.created,
            every=header.every,
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
        )

    def _take_block(self, block: Block) -> None:
        """Take a block. The next one of its epoch, or the epoch's end, closes its last step."""
        if not len(block):
            return
        self._close(block.epoch, int(block.request_ns[0]))
        first = self._next.get(block.epoch, 0)
        self._next[block.epoch] = first + len(block)
        self._batches += len(block)
        batch = first + np.arange(len(block))
        self._note(block, batch)
        rows, closed = block.with_steps(), slice(-1)
        self._count(rows.part(closed), batch[closed])
        self._open[block.epoch] = (rows.part(slice(-1, None)), batch[-1:])

    def _take_excerpt(self, rows: Excerpt) -> None:
        if len(rows):
            self._note(rows, rows.batch)
            steady = (rows.step_ns != UNKNOWN) & (rows.batch >= self._warmup)
            self._outliers.add_to_median(rows.part(steady))

    def _take_aggregate(self, aggregate: Aggregate) -> None:
        self._batches += aggregate.batches
        self._reach(aggregate.end_ns, (aggregate.epoch, aggregate.first + aggregate.batches - 1))
        if aggregate.first < self._warmup or aggregate.step_ns is None:
            return
        self._add(
            BatchSums(
                aggregate.end_ns,
                aggregate.batches,
                aggregate.wait_ns,
                aggregate.step_ns,
                aggregate.samples,
            )
        )
        self._outliers.consider(
            Outlier(
                aggregate.epoch,
                aggregate.slowest_batch,
                aggregate.slowest_request_ns,
                aggregate.slowest_wait_ns,
                aggregate.slowest_step_ns or 0,
            )
        )

    @property
    def _warmup(self) -> int:
        return 0 if self._header is None else self._header.warmup

    def _close(self, epoch: int, request_ns: int | None) -> None:
        """The last step ended with a request at that time; None: nobody knows when it did."""
        if epoch in self._open:
            rows, batch = self._open.pop(epoch)
            if request_ns is not None:
                step_ns = request_ns - rows.request_ns - rows.wait_ns
                self._count(replace(rows, step_ns=step_ns), batch)

    def _note(self, rows: Block, batch: Column) -> None:
        """How far the run has come, and its epoch start."""
        delivered_ns = int(rows.request_ns[-1] + rows.wait_ns[-1])
        self._reach(delivered_ns, (rows.epoch, int(batch[-1])))
        ready = self._header is not None and self._header.loader.ready_batches
        if batch[0] == 0 and not (ready and rows.epoch == 0):
            epoch_start_ns = int(rows.wait_ns[0])
            if self._epoch_start_ns is None:
                self._epoch_start_ns = epoch_start_ns
            else:
                self._last_epoch_start_ns = epoch_start_ns

    def _count(self, rows: Block, batch: Column) -> None:
        """Add those of `rows` that count; all their steps are known."""
        steady = batch >= self._warmup
        if self._header is not None and self._header.mode == "alternate":
            steady = np.full(len(rows), rows.arm == "real" and rows.pair is not None)
        if not steady.any():
            return
        rows, batch = rows.part(steady), batch[steady]
        for part in in_seconds(rows):
            self._add(sums_of(part))
        self._outliers.add_to_median(rows)
        self._outliers.find(rows, batch)

    def _add(self, sums: BatchSums) -> None:
        self._overall = total([self._overall, sums])
        self._recent.append(sums)
        while len(self._recent) > 1 and self._recent[0].end_ns <= self._latest_ns - RECENT_NS:
            self._recent.popleft()

    def _reach(self, time_ns: int, place: tuple[int, int] | None = None) -> None:
        self._latest_ns = max(self._latest_ns, time_ns)
        if place is not None:
            self._last_batch_ns = max(self._last_batch_ns, time_ns)
            self._place = place

    def _now(self, elapsed_ns: int, silent_ns: int | None) -> Rates | None:
        recent = [part for part in self._recent if part.end_ns > elapsed_ns - RECENT_NS]
        if not recent and silent_ns is None:
            recent = list(self._recent)[-1:]
        return rates(recent)

    def _silent_ns(self, header: Header, elapsed_ns: int) -> int | None:
        overall = self._overall
        iteration_ns = (overall.wait_ns + overall.step_ns) // max(overall.batches, 1)
        gap_ns = min(header.every * iteration_ns, longest_aggregate_ns(elapsed_ns))
        limit_ns = max(SILENT_NS, SILENT_ITERATIONS * iteration_ns, SILENT_GAPS * gap_ns)
        silent_ns = elapsed_ns - self._last_batch_ns
        return None if self._ended or silent_ns <= limit_ns else silent_ns


class LiveOutliers:
    """The outliers of a run so far: how many, and the last ones.

    Each is judged by the median of the iterations up to then.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: deque[Outlier] = deque(maxlen=OUTLIERS_KEPT)
        self.median_ns: float | None = None
        self._bins = np.zeros(BINS, dtype=np.int64)
        self._iterations = 0
        self._iterations_in_median = 0

    def add_to_median(self, rows: Block) -> None:
        """Let `rows`, whose steps are known, count for the median."""
        self._bins += bin_counts(rows.wait_ns + rows.step_ns)
        self._iterations += len(rows)
        if self._iterations >= max(FEWEST_FOR_OUTLIERS, MEDIAN_GROWTH * self._iterations_in_median):
            self._iterations_in_median = self._iterations
            self.median_ns = float(quantiles(self._bins, [0.5])[0])

    def find(self, rows: Block, batch: Column) -> None:
        """Note which of `rows`, the batches of these numbers, are outliers."""
        if self.median_ns is None:
            return
        long = np.flatnonzero(rows.wait_ns + rows.step_ns > OUTLIER_TIMES_MEDIAN * self.median_ns)
        self.count += len(long)
        for row in long[-OUTLIERS_KEPT:]:
            times = (batch[row], rows.request_ns[row], rows.wait_ns[row], rows.step_ns[row])
            self.last.append(Outlier(rows.epoch, *map(int, times)))

    def consider(self, slowest: Outlier) -> None:
        """Note `slowest` if it is an outlier."""
        median_ns = self.median_ns
        if (
            median_ns is not None
            and slowest.wait_ns + slowest.step_ns > OUTLIER_TIMES_MEDIAN * median_ns
        ):
            self.count += 1
            self.last.append(slowest)


@dataclass(frozen=True, slots=True)
class BatchSums:
    """Sums over some batches that count, and when the last step of them ended."""

    end_ns: int = 0
    batches: int = 0
    wait_ns: int = 0
    step_ns: int = 0
    samples: int | None = 0


def in_seconds(rows: Block) -> Iterator[Block]:
    """The last minute of `rows`, second by second, after all that came before."""
    end_ns = rows.request_ns + rows.wait_ns + rows.step_ns
    if end_ns[-1] - end_ns[0] <= SECOND_NS:
        yield rows
        return
    seconds_ns = np.arange(end_ns[-1] - RECENT_NS, end_ns[-1], SECOND_NS)
    bounds = np.unique([0, *np.searchsorted(end_ns, seconds_ns, side="right"), len(rows)])
    for bound in pairwise(bounds.tolist()):
        yield rows.part(slice(*bound))


def sums_of(rows: Block) -> BatchSums:
    """The sums over `rows`, whose steps are known."""
    unknown = (rows.samples == UNKNOWN).any()
    return BatchSums(
        int(rows.request_ns[-1] + rows.wait_ns[-1] + rows.step_ns[-1]),
        len(rows),
        int(rows.wait_ns.sum()),
        int(rows.step_ns.sum()),
        None if unknown else int(rows.samples.sum()),
    )


def total(parts: Iterable[BatchSums]) -> BatchSums:
    """All `parts` together; samples are not known where those of one are not."""
    given = list(parts)
    samples = [part.samples for part in given]
    return BatchSums(
        max((part.end_ns for part in given), default=0),
        sum(part.batches for part in given),
        sum(part.wait_ns for part in given),
        sum(part.step_ns for part in given),
        None if None in samples else sum(count or 0 for count in samples),
    )


def together(ranks: Sequence[Rates | None]) -> Rates | None:
    """The rates of all ranks; None where one has none yet.

    The job waits no less than the rank that waits most: how much longer, only batches that are
    aligned tell.
    """
    known = [rank for rank in ranks if rank is not None]
    if not known or len(known) < len(ranks):
        return None
    batches = [rank.batches_per_s for rank in known if rank.batches_per_s is not None]
    samples = [rank.samples_per_s for rank in known if rank.samples_per_s is not None]
    waits = [rank.wait_share for rank in known if rank.wait_share is not None]
    return Rates(
        batches=min(rank.batches for rank in known),
        elapsed_ns=max(rank.elapsed_ns for rank in known),
        batches_per_s=min(batches, default=None),
        samples_per_s=sum(samples) if len(samples) == len(known) else None,
        wait_share=max(waits, default=None),
    )


def rates(parts: Iterable[BatchSums]) -> Rates | None:
    """The rates of `parts` together; None where there is no batch."""
    sums = total(parts)
    if not sums.batches:
        return None
    elapsed_ns, samples = sums.wait_ns + sums.step_ns, sums.samples
    per_s = SECOND_NS / elapsed_ns if elapsed_ns else None
    return Rates(
        batches=sums.batches,
        elapsed_ns=elapsed_ns,
        batches_per_s=None if per_s is None else sums.batches * per_s,
        samples_per_s=None if per_s is None or samples is None else samples * per_s,
        wait_share=sums.wait_ns / elapsed_ns if elapsed_ns else None,
    )
