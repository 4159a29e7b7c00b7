"""Shares of the time, of what was seen at random moments.

Moments of a Poisson process see what lasts for a share of the time with that probability
("PASTA": Wolff, "Poisson arrivals see time averages", Operations Research 30, 1982). Neighbouring
moments may see the same batch, so that they count for fewer: as many as independent ones would
have the variance of the mean that `error_of_mean` has, p (1 - p) / variance (Kish, "Survey
Sampling", 1965). The interval is Wilson's ("Probable inference, the law of succession, and
statistical inference", Journal of the American Statistical Association 22, 1927) of so many, with
Student's t for the normal quantile: it stays between 0 and 1, and has a width where all moments
saw the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.intervals import FEWEST_TIMES, error_of_mean, student
from loadeval.analysis.estimate.stats import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence


def share_of(parts: Sequence[Sequence[bool]], failed: int = 0) -> Estimate | None:
    """The share of the moments that were true, with its 95% interval; None of no moment.

    Each of `parts` is one after another, and moments of different parts do not follow on one
    another. At `failed` further moments it is not known, so that the interval holds both. Without
    an interval where the moments are too few.
    """
    series = np.concatenate([np.empty(0), *(np.asarray(part, float) for part in parts)])
    count = len(series)
    if not count:
        return None
    value = float(series.mean())
    if count < FEWEST_TIMES:
        return Estimate(value)
    part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    error = error_of_mean(series, part_of)
    effective, quantile = float(count), student(count - 1.0)
    spread = value * (1 - value)
    if error is not None and spread and error.variance:
        effective = min(spread / error.variance, effective)
        quantile = student(round(error.freedom, 2))
    low, high = _wilson(value, max(effective, 1.0), quantile)
    known = count / (count + failed)
    return Estimate(value, low * known, high * known + (1 - known))


def _wilson(value: float, count: float, quantile: float) -> tuple[float, float]:
    square = quantile**2 / count
    middle = (value + square / 2) / (1 + square)
    half = math.sqrt(value * (1 - value) * square + (square / 2) ** 2) / (1 + square)
    return max(middle - half, 0.0), min(middle + half, 1.0)
