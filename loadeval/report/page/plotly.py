"""Charts as JSON for plotly.js, and plotly.js itself under a policy that runs nothing else."""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.data.run import ARMS
from loadeval.errors import UsageError
from loadeval.report.figure.point_charts import blocks_of
from loadeval.report.formatting import duration, shortened
from loadeval.report.page.blocks import LIGHT_OPACITY
from loadeval.report.page.escaping import drawn
from loadeval.report.palette import NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.data.columns import Values
    from loadeval.data.run import Run
    from loadeval.report.figure.bar_charts import Bar, BarChart, Row, Texture
    from loadeval.report.figure.point_charts import Axis, PointChart, Points, RunTime
    from loadeval.report.page.blocks import Json

FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
HOVER = "%{customdata}<extra></extra>"
NOWHERE = "rgba(0,0,0,0)"
ROW, AROUND = 34, 16
"""Pixels: a row of bars, and what is around all."""
THIN = 0.75
"""The height of a row that is part of another one, in heights of other rows."""
STRIPES = {"shape": "/", "size": 7, "fillmode": "overlay", "fgcolor": "paper", "fgopacity": 1}
TEXTURES: dict[str, dict[str, object]] = {
    "solid": {},
    "hatched": {"pattern": STRIPES},
    "light": {"opacity": LIGHT_OPACITY},
}
"""How parts of one colour are told apart."""
BETWEEN = 0.6
"""Rows between the bars of two runs."""
CAP = 0.16
"""Half the cap at the end of an interval, in heights of a row."""
CHARACTER = 7.6
"""Pixels of a wide one in the size of type that values are set in."""
LONGEST_LABEL = 24
LONGEST_UNIT = 16
"""Characters of a unit that are drawn beside a bar."""
MOST_DOTS = 300
"""Points that are drawn large."""
MOST_BLOCKS = 400
SHADE = 0.13
S_DIGITS = 6
"""Decimals of a second that are drawn: microseconds."""
SYMBOLS = {
    "real": "circle",
    "ideal": "diamond",
    "epoch_start": "triangle-up-open",
    "not_counted": "x-thin-open",
}


def trace(
    kind: str, name: str, x: Sequence[Any], y: Sequence[Any], words: Sequence[str | None]
) -> Json:
    """Data of one `kind`, bars or a line with dots; `words` are what each point tells."""
    point = {"x": list(x), "y": list(y), "customdata": list(words), "hovertemplate": HOVER}
    return {"type": kind, "name": name, **point}


# Bars


def bars(chart: BarChart) -> tuple[list[Json], Json]:
    """Data and layout of rows of bars, those of a run together."""
    unit = shortened(chart.unit, LONGEST_UNIT)
    values = [f"{row.text} {unit}/s" if row.bars and unit else row.text for row in chart.rows]
    groups = list(dict.fromkeys(row.group for row in chart.rows))
    apart = BETWEEN if chart.unit else 0.0
    heights = [THIN if row.thin else 1.0 for row in chart.rows[1:]]
    places = [
        at + apart * groups.index(row.group)
        for at, row in zip(accumulate(heights, initial=0.0), chart.rows, strict=True)
    ]
    ends = [chart.end(row) for row in chart.rows]
    placed = [
        (bar, row, at) for row, at in zip(chart.rows, places, strict=True) for bar in row.bars
    ]
    form = layout(AROUND + round(ROW * (places[-1] + 1)), bottom=6)
    form["margin"]["r"] = 16 + round(CHARACTER * max(map(len, values)))
    bare: Json = {"showgrid": False, "fixedrange": True}
    form |= {
        "xaxis": axis(showticklabels=False, **bare, range=[0, 1.01 * max(ends) or 1.0]),
        "yaxis": axis(
            **bare,
            tickvals=places,
            ticktext=[drawn(row.name, LONGEST_LABEL) for row in chart.rows],
            tickfont={"color": "ink", "size": 13},
            range=[places[-1] + 0.55, -0.55],
        ),
        "annotations": [
            note(drawn(value), end, at) | {"xshift": 6}
            for value, end, at in zip(values, ends, places, strict=True)
        ],
        "shapes": [
            _whisker(bar.low, min(bar.high, chart.farthest), at)
            for bar, _, at in placed
            if bar.low is not None and bar.high is not None
        ],
        "barmode": "overlay",
    }
    looks = dict.fromkeys((bar.color, bar.texture) for bar, *_ in placed)
    traces = [
        _bars_of(look, [bar for bar in placed if (bar[0].color, bar[0].texture) == look])
        for look in sorted(looks, key=lambda look: list(NAMES).index(look[0]))
    ]
    if not any(len(row.bars) > 1 for row in chart.rows):
        traces = [group | {"showlegend": False} for group in traces]  # the rows say it
    return traces, form


