"""Charts drawn with matplotlib, on the pages comparison.png and backends.png."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from loadeval.analysis.backends import ranked
from loadeval.analysis.report import Comparison
from loadeval.errors import UsageError
from loadeval.report.charts import (
    OUTLIERS,
    backends_chart,
    blocks_of,
    comparison_chart,
    epoch_starts_of,
    iterations_chart,
    lost_time_chart,
    waits_of_two,
)
from loadeval.report.fitting import (
    FAMILY,
    POINTS_PER_INCH,
    clipped,
    drawable,
    width_of,
    wrapped,
)
from loadeval.report.formatting import (
    LONGEST_NAME,
    NOT_MEASURED,
    counted,
    duration,
    share,
    shortened,
)
from loadeval.report.palette import LIGHT, NAMES
from loadeval.report.wording.metrics import gpus_in_words, gpus_of_backends
from loadeval.report.wording.page import DOTS_AND_LINES, INTERVALS
from loadeval.report.wording.verdict import (
    THRESHOLDS,
    backend_cautions,
    backend_not_measured,
    backend_verdict,
    backends_headline,
    cautions,
    described_loader,
    difference_sentence,
    headline,
    lost_in_words,
    measured,
    measured_in_words,
    not_measured,
    reason,
    verdict_advice,
)
from loadeval.runlog.model import ARMS
from loadeval.runlog.reader import read_run

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from loadeval.analysis.backends import BackendReport, BackendResult
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.report import Side
    from loadeval.report.charts import Bar, BarChart, PointChart, Points, Row
    from loadeval.runlog.model import Run

    Place = tuple[float, float, float]
    Style = dict[str, Any]

FORMATS = (".png", ".svg", ".pdf")
DPI = 100
TITLE, PANEL, LABEL, SMALL = 22, 18, 16, 13
"""Sizes of type in points, on a figure 14 inches wide: readable when it is shown half as wide."""
INK, FAINT, PAPER = LIGHT["ink"], LIGHT["faint"], LIGHT["paper"]
WHISKER: Style = {"color": INK, "linewidth": 2, "markersize": 12, "markeredgewidth": 2}

# All places and sizes from here on are in inches.
WIDTH = 14.0
MARGIN = 0.4
TEXT_WIDTH = WIDTH - 2 * MARGIN
LINE = 1.45
"""Of a line, in sizes of its type."""
PANELS = 8.4
"""What the three panels of a comparison take of the height."""
GAP = 0.1
"""Between a bar and what is written beside it."""
LEAST_SCALE = 0.1
"""Of the width, that the longest bars have whatever their values take."""
NAMES_WIDTH = 2.8
BARS_LEFT, BARS_WIDTH = MARGIN + NAMES_WIDTH + 0.2, 7.0
LOST_LEFT = BARS_LEFT + BARS_WIDTH + 0.3
LOST_WIDTH = WIDTH - MARGIN - LOST_LEFT
LEGEND_WIDTH = 5.6
HEADING = 0.75
"""Above the first backend."""
BACKEND_HIGH, FAILED_HIGH = 1.35, 1.1
"""A backend, with the gap below it."""
THICK, THIN, BETWEEN = 0.36, 0.2, 0.05
"""Bars, and the gap between two of one backend, and above the first."""
TITLE_PAD = 12
"""Points, between axes and their title."""
FEW = 60
"""Marks that are drawn large, and blocks whose lines are drawn thick."""


def plot_comparison(
    real_log: str | os.PathLike[str],
    ideal_log: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] = "comparison.png",
) -> Path:
    """Draw what ideal loading would gain; returns the path of the figure written.

    Args:
        real_log: the run that loaded, or without `ideal_log` one that alternated: a run log,
            what `save_metrics()` wrote, or the JSON of DALI's LoaderEvaluator.
        ideal_log: the run that replayed, in one of the same forms.
        output: where the figure goes, replacing what is there: a PNG, an SVG or a PDF by its
            extension.

    Raises:
        RunLogError: a run cannot be read.
        UsageError: the runs cannot be compared, a single one does not alternate, or `output`
            has another extension or cannot be written.
    """
    path = figure_path(output)
    ideal = None if ideal_log is None else read_run(ideal_log)
    save_figure(comparison_figure(Comparison.of(read_run(real_log), ideal)), path)
    return path


def save_figure(figure: Figure, path: Path) -> None:
    """Write `figure` to `path`, which `figure_path` found good. Raises UsageError if it cannot."""
    try:
        figure.savefig(path, dpi=DPI, facecolor=PAPER, format=path.suffix[1:].lower())
    except OSError as error:
        raise UsageError(
            f"cannot write the figure {path}: {error.strerror or error}; expected a path in a "
            "folder that exists and can be written"
        ) from error


def figure_path(output: str | os.PathLike[str]) -> Path:
    """`output` as a path. Raises UsageError for a format that figures are not written in."""
    path = Path(output)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(
            f"cannot write a figure as {path.name!r}: its extension is {path.suffix!r}, where "
            f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]} was expected; try {path.stem}.png"
        )
    return path


# A comparison


def comparison_figure(comparison: Comparison) -> Figure:
    """Throughput, where an iteration's time goes, and iterations or waits; the finding as title."""
    found = comparison.headroom
    details = [*_reasoned(found), *_described(comparison)]
    footer = [
        *cautions(found),
        " ".join(not_measured(found)),
        *gpus_in_words(comparison.metrics),
        f"Verdicts: {THRESHOLDS}.",
        *_notes(comparison.runs),
    ]
    figure, top = _page(headline(found), details, footer, PANELS)
    bottom = float(figure.get_size_inches()[1]) - top - PANELS
    chart = comparison_chart(comparison)
    title = _throughput_title(chart.unit, 5.1)
    axes = _panel(figure, (MARGIN, bottom + 4.3, 5.1, 3.3), title, labels=1.5)
    _draw_rows(axes, chart)
    chart = lost_time_chart(comparison)
    box = (6.0, bottom + 4.3, 7.6, 3.3)
    axes = _panel(figure, box, "Where an iteration's time goes", labels=2.45)
    _draw_rows(axes, chart)
    if any(len(row.bars) > 1 for row in chart.rows):
        _color_legend(axes, {name: NAMES[name] for name in ("step", "waiting")})
    box = (MARGIN, bottom + 0.8, 13.2, 2.6)
    if comparison.ideal is None:
        axes = _panel(figure, box, "Iterations", labels=1.0)
        _draw_iterations(axes, iterations_chart(comparison.counted))
    else:
        axes = _panel(figure, box, "Waits", labels=1.0)
        _draw_waits(axes, *waits_of_two(comparison.real, comparison.ideal))
    _take_text_literally(figure)
    return figure


