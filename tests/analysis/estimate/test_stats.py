"""Slopes and rank correlations, against SciPy's and by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # it ships no types

from loadeval.analysis.estimate.stats import (
    Estimate,
    TimeSeries,
    mean_ranks,
    slope,
    spearman,
)
from tests.analysis.numbers import bounds


def points(*values: float) -> TimeSeries:
    return np.arange(len(values), dtype=np.float64), np.array(values)


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(-20, 20)), min_size=5, max_size=40))
def test_it_is_scipys(points: list[tuple[int, int]]) -> None:
    """At any times, also where values are equal; the interval may be wider, by two ranks."""
    gaps, values = np.array(points, dtype=np.float64).T
    times = np.cumsum(gaps)
    estimate = slope([(times, values)])
    expected = stats.theilslopes(values, times, alpha=0.95)
    assert estimate is not None
    assert estimate.value == pytest.approx(expected.slope)
    if estimate.low is None or estimate.high is None:
        return
    slopes = sorted(
        (values[b] - values[a]) / (times[b] - times[a])
        for a, b in combinations(range(len(values)), 2)
    )
    for lower, upper in ((estimate.low, expected.low_slope), (expected.high_slope, estimate.high)):
        assert lower <= upper
        assert sum(lower < slope_of_two < upper for slope_of_two in slopes) <= 1


def test_the_interval_has_the_ranks_of_sen() -> None:
    """Ten points have 45 slopes and Var(S) = 125, so these have rank 11 and 35."""
    values = np.random.default_rng(0).normal(size=10)
    slopes = sorted((values[b] - values[a]) / (b - a) for a, b in combinations(range(10), 2))
    estimate = slope([points(*values)])
    assert bounds(estimate) == pytest.approx((slopes[10], slopes[34]))


def test_the_interval_covers_what_it_says() -> None:
    """The true slope is within it about 19 times in 20."""
    random = np.random.default_rng(1)
    times = np.arange(40.0)
    within = 0
    for _ in range(400):
        estimate = slope([(times, 3 * times + random.standard_t(2, 40))])
        low, high = bounds(estimate)
        within += low <= 3 <= high
    assert 0.92 < within / 400 < 0.98


def test_outliers_do_not_move_it_far() -> None:
    """A fifth of the points may be anywhere."""
    values = 2 * np.arange(50.0)
    values[::5] = 1e6
    estimate = slope([points(*values)])
    assert estimate is not None
    assert estimate.value == pytest.approx(2)


def test_stretches_have_a_slope_in_common() -> None:
    """What lies between one stretch and the next does not matter."""
    stretches = [points(0, 2, 4, 6, 8), points(0, 2, 4, 6, 8), points(100)]
    estimate = slope(stretches)
    assert estimate == Estimate(2, 2, 2)
    assert slope([points(5, 5, 5, 5)]) == Estimate(0, 0, 0)


def test_too_few_points_for_an_interval() -> None:
    """Four points in no order may have any slope."""
    assert slope([points(1, 2, 3, 4)]) == Estimate(1, None, None)


def test_no_two_points() -> None:
    """There is no slope then."""
    assert slope([]) is None
    assert slope([points(1), points(2)]) is None


def test_rank_correlation() -> None:
    """1 for whatever grows together, -1 against each other, 0 for what does not change."""
    grows = np.array([1, 2, 5, 9])
    assert spearman(grows, grows**3) == pytest.approx(1.0)
    assert spearman(grows, -grows) == pytest.approx(-1.0)
    assert spearman(grows, np.ones(4, dtype=np.int64)) == 0.0
    assert spearman(grows[:0], grows[:0]) == 0.0
    assert mean_ranks(np.array([7, 3, 7, 9])).tolist() == [1.5, 0.0, 1.5, 3.0]
