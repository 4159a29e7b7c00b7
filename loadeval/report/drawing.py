"""Charts and text on a page of matplotlib's, with places and sizes in inches."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from loadeval.report.bar_charts import Texture  # noqa: TC001 - as a key
from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    duration,
    printable,
    shortened,
)
from loadeval.report.palette import LIGHT, NAMES
from loadeval.report.point_charts import OUTLIERS, blocks_of, epoch_starts_of
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from loadeval.report.bar_charts import Bar, BarChart
    from loadeval.report.point_charts import PointChart, Points

    Style = dict[str, Any]

TITLE, PANEL, LABEL, SMALL = 22, 18, 16, 13
"""Sizes of type in points, on a figure 14 inches wide: readable when it is shown half as wide."""
FAMILY = "DejaVu Sans"
"""Comes with matplotlib, so the room that a text needs is the same everywhere."""
LONGEST, FEWEST = 400, 5
"""Characters of one text that are looked at, and that are left of any, at most and at least."""
INK, FAINT, PAPER = LIGHT["ink"], LIGHT["faint"], LIGHT["paper"]
WHISKER: Style = {"color": INK, "linewidth": 2, "markersize": 12, "markeredgewidth": 2}
DPI = 100
POINTS_PER_INCH = 72
WIDTH, MARGIN = 14.0, 0.4
TEXT_WIDTH = WIDTH - 2 * MARGIN
LINE = 1.45
"""Of a line, in sizes of its type."""
GAP = 0.1
"""Between a bar and what is written beside it."""
TITLE_PAD = 12
"""Points, between axes and their title."""
THIN = 0.7
"""Of a row: one that is part of another."""
TEXTURES: dict[Texture, Style] = {
    "solid": {},
    "hatched": {"hatch": "///", "edgecolor": PAPER, "linewidth": 0},
    "light": {"alpha": 0.38, "linewidth": 0},
}
"""How parts of one colour are told apart."""
FEW = 60
"""Marks that are drawn large, and blocks whose lines are drawn thick."""


def draw_rows(axes: Axes, chart: BarChart) -> None:
    """Rows 1 apart, under their labels."""
    places = places_of(chart)
    axes.set_ylim(places[-1] + 0.6, -0.6)
    draw_bars(axes, chart, places, 0.62, labels=True)
    axes.set_yticks(places, [row.label for row in chart.rows])
    axes.tick_params(axis="y", length=0)
    for label, row in zip(axes.get_yticklabels(), chart.rows, strict=True):
        if row.thin:
            label.set_fontsize(SMALL)


def places_of(chart: BarChart) -> list[float]:
    """The middle of each row: 1 apart, and thin ones less."""
    apart = [(THIN if one.thin else 1.0) for one in chart.rows[1:]]
    return list(accumulate(apart, initial=0.0))


def draw_bars(
    axes: Axes, chart: BarChart, places: Sequence[float], thick: float, *, labels: bool
) -> None:
    """Each row with its middle at its place.

    Without `labels`, its interval stands behind the value, and its name where it has no bar.
    """
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    texts = [
        (row.text, "" if labels else row.interval)
        if row.bars
        else ("", row.text if labels else f"{row.label} {row.text}")
        for row in chart.rows
    ]
    small = LABEL if labels else SMALL
    # All texts have room beside the longest bar.
    width = float(axes.get_window_extent().width / DPI)
    beside = [width_of(value, LABEL, bold=True) + GAP * bool(value) + GAP for value, _ in texts]
    rooms = [at + width_of(text, small) + GAP for at, (_, text) in zip(beside, texts, strict=True)]
    longest = max(map(chart.end, chart.rows), default=0.0)
    axes.set_xlim(0, longest * width / (width - max(rooms, default=0.0)) or 1.0)
    for row, middle, (value, text), after in zip(chart.rows, places, texts, beside, strict=True):
        for bar in row.bars:
            _draw_bar(axes, bar, middle, thick * (THIN if row.thin else 1.0), chart.farthest)
            room = bar.length / axes.get_xlim()[1] * width
            if len(row.bars) > 1 and room > width_of(bar.text, LABEL) + 2 * GAP:
                _write_beside(axes, bar.text, (bar.start + bar.length / 2, middle), ha="center")
        end = (chart.end(row), middle)
        weight = {"fontsize": SMALL} if row.thin else {"fontweight": "bold"}
        _write_beside(axes, value, end, GAP, **weight)
        _write_beside(axes, text, end, after, fontsize=small, color=FAINT)


def _draw_bar(axes: Axes, bar: Bar, middle: float, thick: float, farthest: float) -> None:
    color = LIGHT[bar.color]
    # What is gained, a loss under zero, is drawn hollow.
    gain = bar.length < 0
    look: Style = {"facecolor": "none" if gain else color, "linewidth": 1.5 if gain else 0}
    look |= {"edgecolor": color, **TEXTURES[bar.texture]}
    axes.barh(middle, bar.length, left=bar.start, height=thick, **look)
    if bar.low is not None and bar.high is not None:
        # A whisker that goes on beyond what is drawn has no cap at its end.
        capped = [0] if bar.high > farthest else [0, 1]
        ends = [bar.low, min(bar.high, farthest)]
        axes.plot(ends, [middle] * 2, **WHISKER, marker="|", markevery=capped)


def _write_beside(
    axes: Axes, text: str, place: tuple[float, float], inches: float = 0.0, **more: Any
) -> None:
    look: Style = {"va": "center_baseline", "fontsize": LABEL, "color": INK, **more}
    offset = (inches * POINTS_PER_INCH, 0)
    axes.annotate(text, place, xytext=offset, textcoords="offset points", **look)


def color_legend(axes: Axes, colors: Sequence[str]) -> None:
    """A legend that names these colours."""
    from matplotlib.patches import Patch  # noqa: PLC0415 - heavy

    legend(axes, [Patch(color=LIGHT[color], label=NAMES[color]) for color in colors])


def texture_legend(axes: Axes, names: Mapping[Texture, str], color: str) -> None:
    """A legend that names the textures, in a colour that they are drawn in."""
    from matplotlib.patches import Patch  # noqa: PLC0415 - heavy

    handles = []
    for texture, name in names.items():
        look = {"facecolor": LIGHT[color], "edgecolor": LIGHT[color], "linewidth": 0}
        handles.append(Patch(**{**look, **TEXTURES[texture]}, label=name))
    legend(axes, handles)


def draw_iterations(axes: Axes, chart: PointChart) -> None:
    """Dots are the iterations of counted batches, lines the means of their blocks."""
    if not _prepare(axes, [chart]):
        return
    blocks, number = blocks_of(chart.run), chart.number
    for points in chart.points:
        _draw_points(axes, chart, points, "")
        own = blocks.arm == ARMS.index(points.color)
        axes.hlines(
            blocks.mean_ns[own],
            number[blocks.first[own]] - 0.5,
            number[blocks.last[own]] + 0.5,
            color=LIGHT[points.color],
            linewidth=4 if own.sum() <= FEW else 2,
            label=points.name,
        )
    _draw_outliers(axes, chart)
    epochs, waits_ns = epoch_starts_of(chart.run)
    if 0 < len(epochs) <= FEW:
        # At the foot of the axes: an epoch start is no iteration, and often many times as long.
        places = number[np.searchsorted(chart.run.steps.epoch, epochs)]
        name = counted(len(epochs), "epoch start", "epoch starts")
        look = _marker("^", "epoch_start", len(epochs)) | {"clip_on": False}
        look |= {"transform": axes.get_xaxis_transform()}
        label = f"{name} ({duration(float(waits_ns.mean()))})"
        axes.plot(places, np.full(len(places), 0.04), label=label, **look)
    _draw_epochs(axes, chart, "")  # each is where an epoch start is
    legend(axes)


def draw_waits(axes: Axes, real: PointChart, ideal: PointChart) -> None:
    """The waits of two runs by batch; of the real one also what does not count, and outliers."""
    if not _prepare(axes, [real, ideal]):
        return
    lines = sorted(real.points, key=lambda points: not points.joined)
    for chart, points in [(real, one) for one in lines] + [(ideal, one) for one in ideal.points]:
        name = counted(points.count, points.name, f"{points.name}s")
        _draw_points(axes, chart, points, name if points.color == "epoch_start" else points.name)
    _draw_outliers(axes, real)
    _draw_epochs(axes, real, "new epoch")
    legend(axes)


def _prepare(axes: Axes, charts: Sequence[PointChart]) -> bool:
    """Set both axes; whether there is anything to draw, which is said where there is not."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - heavy

    axes.set_xlabel("batch number", fontsize=LABEL, color=INK)
    if not any(chart.points for chart in charts):
        axes.set_yticks([])
        axes.set_xticks([])
        look: Style = {"ha": "center", "va": "center", "fontsize": LABEL, "color": FAINT}
        axes.text(0.5, 0.5, NOT_MEASURED, transform=axes.transAxes, **look)
        return False
    axis = charts[0].axis
    axes.set_yscale("log" if axis.log else "linear")
    axes.minorticks_off()
    axes.set_ylim(axis.low, axis.high)
    axes.set_yticks(*(list(one) for one in zip(*axis.ticks, strict=True)))
    last = max(len(chart.values) for chart in charts) - 1
    axes.set_xlim(-0.01 * last - 0.5, 1.01 * last + 0.5)
    locator = MaxNLocator(6, steps=[1, 2, 5, 10], integer=True)
    ticks = [tick for tick in locator.tick_values(0, max(last, 1)) if 0 <= tick <= last]
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    return True


