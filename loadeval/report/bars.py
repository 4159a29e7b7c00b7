"""The panels of bars: throughput, and where a batch's time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from loadeval.analysis.stats import Estimate
from loadeval.report.fitting import POINTS_PER_INCH, clipped, drawable, width_of
from loadeval.report.formatting import NOT_MEASURED, duration, number
from loadeval.report.style import (
    CONTENTION,
    FAINT,
    GPU_IDLE,
    IDEAL,
    INK,
    LABEL,
    LOADER_ONLY,
    PANEL,
    REAL,
    STEP,
    WAITING,
    legend,
    without_scale,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.summary import Summary

GAP = 0.1
"""Inches between a bar and what is written beside it."""
THICK = 0.62
"""Of a bar, where the rows are 1 apart."""
PACES = (REAL, IDEAL, LOADER_ONLY)
WHISKER: dict[str, Any] = {"color": INK, "linewidth": 2, "markersize": 12, "markeredgewidth": 2}


def draw_throughput(
    axes: Axes, rates: Sequence[float | None], speedup: Estimate | None = None
) -> None:
    """Bars of real, ideal and where there is one the loader alone, with their values on top.

    A whisker on the ideal one is the interval of the speed-up over the real one.
    """
    ends = _ends(rates[0], speedup)
    tops = [rate or 0.0 for rate in rates]
    tops[1] = max(tops[1], *ends, 0.0)
    highest = max(tops) or 1.0
    without_scale(axes, "bottom")
    axes.set_xlim(-0.6, len(rates) - 0.4)
    axes.set_ylim(0, 1.2 * highest)
    for place, (rate, top, color) in enumerate(zip(rates, tops, PACES, strict=False)):
        if rate is not None:
            axes.bar(place, rate, width=0.7, color=color)
        axes.annotate(
            NOT_MEASURED.replace(" ", "\n") if rate is None else number(rate),
            (place, top),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=LABEL if rate is None else PANEL,
            fontweight="normal" if rate is None else "bold",
            color=FAINT if rate is None else INK,
        )
    if ends:
        axes.plot([1] * len(ends), ends, **WHISKER, marker="_", clip_on=False)
    names = ["real", "ideal:\nloading free", "loader\nalone"][: len(rates)]
    axes.set_xticks(range(len(rates)), names)
    axes.tick_params(axis="x", length=0)


def _ends(real: float | None, speedup: Estimate | None) -> list[float]:
    """The ends of the ideal bar's whisker; none where there is no interval."""
    if real is None or speedup is None or speedup.low is None or speedup.high is None:
        return []
    return [real * speedup.low, real * speedup.high]


def throughput_title(unit: str, room: float) -> str:
    """The title of the throughput panel, in at most `room` inches."""
    start, end = "Throughput in ", "/s"
    left = room - width_of(start + end, PANEL, bold=True)
    return start + clipped(drawable(unit), PANEL, left, bold=True) + end


def draw_batch_time(axes: Axes, real: Summary, ideal: Summary, headroom: Headroom) -> None:
    """Rows from real down to ideal: step and waiting stacked, and between them what is lost.

    Where a device's clock told how long it starved in a wait, a row below the waiting does too.
    """
    real_ns, ideal_ns = headroom.real_ns, headroom.ideal_ns
    waiting, contention = headroom.waiting_ns, headroom.contention_ns
    # Both are lost from the end of the real bar: waiting first, then contention.
    between_ns = None if real_ns is None or waiting is None else real_ns - waiting.value
    ends = [*_whisker(between_ns, waiting), *_whisker(ideal_ns, contention)]
    longest = max(real_ns or 0.0, ideal_ns or 0.0, between_ns or 0.0, *ends, 0.0) or 1.0
    without_scale(axes)
    axes.set_xlim(0, longest * _room_for_values(axes))
    names = ["real", "lost by waiting", "lost by contention", "ideal"]
    starved = headroom.gpu_idle_ns
    if starved is not None:
        names.insert(2, "GPU idle while waiting")
        _lost(axes, 2, between_ns, Estimate(starved, None, None), GPU_IDLE)
    last = len(names) - 1
    axes.set_ylim(last + 0.6, -0.6)
    _stack(axes, 0, real, real_ns)
    _lost(axes, 1, between_ns, waiting, WAITING)
    _lost(axes, last - 1, ideal_ns, contention, CONTENTION)
    _stack(axes, last, ideal, ideal_ns)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    if real_ns is not None or ideal_ns is not None:
        _explain(axes)


def _whisker(start_ns: float | None, lost: Estimate | None) -> list[float]:
    """Where the interval of what is lost from `start_ns` on begins and ends; none: []."""
    if start_ns is None or lost is None or lost.low is None or lost.high is None:
        return []
    return [max(start_ns + lost.low, 0.0), max(start_ns + lost.high, 0.0)]


def _stack(axes: Axes, row: int, summary: Summary, iteration_ns: float | None) -> None:
    if iteration_ns is None or summary.wait_share is None:
        _write(axes, row, 0.0, duration(iteration_ns))
        return
    wait_ns = iteration_ns * summary.wait_share
    step_ns = iteration_ns - wait_ns
    axes.barh(row, step_ns, height=THICK, color=STEP)
    axes.barh(row, wait_ns, left=step_ns, height=THICK, color=WAITING)
    _write_inside(axes, row, 0.0, step_ns)
    _write_inside(axes, row, step_ns, wait_ns)
    _write(axes, row, iteration_ns, duration(iteration_ns), bold=True)


def _lost(axes: Axes, row: int, start_ns: float | None, lost: Estimate | None, color: str) -> None:
    if start_ns is None or lost is None:
        _write(axes, row, 0.0, NOT_MEASURED)
        return
    # What is gained, a loss under zero, is drawn hollow.
    inside = color if lost.value >= 0 else "none"
    axes.barh(
        row,
        lost.value,
        left=start_ns,
        height=THICK,
        facecolor=inside,
        edgecolor=color,
        linewidth=1.5,
    )
    ends = _whisker(start_ns, lost)
    if ends:
        axes.plot(ends, [row] * len(ends), **WHISKER, marker="|")
    _write(axes, row, max(start_ns, start_ns + lost.value, *ends), duration(lost.value))


def _write(axes: Axes, row: int, at_ns: float, text: str, *, bold: bool = False) -> None:
    axes.annotate(
        text,
        (at_ns, row),
        xytext=(GAP * POINTS_PER_INCH, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=LABEL,
        fontweight="bold" if bold else "normal",
        color=FAINT if text == NOT_MEASURED else INK,
    )


def _write_inside(axes: Axes, row: int, start_ns: float, long_ns: float) -> None:
    text = duration(long_ns)
    room = long_ns / axes.get_xlim()[1] * _width(axes)
    if room > width_of(text, LABEL) + 2 * GAP:
        middle = start_ns + long_ns / 2
        axes.text(middle, row, text, ha="center", va="center_baseline", fontsize=LABEL, color=INK)


def _explain(axes: Axes) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415 - heavy

    legend(axes, [Patch(color=STEP), Patch(color=WAITING)], ["step", "waiting"])


def _room_for_values(axes: Axes) -> float:
    """How much longer the axes are than the longest bar, for its value beside it."""
    room = width_of("-0.000 ns", LABEL, bold=True)
    return _width(axes) / (_width(axes) - room - 2 * GAP)


def _width(axes: Axes) -> float:
    figure = cast("Figure", axes.figure)
    return float(axes.get_position().width * figure.get_size_inches()[0])
