"""The figure of a comparison: real against ideal, for a person who looks rather than reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loadeval.errors import UsageError
from loadeval.report.bars import draw_batch_time, draw_throughput, throughput_title
from loadeval.report.comparison import Comparison, compared
from loadeval.report.facts import lost_in_words, measured
from loadeval.report.fitting import drawable, wrapped
from loadeval.report.formatting import LONGEST_NAME, counted, shortened
from loadeval.report.iterations import draw_iterations
from loadeval.report.page import MARGIN, TEXT_WIDTH, WIDTH, high, small, write
from loadeval.report.readings import gpus_in_words
from loadeval.report.style import FAINT, INK, PAPER, SMALL, TITLE, panel, take_text_literally
from loadeval.report.waits import draw_waits
from loadeval.report.wording import (
    THRESHOLDS,
    cautions,
    described_loader,
    headline,
    not_measured,
    reason,
    verdict_advice,
)
from loadeval.runlog.model import ARMS
from loadeval.runlog.reader import read_run

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure

    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.summary import Summary
    from loadeval.runlog.model import Run

FORMATS = (".png", ".svg", ".pdf")
DPI = 100
PANELS = 8.4
"""Inches: what the three panels take of the height."""


def plot_comparison(
    real_log: str | os.PathLike[str],
    ideal_log: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] = "comparison.png",
) -> Path:
    """Draw what free loading would gain; returns the path of the figure written.

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


def comparison_figure(comparison: Comparison) -> Figure:
    """Throughput, where a batch's time goes, and iterations or waits, the finding as a title."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and needed only to draw

    headroom = comparison.headroom
    title = wrapped(drawable(headline(headroom)), TITLE, TEXT_WIDTH, 2, bold=True)
    details = small(*_reasoned(headroom), *_described(comparison))
    footer = small(
        " ".join(cautions(headroom)),
        " ".join(not_measured(headroom)),
        *(sentence for run in comparison.runs for sentence in gpus_in_words(run)),
        f"Verdicts: {THRESHOLDS}.",
        *_notes(comparison.runs),
    )
    top = MARGIN + high(title, TITLE) + high(details, SMALL)
    bottom = MARGIN + high(footer, SMALL)
    figure = Figure(figsize=(WIDTH, top + PANELS + bottom), dpi=DPI, facecolor=PAPER)
    write(figure, title, (MARGIN, MARGIN), TITLE, INK, bold=True)
    write(figure, details, (MARGIN, MARGIN + high(title, TITLE)), SMALL, FAINT)
    write(figure, footer, (MARGIN, top + PANELS), SMALL, FAINT)
    _draw_panels(figure, bottom, comparison)
    take_text_literally(figure)
    return figure


def _draw_panels(figure: Figure, bottom: float, comparison: Comparison) -> None:
    headroom, ((_, one), (_, other)) = comparison.headroom, comparison.sides
    title = throughput_title(comparison.unit, 4.6)
    axes = panel(figure, (MARGIN, bottom + 4.7, 3.9, 2.9), title)
    draw_throughput(axes, comparison.rates(), headroom.speedup)
    time = panel(figure, (5.1, bottom + 4.7, 8.5, 2.9), "Where a batch's time goes", labels=2.45)
    draw_batch_time(time, one, other, headroom)
    title = "Waits" if comparison.ideal else "Iterations, and their mean in each block"
    axes = panel(figure, (MARGIN, bottom + 0.8, 13.2, 2.6), title, labels=1.0)
    if comparison.ideal is None:
        draw_iterations(axes, compared(comparison.real))
    else:
        draw_waits(axes, comparison.real, comparison.ideal)


def _reasoned(headroom: Headroom) -> list[str]:
    why = reason(headroom)
    if why in headline(headroom):
        return [verdict_advice(headroom)]
    # The reason why nothing was measured begins with a path or a name, which stays as it is.
    start = why[:1] if headroom.speedup is None else why[:1].upper()
    return [f"{start}{why[1:]}.", verdict_advice(headroom)]


def _described(comparison: Comparison) -> list[str]:
    headroom = comparison.headroom
    if comparison.ideal is not None:
        return [_side(name, *side) for name, side in zip(ARMS, comparison.sides, strict=True)]
    run = comparison.real
    steps = run.steps
    epochs = counted(len(set(steps.epoch.tolist())), "epoch", "epochs")
    name = shortened(run.header.name, LONGEST_NAME)
    batches = counted(len(steps), "batch", "batches")
    served = (
        f"{name}: {described_loader(run)}; {batches} in {epochs}, of which count "
        f"{measured(headroom)}. Whiskers and brackets are 95% intervals."
    )
    return [lost_in_words(headroom), served]


def _side(side: str, run: Run, summary: Summary) -> str:
    name = shortened(run.header.name, LONGEST_NAME)
    label = side if name == side else f"{side} ({name})"
    batches = counted(summary.batches, "batch", "batches")
    epochs = counted(summary.epochs, "epoch", "epochs")
    return (
        f"{label}: {described_loader(run)}; {batches} in {epochs}, "
        f"{summary.steady_batches:,} of them steady"
    )


def _notes(runs: list[Run]) -> list[str]:
    messages = [note for run in runs for note in run.notes]
    messages += [event.message for run in runs for event in run.events]
    messages = list(dict.fromkeys(messages))
    if not messages:
        return []
    also = f" (and {len(messages) - 1} more: see `loadeval show`)" if len(messages) > 1 else ""
    return [f"Note: {messages[0]}{also}"]
