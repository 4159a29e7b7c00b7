"""Charts, by matplotlib: in a figure that is a PNG, SVG or PDF, and inline in the page.

A chart is a function that draws in a figure, and returns how high that is to be. Lengths are in
points: those of a figure, and pixels of the page. matplotlib finds the room that labels take. No
text of a run is read as TeX, and a user's own matplotlib settings change nothing.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loadeval.data.columns import UNKNOWN, Columns, Values
from loadeval.data.run import SECOND_NS
from loadeval.errors import UsageError
from loadeval.estimate.stats import Estimate
from loadeval.inside.stages import spans
from loadeval.report.blocks import DASHED, LIGHT, Bars, Chart, Kind, Number, css_variable, series
from loadeval.report.build import named
from loadeval.words import (
    FORMATS,
    counted,
    duration,
    moment,
    printable,
    share,
    shortened,
)

try:
    import matplotlib as mpl
except ImportError as error:
    raise UsageError(
        "charts need the package matplotlib, which is not installed; install it with: "
        "pip install matplotlib jinja2"
    ) from error
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, SubFigure
from matplotlib.gridspec import GridSpec
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

Look = dict[str, Any]
"""Properties of an artist, as matplotlib names them."""

FILES = (".png", ".svg", ".pdf")
WIDE = 900
DOTS_PER_INCH, POINTS_PER_INCH = 144, 72
BIG, MIDDLE, TYPE, SMALL = 20.0, 15.0, 13.0, 11.5
"""Sizes of type: of a figure's headline, of a chart's title, of labels, and of what is beside."""
LINE = 1.35
"""The height of a line of text, in sizes of its type."""
LETTER = 0.65
"""The width of a bold letter of FAMILY, in sizes of its type."""
BELOW, LEGEND, BETWEEN = 46.0, 24.0, 18.0
"""The room of an axis with its labels and title, of a legend, and between two panels."""
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
    "axes.edgecolor": LIGHT["line"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.12,
    "grid.color": LIGHT["rule"],
    "legend.borderaxespad": 0.0,
    "legend.borderpad": 0.2,
    "legend.columnspacing": 1.4,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "svg.fonttype": "none",
    "xtick.color": LIGHT["line"],
    "xtick.labelcolor": INK,
    "ytick.color": LIGHT["line"],
    "ytick.labelcolor": INK,
}
OF_TRAINING = ("step", "indices", "receive", "pin")
"""What the training process does, and no worker."""
APART = 0.7
"""Between two groups of bars, in bars."""
FARTHEST = 1.5
"""How far a whisker is drawn, in longest bars."""
DOT: Look = {"marker": ".", "mew": 0, "alpha": 0.8}
RING: Look = {"marker": "o", "mew": 1.6, "markerfacecolor": "none"}
"""How waits are drawn; markers of what is usual, and of what is not."""
THICK = 14.0
"""How thick a stretch of a lane is."""
LOG_FROM = 20
"""Times the typical wait at which the longest one asks for a logarithmic axis."""
ZEROS = re.compile(r"\.0+(?!\d)|(?<=\.\d)0+(?!\d)")
"""The digits of a round number that say nothing."""
MARK, NEXT = "\ue000", "\ue001"
"""Begin and part the titles of an artist's marks in its id; `printable` lets neither in."""
SVG = "http://www.w3.org/2000/svg"


# What is written out


def check_extension(path: Path) -> None:
    """Raise UsageError where `save` would, before something is measured for minutes."""
    if path.suffix.lower() not in FILES:
        raise UsageError(
            f"cannot write a figure as {path.name!r}; expected a name that ends in .png, .svg or "
            ".pdf"
        )


