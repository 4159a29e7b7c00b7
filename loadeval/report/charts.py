"""The six charts, by matplotlib: in a figure that is a PNG, SVG or PDF, and inline in the page.

Lengths are in points: those of a figure, and pixels of the page. No text of a run is read as TeX,
and a user's own matplotlib settings change nothing.
"""

from __future__ import annotations

import io
import math
import re
import warnings
import xml.etree.ElementTree as ET
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

try:
    import matplotlib as mpl
except ImportError as error:
    from loadeval.errors import UsageError

    raise UsageError(
        "charts need the package matplotlib, which is not installed; install it with: "
        'pip install "loadeval[report]"'
    ) from error
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D

from loadeval.errors import UsageError
from loadeval.report.palette import DASHED, LIGHT, NAMES, series
from loadeval.words import (
    BYTE_UNITS,
    FORMATS,
    NOT_MEASURED,
    TIME_UNITS,
    counted,
    duration,
    moment,
    printable,
    share,
    shortened,
    whole_share,
    worded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from loadeval.data.columns import Columns
    from loadeval.report.blocks import Chart, Kind

    Values = npt.NDArray[np.float64]
    Rows = npt.NDArray[np.intp]
    Look = dict[str, Any]

FILES = (".png", ".svg", ".pdf")
WIDE, NARROW = 900, 358
"""Widths of a chart: on a screen and in a figure, and on a telephone of 390 pixels."""
MARGIN = 26
"""Around a figure."""
DOTS_PER_INCH, POINTS_PER_INCH = 144, 72
BIG, MIDDLE, TYPE, SMALL = 20.0, 15.0, 13.0, 11.5
"""Sizes of type: of a figure's headline, of a chart's title, of labels, and of what is beside."""
LINE = 1.35
"""The height of a line of text, in sizes of its type."""
BELOW = 46
"""The room that an axis takes with its labels and its title."""
BESIDE_TIME = 78
"""The room left of axes over time, the same for all, so that they stand below each other."""
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
    "grid.color": LIGHT["rule"],
    "hatch.color": PAPER,
    "hatch.linewidth": 1.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "loadeval",
    "xtick.color": LIGHT["line"],
    "xtick.labelcolor": INK,
    "xtick.labelsize": TYPE,
    "ytick.color": LIGHT["line"],
    "ytick.labelcolor": INK,
    "ytick.labelsize": TYPE,
}
PARTS: dict[str, tuple[str, Look]] = {
    "on_cpu": ("on CPU", {}),
    "waiting_for_cpu": ("waiting for CPU", {"hatch": "////"}),
    "blocked": ("blocked", {"alpha": 0.45}),
}
"""The parts of a stage: what a legend says of them, and how they are told apart."""
FARTHEST = 1.5
"""How far a whisker is drawn, in longest bars."""
LOG_FROM = 20
"""Times the typical wait at which the longest one asks for a logarithmic axis."""
MOST_EPOCH_LINES = 40
UNITS = {"duration": TIME_UNITS, "size": BYTE_UNITS, "bytes/s": BYTE_UNITS}
"""Of kinds of numbers at an axis, each a thousand of the one before."""
LARGE, MILLION = ("", "thousand", "M", "G", "T"), 1e6
"""Of other numbers from a million on."""
MOST_WIDE_LANES = 16
MARK, NEXT = "\ue000", "\ue001"
"""Begin and part the titles of an artist's marks in its id; `printable` lets neither in."""
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


