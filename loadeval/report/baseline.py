"""A run against its baseline, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.facts import recorded
from loadeval.report.formatting import (
    NOT_MEASURED,
    duration,
    estimated,
    per_second,
    short_name,
    speedup,
)
from loadeval.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.baseline import BaselineReport, NowAndBefore

MEASURED_HEAD = ("", "now", "before", "now / before, 95% CI")
CHANGES_HEAD = ("what changed", "now", "before")
LONGEST_UNIT = 16
LONGEST_VALUE = 24


def measured_table(baseline: BaselineReport) -> Table:
    """Throughputs and times of both runs, and their ratios."""
    unit = short_name(baseline.unit, LONGEST_UNIT)

    def rate(value: float) -> str:
        return per_second(value, unit)

    rows = [
        _measured("throughput, whole epochs", baseline.epochs, rate),
        _measured("throughput, steady state", baseline.steady, rate),
        _measured("time lost per batch", baseline.lost, duration),
        _measured("wait per batch", baseline.wait, duration),
        _measured("step per batch", baseline.step, duration),
    ]
    return Table("", MEASURED_HEAD, rows, figures=True)


def _measured(label: str, quantity: NowAndBefore, text: Callable[[float], str]) -> list[str]:
    values = [
        NOT_MEASURED if estimate is None else text(estimate.value)
        for estimate in (quantity.now, quantity.before)
    ]
    return [label, *values, "-" if quantity.ratio is None else estimated(quantity.ratio, speedup)]


def changes_table(baseline: BaselineReport) -> Table:
    """Settings, versions and facts of the machine that differ."""
    rows = [
        (
            f"{change.where.value}: {short_name(change.name.replace('_', ' '), LONGEST_VALUE)}",
            short_name(recorded(change.now), LONGEST_VALUE),
            short_name(recorded(change.before), LONGEST_VALUE),
        )
        for change in baseline.changes
    ]
    return Table("", CHANGES_HEAD, rows)
