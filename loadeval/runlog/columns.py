"""The columns that a run's figures are kept in."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
ValuesByName = Mapping[str, Values]
UNKNOWN = -1
"""It stands for "not known" in a column of integers, and is `null` on disk."""


def constant(value: int, length: int) -> Column:
    """A read-only column of one value, which takes no memory for its length."""
    return np.broadcast_to(np.int64(value), length)