def save(
    path: Path, headline: str, charts: Sequence[Chart | Bars], notes: Sequence[str] = ()
) -> None:
    """Write a figure of `charts` under a headline: a PNG, an SVG or a PDF by the path's extension.

    Raises UsageError where it has another extension, or cannot be written.
    """
    check_extension(path)
    kind = path.suffix.lower()[1:]
    beside: Look = {"x": 0.02, "ha": "left"}
    with _own_settings("figure"):
        figure = Figure(layout="constrained" if charts else None)
        grid, heights = GridSpec(max(len(charts), 1), 1, figure=figure), []
        for row, chart in enumerate(charts):
            part, says = figure.add_subfigure(grid[row]), _in_lines(chart.says, SMALL)
            part.suptitle(drawable(chart.title), size=MIDDLE, weight="bold", **beside)
            part.supxlabel(says, size=SMALL, color=FAINT, **beside)
            heights.append(_drawn(part, chart) + 90 + SMALL * LINE * says.count("\n"))
        grid.set_height_ratios(heights or [1])
        title, below = _in_lines(headline, BIG), "\n".join(_in_lines(each, SMALL) for each in notes)
        figure.suptitle(title, size=BIG, weight="bold", **beside)
        figure.supxlabel(below, size=SMALL, color=FAINT, **beside)
        around = LINE * (BIG * (title.count("\n") + 2) + SMALL * (below.count("\n") + 2))
        content = _written(figure, WIDE + 40, sum(heights) + around, kind, PAPER)
    if kind == "svg":
        content = ET.tostring(_tidied(content), encoding="utf-8", xml_declaration=True)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"cannot write the figure {path}: {error.strerror or error}; expected a path in a "
            "folder that exists and can be written"
        ) from error


def inline_svg(chart: Chart | Bars, name: str) -> str:
    """`chart` as an SVG element, whose colours are CSS variables.

    Another `name` for each chart of a page makes their ids differ.
    """
    with _own_settings(name):
        figure = Figure(layout="constrained")
        height = _drawn(figure, chart)
        root = _tidied(_written(figure, WIDE, height + 12, "svg", "none"))
    del root.attrib["width"], root.attrib["height"]
    root.attrib |= {"role": "img", "aria-label": drawable(chart.title)}
    variables = {color: f"var({css_variable(of)})" for of, color in reversed(LIGHT.items())}
    for element in root.iter():
        if style := element.get("style"):
            style = re.sub("#[0-9a-f]{6}", lambda at: variables.get(at[0], at[0]), style)
            element.set("style", style)
    return ET.tostring(root, encoding="unicode")


@contextmanager
def _own_settings(salt: str) -> Iterator[None]:
    with mpl.rc_context(), warnings.catch_warnings():
        # A character that the font does not have is drawn as a box, and by the browser as itself.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS | {"svg.hashsalt": salt})
        yield


def _drawn(figure: Figure | SubFigure, chart: Chart | Bars) -> float:
    """Draw a chart; returns its height."""
    if isinstance(chart, Bars):
        return bars(figure, chart)
    return DRAWN[chart.kind](figure, chart)


def _written(figure: Figure, width: float, height: float, kind: str, paper: str) -> bytes:
    figure.set_size_inches(width / POINTS_PER_INCH, height / POINTS_PER_INCH)
    made = io.BytesIO()
    figure.savefig(made, format=kind, dpi=DOTS_PER_INCH, facecolor=paper)
    return made.getvalue()


def _titled(artist: Any, titles: Sequence[str]) -> None:
    """Let what `artist` draws, mark by mark, tell these titles to who points at it."""
    artist.set_gid(MARK + NEXT.join(map(drawable, titles)))


def _tidied(content: bytes) -> ET.Element:
    """The SVG with a title for each mark, and without what nothing needs.

    Numbers have two digits behind the point.
    """
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root: ET.Element = ET.fromstring(content)  # noqa: S314 - it is ours
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    root.remove(root[0])  # metadata
    root.remove(root[0])  # style, which would be that of the whole page

    def two_digits(found: re.Match[str]) -> str:
        return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")

    for element in root.iter():
        if element.tag == f"{{{SVG}}}g":
            own = element.attrib.pop("id", "")
            if own.startswith(MARK):
                _give_titles(element, own[1:].split(NEXT))
        for key in {"d", "x", "y", "transform"} & element.attrib.keys():
            value = " ".join(element.attrib[key].split())
            element.set(key, re.sub(r"-?\d+\.\d+", two_digits, value))
    return root


