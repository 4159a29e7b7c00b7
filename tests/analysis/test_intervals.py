"""Intervals by formula, against the tables and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loadeval.analysis.intervals import (
    over_pairs,
    over_runs,
    precision_of,
    speedup_of_pairs,
    student,
    variance_of_mean,
)


@pytest.mark.parametrize(
    ("freedom", "bound"),
    [(1, 12.7062), (2, 4.3027), (5, 2.5706), (11, 2.2010), (30, 2.0423), (1000, 1.9623)],
)
def test_student_is_as_in_the_tables(freedom: int, bound: float) -> None:
    """To four decimals."""
    assert student(freedom) == pytest.approx(bound, abs=2e-4)


def test_speedup_of_pairs_is_the_ratio_of_sums() -> None:
    """And the interval is around it, the same each time."""
    real, ideal = np.array([3.0, 5.0, 4.0]), np.array([2.0, 2.0, 2.0])
    found = speedup_of_pairs(real, ideal)
    assert found.value == pytest.approx(2.0)
    half = student(2) * np.std([0.75, 1.25, 1.0], ddof=1) / math.sqrt(3)
    assert found.low == pytest.approx(2 * math.exp(-half))
    assert found.high == pytest.approx(2 * math.exp(half))
    assert found == speedup_of_pairs(real, ideal)


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
