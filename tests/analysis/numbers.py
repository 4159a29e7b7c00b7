"""Times for analysis, and estimates and codes out of what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.intervals import MeanTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from enum import Enum

    import numpy.typing as npt

    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.remark import Remark


def value(estimate: Estimate | None) -> float:
    assert estimate is not None
    return estimate.value


def bounds(estimate: Estimate | None) -> tuple[float, float]:
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


def codes(remarks: Iterable[Remark]) -> list[Enum]:
    return [remark.code for remark in remarks]


def in_pairs(blocks: Sequence[npt.NDArray[np.generic]]) -> MeanTime:
    """The mean of the times in `blocks`, each of a pair of its own."""
    total_ns = np.concatenate([block.astype(np.float64) for block in blocks])
    pair = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    return MeanTime(total_ns, np.ones(len(total_ns)), pair, pair.astype(np.float64))
