"""Estimates and codes out of what analysis found."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import Enum

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
