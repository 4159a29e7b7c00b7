"""Statistics: slopes with their intervals, rank correlation.

Slopes: the median of the slopes between any two points (Theil, "A rank-invariant method of linear
and polynomial regression analysis", Indagationes Mathematicae 12, 1950; Sen, "Estimates of the
regression coefficient based on Kendall's tau", Journal of the American Statistical Association
63, 1968). Up to a third of the points may be outliers. The interval is Sen's: the slopes whose
ranks lie within 1.96 standard deviations of Kendall's S around the median. Only pairs of points
within one series count, and the variances of S add up, as for the seasons of Hirsch, Slack and
Smith ("Techniques of trend analysis for monthly water quality data", Water Resources Research 18,
1982).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.data.columns import Column

COVERED_SIGMAS = 1.96
"""Standard deviations of the normal distribution that hold 95% of it."""

Series = npt.NDArray[np.float64]
TimeSeries = tuple[Series, Series]
"""Times, which increase, and the values at them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95% interval; `low` and `high` are None where none can be had."""

    value: float
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> Estimate:
        """The estimate of `factor` times what this is of; `factor` is above 0."""
        bounds = (None if bound is None else bound * factor for bound in (self.low, self.high))
        return Estimate(self.value * factor, *bounds)


def slope(parts: Sequence[TimeSeries]) -> Estimate | None:
    """The common slope of `parts`, in their values per unit of time.

    None where no part has two points; without an interval where they are too few for one.
    """
    slopes = np.sort(np.concatenate([np.empty(0), *(_slopes(*part) for part in parts)]))
    if not len(slopes):
        return None
    value = float(np.median(slopes))
    half = COVERED_SIGMAS * math.sqrt(sum(_variance(values) for _, values in parts))
    lowest = math.floor((len(slopes) - half) / 2) - 1
    if lowest < 0:
        return Estimate(value, None, None)
    return Estimate(value, float(slopes[lowest]), float(slopes[len(slopes) - 1 - lowest]))


def _slopes(times: Series, values: Series) -> Series:
    earlier, later = np.triu_indices(len(times), 1)
    passed = times[later] - times[earlier]
    known = passed != 0  # a line that is there twice
    return np.asarray((values[later] - values[earlier])[known] / passed[known])


def _variance(values: Series) -> float:
    """The variance of Kendall's S for points in no order; it is less where some are equal."""
    _, ties = np.unique(values, return_counts=True)
    return (_cubic(len(values)) - sum(map(_cubic, ties.tolist()))) / 18


def _cubic(count: int) -> int:
    return count * (count - 1) * (2 * count + 5)


def spearman(x: Column, y: Column) -> float:
    """The rank correlation, ties having their mean rank; 0.0 where either is constant."""
    x_ranks, y_ranks = (mean_ranks(column) - (len(column) - 1) / 2 for column in (x, y))
    scale = math.sqrt(float((x_ranks**2).sum()) * float((y_ranks**2).sum()))
    return float((x_ranks * y_ranks).sum()) / scale if scale else 0.0


def mean_ranks(column: Column) -> npt.NDArray[np.float64]:
    """Each value's rank from 0; equal values share their mean rank."""
    _, which, counts = np.unique(column, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: npt.NDArray[np.float64] = ((last - counts) + (last - 1))[which] / 2
    return ranks