class Sheet:
    """A figure that grows downwards: each part begins where the one before ended."""

    def __init__(self, width: float, margin: float = 0.0) -> None:
        self.figure = Figure()
        self.margin, self.width, self.height = margin, width - 2 * margin, margin
        self.is_narrow = width < WIDE / 2
        # From points, right and down from the figure's upper left corner; known when it is full.
        self._inches = Affine2D()
        self._points: Look = {"transform": self._inches + self.figure.dpi_scale_trans}
        self._boxes: list[tuple[Axes, tuple[float, float, float, float]]] = []

    def axes(self, height: float, left: float = 0.0, right: float = 12.0) -> Axes:
        """Axes of this height, with room for labels at the sides; what is below is the caller's."""
        axes = self.figure.add_axes((0, 0, 1, 1))
        width = self.width - left - right
        self._boxes.append((axes, (self.margin + left, self.height, width, height)))
        self.height += height
        return axes

    def text(self, text: str, size: float, color: str = INK, *, bold: bool = False) -> None:
        """A paragraph."""
        look: Look = {"fontsize": size, "color": color, "weight": "bold" if bold else "normal"}
        for row in in_lines(drawable(text, 2_000), size, self.width, bold=bold):
            self.height += size * LINE
            self.figure.text(self.margin, self.height - 0.3 * size, row, **look, **self._points)

    def legend(self, entries: Sequence[tuple[str, Look]], title: str = "") -> None:
        """Entries in as many rows as they need, a `title` before them; each look draws a mark."""
        x, step = 0.0, TYPE * 1.5
        beside: Look = {"va": "center_baseline", **self._points}
        middle = self.height + step / 2
        if title := drawable(title, 30):
            self.figure.text(self.margin, middle, title, weight="bold", **beside)
            x = width_of(title, TYPE, bold=True) + 18
        for text, look in entries:
            name = drawable(text, 30)
            width = 28 + width_of(name, TYPE)
            if x and x + width > self.width:
                x, middle = 0.0, middle + step
            left = self.margin + x
            if "marker" in look or "linestyle" in look:
                ends = [left + 10] if "marker" in look else [left, left + 23]
                mark: Line2D | Rectangle = Line2D(ends, [middle] * len(ends), **look)
            else:
                mark = Rectangle((left, middle - 6), 20, 11, linewidth=0, **look)
            mark.set_transform(self._points["transform"])
            self.figure.add_artist(mark)
            self.figure.text(left + 28, middle, name, **beside)
            x += width + 16
        self.height = middle + step / 2 + 6

    def finished(self) -> Figure:
        """The figure, with everything in its place."""
        width, height = self.width + 2 * self.margin, self.height + self.margin
        self.figure.set_size_inches(width / POINTS_PER_INCH, height / POINTS_PER_INCH)
        self._inches.translate(0, -height).scale(1 / POINTS_PER_INCH, -1 / POINTS_PER_INCH)
        for axes, (left, top, across, down) in self._boxes:
            bottom = height - top - down
            axes.set_position((left / width, bottom / height, across / width, down / height))
        return self.figure


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
        sheet = Sheet(WIDE + 2 * MARGIN, MARGIN)
        sheet.text(headline, BIG, bold=True)
        for chart in charts:
            sheet.height += 22
            sheet.text(chart.title, MIDDLE, bold=True)
            sheet.text(chart.says, SMALL, FAINT)
            sheet.height += 8
            _draw(sheet, chart)
        sheet.height += 14
        for note in notes:
            sheet.text(note, SMALL, FAINT)
        content = _written(sheet.finished(), kind[1:], PAPER)
    if kind == ".svg":
        content = ET.tostring(_tidied(content, "figure"), encoding="utf-8", xml_declaration=True)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"cannot write the figure {path}: {error.strerror or error}; expected a path in a "
            "folder that exists and can be written"
        ) from error


def inline_svg(chart: Chart, name: str, *, narrow: bool = False) -> str:
    """`chart` as an SVG element; its ids begin with `name`, and its colours are CSS variables."""
    with _own_settings():
        sheet = Sheet(NARROW if narrow else WIDE)
        _draw(sheet, chart)
        root = _tidied(_written(sheet.finished(), "svg", "none"), name)
    del root.attrib["width"], root.attrib["height"]
    root.attrib |= {"role": "img", "aria-label": drawable(chart.title)}
    variables = {color: f"var(--{of})" for of, color in reversed(LIGHT.items())}
    for element in root.iter():
        rules = dict(re.findall(r"([\w-]+): ([^;]+)", element.attrib.pop("style", "")))
        for key in ("fill", "stroke"):  # of a hatch
            if key in element.attrib:
                rules[key] = element.attrib.pop(key)
        # The page's type is narrower, or as wide.
        rules.pop("font-family", None)
        if font := rules.pop("font", None):  # of matplotlib before 3.9
            *weight, size = font.split("px")[0].split()
            rules |= {"font-size": f"{size}px", "font-weight": "".join(weight) or "400"}
        if rules:
            told = (f"{key}:{variables.get(value, value)}" for key, value in rules.items())
            element.set("style", ";".join(told))
    return ET.tostring(root, encoding="unicode")


