"""What is drawn of many values."""

from __future__ import annotations

import numpy as np

from loadeval.report.html.thinning import extremes, highest, told


def test_few_values_are_all_drawn() -> None:
    """Up to two for each stretch."""
    assert extremes(np.arange(20), 10).tolist() == list(range(20))


def test_each_stretch_keeps_its_extremes() -> None:
    """The places of the least and of the greatest, in order."""
    values = np.array([5, 1, 9, 5, 5, 5, 7, 0, 3, 3])
    assert extremes(values, 2).tolist() == [1, 2, 6, 7]


def test_no_spike_is_lost() -> None:
    """Wherever it is, in however many values."""
    values = np.random.default_rng(0).integers(100, 200, 123_457)
    spikes = [0, 1, 61_728, 99_999, 123_456]
    values[spikes] = 10_000 + np.arange(5)
    kept = extremes(values, 50)
    assert len(kept) <= 100
    assert (np.diff(kept) > 0).all()
    assert {61_728, 99_999, 123_456} <= set(kept.tolist())
    assert values[kept].max() == values.max()
    assert values[kept].min() == values.min()


def test_the_highest() -> None:
    """The greatest ones, in their order."""
    assert highest(np.array([3, 9, 1, 7]), 2).tolist() == [1, 3]
    assert highest(np.array([3, 9]), 2).tolist() == [0, 1]


def test_thinning_is_told() -> None:
    """Where something was left out."""
    assert told(5, 5, "batches") == ""
    assert told(2_000, 1_000_000, "batches").startswith("Thinned: of 1,000,000 batches, 2,000")