def _draw_points(axes: Axes, chart: PointChart, points: Points, name: str) -> None:
    x, y = chart.places(points, chart.number)
    few = len(points.rows) <= 2 * FEW
    if points.joined:
        look: Style = {"linewidth": 1.2, "marker": "o" if few else "", "markersize": 4}
    elif points.color in ARMS:
        look = {"linestyle": "", "marker": "o", "markersize": 3, "alpha": 0.35}
    else:
        shape = "^" if points.color == "epoch_start" else "x"
        look = _marker(shape, points.color, len(points.rows))
    axes.plot(x, y, label=name, **{"color": LIGHT[points.color], "linestyle": "-", **look})


def _draw_outliers(axes: Axes, chart: PointChart) -> None:
    """Rings around them, with the number of each arm that has any in the legend."""
    arms = [f"{one.count:,} {one.color if one.color in ARMS else ''}" for one in chart.marks]
    names = [f"{', '.join(map(str.strip, arms))} {OUTLIERS}", ""]
    for name, one in zip(names, chart.marks, strict=False):
        x, y = chart.places(one, chart.number)
        axes.plot(x, y, label=name, **_marker("o", "outlier", len(x)))


def _marker(shape: str, color: str, count: int) -> Style:
    few = count <= FEW
    return {
        "color": LIGHT[color],
        "linestyle": "",
        "marker": shape,
        "markersize": 10 if few else 4,
        "markerfacecolor": "none",
        "markeredgewidth": 2 if few else 1,
    }


