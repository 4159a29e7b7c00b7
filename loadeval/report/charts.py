"""Charts, by matplotlib: in a figure that is a PNG, SVG or PDF, and inline in the page.

Lengths are in points: those of a figure, and pixels of the page. matplotlib finds the room that
labels take. No text of a run is read as TeX, and a user's own matplotlib settings change nothing.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadeval.data.columns import Columns
from loadeval.errors import UsageError
from loadeval.report.blocks import Chart, Kind
from loadeval.report.palette import DASHED, LIGHT, legend, series
from loadeval.words import (
    FORMATS,
    NOT_MEASURED,
    counted,
    duration,
    moment,
    printable,
    share,
    shortened,
    worded,
)

try:
    import matplotlib as mpl
except ImportError as error:
    raise UsageError(
        "charts need the package matplotlib, which is not installed; install it with: "
        'pip install "loadeval[report]"'
    ) from error
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator

Values = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Look = dict[str, Any]
Panel = tuple[float, Callable[[Axes], None]]
"""The height of axes with their labels, and who draws in them."""

FILES = (".png", ".svg", ".pdf")
WIDE = 900
DOTS_PER_INCH, POINTS_PER_INCH = 144, 72
BIG, MIDDLE, TYPE, SMALL = 20.0, 15.0, 13.0, 11.5
"""Sizes of type: of a figure's headline, of a chart's title, of labels, and of what is beside."""
LINE = 1.35
"""The height of a line of text, in sizes of its type."""
LETTER = 0.65
"""The width of a bold letter of FAMILY, in sizes of its type."""
BELOW = 46
"""The room that an axis takes with its labels and its title."""
LONGEST_LABEL = 40
SECONDS = "time since the run's start (s)"
INK, FAINT, PAPER = LIGHT["ink"], LIGHT["faint"], LIGHT["paper"]
FAMILY = "DejaVu Sans"
"""Comes with matplotlib, so the room that a text needs is the same everywhere."""
SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": [FAMILY],
    "font.size": TYPE,
    "text.color": INK,
    "text.parse_math": False,
    "text.usetex": False,
    "axes.edgecolor": LIGHT["line"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.labelcolor": INK,
    "axes.labelsize": TYPE,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.12,
    "grid.color": LIGHT["rule"],
    "hatch.color": PAPER,
    "hatch.linewidth": 1.5,
    "legend.borderaxespad": 0.0,
    "legend.borderpad": 0.2,
    "legend.columnspacing": 1.4,
    "legend.fontsize": TYPE,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "loadeval",
    "xtick.color": LIGHT["line"],
    "xtick.labelcolor": INK,
    "xtick.labelsize": TYPE,
    "ytick.color": LIGHT["line"],
    "ytick.labelcolor": INK,
    "ytick.labelsize": TYPE,
}
PARTS: dict[str, Look] = {
    "on_cpu": {"label": "on CPU"},
    "waiting_for_cpu": {"label": "waiting for CPU", "hatch": "////"},
    "blocked": {"label": "blocked", "alpha": 0.45},
}
"""The parts of a stage: what a legend says of them, and how they are told apart."""
FARTHEST = 1.5
"""How far a whisker is drawn, in longest bars."""
LOG_FROM = 20
"""Times the typical wait at which the longest one asks for a logarithmic axis."""
MOST_EPOCH_LINES = 40
ZEROS = re.compile(r"\.0+(?!\d)|(?<=\.\d)0+(?!\d)")
"""The digits of a round number that say nothing."""
MARK, NEXT = "\ue000", "\ue001"
"""Begin and part the titles of an artist's marks in its id; `printable` lets neither in."""
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


# What is written out


def check_extension(path: Path) -> None:
    """Raise UsageError where `save` would, before something is measured for minutes."""
    if path.suffix.lower() not in FILES:
        raise UsageError(
            f"cannot write a figure as {path.name!r}: its extension is {path.suffix!r}, where "
            f"{', '.join(FILES[:-1])} or {FILES[-1]} was expected; try {path.stem}.png"
        )


