"""95% intervals of ratios and differences of mean times, and of one mean time.

No random numbers are drawn.

The error of a mean of times in order: overlapping batch means (Meketon and Schmeiser, "Overlapping
batch means: something for nothing?", Winter Simulation Conference 1984) over windows of a seventh
of the series, which leaves six degrees of freedom for Student's t. Neighbours may depend on each
other. Where they do visibly, the error is that of an AR(1) process with their correlation, if it
is the larger: with few times, windows of a seventh miss much of a long memory.

The two arms of an alternating run are compared place by place: each real time stands beside the
ideal iteration at its place in the run, interpolated between the means of the ideal blocks around
it, and the differences are the series. Drift slower than a pair of blocks is gone from it, and so
is what it would do where blocks are of unequal length. Errors of separate series add up, with
degrees of freedom after Satterthwaite ("An approximate distribution of estimates of variance
components", Biometrics Bulletin 2, 1946). Where pairs differ by more than their batches explain,
they are the observations, with Student's t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loadeval.analysis.estimate.stats import Estimate

if TYPE_CHECKING:
    from loadeval.analysis.estimate.stats import Series
    from loadeval.data.columns import Column

FEWEST_PAIRS = 2
"""With fewer pairs there is no interval. The second has its arms in the reversed order."""
FEWEST_TIMES = 8
"""With fewer times in a series there is no interval."""
WINDOWS = 7
"""Into how many windows a series is divided; each may begin anywhere in it."""
MOST_SHORTFALL = 0.5
"""The variance of a series with a long memory is corrected by this share at most."""
UNLIKE = 1.7
"""How many times the expected variance of the pairs tells that they differ.