def _give_titles(group: ET.Element, titles: Sequence[str]) -> None:
    """A title for each mark in a group."""
    defined = {id(one) for defs in group.iter(f"{{{SVG}}}defs") for one in defs.iter()}
    kinds = {f"{{{SVG}}}use", f"{{{SVG}}}path"}
    marks = [one for one in group.iter() if one.tag in kinds and id(one) not in defined]
    for mark, title in zip(marks, titles, strict=False):
        ET.SubElement(mark, f"{{{SVG}}}title").text = title


# The charts


class Part(NamedTuple):
    """A part of a bar, and where it has one, the interval of its length.

    Its title is for who points at it.
    """

    length: float | Estimate
    color: str
    title: str


Group = list[tuple[list[Part], str]]
"""Bars of parts, and what stands behind each."""


def bars(figure: Figure | SubFigure, block: Bars) -> float:
    """A bar of parts for each row; or a group of bars for a training, each backend or rank."""
    unit, title = block.unit, "time per batch" if block.stacked else ""
    if unit not in FORMATS:
        unit, title = "number", unit
    groups, entries, count = dict[str, Group](), dict[str, Artist](), 0
    for row, lengths in block.rows:
        total, drawn = sum(map(_value, lengths.values())) or 1.0, list[Part]()
        for name, length in lengths.items():
            says = f"{name} {Number(length, block.unit)}"
            told = f"{row}, {name}: {Number(length, block.unit)}"
            if block.stacked:
                told = f"{row}: {says}, {share(_value(length) / total)}"
            drawn.append(Part(length, name, told))
            entries.setdefault(name, _patch(name, says if block.stacked else name))
        alone = [[part] for part in drawn]
        groups[row] = [
            (parts, str(Number(sum(_value(part.length) for part in parts), unit)))
            for parts in ([drawn] if block.stacked else alone)
        ]
        count += len(groups[row])
    thick = 38.0 * count if block.stacked else 20.0 * (count + APART * len(groups))
    (axes,) = _axes(figure, thick + BELOW + LEGEND)
    _legend(axes, [*entries.values()])
    _bars(axes, groups, unit, title)
    return thick + BELOW + LEGEND


def _value(length: float | Estimate) -> float:
    return length.value if isinstance(length, Estimate) else length


def _bars(axes: Axes, groups: Mapping[str, Group], unit: str, title: str) -> None:
    """Bars below each other, a group's name beside its middle; a part of a row above is thin."""
    every = [parts for group in groups.values() for parts, _ in group]
    most = FARTHEST * max(sum(_value(part.length) for part in parts) for parts in every)
    apart = APART if len(every) > len(groups) else 0.0
    place, longest, middles = 0.0, 1e-9, list[float]()
    behind: Look = {"xytext": (6, 0), "textcoords": "offset points", "va": "center_baseline"}
    for label, group in groups.items():
        middles.append(place + (len(group) - 1) / 2)
        thick = 0.4 if label.startswith("  ") else 0.7
        for parts, says in group:
            end = 0.0
            for length, color, told in parts:
                (drawn,) = axes.barh(place, _value(length), thick, end, color=LIGHT[color])
                _titled(drawn, [told])
                end += _value(length)
                if isinstance(length, Estimate) and length.low is not None:
                    low, high = length.bounds
                    end = min(high, most)
                    caps = [0] if high > most else [0, 1]
                    (line,) = axes.plot([low, end], [place] * 2, color=INK, lw=1.5)
                    line.set(marker="|", markersize=9, markeredgewidth=1.5, markevery=caps)
            axes.annotate(says, (end, place), annotation_clip=False, **behind)
            longest, place = max(longest, end), place + 1
        place += apart
    axes.set_xlim(0, 1.18 * longest)
    axes.set_xlabel(drawable(title, LONGEST_LABEL))
    _ticks(axes.xaxis, 6, unit)
    _rows(axes, list(groups), middles, place - apart)


