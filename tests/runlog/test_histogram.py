"""The bins of a histogram: exact where that is cheap, and never wide."""

from __future__ import annotations

import numpy as np

from loadeval.runlog.histogram import BINS, PARTS, bin_counts, bin_of, dense, greatest_of, least_of
from loadeval.runlog.log_file.fields import LARGEST


def edges() -> list[int]:
    """Values around each power of two that a column can hold."""
    near = [2**power + more for power in range(62) for more in (-1, 0, 1)]
    return sorted({value for value in near if 0 <= value <= LARGEST})


def test_each_value_is_within_its_bin() -> None:
    """The least and the greatest value of each bin are in it, also the largest that a log holds."""
    values = np.array([*edges(), *np.random.default_rng(0).integers(0, LARGEST, 1000)])
    bins = bin_of(values)
    assert (least_of(bins) <= values).all()
    assert (values <= greatest_of(bins)).all()
    assert bin_of(np.array([LARGEST])).tolist() == [BINS - 1]


def test_bins_follow_on_one_another() -> None:
    """Each begins right after the one before ends, from 0 on."""
    every = np.arange(BINS)
    assert least_of(every)[0] == 0
    assert (least_of(every)[1:] == greatest_of(every)[:-1] + 1).all()
    assert greatest_of(every)[-1] == LARGEST
    assert (bin_of(least_of(every)) == every).all()


def test_bins_begin_where_the_format_says() -> None:
    for number in range(32, BINS):
        assert least_of(np.array([number]))[0] == (16 + number % 16) << (number // 16 - 1)


def test_bins_are_narrow() -> None:
    """None is wider than a sixteenth of its least value; small values have one each."""
    every = np.arange(BINS)
    width = greatest_of(every) - least_of(every) + 1
    assert (width[:32] == 1).all()
    assert (width[PARTS:] * PARTS <= least_of(every)[PARTS:]).all()


def test_values_are_counted() -> None:
    counts = bin_counts(np.array([0, 3, 3, 40]))
    assert len(counts) == BINS
    bins = np.flatnonzero(counts)
    assert bins.tolist() == [0, 3, 36]
    assert counts[bins].tolist() == [1, 2, 1]
    twice = dense(np.append(bins, bins), np.append(counts[bins], counts[bins]))
    assert (twice == 2 * counts).all()


def test_what_is_too_large_for_a_bin_is_in_the_last_one() -> None:
    """A wait and a step of which each is as long as a log can say."""
    assert bin_counts(np.array([2**63 - 1]))[-1] == 1
