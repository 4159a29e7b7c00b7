"""The figures comparison.png, backends.png and that of a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.backends import ranked
from loadeval.analysis.report import Comparison
from loadeval.data.log import read_run
from loadeval.errors import UsageError
from loadeval.report.extra import check_installed
from loadeval.report.facts import (
    FactKind,
    On,
    backend_facts,
    comparison_facts,
    job_facts,
    sentences,
)
from loadeval.report.figure import bar_charts, drawing, stage_charts
from loadeval.report.figure.point_charts import iterations_chart, waits_of_two
from loadeval.report.formatting import LONGEST_NAME, counted, interval, share, shortened
from loadeval.report.palette import LIGHT
from loadeval.report.wording import backends as backend_words
from loadeval.report.wording import ranks as rank_words
from loadeval.report.wording import stages as stage_words
from loadeval.report.wording import verdict as verdict_words
from loadeval.report.wording.metrics import gpus_in_words
from loadeval.report.wording.page import DOTS_AND_LINES, INTERVALS, STEADY_RATES
from loadeval.report.wording.runs import described_loader

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from loadeval.analysis.backends import BackendReport, BackendResult
    from loadeval.analysis.inside.stages import StageReport
    from loadeval.analysis.job.ranks import JobReport
    from loadeval.analysis.report import Report, Side
    from loadeval.data.run import Run
    from loadeval.report.facts import ShownFact
    from loadeval.report.figure.bar_charts import BarChart

FORMATS = (".png", ".svg", ".pdf")
BARS, POINTS, HEADING = 4.3, 4.3, 0.85
"""Inches of height: panels of bars and of points, and the title of a panel with the room below."""
THROUGHPUT, ITERATION = 5.3, 7.6
"""Inches of width: the panels beside each other."""
ROW, BACKEND, LOADER = 0.42, 1.45, 0.8
"""Inches of height: a row of bars, a backend, and its loader."""
NAMES, RATES, LOST = 3.0, 7.3, 2.6
"""Inches of width: what stands beside each other of a backend."""
ROOM, TIME_LOST = 0.3, 0.42
"""Inches between columns, and of height what the title of the last one takes."""


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
        figure.savefig(
            path, dpi=drawing.DPI, facecolor=drawing.PAPER, format=path.suffix[1:].lower()
        )
    except OSError as error:
        raise UsageError(
            f"cannot write the figure {path}: {error.strerror or error}; expected a path in a "
            "folder that exists and can be written"
        ) from error


def figure_path(output: str | os.PathLike[str]) -> Path:
    """`output` as a path.

    Raises UsageError for a format that figures are not written in, or without matplotlib.
    """
    check_installed("matplotlib", "a figure")
    path = Path(output)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(
            f"cannot write a figure as {path.name!r}: its extension is {path.suffix!r}, where "
            f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]} was expected; try {path.stem}.png"
        )
    return path


def comparison_figure(comparison: Comparison) -> Figure:
    """Throughput, where an iteration's time goes, and iterations or waits; the finding as title."""
    shown = comparison_facts(comparison)
    stages = None if comparison.stages is None else stage_charts.stages_chart(comparison.stages)
    details = [*sentences(shown, FactKind.TEXT, On.FIGURE), *_described(comparison)]
    footer = [
        *([] if stages is None else [stage_words.WHAT_BARS_ARE]),
        *sentences(shown, FactKind.CAUTION, On.FIGURE),
        *gpus_in_words(comparison.metrics),
        f"Verdicts: {verdict_words.THRESHOLDS}.",
        *_notes(comparison.runs),
    ]
    heights = [BARS, POINTS, *([] if stages is None else [HEADING + rows_height(stages)])]
    title = verdict_words.headline(comparison.headroom)
    figure, (bars, points, *inside) = drawing.page(title, details, footer, heights)
    rates, _, times = drawing.columns(bars, [THROUGHPUT, ROOM, ITERATION])
    chart = bar_charts.comparison_chart(comparison)
    title = _throughput_title(chart.unit, THROUGHPUT)
    drawing.draw_rows(drawing.panel(rates, title), chart)
    chart = bar_charts.lost_time_chart(comparison)
    drawing.draw_rows(drawing.panel(times, "Time per batch"), chart)
    stacks = [row.bars for row in chart.rows if len(row.bars) > 1]
    drawing.color_legend(times, dict.fromkeys(bar.color for bars in stacks for bar in bars))
    if comparison.ideal is None:
        axes = drawing.panel(points, "Iterations")
        drawing.draw_iterations(axes, iterations_chart(comparison.counted))
    else:
        axes = drawing.panel(points, "Waits")
        drawing.draw_waits(axes, *waits_of_two(comparison.real, comparison.ideal))
    if stages is not None:
        drawing.draw_rows(drawing.panel(inside[0], stage_words.TITLE), stages)
        if any(bar.texture != "solid" for row in stages.rows for bar in row.bars):
            drawing.texture_legend(inside[0], stage_charts.TEXTURES, "fetch")
    return drawing.finish(figure)


