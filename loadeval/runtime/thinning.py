"""Keeping one batch in N of an epoch in detail, and exact totals of all."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from loadeval.runlog.model import UNKNOWN
from loadeval.runlog.readings import Starvation
from loadeval.runtime.totals import Totals

if TYPE_CHECKING:
    from loadeval.runlog.model import Block, Excerpt
    from loadeval.runlog.tally import Tally

SECOND_NS = 1_000_000_000
SHORTEST_NS = SECOND_NS
USUAL_NS = 60 * SECOND_NS
EARLY_PART = 10
LATE_PART = 1000
"""A tally covers a tenth of the run so far, 1 s at least and 1 min at most, and later a thousandth.

So there are some fifty in the first ten minutes, then one a minute for seventeen hours, and after
three months six thousand in all.
"""


def longest_ns(now_ns: int) -> int:
    """For how long a tally goes on, `now_ns` after the beginning of its run."""
    return max(SHORTEST_NS, min(now_ns // EARLY_PART, USUAL_NS), now_ns // LATE_PART)


class Thinning:
    """One epoch: its batches go in, and what is kept of them comes out.

    The last batch is held back until the next request tells how long its step took. No tally
    has batches of the warm-up and of the steady part.
    """

    def __init__(self, epoch: int, every: int, warmup: int) -> None:
        self._every = every
        self._warmup = warmup
        self._totals = Totals(epoch)
        self._held: Block | None = None
        self._next = 0

    def take(self, block: Block) -> list[Excerpt | Tally]:
        """What is to be kept now that `block` has come, the batches after those before."""
        rows = block if self._held is None else joined(self._held, block)
        self._held = rows.part(slice(-1, None))
        return self._add(rows.with_steps().part(slice(-1)))

    def rest(self, request_ns: int | None) -> list[Excerpt | Tally]:
        """What is to be kept besides if the epoch ends now; this stays as it is.

        `request_ns` is the request that got no batch, which ended the last step; None where
        there was none, so that nobody knows how long that took.
        """
        return deepcopy(self).end(request_ns)

    def end(self, request_ns: int | None) -> list[Excerpt | Tally]:
        """As `rest`, once and for all."""
        held = self._held
        if held is None:
            return []
        if request_ns is not None:
            step_ns = request_ns - held.request_ns - held.wait_ns
            return [*self._add(replace(held, step_ns=step_ns)), *self._cut()]
        lines: list[Excerpt | Tally] = [*self._kept(held, self._next), *self._cut()]
        self._totals.add(held)
        return [*lines, *self._cut()]

    def _add(self, rows: Block) -> list[Excerpt | Tally]:
        """Rows whose steps are known."""
        first, self._next = self._next, self._next + len(rows)
        lines: list[Excerpt | Tally] = [*self._kept(rows, first)]
        settled = min(max(self._warmup - first, 0), len(rows))
        for start, stop in pairwise((0, settled, len(rows))):
            if start < stop:
                self._totals.add(rows.part(slice(start, stop)))
                due = self._totals.elapsed_ns >= longest_ns(self._totals.end_ns)
                if due or first + stop == self._warmup:
                    lines += self._cut()
        return lines

    def _cut(self) -> list[Tally]:
        """What was added up since the last time, if anything."""
        tally = self._totals.tally()
        if tally is not None:
            self._totals = Totals(tally.epoch, tally.first + tally.batches)
        return [] if tally is None else [tally]

    def _kept(self, rows: Block, first: int) -> list[Excerpt]:
        batch = first + np.arange(len(rows))
        chosen = batch % self._every == 0
        return [rows.part(chosen).numbered(batch[chosen])] if chosen.any() else []


def joined(one: Block, other: Block) -> Block:
    """The rows of both, which follow on each other."""
    return replace(
        other,
        request_ns=np.concatenate([one.request_ns, other.request_ns]),
        wait_ns=np.concatenate([one.wait_ns, other.wait_ns]),
        step_ns=np.concatenate([one.step_ns, other.step_ns]),
        samples=np.concatenate([one.samples, other.samples]),
        nbytes=np.concatenate([one.nbytes, other.nbytes]),
    )


def starvation_of(found: Starvation, every: int) -> Starvation | None:
    """What of `found` is known of one batch in `every`: `first` and those that follow in steps."""
    skipped = -found.first % every
    starved_ns = found.starved_ns[skipped::every]
    if not len(starved_ns) or (starved_ns == UNKNOWN).all():
        return None
    return Starvation(found.epoch, found.first + skipped, starved_ns)
