"""Charts drawn with matplotlib, and figures of several, which its constrained layout puts in place.

What stands in a row has a height in inches. In its row a panel takes what its labels, and the
values beside its bars, leave to it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from loadeval.data.run import ARMS
from loadeval.report.figure.point_charts import OUTLIERS, blocks_of, epoch_starts_of
from loadeval.report.formatting import NOT_MEASURED, counted, duration, printable, shortened
from loadeval.report.palette import LIGHT, NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.patches import Rectangle
    from matplotlib.text import Annotation

    from loadeval.report.figure.bar_charts import Bar, BarChart, Texture
    from loadeval.report.figure.point_charts import PointChart, Points

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
"""The height of a line of text, in sizes of its type."""
LINE_SPACING = 1.4
"""The same as matplotlib counts it: in heights of the type's letters."""
PAD = 0.12
"""Inches over and under axes and titles."""
GAP = 7
"""Points between a bar and what is written beside it."""
THIN = 0.7
"""The height of a row that is part of another one, in heights of other rows."""
THICK = 0.62
"""The height of a bar, in heights of its row."""
VALUE: Style = {"va": "center_baseline", "fontsize": LABEL, "color": INK}
BELOW = 4
"""Points between a name and what is written below it."""
SPACE = 0.15
"""Inches between the text and the panels."""
TEXTURES: dict[Texture, Style] = {
    "solid": {},
    "hatched": {"hatch": "///", "edgecolor": PAPER, "linewidth": 0},
    "light": {"alpha": 0.38, "linewidth": 0},
}
"""How parts of one colour are told apart."""
FEW = 60
"""Marks that are drawn large, and blocks whose lines are drawn thick."""


def places_of(chart: BarChart) -> list[float]:
    """The middle of each row, from 0 down: 1 apart, and thin ones less."""
    apart = [(THIN if row.thin else 1.0) for row in chart.rows[1:]]
    return list(accumulate(apart, initial=0.0))


def draw_rows(axes: Axes, chart: BarChart) -> None:
    """Draw rows with their labels at the left."""
    places = places_of(chart)
    axes.set_ylim(places[-1] + 0.6, -0.6)
    places = places[: len(chart.rows)]  # a chart without rows has room for one
    draw_bars(axes, chart, places, THICK)
    axes.set_yticks(places, [row.label for row in chart.rows])
    axes.tick_params(axis="y", length=0)
    for label, row in zip(axes.get_yticklabels(), chart.rows, strict=True):
        if row.thin:
            label.set_fontsize(SMALL)


def draw_bars(
    axes: Axes, chart: BarChart, places: Sequence[float], thick: float, *, labels: bool = True
) -> None:
    """Draw each row with its middle at its place, and its value beside its bars.

    Without `labels`, its interval stands behind the value, and its name where it has no bar.
    """
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_xlim(0, max(map(chart.end, chart.rows), default=0.0) or 1.0)
    small: Style = {"fontsize": LABEL if labels else SMALL, "color": FAINT}
    for row, middle in zip(chart.rows, places, strict=True):
        if not row.bars:
            text = row.text if labels else f"{row.label} {row.text}"
            _write_beside(axes, text, (0, middle), **small)
            continue
        for bar in row.bars:
            patch = _draw_bar(axes, bar, middle, thick * (THIN if row.thin else 1.0))
            _draw_whisker(axes, bar, middle, chart.farthest)
            if len(row.bars) > 1:
                look: Style = {**VALUE, "ha": "center", "in_layout": False}
                axes.annotate(bar.text, (0.5, 0.5), xycoords=patch, **look)
        weight = {"fontsize": SMALL} if row.thin else {"fontweight": "bold"}
        value = _write_beside(axes, row.text, (chart.end(row), middle), **weight)
        if not labels:
            _write_beside(axes, row.interval, (1, middle), xycoords=(value, "data"), **small)


def _draw_bar(axes: Axes, bar: Bar, middle: float, thick: float) -> Rectangle:
    color = LIGHT[bar.color]
    # What is gained, a loss under zero, is drawn hollow.
    gain = bar.length < 0
    look: Style = {"facecolor": "none" if gain else color, "linewidth": 1.5 if gain else 0}
    look |= {"edgecolor": color, **TEXTURES[bar.texture]}
    return axes.barh(middle, bar.length, left=bar.start, height=thick, **look).patches[0]


def _draw_whisker(axes: Axes, bar: Bar, middle: float, farthest: float) -> None:
    if bar.low is not None and bar.high is not None:
        # A whisker that goes on beyond what is drawn has no cap at its end.
        capped = [0] if bar.high > farthest else [0, 1]
        ends = [bar.low, min(bar.high, farthest)]
        axes.plot(ends, [middle] * 2, **WHISKER, marker="|", markevery=capped)


