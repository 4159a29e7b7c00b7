"""Estimates with their 95% intervals, and how they are made.

One method makes every interval, the jackknife: docs/how-it-measures.md has it with its sources.
What was measured comes in units: the pairs of an alternating run, or parts of pairs where there are
fewer than six. A figure is computed once more without each unit, and how far that moves it is its
error. Units that were measured apart, as two runs are, have errors that add up. No random numbers
are drawn.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from loadeval.data.columns import Column, Columns, Values
from loadeval.words import FORMATS

Tables: TypeAlias = Mapping[str, Columns]
"""Tables of what was measured, by their name."""

FEWEST_UNITS, MOST_UNITS = 6, 30
"""Fewer pairs are divided into parts; more are left out several at a time, which takes less time,
and Student's t hardly changes."""
MOST_POINTS = 200
"""Of more points in a series, so many are chosen evenly: a slope takes all pairs of them."""
MOST_FREEDOM = 200.0
COVERED, SIGMAS = 0.95, 1.96
"""What an interval holds, and the standard deviations of the normal distribution that do so."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95% interval; `low` and `high` are None where none can be had.

    Estimates are calculated with as if they were independent; a number is known exactly. Errors
    add up by their squares, each side of the interval by itself (Zou and Donner, Statistics in
    Medicine 27, 2008); of a product or a quotient of what is above 0 those of the logarithms. What
    is divided by an estimate that may be 0 has no interval. In text, `f"{estimate:times}"` is
    1.53x [1.42x, 1.64x].
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval; without one the value twice."""
        if self.low is None or self.high is None:
            return self.value, self.value
        return self.low, self.high

    def __format__(self, spec: str) -> str:
        text = FORMATS.get(spec) or f"{{:{spec}}}".format
        interval = "" if self.low is None else f" [{', '.join(map(text, self.bounds))}]"
        return text(self.value) + interval

    def __add__(self, other: Estimate | float) -> Estimate:
        return self._with(other, operator.add)

    def __sub__(self, other: Estimate | float) -> Estimate:
        return self._with(other, operator.sub)

    def __mul__(self, other: Estimate | float) -> Estimate:
        return self._with(other, operator.mul, on_logs=True)

    def __truediv__(self, other: Estimate | float) -> Estimate:
        low, high = _estimate(other).bounds
        if low <= 0 <= high:
            return Estimate(self.value / _estimate(other).value)
        return self._with(other, operator.truediv, on_logs=True)

    def _with(
        self,
        other: Estimate | float,
        calculated: Callable[[float, float], float],
        *,
        on_logs: bool = False,
    ) -> Estimate:
        """What is calculated of both: each side's error is what its own bounds move the value."""
        theirs = _estimate(other)
        value = calculated(self.value, theirs.value)
        if self.low is None or theirs.low is None:
            return Estimate(value)
        low, high = sorted(calculated(bound, theirs.value) for bound in self.bounds)
        their_low, their_high = sorted(calculated(self.value, bound) for bound in theirs.bounds)
        positive = on_logs and min(low, their_low) > 0
        scaled: Callable[[float], float] = math.log if positive else float
        unscaled: Callable[[float], float] = math.exp if positive else float
        at = scaled(value)
        below = math.hypot(at - scaled(low), at - scaled(their_low))
        above = math.hypot(scaled(high) - at, scaled(their_high) - at)
        return Estimate(value, unscaled(at - below), unscaled(at + above))

    def __rsub__(self, other: float) -> Estimate:
        return _estimate(other) - self

    def __rtruediv__(self, other: float) -> Estimate:
        return _estimate(other) / self


def _estimate(value: Estimate | float) -> Estimate:
    return value if isinstance(value, Estimate) else Estimate(value, value, value)


def jackknife(
    figures: Callable[[Tables], Mapping[str, float]],
    tables: Tables,
    strata: Sequence[Sequence[str]],
    positive: Container[str] = (),
) -> dict[str, Estimate]:
    """What `figures` says of tables, with intervals by what it says without each unit of them.

    Tables of one stratum are measured together: their column `block` numbers the pair, from 0, and
    `figures` gets the sums of the other columns for each unit. Figures that are `positive` have
    their intervals on the logarithmic scale. Without a stratum, or where one has a single unit,
    nothing tells the error.
    """
    tables = dict(tables)
    for names in strata:
        summed = _in_units([tables[name] for name in names])
        tables.update(zip(names, summed, strict=True))
    made, errors_of = [figures(tables)], list[list[tuple[slice, bool]]]()
    for names in strata:
        first = tables[names[0]]
        are_few, ways = int(first.block.max()) + 1 < FEWEST_UNITS, []
        for column in ("unit", "block") if are_few else ("unit",):
            begin, units = len(made), int(first[column].max()) + 1
            for number in range(units if units > 1 else 0):
                left = {name: tables[name].take(tables[name][column] != number) for name in names}
                made.append(figures({**tables, **left}))
            if units > 1:
                ways.append((slice(begin, len(made)), column == "block"))
        errors_of.append(ways)
    return {
        name: _with_error(np.array([each[name] for each in made]), errors_of, name in positive)
        for name in made[0]
    }


