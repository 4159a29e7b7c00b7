"""What all figures share: type, margins, axes of durations, of names and of time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.report.formatting import duration
from loadeval.report.html.escaping import drawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from loadeval.report.html.blocks import Json

FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
LOG_FROM = 20
"""Times the typical value at which the greatest one asks for a logarithmic axis."""
MOST_TICKS = 5
NEAR_NOTHING = 0.6
LONGEST_LABEL = 24
CHARACTER = 7.6
"""Pixels, of a wide one in the size of type that values are set in."""
CAP = 0.16
"""Of a row: half the cap at the end of an interval."""
NOWHERE = "rgba(0,0,0,0)"


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


def bare_axis(end: float) -> Json:
    """An axis from 0 to `end` without lines and ticks: values are written beside their bars."""
    found = axis(showgrid=False, showline=False, showticklabels=False)
    return found | {"fixedrange": True, "range": [0, end]}


def names_axis(names: Sequence[str], rows: Sequence[float]) -> Json:
    """An axis of `rows` from the top, at least 1 apart: names of our own or of a run."""
    return axis(
        showgrid=False,
        fixedrange=True,
        tickvals=list(rows),
        ticktext=[drawn(name, LONGEST_LABEL) for name in names],
        range=[rows[-1] + 0.55, -0.55],
        tickfont={"color": "ink", "size": 13},
    )


def whisker(low: float, high: float, row: float) -> Json:
    """The interval from `low` to `high` of a bar in `row`."""
    ends = " ".join(f"M{x},{row - CAP} L{x},{row + CAP}" for x in (low, high))
    return {
        "type": "path",
        "path": f"M{low},{row} L{high},{row} {ends}",
        "line": {"color": "ink", "width": 1.5},
    }


def room_beside(texts: Sequence[str]) -> int:
    """Pixels right of the axes for `texts` beside the ends of bars."""
    return 16 + round(CHARACTER * max(map(len, texts), default=0))


def beside(text: str, x: float, row: float) -> Json:
    """`text`, our own or `drawn`, right of the end of a bar."""
    return {
        "text": text,
        "x": x,
        "y": row,
        "xanchor": "left",
        "yanchor": "middle",
        "xshift": 6,
        "showarrow": False,
        "font": {"color": "ink", "size": 13},
    }


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis of durations in nanoseconds; `floor_ns` is where one of nothing is drawn."""

    axis: Json
    floor_ns: float

    def places(self, values: npt.NDArray[np.int64]) -> list[float]:
        """Where `values` are drawn on it."""
        return [float(value) for value in np.maximum(values, self.floor_ns).tolist()]


def linear(values: npt.NDArray[np.int64], title: str) -> Scale:
    """An axis for `values` from 0, as bars have it."""
    return Scale(_linear(max(int(values.max(initial=0)), 1), title), 0.0)


def durations(values: npt.NDArray[np.int64], title: str) -> Scale:
    """An axis for `values`: logarithmic where a few of them are many times the typical one."""
    highest = int(values.max(initial=0))
    typical = float(np.median(values)) if len(values) else 0.0
    if not highest or highest <= LOG_FROM * typical:
        return linear(values, title)
    positive = values[values > 0]
    first = math.floor(math.log10(positive.min())) if len(positive) else 0
    last = math.ceil(math.log10(highest))
    step = math.ceil((last - first + 1) / MOST_TICKS)
    ticks = [10.0**power for power in range(first, last + 1, step)]
    labels = [short(tick) for tick in ticks]
    floor_ns = 10.0**first
    if len(positive) < len(values):
        # Nothing has no place on this scale: it is drawn under the rest.
        floor_ns = 10.0 ** (first - 1)
        ticks, labels = [floor_ns, *ticks], ["0", *labels]
    found = axis(
        title,
        type="log",
        fixedrange=True,
        tickvals=ticks,
        ticktext=labels,
        range=[math.log10(floor_ns * NEAR_NOTHING), math.log10(highest * 1.6)],
    )
    return Scale(found, floor_ns)


def _linear(highest: float, title: str) -> Json:
    ticks = round_ticks(highest)
    return axis(
        title,
        fixedrange=True,
        tickvals=ticks,
        ticktext=[short(tick) for tick in ticks],
        range=[-0.03 * highest, 1.08 * highest],
    )


def round_ticks(highest: float, most: int = MOST_TICKS) -> list[float]:
    """From 0 to at most `highest`, in steps of 1, 2 or 5 times a power of ten."""
    rough = (highest or 1.0) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return [step * number for number in range(int(highest / step * 1.001) + 1)]


def short(ns: float) -> str:
    """A round duration without the digits that say nothing: 10 ms."""
    if not ns:
        return "0"
    number, unit = duration(ns).split(" ", maxsplit=1)
    return f"{float(number.replace(',', '')):g} {unit}"