def _write_beside(axes: Axes, text: str, place: tuple[float, float], **look: Any) -> Annotation:
    look = {**VALUE, **look}
    return axes.annotate(text, place, xytext=(GAP, 0), textcoords="offset points", **look)


def write_block(
    axes: Axes, top: float, first: str, lines: Sequence[str], color: str = FAINT
) -> None:
    """Write `first` in bold at the left of `axes`, from `top` down, and small `lines` below it."""
    look: Style = {"va": "top", "linespacing": LINE_SPACING, "in_layout": False}
    bold = axes.text(0, top, first, fontsize=LABEL, fontweight="bold", color=INK, **look)
    look |= {"xytext": (0, -BELOW if first else 0), "textcoords": "offset points"}
    axes.annotate("\n".join(lines), (0, 0), xycoords=bold, fontsize=SMALL, color=color, **look)


def color_legend(part: SubFigure, colors: Iterable[str]) -> None:
    """A legend that names these colours."""
    from matplotlib.patches import Patch  # noqa: PLC0415 - heavy

    legend(part, [Patch(color=LIGHT[color], label=NAMES[color]) for color in colors])


def texture_legend(part: SubFigure, names: Mapping[Texture, str], color: str) -> None:
    """A legend that names the textures, in a colour that they are drawn in."""
    from matplotlib.patches import Patch  # noqa: PLC0415 - heavy

    handles = []
    for texture, name in names.items():
        look = {"facecolor": LIGHT[color], "edgecolor": LIGHT[color], "linewidth": 0}
        handles.append(Patch(**{**look, **TEXTURES[texture]}, label=name))
    legend(part, handles)


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
        # They are drawn at the foot: an epoch start is no iteration, and often many times as long.
        places = number[np.searchsorted(chart.run.steps.epoch, epochs)]
        name = counted(len(epochs), "epoch start", "epoch starts")
        look = _marker("^", "epoch_start", len(epochs)) | {"clip_on": False}
        look |= {"transform": axes.get_xaxis_transform()}
        label = f"{name} ({duration(float(waits_ns.mean()))})"
        axes.plot(places, np.full(len(places), 0.04), label=label, **look)
    _draw_epochs(axes, chart, "")  # each is where an epoch start is
    legend(axes.figure, axes.get_legend_handles_labels()[0])


def draw_waits(axes: Axes, real: PointChart, ideal: PointChart) -> None:
    """The waits of two runs by batch; of the real one also what does not count, and outliers."""
    if not _prepare(axes, [real, ideal]):
        return
    lines = sorted(real.points, key=lambda points: not points.joined)
    drawn = [*((real, points) for points in lines), *((ideal, points) for points in ideal.points)]
    for chart, points in drawn:
        name = counted(points.count, points.name, f"{points.name}s")
        _draw_points(axes, chart, points, name if points.color == "epoch_start" else points.name)
    _draw_outliers(axes, real)
    _draw_epochs(axes, real, "new epoch")
    legend(axes.figure, axes.get_legend_handles_labels()[0])


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
    axes.set_yticks(*map(list, zip(*axis.ticks, strict=True)))
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
    arms = [f"{mark.count:,} {mark.color if mark.color in ARMS else ''}" for mark in chart.marks]
    names = [f"{', '.join(map(str.strip, arms))} {OUTLIERS}", ""]
    for name, mark in zip(names, chart.marks, strict=False):
        x, y = chart.places(mark, chart.number)
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
    title: str, details: Sequence[str], footer: Sequence[str], heights: Sequence[float]
) -> tuple[Figure, list[SubFigure]]:
    """A figure with its text, and between them parts of these heights in inches."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and needed only to draw

    head = _wrapped(title, TITLE, TEXT_WIDTH, 2)
    above, below = small(details), small(footer)
    rows = [
        text_height(len(head), TITLE),
        text_height(len(above), SMALL) + SPACE,
        *heights,
        text_height(len(below), SMALL) + SPACE,
    ]
    size = (WIDTH, sum(rows) + 2 * MARGIN)
    figure = Figure(figsize=size, dpi=DPI, facecolor=PAPER)
    first, second, *parts, last = figure.subfigures(
        len(rows), 1, squeeze=False, height_ratios=rows
    ).ravel()
    _write(first, head, fontsize=TITLE, fontweight="bold", color=INK)
    _write(second, above, fontsize=SMALL, color=FAINT)
    _write(last, below, y=0, va="bottom", fontsize=SMALL, color=FAINT)
    return figure, parts


def text_height(lines: int, points: float) -> float:
    """The inches that `lines` take in a type of `points`."""
    return lines * points * LINE / POINTS_PER_INCH


def _write(part: SubFigure, lines: Sequence[str], **look: Any) -> None:
    place = {"x": 0, "y": 1, "va": "top", "linespacing": LINE_SPACING}
    part.text(s="\n".join(lines), **{**place, **look})


def panel(part: SubFigure, title: str) -> Axes:
    """Axes with a title, which begins over the labels at their left."""
    _set_title(part, title)
    axes = part.add_subplot(facecolor=PAPER)
    axes.grid(visible=False)
    axes.spines[:].set(color=FAINT, linewidth=1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=LABEL, labelcolor=INK, color=FAINT, length=4)
    axes.minorticks_off()
    return axes


def bare_axes(part: SubFigure, title: str, widths: Sequence[float]) -> list[Axes]:
    """Axes beside each other, of which nothing is drawn, and a title over all of them."""
    _set_title(part, title)
    look: Style = {"frame_on": False, "xticks": [], "yticks": []}
    return [column.add_subplot(**look) for column in columns(part, widths)]


def columns(part: SubFigure, widths: Sequence[float]) -> Sequence[SubFigure]:
    """Parts of `part` beside each other, which have these widths in inches."""
    return list(part.subfigures(1, len(widths), squeeze=False, width_ratios=widths)[0])


def _set_title(part: SubFigure, title: str) -> None:
    look: Style = {"fontsize": PANEL, "fontweight": "bold", "color": INK}
    part.suptitle(title, x=0, ha="left", **look)


def legend(part: Figure | SubFigure, handles: Sequence[Artist]) -> None:
    """A legend in one line, right of the title."""
    part.legend(
        handles=handles,
        loc="upper right",
        ncols=len(handles),
        frameon=False,
        fontsize=LABEL,
        labelcolor=INK,
        borderpad=0,
        borderaxespad=0.6,
        handlelength=1.2,
        handletextpad=0.5,
        columnspacing=1.2,
    )


def drawable(text: object) -> str:
    """`text` with a box for each character that the figure's font does not have."""
    from matplotlib.font_manager import FontProperties, findfont, get_font  # noqa: PLC0415 - heavy

    glyphs = get_font(findfont(FontProperties(family=FAMILY))).get_charmap()
    return "".join(char if ord(char) in glyphs else "\N{WHITE SQUARE}" for char in printable(text))


