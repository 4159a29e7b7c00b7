"""Shares of the time from what was seen at moments, with intervals that hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from loadeval.analysis.attach.shares import share_of


def test_no_moment_is_no_share() -> None:
    assert share_of([]) is None
    assert share_of([[], []]) is None


def test_few_moments_have_no_interval() -> None:
    share = share_of([[True, False]])
    assert share is not None
    assert (share.value, share.low, share.high) == (0.5, None, None)


@pytest.mark.parametrize("value", [True, False])
def test_moments_that_all_saw_the_same_leave_a_width(value: bool) -> None:
    """Of a hundred, what takes under some 4% of the time may not have been seen."""
    share = share_of([[value] * 100])
    assert share is not None
    assert share.low is not None
    assert share.high is not None
    assert (share.low if value else share.high) == pytest.approx(0.96 if value else 0.04, abs=0.01)
    assert (share.high if value else share.low) == float(value)


def test_moments_that_could_not_be_read_widen_it_to_both_sides() -> None:
    known, partly = share_of([[True, False] * 50]), share_of([[True, False] * 50], failed=25)
    assert known is not None
    assert partly is not None
    assert known.low is not None
    assert known.high is not None
    assert partly.low == pytest.approx(known.low * 0.8)
    assert partly.high == pytest.approx(known.high * 0.8 + 0.2)


def test_dependent_moments_count_for_fewer() -> None:
    """Ten of each in turn are few states, however often they were seen."""
    dependent = share_of([[True] * 20 + [False] * 20 + [True] * 20 + [False] * 20])
    independent = share_of([(np.random.default_rng(1).random(80) < 0.5).tolist()])
    assert dependent is not None
    assert independent is not None
    assert dependent.low is not None
    assert independent.low is not None
    assert dependent.value - dependent.low > 1.5 * (independent.value - independent.low)


def test_parts_do_not_follow_on_one_another() -> None:
    """A share is of all of them."""
    share = share_of([[True] * 10, [False] * 30])
    assert share is not None
    assert share.value == 0.25


@pytest.mark.parametrize(("wait_s", "step_s"), [(0.04, 0.02), (0.002, 0.098), (0.5, 0.5)])
def test_the_interval_holds_the_share_of_a_training(wait_s: float, step_s: float) -> None:
    """In 19 of 20 runs at least; moments are those of a Poisson process, ten a second for 20 s."""
    random, true = np.random.default_rng(0), wait_s / (wait_s + step_s)
    held = 0
    for _ in range(200):
        moments = np.cumsum(random.exponential(0.1, 200)) + random.uniform(0, 10)
        share = share_of([((moments % (wait_s + step_s)) < wait_s).tolist()])
        assert share is not None
        assert share.low is not None
        assert share.high is not None
        held += share.low <= true <= share.high
    assert held >= 190
