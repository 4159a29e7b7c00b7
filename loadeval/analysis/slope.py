"""The slope of a series that has noise, steps and outliers in it, with a 95% interval.

The slope is the median of those between any two points (Theil, "A rank-invariant method of linear
and polynomial regression analysis", Indagationes Mathematicae 12, 1950; Sen, "Estimates of the
regression coefficient based on Kendall's tau", Journal of the American Statistical Association
63, 1968). A third of the points may be anywhere without moving it far. The interval is Sen's: the
slopes whose ranks lie within 1.96 standard deviations of Kendall's S around the median.

Where the series begins anew now and then, only pairs of points of one stretch count, and the
variances of S add up, as for the seasons of Hirsch, Slack and Smith ("Techniques of trend analysis
for monthly water quality data", Water Resources Research 18, 1982).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loadeval.analysis.intervals import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

Series = npt.NDArray[np.float64]
Stretch = tuple[Series, Series]
"""Times, which increase, and the values at them."""
COVERED_SIGMAS = 1.96
"""Standard deviations of the normal distribution that hold 95% of it."""


def slope(stretches: Sequence[Stretch]) -> Estimate | None:
    """The common slope of `stretches`, in their values per unit of time.

    None where no stretch has two points; without an interval where they are too few for one.
    """
    slopes = np.sort(np.concatenate([np.empty(0), *(_slopes(*one) for one in stretches)]))
    if not len(slopes):
        return None
    value = float(np.median(slopes))
    half = COVERED_SIGMAS * math.sqrt(sum(_variance(values) for _, values in stretches))
    lowest = math.floor((len(slopes) - half) / 2) - 1
    if lowest < 0:
        return Estimate(value, None, None)
    return Estimate(value, float(slopes[lowest]), float(slopes[len(slopes) - 1 - lowest]))


def _slopes(times: Series, values: Series) -> Series:
    earlier, later = np.triu_indices(len(times), 1)
    return np.asarray((values[later] - values[earlier]) / (times[later] - times[earlier]))


def _variance(values: Series) -> float:
    """Of Kendall's S, of points in no order; less where some are equal."""
    _, ties = np.unique(values, return_counts=True)
    return (_cubic(len(values)) - sum(map(_cubic, ties.tolist()))) / 18


def _cubic(count: int) -> int:
    return count * (count - 1) * (2 * count + 5)
