"""Estimates are calculated with, and their intervals with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats as reference

from loadeval.data.columns import Columns
from loadeval.estimate.stats import Estimate, jackknife, slope, spearman

TEN = Estimate(10.0, 9.0, 12.0)
FIVE = Estimate(5.0, 4.0, 5.5)


def bounds(estimate: Any) -> Any:
    return estimate.value, estimate.low, estimate.high


def test_errors_of_a_sum_add_up_by_their_squares() -> None:
    assert bounds(TEN + FIVE) == pytest.approx((15, 15 - 2**0.5, 15 + 4.25**0.5))
    assert bounds(TEN - FIVE) == pytest.approx((5, 5 - 1.25**0.5, 5 + 5**0.5))


def test_a_number_is_known_exactly() -> None:
    assert bounds(TEN + 1) == pytest.approx((11.0, 10.0, 13.0))
    assert bounds(20 - TEN) == pytest.approx((10.0, 8.0, 11.0))
    assert bounds(TEN * -2) == pytest.approx((-20.0, -24.0, -18.0))
    assert bounds(TEN / 2) == pytest.approx((5.0, 4.5, 6.0))
    assert bounds(36 / TEN) == pytest.approx((3.6, 3.0, 4.0))


def test_the_relative_errors_of_a_quotient_add_up_by_their_squares() -> None:
    low = np.exp(-np.hypot(np.log(10 / 9), np.log(5.5 / 5)))
    high = np.exp(np.hypot(np.log(12 / 10), np.log(5 / 4)))
    assert bounds(TEN / FIVE) == pytest.approx((2, 2 * low, 2 * high))
    assert bounds(TEN * FIVE)[0] == 50


def test_what_may_be_negative_has_quotients_too() -> None:
    difference = Estimate(1.0, -1.0, 3.0)
    value, low, high = bounds(difference / FIVE)
    assert value == 0.2
    assert low < 0 < high
    assert bounds(difference / Estimate(-1.0, -1.0, -1.0)) == pytest.approx((-1.0, -3.0, 1.0))


@pytest.mark.parametrize("bare", [Estimate(2.0) + TEN, TEN * Estimate(2.0), TEN / Estimate(2.0)])
def test_without_an_interval_there_is_none_of_the_result(bare: Estimate) -> None:
    assert (bare.low, bare.high) == (None, None)


def mean(pairs: list[list[float]]) -> Estimate:
    """The mean of times in pairs, each as many batches."""
    table = Columns(
        {
            "times": np.concatenate(pairs),
            "batches": np.ones(sum(map(len, pairs))),
            "block": np.repeat(np.arange(len(pairs)), list(map(len, pairs))),
        }
    )
    return jackknife(
        lambda tables: {"mean": float(tables["all"].times.sum() / tables["all"].batches.sum())},
        {"all": table},
        [("all",)],
    )["mean"]


def test_from_six_pairs_on_it_is_students_t_over_their_means() -> None:
    pairs = np.random.default_rng(0).normal(10, 2, (7, 8))
    means = pairs.mean(axis=1)
    half = reference.t.ppf(0.975, 6) * means.std(ddof=1) / 7**0.5
    assert bounds(mean(pairs.tolist())) == pytest.approx(
        (means.mean(), means.mean() - half, means.mean() + half), rel=1e-4
    )


def test_fewer_pairs_are_divided() -> None:
    """Two that agree leave it to their parts; what they differ by counts as of six such pairs."""
    alike = [[8, 12, 8, 12, 9, 11], [11, 9, 12, 8, 12, 8]]
    unlike = [[10.0] * 6, [13.0] * 6]
    value, low, high = bounds(mean(alike))
    assert value == 10
    assert high - low < 2
    half = reference.t.ppf(0.975, 5) * np.std([10, 13], ddof=1) / 6**0.5
    assert bounds(mean(unlike)) == pytest.approx((11.5, 11.5 - half, 11.5 + half), rel=1e-4)


def test_the_slope_is_robust() -> None:
    times = np.arange(30.0)
    values = 2 * times + np.random.default_rng(0).normal(0, 0.1, 30)
    values[::5] += 100
    value, low, high = bounds(slope([(times, values)]))
    assert value == pytest.approx(2, abs=0.2)
    assert low < 2 < high
    assert slope([(times[:1], values[:1])]) is None
    assert slope([(times[:2], times[:2])]) == Estimate(1.0)


def test_rank_correlation_is_that_of_scipy() -> None:
    x, y = np.random.default_rng(0).integers(0, 9, (2, 40))
    assert spearman(x, y) == pytest.approx(reference.spearmanr(x, y).statistic)
    assert spearman(x, np.ones(40, np.int64)) == 0.0