@lru_cache(maxsize=10_000)
def width_of(text: str, points: float) -> float:
    """The width of `text` in inches, in a type of `points`, which is bold but in small print."""
    from matplotlib.font_manager import FontProperties  # noqa: PLC0415 - heavy
    from matplotlib.textpath import text_to_path  # noqa: PLC0415 - heavy

    font = FontProperties(
        family=FAMILY, size=points, weight="normal" if points == SMALL else "bold"
    )
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return width / POINTS_PER_INCH


def clipped(text: str, points: float, room: float) -> str:
    """`text`, its middle left out where it is wider than `room` inches."""
    shown = text = shortened(drawable(text), LONGEST)
    while (width := width_of(shown, points)) > room and len(shown) > FEWEST:
        shown = shortened(text, max(FEWEST, min(len(shown) - 1, int(len(shown) * room / width))))
    return shown


def _wrapped(text: str, points: float, room: float, lines: int) -> list[str]:
    """`text` in at most `lines` lines, none wider than `room` inches."""
    rows: list[str] = []
    space, left = width_of(" ", points), 0.0
    for word in drawable(text).split():
        width = width_of(word, points)
        if rows and width <= left:
            rows[-1] += f" {word}"
        else:
            rows.append(word)
            left = room
        left -= width + space
    kept, rest = rows[: lines - 1], rows[lines - 1 :]
    kept += [" ".join(rest)] if rest else []
    return [clipped(row, points, room) for row in kept]


def small(texts: Sequence[str], room: float = TEXT_WIDTH, lines: int = 3) -> list[str]:
    """Each of `texts` in small print, in at most `lines` lines as wide as `room`."""
    return [line for text in texts for line in _wrapped(text, SMALL, room, lines)]


def finish(figure: Figure) -> Figure:
    """`figure` with everything in its place, and no text of a run read as TeX."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 - heavy
    from matplotlib.patches import Patch  # noqa: PLC0415 - heavy
    from matplotlib.text import Annotation, Text  # noqa: PLC0415 - heavy

    texts = cast("list[Text]", figure.findobj(Text))
    for text in texts:
        text.set_parse_math(False)
        text.set_usetex(False)
        text.set_fontfamily(FAMILY)
    left, bottom = MARGIN / figure.get_size_inches()
    inside = (left, bottom, 1 - 2 * left, 1 - 2 * bottom)
    ConstrainedLayoutEngine(w_pad=0, h_pad=PAD, wspace=0, hspace=0, rect=inside).execute(figure)
    # What is written in a bar is left out where the bar is too short for it.
    for text in texts:
        if isinstance(text, Annotation) and isinstance(bar := text.xycoords, Patch):
            room = bar.get_window_extent().width - 2 * GAP
            text.set_visible(text.get_window_extent().width < room)
    return figure