The windows see a part of such differences, so more would be seldom reached.
"""
LEAST_WEIGHT = 1e-9
"""It stands for no weight, so that nothing is divided by zero."""
MOST_FREEDOM = 200.0
COVERED = 0.95


@dataclass(frozen=True, slots=True)
class MeanError:
    """The variance of a mean, and the degrees of freedom with which it was estimated."""

    variance: float
    freedom: float

    @property
    def half_width(self) -> float:
        """Half the width of the 95% interval."""
        return student(round(self.freedom, 2)) * math.sqrt(self.variance)


def sum_of_errors(*errors: MeanError | None) -> MeanError | None:
    """The error of a sum of independent means; None where one of them has none."""
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return None
    variance = sum(error.variance for error in known)
    freedom = sum(error.variance**2 / error.freedom for error in known)
    ratio = variance**2 / freedom if freedom else MOST_FREEDOM
    return MeanError(variance, min(max(ratio, 1.0), MOST_FREEDOM))


@dataclass(frozen=True, slots=True, eq=False)
class BySize:
    """The slope of times over sizes, and what each batch of the run adds to the mean size."""

    slope: float
    deviations: Series


@dataclass(frozen=True, slots=True, eq=False)
class AllWaits:
    """The part of the waits that is known of more batches than those measured.

    `within_ns` has an entry for each that was measured, `all_ns` for each batch of the run, and
    `level` the ideal iteration at its place, relative to the mean. `known_error` is that of the
    mean of `all_ns`, where it does not come from these.
    """

    within_ns: Series
    all_ns: Series
    level: Series
    known_error: MeanError | None = None

    @classmethod
    def of_run(cls, wait_ns: Series) -> AllWaits:
        """The waits of a run by itself."""
        return cls(wait_ns, wait_ns, np.ones(len(wait_ns)))


@dataclass(frozen=True, slots=True, eq=False)
class MeanTime:
    """Mean time per sample or batch: `total_ns` by `amount`, in order, an entry for each batch.

    In an alternating run `pair` numbers the pair of each, and `place` is where in the run it comes.
    The waits of `all_waits` are part of `total_ns`. With `by_size` these are as if all batches had
    the mean size.
    """

    total_ns: Series
    amount: Series
    pair: Column | None = None
    place: Series | None = None
    all_waits: AllWaits | None = None
    by_size: BySize | None = None

    @property
    def mean_ns(self) -> float:
        """Time per sample or batch: the ratio of the sums, with the mean wait of all batches."""
        return (self._rest_ns + self._waits_ns) / float(self.amount.sum())

    @property
    def _rest_ns(self) -> float:
        within_ns = 0.0 if self.all_waits is None else float(self.all_waits.within_ns.sum())
        return float(self.total_ns.sum()) - within_ns

    @property
    def _waits_ns(self) -> float:
        if self.all_waits is None:
            return 0.0
        return len(self.amount) * float(self.all_waits.all_ns.mean())

    @property
    def share_of_rest(self) -> float:
        """The part of `mean_ns` that is not from `all_waits`."""
        total_ns = self._rest_ns + self._waits_ns
        return self._rest_ns / total_ns if total_ns else 1.0

    def deviations(self) -> Series:
        """What each entry adds to the error of `mean_ns`, besides `all_waits`; their mean is 0."""
        total_ns = self.total_ns - (0.0 if self.all_waits is None else self.all_waits.within_ns)
        mean_ns = total_ns.sum() / self.amount.sum()
        return np.asarray((total_ns - mean_ns * self.amount) / self.amount.mean())

    def error(self, scale: float = 1.0) -> MeanError | None:
        """The error of `scale` times `mean_ns`."""
        error = error_of_mean(scale * self.deviations(), self.pair)
        return sum_of_errors(error, *self.error_of_waits(scale))

    def error_of_waits(self, scale: float) -> tuple[MeanError | None, ...]:
        """The error of `scale` times the mean of `all_waits`, where there are some."""
        if self.all_waits is None:
            return ()
        all_ns, known = self.all_waits.all_ns, self.all_waits.known_error
        scale /= float(self.amount.mean())
        if known is not None:
            return (MeanError(known.variance * scale**2, known.freedom),)
        return (error_of_mean(scale * (all_ns - all_ns.mean() * self.all_waits.level)),)

    def reweighted_to(self, real: MeanTime) -> MeanTime:
        """The same, each block weighing as much as interpolation at the places of `real` asks."""
        if self.place is None or real.place is None:
            return self
        _, index = np.unique(_known(self.pair), return_inverse=True)
        left, right, part = _around(real.place, self._centres())
        blocks = int(index.max(initial=-1)) + 1
        wanted = np.bincount(left, real.amount * (1 - part), blocks)
        wanted += np.bincount(right, real.amount * part, blocks)
        weight = (np.maximum(wanted, LEAST_WEIGHT) / np.bincount(index, self.amount))[index]
        return replace(self, total_ns=self.total_ns * weight, amount=self.amount * weight)

    def at(self, place: Series) -> Series:
        """The mean of the blocks around each place, interpolated."""
        _, index = np.unique(_known(self.pair), return_inverse=True)
        means_ns = np.bincount(index, self.total_ns) / np.bincount(index, self.amount)
        return _interpolated(means_ns, place, self._centres())

    def within_blocks(self, values: Series) -> Series:
        """`values` of the entries without the mean, for each amount, of the block of each."""
        _, index = np.unique(_known(self.pair), return_inverse=True)
        means = np.bincount(index, values) / np.bincount(index, self.amount)
        return np.asarray(values - means[index] * self.amount)

    @property
    def places(self) -> Series:
        """Where in the run each entry comes."""
        return np.asarray(_known(self.place))

    def _centres(self) -> Series:
        _, index = np.unique(_known(self.pair), return_inverse=True)
        return np.asarray(np.bincount(index, _known(self.place)) / np.bincount(index))


def _known(column: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    if column is None:
        raise TypeError("these are not the times of an alternating run")
    return column


def _around(place: Series, centres: Series) -> tuple[Column, Column, Series]:
    """The centres before and after each place, and how far it is to the second, 0 to 1."""
    last = len(centres) - 1
    right = np.clip(np.searchsorted(centres, place), min(1, last), last)
    left = np.maximum(right - 1, 0)
    apart = np.maximum(centres[right] - centres[left], LEAST_WEIGHT)
    return left, right, np.clip((place - centres[left]) / apart, 0.0, 1.0)


def _interpolated(values: Series, place: Series, centres: Series) -> Series:
    left, right, part = _around(place, centres)
    return np.asarray(values[left] * (1 - part) + values[right] * part)


def ratio(real: MeanTime, ideal: MeanTime) -> Estimate:
    """Time of `real` over that of `ideal`, neither of which may be 0."""
    ideal = ideal.reweighted_to(real)
    real_ns, ideal_ns = real.mean_ns, ideal.mean_ns
    error = error_of_difference(real, ideal, 1 / real_ns, 1 / ideal_ns)
    return ratio_interval(real_ns / ideal_ns, error)


def ratio_interval(value: float, error: MeanError | None) -> Estimate:
    """`value` with its interval, where `error` is that of its logarithm."""
    if error is None:
        return Estimate(value)
    # An interval so wide that exp would overflow is as good as one without bounds.
    factor = math.exp(min(error.half_width, 700.0))
    return Estimate(value, value / factor, value * factor)


def ratio_of(one: Estimate, other: Estimate) -> Estimate:
    """`one` over `other`, which are independent; without an interval where `other` may be 0.

    From their intervals, which need not be symmetric, by MOVER-R (Donner and Zou, "Closed-form
    confidence intervals for functions of the normal mean and standard deviation", Statistical
    Methods in Medical Research 21, 2012). Where they are, it is that of Fieller's theorem. Raises
    ZeroDivisionError where `other` is 0.
    """
    value = one.value / other.value
    if None in (one.low, one.high, other.low, other.high):
        return Estimate(value)
    product = one.value * other.value
    below, above = (_square_less(one, bound) for bound in (one.low, one.high))
    above_other, below_other = (_square_less(other, bound) for bound in (other.high, other.low))
    if not (above_other > 0 and below_other > 0):
        return Estimate(value)
    return Estimate(
        value,
        (product - math.sqrt(product**2 - below * above_other)) / above_other,
        (product + math.sqrt(product**2 - above * below_other)) / below_other,
    )


def _square_less(estimate: Estimate, bound: float | None) -> float:
    """The square of the value less that of its distance from `bound`."""
    return estimate.value**2 - (estimate.value - (bound or 0.0)) ** 2


def difference(real: MeanTime, ideal: MeanTime, scale: float = 1.0) -> Estimate:
    """Time of `real` less that of `ideal`, in nanoseconds for each `scale` samples or batches."""
    ideal = ideal.reweighted_to(real)
    value = (real.mean_ns - ideal.mean_ns) * scale
    return around(value, error_of_difference(real, ideal, scale, scale))


def around(value: float, error: MeanError | None) -> Estimate:
    """`value` with its interval."""
    if error is None:
        return Estimate(value)
    return Estimate(value, value - error.half_width, value + error.half_width)


def error_of_difference(
    real: MeanTime, ideal: MeanTime, real_scale: float, ideal_scale: float
) -> MeanError | None:
    """The error of `real_scale` times one mean less `ideal_scale` times another.

    Place by place where both have theirs; `ideal` is then weighted as `beside` does.
    """
    if real.place is None or ideal.place is None:
        return sum_of_errors(real.error(real_scale), ideal.error(ideal_scale))
    pairs, index = np.unique(_known(ideal.pair), return_inverse=True)
    if len(pairs) < FEWEST_PAIRS:
        return None
    amount, counts = np.bincount(index, ideal.amount), np.bincount(index)
    deviations = ideal_scale * (ideal.total_ns - ideal.mean_ns * ideal.amount)
    level = np.bincount(index, deviations) / amount
    within = deviations - level[index] * ideal.amount
    of_means = np.bincount(index, within**2) / np.maximum(counts - 1, 1) * counts / amount**2
    noise = float(((amount / amount.sum()) ** 2 * of_means).sum())
    beside = replace(ideal, total_ns=deviations).at(real.place)
    rest = real.share_of_rest
    series = real_scale * real.deviations() - beside * (rest * real.amount / real.amount.mean())
    # A window that is shorter than a block sees little of the noise of the ideal block's mean; and
    # that noise is the same in the waits.
    missed = 1 - _seen(_window(len(series)), len(series) / len(pairs))
    unseen = noise * (missed * rest**2 + 2 * rest * (1 - rest))
    return sum_of_errors(
        _error_in_pairs(series, real.pair, unseen),
        *real.error_of_waits(real_scale),
        *_error_of_size(real.by_size, ideal.by_size, real_scale, ideal_scale),
    )


def _error_of_size(
    real: BySize | None, ideal: BySize | None, real_scale: float, ideal_scale: float
) -> tuple[MeanError | None, ...]:
    """What the mean size's error makes of the difference, where the arms follow it differently."""
    if real is None or ideal is None:
        return ()
    slope = real_scale * real.slope - ideal_scale * ideal.slope
    return (error_of_mean(slope * real.deviations),)


