"""The figure whatif.png: throughput against the number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.report.curve_charts import (
    CHOSEN_COLOR,
    MEASURED_COLOR,
    PREDICTED_COLOR,
    worker_curve_chart,
)
from loadeval.report.drawing import (
    FAINT,
    INK,
    LABEL,
    MARGIN,
    PANEL,
    PAPER,
    TEXT_WIDTH,
    clipped,
    drawable,
    legend,
    page,
    panel,
    take_text_literally,
)
from loadeval.report.figure import figure_path, save_figure
from loadeval.report.palette import LIGHT
from loadeval.report.wording.whatif import (
    ASSUMED,
    BAND,
    CHOSEN,
    CURVE_HEADLINE,
    MEASURED,
    ONLY_MEASURED,
    PREDICTED,
    RANGE,
    TITLE,
    WHISKERS,
    assumptions_in_words,
    cpus_in_words,
    settings_in_words,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from loadeval.analysis.whatif import Prediction, WorkerCurve
    from loadeval.report.curve_charts import CurveChart, CurvePoint

    Style = dict[str, Any]

PANEL_HEIGHT, BELOW, ABOVE = 4.6, 0.85, 0.75
"""Inches: the axes, their labels below, and their title above."""
LABELS = 1.2
LONGEST_UNIT = 3.5
"""Inches, so that the legend has its place right of the title."""
BESIDE = 6
"""Points, between the mark of the CPUs and its name."""
OPACITY = 0.18
"""Opacity of a predicted range."""


def plot_worker_curve(
    curve: WorkerCurve,
    output: str | os.PathLike[str] = "whatif.png",
    chosen: Prediction | None = None,
) -> Path:
    """Draw throughput against the number of workers; returns the path of the figure written.

    Args:
        curve: what was measured and what is predicted, as `LoaderModel.curve()` returns it.
        output: where the figure goes, replacing what is there: a PNG, an SVG or a PDF by its
            extension.
        chosen: a prediction under some settings, which is marked, as `LoaderModel.predict()`
            returns it.

    Raises:
        UsageError: `output` has another extension or cannot be written.
    """
    path = figure_path(output)
    save_figure(worker_curve_figure(curve, chosen=chosen), path)
    return path


def worker_curve_figure(
    curve: WorkerCurve,
    title: str = "",
    details: Sequence[str] = (),
    chosen: Prediction | None = None,
) -> Figure:
    """Measured points with CIs, the predicted line with its range, and where the CPUs end.

    `title` replaces its own, and `details` stand below it. `chosen` is marked.
    """
    chart = worker_curve_chart(curve, chosen)
    marked = [] if chosen is None else [chosen]
    details = [*details, *(f"{TITLE}: {settings_in_words(one)}" for one in marked)]
    assumed = assumptions_in_words((*curve.predicted, *marked))
    footer = [
        f"{WHISKERS} {BAND}" if chart.predicted else WHISKERS,
        *([" ".join([ASSUMED, *assumed])] if assumed else []),
    ]
    title = title or (CURVE_HEADLINE if chart.predicted else ONLY_MEASURED)
    above = list(filter(None, (*details, cpus_in_words(curve))))
    tall = PANEL_HEIGHT + BELOW + ABOVE
    figure, bottom = page(title, above, footer, tall)
    box = (MARGIN, bottom + BELOW, TEXT_WIDTH, PANEL_HEIGHT)
    unit = clipped(drawable(chart.unit), PANEL, LONGEST_UNIT, bold=True)
    axes = panel(figure, box, f"Throughput in {unit}/s", labels=LABELS)
    draw_worker_curve(axes, chart)
    take_text_literally(figure)
    return figure


def draw_worker_curve(axes: Axes, chart: CurveChart) -> None:
    """All of `chart`, and a legend."""
    axes.set_xlim(chart.workers.low, chart.workers.high)
    axes.set_ylim(chart.throughput.low, chart.throughput.high)
    axes.set_xticks(*(list(one) for one in zip(*chart.workers.ticks, strict=True)))
    axes.set_yticks(*(list(one) for one in zip(*chart.throughput.ticks, strict=True)))
    axes.set_xlabel(chart.workers.title, fontsize=LABEL, color=INK)
    if chart.cpus is not None:
        _mark_cpus(axes, chart, chart.cpus)
    if chart.predicted:
        _draw_predicted(axes, chart)
    for one in chart.measured:
        if one.low is not None and one.high is not None:
            look: Style = {"color": INK, "linewidth": 2, "marker": "_", "markersize": 14}
            axes.plot([one.workers] * 2, [one.low, one.high], markeredgewidth=2, **look, zorder=3)
    if chart.measured:
        x, y = [one.workers for one in chart.measured], [one.value for one in chart.measured]
        look = {"color": LIGHT[MEASURED_COLOR], "linestyle": "", "marker": "o", "markersize": 8}
        axes.plot(x, y, label=MEASURED, **look, zorder=4)
    if chart.chosen is not None:
        _draw_chosen(axes, chart.chosen)
    legend(axes)


def _draw_predicted(axes: Axes, chart: CurveChart) -> None:
    color = LIGHT[PREDICTED_COLOR]
    x, y = [one.workers for one in chart.predicted], [one.value for one in chart.predicted]
    ends = np.array([(one.low, one.high) for one in chart.predicted], dtype=np.float64)
    low, high = ends.T
    axes.fill_between(x, low, high, color=color, alpha=OPACITY, linewidth=0, label=RANGE)
    look: Style = {"color": color, "linestyle": (0, (5, 2)), "linewidth": 2.5, "marker": "o"}
    axes.plot(x, y, label=PREDICTED, markersize=7, markerfacecolor=PAPER, **look)


def _draw_chosen(axes: Axes, one: CurvePoint) -> None:
    look: Style = {"color": LIGHT[CHOSEN_COLOR], "linestyle": "", "marker": "D", "markersize": 9}
    axes.plot(one.workers, one.value, label=CHOSEN, **look, zorder=6)
    look |= {"linestyle": "-", "linewidth": 2, "marker": "_", "markersize": 14}
    ends = np.array([one.low, one.high], dtype=np.float64)
    axes.plot([one.workers] * 2, ends, markeredgewidth=2, **look, zorder=5)


def _mark_cpus(axes: Axes, chart: CurveChart, cpus: float) -> None:
    """A line where there is a worker for each, with its name at its foot, below the curve."""
    axes.axvline(cpus, color=FAINT, linewidth=1.5, linestyle=(0, (2, 3)), zorder=0)
    left = chart.mark_is_late
    look: Style = {"ha": "right" if left else "left", "fontsize": LABEL, "color": FAINT}
    offset = (-BESIDE if left else BESIDE, BESIDE)
    foot = axes.get_xaxis_transform()
    axes.annotate(
        chart.mark, (cpus, 0), xytext=offset, xycoords=foot, textcoords="offset points", **look
    )
