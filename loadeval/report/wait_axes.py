"""The two axes of the panel of waits: few ticks, and a logarithmic scale where it helps."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from loadeval.report.formatting import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loadeval.runlog.model import Column

LOG_FROM = 20
"""Times the typical wait at which the greatest one asks for a logarithmic scale."""
MOST_DECADES = 4
"""Labelled on a logarithmic scale."""


def scale_waits(axes: Axes, waits: list[Column]) -> float:
    """Set the axis of waits; returns the lowest value that can be drawn on it."""
    every = np.concatenate(waits)
    typical = min(float(np.median(column)) for column in waits if len(column))
    highest = max(int(every.max()), 0)
    if not highest or highest <= LOG_FROM * typical:
        axes.set_ylim(0, 1.1 * highest or 1)
        _label_waits(axes, _round_steps(highest))
        return 0.0
    first = math.floor(math.log10(every[every > 0].min()))
    decades = range(first, math.ceil(math.log10(highest)) + 1)
    ticks = [10.0**decade for decade in decades[:: math.ceil(len(decades) / MOST_DECADES)]]
    floor_ns = 10.0 ** (first - 1) if every.min() <= 0 else 10.0**first
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_ylim(floor_ns * 0.6, highest * 2)
    _label_waits(axes, [tick for tick in ticks if tick <= 1.5 * highest])
    if floor_ns < ticks[0]:
        # A wait of nothing has no place on this scale: it is drawn under the rest.
        axes.set_yticks([floor_ns, *axes.get_yticks()], ["0", *map(_tick, axes.get_yticks())])
    return floor_ns


def _round_steps(highest: float) -> list[float]:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - heavy

    ticks = MaxNLocator(nbins=4).tick_values(0, highest or 1)
    return [float(tick) for tick in ticks if 0 <= tick <= 1.1 * highest]


def _label_waits(axes: Axes, ticks: list[float]) -> None:
    axes.set_yticks(ticks, [_tick(tick) for tick in ticks])


def _tick(ns: float) -> str:
    if not ns:
        return "0"
    return re.sub(r"(\.\d*?)0+ ", r"\1 ", duration(ns)).replace(". ", " ")


def scale_batches(axes: Axes, batches: int) -> None:
    """Set the axis of batch numbers."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - heavy

    margin = 0.01 * batches + 0.5
    axes.set_xlim(-margin, batches - 1 + margin)
    ticks = MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True).tick_values(
        0, max(batches - 1, 1)
    )
    shown = [int(tick) for tick in ticks if 0 <= tick < batches]
    axes.set_xticks(shown, [f"{tick:,}" for tick in shown])
