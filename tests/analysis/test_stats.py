"""Intervals, slopes, quantiles and rank correlations, against SciPy's and by hand."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # it ships no types

from loadeval.analysis.stats import (
    Estimate,
    TimeSeries,
    mean_ranks,
    over_pairs,
    over_runs,
    precision_of,
    quantiles,
    slope,
    spearman,
    speedup_of_pairs,
    student,
    variance_of_mean,
)
from loadeval.runlog.histogram import bin_counts
from tests.analysis.numbers import bounds

TIMES = st.integers(1, 10**12)


@given(st.integers(1, 10_000))
def test_student_is_scipys(freedom: int) -> None:
    """The quantile of 97.5%, to four digits."""
    assert student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-4)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=3, max_size=40))
def test_speedup_of_pairs_is_the_ratio_of_sums(pairs: list[tuple[int, int]]) -> None:
    """Its logarithm's interval is that of a paired t-test over the deviations from the ratio."""
    real, ideal = np.array(pairs).T
    found = speedup_of_pairs(real, ideal)
    assert found.value == pytest.approx(real.sum() / ideal.sum())
    relative = real / real.mean() - ideal / ideal.mean()
    if np.ptp(relative) > 1e-6:  # SciPy's variance of less is rounding
        half = stats.ttest_1samp(relative, 0).confidence_interval(0.95).high - relative.mean()
        assert found.low == pytest.approx(found.value * math.exp(-half), rel=1e-3)
        assert found.high == pytest.approx(found.value * math.exp(half), rel=1e-3)


def test_what_moves_both_arms_alike_is_no_uncertainty() -> None:
    """A pair at half the pace is as good as any other."""
    found = speedup_of_pairs(np.array([2, 4, 8]), np.array([1, 2, 4]))
    assert bounds(found) == pytest.approx((2.0, 2.0))


@pytest.mark.parametrize("count", [1, 2])
def test_under_three_pairs_there_is_no_interval(count: int) -> None:
    """Only a value."""
    found = speedup_of_pairs(np.full(count, 3), np.full(count, 2))
    assert found == Estimate(1.5, None, None)
    assert precision_of(np.full(count, 3), np.full(count, 2)) is None


def test_no_time_is_no_speedup() -> None:
    """Neither is no pair at all: not a number, and no error in the middle of training."""
    for real, ideal in (([0, 0, 0], [1, 1, 1]), ([1, 1, 1], [0, 0, 0]), ([], [])):
        assert math.isnan(speedup_of_pairs(np.array(real), np.array(ideal)).value)
    assert precision_of(np.array([]), np.array([])) is None


def test_hopeless_noise_does_not_overflow() -> None:
    """The interval is as good as without bounds."""
    found = speedup_of_pairs(np.array([1e9, 1.0, 1.0]), np.array([1.0, 1e9, 1.0]))
    assert math.isfinite(bounds(found)[1])


def test_precision_is_half_the_width() -> None:
    """As a share of the speed-up."""
    real, ideal = np.array([3.0, 5.0, 4.0]), np.array([2.0, 2.0, 2.0])
    found = speedup_of_pairs(real, ideal)
    low, high = bounds(found)
    assert precision_of(real, ideal) == pytest.approx((high - low) / 4)


def test_batches_that_go_together_are_less_sure() -> None:
    """The mean of a slow wave is less certain than that of the same values in any order."""
    wave = np.sin(np.arange(400) / 20)
    shuffled = np.random.default_rng(0).permutation(wave)
    assert variance_of_mean(wave) > 3 * variance_of_mean(shuffled)
    assert variance_of_mean(shuffled) == pytest.approx(wave.var() / 400, rel=0.5)


def test_short_series_have_no_interval() -> None:
    """Under three pairs, under three blocks, or with nothing in one run."""
    assert over_pairs(np.zeros(2), np.zeros(2)) is None
    assert over_runs(np.zeros(0), np.zeros(50)) is None
    assert over_runs(np.zeros(3), np.zeros(50)) is None
    assert over_runs(np.zeros(50), np.zeros(50)) == 0.0


