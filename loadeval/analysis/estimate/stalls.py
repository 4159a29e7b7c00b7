"""Rare stalls of a loader that works ahead, counted over all batches whose loading was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.intervals import AllWaits, MeanError
from loadeval.data.run import ARMS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.estimate.stats import Series
    from loadeval.data.columns import Column
    from loadeval.data.run import Run

TIMES_ITERATION = 5
"""A wait is a stall over so many real iterations, and over what the loader's queue can hide."""
FEWEST, MOST = 3, 20
"""Fewer stalls do not tell how often they come; of more, those in real blocks tell enough."""
LEAST_APART = 10
"""Batches from one stall to the next in the mean, where stalls are rare."""
LEAST_SHARE = 0.05
"""Less than this share of the real time matters little."""
FEWEST_REGULAR = 4
REGULAR = 0.05
"""Gaps of stalls are regular when each is a multiple of the shortest, within this part of it.

Three gaps of stalls at random are so once in a hundred times.
"""
MOST_EXPECTED = 1.5
"""Regular stalls that the run should show, by those it does; with more they are irregular.

After two stalls in a row every gap is a multiple of the shortest, which is 1.
"""
PHASE = 0.3
"""Standard deviation of the number of regular stalls, by where the first one is: 1 / sqrt(12)."""


def rare_stalls(
    run: Run, rows: npt.NDArray[np.bool_], iteration_ns: float, ideal_ns: float
) -> AllWaits | None:
    """The mean time that a batch loses to stalls; `rows` are the real arm's in the run.

    `iteration_ns` and `ideal_ns` are the mean iterations of the real arm and of the ideal one.

    Stalls are few, and some come while batches are prefetched. So how often they come is counted
    over all batches, and what one costs is measured in the real arm. Their number is taken to be
    Poisson's, or to be known, where they come at regular intervals. None where there are too few,
    or so many that the real blocks tell enough.
    """
    hidden_ns = (run.header.loader.prefetch_depth or 0) * ideal_ns
    wait_ns, place, from_row = _seen(run)
    bound_ns = max(TIMES_ITERATION * iteration_ns, hidden_ns)
    stalled = wait_ns > bound_ns
    in_real = stalled & from_row
    count = int(stalled.sum())
    if not in_real.any() or not FEWEST <= count <= min(MOST, len(wait_ns) / LEAST_APART):
        return None
    usual_ns = float(wait_ns[from_row & ~stalled].mean())
    costs_ns = wait_ns[in_real] - usual_ns
    cost_ns, often = float(costs_ns.mean()), count / len(wait_ns)
    number_variance = 1 / count
    every = interval_of(place[stalled])
    if every is not None and len(wait_ns) / every <= MOST_EXPECTED * count:
        often, number_variance = 1 / every, (PHASE / count) ** 2
    mean_ns = often * cost_ns
    if mean_ns < LEAST_SHARE * iteration_ns:
        return None
    cost_variance = float(costs_ns.var(ddof=1)) / len(costs_ns) if len(costs_ns) > 1 else 0.0
    variance = mean_ns**2 * (number_variance + cost_variance / cost_ns**2)
    waits_ns = run.steps.wait_ns[rows]
    # Garwood's interval of Poisson's mean (Biometrika 28, 1936) has twice as many degrees.
    error = MeanError(variance, 2.0 * count)
    within_ns = np.where(waits_ns > bound_ns, waits_ns - usual_ns, 0.0)
    return AllWaits(within_ns, np.array([mean_ns]), np.ones(1), error)


def interval_of(place: Column) -> float | None:
    """The number of batches from one stall to the next; None where they come irregularly."""
    gaps = np.diff(place)
    if len(place) < FEWEST_REGULAR:
        return None
    shortest = float(gaps.min())
    multiples = np.round(gaps / shortest)
    if (np.abs(gaps - multiples * shortest) > REGULAR * shortest).any():
        return None
    return float(gaps.sum() / multiples.sum())


def _seen(run: Run) -> tuple[Series, Column, npt.NDArray[np.bool_]]:
    """The waits for batches in the order of the loader, their places in it, and which are real.

    Without the first of each epoch, and those that filled the queue while nobody waited.
    """
    steps, ideal = run.steps, ARMS.index("ideal")
    waits: list[Column] = []
    places: list[Column] = []
    real: list[npt.NDArray[np.bool_]] = []
    at = 0

    def add(wait_ns: Column, is_real: bool) -> None:
        nonlocal at
        waits.append(wait_ns)
        places.append(at + np.arange(len(wait_ns)))
        real.append(np.full(len(wait_ns), is_real))
        at += len(wait_ns)

    for epoch in np.unique(steps.epoch).tolist():
        (rows,) = np.nonzero(steps.epoch == epoch)
        facts = [prefetch for prefetch in run.prefetches if prefetch.epoch == epoch]
        drained = iter([prefetch.batches for prefetch in facts if not prefetch.timed])
        is_first = int(steps.arm[rows[0]] == ideal)  # then the epoch was prefetched whole
        fetched = iter([prefetch.waits_ns[is_first:] for prefetch in facts if prefetch.timed])
        held = 0
        for span in np.split(rows, np.flatnonzero(np.diff(steps.arm[rows])) + 1):
            if steps.arm[span[0]] == ideal:
                held -= len(span)
                while held < 0 and (more := next(fetched, ())):
                    add(np.array(more), is_real=False)
                    held += len(more)
            elif steps.batch[span[0]]:
                taken = next(drained, 0)
                at, held = at + taken, held + taken
                add(steps.wait_ns[span], is_real=True)
            else:
                at += 1
                add(steps.wait_ns[span[1:]], is_real=True)
    return np.concatenate(waits).astype(np.float64), np.concatenate(places), np.concatenate(real)