@contextmanager
def _own_settings() -> Iterator[None]:
    with mpl.rc_context(), warnings.catch_warnings():
        # A character that the font does not have is drawn as a box, and by the browser as itself.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield


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
    for element in root.iter():
        element.text, element.tail = (element.text or "").strip() or None, None
        own = element.attrib.pop("id", "")
        if own.startswith(MARK):
            _give_titles(element, own[1:].split(NEXT))
        elif own.encode() in referred:
            element.set("id", f"{name}-{own}")
        for key, value in element.items():
            if key in {"d", "x", "y", "transform"}:
                element.set(key, re.sub(r"-?\d+\.\d+", _two_digits, " ".join(value.split())))
            elif key == f"{{{XLINK}}}href":
                element.set(key, f"#{name}-{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))
    return root


def _two_digits(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


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


def real_beside_ideal(sheet: Sheet, chart: Chart) -> None:
    """A group of bars for each arm, backend or rank.

    `bars` has `row`, its name, `series` (real, ideal, loader or another colour of the palette),
    `value`, `low` and `high`; rows of one name are one group.
    """
    table = chart.tables["bars"]
    rows, names = table.row.tolist(), table.series.tolist()
    groups = dict.fromkeys(rows)
    is_grouped = len(groups) < len(rows)
    if is_grouped:
        known = dict.fromkeys(names)
        sheet.legend([(NAMES.get(name, name), {"color": _color(name)}) for name in known])
    thick, apart = (15.0, 14.0) if is_grouped else (24.0, 12.0)
    kind, title = (chart.unit, "") if chart.unit in FORMATS else ("number", chart.unit)
    farthest = FARTHEST * _most(table.value)
    bars, labels, top = [], [], 2.0
    for group in groups:
        first = top
        for at in (at for at, row in enumerate(rows) if row == group):
            name, value = NAMES.get(names[at], names[at]), float(table.value[at])
            low, high = float(table.low[at]), float(table.high[at])
            interval = None if math.isnan(low + high) else (low, high, min(high, farthest))
            of = f"{group}, {name}" if is_grouped else group
            hover = f"{of}: {_with_interval(value, low, high, chart.unit)}"
            part = (value, {"color": _color(names[at])}, hover, "")
            said = worded(value, kind)
            beside = f"{name}: {said}" if math.isnan(value) and is_grouped else said
            parts = [] if math.isnan(value) else [part]
            bars.append(Bar(top + thick / 2, thick, parts, beside, not is_grouped, interval))
            top += thick + 2
        labels.append((group, (first + top - 2) / 2))
        top += apart
    _draw_bars(sheet, labels, bars, top, title, kind)


def time_per_batch(sheet: Sheet, chart: Chart) -> None:
    """A bar of parts for each row. `parts` has `row`, `part` (a colour of the palette), `value`."""
    table = chart.tables["parts"]
    names = table.part.tolist()
    sheet.legend([(name, {"color": _color(name)}) for name in dict.fromkeys(names)])
    bars, labels = [], []
    for at, row in enumerate(dict.fromkeys(table.row.tolist())):
        own = table.take(table.row == row)
        total, parts = float(own.value.sum()), []
        for name, value in zip(own.part.tolist(), own.value.tolist(), strict=True):
            said = worded(value, chart.unit)
            title = f"{row}: {name} {said}, {share(value / total)}" if total else ""
            parts.append((value, {"color": _color(name)}, title, said))
        bars.append(Bar(16.0 + 38 * at, 26, parts, worded(total, chart.unit), True, None))
        labels.append((row, 16.0 + 38 * at))
    _draw_bars(sheet, labels, bars, 38.0 * len(bars), "time per batch", chart.unit)


def waits(sheet: Sheet, chart: Chart) -> None:
    """The wait for each batch over the run, with outliers and epoch starts marked.

    `batches` has `time_s` since the run's start (without a span, the number of the batch),
    `wait_ns`, `arm` (0 real, 1 ideal, 2 neither counts), `epoch`, `batch` in it (0 for the first,
    which is an epoch start), and `outlier`.
    """
    table = chart.tables["batches"]
    starts: npt.NDArray[np.bool_] = table.batch == 0
    outlier = table.outlier.astype(np.bool_) & ~starts
    dot: Look = {"marker": "o", "markersize": 3.5, "markeredgewidth": 0, "linestyle": ""}
    hollow: Look = {"markerfacecolor": "none", "markeredgewidth": 1.6, "linestyle": ""}
    drawn: list[tuple[str, Rows, Look]] = []
    legend: list[tuple[str, Look]] = []
    for code, arm in enumerate(("real", "ideal", "not_counted")):
        look = {**dot, "color": LIGHT[arm]}
        rows = np.flatnonzero((table.arm == code) & ~starts & ~outlier)
        if len(rows):
            drawn.append((NAMES[arm], rows, look | {"alpha": 0.8, "zorder": 2 - code / 2}))
            legend.append((NAMES[arm], look | {"markersize": 8}))
    for name, shape, which in (("outlier", "o", outlier), ("epoch_start", "^", starts)):
        look = {**hollow, "marker": shape, "markersize": 8, "color": LIGHT[name]}
        if which.any():
            drawn.append((NAMES[name], np.flatnonzero(which), look))
            legend.append((counted(int(which.sum()), NAMES[name]), look))
    sheet.legend(legend)
    axes = sheet.axes(250, left=BESIDE_TIME)
    y = _duration_axis(axes, table.wait_ns, "wait for a batch")
    numbers = (0.0, max(float(len(table) - 1), 1.0))
    _run_axis(sheet, axes, chart.span_s or numbers, SECONDS if chart.span_s else "batch number")
    epochs = table.time_s[starts][1:]
    if len(epochs) <= MOST_EPOCH_LINES:
        look = {"linewidth": 1, "alpha": 0.6, "zorder": 0, "transform": axes.get_xaxis_transform()}
        axes.vlines(epochs, 0, 1, FAINT, (0, (4, 4)), **look)
    buckets = 60 if sheet.is_narrow else 150
    for name, rows, look in drawn:
        kept = rows[extremes(table.wait_ns[rows], buckets if "alpha" in look else buckets // 3)]
        (line,) = axes.plot(table.time_s[kept], y[kept], **look)
        columns = (table[column][kept].tolist() for column in ("epoch", "batch", "time_s"))
        _titled(
            line,
            [
                f"{name}, epoch {epoch}, batch {batch}: {duration(ns)}"
                + (f" at {moment(at_s * 1e9)}" if chart.span_s else "")
                for ns, epoch, batch, at_s in zip(table.wait_ns[kept], *columns, strict=True)
            ],
        )


def system_metrics(sheet: Sheet, chart: Chart) -> None:
    """A panel for each quantity, with a line for each subject, over the run.

    `readings` has `panel`, `unit`, `subject`, `time_s` and `value`.
    """
    readings = chart.tables["readings"]
    span_s = chart.span_s or (float(readings.time_s.min()), float(readings.time_s.max()))
    panels = list(dict.fromkeys(readings.panel.tolist()))
    subjects = list(dict.fromkeys(readings.subject.tolist()))
    lines = len(set(zip(readings.panel.tolist(), readings.subject.tolist(), strict=True)))
    buckets = max(1200 // max(lines, 1), 20) // (2 if sheet.is_narrow else 1)
    looks: dict[str, Look] = {}
    for at, subject in enumerate(subjects):
        color, dash = series(at)
        looks[subject] = {"color": LIGHT[color], "linestyle": dash, "linewidth": 1.5}
    for panel in panels:
        rows = readings.take(readings.panel == panel)
        unit, here = str(rows.unit[0]), dict.fromkeys(rows.subject.tolist())
        of = {"cpus": "CPUs"}.get(unit, "" if unit in FORMATS else unit)
        title = f"{panel} ({of})" if of else panel
        sheet.legend([(name, looks[name]) for name in here], title)
        axes = sheet.axes(90, left=BESIDE_TIME)
        for subject in here:
            own = rows.take((rows.subject == subject) & np.isfinite(rows.value))
            kept = extremes(own.value, buckets)
            look = looks[subject] | {"marker": "o" if len(kept) == 1 else ""}
            (line,) = axes.plot(own.time_s[kept], own.value[kept], **look)
            mean = worded(float(own.value.mean()) if len(own) else None, unit)
            _titled(line, [f"{subject}: {panel}, {mean} on average"])
        least = float(rows.value[np.isfinite(rows.value)].min(initial=0.0))
        axes.set_ylim(1.1 * least, 1.1 * _most(rows.value))
        _ticks(axes.yaxis, 3, unit)
        _run_axis(sheet, axes, span_s, SECONDS, is_last=panel == panels[-1])


def stages(sheet: Sheet, chart: Chart) -> None:
    """How long each stage of the loader is waited for, and what each worker did when.

    `stages` has `label` (two spaces before it make it a part of the one above), `stage` (a colour
    of the palette), `value`, `share` of all, and its parts `on_cpu`, `waiting_for_cpu` and
    `blocked`, NaN where they are not known. `lanes` has `lane`, `what` (a colour), `begin_s`,
    `end_s` and `batch`. Either may be missing.
    """
    if table := chart.tables.get("stages"):
        is_split = np.isfinite(np.stack([table[part] for part in PARTS])).all(axis=0)
        if is_split.any():
            grey = LIGHT["not_attributed"]
            sheet.legend([(name, {"facecolor": grey, **look}) for name, look in PARTS.values()])
        bars, labels = [], []
        for at, label in enumerate(table.label.tolist()):
            value, color = float(table.value[at]), _color(str(table.stage[at]))
            said = f"{worded(value, chart.unit)}, {share(float(table.share[at]))}"
            parts: list[tuple[float, Look, str, str]]
            parts = [(value, {"facecolor": color}, f"{label.strip()}: {said}", "")]
            if is_split[at]:
                parts = []
                for part, (name, look) in PARTS.items():
                    length = float(table[part][at])
                    title = f"{label.strip()}, {name}: {worded(length, chart.unit)}"
                    parts.append((length, {"facecolor": color, **look}, title, ""))
            is_part = label.startswith("  ")
            middle = 14.0 + 28 * at
            bars.append(Bar(middle, 11 if is_part else 19, parts, said, not is_part, None))
            labels.append((label, middle))
        _draw_bars(sheet, labels, bars, 28.0 * len(bars), "time per batch", chart.unit)
    if lanes := chart.tables.get("lanes"):
        sheet.height += 10
        _draw_lanes(sheet, lanes)


def worker_curve(sheet: Sheet, chart: Chart) -> None:
    """Throughput by number of workers: measured, and predicted with its range.

    `measured`, `predicted` and `chosen`, a prediction under other settings, have `workers`,
    `value`, `low` and `high`; `marks` has `workers` and a `label` for a line there. The latter two
    may be missing.
    """
    dot: Look = {"color": LIGHT["real"], "marker": "o", "markersize": 8, "linestyle": ""}
    line: Look = {"color": LIGHT["series1"], "linestyle": DASHED, "linewidth": 2}
    band: Look = {"color": LIGHT["series1"], "alpha": 0.22, "linewidth": 0}
    ring: Look = {**line, "linestyle": "", "marker": "o", "markersize": 7, "markeredgewidth": 2}
    ring["markerfacecolor"] = PAPER
    diamond: Look = {"color": LIGHT["series3"], "marker": "D", "markersize": 9, "linestyle": ""}
    measured, predicted = chart.tables["measured"], chart.tables["predicted"]
    points = {"predicted": (predicted, ring), "measured": (measured, dot)}
    legend = [("measured, 95% CI", dot)] if len(measured) else []
    if len(predicted):
        area = {"facecolor": band["color"], "alpha": band["alpha"]}
        legend += [("predicted", line), ("predicted range", area)]
    if chosen := chart.tables.get("chosen"):
        points["what if"] = chosen, diamond
        legend.append(("what if", diamond))
    sheet.legend(legend)
    axes = sheet.axes(270, left=BESIDE_TIME)
    sheet.height += BELOW
    axes.set_xlabel("workers")
    axes.set_ylabel(drawable(chart.unit, 30))
    every = np.concatenate([table.workers for table, _ in points.values()])
    tops = [np.fmax(table.value, table.high) for table, _ in points.values()]
    most = max(int(every.max(initial=1)), 1)
    axes.set_xlim(-0.03 * most - 0.2, 1.03 * most + 0.2)
    axes.set_ylim(0, 1.1 * _most(np.concatenate(tops)))
    axes.xaxis.set_major_locator(MaxNLocator(6 if sheet.is_narrow else 12, integer=True))
    _ticks(axes.yaxis, 5)
    if len(predicted):
        axes.fill_between(predicted.workers, predicted.low, predicted.high, **band)
        axes.plot(predicted.workers, predicted.value, **line)
    for kind, (table, look) in points.items():
        if kind != "predicted":
            color = INK if kind == "measured" else look["color"]
            axes.vlines(table.workers, table.low, table.high, color, linewidth=2, zorder=3)
        (dots,) = axes.plot(table.workers, table.value, **look, zorder=4)
        columns = (table[name].tolist() for name in ("workers", "value", "low", "high"))
        _titled(
            dots,
            [
                f"{counted(workers, 'worker')}, {kind}: "
                f"{_with_interval(value, low, high, chart.unit)}"
                for workers, value, low, high in zip(*columns, strict=True)
            ],
        )
    if marks := chart.tables.get("marks"):
        for at, label in zip(marks.workers.tolist(), marks.label.tolist(), strict=True):
            axes.axvline(at, color=FAINT, linewidth=1.2, linestyle=(0, (2, 3)), zorder=0)
            is_late = at > most / 2
            look = {"ha": "right" if is_late else "left", "color": FAINT, "fontsize": SMALL}
            look |= {"xytext": (-5 if is_late else 5, 6), "textcoords": "offset points"}
            axes.annotate(drawable(label, 30), (at, 0), xycoords=axes.get_xaxis_transform(), **look)


DRAWN: dict[Kind, Callable[[Sheet, Chart], None]] = {
    "real beside ideal": real_beside_ideal,
    "time per batch": time_per_batch,
    "waits": waits,
    "system metrics": system_metrics,
    "stages": stages,
    "worker curve": worker_curve,
}


def _draw(sheet: Sheet, chart: Chart) -> None:
    if any(len(table) for table in chart.tables.values()):
        DRAWN[chart.kind](sheet, chart)
    else:
        sheet.text(NOT_MEASURED, TYPE, FAINT)


# What several of them are made of


class Bar(NamedTuple):
    """A bar whose middle is so many points below the top, with its value beside it.

    A part has its length, its look, its title, and what is written in it where there is room.
    `interval` is where its 95% CI begins and ends, and where that is drawn to.
    """

    middle: float
    thick: float
    parts: Sequence[tuple[float, Look, str, str]]
    beside: str
    bold: bool
    interval: tuple[float, float, float] | None


def _draw_bars(
    sheet: Sheet,
    labels: Sequence[tuple[str, float]],
    bars: Sequence[Bar],
    height: float,
    title: str,
    kind: str,
) -> None:
    """Bars on an axis from 0; labels have their places in points below the top."""
    axes, room = _rows(sheet, labels, height)
    sheet.height += BELOW
    ends = [
        max(sum(part[0] for part in bar.parts), bar.interval[2] if bar.interval else 0.0)
        for bar in bars
    ]
    beside = max((width_of(bar.beside, TYPE, bold=True) for bar in bars), default=0.0) + 12
    farthest = max(max(ends, default=0.0), 1e-9) * room / max(room - beside, room / 3)
    axes.set_xlim(0, farthest)
    axes.grid(visible=False)
    axes.set_xlabel(drawable(title, 40))
    _ticks(axes.xaxis, 4 if sheet.is_narrow else 6, kind)
    for bar, end in zip(bars, ends, strict=True):
        begin = 0.0
        for length, look, hover, inside in bar.parts:
            (patch,) = axes.barh(bar.middle, length, left=begin, height=bar.thick, **look)
            _titled(patch, [hover])
            if inside and width_of(inside, SMALL, bold=True) + 8 < length / farthest * room:
                written: Look = {"ha": "center", "va": "center_baseline", "color": PAPER}
                written |= {"fontsize": SMALL, "weight": "bold"}
                axes.text(begin + length / 2, bar.middle, inside, **written)
            begin += length
        if bar.interval:
            low, high, drawn = bar.interval
            axes.plot([low, drawn], [bar.middle] * 2, color=INK, linewidth=1.5)
            # A whisker that goes on beyond what is drawn has no cap at its end.
            caps = [low, drawn] if high <= drawn else [low]
            look = {"color": INK, "markersize": 9, "markeredgewidth": 1.5}
            axes.plot(caps, [bar.middle] * len(caps), "|", **look)
        look = {"xytext": (6, 0), "textcoords": "offset points", "va": "center_baseline"}
        look |= {"weight": "bold" if bar.bold else "normal", "color": INK if bar.parts else FAINT}
        axes.annotate(bar.beside, (end, bar.middle), **look)


def _draw_lanes(sheet: Sheet, lanes: Columns) -> None:
    """What each of `lanes` did when, with a bar for each stretch."""
    names, kinds = (list(dict.fromkeys(column.tolist())) for column in (lanes.lane, lanes.what))
    sheet.legend([(NAMES.get(kind, kind), {"color": _color(kind)}) for kind in kinds])
    tall = 26.0 if len(names) <= MOST_WIDE_LANES else 13.0
    middles = {name: (at + 0.5) * tall for at, name in enumerate(names)}
    axes, _ = _rows(sheet, list(middles.items()), tall * len(names))
    axes.grid(visible=False)
    _run_axis(sheet, axes, (float(lanes.begin_s.min()), float(lanes.end_s.max())), SECONDS)
    for kind in kinds:
        rows = lanes.take(lanes.what == kind)
        middle = np.array([middles[name] for name in rows.lane.tolist()])
        top, bottom = middle - 0.38 * tall, middle + 0.38 * tall
        begin, end = rows.begin_s, rows.end_s
        corners = ((begin, top), (end, top), (end, bottom), (begin, bottom))
        shapes = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
        bars = PolyCollection(list(shapes), facecolors=_color(kind), linewidths=0)
        axes.add_collection(bars, autolim=False)
        columns = (rows[name].tolist() for name in ("lane", "batch", "begin_s", "end_s"))
        _titled(
            bars,
            [
                f"{lane}, batch {batch}: {NAMES.get(kind, kind)} "
                f"{duration((end_s - begin_s) * 1e9)} at {moment(begin_s * 1e9)}"
                for lane, batch, begin_s, end_s in zip(*columns, strict=True)
            ],
        )


def _rows(sheet: Sheet, labels: Sequence[tuple[str, float]], height: float) -> tuple[Axes, float]:
    """Axes with the names of rows at their left, in two lines where one is too short.

    Also their width.
    """
    widest = max((width_of(drawable(label), TYPE) for label, _ in labels), default=0.0)
    room = min(widest, 0.34 * sheet.width)
    shown = []
    for label, _ in labels:
        first, *others = in_lines(drawable(label), TYPE, room) or [""]
        shown.append(
            "\n".join([first, *([fitting(" ".join(others), TYPE, room)] if others else [])])
        )
    axes = sheet.axes(height, left=room + 12)
    axes.set_ylim(height, 0)
    axes.set_yticks([middle for _, middle in labels], shown)
    axes.tick_params(axis="y", length=0)
    return axes, sheet.width - room - 24


def _ticks(axis: Axis, most: int, kind: str = "number") -> None:
    """At most about so many round ticks, of a kind of number."""
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(lambda value, _: tick_label(value, kind))


def _run_axis(
    sheet: Sheet, axes: Axes, ends: tuple[float, float], title: str, *, is_last: bool = True
) -> None:
    """An axis along the run; only the last of several says what it is."""
    first, last = ends
    room = 0.01 * (last - first) or 0.5
    axes.set_xlim(first - room, last + room)
    _ticks(axes.xaxis, 6)
    axes.tick_params(axis="x", labelbottom=is_last)
    axes.set_xlabel(title if is_last else "")
    sheet.height += BELOW if is_last else 18


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
    first = math.floor(math.log10(positive.min()))
    decades = [10.0**decade for decade in range(first, math.ceil(math.log10(top)) + 1)]
    labels = {
        tick: tick_label(tick, "duration") for tick in decades[:: math.ceil(len(decades) / 8)]
    }
    floor = decades[0]
    if len(positive) < len(ns):
        floor /= 10
        labels[floor] = "0"
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_yticks(list(labels), list(labels.values()))
    axes.set_ylim(0.6 * floor, 2.2 * top)
    return np.maximum(ns, floor).astype(np.float64)


def tick_label(value: float, kind: str) -> str:
    """A round number of a kind, without the digits that say nothing: 10 ms, 20 GB."""
    if kind == "share":
        return whole_share(value)
    units = UNITS.get(kind, LARGE)
    if not value or (units is LARGE and abs(value) < MILLION):
        return f"{value:,g}"
    thousands = min(max(math.floor(math.log10(abs(value) * 1.001)) // 3, 0), len(units) - 1)
    return f"{value / 1000**thousands:,g} {units[thousands]}"


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


def _with_interval(value: float, low: float, high: float, unit: str) -> str:
    kind = unit if unit in FORMATS else "number"
    known = not math.isnan(low + high)
    return worded(value, unit) + (f" [{worded(low, kind)}, {worded(high, kind)}]" if known else "")


def _color(name: str) -> str:
    return LIGHT.get(name.replace(" ", "_"), LIGHT["not_attributed"])


def _most(values: Values) -> float:
    return float(values[np.isfinite(values)].max(initial=0.0)) or 1.0


def drawable(text: str, longest: int = 300) -> str:
    """`text` as it can be drawn: a run's names may hold anything, and be of any length."""
    return printable(shortened(text, longest))


@lru_cache(maxsize=10_000)
def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """The width of `text` in points."""
    font = FontProperties(family=FAMILY, size=size, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width)


def in_lines(text: str, size: float, room: float, *, bold: bool = False) -> list[str]:
    """`text` in lines that are no wider than `room`; a longer word is without its middle."""
    rows: list[str] = []
    for word in text.split():
        if rows and width_of(f"{rows[-1]} {word}", size, bold=bold) <= room:
            rows[-1] += f" {word}"
        else:
            rows.append(fitting(word, size, room, bold=bold))
    return rows


def fitting(text: str, size: float, room: float, *, bold: bool = False) -> str:
    """`text`, without its middle where it is wider than `room`."""
    shown = text
    while len(shown) > 5 and (width := width_of(shown, size, bold=bold)) > room:  # noqa: PLR2004 - "a...b"
        shown = shortened(text, max(5, min(len(shown) - 1, int(len(shown) * room / width))))
    return shown