def _error_in_pairs(series: Series, pair: Column | None, unseen: float) -> MeanError | None:
    """The error of the mean of a `series` in pairs, of whose variance windows leave some `unseen`.

    By windows; or over the pairs, where these differ by more than windows explain, and where
    neighbours are so alike that the pairs tell more: these are further apart.
    """
    if len(series) < FEWEST_TIMES:
        return None
    _, index = np.unique(_known(pair), return_inverse=True)
    sums, pairs = np.bincount(index, series - series.mean()), int(index.max()) + 1
    variance = float((sums**2).sum()) / len(series) ** 2 * pairs / (pairs - 1)
    over_pairs = MeanError(variance, pairs - 1)
    windows, memory = _error_by_windows(series), _error_by_memory(series, pair)
    windows = MeanError(windows.variance + unseen, windows.freedom)
    if over_pairs.variance > UNLIKE * windows.variance:
        return over_pairs
    if memory is None:
        return windows
    by_width = {error.half_width: error for error in (windows, memory, over_pairs)}
    return by_width[max(windows.half_width, min(memory.half_width, over_pairs.half_width))]


def _seen(window: int, block: float) -> float:
    """The share of the variance of independent blocks that windows see in means over them."""
    if window >= block:
        return 1 - block / (3 * window)
    return window / block * (1 - window / (3 * block))