def save(path: Path, headline: str, charts: Sequence[Chart], notes: Sequence[str] = ()) -> None:
    """Write a figure of `charts` under a headline: a PNG, an SVG or a PDF by the path's extension.

    Raises UsageError where it has another extension, or cannot be written.
    """
    check_extension(path)
    kind = path.suffix.lower()
    with _own_settings():
        drawn = [_panels(chart) for chart in charts]
        says = [_in_lines(chart.says, SMALL) for chart in charts]
        title = _in_lines(headline, BIG)
        below = "\n".join(_in_lines(note, SMALL) for note in notes)
        heights = [
            sum(height for height, _ in panels) + 90 + SMALL * LINE * text.count("\n")
            for panels, text in zip(drawn, says, strict=True)
        ]
        beside = LINE * (BIG * (title.count("\n") + 2) + SMALL * (below.count("\n") + 2))
        figure = _new(sum(heights) + beside, WIDE + 40)
        figure.suptitle(title, x=0.02, ha="left", size=BIG, weight="bold")
        figure.supxlabel(below, x=0.02, ha="left", size=SMALL, color=FAINT)
        most = max(len(charts), 1)
        rows = figure.subfigures(most, 1, squeeze=False, height_ratios=heights or [1])
        for part, chart, panels, text in zip(rows[:, 0], charts, drawn, says, strict=False):
            part.suptitle(drawable(chart.title), x=0.02, ha="left", size=MIDDLE, weight="bold")
            part.supxlabel(text, x=0.02, ha="left", size=SMALL, color=FAINT)
            _draw(part, panels)
        content = _written(figure, kind[1:], PAPER)
    if kind == ".svg":
        content = ET.tostring(_tidied(content, "figure"), encoding="utf-8", xml_declaration=True)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"cannot write the figure {path}: {error.strerror or error}; expected a path in a "
            "folder that exists and can be written"
        ) from error


def inline_svg(chart: Chart, name: str) -> str:
    """`chart` as an SVG element; its ids begin with `name`, and its colours are CSS variables."""
    with _own_settings():
        panels = _panels(chart)
        figure = _new(sum(height for height, _ in panels) + 12, WIDE)
        _draw(figure, panels)
        root = _tidied(_written(figure, "svg", "none"), name)
    del root.attrib["width"], root.attrib["height"]
    root.attrib |= {"role": "img", "aria-label": drawable(chart.title)}
    variables = {color: f"var(--{of})" for of, color in reversed(LIGHT.items())}
    for element in root.iter():
        if fill := element.attrib.pop("fill", ""):  # of a hatch
            element.set("style", f"fill: {fill}")
        if style := element.get("style"):
            # The page's type is narrower, or as wide.
            style = re.sub(r"font-family: [^;]*;? ?", "", style)
            style = re.sub("#[0-9a-f]{6}", lambda at: variables.get(at[0], at[0]), style)
            element.set("style", style)
    return ET.tostring(root, encoding="unicode")


@contextmanager
def _own_settings() -> Iterator[None]:
    with mpl.rc_context(), warnings.catch_warnings():
        # A character that the font does not have is drawn as a box, and by the browser as itself.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield


def _new(height: float, width: float) -> Figure:
    size = (width / POINTS_PER_INCH, height / POINTS_PER_INCH)
    return Figure(figsize=size, layout="constrained")


def _panels(chart: Chart) -> list[Panel]:
    if any(len(table) for table in chart.tables.values()):
        return DRAWN[chart.kind](chart)

    def nothing(axes: Axes) -> None:
        axes.axis("off")
        axes.text(0, 0.5, NOT_MEASURED, color=FAINT)

    return [(30.0, nothing)]


def _draw(figure: Figure | SubFigure, panels: Sequence[Panel]) -> None:
    heights = [height for height, _ in panels]
    every = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for axes, (_, draw) in zip(every[:, 0], panels, strict=True):
        draw(axes)


def _written(figure: Figure, kind: str, paper: str) -> bytes:
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    made = io.BytesIO()
    figure.savefig(made, format=kind, dpi=DOTS_PER_INCH, facecolor=paper, metadata=undated)
    return made.getvalue()