def _reasoned(headroom: Headroom) -> list[str]:
    why, advice = reason(headroom), verdict_advice(headroom)
    if headroom.speedup is None and headroom.pairs is None:
        return [f"{why}.", advice]  # it begins with a path or a name, which stays as it is
    if headroom.speedup is None or headroom.verdict.objection is not None:
        return [advice]  # the title says why
    return [f"{why[:1].upper()}{why[1:]}.", advice]


def _described(comparison: Comparison) -> list[str]:
    found, run = comparison.headroom, comparison.real
    if comparison.ideal is not None:
        return [*map(_side, comparison.sides), INTERVALS]
    epochs = counted(len(np.unique(run.steps.epoch)), "epoch", "epochs")
    name = shortened(run.header.name, LONGEST_NAME)
    batches = counted(len(run.steps), "batch", "batches")
    served = (
        f"{name}: {described_loader(run)}; {batches} in {epochs}; {measured(found)} "
        f"measured. {INTERVALS} {DOTS_AND_LINES}"
    )
    return [lost_in_words(found), served]


def _side(side: Side) -> str:
    name = shortened(side.run.header.name, LONGEST_NAME)
    label = side.name if name == side.name else f"{side.name} ({name})"
    batches = counted(side.summary.batches, "batch", "batches")
    epochs = counted(side.summary.epochs, "epoch", "epochs")
    return (
        f"{label}: {described_loader(side.run)}; {batches} in {epochs}, "
        f"{side.summary.steady_batches:,} of them steady"
    )


