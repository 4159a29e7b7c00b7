"""The arms of an alternating run at the same size of batch, where times follow that size.

Real and ideal blocks have different batches. Where a step takes longer for a larger batch, how
their sizes happen to differ is an error of the difference between the arms, which is known: the
bytes of each batch are recorded. Each arm's times are moved along its own line over bytes to the
mean size of both (regression adjustment by arm: Lin, "Agnostic notes on regression adjustments to
experimental data", Annals of Applied Statistics 7, 2013). What remains is what bytes do not tell,
and, where the two lines differ in slope, the error of that mean size.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loadeval.analysis.estimate.intervals import BySize

if TYPE_CHECKING:
    from loadeval.analysis.estimate.intervals import MeanTime
    from loadeval.analysis.estimate.stats import Series

FEWEST_SIZES = 20
"""An arm of fewer batches tells no line over their sizes."""
BEYOND_CHANCE = 3.0
"""A slope so many standard errors above zero is seldom chance: once in 740 times."""
LEAST_SPREAD = 0.01
"""Sizes that differ less are taken for the same."""
LEAST_SQUARE = 1e-9
"""It stands for no difference, so that nothing is divided by zero."""


class Sizes(NamedTuple):
    """The bytes of the batches of both arms, each an entry."""

    real: Series
    ideal: Series


class _Line(NamedTuple):
    """How an arm's times follow sizes within its blocks: `slope`, whose standard error is `error`.

    `spread` is how much sizes differ from the mean of their block, relative to the mean of all.
    """

    slope: float
    error: float
    spread: float


def follow_size(real: MeanTime, ideal: MeanTime, sizes: Sizes) -> bool:
    """Whether times grow with the size of their batch, beyond chance and in both arms."""
    if min(len(sizes.real), len(sizes.ideal)) < FEWEST_SIZES:
        return False
    lines = _line(real, sizes.real), _line(ideal, sizes.ideal)
    return all(
        line.spread >= LEAST_SPREAD and line.slope > BEYOND_CHANCE * line.error for line in lines
    )


def at_same_size(real: MeanTime, ideal: MeanTime, sizes: Sizes) -> tuple[MeanTime, MeanTime]:
    """Both arms as if each batch had the mean size of all, for its samples."""
    size, amount = np.concatenate(sizes), np.concatenate([real.amount, ideal.amount])
    mean = float(size.sum() / amount.sum())
    in_order = np.argsort(np.concatenate([real.places, ideal.places]), kind="stable")
    deviations = ((size - mean * amount) / amount.mean())[in_order]

    def moved(arm: MeanTime, size: Series) -> MeanTime:
        slope = _line(arm, size).slope
        total_ns = arm.total_ns - slope * (size - mean * arm.amount)
        return replace(arm, total_ns=total_ns, by_size=BySize(slope, deviations))

    return moved(real, sizes.real), moved(ideal, sizes.ideal)


def _line(arm: MeanTime, size: Series) -> _Line:
    """The line of an arm, by differences from the mean of each block: drift moves whole blocks."""
    known_ns = 0.0 if arm.all_waits is None else arm.all_waits.within_ns
    of_time, of_size = arm.within_blocks(arm.total_ns - known_ns), arm.within_blocks(size)
    square = max(float((of_size**2).sum()), LEAST_SQUARE)
    slope = float((of_time * of_size).sum()) / square
    rest = of_time - slope * of_size
    error = math.sqrt(float(((rest * of_size) ** 2).sum())) / square
    return _Line(slope, error, math.sqrt(square / len(size)) / max(float(size.mean()), 1.0))
