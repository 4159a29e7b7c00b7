"""The figure of a comparison: real against ideal, for a person who looks rather than reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loadeval.analysis.caution import same_unit
from loadeval.analysis.headroom import compare
from loadeval.analysis.summary import summarise
from loadeval.errors import UsageError
from loadeval.record.metrics import read_run
from loadeval.report.bars import draw_batch_time, draw_throughput, throughput_title
from loadeval.report.fitting import POINTS_PER_INCH, drawable, wrapped
from loadeval.report.style import FAINT, INK, PAPER, SMALL, TITLE, panel, take_text_literally
from loadeval.report.waits import draw_waits
from loadeval.report.wording import (
    LONGEST_NAME,
    THRESHOLDS,
    counted,
    described_loader,
    headline,
    shortened,
)

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure

    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.summary import Summary
    from loadeval.record.model import Run

FORMATS = (".png", ".svg", ".pdf")
DPI = 100
WIDTH = 14.0
MARGIN = 0.4
TEXT_WIDTH = WIDTH - 2 * MARGIN
PANELS = 8.4
"""Inches, the last what the three panels take of the height."""
LINE = 1.45
"""Of a line, in sizes of its type."""


def plot_comparison(
    real_log: str | os.PathLike[str],
    ideal_log: str | os.PathLike[str],
    output: str | os.PathLike[str] = "comparison.png",
) -> Path:
    """Draw what free loading would gain; returns the path of the figure written.

    Args:
        real_log: the run that loaded: a run log, what `save_metrics()` wrote, or the JSON of
            DALI's LoaderEvaluator.
        ideal_log: the run that replayed, in one of the same forms.
        output: where the figure goes, replacing what is there: a PNG, an SVG or a PDF by its
            extension.

    Raises:
        RunLogError: a run cannot be read.
        UsageError: the runs cannot be compared, or `output` has another extension or cannot
            be written.
    """
    path = figure_path(output)
    save_figure(comparison_figure(read_run(real_log), read_run(ideal_log)), path)
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


def comparison_figure(real: Run, ideal: Run) -> Figure:
    """Throughput, where a batch's time goes, and the waits, under the finding as a title.

    Raises UsageError when the runs cannot be compared.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and needed only to draw

    headroom = compare(real, ideal)
    one, other = summarise(real), summarise(ideal)
    title = wrapped(drawable(headline(headroom)), TITLE, TEXT_WIDTH, 2, bold=True)
    details = _small(
        _reasoned(headroom),
        _described("real", real, one),
        _described("ideal", ideal, other),
    )
    footer = _small(headroom.caution, f"Verdicts: {THRESHOLDS}.", *_notes(real, ideal))
    top = MARGIN + _high(title, TITLE) + _high(details, SMALL)
    bottom = MARGIN + _high(footer, SMALL)
    figure = Figure(figsize=(WIDTH, top + PANELS + bottom), dpi=DPI, facecolor=PAPER)
    _write(figure, title, MARGIN, TITLE, INK, bold=True)
    _write(figure, details, MARGIN + _high(title, TITLE), SMALL, FAINT)
    _write(figure, footer, top + PANELS, SMALL, FAINT)
    unit, rates = _throughput(real, ideal, one, other)
    throughput = throughput_title(unit, 4.6)
    draw_throughput(panel(figure, (MARGIN, bottom + 4.7, 3.9, 2.9), throughput), rates)
    time = panel(figure, (5.1, bottom + 4.7, 8.5, 2.9), "Where a batch's time goes", labels=2.45)
    draw_batch_time(time, one, other, headroom)
    draw_waits(panel(figure, (MARGIN, bottom + 0.8, 13.2, 2.6), "Waits", labels=1.0), real, ideal)
    take_text_literally(figure)
    return figure


def _reasoned(headroom: Headroom) -> str:
    reason = headroom.reason
    if reason in headline(headroom):
        return headroom.advice
    # The reason why nothing was measured begins with a path or a name, which stays as it is.
    start = reason[:1] if headroom.speedup is None else reason[:1].upper()
    return f"{start}{reason[1:]}. {headroom.advice}"


def _throughput(
    real: Run, ideal: Run, one: Summary, other: Summary
) -> tuple[str, tuple[float | None, float | None]]:
    # A side that was not measured does not decide what the other is counted in.
    measured = [side for side in (one, other) if side.batches_per_s is not None]
    if same_unit(real, ideal) and all(side.samples_per_s is not None for side in measured):
        return real.header.unit, (one.samples_per_s, other.samples_per_s)
    return "batches", (one.batches_per_s, other.batches_per_s)


def _described(side: str, run: Run, summary: Summary) -> str:
    name = shortened(run.header.name, LONGEST_NAME)
    label = side if name == side else f"{side} ({name})"
    batches = counted(summary.batches, "batch", "batches")
    epochs = counted(summary.epochs, "epoch", "epochs")
    return (
        f"{label}: {described_loader(run)}; {batches} in {epochs}, "
        f"{summary.steady_batches:,} of them steady"
    )


def _notes(real: Run, ideal: Run) -> list[str]:
    messages = [*real.notes, *ideal.notes]
    messages += [event.message for run in (real, ideal) for event in run.events]
    messages = list(dict.fromkeys(messages))
    if not messages:
        return []
    also = f" (and {len(messages) - 1} more: see `loadeval show`)" if len(messages) > 1 else ""
    return [f"Note: {messages[0]}{also}"]


def _small(*texts: str) -> list[str]:
    return [line for text in texts for line in wrapped(drawable(text), SMALL, TEXT_WIDTH, 3)]


def _high(lines: list[str], points: float) -> float:
    return len(lines) * points * LINE / POINTS_PER_INCH


def _write(
    figure: Figure, lines: list[str], top: float, points: float, color: str, *, bold: bool = False
) -> None:
    wide, high = figure.get_size_inches()
    for row, line in enumerate(lines):
        figure.text(
            MARGIN / wide,
            1 - (top + _high(lines[:row], points)) / high,
            line,
            va="top",
            fontsize=points,
            fontweight="bold" if bold else "normal",
            color=color,
        )