def _notes(runs: list[Run]) -> list[str]:
    messages = [note for run in runs for note in run.notes]
    messages += [event.message for run in runs for event in run.events]
    messages = list(dict.fromkeys(messages))
    if not messages:
        return []
    also = f" (and {len(messages) - 1} more: see `loadeval show`)" if len(messages) > 1 else ""
    return [f"Note: {messages[0]}{also}"]


# Several backends


def backends_figure(found: BackendReport) -> Figure:
    """A group of bars for each backend, its loss beside it, and the finding as a title."""
    tops, tall = {}, BETWEEN
    for one in ranked(found.backends):
        tops[one.name] = tall
        tall += FAILED_HIGH if one.error else BACKEND_HIGH
    details = [measured_in_words(found), INTERVALS]
    figure, top = _page(backends_headline(found), details, _footer(found), tall, HEADING)
    bottom = float(figure.get_size_inches()[1]) - top - tall
    box = (MARGIN, bottom, BARS_LEFT + BARS_WIDTH - MARGIN, tall)
    title = _throughput_title(found.unit, BARS_LEFT + BARS_WIDTH - MARGIN - LEGEND_WIDTH)
    axes = _panel(figure, box, title, labels=BARS_LEFT - MARGIN)
    axes.set_ylim(tall, 0)
    chart = backends_chart(found)
    rows = [row for row in chart.rows if row.label]
    _draw_bars(axes, replace(chart, rows=tuple(rows)), [_place(row, tops) for row in rows])
    _color_legend(axes, {name: NAMES[name] for name in ("real", "ideal", "loader")})
    axes.annotate(
        "Time lost",
        (1, 1),
        xycoords="axes fraction",
        xytext=((LOST_LEFT - BARS_LEFT - BARS_WIDTH) * POINTS_PER_INCH, TITLE_PAD),
        textcoords="offset points",
        fontsize=PANEL,
        fontweight="bold",
        color=INK,
    )
    for one in found.backends:
        _write_name(figure, one, top + tops[one.name])
        _write_lost(figure, one, top + tops[one.name])
    _take_text_literally(figure)
    return figure


def _place(row: Row, tops: Mapping[str, float]) -> Place:
    at = tops[row.group]
    if row.label == NAMES["loader"]:
        return at + 2 * (THICK + BETWEEN) + THIN / 2, THIN, SMALL
    if row.label == NAMES["ideal"]:
        at += THICK + BETWEEN
    return at + THICK / 2, THICK, LABEL


def _footer(found: BackendReport) -> list[str]:
    fastest = found.differences[0].one if found.differences else None
    said = [difference_sentence(one) for one in found.differences if one.one == fastest]
    return [
        *([f"Real throughput: {'; '.join(said)}."] if said else []),
        *backend_cautions(found),
        *backend_not_measured(found),
        *gpus_of_backends(found.backends),
        f"Verdicts: {THRESHOLDS}.",
    ]


def _write_name(figure: Figure, one: BackendResult, top: float) -> None:
    name = [clipped(drawable(one.name), LABEL, NAMES_WIDTH, bold=True)]
    _write(figure, name, (MARGIN, top), LABEL, bold=True)
    if one.run is not None:
        told = _small([described_loader(one.run)], NAMES_WIDTH, 2 if one.error else 3)
        _write(figure, told, (MARGIN, top + _high(name, LABEL)), SMALL, FAINT)


