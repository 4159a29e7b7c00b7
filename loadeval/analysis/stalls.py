"""Stalls of the loader that fell beside the counted batches: too rare to be in the interval."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.figures import lost_share
from loadeval.runlog.model import ARMS, UNKNOWN

if TYPE_CHECKING:
    from loadeval.analysis.arms import Rows
    from loadeval.analysis.figures import Figures, Gain
    from loadeval.analysis.intervals import Estimate
    from loadeval.runlog.model import Run

LEAST_SHARE = 0.05
"""Of the counted real time: a missed stall under it would not move the result by much."""
RULE_OF_THREE = 3.0
"""What did not happen in n trials happens at most 3 times in n, with 95% confidence.

Hanley and Lippman-Hand, "If nothing goes wrong, is everything all right?", JAMA 249 (1983).
"""


def missed_stall_ns(run: Run, found: Figures) -> float:
    """By how much the longest wait beside the real blocks exceeds the longest within them.

    0.0 where that matters little. What the loader's queue can hide does not count: as many
    ideal iterations as it is deep.
    """
    hidden_ns = (run.header.loader.prefetch_depth or 0) * (found.ideal_ns or 0.0)
    within_ns = int(run.steps.wait_ns[_real(run) & (run.steps.pair != UNKNOWN)].max(initial=0))
    missed_ns = max(_longest_beside_ns(run) - max(within_ns, hidden_ns), 0.0)
    counted_ns = (found.real_ns or 0.0) * found.real_batches
    return missed_ns if missed_ns > LEAST_SHARE * (counted_ns + missed_ns) else 0.0


def widened(gain: Gain, missed_ns: float, batches: int) -> Gain:
    """`gain` with intervals that allow for missed stalls among its real `batches`."""
    more_ns = RULE_OF_THREE * missed_ns / batches
    speedup = _higher(gain.speedup, more_ns / gain.ideal_ns)
    return replace(
        gain,
        speedup=speedup,
        lost_share=lost_share(speedup),
        lost_ns=_higher(gain.lost_ns, more_ns),
        waiting_ns=_higher(gain.waiting_ns, more_ns),
    )


def _higher(estimate: Estimate, more: float) -> Estimate:
    high = estimate.high
    return replace(estimate, high=None if high is None else high + more)


def _longest_beside_ns(run: Run) -> int:
    prefetched = [
        prefetch.longest_ns for prefetch in run.prefetches if prefetch.longest_ns is not None
    ]
    return max([*prefetched, int(run.steps.wait_ns[_washed_out(run)].max(initial=0))])


def _washed_out(run: Run) -> Rows:
    # The first of a warm-up has waited for the prefetch too, and an epoch's first is its epoch start.
    steps = run.steps
    uncounted = _real(run) & (steps.pair == UNKNOWN)
    follows = np.zeros(len(steps), dtype=np.bool_)
    follows[1:] = uncounted[:-1] & (np.diff(steps.epoch) == 0)
    rows: Rows = uncounted & follows
    return rows


def _real(run: Run) -> Rows:
    real: Rows = run.steps.arm == ARMS.index("real")
    return real
