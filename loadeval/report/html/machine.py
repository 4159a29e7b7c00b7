"""Readings of the GPU and of the host, on the same axis of time as the waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.report.html.blocks import Figure, Heading, Section, Text, side_by_side
from loadeval.report.html.drawing import axis, layout, round_ticks
from loadeval.report.html.escaping import drawn
from loadeval.report.html.moments import NS_DIGITS, SECOND_NS, Moments, seconds
from loadeval.report.html.palette import dash, series
from loadeval.report.html.thinning import extremes, told
from loadeval.report.metrics import LONGEST_SUBJECT, MAIN, UNITS, metrics_rows, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.report import Report, RunReport
    from loadeval.report.html.blocks import Block, Json
    from loadeval.runlog.model import Column, Run, Values

ROW, BETWEEN, AROUND = 96, 34, 54
"""Pixels: a quantity's panel, the gap above it for its title, and the axis."""
BUCKETS = 400
TICKS = 3
MOST_LINES = 64
"""As many GPUs with a quantity each, or fewer with more."""
CAPTION = "What was read of the machine while the run went on: {names}. Zoom goes with the waits."
NOTHING = "Nothing was read of the machine: {why}."


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A quantity of one subject over time, what is not known left out."""

    quantity: str
    subject: str
    time_ns: Column
    values: Values


def machine(report: Report) -> Section:
    """A figure for each run that has readings, and the means of each arm in a table."""
    blocks: list[Block] = []
    for track in report.runs:
        if track.name:
            blocks.append(Heading(track.name))
        found = lines(track.run)
        blocks.append(_figure(track, found) if found else Text((_why(track.run),)))
    rows = metrics_rows([(one.metrics, side.arm) for one in report.runs for side in one.sides])
    names = [side.name for side in report.sides]
    blocks.append(side_by_side("Means while batches that count were served", names, rows))
    return Section("machine", "System metrics", tuple(blocks))


def lines(run: Run) -> list[Line]:
    """Of the main quantities those that were read, in the order of MAIN."""
    found = []
    for name in MAIN:
        for readings in run.readings:
            values = readings.values.get(name)
            if values is not None and (known := np.isfinite(values)).any():
                found.append(Line(name, readings.subject, readings.time_ns[known], values[known]))
    return found[:MOST_LINES]


def _why(run: Run) -> str:
    reasons = [f"{found.probe}: {found.missing}" for found in run.readings if found.missing]
    return NOTHING.format(why="; ".join(reasons) or "there are no readings in this run")


def _figure(track: RunReport, found: Sequence[Line]) -> Figure:
    quantities = list(dict.fromkeys(line.quantity for line in found))
    subjects = list(dict.fromkeys(line.subject for line in found))
    height = AROUND + (ROW + BETWEEN) * len(quantities)
    form = layout(height)
    form["xaxis"] = Moments(track.run).axis(anchor=f"y{len(quantities)}".replace("y1", "y"))
    form["annotations"] = []
    inner = (ROW + BETWEEN) * len(quantities)
    for row, name in enumerate(quantities):
        top = 1 - row * (ROW + BETWEEN) / inner
        domain = [max(top - (ROW + BETWEEN) / inner, 0), top - BETWEEN / inner]
        drawn_of = [line for line in found if line.quantity == name]
        form[_key("yaxis", row)] = _panel(drawn_of) | {"domain": domain, "anchor": "x"}
        form["annotations"].append(_title(_plain(name), domain[1]))
    data = [
        _trace(line, subjects.index(line.subject), quantities.index(line.quantity), first)
        for line, first in _firsts(found)
    ]
    count, shown = sum(len(line.values) for line in found), sum(len(one["x"]) for one in data)
    caption = CAPTION.format(names=", ".join(map(_plain, quantities)))
    notes = tuple(filter(None, [told(shown, count, "readings")]))
    return Figure(f"machine-{track.number}", caption, data, form, notes, f"run-{track.number}")


def _firsts(found: Sequence[Line]) -> list[tuple[Line, bool]]:
    """Each line, and whether it is the first of its subject."""
    subjects = [line.subject for line in found]
    return [(line, line.subject not in subjects[:place]) for place, line in enumerate(found)]


def _trace(line: Line, subject: int, row: int, first: bool) -> Json:
    kept = extremes(line.values, BUCKETS)
    name = drawn(line.subject, LONGEST_SUBJECT) or "all"
    times = np.round(line.time_ns[kept] / SECOND_NS, NS_DIGITS).tolist()
    values = line.values[kept].tolist()
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(kept) <= BUCKETS // 4 else "lines",
        "name": name,
        "legendgroup": f"subject{subject}",
        "showlegend": first,
        "x": times,
        "y": values,
        "xaxis": "x",
        "yaxis": _key("y", row),
        "line": {"color": series(subject), "dash": dash(subject), "width": 1.6},
        "marker": {"color": series(subject), "size": 4},
        "customdata": [
            f"{name}<br>{_plain(line.quantity)} {value_of(line.quantity, value)}, at {seconds(at)}"
            for at, value in zip(times, values, strict=True)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _panel(found: Sequence[Line]) -> Json:
    name = found[0].quantity
    highest = max(float(line.values.max()) for line in found)
    highest = max(highest, 0.0) or 1.0
    ticks = round_ticks(highest, TICKS)
    labels = [value_of(name, tick) if tick else "0" for tick in ticks]
    return axis(
        fixedrange=True,
        tickvals=ticks,
        ticktext=labels,
        range=[-0.05 * highest, 1.1 * highest],
    )


def _title(text: str, top: float) -> Json:
    return {
        "text": text,
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": top,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": "ink", "size": 13},
    }


def _plain(name: str) -> str:
    """The name without its unit, one of ours: kernel busy."""
    ends = (end for end in UNITS if name.endswith(end))
    return name.removesuffix(next(ends, "")).replace("_", " ")


def _key(name: str, row: int) -> str:
    return name if row == 0 else f"{name}{row + 1}"