def _bars_of(look: tuple[str, Texture], placed: Sequence[tuple[Bar, Row, float]]) -> Json:
    color, texture = look
    lengths, places = [bar.length for bar, _, _ in placed], [at for *_, at in placed]
    words = [_bar_in_words(bar, row) for bar, row, _ in placed]
    return trace("bar", NAMES[color], lengths, places, words) | {
        "orientation": "h",
        "base": [bar.start for bar, _, _ in placed],
        "width": [0.62 * (THIN if row.thin else 1.0) for _, row, _ in placed],
        "marker": {
            "color": color,
            # What is gained, a loss under zero, is hollow.
            "opacity": [1.0 if bar.length >= 0 else 0.25 for bar, _, _ in placed],
            "line": {"color": color, "width": 1},
            **TEXTURES[texture],
        },
    }


def _bar_in_words(bar: Bar, row: Row) -> str:
    name = f"{drawn(row.name)}: {drawn(row.words)}"
    return f"{name}<br>{NAMES[bar.color]} {bar.text}" if len(row.bars) > 1 else name


def _whisker(low: float, high: float, at: float) -> Json:
    ends = " ".join(f"M{x},{at - CAP} L{x},{at + CAP}" for x in (low, high))
    return {
        "type": "path",
        "path": f"M{low},{at} L{high},{at} {ends}",
        "line": {"color": "ink", "width": 1.5},
    }


def spans(
    color: str,
    start_s: Values,
    end_s: Values,
    places: Sequence[float],
    words: Sequence[str],
) -> Json:
    """A bar for each span of time, at its place; its `words` are what it tells."""
    lengths = np.round(end_s - start_s, S_DIGITS).tolist()
    return trace("bar", NAMES[color], lengths, places, words) | {
        "orientation": "h",
        "base": np.round(start_s, S_DIGITS).tolist(),
        "marker": {"color": color, "line": {"width": 0}},
    }


# Points over the run


def points(chart: PointChart, value: str, on: str = "y", *, many: bool = False) -> list[Json]:
    """The batches of `chart` on the axis `on`, and its marks; `value` says what each has.

    Of a figure with more than one axis, `many`, only the first has its names in the legend.
    """
    traces: list[Json] = []
    for batches in chart.points:
        few = len(batches.rows) <= MOST_DOTS
        size = 9 if batches.color == "epoch_start" else 5 if few else 4
        look: Json = {"symbol": SYMBOLS[batches.color], "size": size, "opacity": 1 if few else 0.7}
        drawn_as: Json = {
            "mode": ("lines+markers" if few else "lines") if batches.joined else "markers",
            "line": {"color": batches.color, "width": 1.2},
            "marker": {"color": batches.color, **look},
        }
        traces.append(_batches(chart, batches, value, on) | drawn_as)
    for batches in chart.marks:
        ring = {"color": batches.color, "size": 11, "symbol": "circle-open", "line": {"width": 2}}
        traces.append(_batches(chart, batches, value, on) | {"mode": "markers", "marker": ring})
        traces[-1]["name"] += f" ({batches.count:,})"
    if many:
        traces = [
            batches | {"legendgroup": batches["name"], "showlegend": on == "y"}
            for batches in traces
        ]
    return traces


def _batches(chart: PointChart, batches: Points, value: str, on: str) -> Json:
    columns = chart.places(batches, np.round(chart.time.x, S_DIGITS))
    # JSON has no NaN.
    x, y = ([None if math.isnan(at) else at for at in column.tolist()] for column in columns)
    values = chart.values[batches.rows].tolist()
    words: list[str | None] = [
        f"{where}<br>{value} {duration(ns)}"
        for where, ns in zip(_batches_in_words(chart, batches), values, strict=True)
    ]
    for place in reversed(batches.breaks):
        words.insert(place, None)
    return trace("scatter", batches.name, x, y, words) | {"yaxis": on}


def _batches_in_words(chart: PointChart, batches: Points) -> list[str]:
    """Each batch by its epoch and number, and when it was asked for, where that is known."""
    steps, time = chart.run.steps, chart.time
    return [
        f"epoch {steps.epoch[row]}, batch {steps.batch[row]}"
        + (f", at {seconds(time.x[row])}" if time.timed else "")
        for row in batches.rows.tolist()
    ]


def shades(run: Run, time: RunTime) -> tuple[list[Json], int]:
    """A rectangle for each measured block, or none where they are too many; and their number."""
    blocks = blocks_of(run)
    if len(blocks) > MOST_BLOCKS:
        return [], len(blocks)
    columns = time.x[blocks.first], time.end[blocks.last], blocks.arm
    look: Json = {"type": "rect", "opacity": SHADE, "line": {"width": 0}}
    return [
        _upright(start, end) | look | {"fillcolor": ARMS[arm]}
        for start, end, arm in zip(*(column.tolist() for column in columns), strict=True)
    ], len(blocks)


