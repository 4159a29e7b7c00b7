"""Statistics: 95% intervals of ratios and differences, slopes, quantiles, rank correlation.

No random numbers are drawn.

Intervals over pairs: each pair's deviation from the common ratio (or difference) is one
observation, and Student's t over them gives the interval. A percentile bootstrap over so few pairs
is too narrow; a studentised or skew-corrected one only widens the interval for bursty loaders.

Intervals over two runs: each run's variance is the one that a moving block bootstrap with blocks of
sqrt(n) batches converges to, which has a closed form; neighbouring batches may depend on each
other.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loadeval.runlog.histogram import BINS, greatest_of, least_of

if TYPE_CHECKING:
    from loadeval.runlog.model import Column

FEWEST_PAIRS = 3
"""With fewer pairs, or blocks of a run, there is no interval."""
FEWEST_PRECISE = 8
"""With fewer pairs, agreement may be chance: a loader's bursts may not have come yet."""
COVERED = 0.95
COVERED_SIGMAS = 1.96
"""Standard deviations of the normal distribution that hold 95% of it."""

Series = npt.NDArray[np.float64]
TimeSeries = tuple[Series, Series]
"""Times, which increase, and the values at them."""
HalfWidth = Callable[[Series, Series], "float | None"]
"""Half the width of the interval of mean(real) - mean(ideal); None where there is none."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95% interval; `low` and `high` are None where none can be had."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, eq=False)
class MeanTime:
    """Mean time per sample or batch: `total_ns` by `amount`, an entry for each pair or batch."""

    total_ns: Series
    amount: Series

    @property
    def mean_ns(self) -> float:
        """Time per sample or batch: the ratio of the sums."""
        return float(self.total_ns.sum() / self.amount.sum())

    def deviations(self) -> Series:
        """What each entry adds to the error of `mean_ns`, to first order; their mean is 0."""
        return np.asarray(
            (self.total_ns - self.mean_ns * self.amount) / self.amount.mean(), dtype=np.float64
        )


def ratio(real: MeanTime, ideal: MeanTime, half_width: HalfWidth) -> Estimate:
    """Time of `real` over that of `ideal`, neither of which may be 0."""
    value = real.mean_ns / ideal.mean_ns
    half = half_width(real.deviations() / real.mean_ns, ideal.deviations() / ideal.mean_ns)
    if half is None:
        return Estimate(value, None, None)
    # So wide that exp would overflow is as good as without bounds.
    factor = math.exp(min(half, 700.0))
    return Estimate(value, value / factor, value * factor)


def difference(
    real: MeanTime, ideal: MeanTime, half_width: HalfWidth, scale: float = 1.0
) -> Estimate:
    """Time of `real` less that of `ideal`, in nanoseconds for each `scale` samples or batches."""
    value = (real.mean_ns - ideal.mean_ns) * scale
    half = half_width(real.deviations() * scale, ideal.deviations() * scale)
    return Estimate(value, *((None, None) if half is None else (value - half, value + half)))


def over_pairs(real: Series, ideal: Series) -> float | None:
    """The HalfWidth of two series, entry i of both being of pair i."""
    if len(real) < FEWEST_PAIRS:
        return None
    return student(len(real) - 1) * float(np.std(real - ideal, ddof=1)) / math.sqrt(len(real))


def over_runs(real: Series, ideal: Series) -> float | None:
    """The HalfWidth of two independent series, each in order of time."""
    blocks = min(len(side) // _block_length(side) if len(side) else 0 for side in (real, ideal))
    if blocks < FEWEST_PAIRS:
        return None
    return student(blocks - 1) * math.sqrt(variance_of_mean(real) + variance_of_mean(ideal))


def variance_of_mean(series: Series) -> float:
    """The variance of the mean of a `series` whose neighbours may depend on each other."""
    length = _block_length(series)
    sums = np.cumsum(np.concatenate([[0.0], series - series.mean()]))
    means = (sums[length:] - sums[:-length]) / length
    blocks = len(series) // length
    return float(np.mean(means**2)) * length / len(series) * blocks / max(blocks - 1, 1)


def speedup_of_pairs(
    real_ns: npt.NDArray[np.generic], ideal_ns: npt.NDArray[np.generic]
) -> Estimate:
    """The speed-up over pairs of equally large blocks: the ratio of the sums of their times.

    No interval under three pairs; not a number where either arm took no time.
    """
    if not real_ns.sum() or not ideal_ns.sum():
        return Estimate(math.nan, None, None)
    ones = np.ones(len(real_ns))
    real, ideal = (MeanTime(times.astype(np.float64), ones) for times in (real_ns, ideal_ns))
    return ratio(real, ideal, over_pairs)


def precision_of(
    real_ns: npt.NDArray[np.generic], ideal_ns: npt.NDArray[np.generic]
) -> float | None:
    """Half the width of the interval of `speedup_of_pairs`, as a share of the speed-up.

    None where there is no interval.
    """
    speedup = speedup_of_pairs(real_ns, ideal_ns)
    if speedup.low is None or speedup.high is None:
        return None
    return (speedup.high - speedup.low) / 2 / speedup.value


def is_precise(wanted: float, real_ns: Sequence[float], ideal_ns: Sequence[float]) -> bool:
    """Whether `precision_of` pairs of mean iterations is under `wanted`, and they are no few."""
    if len(real_ns) < FEWEST_PRECISE:
        return False
    precision = precision_of(np.array(real_ns), np.array(ideal_ns))
    return precision is not None and precision < wanted


@lru_cache(maxsize=256)
def student(freedom: int) -> float:
    """The bound that Student's t of so many degrees of freedom stays within, with 95%.

    With t = sqrt(freedom) tan(a) the density over a is cos(a) ** (freedom - 1).
    """
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (freedom - 1)
    within = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    angle = float(np.interp(COVERED, within / within[-1], angles))
    return math.sqrt(freedom) * math.tan(angle)


def _block_length(series: Series) -> int:
    return max(1, round(math.sqrt(len(series))))


def slope(parts: Sequence[TimeSeries]) -> Estimate | None:
    """The common slope of `parts`, in their values per unit of time.

    None where no part has two points; without an interval where they are too few for one.
    """
    slopes = np.sort(np.concatenate([np.empty(0), *(_slopes(*one) for one in parts)]))
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
    return np.asarray((values[later] - values[earlier]) / (times[later] - times[earlier]))


def _variance(values: Series) -> float:
    """Of Kendall's S, of points in no order; less where some are equal."""
    _, ties = np.unique(values, return_counts=True)
    return (_cubic(len(values)) - sum(map(_cubic, ties.tolist()))) / 18


