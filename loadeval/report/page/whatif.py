"""The page's section on other numbers of workers: what was measured, and what is predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loadeval.report.figure.curve_charts import MEASURED_COLOR, PREDICTED_COLOR, worker_curve_chart
from loadeval.report.formatting import LONGEST_NAME, shortened
from loadeval.report.page import plotly
from loadeval.report.page.blocks import Figure, Section, Text, headed
from loadeval.report.page.escaping import drawn
from loadeval.report.tables import Table
from loadeval.report.terminal.whatif import curve_notes, curve_rows
from loadeval.report.wording import whatif as whatif_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.predict.prediction import WorkerCurve
    from loadeval.analysis.report import Report
    from loadeval.report.figure.curve_charts import CurveChart, CurvePoint
    from loadeval.report.page.blocks import Block, Json

MOST_RUNS = 8
"""More runs than this are ranks: their loaders are alike, and predicting takes time."""
HEIGHT = 320
OPACITY = 0.18
"""Opacity of a predicted range."""
LONGEST_LINE = 100


def whatif(report: Report) -> list[Section]:
    """One section where something can be predicted, else none."""
    if len(report.runs) > MOST_RUNS:
        return []
    curves = [(run, run.whatif) for run in report.runs]
    blocks: list[Block] = []
    for run, curve in curves:
        if curve is not None:
            blocks += headed(run.name)
            blocks += curve_blocks(f"what-if-{run.number}", curve)
    return [Section("what-if", whatif_words.TITLE, tuple(blocks))] if blocks else []


def curve_blocks(name: str, curve: WorkerCurve) -> list[Block]:
    """The figure `name`, its numbers in a table, and what is assumed."""
    head, *rows = curve_rows(curve)
    assumed = whatif_words.assumptions_in_words(curve.predicted)
    return [
        _figure(name, worker_curve_chart(curve)),
        Table(whatif_words.CURVE_TABLE, head, tuple(rows), figures=True),
        Text((" ".join(curve_notes(curve)),), "small"),
        *([Text((" ".join([whatif_words.ASSUMED, *assumed]),), "small")] if assumed else []),
    ]


def _figure(name: str, chart: CurveChart) -> Figure:
    form = plotly.layout(HEIGHT)
    ticks = {"showgrid": False, "fixedrange": True}
    title = drawn(f"{chart.unit}/s", plotly.LONGEST_UNIT)
    form |= {
        "xaxis": plotly.value_axis(chart.workers) | ticks,
        "yaxis": plotly.value_axis(replace(chart.throughput, title=title)),
        "shapes": [band(_ends(chart.predicted))],
        "annotations": [],
    }
    caption = whatif_words.CAPTION.format(unit=shortened(chart.unit, LONGEST_NAME))
    if chart.cpus is not None:
        caption += whatif_words.CPU_MARK
        form["shapes"].append(upright(chart.cpus))
        late = {"xanchor": "right", "xshift": -6} if chart.mark_is_late else {"xshift": 6}
        form["annotations"].append(plotly.note(chart.mark, chart.cpus, 0, "bottom") | late)
    return Figure(name, caption, [_predicted(chart), _measured(chart)], form)


def _measured(chart: CurveChart) -> Json:
    """Dots with whiskers; a dot without an interval has none."""
    points = chart.measured
    ends = [(point.high or point.value, point.low or point.value) for point in points]
    whiskers: Json = {"type": "data", "symmetric": False, "color": "ink", "thickness": 1.5}
    whiskers |= {
        "array": [high - point.value for point, (high, _) in zip(points, ends, strict=True)],
        "arrayminus": [point.value - low for point, (_, low) in zip(points, ends, strict=True)],
    }
    look: Json = {"mode": "markers", "marker": {"color": MEASURED_COLOR, "size": 8}}
    return _trace(whatif_words.MEASURED, points) | look | {"error_y": whiskers}


def _predicted(chart: CurveChart) -> Json:
    look = {"color": PREDICTED_COLOR, "size": 8, "symbol": "circle-open", "line": {"width": 2}}
    line = {"color": PREDICTED_COLOR, "width": 2, "dash": "dash"}
    return _trace(whatif_words.PREDICTED, chart.predicted) | {
        "mode": "lines+markers",
        "marker": look,
        "line": line,
    }


def _trace(name: str, points: Sequence[CurvePoint]) -> Json:
    workers, values = [point.workers for point in points], [point.value for point in points]
    words = ["<br>".join(drawn(line, LONGEST_LINE) for line in point.words) for point in points]
    return plotly.trace("scatter", name, workers, values, words)


def _ends(points: Sequence[CurvePoint]) -> list[tuple[float, float, float]]:
    return [(point.workers, point.low or 0.0, point.high or 0.0) for point in points]


def band(points: Sequence[tuple[float, float, float]]) -> Json:
    """The area between the low and the high ends of what is predicted, each at its place."""
    ends = [(x, low) for x, low, _ in points] + [(x, high) for x, _, high in reversed(points)]
    return {
        "type": "path",
        "path": f"M{' L'.join(f'{x},{end}' for x, end in ends)} Z",
        "fillcolor": PREDICTED_COLOR,
        "opacity": OPACITY,
        "line": {"width": 0},
        "layer": "below",
    }


def upright(x: float) -> Json:
    """A dotted line from the bottom of a figure to its top."""
    line = {"color": "line", "width": 1.5, "dash": "dot"}
    place = {"xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1}
    return {"type": "line", "layer": "below", "line": line, **place}