def points(*values: float) -> TimeSeries:
    return np.arange(len(values), dtype=np.float64), np.array(values)


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(-20, 20)), min_size=5, max_size=40))
def test_it_is_scipys(points: list[tuple[int, int]]) -> None:
    """At any times, also where values are equal; the interval may be wider, by two ranks."""
    gaps, values = np.array(points, dtype=np.float64).T
    times = np.cumsum(gaps)
    found = slope([(times, values)])
    expected = stats.theilslopes(values, times, alpha=0.95)
    assert found is not None
    assert found.value == pytest.approx(expected.slope)
    if found.low is None or found.high is None:
        return
    slopes = sorted(
        (values[b] - values[a]) / (times[b] - times[a])
        for a, b in combinations(range(len(values)), 2)
    )
    for lower, upper in ((found.low, expected.low_slope), (expected.high_slope, found.high)):
        assert lower <= upper
        assert sum(lower < one < upper for one in slopes) <= 1


def test_the_interval_has_the_ranks_of_sen() -> None:
    """Of ten points: 45 slopes, Var(S) = 125, so those of rank 11 and 35."""
    values = np.random.default_rng(0).normal(size=10)
    slopes = sorted((values[b] - values[a]) / (b - a) for a, b in combinations(range(10), 2))
    found = slope([points(*values)])
    assert bounds(found) == pytest.approx((slopes[10], slopes[34]))


def test_the_interval_covers_what_it_says() -> None:
    """The true slope is within it about 19 times in 20."""
    random = np.random.default_rng(1)
    times = np.arange(40.0)
    within = 0
    for _ in range(400):
        found = slope([(times, 3 * times + random.standard_t(2, 40))])
        low, high = bounds(found)
        within += low <= 3 <= high
    assert 0.92 < within / 400 < 0.98


def test_outliers_do_not_move_it_far() -> None:
    """A fifth of the points may be anywhere."""
    values = 2 * np.arange(50.0)
    values[::5] = 1e6
    found = slope([points(*values)])
    assert found is not None
    assert found.value == pytest.approx(2)


def test_stretches_have_a_slope_in_common() -> None:
    """Whatever lies between one stretch and the next."""
    stretches = [points(0, 2, 4, 6, 8), points(0, 2, 4, 6, 8), points(100)]
    found = slope(stretches)
    assert found == Estimate(2, 2, 2)
    assert slope([points(5, 5, 5, 5)]) == Estimate(0, 0, 0)


def test_too_few_points_for_an_interval() -> None:
    """Four points in no order may have any slope."""
    assert slope([points(1, 2, 3, 4)]) == Estimate(1, None, None)


def test_no_two_points() -> None:
    """There is no slope then."""
    assert slope([]) is None
    assert slope([points(1), points(2)]) is None


SHARES = (0.0, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


@given(st.lists(st.integers(0, 2**40), min_size=1))
def test_quantiles_of_a_histogram(values: list[int]) -> None:
    """They are where those of the values are, within the width of a bin."""
    expected = np.quantile(values, SHARES)
    assert quantiles(bin_counts(np.array(values)), SHARES) == pytest.approx(expected, rel=1 / 16)


@given(st.lists(st.integers(0, 31), min_size=1))
def test_quantiles_of_small_values_are_exact(values: list[int]) -> None:
    """Up to 31 each value has its own bin."""
    expected = stats.mstats.mquantiles(values, SHARES, alphap=1, betap=1)
    assert quantiles(bin_counts(np.array(values)), SHARES) == pytest.approx(expected)


def test_rank_correlation() -> None:
    """1 for whatever grows together, -1 against each other, 0 for what does not change."""
    grows = np.array([1, 2, 5, 9])
    assert spearman(grows, grows**3) == pytest.approx(1.0)
    assert spearman(grows, -grows) == pytest.approx(-1.0)
    assert spearman(grows, np.ones(4, dtype=np.int64)) == 0.0
    assert spearman(grows[:0], grows[:0]) == 0.0
    assert mean_ranks(np.array([7, 3, 7, 9])).tolist() == [1.5, 0.0, 1.5, 3.0]