def _titled(artist: Any, titles: Sequence[str]) -> None:
    """Let what `artist` draws, mark by mark, tell these titles to who points at it."""
    artist.set_gid(MARK + NEXT.join(map(drawable, titles)))


def _tidied(content: bytes, name: str) -> ET.Element:
    """The SVG with a title for each mark, and without what nothing needs.

    Ids begin with `name`, and numbers have two digits behind the point.
    """
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    root: ET.Element = ET.fromstring(content)  # noqa: S314 - it is ours
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    root.remove(root[0])  # metadata
    root.remove(root[0])  # style, which would be that of the whole page
    referred = set(re.findall(rb'(?:href="|url\()#([^")]+)', content))

    def two_digits(found: re.Match[str]) -> str:
        return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")

    for element in root.iter():
        element.text, element.tail = (element.text or "").strip() or None, None
        own = element.attrib.pop("id", "")
        if own.startswith(MARK):
            _give_titles(element, own[1:].split(NEXT))
        elif own.encode() in referred:
            element.set("id", f"{name}-{own}")
        for key, value in element.items():
            if key in {"d", "x", "y", "transform"}:
                element.set(key, re.sub(r"-?\d+\.\d+", two_digits, " ".join(value.split())))
            elif key == f"{{{XLINK}}}href":
                element.set(key, f"#{name}-{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))
    return root


def _give_titles(group: ET.Element, titles: Sequence[str]) -> None:
    """A title for each mark in a group; the style that all of them share becomes the group's."""
    defined = {id(one) for defs in group.iter(f"{{{SVG}}}defs") for one in defs.iter()}
    kinds = {f"{{{SVG}}}use", f"{{{SVG}}}path"}
    marks = [one for one in group.iter() if one.tag in kinds and id(one) not in defined]
    styles = {mark.get("style") for mark in marks}
    if len(styles) == 1 and (style := styles.pop()):
        group.set("style", style)
        for mark in marks:
            del mark.attrib["style"]
    for mark, title in zip(marks, titles, strict=False):
        ET.SubElement(mark, f"{{{SVG}}}title").text = title


# The charts


def real_beside_ideal(chart: Chart) -> list[Panel]:
    """A group of bars for each arm, backend or rank.

    `bars` has `row`, its name, `series` (real, ideal, loader or another colour of the palette),
    `value`, `low` and `high`; rows of one name are one group, and follow each other.
    """
    table = chart.tables["bars"]
    rows, colors = table.row.tolist(), table.series.tolist()
    is_grouped = len(set(rows)) < len(rows)
    kind, title = (chart.unit, "") if chart.unit in FORMATS else ("number", chart.unit)
    thick, apart = (15.0, 14.0) if is_grouped else (24.0, 12.0)

    def draw(axes: Axes) -> None:
        if is_grouped:
            _legend(axes, [_patch(color, legend(color)) for color in dict.fromkeys(colors)])
        longest = _most(table.value)
        middles: dict[str, list[float]] = {}
        top, rightmost = 2.0, 0.0
        lengths = (table[name].tolist() for name in ("value", "low", "high"))
        for row, color, value, low, high in zip(rows, colors, *lengths, strict=True):
            top += apart if middles and row not in middles else 0.0
            middle, said = top + thick / 2, worded(value, kind)
            middles.setdefault(row, []).append(middle)
            top += thick + 2
            if math.isnan(value):
                text = f"{legend(color)}: {said}" if is_grouped else said
                _beside(axes, 0.0, middle, text, FAINT)
                continue
            (bar,) = axes.barh(middle, value, thick, color=_color(color))
            end, ends = value, ""
            if not math.isnan(low + high):
                end, ends = high, f" [{worded(low, kind)}, {worded(high, kind)}]"
                if high > FARTHEST * longest:
                    end = max(value, FARTHEST * longest)
                look: Look = {"color": INK, "linewidth": 1.5, "markersize": 9, "mew": 1.5}
                caps = [0, 1] if end == high else [0]
                axes.plot([low, end], [middle] * 2, marker="|", markevery=caps, **look)
            of = f"{row}, {legend(color)}" if is_grouped else row
            _titled(bar, [f"{of}: {worded(value, chart.unit)}{ends}"])
            _beside(axes, end, middle, said, bold=not is_grouped)
            rightmost = max(rightmost, end)
        _rows(
            axes, list(middles), [sum(each) / len(each) for each in middles.values()], top + apart
        )
        _lengths(axes, title, kind, rightmost)

    height = len(rows) * (thick + 2) + len(set(rows)) * apart
    return [(height + BELOW + (24 if is_grouped else 0), draw)]


def time_per_batch(chart: Chart) -> list[Panel]:
    """A bar of parts for each row. `parts` has `row`, `part` (a colour of the palette), `value`.

    A part may be negative, such as the contention of steps that were faster beside loading: what
    it takes off is in the sum alone.
    """
    table = chart.tables["parts"]
    rows = list(dict.fromkeys(table.row.tolist()))
    totals = [float(table.value[table.row == row].sum()) for row in rows]
    middles = [16.0 + 38 * at for at in range(len(rows))]

    def draw(axes: Axes) -> None:
        shown = table.take(table.value > 0)
        _legend(axes, [_patch(part, part) for part in dict.fromkeys(shown.part.tolist())])
        for row, total, middle in zip(rows, totals, middles, strict=True):
            own, begin = shown.take(shown.row == row), 0.0
            for part, value in zip(own.part.tolist(), own.value.tolist(), strict=True):
                said = worded(value, chart.unit)
                (bar,) = axes.barh(middle, value, 26, begin, color=_color(part))
                if total:
                    _titled(bar, [f"{row}: {part} {said}, {share(value / total)}"])
                if len(said) * SMALL * LETTER + 8 < 0.7 * WIDE * value / max(totals):
                    look: Look = {"color": PAPER, "fontsize": SMALL, "weight": "bold"}
                    look |= {"ha": "center", "va": "center_baseline"}
                    axes.text(begin + value / 2, middle, said, **look)
                begin += value
            _beside(axes, begin, middle, worded(total, chart.unit), bold=True)
        _rows(axes, rows, middles, 38.0 * len(rows))
        _lengths(axes, "time per batch", chart.unit, float(axes.dataLim.x1))

    return [(38.0 * len(rows) + BELOW + 24, draw)]


def waits(chart: Chart) -> list[Panel]:
    """The wait for each batch over the run, with outliers and epoch starts; and what was read then.

    `batches` has `time_s` since the run's start (without a span, the number of the batch),
    `wait_ns`, `arm` (0 real, 1 ideal, 2 neither counts), `epoch`, `batch` in it (0 for the first,
    which is an epoch start), and `outlier`. `readings`, which may be missing, has `panel`, `unit`,
    `subject`, `time_s` and `value`: a panel for each quantity, a line for each subject.
    """
    table, readings = chart.tables["batches"], chart.tables.get("readings")
    ends = chart.span_s or (0.0, max(float(len(table) - 1), 1.0))
    by_panel: dict[str, Columns] = {}
    looks: dict[str, Look] = {}
    if readings is not None:
        for panel in dict.fromkeys(readings.panel.tolist()):
            by_panel[panel] = readings.take(readings.panel == panel)
        for at, subject in enumerate(dict.fromkeys(readings.subject.tolist())):
            color, dash = series(at)
            looks[subject] = {"color": LIGHT[color], "linestyle": dash, "linewidth": 1.5}

    def draw(axes: Axes) -> None:
        _draw_waits(axes, table, is_timed=chart.span_s is not None)
        title = SECONDS if chart.span_s else "batch number"
        _run_axis(axes, ends, title, is_last=not by_panel)

    panels: list[Panel] = [(250.0 + 24 + (18 if by_panel else BELOW), draw)]
    for number, (panel, rows) in enumerate(by_panel.items(), 1):
        panels.append(_reading(panel, rows, looks, ends, is_last=number == len(by_panel)))
    return panels


def _draw_waits(axes: Axes, table: Columns, *, is_timed: bool) -> None:
    starts: npt.NDArray[np.bool_] = table.batch == 0
    outlier = table.outlier.astype(np.bool_) & ~starts
    usual = ~starts & ~outlier
    dot: Look = {"marker": "o", "markersize": 3.5, "markeredgewidth": 0, "alpha": 0.8}
    hollow: Look = {"markerfacecolor": "none", "markeredgewidth": 1.6, "markersize": 8}
    kinds: list[tuple[str, npt.NDArray[np.bool_], Look]] = [
        ("real", usual & (table.arm == 0), {**dot, "zorder": 2}),
        ("ideal", usual & (table.arm == 1), {**dot, "zorder": 1.5}),
        ("not_counted", usual & (table.arm > 1), {**dot, "zorder": 1}),
        ("outlier", outlier, {**hollow, "marker": "o"}),
        ("epoch_start", starts, {**hollow, "marker": "^"}),
    ]
    y = _duration_axis(axes, table.wait_ns, "wait for a batch")
    epochs = table.time_s[starts][1:]
    if len(epochs) <= MOST_EPOCH_LINES:
        look: Look = {"linewidth": 1, "alpha": 0.6, "zorder": 0}
        axes.vlines(epochs, 0, 1, FAINT, (0, (4, 4)), **look, transform=axes.get_xaxis_transform())
    entries: list[Line2D | Patch] = []
    for color, which, look in kinds:
        rows = np.flatnonzero(which)
        if not len(rows):
            continue
        look |= {"color": LIGHT[color], "linestyle": ""}
        name = legend(color)
        label = name if "alpha" in look else counted(len(rows), name)
        entries.append(Line2D([], [], **{**look, "markersize": 8, "alpha": 1}, label=label))
        kept = rows[extremes(table.wait_ns[rows], 150 if "alpha" in look else 50)]
        (line,) = axes.plot(table.time_s[kept], y[kept], **look)
        columns = (table[column][kept].tolist() for column in ("epoch", "batch", "time_s"))
        _titled(
            line,
            [
                f"{name}, epoch {epoch}, batch {batch}: {duration(ns)}"
                + (f" at {moment(at_s * 1e9)}" if is_timed else "")
                for ns, epoch, batch, at_s in zip(table.wait_ns[kept], *columns, strict=True)
            ],
        )
    _legend(axes, entries)


def _reading(
    panel: str, rows: Columns, looks: dict[str, Look], ends: tuple[float, float], *, is_last: bool
) -> Panel:
    """A quantity over the run, with a line for each subject."""

    def draw(axes: Axes) -> None:
        unit, subjects = str(rows.unit[0]), dict.fromkeys(rows.subject.tolist())
        of = "CPUs" if unit == "cpus" else "" if unit in FORMATS else unit
        lines = [Line2D([], [], **looks[name], label=name) for name in subjects]
        _legend(axes, lines, f"{panel} ({of})" if of else panel)
        for subject in subjects:
            own = rows.take((rows.subject == subject) & np.isfinite(rows.value))
            kept = extremes(own.value, max(600 // len(subjects), 20))
            look = looks[subject] | {"marker": "o" if len(kept) == 1 else ""}
            (line,) = axes.plot(own.time_s[kept], own.value[kept], **look)
            mean = worded(float(own.value.mean()) if len(own) else None, unit)
            _titled(line, [f"{subject}: {panel}, {mean} on average"])
        least = float(rows.value[np.isfinite(rows.value)].min(initial=0.0))
        axes.set_ylim(1.1 * least, 1.1 * _most(rows.value))
        _ticks(axes.yaxis, 3, "size" if unit == "bytes/s" else unit)
        _run_axis(axes, ends, SECONDS, is_last=is_last)

    return 90.0 + 24 + (BELOW if is_last else 18), draw


def stages(chart: Chart) -> list[Panel]:
    """How long each stage of the loader is waited for, and what each worker did when.

    `stages` has `label` (two spaces before it make it a part of the one above), `stage` (a colour
    of the palette), `value`, `share` of all, and its parts `on_cpu`, `waiting_for_cpu` and
    `blocked`, NaN where they are not known. `lanes` has `lane`, `what` (a colour), `begin_s`,
    `end_s` and `batch`. Either may be missing.
    """
    panels: list[Panel] = []
    if table := chart.tables.get("stages"):
        panels.append((28.0 * len(table) + BELOW + 24, lambda axes: _draw_stages(axes, table)))
    if lanes := chart.tables.get("lanes"):
        names = len(set(lanes.lane.tolist()))
        tall = 26.0 if names <= 16 else 13.0  # noqa: PLR2004 - they fit on a screen
        panels.append((tall * names + BELOW + 24, lambda axes: _draw_lanes(axes, lanes)))
    return panels


def _draw_stages(axes: Axes, table: Columns) -> None:
    is_split = np.isfinite(np.stack([table[part] for part in PARTS])).all(axis=0)
    if is_split.any():
        _legend(axes, [_patch("not_attributed", **look) for look in PARTS.values()])
    labels, middles = table.label.tolist(), [14.0 + 28 * at for at in range(len(table))]
    for at, (label, middle) in enumerate(zip(labels, middles, strict=True)):
        value, name, is_part = float(table.value[at]), label.strip(), label.startswith("  ")
        said = f"{worded(value, 'duration')}, {share(float(table.share[at]))}"
        lengths: dict[str, float] = {"": value}
        if is_split[at]:
            lengths = {part: float(table[part][at]) for part in PARTS}
        begin = 0.0
        for part, length in lengths.items():
            look = PARTS.get(part, {})
            thick, color = 11 if is_part else 19, _color(str(table.stage[at]))
            (bar,) = axes.barh(middle, length, thick, begin, facecolor=color, **look)
            of = f"{name}, {look['label']}: {duration(length)}" if part else f"{name}: {said}"
            _titled(bar, [of])
            begin += length
        _beside(axes, begin, middle, said, bold=not is_part)
    _rows(axes, labels, middles, 28.0 * len(table))
    _lengths(axes, "time per batch", "duration", float(axes.dataLim.x1))


def _draw_lanes(axes: Axes, lanes: Columns) -> None:
    """What each of `lanes` did when, with a bar for each stretch."""
    names, kinds = (list(dict.fromkeys(column.tolist())) for column in (lanes.lane, lanes.what))
    _legend(axes, [_patch(kind, legend(kind)) for kind in kinds])
    places = {name: at + 0.5 for at, name in enumerate(names)}
    _rows(axes, names, list(places.values()), float(len(names)))
    _run_axis(axes, (float(lanes.begin_s.min()), float(lanes.end_s.max())), SECONDS)
    for kind in kinds:
        own = lanes.take(lanes.what == kind)
        columns = (own[name].tolist() for name in ("lane", "batch", "begin_s", "end_s"))
        shapes, titles = [], []
        for lane, batch, begin_s, end_s in zip(*columns, strict=True):
            top, bottom = places[lane] - 0.38, places[lane] + 0.38
            shapes.append([(begin_s, top), (end_s, top), (end_s, bottom), (begin_s, bottom)])
            took = f"{duration((end_s - begin_s) * 1e9)} at {moment(begin_s * 1e9)}"
            titles.append(f"{lane}, batch {batch}: {legend(kind)} {took}")
        bars = PolyCollection(shapes, facecolors=_color(kind), linewidths=0)
        axes.add_collection(bars, autolim=False)
        _titled(bars, titles)


def worker_curve(chart: Chart) -> list[Panel]:
    """Throughput by number of workers: measured, and predicted with its range.

    `measured`, `predicted` and `chosen`, a prediction under other settings, have `workers`,
    `value`, `low` and `high`; `marks` has `workers` and a `label` for a line there. The latter two
    may be missing.
    """
    return [(270.0 + 24 + BELOW, lambda axes: _draw_curve(axes, chart))]


def _draw_curve(axes: Axes, chart: Chart) -> None:
    blue = LIGHT["series1"]
    open_dot: Look = {"marker": "o", "markersize": 7, "mew": 2, "markerfacecolor": PAPER}
    kinds: list[tuple[str, str, str, Look]] = [
        ("measured", "measured, 95% CI", LIGHT["real"], {"marker": "o", "markersize": 8}),
        ("predicted", "", blue, open_dot),
        ("chosen", "what if", LIGHT["series3"], {"marker": "D", "markersize": 9}),
    ]
    tables = {kind: chart.tables[kind] for kind, *_ in kinds if len(chart.tables.get(kind, ()))}
    for kind, label, color, look in kinds:
        table = tables.get(kind)
        if table is None:
            continue
        if kind == "predicted":
            dashed: Look = {"color": color, "linestyle": DASHED, "linewidth": 2}
            axes.plot(table.workers, table.value, label="predicted", **dashed)
            area: Look = {"color": color, "alpha": 0.22, "linewidth": 0}
            axes.fill_between(table.workers, table.low, table.high, label="predicted range", **area)
        else:
            whisker = INK if kind == "measured" else color
            axes.vlines(table.workers, table.low, table.high, whisker, linewidth=2, zorder=3)
        place = 4 if kind == "predicted" else 5
        (dots,) = axes.plot(table.workers, table.value, color=color, ls="", zorder=place, **look)
        dots.set_label(label)
        columns = (table[name].tolist() for name in ("workers", "value", "low", "high"))
        _titled(
            dots,
            [
                f"{counted(workers, 'worker')}, {'what if' if kind == 'chosen' else kind}: "
                + worded(value, chart.unit)
                + ("" if math.isnan(low + high) else f" [{low:,.0f}, {high:,.0f}]")
                for workers, value, low, high in zip(*columns, strict=True)
            ],
        )
    _legend(axes, axes.get_legend_handles_labels()[0])
    axes.set_xlabel("workers")
    axes.set_ylabel(drawable(chart.unit, 30))
    most = max(1, *(int(table.workers.max()) for table in tables.values()))
    axes.set_xlim(-0.03 * most - 0.2, 1.03 * most + 0.2)
    tops = [np.fmax(table.value, table.high) for table in tables.values()]
    axes.set_ylim(0, 1.1 * _most(np.concatenate(tops)))
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    _ticks(axes.yaxis, 5)
    if marks := chart.tables.get("marks"):
        for at, label in zip(marks.workers.tolist(), marks.label.tolist(), strict=True):
            axes.axvline(at, color=FAINT, linewidth=1.2, linestyle=(0, (2, 3)), zorder=0)
            side, away = ("right", -5) if at > most / 2 else ("left", 5)
            of: Look = {"ha": side, "xytext": (away, 6), "color": FAINT, "fontsize": SMALL}
            of |= {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
            axes.annotate(drawable(label, 30), (at, 0), **of)


DRAWN: dict[Kind, Callable[[Chart], list[Panel]]] = {
    "real beside ideal": real_beside_ideal,
    "time per batch": time_per_batch,
    "waits": waits,
    "stages": stages,
    "worker curve": worker_curve,
}


# What several of them are made of


def _patch(color: str, label: str, **look: Any) -> Patch:
    return Patch(facecolor=_color(color), linewidth=0, label=label, **look)


def _legend(axes: Axes, entries: Sequence[Artist], title: str = "") -> None:
    """A row of entries above the axes, behind a title."""
    names = [drawable(str(entry.get_label()), LONGEST_LABEL) for entry in entries]
    place: Look = {"loc": "lower left", "bbox_to_anchor": (0, 1.02)}
    if title:
        place = {"loc": "lower right", "bbox_to_anchor": (1, 1.02)}
        axes.set_title(drawable(title, LONGEST_LABEL), loc="left", size=TYPE, weight="bold")
    axes.legend(list(entries), names, ncols=max(len(names), 1), **place)


def _beside(
    axes: Axes, end: float, middle: float, text: str, color: str = INK, *, bold: bool = False
) -> None:
    """A text behind the end of a bar."""
    look: Look = {"xytext": (6, 0), "textcoords": "offset points", "va": "center_baseline"}
    look |= {"weight": "bold" if bold else "normal", "color": color, "annotation_clip": False}
    axes.annotate(text, (end, middle), **look)


def _rows(axes: Axes, labels: Sequence[str], middles: Sequence[float], height: float) -> None:
    """Names of rows at the left of axes that begin at the top."""
    axes.set_ylim(height, 0)
    axes.set_yticks(middles, [drawable(label, LONGEST_LABEL) for label in labels])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)


def _lengths(axes: Axes, title: str, kind: str, longest: float) -> None:
    """An axis from 0 below bars, with room for what stands behind them."""
    axes.set_xlim(0, 1.18 * max(longest, 1e-9))
    axes.set_xlabel(drawable(title, LONGEST_LABEL))
    _ticks(axes.xaxis, 6, kind)


def _ticks(axis: Axis, most: int, kind: str = "number") -> None:
    """At most about so many round ticks, of a kind of number."""
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(lambda value, _: tick_label(value, kind))


def _run_axis(axes: Axes, ends: tuple[float, float], title: str, *, is_last: bool = True) -> None:
    """An axis along the run; only the last of several says what it is."""
    first, last = ends
    room = 0.01 * (last - first) or 0.5
    axes.set_xlim(first - room, last + room)
    _ticks(axes.xaxis, 6)
    axes.tick_params(axis="x", labelbottom=is_last)
    axes.set_xlabel(title if is_last else "")


def _duration_axis(axes: Axes, ns: npt.NDArray[np.int64], title: str) -> Values:
    """A vertical axis of durations, and where each of `ns` is on it.

    It is logarithmic where a few are many times what is typical; 0 is then at its foot.
    """
    axes.set_ylabel(title)
    top = float(ns.max(initial=0)) or 1.0
    positive = ns[ns > 0]
    if not len(positive) or top <= LOG_FROM * float(np.median(positive)):
        axes.set_ylim(-0.03 * top, 1.1 * top)
        _ticks(axes.yaxis, 5, "duration")
        return ns.astype(np.float64)
    has_none = len(positive) < len(ns)
    floor = 10.0 ** (math.floor(math.log10(positive.min())) - has_none)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_ylim(0.6 * floor, 2.2 * top)
    axes.yaxis.set_major_locator(LogLocator(numticks=9))
    axes.yaxis.set_major_formatter(
        lambda value, _: tick_label(0.0 if has_none and value <= floor else value, "duration")
    )
    return np.maximum(ns, floor).astype(np.float64)


def tick_label(value: float, kind: str) -> str:
    """A round number of a kind, without the digits that say nothing: 10 ms, 20 GB."""
    kind = kind if kind in {"duration", "size", "share"} else "number"
    return ZEROS.sub("", worded(value, kind)) if value else "0"


def extremes(values: npt.NDArray[Any], buckets: int) -> Rows:
    """Places in `values`, in order, of the least and the greatest in each of equal buckets.

    All of them where there are no more than two for each of the `buckets`.
    """
    if len(values) <= 2 * buckets:
        return np.arange(len(values))
    bounds = np.linspace(0, len(values), buckets + 1).astype(np.intp).tolist()
    ends = [
        first + end
        for first, last in pairwise(bounds)
        for end in (values[first:last].argmin(), values[first:last].argmax())
    ]
    return np.unique(ends)


def _color(name: str) -> str:
    return LIGHT.get(name.replace(" ", "_"), LIGHT["not_attributed"])


def _most(values: Values) -> float:
    return float(values[np.isfinite(values)].max(initial=0.0)) or 1.0


def _in_lines(text: str, size: float) -> str:
    """`text` in lines that are as wide as a chart."""
    return textwrap.fill(drawable(text, 2_000), int(WIDE / (size * LETTER)))


def drawable(text: str, longest: int = 300) -> str:
    """`text` as it can be drawn: a run's names may hold anything, and be of any length."""
    return printable(shortened(text, longest))