def rows_height(chart: BarChart) -> float:
    """The inches that its rows take."""
    return ROW * (drawing.places_of(chart)[-1] + 1.2)


def _described(comparison: Comparison) -> list[str]:
    run = comparison.real
    if comparison.ideal is not None:
        return [*map(_side, comparison.sides), f"{STEADY_RATES} {INTERVALS}"]
    name = shortened(run.header.name, LONGEST_NAME)
    served = f"{name}: {_served(run)}; {verdict_words.measured(comparison.headroom)} measured."
    return [f"{served} {STEADY_RATES} {INTERVALS} {DOTS_AND_LINES}"]


def _side(side: Side) -> str:
    name = shortened(side.run.header.name, LONGEST_NAME)
    label = side.name if name == side.name else f"{side.name} ({name})"
    return f"{label}: {_served(side.run)}, {side.summary.steady_batches:,} of them steady"


def _served(run: Run) -> str:
    """The loader that served a run, and how many batches."""
    batches = counted(run.batches, "batch", "batches")
    epochs = counted(len(np.unique(run.steps.epoch)), "epoch", "epochs")
    return f"{described_loader(run)}; {batches} in {epochs}"


def _notes(runs: list[Run]) -> list[str]:
    messages = [note for run in runs for note in run.notes]
    messages += [event.message for run in runs for event in run.events]
    messages = list(dict.fromkeys(messages))
    if not messages:
        return []
    also = (
        f" (and {len(messages) - 1} more: see `loadeval compare --full`)"
        if len(messages) > 1
        else ""
    )
    return [f"Note: {messages[0]}{also}"]


def job_figure(report: Report, job: JobReport) -> Figure:
    """The waits of the ranks that cost a job most, and its loss as a title."""
    chart = bar_charts.ranks_chart(job)
    shown = job_facts(job)
    details = sentences(shown, FactKind.TEXT, On.FIGURE)
    footer = sentences(shown, FactKind.CAUTION, On.FIGURE)
    heights = [HEADING + rows_height(chart)]
    title = rank_words.job_headline(report, job)
    figure, (part,) = drawing.page(title, details, footer, heights)
    title = rank_words.own_waits_of(job, len(chart.rows))
    drawing.draw_rows(drawing.panel(part, title), chart)
    return drawing.finish(figure)


