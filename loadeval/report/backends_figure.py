"""The figure of several backends: real against ideal throughput, the fastest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis.backends import ranked
from loadeval.report.backend_bars import Bar, draw_bars, fit
from loadeval.report.backends_text import headline, measured_in_words
from loadeval.report.bars import throughput_title
from loadeval.report.fitting import POINTS_PER_INCH, clipped, drawable, width_of, wrapped
from loadeval.report.formatting import NOT_MEASURED, share
from loadeval.report.page import MARGIN, TEXT_WIDTH, WIDTH, high, small, write
from loadeval.report.readings import gpus_of_backends
from loadeval.report.style import (
    EPOCH_START,
    FAINT,
    IDEAL,
    INK,
    LABEL,
    LOADER_ONLY,
    PANEL,
    PAPER,
    REAL,
    SMALL,
    TITLE,
    legend,
    panel,
    take_text_literally,
    without_scale,
)
from loadeval.report.wording import (
    THRESHOLDS,
    backend_cautions,
    backend_not_measured,
    backend_verdict,
    described_loader,
    difference_sentence,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from loadeval.analysis.backends import BackendResult
    from loadeval.report.backends import BackendComparison

DPI = 100
INTERVALS = "Whiskers and brackets are 95% intervals."
NAMES = 2.8
BARS_LEFT, BARS_WIDTH = MARGIN + NAMES + 0.2, 7.0
LOST_LEFT = BARS_LEFT + BARS_WIDTH + 0.3
LOST_WIDTH = WIDTH - MARGIN - LOST_LEFT
LEGEND_WIDTH = 5.6
HEADING = 0.75
"""Inches, as all places and sizes here; the last one is above the first backend."""
MEASURED_ROW, FAILED_ROW = 1.35, 1.1
"""How high a backend is, with the gap below it."""
THICK, THIN, BETWEEN = 0.36, 0.2, 0.05
"""Bars, and the gap between two of one backend, and above the first."""
TITLE_PAD = 12
"""Points, between axes and their title."""


@dataclass(frozen=True, slots=True)
class Row:
    """One backend, and where it begins below the heading."""

    result: BackendResult
    top: float

    @property
    def high(self) -> float:
        """With the gap below it."""
        return FAILED_ROW if self.result.error else MEASURED_ROW


def backends_figure(found: BackendComparison) -> Figure:
    """A group of bars for each backend, its loss beside it, and the finding as a title."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and needed only to draw

    title = wrapped(drawable(headline(found)), TITLE, TEXT_WIDTH, 2, bold=True)
    details = small(measured_in_words(found), INTERVALS)
    footer = small(*_footer(found))
    rows = list(_rows(ranked(found.backends)))
    tall = rows[-1].top + rows[-1].high
    top = MARGIN + high(title, TITLE) + high(details, SMALL) + HEADING
    size = (WIDTH, top + tall + high(footer, SMALL) + MARGIN)
    figure = Figure(figsize=size, dpi=DPI, facecolor=PAPER)
    write(figure, title, (MARGIN, MARGIN), TITLE, INK, bold=True)
    write(figure, details, (MARGIN, MARGIN + high(title, TITLE)), SMALL, FAINT)
    write(figure, footer, (MARGIN, top + tall), SMALL, FAINT)
    _draw_throughputs(figure, found.unit, rows, top, tall)
    for row in rows:
        _write_name(figure, row, top + row.top)
        _write_lost(figure, row, top + row.top)
    take_text_literally(figure)
    return figure


def _rows(results: Sequence[BackendResult]) -> Iterator[Row]:
    top = BETWEEN
    for result in results:
        row = Row(result, top)
        yield row
        top += row.high


def _footer(found: BackendComparison) -> list[str]:
    fastest = found.differences[0].one if found.differences else None
    said = [difference_sentence(one) for one in found.differences if one.one == fastest]
    return [
        *([f"Real throughput: {'; '.join(said)}."] if said else []),
        *backend_cautions(found),
        *backend_not_measured(found),
        *gpus_of_backends(found.backends),
        f"Verdicts: {THRESHOLDS}.",
    ]