def waits(figure: Figure | SubFigure, chart: Chart) -> float:
    """The wait for each batch over the run, with outliers and epoch starts; and what was read then.

    `batches` are a run's steps, with `outlier`. Those whose times are not known stand by their
    numbers. Readings have a panel for each quantity.
    """
    table = chart.tables["batches"]
    is_timed = bool((table.request_ns != UNKNOWN).all())
    panels = _changing(chart) if is_timed else {}
    time_s = (
        (table.request_ns + table.wait_ns) / SECOND_NS if is_timed else np.arange(float(len(table)))
    )
    heights = [250.0 + LEGEND + BELOW, *[90.0 + LEGEND + BETWEEN] * len(panels)]
    top, *below = _axes(figure, *heights, sharex=True)
    starts = table.batch == 0
    outlier = table.outlier.astype(np.bool_) & ~starts
    usual = ~starts & ~outlier
    kinds = {
        "ideal": (usual & (table.arm == 1), DOT),
        "real": (usual & (table.arm == 0), DOT),
        "outlier": (outlier, RING),
        "epoch start": (starts, RING | {"marker": "^"}),
    }
    entries: list[Artist] = []
    for kind, (which, look) in kinds.items():
        rows = np.flatnonzero(which)
        if not len(rows):
            continue
        kept = rows[extremes(table.wait_ns[rows], 150)]
        shown = time_s[kept], table.wait_ns[kept]
        (line,) = top.plot(*shown, ls="", markersize=8, color=LIGHT[kind], label=kind, **look)
        entries.append(_patch(kind, kind) if look is DOT else line)
        columns = (column[kept].tolist() for column in (table.wait_ns, table.epoch, table.batch))
        titles = [
            f"{kind}, epoch {epoch}, batch {batch}: {duration(ns)}"
            + (f" at {moment(at_s * SECOND_NS)}" if is_timed else "")
            for ns, epoch, batch, at_s in zip(*columns, time_s[kept].tolist(), strict=True)
        ]
        _titled(line, titles)
    _legend(top, entries)
    _wait_axis(top, table.wait_ns)
    subjects = dict.fromkeys(subject for lines in panels.values() for subject in lines)
    looks = {subject: series(at) for at, subject in enumerate(subjects)}
    for axes, (quantity, lines) in zip(below, panels.items(), strict=True):
        _reading(axes, quantity, lines, looks)
    _run_axis([top, *below][-1], time_s, SECONDS if is_timed else "batch number")
    return sum(heights)


def _wait_axis(axes: Axes, ns: npt.NDArray[np.int64]) -> None:
    """It is logarithmic, down to 0 if there is one, where a few are many times what is typical."""
    axes.set_ylabel("wait for a batch")
    top, positive = float(ns.max(initial=0)) or 1.0, ns[ns > 0]
    if not len(positive) or top <= LOG_FROM * float(np.median(positive)):
        axes.set_ylim(-0.03 * top, 1.1 * top)
        _ticks(axes.yaxis, 5, "duration")
        return
    least = 10.0 ** math.floor(math.log10(positive.min()))
    axes.set_yscale("symlog", linthresh=least)
    axes.minorticks_off()
    axes.set_ylim((0.6 if len(positive) == len(ns) else -0.2) * least, 2.2 * top)
    axes.yaxis.set_major_formatter(lambda value, _: tick_label(value, "duration"))


Lines = dict[str, tuple[Values, Values]]
"""Times in seconds and values, by the subject that they are of."""


def _changing(chart: Chart) -> dict[str, Lines]:
    """The quantities that change along the run."""
    every: dict[str, Lines] = {}
    for (probe, subject), read in chart.readings.items():
        for quantity in read.names[1:]:
            values = np.asarray(read[quantity], float)
            known = np.isfinite(values)
            if known.any():
                line = read.time_ns[known] / SECOND_NS, values[known]
                every.setdefault(quantity, {})[subject or probe] = line
    return {
        quantity: lines
        for quantity, lines in every.items()
        if any(values.min() < values.max() for _, values in lines.values())
    }


def _reading(axes: Axes, quantity: str, lines: Lines, looks: Mapping[str, Any]) -> None:
    """A quantity over the run, with a line for each subject."""
    panel, unit = named(quantity)
    of = "CPUs" if unit == "cpus" else "" if unit in FORMATS else unit
    drawn = []
    for subject, (time_s, values) in lines.items():
        color, dash = looks[subject]
        kept = extremes(values, 100)
        look: Look = {"color": LIGHT[color], "ls": dash, "label": subject}
        drawn += axes.plot(time_s[kept], values[kept], lw=1.5, **look)
        mean = Number(float(values.mean()), unit)
        _titled(drawn[-1], [f"{subject}: {panel}, {mean} on average"])
    _legend(axes, drawn, at_right=True)
    title = drawable(f"{panel} ({of})" if of else panel, LONGEST_LABEL)
    axes.set_title(title, loc="left", size=TYPE, weight="bold")
    every = np.concatenate([values for _, values in lines.values()])
    axes.set_ylim(1.1 * every.min(initial=0.0), 1.1 * (every.max(initial=0.0) or 1.0))
    _ticks(axes.yaxis, 3, "size" if unit == "bytes/s" else unit)


