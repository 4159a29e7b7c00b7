"""The columns that a run's figures are kept in."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
ValuesByName = Mapping[str, Values]
UNKNOWN = -1
"""Stands for "not known" in a column of integers; `null` on disk."""
