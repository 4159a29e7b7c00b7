"""Intervals by formula, against SciPy's and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # it ships no types

from loadeval.analysis.stats import over_pairs, over_runs, precision_of, speedup_of_pairs, student, variance_of_mean

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
    assert found.low == pytest.approx(2.0)
    assert found.high == pytest.approx(2.0)


@pytest.mark.parametrize("count", [1, 2])
def test_under_three_pairs_there_is_no_interval(count: int) -> None:
    """Only a value."""
    found = speedup_of_pairs(np.full(count, 3), np.full(count, 2))
    assert (found.value, found.low, found.high) == (1.5, None, None)
    assert precision_of(np.full(count, 3), np.full(count, 2)) is None


def test_no_time_is_no_speedup() -> None:
    """Neither is no pair at all: not a number, and no error in the middle of training."""
    for real, ideal in (([0, 0, 0], [1, 1, 1]), ([1, 1, 1], [0, 0, 0]), ([], [])):
        assert math.isnan(speedup_of_pairs(np.array(real), np.array(ideal)).value)
    assert precision_of(np.array([]), np.array([])) is None


def test_hopeless_noise_does_not_overflow() -> None:
    """The interval is as good as without bounds."""
    found = speedup_of_pairs(np.array([1e9, 1.0, 1.0]), np.array([1.0, 1e9, 1.0]))
    assert found.high is not None
    assert math.isfinite(found.high)


def test_precision_is_half_the_width() -> None:
    """As a share of the speed-up."""
    real, ideal = np.array([3.0, 5.0, 4.0]), np.array([2.0, 2.0, 2.0])
    found = speedup_of_pairs(real, ideal)
    assert found.low is not None
    assert found.high is not None
    assert precision_of(real, ideal) == pytest.approx((found.high - found.low) / 4)


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