def backends_figure(report: BackendReport) -> Figure:
    """A group of bars for each backend, its loss beside it, and the finding as a title."""
    order = ranked(report.backends)
    shown = backend_facts(report)
    details = [" ".join(sentences(shown, FactKind.BASIS, On.FIGURE)), INTERVALS]
    loaders = [(backend.name, backend.stages) for backend in order if backend.stages is not None]
    heights = [HEADING + BACKEND * len(order)]
    heights += [HEADING + LOADER * len(loaders)] if loaders else []
    title = backend_words.backends_headline(report)
    figure, (part, *inside) = drawing.page(title, details, _footer(report, shown), heights)
    chart = bar_charts.backends_chart(report)
    title = _throughput_title(chart.unit, NAMES + RATES - ROOM)
    columns = drawing.bare_axes(part, title, [NAMES, RATES, ROOM, LOST])
    for axes in columns:
        axes.set_ylim(BACKEND * len(order), -TIME_LOST)
    drawing.write_block(columns[-1], -TIME_LOST, "Time lost", [])
    tops = {backend.name: BACKEND * at for at, backend in enumerate(order)}
    rows = tuple(row for row in chart.rows if row.label)
    # Each backend has three rows: real, ideal and the loader alone.
    places = [tops[row.group] + 0.17 + 0.39 * (at % 3) for at, row in enumerate(rows)]
    drawing.draw_bars(columns[1], replace(chart, rows=rows), places, 0.34, labels=False)
    drawing.color_legend(part, ("real", "ideal", "loader"))
    for backend in order:
        _write_backend(columns, backend, tops[backend.name])
    if loaders:
        _draw_loaders(inside[0], loaders)
    return drawing.finish(figure)


def _write_backend(columns: Sequence[Axes], backend: BackendResult, top: float) -> None:
    """Write its name and loader left of its bars, and right of them what is lost or its error."""
    names, bars, _, lost = columns
    name = drawing.clipped(backend.name, drawing.LABEL, NAMES - ROOM)
    loader = [] if backend.run is None else [described_loader(backend.run)]
    drawing.write_block(names, top, name, drawing.small(loader, NAMES - ROOM))
    if backend.error:
        error = drawing.small([f"failed: {backend.error}"], RATES + LOST)
        drawing.write_block(bars, top, "", error, LIGHT["epoch_start"])
        return
    part, words = backend.lost_share, [backend_words.backend_verdict(backend)]
    if part is not None:
        words = [interval(part, share), *words]
    first = "" if part is None else share(part.value)
    drawing.write_block(lost, top, first, drawing.small(words, LOST, 2))


def _draw_loaders(part: SubFigure, loaders: Sequence[tuple[str, StageReport]]) -> None:
    """A bar for each loader that was looked into, and its stages in words below."""
    chart = stage_charts.loaders_chart(loaders)
    columns = names, bars = drawing.bare_axes(
        part, stage_words.TITLE, [NAMES, drawing.TEXT_WIDTH - NAMES]
    )
    for axes in columns:
        axes.set_ylim(LOADER * len(loaders), 0)
    tops = [LOADER * at for at in range(len(loaders))]
    drawing.draw_bars(bars, chart, [top + 0.2 for top in tops], 0.34)
    for row, top in zip(chart.rows, tops, strict=True):
        name = drawing.clipped(row.label, drawing.LABEL, NAMES - ROOM)
        drawing.write_block(names, top + 0.08, name, [])
        drawing.write_block(bars, top + 0.42, "", drawing.small([row.interval], RATES + LOST, 1))
    drawing.color_legend(part, dict.fromkeys(bar.color for row in chart.rows for bar in row.bars))


def _footer(report: BackendReport, shown: Sequence[ShownFact]) -> list[str]:
    looked_into = any(backend.stages is not None for backend in report.backends)
    return [
        *([f"{stage_words.SPLIT_CAPTION} {stage_words.WHAT_BARS_ARE}"] if looked_into else []),
        *(
            sentence
            for kind in (FactKind.TEXT, FactKind.CAUTION, FactKind.LISTED)
            for sentence in sentences(shown, kind, On.FIGURE)
        ),
        f"Verdicts: {verdict_words.THRESHOLDS}.",
    ]


def _throughput_title(unit: str, room: float) -> str:
    """The title of a throughput panel, in at most `room` inches."""
    start, end = "Throughput in ", "/s"
    left = room - drawing.width_of(start + end, drawing.PANEL)
    return start + drawing.clipped(unit, drawing.PANEL, left) + end
