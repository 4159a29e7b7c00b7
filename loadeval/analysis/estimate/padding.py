"""How much of the batches is padding, and how a step's time follows the size of its batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.intervals import student
from loadeval.analysis.estimate.stats import Estimate, slope
from loadeval.analysis.estimate.steady import closed_steps
from loadeval.analysis.once import once_per_run
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.estimate.stats import Series
    from loadeval.data.columns import Column
    from loadeval.data.run import Run

FEWEST_BATCHES = 4
"""Of fewer nothing is said of padding."""
COLUMNS = ("batch", "positions", "padded", "length", "longest")
MOST_POINTS = 400
"""A slope is that of so many batches of an arm at most: it takes all pairs of them."""


@dataclass(frozen=True, slots=True)
class PaddingShare:
    """The padding of the batches that were looked at.

    `share` is that of all positions, with its interval over `batches`. Sequences are padded to
    `length` in every batch, None where that differs; the longest of a batch has `longest` at the
    median. Where steps are seen to be longer with more positions, `step_ns` is how long one with
    the mean number of them takes, by the line through them, and `saved_ns` what padding has of it.
    """

    share: Estimate
    batches: int
    length: int | None
    longest: float
    step_ns: float | None = None
    saved_ns: Estimate | None = None


@once_per_run
def padding_share(run: Run) -> PaddingShare | None:
    """The padding of the run; None where too few batches told it."""
    table = np.array([run.padding[name] for name in ("epoch", *COLUMNS)])
    is_possible = (table[3] <= table[2]) & (table[2] > 0)  # but in a file that was changed
    epoch, batch, positions, padded, length, longest = table[:, is_possible]
    if len(batch) < FEWEST_BATCHES:
        return None
    figures = PaddingShare(
        share=_share(padded.astype(np.float64), positions.astype(np.float64)),
        batches=len(batch),
        length=int(length[0]) if (length == length[0]).all() else None,
        longest=float(np.median(longest)),
    )
    return _with_steps(figures, run, _rows(run, epoch, batch), positions.astype(np.float64))


def _share(padded: Series, positions: Series) -> Estimate:
    """The ratio of the sums, its error by linearisation."""
    share, count = float(padded.sum() / positions.sum()), len(padded)
    squares = float(((padded - share * positions) ** 2).sum()) * count / (count - 1)
    half = student(count - 1) * math.sqrt(squares) / float(positions.sum())
    return Estimate(share, max(share - half, 0.0), min(share + half, 1.0))


def _rows(run: Run, epoch: Column, batch: Column) -> npt.NDArray[np.intp]:
    """The row of each batch in the run's steps; UNKNOWN where its step is not known."""
    steps, closed = run.steps, closed_steps(run)
    rows = np.full(len(batch), UNKNOWN, np.intp)
    for number in np.unique(epoch).tolist():
        start, stop = np.searchsorted(steps.epoch, [number, number + 1])
        asked = np.flatnonzero(epoch == number)
        at = start + np.searchsorted(steps.batch[start:stop], batch[asked])
        is_there = at < stop
        asked, at = asked[is_there], at[is_there]
        rows[asked] = np.where((steps.batch[at] == batch[asked]) & closed[at], at, UNKNOWN)
    return rows


def _with_steps(
    figures: PaddingShare, run: Run, rows: npt.NDArray[np.intp], positions: Series
) -> PaddingShare:
    """`figures` with what the steps of these `rows` show; as they are where that is nothing."""
    mean_positions, known = float(positions.mean()), rows != UNKNOWN
    rows, positions, steps = rows[known], positions[known], run.steps
    on_gpu = bool(len(rows)) and (steps.gpu_step_ns[rows] != UNKNOWN).all()
    times_ns = (steps.gpu_step_ns if on_gpu else steps.step_ns)[rows].astype(np.float64)
    arms = [np.flatnonzero(steps.arm[rows] == arm) for arm in range(len(ARMS))]
    few = [arm[:: -(-len(arm) // MOST_POINTS)] for arm in arms if len(arm)]
    each_ns = slope([(positions[arm], times_ns[arm]) for arm in few])
    if each_ns is None or each_ns.low is None or each_ns.high is None or each_ns.low <= 0:
        return figures
    rest_ns = float(np.median(times_ns - each_ns.value * positions))
    padded = figures.share.value * mean_positions
    return replace(
        figures,
        step_ns=max(rest_ns, 0.0) + each_ns.value * mean_positions,
        saved_ns=Estimate(each_ns.value * padded, each_ns.low * padded, each_ns.high * padded),
    )