def error_of_mean(series: Series, part: Column | None = None) -> MeanError | None:
    """The error of the mean of a `series` in order, whose neighbours may depend on each other.

    Those of different parts do not follow on one another. None where it is too short.
    """
    if len(series) < FEWEST_TIMES:
        return None
    windows, memory = _error_by_windows(series), _error_by_memory(series, part)
    return windows if memory is None else max(windows, memory, key=lambda error: error.half_width)


def _error_by_windows(series: Series) -> MeanError:
    length = _window(len(series))
    sums = np.cumsum(np.concatenate([[0.0], series - series.mean()]))
    means = (sums[length:] - sums[:-length]) / length
    freedom = len(series) / length - 1
    return MeanError(float(np.mean(means**2)) / freedom, freedom)


def _error_by_memory(series: Series, part: Column | None) -> MeanError | None:
    """The error of an AR(1) process; None where neighbours are not visibly alike."""
    count, deviations = len(series), series - series.mean()
    follows = slice(None) if part is None else part[1:] == part[:-1]
    squares = float((deviations**2).sum()) or 1.0
    correlation = float((deviations[1:] * deviations[:-1])[follows].sum()) / squares
    if correlation <= 2 / math.sqrt(count):
        return None
    # It comes out too small by about this much (Marriott and Pope, Biometrika 41, 1954), and so
    # does the variance: by memory / count around a mean that moves along, and by as much again
    # because the memory is known from these few times alone.
    correlation = min(correlation + (1 + 3 * correlation) / count, 0.99)
    memory = (1 + correlation) / (1 - correlation)
    shortfall = min(2 * memory / count, MOST_SHORTFALL)
    variance = squares / (count - 1) / count * memory / (1 - shortfall)
    return MeanError(variance, max(count / memory - 1, 1.5))


def _window(count: int) -> int:
    return max(1, round(count / WINDOWS))


@lru_cache(maxsize=256)
def student(freedom: float) -> float:
    """The bound that Student's t of so many degrees of freedom stays within, with 95%.

    With t = sqrt(freedom) tan(a) the density over a is cos(a) ** (freedom - 1).
    """
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (freedom - 1)
    within = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    angle = float(np.interp(COVERED, within / within[-1], angles))
    return math.sqrt(freedom) * math.tan(angle)
