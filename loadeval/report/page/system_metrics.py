"""The page's section of system metrics."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.metrics import THREADS
from loadeval.report.figure.point_charts import (
    SECOND_NS,
    RunTime,
    extremes,
    linear_axis,
)
from loadeval.report.formatting import LONGEST_NAME, shortened
from loadeval.report.page import plotly
from loadeval.report.page.blocks import Figure, Section, Text, headed, side_by_side
from loadeval.report.page.escaping import drawn
from loadeval.report.palette import dash, series
from loadeval.report.terminal.metrics import MAIN, metrics_rows
from loadeval.report.wording import page as page_words
from loadeval.report.wording.metrics import LONGEST_SUBJECT, quantity_in_words, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.report import Report, RunReport
    from loadeval.data.columns import Column, Values
    from loadeval.data.run import Run
    from loadeval.report.page.blocks import Block, Json
from loadeval.report.page.sections import thinned

PANEL, PANEL_GAP, PANELS_AROUND = 130, 0.26, 54
"""Pixels of a quantity's panel, the part of it for its title, and pixels for the axis."""
METRIC_BUCKETS = 400
MOST_LINES = 64
"""The most lines of all quantities: one for each of 64 GPUs, or more for each of fewer."""


@dataclass(frozen=True, slots=True, eq=False)
class MetricLine:
    """A quantity of one subject over time, without unknown values."""

    quantity: str
    subject: str
    time_ns: Column
    values: Values


def system_metrics(report: Report) -> Section:
    """A figure for each run that has readings, and the means of each arm in a table."""
    blocks: list[Block] = []
    for run in report.runs:
        blocks += headed(run.name)
        lines = _metric_lines(run.run)
        reasons = "; ".join(f"{probe}: {why}" for probe, why in run.metrics.missing)
        why = reasons or page_words.NO_READINGS_OF_RUN
        blocks.append(
            _metrics(run, lines) if lines else Text((page_words.NO_METRICS.format(why=why),))
        )
    rows = metrics_rows([(run.metrics, side.arm) for run in report.runs for side in run.sides])
    names = [shortened(side.name, LONGEST_NAME) for side in report.sides]
    blocks.append(side_by_side("Means over the measured batches", names, rows))
    return Section("machine", "System metrics", tuple(blocks))


def _metric_lines(run: Run) -> list[MetricLine]:
    """The main quantities that were read, in the order of MAIN."""
    lines = []
    for name in MAIN:
        for (probe, subject), read in run.readings.items():
            # Threads have a table of their own.
            if probe != THREADS and name in read and (known := np.isfinite(read[name])).any():
                lines.append(MetricLine(name, subject, read.time_ns[known], read[name][known]))
    return lines[:MOST_LINES]


def _metrics(run: RunReport, lines: Sequence[MetricLine]) -> Figure:
    quantities = list(dict.fromkeys(line.quantity for line in lines))
    subjects = list(dict.fromkeys(line.subject for line in lines))
    axes = ["y", *(f"y{row}" for row in range(2, len(quantities) + 1))]
    form = plotly.layout(PANELS_AROUND + PANEL * len(quantities))
    form["margin"]["t"] += round(PANEL_GAP * PANEL)
    form["grid"] = {"subplots": [[f"x{axis}"] for axis in axes], "ygap": PANEL_GAP}
    time = RunTime.of(run.run)
    form["xaxis"] = plotly.time_axis(time, anchor=axes[-1])
    form["shapes"], _ = plotly.shades(run.run, time)
    form["annotations"] = []
    for axis, name in zip(axes, quantities, strict=True):
        top = max(float(line.values.max()) for line in lines if line.quantity == name)
        panel = linear_axis(max(top, 0.0), "", partial(_tick_of, name))
        form[axis.replace("y", "yaxis")] = plotly.value_axis(panel)
        title = plotly.note(quantity_in_words(name), 0, 1, "bottom")
        form["annotations"].append(title | {"xref": "paper", "yref": f"{axis} domain"})
    data: list[Json] = []
    for index, line in enumerate(lines):
        first = all(line.subject != other.subject for other in lines[:index])
        axis = axes[quantities.index(line.quantity)]
        data.append(_metric_trace(line, subjects.index(line.subject), axis, first=first))
    count, shown = sum(len(line.values) for line in lines), sum(len(trace["x"]) for trace in data)
    caption = page_words.METRICS.format(names=", ".join(map(quantity_in_words, quantities)))
    caption += page_words.SHADED_METRICS if form["shapes"] else ""
    notes = thinned(shown, count, "readings")
    return Figure(f"machine-{run.number}", caption, data, form, notes, f"run-{run.number}")


def _metric_trace(line: MetricLine, subject: int, axis: str, *, first: bool) -> Json:
    kept = extremes(line.values, METRIC_BUCKETS)
    name = drawn(line.subject, LONGEST_SUBJECT) or "all"
    times = np.round(line.time_ns[kept] / SECOND_NS, plotly.S_DIGITS).tolist()
    values = line.values[kept].tolist()
    quantity = quantity_in_words(line.quantity)
    words = [
        f"{name}<br>{quantity} {value_of(line.quantity, value)}, at {plotly.seconds(second)}"
        for second, value in zip(times, values, strict=True)
    ]
    return plotly.trace("scatter", name, times, values, words) | {
        "mode": "lines+markers" if len(kept) <= METRIC_BUCKETS // 4 else "lines",
        "legendgroup": f"subject{subject}",
        "showlegend": first,
        "xaxis": "x",
        "yaxis": axis,
        "line": {"color": series(subject), "dash": dash(subject), "width": 1.6},
        "marker": {"color": series(subject), "size": 4},
    }


def _tick_of(name: str, value: float) -> str:
    return value_of(name, value) if value else "0"
