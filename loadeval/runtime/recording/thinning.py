"""Keeps the details of one batch in N, and exact totals of all batches."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.histogram import BINS, bin_counts
from loadeval.runlog.model import Aggregate, GpuIdle, longest_aggregate_ns

if TYPE_CHECKING:
    from loadeval.runlog.columns import Column
    from loadeval.runlog.model import Block, Excerpt


class Thinning:
    """Turns the batches of one epoch into excerpts and aggregates.

    The last batch is held back until the next request ends its step. No aggregate mixes
    warm-up and steady batches.
    """

    def __init__(self, epoch: int, every: int, warmup: int) -> None:
        self._every = every
        self._warmup = warmup
        self._totals = Totals(epoch)
        self._held: Block | None = None
        self._next = 0

    def take(self, block: Block) -> list[Excerpt | Aggregate]:
        """What to keep after `block`, the next batches."""
        rows = block if self._held is None else _joined(self._held, block)
        self._held = rows.part(slice(-1, None))
        return self._add(rows.with_steps().part(slice(-1)))

    def rest(self, request_ns: int | None) -> list[Excerpt | Aggregate]:
        """What else to keep if the epoch ends now; changes nothing.

        `request_ns` is the request that got no batch, which ended the last step; None if there
        was none, so that the last step's time is unknown.
        """
        return deepcopy(self)._end(request_ns)  # noqa: SLF001 - its own class

    def _end(self, request_ns: int | None) -> list[Excerpt | Aggregate]:
        held = self._held
        if held is None:
            return []
        if request_ns is not None:
            step_ns = request_ns - held.request_ns - held.wait_ns
            return [*self._add(replace(held, step_ns=step_ns)), *self._cut()]
        lines: list[Excerpt | Aggregate] = [*self._kept(held, self._next), *self._cut()]
        self._totals.add(held)
        return [*lines, *self._cut()]

    def _add(self, rows: Block) -> list[Excerpt | Aggregate]:
        """Add rows whose steps are known."""
        first, self._next = self._next, self._next + len(rows)
        lines: list[Excerpt | Aggregate] = [*self._kept(rows, first)]
        settled = min(max(self._warmup - first, 0), len(rows))
        for start, stop in pairwise((0, settled, len(rows))):
            if start < stop:
                self._totals.add(rows.part(slice(start, stop)))
                due = self._totals.elapsed_ns >= longest_aggregate_ns(self._totals.end_ns)
                if due or first + stop == self._warmup:
                    lines += self._cut()
        return lines

    def _cut(self) -> list[Aggregate]:
        """The aggregate of all batches since the last one, if there are any."""
        aggregate = self._totals.aggregate()
        if aggregate is not None:
            self._totals = Totals(aggregate.epoch, aggregate.first + aggregate.batches)
        return [] if aggregate is None else [aggregate]

    def _kept(self, rows: Block, first: int) -> list[Excerpt]:
        batch = first + np.arange(len(rows))
        chosen = batch % self._every == 0
        return [rows.part(chosen).numbered(batch[chosen])] if chosen.any() else []


def _joined(held: Block, block: Block) -> Block:
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(held, name), getattr(block, name)])
        for name in ("request_ns", "wait_ns", "step_ns", "samples", "nbytes")
    }
    return replace(block, **columns)


def gpu_idle_of(times: GpuIdle, every: int) -> GpuIdle | None:
    """The part of `found` for one batch in `every`; None if nothing is known of those."""
    skipped = -times.first % every
    gpu_idle_ns = times.gpu_idle_ns[skipped::every]
    if not len(gpu_idle_ns) or (gpu_idle_ns == UNKNOWN).all():
        return None
    first, gpu_step_ns = times.first + skipped, times.gpu_step_ns[skipped::every]
    return GpuIdle(times.epoch, first, gpu_idle_ns, gpu_step_ns)


class Totals:
    """Adds up consecutive batches of one epoch, from number `first` on."""

    def __init__(self, epoch: int, first: int = 0) -> None:
        self.epoch = epoch
        self.first = first
        self.batches = 0
        self.request_ns = self.end_ns = 0
        self._wait_ns = 0
        self._step_ns: int | None = 0
        self._samples: int | None = 0
        self._nbytes: int | None = 0
        self._shortest_ns = self._longest_ns = 0
        self._slowest: Block | None = None
        self._slowest_batch = first
        self._waits = np.zeros(BINS, dtype=np.int64)
        self._steps = np.zeros(BINS, dtype=np.int64)

    @property
    def elapsed_ns(self) -> int:
        """The time from the first request to the end of the last step."""
        return self.end_ns - self.request_ns

    def add(self, rows: Block) -> None:
        """Add the batches that come next; all their steps are known, or that of the only one."""
        shortest_ns = int(rows.wait_ns.min())
        if self._slowest is None:
            self.request_ns, self._shortest_ns = int(rows.request_ns[0]), shortest_ns
        self._shortest_ns = min(self._shortest_ns, shortest_ns)
        self._longest_ns = max(self._longest_ns, int(rows.wait_ns.max()))
        iteration_ns = rows.wait_ns + rows.step_ns
        row, slowest = int(iteration_ns.argmax()), self._slowest
        if slowest is None or iteration_ns[row] > slowest.wait_ns[0] + slowest.step_ns[0]:
            self._slowest = rows.part(slice(row, row + 1))
            self._slowest_batch = self.first + self.batches + row
        self._wait_ns += int(rows.wait_ns.sum())
        self._step_ns = _added(self._step_ns, rows.step_ns)
        self._samples = _added(self._samples, rows.samples)
        self._nbytes = _added(self._nbytes, rows.nbytes)
        self._waits += bin_counts(rows.wait_ns)
        self._steps += bin_counts(rows.step_ns[rows.step_ns != UNKNOWN])
        self.batches += len(rows)
        self.end_ns = int(rows.request_ns[-1] + rows.wait_ns[-1] + max(rows.step_ns[-1], 0))

    def aggregate(self) -> Aggregate | None:
        """The aggregate of what was added; None where nothing was."""
        slowest = self._slowest
        if slowest is None:
            return None
        slowest_step_ns = int(slowest.step_ns[0])
        return Aggregate(
            epoch=self.epoch,
            first=self.first,
            batches=self.batches,
            request_ns=self.request_ns,
            wait_ns=self._wait_ns,
            step_ns=self._step_ns,
            samples=self._samples,
            nbytes=self._nbytes,
            shortest_wait_ns=self._shortest_ns,
            longest_wait_ns=self._longest_ns,
            slowest_batch=self._slowest_batch,
            slowest_request_ns=int(slowest.request_ns[0]),
            slowest_wait_ns=int(slowest.wait_ns[0]),
            slowest_step_ns=None if slowest_step_ns == UNKNOWN else slowest_step_ns,
            wait_bins=np.flatnonzero(self._waits),
            wait_counts=self._waits[self._waits > 0],
            step_bins=np.flatnonzero(self._steps),
            step_counts=self._steps[self._steps > 0],
        )


def _added(total: int | None, column: Column) -> int | None:
    """`total` and the sum of `column`; None once anything is not known."""
    return None if total is None or (column == UNKNOWN).any() else total + int(column.sum())
