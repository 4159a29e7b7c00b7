"""A run while it goes on: its lines go in one by one, and how it stands comes out.

What is held does not grow with the run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.outliers import Outlier, Outliers
from loadeval.analysis.standing import Stretch, Watch, added, standing
from loadeval.analysis.summary import SECOND_NS
from loadeval.runlog.codec import RunEnd
from loadeval.runlog.model import (
    UNKNOWN,
    Aggregate,
    Block,
    EpochEnd,
    Event,
    Excerpt,
    Header,
    Readings,
)
from loadeval.runtime.thinning import longest_ns

if TYPE_CHECKING:
    from loadeval.analysis.standing import Standing
    from loadeval.runlog.codec import Line
    from loadeval.runlog.model import Column

RECENT_NS = 60 * SECOND_NS
"""What counts as now."""
SILENT_NS = 10 * SECOND_NS
SILENT_ITERATIONS = 10
SILENT_GAPS = 2
"""After so long, so many iterations, and so many times between two lines, no batch is worth saying."""
EVENTS = 3


class Watched:
    """Takes the lines of a run log, checked, from the first on, and tells how the run stands."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._ended = False
        self._latest_ns = self._last_ns = 0
        self._place: tuple[int, int] | None = None
        self._batches = 0
        self._next: dict[int, int] = {}
        self._held: dict[int, tuple[Block, Column]] = {}
        self._overall = Stretch()
        self._recent: deque[Stretch] = deque()
        self._epoch_start_ns: int | None = None
        self._last_epoch_start_ns: int | None = None
        self._outliers = Outliers()
        self._events: deque[str] = deque(maxlen=EVENTS)

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
            self._end_epoch(line)
        elif isinstance(line, Readings):
            self._reach(int(line.time_ns.max(initial=0)))
        elif isinstance(line, Event):
            self._reach(line.time_ns)
            self._events.append(line.message)
        elif isinstance(line, RunEnd):
            self._ended = True

    def state(self, quiet_ns: int) -> Watch | None:
        """How the run stands `quiet_ns` after its log was last written; None without a header."""
        header = self._header
        if header is None:
            return None
        elapsed_ns = self._latest_ns + (0 if self._ended else quiet_ns)
        silent_ns = self._silent_ns(header, elapsed_ns)
        epoch, batch = self._place or (None, None)
        return Watch(
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
            overall=standing([self._overall]),
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
        """Its last step is closed by the next block of its epoch, or by the epoch's end."""
        if not len(block):
            return
        self._close(block.epoch, int(block.request_ns[0]))
        first = self._next.get(block.epoch, 0)
        self._next[block.epoch] = first + len(block)
        self._batches += len(block)
        batch = first + np.arange(len(block))
        self._note(block, batch)
        rows, known = block.with_steps(), slice(-1)
        self._count(rows.part(known), batch[known])
        self._held[block.epoch] = (rows.part(slice(-1, None)), batch[-1:])

    def _take_excerpt(self, rows: Excerpt) -> None:
        if len(rows):
            self._note(rows, rows.batch)
            steady = (rows.step_ns != UNKNOWN) & (rows.batch >= self._warmup)
            self._outliers.see(rows.part(steady))

    def _take_aggregate(self, aggregate: Aggregate) -> None:
        self._batches += aggregate.batches
        self._reach(aggregate.end_ns, (aggregate.epoch, aggregate.first + aggregate.batches - 1))
        if aggregate.first < self._warmup or aggregate.step_ns is None:
            return
        self._add(
            Stretch(
                aggregate.end_ns,
                aggregate.batches,
                aggregate.wait_ns,
                aggregate.step_ns,
                aggregate.samples,
            )
        )
        self._outliers.find_one(
            Outlier(
                aggregate.epoch,
                aggregate.slowest_batch,
                aggregate.slowest_request_ns,
                aggregate.slowest_wait_ns,
                aggregate.slowest_step_ns or 0,
            )
        )

    def _end_epoch(self, end: EpochEnd) -> None:
        self._close(end.epoch, end.request_ns)
        self._next.pop(end.epoch, None)
        if end.request_ns is not None:
            self._reach(end.request_ns + (end.wait_ns or 0))

    @property
    def _warmup(self) -> int:
        return 0 if self._header is None else self._header.warmup

    def _close(self, epoch: int, request_ns: int | None) -> None:
        """The last step ended with a request at that time; None: nobody knows when it did."""
        if epoch in self._held:
            rows, batch = self._held.pop(epoch)
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
        """Add what of `rows` counts; all their steps are known."""
        alternates = self._header is not None and self._header.mode == "alternate"
        steady = batch >= self._warmup
        if alternates:
            steady = np.full(len(rows), rows.arm == "real" and rows.pair is not None)
        if not steady.any():
            return
        rows, batch = rows.part(steady), batch[steady]
        unknown = (rows.samples == UNKNOWN).any()
        self._add(
            Stretch(
                int(rows.request_ns[-1] + rows.wait_ns[-1] + rows.step_ns[-1]),
                len(rows),
                int(rows.wait_ns.sum()),
                int(rows.step_ns.sum()),
                None if unknown else int(rows.samples.sum()),
            )
        )
        self._outliers.see(rows)
        self._outliers.find(rows, batch)

    def _add(self, stretch: Stretch) -> None:
        self._overall = added(self._overall, stretch)
        self._recent.append(stretch)
        while len(self._recent) > 1 and self._recent[0].end_ns <= self._latest_ns - RECENT_NS:
            self._recent.popleft()

    def _reach(self, time_ns: int, place: tuple[int, int] | None = None) -> None:
        self._latest_ns = max(self._latest_ns, time_ns)
        if place is not None:
            self._last_ns = max(self._last_ns, time_ns)
            self._place = place

    def _now(self, elapsed_ns: int, silent_ns: int | None) -> Standing | None:
        found = [one for one in self._recent if one.end_ns > elapsed_ns - RECENT_NS]
        if not found and silent_ns is None:
            found = list(self._recent)[-1:]
        return standing(found)

    def _silent_ns(self, header: Header, elapsed_ns: int) -> int | None:
        overall = self._overall
        iteration_ns = (overall.wait_ns + overall.step_ns) // max(overall.batches, 1)
        gap_ns = min(header.every * iteration_ns, longest_ns(elapsed_ns))
        limit_ns = max(SILENT_NS, SILENT_ITERATIONS * iteration_ns, SILENT_GAPS * gap_ns)
        silent_ns = elapsed_ns - self._last_ns
        return None if self._ended or silent_ns <= limit_ns else silent_ns