def _cubic(count: int) -> int:
    return count * (count - 1) * (2 * count + 5)


def quantiles(counts: Column, shares: Sequence[float]) -> npt.NDArray[np.float64]:
    """The quantiles, for `shares` from 0 to 1, of at least one value; `counts` is of all BINS.

    As `np.quantile` has them, between the two values that are next to each place, except that a
    value is taken to lie in its bin as if the values there were spread evenly.
    """
    places = np.asarray(shares) * (counts.sum() - 1)
    below = np.floor(places).astype(np.int64)
    lower, upper = (
        _ranked_values(counts, below),
        _ranked_values(counts, np.ceil(places).astype(np.int64)),
    )
    found: npt.NDArray[np.float64] = lower + (upper - lower) * (places - below)
    return found


def _ranked_values(counts: Column, ranks: Column) -> npt.NDArray[np.float64]:
    """About the values of these `ranks`, from 0, in ascending order."""
    upto = np.cumsum(counts)
    bins = np.searchsorted(upto, ranks, side="right")
    within = (ranks - (upto - counts)[bins] + 0.5) / counts[bins]
    every = np.arange(BINS)
    least, greatest = least_of(every)[bins], greatest_of(every)[bins]
    return np.asarray(least + within * (greatest - least), dtype=np.float64)


def spearman(one: Column, other: Column) -> float:
    """The rank correlation, ties having their mean rank; 0.0 where either is constant."""
    first, second = (mean_ranks(column) - (len(column) - 1) / 2 for column in (one, other))
    scale = math.sqrt(float((first**2).sum()) * float((second**2).sum()))
    return float((first * second).sum()) / scale if scale else 0.0


def mean_ranks(column: Column) -> npt.NDArray[np.float64]:
    """Each value's rank from 0; equal values share their mean rank."""
    _, which, counts = np.unique(column, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: npt.NDArray[np.float64] = ((last - counts) + (last - 1))[which] / 2
    return ranks