def _draw_epochs(axes: Axes, chart: PointChart, label: str) -> None:
    """A line where each epoch but the first begins."""
    if len(chart.epochs):
        look: Style = {"color": FAINT, "alpha": 0.5, "linewidth": 1.2, "linestyle": (0, (4, 4))}
        look |= {"label": label, "transform": axes.get_xaxis_transform()}
        axes.vlines(chart.number[chart.epochs] - 0.5, 0, 1, **look)


def page(
    title: str, details: Sequence[str], footer: Sequence[str], tall: float
) -> tuple[Figure, float]:
    """A figure with its text, and from the bottom where `tall` inches are free between."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and needed only to draw

    head = _wrapped(drawable(title), TITLE, TEXT_WIDTH, 2, bold=True)
    below, foot = small(details), small(footer)
    bottom = MARGIN + high(len(foot), SMALL)
    under = bottom + tall + high(len(below), SMALL)
    top = under + high(len(head), TITLE)
    figure = Figure(figsize=(WIDTH, top + MARGIN), dpi=DPI, facecolor=PAPER)
    write(figure, head, (MARGIN, top), TITLE, bold=True)
    write(figure, below, (MARGIN, under))
    write(figure, foot, (MARGIN, bottom))
    return figure, bottom


def high(lines: int, points: float) -> float:
    """How high `lines` are in a type of `points`."""
    return lines * points * LINE / POINTS_PER_INCH


def write(
    figure: Figure,
    lines: Sequence[str],
    place: tuple[float, float],
    points: float = SMALL,
    color: str = "",
    *,
    bold: bool = False,
) -> None:
    """Write `lines` below each other from `place` on: their left, and their top."""
    look: Style = {"fontsize": points, "fontweight": "bold" if bold else "normal"}
    look["color"] = color or (INK if bold else FAINT)
    wide, tall = figure.get_size_inches()
    left, top = place
    for row, line in enumerate(lines):
        figure.text(left / wide, (top - high(row, points)) / tall, line, va="top", **look)


def panel(
    figure: Figure, box: tuple[float, float, float, float], title: str, labels: float
) -> Axes:
    """Axes with a title over them.

    `box` is left, bottom, width and height; `labels` of its width are kept for the labels at the
    left, and the title begins over those.
    """
    wide, high = figure.get_size_inches()
    left, bottom, width, height = box
    inner = width - labels
    axes = figure.add_axes(((left + labels) / wide, bottom / high, inner / wide, height / high))
    axes.set_facecolor(PAPER)
    axes.grid(visible=False)
    look: Style = {"fontsize": PANEL, "fontweight": "bold", "color": INK, "pad": TITLE_PAD}
    axes.set_title(title, loc="left", x=-labels / inner, **look)
    axes.spines[:].set(color=FAINT, linewidth=1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=LABEL, labelcolor=INK, color=FAINT, length=4)
    axes.minorticks_off()
    return axes


def legend(axes: Axes, handles: Sequence[Artist] = ()) -> None:
    """A legend in one line, right of the title."""
    handles = handles or axes.get_legend_handles_labels()[0]
    axes.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=len(handles),
        frameon=False,
        fontsize=LABEL,
        labelcolor=INK,
        borderaxespad=0.2,
        handlelength=1.2,
        handletextpad=0.5,
        columnspacing=1.2,
    )


def drawable(text: object) -> str:
    """`text` with a box for each character that the figure's font does not have."""
    from matplotlib.font_manager import FontProperties, findfont, get_font  # noqa: PLC0415 - heavy

    glyphs = get_font(findfont(FontProperties(family=FAMILY))).get_charmap()
    return "".join(char if ord(char) in glyphs else "\N{WHITE SQUARE}" for char in printable(text))