def _draw_throughputs(
    figure: Figure, unit: str, rows: Sequence[Row], top: float, tall: float
) -> None:
    bottom = float(figure.get_size_inches()[1]) - top - tall
    box = (MARGIN, bottom, BARS_LEFT + BARS_WIDTH - MARGIN, tall)
    title = throughput_title(unit, BARS_LEFT + BARS_WIDTH - MARGIN - LEGEND_WIDTH)
    axes = panel(figure, box, title, labels=BARS_LEFT - MARGIN)
    without_scale(axes)
    axes.set_ylim(tall, 0)
    bars = [bar for row in rows for bar in _bars(row)]
    axes.set_xlim(0, fit(bars, BARS_WIDTH))
    draw_bars(axes, bars)
    _explain(axes)


def _bars(row: Row) -> Iterator[Bar]:
    one = row.result
    if one.error:
        return
    named = (("real", one.real, REAL), ("ideal", one.ideal, IDEAL))
    for place, (name, rate, color) in enumerate(named):
        top = row.top + place * (THICK + BETWEEN)
        yield Bar(rate, top, THICK, color, LABEL, f"{name} {NOT_MEASURED}")
    top = row.top + 2 * (THICK + BETWEEN)
    yield Bar(one.loader_only, top, THIN, LOADER_ONLY, SMALL, f"loader alone {NOT_MEASURED}")


def _explain(axes: Axes) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415 - heavy

    colors = {"real": REAL, "ideal: loading free": IDEAL, "loader alone": LOADER_ONLY}
    legend(axes, [Patch(color=color) for color in colors.values()], list(colors))
    axes.annotate(
        "Lost to loading",
        (1, 1),
        xycoords="axes fraction",
        xytext=((LOST_LEFT - BARS_LEFT - BARS_WIDTH) * POINTS_PER_INCH, TITLE_PAD),
        textcoords="offset points",
        fontsize=PANEL,
        fontweight="bold",
        color=INK,
    )


def _write_name(figure: Figure, row: Row, top: float) -> None:
    one = row.result
    name = [clipped(drawable(one.name), LABEL, NAMES, bold=True)]
    write(figure, name, (MARGIN, top), LABEL, INK, bold=True)
    below = top + high(name, LABEL)
    if one.run is not None:
        told = _facts(described_loader(one.run), 2 if one.error else 3)
        write(figure, told, (MARGIN, below), SMALL, FAINT)


def _facts(told: str, lines: int) -> list[str]:
    """What is told between commas, in lines that end only there; what has no room is left out."""
    rows: list[str] = []
    for fact in drawable(told).split(", "):
        longer = f"{rows[-1]}, {fact}" if rows else fact
        if rows and width_of(longer, SMALL) <= NAMES:
            rows[-1] = longer
        else:
            rows.append(fact)
    return [clipped(row, SMALL, NAMES) for row in rows[:lines]]


def _write_lost(figure: Figure, row: Row, top: float) -> None:
    one = row.result
    if one.error:
        room = WIDTH - MARGIN - BARS_LEFT
        told = small(f"failed: {one.error}", room=room)
        write(figure, told, (BARS_LEFT, top), SMALL, EPOCH_START)
        return
    lost = one.lost_share
    if lost is None:
        told = small(backend_verdict(one), room=LOST_WIDTH)
        write(figure, told, (LOST_LEFT, top), SMALL, FAINT)
        return
    value = [share(lost.value)]
    write(figure, value, (LOST_LEFT, top), LABEL, INK, bold=True)
    interval = "" if lost.low is None else f"[{share(lost.low)}, {share(lost.high)}]"
    told = small(interval, backend_verdict(one), room=LOST_WIDTH, lines=2)
    write(figure, told, (LOST_LEFT, top + high(value, LABEL)), SMALL, FAINT)
