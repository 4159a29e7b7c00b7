"""The page's section on other numbers of workers: what was measured, and what is predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loadeval.report.curve_charts import MEASURED_COLOR, PREDICTED_COLOR, worker_curve_chart
from loadeval.report.formatting import LONGEST_NAME, shortened
from loadeval.report.html import plotly
from loadeval.report.html.blocks import Figure, Heading, Section, Table, Text
from loadeval.report.html.escaping import drawn
from loadeval.report.whatif import curve_notes, curve_rows
from loadeval.report.wording.whatif import (
    ASSUMED,
    CAPTION,
    CPU_MARK,
    CURVE_TABLE,
    MEASURED,
    PREDICTED,
    TITLE,
    assumptions_in_words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.report import Report
    from loadeval.analysis.whatif import WorkerCurve
    from loadeval.report.curve_charts import CurveChart, CurvePoint
    from loadeval.report.html.blocks import Block, Json

MOST_RUNS = 8
"""More are ranks, whose loaders are alike, and predicting takes its time."""
HEIGHT = 320
OPACITY = 0.18
"""Opacity of a predicted range."""
LONGEST_LINE = 100


def whatif(report: Report) -> list[Section]:
    """One section where something can be predicted, else none."""
    if len(report.runs) > MOST_RUNS:
        return []
    found = [(one, one.whatif) for one in report.runs]
    blocks: list[Block] = []
    for one, curve in found:
        if curve is not None:
            blocks += [Heading(one.name)] if one.name else []
            blocks += curve_blocks(f"what-if-{one.number}", curve)
    return [Section("what-if", TITLE, tuple(blocks))] if blocks else []


def curve_blocks(name: str, curve: WorkerCurve) -> list[Block]:
    """The figure `name`, its numbers in a table, and what is assumed."""
    head, *rows = curve_rows(curve)
    assumed = assumptions_in_words(curve.predicted)
    return [
        _figure(name, worker_curve_chart(curve)),
        Table(CURVE_TABLE, head, tuple(rows), figures=True),
        Text((" ".join(curve_notes(curve)),), "small"),
        *([Text((" ".join([ASSUMED, *assumed]),), "small")] if assumed else []),
    ]


def _figure(name: str, chart: CurveChart) -> Figure:
    form = plotly.layout(HEIGHT)
    ticks = {"showgrid": False, "fixedrange": True}
    title = drawn(f"{chart.unit}/s", plotly.LONGEST_UNIT)
    form |= {
        "xaxis": plotly.value_axis(chart.workers) | ticks,
        "yaxis": plotly.value_axis(replace(chart.throughput, title=title)),
        "shapes": [_band(chart.predicted)],
        "annotations": [],
    }
    caption = CAPTION.format(unit=shortened(chart.unit, LONGEST_NAME))
    if chart.cpus is not None:
        caption += CPU_MARK
        line = {"color": "line", "width": 1.5, "dash": "dot"}
        form["shapes"].append(
            {"type": "line", "xref": "x", "yref": "paper", "layer": "below", "line": line}
            | {"x0": chart.cpus, "x1": chart.cpus, "y0": 0, "y1": 1}
        )
        late = {"xanchor": "right", "xshift": -6} if chart.mark_is_late else {"xshift": 6}
        form["annotations"].append(plotly.note(chart.mark, chart.cpus, 0, "bottom") | late)
    return Figure(name, caption, [_predicted(chart), _measured(chart)], form)


def _measured(chart: CurveChart) -> Json:
    """Dots with whiskers; one without an interval has none."""
    points = chart.measured
    ends = [(one.high or one.value, one.low or one.value) for one in points]
    whiskers: Json = {"type": "data", "symmetric": False, "color": "ink", "thickness": 1.5}
    whiskers |= {
        "array": [high - one.value for one, (high, _) in zip(points, ends, strict=True)],
        "arrayminus": [one.value - low for one, (_, low) in zip(points, ends, strict=True)],
    }
    look: Json = {"mode": "markers", "marker": {"color": MEASURED_COLOR, "size": 8}}
    return _trace(MEASURED, points) | look | {"error_y": whiskers}


def _predicted(chart: CurveChart) -> Json:
    look = {"color": PREDICTED_COLOR, "size": 8, "symbol": "circle-open", "line": {"width": 2}}
    line = {"color": PREDICTED_COLOR, "width": 2, "dash": "dash"}
    return _trace(PREDICTED, chart.predicted) | {
        "mode": "lines+markers",
        "marker": look,
        "line": line,
    }


def _trace(name: str, points: Sequence[CurvePoint]) -> Json:
    return {
        "type": "scatter",
        "name": name,
        "x": [one.workers for one in points],
        "y": [one.value for one in points],
        "customdata": [
            "<br>".join(drawn(line, LONGEST_LINE) for line in one.words) for one in points
        ],
        "hovertemplate": plotly.HOVER,
    }


def _band(points: Sequence[CurvePoint]) -> Json:
    """From the low ends of what is predicted back along the high ones."""
    ends = [(one.workers, one.low) for one in points]
    ends += [(one.workers, one.high) for one in reversed(points)]
    path = " L".join(f"{workers},{end}" for workers, end in ends)
    return {
        "type": "path",
        "path": f"M{path} Z",
        "fillcolor": PREDICTED_COLOR,
        "opacity": OPACITY,
        "line": {"width": 0},
        "layer": "below",
    }