def _with_error(
    values: Values, errors_of: Sequence[Sequence[tuple[slice, bool]]], positive: bool
) -> Estimate:
    """The first of `values`, with the errors that each stratum's others tell.

    Of pairs that are too few, the error is at least that of six pairs which differ as these do.
    """
    value = float(values[0])
    is_known = ((values > 0) if positive else np.isfinite(values)).all()
    if not is_known or not errors_of or not all(errors_of):
        return Estimate(value)
    scaled = np.log(values) if positive else values
    variance = shares = 0.0
    for ways in errors_of:
        errors = []
        for units, are_pairs in ways:
            left, count = scaled[units], units.stop - units.start
            own, freedom = float(((left - left.mean()) ** 2).sum()) * (count - 1) / count, count - 1
            if are_pairs:
                own, freedom = own * count / FEWEST_UNITS, FEWEST_UNITS - 1
            errors.append((student(freedom) * math.sqrt(own), own, freedom))
        _, own, freedom = max(errors)
        variance += own
        shares += own**2 / freedom
    freedom_of_all = min(max(variance**2 / shares, 1.0), MOST_FREEDOM) if shares else 1.0
    half = student(round(freedom_of_all, 2)) * math.sqrt(variance)
    if positive:
        factor = math.exp(half)
        return Estimate(value, value / factor, value * factor)
    return Estimate(value, value - half, value + half)


def _in_units(tables: Sequence[Columns]) -> list[Columns]:
    """The sums over the pairs, or over parts of them, and the `unit` that each is of."""
    count = int(tables[0].block.max()) + 1
    sizes = [np.bincount(table.block, minlength=count) for table in tables]
    least = min(int(size.min()) for size in sizes)
    parts = 1 if count >= FEWEST_UNITS else max(min(-(-FEWEST_UNITS // count), least), 1)
    units, summed = min(count * parts, MOST_UNITS), []
    for table, size in zip(tables, sizes, strict=True):
        rows = table.take(np.argsort(table.block, kind="stable"))
        place = np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)
        part = rows.block * parts + place * parts // size[rows.block]
        (known,) = np.nonzero(np.bincount(part))
        sums = {name: np.bincount(part, rows[name])[known] for name in rows.names}
        unit = known * units // (count * parts)
        summed.append(Columns({**sums, "block": known // parts, "unit": unit}))
    return summed


@lru_cache(maxsize=256)
def student(freedom: float) -> float:
    """The bound that Student's t of so many degrees of freedom stays within, with 95%."""
    # With t = sqrt(freedom) tan(a) the density over a is cos(a) ** (freedom - 1).
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (freedom - 1)
    within = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    angle = float(np.interp(COVERED, within / within[-1], angles))
    return math.sqrt(freedom) * math.tan(angle)


def slope(series: Sequence[tuple[Values, Values]]) -> Estimate | None:
    """The common slope of several series of times and values, in values per unit of time.

    It is the median of the slopes between any two points of one series (Theil, Indagationes
    Mathematicae 12, 1950; Sen, Journal of the American Statistical Association 63, 1968), so that
    up to a third of the points may be outliers. The interval is Sen's: the slopes whose ranks lie
    within 1.96 standard deviations of Kendall's S around the median. None where no series has two
    points; without an interval where they are too few for one.
    """
    slopes, variance = [np.empty(0)], 0.0
    for every in series:
        times, values = (each[:: -(-len(each) // MOST_POINTS) or 1] for each in every)
        earlier, later = np.triu_indices(len(times), 1)
        passed = times[later] - times[earlier]
        known = passed != 0  # a line that is there twice
        slopes.append((values[later] - values[earlier])[known] / passed[known])
        _, ties = np.unique(values, return_counts=True)
        variance += _kendall(len(values)) - sum(map(_kendall, ties.tolist()))
    ordered = np.sort(np.concatenate(slopes))
    if not len(ordered):
        return None
    value = float(np.median(ordered))
    lowest = math.floor((len(ordered) - SIGMAS * math.sqrt(variance)) / 2) - 1
    if lowest < 0:
        return Estimate(value)
    return Estimate(value, float(ordered[lowest]), float(ordered[len(ordered) - 1 - lowest]))


def _kendall(count: int) -> float:
    """The variance of Kendall's S for so many points, or for ties."""
    return count * (count - 1) * (2 * count + 5) / 18


def spearman(x: Column, y: Column) -> float:
    """The rank correlation, ties having their mean rank; 0.0 where either is constant."""
    ranks = []
    for column in (x, y):
        _, which, counts = np.unique(column, return_inverse=True, return_counts=True)
        if len(counts) < 2:  # noqa: PLR2004 - it is constant
            return 0.0
        ranks.append((np.cumsum(counts) - counts / 2)[which])
    return float(np.asarray(np.corrcoef(ranks))[0, 1])