def epoch_lines(chart: PointChart) -> list[Json]:
    """A line where each epoch but the first begins."""
    look: Json = {"type": "line", "line": {"color": "line", "width": 1, "dash": "dot"}}
    return [_upright(x, x) | look for x in chart.time.x[chart.epochs].tolist()]


def _upright(start: float, end: float) -> Json:
    """Where a shape is that goes from the bottom of a figure to its top."""
    places = {"x0": round(start, S_DIGITS), "x1": round(end, S_DIGITS), "y0": 0, "y1": 1}
    return {"xref": "x", "yref": "paper", "layer": "below", **places}


def medians(chart: PointChart) -> list[Json]:
    """A line at each median, from the left of a figure to its right."""
    look: Json = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "layer": "below"}
    return [
        {**look, "y0": ns, "y1": ns, "line": {"color": color, "width": 1, "dash": "dash"}}
        for color, ns in chart.medians
    ]


def seconds(value: float) -> str:
    """A time since the run's start: 12.345 s."""
    return f"{value:,.3f} s"


# Layout and axes


def layout(height: int, *, bottom: int = 44) -> Json:
    """The layout of a figure `height` pixels high; its legend stands above it on the page."""
    return {
        "height": height,
        "autosize": True,
        "font": {"family": FAMILY, "size": 13, "color": "ink"},
        "paper_bgcolor": NOWHERE,
        "plot_bgcolor": NOWHERE,
        "margin": {"l": 8, "r": 12, "t": 10, "b": bottom, "pad": 0},
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": "raised",
            "bordercolor": "line",
            "align": "left",
            "namelength": -1,
            "font": {"family": FAMILY, "size": 13, "color": "ink"},
        },
        "showlegend": False,
        "dragmode": "zoom",
    }


def axis(title: str = "", **more: object) -> Json:
    """An axis with a title that is our own or `drawn`, and faint lines."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"color": "faint", "size": 13}},
        "automargin": True,
        "color": "ink",
        "gridcolor": "rule",
        "linecolor": "line",
        "zeroline": False,
        "tickfont": {"color": "faint", "size": 12},
        **more,
    }


def value_axis(scale: Axis) -> Json:
    """An axis of values, which is not zoomed."""
    ends = (scale.low, scale.high)
    return axis(
        scale.title,
        fixedrange=True,
        type="log" if scale.log else "linear",
        tickvals=[tick for tick, _ in scale.ticks],
        ticktext=[text for _, text in scale.ticks],
        range=[math.log10(end) for end in ends] if scale.log else list(ends),
    )


def time_axis(time: RunTime, **more: object) -> Json:
    """The axis of a run, as wide as the run."""
    title = "time since the run began" if time.timed else "batch number"
    suffix = {"ticksuffix": " s"} if time.timed else {}
    look = {"showgrid": False, "ticks": "outside", "ticklen": 4, "tickcolor": "line"}
    return axis(title, **look, **suffix, range=list(time.range), **more)


def note(text: str, x: float, y: float, yanchor: str = "middle") -> Json:
    """`text`, our own or `drawn`, right of a place of a figure."""
    return {
        "text": text,
        "x": x,
        "y": y,
        "xanchor": "left",
        "yanchor": yanchor,
        "showarrow": False,
        "font": {"color": "ink", "size": 13},
    }


# plotly.js


@dataclass(frozen=True, slots=True)
class PlotlyJs:
    """plotly.js as the installed plotly package has it: its text and its version."""

    text: str
    version: str

    @classmethod
    def installed(cls) -> PlotlyJs:
        """Raises UsageError where it cannot stand in a page."""
        from plotly.offline import (  # type: ignore[import-untyped]  # noqa: PLC0415 - ships no types; heavy
            get_plotlyjs,
            get_plotlyjs_version,
        )

        text, version = str(get_plotlyjs()).replace("\r\n", "\n"), str(get_plotlyjs_version())
        if "</script" in text.lower() or "<!--" in text:
            raise UsageError(
                f"plotly.js {version} of the installed plotly has text that ends a script element, "
                "so no page can hold it; expected another release: pip install --upgrade plotly"
            )
        return cls(text, version)


def policy(scripts: Sequence[str]) -> str:
    """The Content-Security-Policy of a page that runs `scripts` and loads nothing.

    plotly.js adds rules of style when it starts, so a style element may hold anything: with
    nothing to load, it can only change how the page looks. Attributes hold no style.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(source_hash, scripts))}",
            "script-src-attr 'none'",
            "style-src 'unsafe-inline'",
            "style-src-attr 'none'",
            "worker-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def source_hash(text: str) -> str:
    """`text`, which stands in a script element, as the policy names it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
