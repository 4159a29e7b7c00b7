"""The two arms side by side: what was counted in each, pair by pair or batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.intervals import Pace
from loadeval.analysis.summary import steady, steady_aggregates
from loadeval.runlog.model import ARMS, UNKNOWN

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.intervals import Series
    from loadeval.runlog.model import Run, Steps

    Rows = npt.NDArray[np.bool_]

USUAL_PART = 0.5
"""A pair counts when both its blocks have at least this part of the usual number of batches."""


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One arm: an entry for each pair, or for each batch of a run of its own.

    `samples` is None where they are not known of every batch, or are none at all.
    """

    wait_ns: Series
    step_ns: Series
    batches: Series
    samples: Series | None

    @property
    def count(self) -> int:
        """How many batches."""
        return int(self.batches.sum())

    def waits(self, by_sample: bool) -> Pace:
        """What was waited."""
        return Pace(self.wait_ns, self._amount(by_sample))

    def steps(self, by_sample: bool) -> Pace:
        """What the steps took."""
        return Pace(self.step_ns, self._amount(by_sample))

    def iterations(self, by_sample: bool) -> Pace:
        """Both together."""
        return Pace(self.wait_ns + self.step_ns, self._amount(by_sample))

    def _amount(self, by_sample: bool) -> Series:
        return self.samples if by_sample and self.samples is not None else self.batches


def side_of(steps: Steps, rows: Rows) -> Side:
    """The batches of `rows`, an entry each."""
    chosen = steps.samples[rows]
    known = len(chosen) > 0 and bool((chosen != UNKNOWN).all()) and bool(chosen.sum() > 0)
    return Side(
        wait_ns=steps.wait_ns[rows].astype(np.float64),
        step_ns=steps.step_ns[rows].astype(np.float64),
        batches=np.ones(len(chosen)),
        samples=chosen.astype(np.float64) if known else None,
    )


def side_of_run(run: Run) -> Side:
    """The steady batches of a run in one arm: an entry for each, or for each aggregate of them.

    The aggregates have all batches. Those that were kept in detail, one in N, may be unlike the
    others: what happens at every 20th may happen at every one of them, or at none.
    """
    if run.header.every == 1:
        return side_of(run.steps, steady(run))
    aggregates = steady_aggregates(run)
    counts = [aggregate.samples for aggregate in aggregates if aggregate.samples is not None]
    known = len(counts) == len(aggregates) and sum(counts) > 0
    return Side(
        wait_ns=np.array([aggregate.wait_ns for aggregate in aggregates], dtype=np.float64),
        step_ns=np.array([aggregate.step_ns for aggregate in aggregates], dtype=np.float64),
        batches=np.array([aggregate.batches for aggregate in aggregates], dtype=np.float64),
        samples=np.array(counts, dtype=np.float64) if known else None,
    )


def paired(run: Run) -> tuple[list[int], Side, Side]:
    """The pairs of an alternating run that count, and their sums in the real and the ideal arm.

    A run often ends within a pair. A pair counts when each of its blocks has at least half of
    the batches that a block of this run usually (in the median) has; times are scaled to equal
    numbers of samples, so that a block that is a little short does not tilt the comparison.
    """
    steps = run.steps
    counted = (steps.pair != UNKNOWN) & (steps.step_ns != UNKNOWN)
    numbers, index = np.unique(steps.pair[counted], return_inverse=True)
    found = np.zeros((len(ARMS), len(numbers)))
    np.add.at(found, (steps.arm[counted], index), 1.0)
    usual = float(np.median(found[found > 0])) if len(numbers) else 0.0
    whole = (found >= max(USUAL_PART * usual, 1.0)).all(axis=0)
    pairs = numbers[whole]
    kept = counted & np.isin(steps.pair, pairs)
    real, ideal = (
        _by_pair(side_of(steps, rows), np.searchsorted(pairs, steps.pair[rows]), len(pairs))
        for rows in (kept & (steps.arm == code) for code in range(len(ARMS)))
    )
    return pairs.tolist(), real, ideal


def _by_pair(side: Side, index: npt.NDArray[np.int64], pairs: int) -> Side:
    def summed(series: Series) -> Series:
        return np.bincount(index, series, pairs).astype(np.float64)

    return Side(
        wait_ns=summed(side.wait_ns),
        step_ns=summed(side.step_ns),
        batches=summed(side.batches),
        samples=None if side.samples is None else summed(side.samples),
    )
