"""The figure whatif.png: throughput against the number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.report.figure import drawing
from loadeval.report.figure.curve_charts import (
    CHOSEN_COLOR,
    MEASURED_COLOR,
    PREDICTED_COLOR,
    worker_curve_chart,
)
from loadeval.report.figure.figure import figure_path, save_figure
from loadeval.report.palette import LIGHT
from loadeval.report.wording import whatif as whatif_words

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from loadeval.analysis.predict.prediction import Prediction, WorkerCurve
    from loadeval.report.figure.curve_charts import CurveChart, CurvePoint

    Style = dict[str, Any]

PANEL_HEIGHT = 6.0
"""Inches: the axes with their labels and their title."""
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
    save_figure(worker_curve_figure(curve, chosen), path)
    return path


def worker_curve_figure(curve: WorkerCurve, chosen: Prediction | None = None) -> Figure:
    """Measured points with CIs, the predicted line with its range, and where the CPUs end.

    `chosen` is marked.
    """
    chart = worker_curve_chart(curve, chosen)
    marked = [] if chosen is None else [chosen]
    settings = [
        f"{whatif_words.TITLE}: {whatif_words.settings_in_words(prediction)}"
        for prediction in marked
    ]
    above = list(filter(None, (*settings, whatif_words.cpus_in_words(curve))))
    predictions = (*curve.predicted, *marked)
    assumed = whatif_words.assumptions_in_words(predictions)
    band = f" {whatif_words.BAND}" if chart.predicted else ""
    footer = [whatif_words.WHISKERS + band]
    footer += [" ".join([whatif_words.ASSUMED, *assumed])] if assumed else []
    title = whatif_words.CURVE_HEADLINE if chart.predicted else whatif_words.ONLY_MEASURED
    figure, (part,) = drawing.page(title, above, footer, [PANEL_HEIGHT])
    unit = drawing.clipped(chart.unit, drawing.PANEL, LONGEST_UNIT)
    draw_worker_curve(drawing.panel(part, f"Throughput in {unit}/s"), chart)
    return drawing.finish(figure)


def draw_worker_curve(axes: Axes, chart: CurveChart) -> None:
    """Draw all of `chart`, and a legend."""
    axes.set_xlim(chart.workers.low, chart.workers.high)
    axes.set_ylim(chart.throughput.low, chart.throughput.high)
    axes.set_xticks(*map(list, zip(*chart.workers.ticks, strict=True)))
    axes.set_yticks(*map(list, zip(*chart.throughput.ticks, strict=True)))
    axes.set_xlabel(chart.workers.title, fontsize=drawing.LABEL, color=drawing.INK)
    if chart.cpus is not None:
        _mark_cpus(axes, chart, chart.cpus)
    if chart.predicted:
        _draw_predicted(axes, chart)
    for point in chart.measured:
        if point.low is not None and point.high is not None:
            _draw_whisker(axes, point, drawing.INK, 3)
    if chart.measured:
        x, y = _places(chart.measured)
        look: Style = {"color": LIGHT[MEASURED_COLOR], "linestyle": "", "markersize": 8}
        axes.plot(x, y, label=whatif_words.MEASURED, marker="o", **look, zorder=4)
    if chart.chosen is not None:
        _draw_whisker(axes, chart.chosen, LIGHT[CHOSEN_COLOR], 5)
        look = {"color": LIGHT[CHOSEN_COLOR], "linestyle": "", "markersize": 9}
        x, y = _places([chart.chosen])
        axes.plot(x, y, label=whatif_words.CHOSEN, marker="D", **look, zorder=6)
    drawing.legend(axes.figure, axes.get_legend_handles_labels()[0])


def _places(points: Sequence[CurvePoint]) -> tuple[list[int], list[float]]:
    return [point.workers for point in points], [point.value for point in points]


def _draw_whisker(axes: Axes, point: CurvePoint, color: str, zorder: int) -> None:
    ends = np.array([point.low, point.high], dtype=np.float64)
    look: Style = {"linewidth": 2, "marker": "_", "markersize": 14, "markeredgewidth": 2}
    axes.plot([point.workers] * 2, ends, color=color, **look, zorder=zorder)


def _draw_predicted(axes: Axes, chart: CurveChart) -> None:
    x, y = _places(chart.predicted)
    ends = np.array([(point.low, point.high) for point in chart.predicted], dtype=np.float64)
    look: Style = {"color": LIGHT[PREDICTED_COLOR]}
    axes.fill_between(x, *ends.T, alpha=OPACITY, linewidth=0, label=whatif_words.RANGE, **look)
    look |= {"linestyle": (0, (5, 2)), "linewidth": 2.5, "marker": "o", "markersize": 7}
    axes.plot(x, y, label=whatif_words.PREDICTED, markerfacecolor=drawing.PAPER, **look)


def _mark_cpus(axes: Axes, chart: CurveChart, cpus: float) -> None:
    """A line where there is a worker for each, with its name at its foot, below the curve."""
    axes.axvline(cpus, color=drawing.FAINT, linewidth=1.5, linestyle=(0, (2, 3)), zorder=0)
    left = chart.mark_is_late
    look: Style = {
        "ha": "right" if left else "left",
        "fontsize": drawing.LABEL,
        "color": drawing.FAINT,
    }
    offset = (-BESIDE if left else BESIDE, BESIDE)
    foot = axes.get_xaxis_transform()
    axes.annotate(
        chart.mark, (cpus, 0), xytext=offset, xycoords=foot, textcoords="offset points", **look
    )