def _write_lost(figure: Figure, one: BackendResult, top: float) -> None:
    if one.error:
        told = _small([f"failed: {one.error}"], WIDTH - MARGIN - BARS_LEFT)
        _write(figure, told, (BARS_LEFT, top), SMALL, LIGHT["epoch_start"])
        return
    lost = one.lost_share
    if lost is not None:
        value = [share(lost.value)]
        _write(figure, value, (LOST_LEFT, top), LABEL, bold=True)
        top += _high(value, LABEL)
    known = lost is not None and lost.low is not None
    interval = [f"[{share(lost.low)}, {share(lost.high)}]"] if lost and known else []
    told = _small([*interval, backend_verdict(one)], LOST_WIDTH, 2)
    _write(figure, told, (LOST_LEFT, top), SMALL, FAINT)


# Bars


def _throughput_title(unit: str, room: float) -> str:
    """The title of a throughput panel, in at most `room` inches."""
    start, end = "Throughput in ", "/s"
    left = room - width_of(start + end, PANEL, bold=True)
    return start + clipped(drawable(unit), PANEL, left, bold=True) + end


def _draw_rows(axes: Axes, chart: BarChart) -> None:
    """Rows 1 apart, under their labels."""
    places = [(float(place), 0.62, float(LABEL)) for place in range(len(chart.rows))]
    axes.set_ylim(len(places) - 0.4, -0.6)
    _draw_bars(axes, chart, places, labels=True)
    axes.set_yticks(range(len(places)), [row.label for row in chart.rows])
    axes.tick_params(axis="y", length=0)


def _draw_bars(
    axes: Axes, chart: BarChart, places: Sequence[Place], *, labels: bool = False
) -> None:
    """Each row at its place: the middle, how thick it is, and the type of its value.

    Without `labels`, its interval stands behind the value, and its name where it has no bar.
    """
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure = cast("Figure", axes.figure)
    width = float(axes.get_position().width * figure.get_size_inches()[0])
    texts = [_texts(row, labels=labels) for row in chart.rows]
    ends = [chart.end(row) for row in chart.rows]
    rooms = [
        width_of(value, points, bold=True) + width_of(more, SMALL) + 3 * GAP
        for (value, more), (_, _, points) in zip(texts, places, strict=True)
    ]
    # All texts have room beside their bars.
    scaled = [
        end * width / max(width - room, LEAST_SCALE * width)
        for end, room in zip(ends, rooms, strict=True)
    ]
    axes.set_xlim(0, max(scaled, default=0.0) or 1.0)
    for row, (value, more), end, (middle, thick, points) in zip(
        chart.rows, texts, ends, places, strict=True
    ):
        for bar in row.bars:
            _draw_bar(axes, bar, middle, thick, chart.farthest)
            if len(row.bars) > 1:
                _write_inside(axes, bar, middle, width)
        _write_beside(axes, value, (end, middle), GAP, points, INK)
        beside = GAP + (width_of(value, points, bold=True) + GAP if value else 0.0)
        _write_beside(axes, more, (end, middle), beside, LABEL if labels else SMALL, FAINT)


def _texts(row: Row, *, labels: bool) -> tuple[str, str]:
    """The value of `row`, and what stands behind it in small print."""
    if not row.bars:
        return "", row.text if labels else f"{row.label} {row.text}"
    return row.text, "" if labels else row.interval


def _draw_bar(axes: Axes, bar: Bar, middle: float, thick: float, farthest: float) -> None:
    color = LIGHT[bar.color]
    # What is gained, a loss under zero, is drawn hollow.
    gain = bar.length < 0
    axes.barh(
        middle,
        bar.length,
        left=bar.start,
        height=thick,
        facecolor="none" if gain else color,
        edgecolor=color,
        linewidth=1.5 if gain else 0,
    )
    if bar.low is not None and bar.high is not None:
        # A whisker that goes on beyond what is drawn has no cap at its end.
        capped = [0] if bar.high > farthest else [0, 1]
        ends = [bar.low, min(bar.high, farthest)]
        axes.plot(ends, [middle] * 2, **WHISKER, marker="|", markevery=capped)


