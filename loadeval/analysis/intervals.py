"""How sure a ratio or a difference of two paces is: 95% intervals, without random numbers.

Over pairs: each pair's deviation from the common ratio (or difference) is one observation, and
Student's t over them gives the interval. A percentile bootstrap over so few pairs is too narrow,
and one that is studentised, or corrected for skew, gains nothing for bursty loaders but width.

Over two runs: each run's variance is the one that a moving block bootstrap with blocks of
sqrt(n) batches converges to, which has a closed form; neighbouring batches may depend on each
other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

FEWEST_PAIRS = 3
"""Pairs, or blocks of a run, under which there is no interval."""
FEWEST_PRECISE = 8
"""Before so many pairs, agreement may be chance: a loader's bursts may not have come yet."""
COVERED = 0.95

Series = npt.NDArray[np.float64]
Spread = Callable[[Series, Series], "float | None"]
"""Half the width of the interval of mean(real) - mean(ideal); None where it cannot be had."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95% interval; `low` and `high` are None where none can be had."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """Times of one arm and what they were spent on, one entry a pair or a batch.

    `total_ns` is divided by `amount`, which counts samples or batches.
    """

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


def ratio(real: Pace, ideal: Pace, spread: Spread) -> Estimate:
    """Pace of `real` over that of `ideal`, neither of which may be 0."""
    value = real.mean_ns / ideal.mean_ns
    half = spread(real.deviations() / real.mean_ns, ideal.deviations() / ideal.mean_ns)
    if half is None:
        return Estimate(value, None, None)
    # So wide that exp would overflow is as good as without bounds.
    factor = math.exp(min(half, 700.0))
    return Estimate(value, value / factor, value * factor)


def difference(real: Pace, ideal: Pace, spread: Spread, scale: float = 1.0) -> Estimate:
    """Pace of `real` less that of `ideal`, in nanoseconds for each `scale` samples or batches."""
    value = (real.mean_ns - ideal.mean_ns) * scale
    half = spread(real.deviations() * scale, ideal.deviations() * scale)
    return Estimate(value, *((None, None) if half is None else (value - half, value + half)))


def over_pairs(real: Series, ideal: Series) -> float | None:
    """The Spread of two series, entry i of both being of pair i."""
    if len(real) < FEWEST_PAIRS:
        return None
    return student(len(real) - 1) * float(np.std(real - ideal, ddof=1)) / math.sqrt(len(real))


def over_runs(real: Series, ideal: Series) -> float | None:
    """The Spread of two series that have nothing to do with each other, each in order of time."""
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
    real, ideal = (Pace(times.astype(np.float64), ones) for times in (real_ns, ideal_ns))
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