def width_of(text: str, points: float, *, bold: bool = False) -> float:
    """The width of `text` in inches, set in a font of `points`."""
    from matplotlib.font_manager import FontProperties  # noqa: PLC0415 - heavy
    from matplotlib.textpath import text_to_path  # noqa: PLC0415 - heavy

    font = FontProperties(family=FAMILY, size=points, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return width / POINTS_PER_INCH


def clipped(text: str, points: float, room: float, *, bold: bool = False) -> str:
    """`text`, its middle left out where it is wider than `room` inches."""
    shown = text = shortened(text, LONGEST)
    while (width := width_of(shown, points, bold=bold)) > room and len(shown) > FEWEST:
        shown = shortened(text, max(FEWEST, min(len(shown) - 1, int(len(shown) * room / width))))
    return shown


def _wrapped(text: str, points: float, room: float, lines: int, *, bold: bool = False) -> list[str]:
    """`text` in at most `lines` lines, none wider than `room` inches."""
    rows: list[str] = []
    for word in text.split():
        longer = f"{rows[-1]} {word}" if rows else word
        if rows and width_of(longer, points, bold=bold) <= room:
            rows[-1] = longer
        else:
            rows.append(word)
    kept, rest = rows[: lines - 1], rows[lines - 1 :]
    kept += [" ".join(rest)] if rest else []
    return [clipped(row, points, room, bold=bold) for row in kept]


def small(texts: Sequence[str], room: float = TEXT_WIDTH, lines: int = 3) -> list[str]:
    """Each of `texts` in small print, in at most `lines` lines as wide as `room`."""
    return [line for text in texts for line in _wrapped(drawable(text), SMALL, room, lines)]


def take_text_literally(figure: Figure) -> None:
    """No text of a run is read as TeX, and all is set in the font it was measured in."""
    from matplotlib.text import Text  # noqa: PLC0415 - heavy

    for text in cast("list[Text]", figure.findobj(Text)):
        text.set_parse_math(False)
        text.set_usetex(False)
        text.set_fontfamily(FAMILY)
