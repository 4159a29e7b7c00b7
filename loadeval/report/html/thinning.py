"""Which of many values are drawn, so that spikes stay seen. What is computed is never thinned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.generic]
    Places = npt.NDArray[np.intp]

BUCKETS = 1_000
"""Stretches of values, of each of which the least and the greatest are drawn."""
DOTS = 350
"""The same where each value is a dot, which takes a browser longer than a bend of a line."""


def extremes(values: Numbers, buckets: int = BUCKETS) -> Places:
    """Places in `values`, in order, of the least and the greatest in each of equal stretches.

    All of them where there are no more than two for each of the `buckets`.
    """
    if len(values) <= 2 * buckets:
        return np.arange(len(values))
    bounds = np.linspace(0, len(values), buckets + 1).astype(np.intp)
    stretch = np.repeat(np.arange(buckets), np.diff(bounds))
    # The last of a stretch in the order of values is its greatest, the first its least.
    order = np.lexsort((values, stretch))
    return np.unique(np.concatenate([order[bounds[:-1]], order[bounds[1:] - 1]]))


def highest(values: Numbers, most: int = BUCKETS) -> Places:
    """Places, in order, of the `most` greatest of `values`."""
    if len(values) <= most:
        return np.arange(len(values))
    return np.sort(np.argpartition(values, len(values) - most)[-most:])


def told(drawn: int, count: int, what: str) -> str:
    """That `drawn` of `count` are drawn; "" where it is all of them."""
    if drawn >= count:
        return ""
    return (
        f"Thinned: of {count:,} {what}, {drawn:,} are drawn, the least and the greatest of "
        "each stretch. All figures on this page are computed from all of them."
    )
