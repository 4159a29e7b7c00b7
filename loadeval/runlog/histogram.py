"""Durations counted in bins that are nowhere wider than a sixteenth of what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from loadeval.runlog.columns import Column

PARTS = 16
"""Each doubling is cut into so many bins: a bin tells a value to a sixteenth of it."""
BINS = 944
"""So many bins hold all values under 2**62."""
DOUBLING = 4
"""2 to this power is PARTS."""


def bin_of(values: Column) -> Column:
    """The bin of each of `values`: up to 31 its own, from there on 16 for each doubling."""
    # Where a large value is rounded up to a power of two, the sum is that of its bin all the same.
    doublings = np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1
    shift = np.maximum(doublings - DOUBLING, 0)
    bins: Column = PARTS * shift + (values >> shift)
    return bins


def least_of(bins: Column) -> Column:
    """The least value that each of `bins` holds."""
    shift = np.maximum(bins // PARTS - 1, 0)
    least: Column = (bins - PARTS * shift) << shift
    return least


def greatest_of(bins: Column) -> Column:
    """The greatest value that each of `bins` holds."""
    greatest: Column = least_of(bins + 1) - 1
    return greatest


def bin_counts(values: Column) -> Column:
    """How many of `values` are in each bin, for all BINS; the last has all that are larger."""
    return np.bincount(np.minimum(bin_of(values), BINS - 1), minlength=BINS)


def dense(bins: Column, counts: Column) -> Column:
    """The `counts` of some `bins`, with 0 for all others; a bin's counts are added up."""
    all_counts = np.zeros(BINS, dtype=np.int64)
    np.add.at(all_counts, bins, counts)
    return all_counts