def _write_beside(
    axes: Axes, text: str, place: tuple[float, float], beside: float, points: float, color: str
) -> None:
    axes.annotate(
        text,
        place,
        xytext=(beside * POINTS_PER_INCH, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=points,
        fontweight="bold" if color == INK else "normal",
        color=color,
    )


def _write_inside(axes: Axes, bar: Bar, middle: float, width: float) -> None:
    room = bar.length / axes.get_xlim()[1] * width
    if room > width_of(bar.text, LABEL) + 2 * GAP:
        at = bar.start + bar.length / 2
        axes.text(
            at, middle, bar.text, ha="center", va="center_baseline", fontsize=LABEL, color=INK
        )


def _color_legend(axes: Axes, named: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415 - heavy

    _legend(axes, [Patch(color=LIGHT[color]) for color in named], list(named.values()))


# Batches over the run


def _draw_iterations(axes: Axes, chart: PointChart) -> None:
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
        axes.plot(
            places,
            np.full(len(places), 0.04),
            transform=axes.get_xaxis_transform(),
            clip_on=False,
            label=f"{name} ({duration(float(waits_ns.mean()))})",
            **_marker("^", "epoch_start", len(epochs)),
        )
    _draw_epochs(axes, chart, "")  # each is where an epoch start is
    _legend(axes, *axes.get_legend_handles_labels())


def _draw_waits(axes: Axes, real: PointChart, ideal: PointChart) -> None:
    """The waits of two runs by batch; of the real one also what does not count, and outliers."""
    if not _prepare(axes, [real, ideal]):
        return
    lines = sorted(real.points, key=lambda points: not points.joined)
    for chart, points in [(real, one) for one in lines] + [(ideal, one) for one in ideal.points]:
        name = counted(points.count, points.name, f"{points.name}s")
        _draw_points(axes, chart, points, name if points.color == "epoch_start" else points.name)
    _draw_outliers(axes, real)
    _draw_epochs(axes, real, "new epoch")
    _legend(axes, *axes.get_legend_handles_labels())


def _prepare(axes: Axes, charts: Sequence[PointChart]) -> bool:
    """Set both axes; whether there is anything to draw, which is said where there is not."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - heavy

    axes.set_xlabel("batch number", fontsize=LABEL, color=INK)
    if not any(chart.points for chart in charts):
        axes.set_yticks([])
        axes.set_xticks([])
        place: Style = {"ha": "center", "va": "center", "transform": axes.transAxes}
        axes.text(0.5, 0.5, NOT_MEASURED, fontsize=LABEL, color=FAINT, **place)
        return False
    axis = charts[0].axis
    axes.set_yscale("log" if axis.log else "linear")
    axes.minorticks_off()
    axes.set_ylim(axis.low, axis.high)
    axes.set_yticks(*(list(one) for one in zip(*axis.ticks, strict=True)))
    batches = max(int(chart.number.max(initial=-1)) + 1 for chart in charts)
    margin = 0.01 * batches + 0.5
    axes.set_xlim(-margin, batches - 1 + margin)
    locator = MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True)
    ticks = [int(tick) for tick in locator.tick_values(0, max(batches - 1, 1))]
    shown = [tick for tick in ticks if 0 <= tick < batches]
    axes.set_xticks(shown, [f"{tick:,}" for tick in shown])
    return True


def _draw_points(axes: Axes, chart: PointChart, points: Points, name: str) -> None:
    x = chart.number[points.rows].astype(np.float64)
    y = chart.axis.places(chart.values[points.rows])
    color = LIGHT[points.color]
    if points.joined:
        few: Style = {"marker": "o", "markersize": 4} if len(x) <= 2 * FEW else {}
        x, y = (np.insert(part, points.breaks, np.nan) for part in (x, y))
        axes.plot(x, y, color=color, label=name, linewidth=1.2, linestyle="-", **few)
    elif points.color in ARMS:
        dots: Style = {"linestyle": "", "marker": "o", "markersize": 3, "alpha": 0.35}
        axes.plot(x, y, color=color, label=name, **dots)
    else:
        shape = "^" if points.color == "epoch_start" else "x"
        axes.plot(x, y, label=name, **_marker(shape, points.color, len(x)))


def _draw_outliers(axes: Axes, chart: PointChart) -> None:
    """Rings around them, with the number of each arm that has any in the legend."""
    arms = [
        f"{one.count:,} {one.color}" if one.color in ARMS else f"{one.count:,}"
        for one in chart.marks
    ]
    for place, one in enumerate(chart.marks):
        y = chart.axis.places(chart.values[one.rows])
        name = "" if place else f"{', '.join(arms)} {OUTLIERS}"
        axes.plot(chart.number[one.rows], y, label=name, **_marker("o", "outlier", len(one.rows)))


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
    begins = chart.epochs
    if len(begins):
        axes.vlines(
            chart.number[begins] - 0.5,
            0,
            1,
            transform=axes.get_xaxis_transform(),
            label=label,
            color=FAINT,
            alpha=0.5,
            linewidth=1.2,
            linestyle=(0, (4, 4)),
        )


# The page


def _page(
    title: str, details: Sequence[str], footer: Sequence[str], tall: float, heading: float = 0.0
) -> tuple[Figure, float]:
    """A figure with its text, and from the top where `tall` inches are free under `heading`."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and needed only to draw

    head = wrapped(drawable(title), TITLE, TEXT_WIDTH, 2, bold=True)
    below, foot = _small(details), _small(footer)
    under = MARGIN + _high(head, TITLE)
    top = under + _high(below, SMALL) + heading
    size = (WIDTH, top + tall + _high(foot, SMALL) + MARGIN)
    figure = Figure(figsize=size, dpi=DPI, facecolor=PAPER)
    _write(figure, head, (MARGIN, MARGIN), TITLE, bold=True)
    _write(figure, below, (MARGIN, under), SMALL, FAINT)
    _write(figure, foot, (MARGIN, top + tall), SMALL, FAINT)
    return figure, top


def _small(texts: Sequence[str], room: float = TEXT_WIDTH, lines: int = 3) -> list[str]:
    """Each of `texts` in small print, in at most `lines` lines as wide as `room`."""
    return [line for text in texts for line in wrapped(drawable(text), SMALL, room, lines)]


def _high(lines: Sequence[str], points: float) -> float:
    """How high `lines` are in a type of `points`."""
    return len(lines) * points * LINE / POINTS_PER_INCH


def _write(
    figure: Figure,
    lines: Sequence[str],
    place: tuple[float, float],
    points: float,
    color: str = INK,
    *,
    bold: bool = False,
) -> None:
    """Write `lines` below each other from `place` on: from the left, and from the top."""
    wide, tall = figure.get_size_inches()
    left, top = place
    for row, line in enumerate(lines):
        figure.text(
            left / wide,
            1 - (top + _high(lines[:row], points)) / tall,
            line,
            va="top",
            fontsize=points,
            fontweight="bold" if bold else "normal",
            color=color,
        )


def _panel(
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
    axes.set_title(
        title,
        loc="left",
        fontsize=PANEL,
        fontweight="bold",
        color=INK,
        pad=TITLE_PAD,
        x=-labels / inner,
    )
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color(FAINT)
        spine.set_linewidth(1)
    axes.tick_params(labelsize=LABEL, labelcolor=INK, color=FAINT, length=4)
    axes.minorticks_off()
    return axes


def _legend(axes: Axes, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """A legend in one line, right of the title."""
    axes.legend(
        handles,
        labels,
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


def _take_text_literally(figure: Figure) -> None:
    """No text of a run is read as TeX, and all is set in the font it was measured in."""
    from matplotlib.text import Text  # noqa: PLC0415 - heavy

    for text in cast("list[Text]", figure.findobj(Text)):
        text.set_parse_math(False)
        text.set_usetex(False)
        text.set_fontfamily(FAMILY)
