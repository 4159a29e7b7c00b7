"""Exact totals over consecutive batches, and how their waits and steps are spread."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from loadeval.errors import RunLogError
from loadeval.runlog.columns import unexpected
from loadeval.runlog.histogram import BINS, PARTS
from loadeval.runlog.model import Column  # noqa: TC001 - `lines` reads the annotations


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """Totals over `batches` consecutive batches of one epoch, from number `first` on.

    `request_ns`, since the run's start, is when the first of them was asked for. `wait_ns`,
    `step_ns`, `samples` and `nbytes` are sums; None is "not known of each of them". One whose
    step is not known is alone in its tally. `slowest_batch` is the number of the one with the
    longest cycle, whose own times follow. The histograms have the bins of `record.histogram`
    that are not empty, ascending, and how many waits or steps are in each.
    """

    epoch: int
    first: int
    batches: int
    request_ns: int
    wait_ns: int
    step_ns: int | None
    samples: int | None
    nbytes: int | None
    shortest_wait_ns: int
    longest_wait_ns: int
    slowest_batch: int
    slowest_request_ns: int
    slowest_wait_ns: int
    slowest_step_ns: int | None
    wait_bins: Column
    wait_counts: Column
    step_bins: Column
    step_counts: Column

    @property
    def end_ns(self) -> int:
        """When the last of its steps ended, as far as that is known."""
        return self.request_ns + self.wait_ns + (self.step_ns or 0)


def said_of(every: int) -> str:
    """What a reader should know of a run that keeps one batch in `every`."""
    return (
        f"the detail of one batch in {every} is kept: totals, means, the shortest and the longest "
        f"are of all batches, and quantiles are right to 1/{PARTS} of their value"
    )


def check(tally: Tally) -> None:
    """Raises RunLogError when what `tally` says does not fit together."""
    if not tally.batches:
        raise unexpected("batches", tally.batches, "a whole number, 1 or more")
    if tally.step_ns is None and tally.batches > 1:
        raise unexpected("step_ns", None, "the sum over several batches")
    if not tally.first <= tally.slowest_batch < tally.first + tally.batches:
        raise unexpected("slowest_batch", tally.slowest_batch, "the number of one of its batches")
    if tally.shortest_wait_ns > tally.longest_wait_ns:
        raise unexpected("shortest_wait_ns", tally.shortest_wait_ns, "at most the longest")
    _check_bins("wait", tally.wait_bins, tally.wait_counts, tally.batches)
    steps = 0 if tally.step_ns is None else tally.batches
    _check_bins("step", tally.step_bins, tally.step_counts, steps)


def _check_bins(what: str, bins: Column, counts: Column, batches: int) -> None:
    found: list[int] = bins.tolist()
    if any(one >= other for one, other in pairwise([*found, BINS])):
        expected = f"bins under {BINS}, in ascending order, each once,"
        raise unexpected(f"{what}_bins", found, expected)
    total = sum(counts.tolist())
    if len(counts) != len(found) or total != batches:
        raise RunLogError(
            f"has {total} batches in {len(counts)} values of '{what}_counts', where {batches} in "
            f"{len(found)}, one for each bin, were expected"
        )
