"""How the waits are distributed, on a logarithmic axis; counted from all of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.summary import steady
from loadeval.report.formatting import duration, share
from loadeval.report.html.blocks import Figure, Section, Table, Text
from loadeval.report.html.drawing import axis, layout, round_ticks, short
from loadeval.report.html.escaping import drawn
from loadeval.report.html.palette import dash, series
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from loadeval.analysis.report import Report, Side
    from loadeval.report.html.blocks import Json
    from loadeval.runlog.model import Column

    Bounds = npt.NDArray[np.float64]

HEIGHT = 280
A_DECADE = 10
"""Stretches of waits that a power of ten is cut into."""
MOST_LABELS = 8
FEW_DECADES = 2
EDGE = 0.03
"""Of a decade, so that the first and the last label are on the axis."""
CAPTION = (
    "How often training waited how long: the share of the batches that count, over waits on a "
    "logarithmic axis. {zeros}"
)
ZEROS = "Waits of nothing are at its left end."
NOTHING = "Not measured: no batch counts."
HEAD = ("", "batches", "mean", "p50", "p95", "p99", "longest")


def distribution(report: Report) -> Section:
    """A line for each run or arm, and the quantiles of each in a table."""
    # Of several backends the real waits alone: free ones are alike, and hide what differs.
    told = [side for side in report.sides if report.comparison or side.arm == "real"]
    found = [(side.name, waits(side)) for side in told or report.sides]
    found = [(name, wait_ns) for name, wait_ns in found if len(wait_ns)]
    title = "Waits"
    if not found:
        return Section("distribution", title, (Text((NOTHING,)),))
    data, form = _drawn(found)
    zeros = ZEROS if any((wait_ns <= 0).any() for _, wait_ns in found) else ""
    caption = CAPTION.format(zeros=zeros).strip()
    rows = tuple(_row(side) for side in report.sides if side.summary.waits)
    table = Table("Waits of the batches that count", HEAD, rows, figures=True)
    return Section("distribution", title, (Figure("distribution", caption, data, form), table))


def waits(side: Side) -> Column:
    """The waits of the batches of a run, or an arm, that count."""
    arm = side.arm if side.run.header.mode == "alternate" else None
    return side.run.steps.wait_ns[steady(side.run, arm)]


def _row(side: Side) -> tuple[str, ...]:
    told = side.summary.waits
    values = (
        () if told is None else (told.mean_ns, told.p50_ns, told.p95_ns, told.p99_ns, told.max_ns)
    )
    return (side.name, f"{side.summary.steady_batches:,}", *map(duration, values))


def _drawn(found: Sequence[tuple[str, Column]]) -> tuple[list[Json], Json]:
    every = np.concatenate([wait_ns for _, wait_ns in found])
    positive = every[every > 0]
    low = math.floor(math.log10(positive.min())) if len(positive) else 0
    high = max(math.ceil(math.log10(positive.max())), low + 1) if len(positive) else 1
    zeros = len(positive) < len(every)
    start = low - 1 if zeros else low
    bounds = np.linspace(start, high, (high - start) * A_DECADE + 1)
    data = [_line(number, *one, bounds, found) for number, one in enumerate(found)]
    powers = range(low, high + 1, math.ceil((high - low + 1) / MOST_LABELS))
    between = (1, 2, 5) if high - low <= FEW_DECADES else (1,)
    shown = [factor * 10.0**power for power in powers for factor in between]
    ticks = [math.log10(ns) for ns in shown if ns <= 10.0**high]
    labels = [short(ns) for ns in shown if ns <= 10.0**high]
    if zeros:
        ticks, labels = [float(start), *ticks], ["0", *labels]
    form = layout(HEIGHT)
    top = max(max(trace["y"]) for trace in data)
    shares = round_ticks(100 * top)
    form |= {
        "xaxis": axis("wait", showgrid=False, fixedrange=True, tickvals=ticks, ticktext=labels)
        | {"range": [start - EDGE, high + EDGE]},
        "yaxis": axis("share of the batches", fixedrange=True)
        | {"tickvals": [value / 100 for value in shares], "ticktext": [f"{v:g}%" for v in shares]}
        | {"range": [0, 1.08 * top]},
    }
    return data, form


def _line(
    number: int,
    name: str,
    wait_ns: Column,
    bounds: Bounds,
    found: Sequence[tuple[str, Column]],
) -> Json:
    logs = np.log10(np.maximum(wait_ns, 10.0 ** bounds[0]))
    counts, _ = np.histogram(np.clip(logs, bounds[0], bounds[-1]), bounds)
    parts = counts / len(wait_ns)
    own = {known for known, _ in found} <= set(ARMS) and name in ARMS
    middle = (bounds[:-1] + bounds[1:]) / 2
    label = drawn(name)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "x": np.round(middle, 4).tolist(),
        "y": np.round(parts, 6).tolist(),
        "line": {
            "color": name if own else series(number),
            "dash": dash(number),
            "shape": "hvh",
            "width": 2,
        },
        "customdata": [
            f"{label}: {count:,} batches ({share(float(part))})"
            f"<br>{_between(*ends, first=ends[0] == bounds[0])}"
            for count, part, *ends in zip(counts, parts, bounds[:-1], bounds[1:], strict=True)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _between(low: float, high: float, *, first: bool) -> str:
    if first:
        return f"waited up to {duration(10.0**high)}"
    return f"waited {duration(10.0**low)} to {duration(10.0**high)}"
