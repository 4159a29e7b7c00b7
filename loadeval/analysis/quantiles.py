"""Quantiles of values that were counted in bins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.runlog.histogram import BINS, greatest_of, least_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from loadeval.runlog.model import Column


def quantiles(counts: Column, shares: Sequence[float]) -> npt.NDArray[np.float64]:
    """The quantiles, for `shares` from 0 to 1, of at least one value; `counts` is of all BINS.

    As `np.quantile` has them, between the two values that are next to each place, except that a
    value is taken to lie in its bin as if the values there were spread evenly.
    """
    places = np.asarray(shares) * (counts.sum() - 1)
    below = np.floor(places).astype(np.int64)
    lower, upper = _values(counts, below), _values(counts, np.ceil(places).astype(np.int64))
    found: npt.NDArray[np.float64] = lower + (upper - lower) * (places - below)
    return found


def _values(counts: Column, ranks: Column) -> npt.NDArray[np.float64]:
    """About the values of these `ranks`, from 0, in ascending order."""
    upto = np.cumsum(counts)
    bins = np.searchsorted(upto, ranks, side="right")
    within = (ranks - (upto - counts)[bins] + 0.5) / counts[bins]
    every = np.arange(BINS)
    least, greatest = least_of(every)[bins], greatest_of(every)[bins]
    return np.asarray(least + within * (greatest - least), dtype=np.float64)