def stages(figure: Figure | SubFigure, chart: Chart) -> float:
    """How long each stage of the loader is waited for, and what each worker did when.

    `stages` has `label` (two spaces before it make it a part of the one above), `stage` (a colour),
    and `ns`. `batches` and `steps` are those of `Lanes`, and may be missing.
    """
    table, batches = chart.tables["stages"], chart.tables.get("batches")
    heights = [28.0 * len(table) + BELOW]
    lanes = [] if batches is None else sorted({UNKNOWN, *batches.worker.tolist()})
    if lanes:
        heights.append(20.0 * len(lanes) + BELOW + LEGEND)
    axes, *below = _axes(figure, *heights)
    groups: dict[str, Group] = {}
    rows = list(zip(*(table[name].tolist() for name in ("label", "stage", "ns")), strict=True))
    total_ns = sum(ns for label, _, ns in rows if not label.startswith("  ")) or 1.0
    for label, stage, ns in rows:
        says = f"{duration(ns)}, {share(ns / total_ns)}"
        groups[label] = [([Part(ns, stage, f"{label.strip()}: {says}")], says)]
    _bars(axes, groups, "duration", "time per batch")
    if batches is not None:
        _lanes(below[0], lanes, batches, chart.tables["steps"])
    return sum(heights)


def _lanes(axes: Axes, lanes: Sequence[int], batches: Columns, steps: Columns) -> None:
    """What the training process and each worker did when, with a bar for each stretch."""
    names = {lane: "training" if lane == UNKNOWN else f"worker {lane}" for lane in lanes}
    nobodys = np.full(len(steps), UNKNOWN)
    took = {"step": (steps.start_ns, steps.end_ns - steps.start_ns), **spans(batches)}
    kinds = []
    for kind, (begin_ns, took_ns) in took.items():
        batch, worker = (nobodys,) * 2 if kind == "step" else (batches.batch, batches.worker)
        lane_of = np.full(len(worker), UNKNOWN) if kind in OF_TRAINING else worker
        (rows,) = np.nonzero((begin_ns != UNKNOWN) & (took_ns > 0))
        if not len(rows):
            continue
        ends_s = begin_ns[rows] / SECOND_NS, (begin_ns + took_ns)[rows] / SECOND_NS
        places = np.searchsorted(lanes, lane_of[rows])
        drawn = axes.hlines(places, *ends_s, colors=LIGHT[kind], linewidth=THICK)
        columns = (column[rows].tolist() for column in (lane_of, batch, begin_ns, took_ns))
        titles = [
            f"{names[lane]}{f', batch {number}' * (number != UNKNOWN)}: {kind} "
            f"{duration(length)} at {moment(begin)}"
            for lane, number, begin, length in zip(*columns, strict=True)
        ]
        _titled(drawn, titles)
        kinds.append(kind)
    _legend(axes, [_patch(kind, kind) for kind in kinds])
    _rows(axes, list(names.values()), range(len(names)), len(names))
    ends_ns = batches.fetch_start_ns.min(), batches.delivered_ns.max(), *steps.end_ns
    _run_axis(axes, np.array(ends_ns) / SECOND_NS, SECONDS)


