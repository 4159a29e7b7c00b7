"""Adding batches up, until a tally is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.runlog.histogram import BINS, counted
from loadeval.runlog.model import UNKNOWN
from loadeval.runlog.tally import Tally

if TYPE_CHECKING:
    from loadeval.runlog.model import Block, Column


class Totals:
    """Of consecutive batches of one epoch, from number `first` on."""

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
        """From the first request to the end of the last step."""
        return self.end_ns - self.request_ns

    def add(self, rows: Block) -> None:
        """Add the batches that come next; all their steps are known, or that of the only one."""
        self._note_extremes(rows)
        self._wait_ns += int(rows.wait_ns.sum())
        self._step_ns = _added(self._step_ns, rows.step_ns)
        self._samples = _added(self._samples, rows.samples)
        self._nbytes = _added(self._nbytes, rows.nbytes)
        self._waits += counted(rows.wait_ns)
        self._steps += counted(rows.step_ns[rows.step_ns != UNKNOWN])
        self.batches += len(rows)
        last = rows.request_ns[-1] + rows.wait_ns[-1] + max(rows.step_ns[-1], 0)
        self.end_ns = int(last)

    def tally(self) -> Tally | None:
        """The tally of what was added; None where nothing was."""
        slowest = self._slowest
        if slowest is None:
            return None
        slowest_step_ns = int(slowest.step_ns[0])
        return Tally(
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
            **_filled("wait", self._waits),
            **_filled("step", self._steps),
        )

    def _note_extremes(self, rows: Block) -> None:
        shortest_ns, longest_ns = int(rows.wait_ns.min()), int(rows.wait_ns.max())
        if self._slowest is None:
            self.request_ns, self._shortest_ns = int(rows.request_ns[0]), shortest_ns
        self._shortest_ns = min(self._shortest_ns, shortest_ns)
        self._longest_ns = max(self._longest_ns, longest_ns)
        cycle_ns = rows.wait_ns + rows.step_ns
        row = int(cycle_ns.argmax())
        slowest = self._slowest
        if slowest is None or cycle_ns[row] > slowest.wait_ns[0] + slowest.step_ns[0]:
            self._slowest = rows.part(slice(row, row + 1))
            self._slowest_batch = self.first + self.batches + row


def _added(total: int | None, column: Column) -> int | None:
    """`total` and the sum of `column`; None once anything is not known."""
    return None if total is None or (column == UNKNOWN).any() else total + int(column.sum())


def _filled(what: str, counts: Column) -> dict[str, Column]:
    """The bins that are not empty, as fields of a Tally."""
    bins = np.flatnonzero(counts)
    return {f"{what}_bins": bins, f"{what}_counts": counts[bins]}