def worker_curve(figure: Figure | SubFigure, chart: Chart) -> float:
    """Throughput by number of workers: measured, and predicted with its range.

    `measured` and `predicted` have `workers` and `rate`, an estimate.
    """
    height, color = 270.0 + LEGEND + BELOW, LIGHT["waiting"]
    (axes,) = _axes(figure, height)
    looks: dict[str, Look] = {
        "predicted": {"color": color, "markerfacecolor": PAPER, "mew": 2},
        "measured": {"color": LIGHT["real"]},
    }
    for kind, look in looks.items():
        workers, rates = (chart.tables[kind][name].tolist() for name in ("workers", "rate"))
        ends = np.array([(rate.value, rate.low, rate.high) for rate in rates], float)
        value, low, high = ends.T
        (dots,) = axes.plot(workers, value, "o", markersize=8, zorder=3, label=kind, **look)
        points = zip(workers, rates, strict=True)
        says = [f"{counted(at, 'worker')}, {kind}: {Number(of, chart.unit)}" for at, of in points]
        _titled(dots, says)
        if kind == "measured":
            axes.vlines(workers, low, high, INK, linewidth=2)
        else:
            axes.plot(workers, value, color=color, ls=DASHED, lw=2)
            area: Look = {"color": color, "alpha": 0.22, "lw": 0, "label": "predicted range"}
            axes.fill_between(workers, low, high, **area)
    _legend(axes, axes.get_legend_handles_labels()[0])
    axes.set_xlabel("workers")
    axes.set_ylabel(drawable(chart.unit, LONGEST_LABEL))
    axes.margins(x=0.03)
    axes.set_ylim(0)
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    _ticks(axes.yaxis, 5)
    return height


DRAWN: dict[Kind, Callable[[Figure | SubFigure, Chart], float]] = {
    "waits": waits,
    "stages": stages,
    "worker curve": worker_curve,
}


# What several of them are made of


def _axes(figure: Figure | SubFigure, *heights: float, sharex: bool = False) -> list[Axes]:
    """Axes of these heights below each other."""
    count = len(heights)
    every = figure.subplots(count, 1, squeeze=False, height_ratios=heights, sharex=sharex)
    return list(every[:, 0])


def _patch(color: str, label: str) -> Patch:
    return Patch(facecolor=LIGHT[color], linewidth=0, label=label)


def _legend(axes: Axes, entries: Sequence[Artist], *, at_right: bool = False) -> None:
    """A row of entries above the axes."""
    names = [drawable(str(entry.get_label()), LONGEST_LABEL) for entry in entries]
    axes.legend(
        list(entries),
        names,
        ncols=max(len(names), 1),
        loc="lower right" if at_right else "lower left",
        bbox_to_anchor=(int(at_right), 1.02),
    )


def _rows(axes: Axes, labels: Sequence[str], places: Sequence[float], count: float) -> None:
    """Names of rows at the left of axes that begin at the top."""
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_yticks(places, [drawable(label, LONGEST_LABEL) for label in labels])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)


def _ticks(axis: Axis, most: int, kind: str = "number") -> None:
    """At most about so many round ticks, of a kind of number."""
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(lambda value, _: tick_label(value, kind))


def _run_axis(axes: Axes, values: Values, title: str) -> None:
    """An axis along the run, with room for `values`."""
    first, last = float(values.min()), float(values.max())
    room = 0.01 * (last - first) or 0.5
    axes.set_xlim(first - room, last + room)
    _ticks(axes.xaxis, 6)
    axes.set_xlabel(title)


def tick_label(value: float, kind: str) -> str:
    """A round number of a kind, without the digits that say nothing: 10 ms, 20 GB."""
    kind = kind if kind in {"duration", "size", "share"} else "number"
    return ZEROS.sub("", str(Number(value, kind))) if value else "0"


def extremes(values: npt.NDArray[Any], buckets: int) -> npt.NDArray[np.intp]:
    """Places in `values`, in order, of the least and the greatest in each of equal buckets.

    All of them where there are no more than two for each of the `buckets`.
    """
    if len(values) <= 2 * buckets:
        return np.arange(len(values))
    parts = np.array_split(np.arange(len(values)), buckets)
    ends = [(values[part].argmin(), values[part].argmax()) for part in parts]
    return np.unique([part[list(at)] for part, at in zip(parts, ends, strict=True)])


def _in_lines(text: str, size: float) -> str:
    """`text` in lines that are as wide as a chart."""
    return textwrap.fill(drawable(text, 2_000), int(WIDE / (size * LETTER)))


def drawable(text: str, longest: int = 300) -> str:
    """`text` as it can be drawn: a run's names may hold anything, and be of any length."""
    return printable(shortened(text, longest))
