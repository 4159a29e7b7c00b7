"""The figures comparison.png, backends.png and that of a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.analysis.backends import ranked
from loadeval.analysis.report import Comparison
from loadeval.errors import UsageError
from loadeval.report.bar_charts import (
    backends_chart,
    comparison_chart,
    lost_time_chart,
    ranks_chart,
)
from loadeval.report.drawing import (
    DPI,
    LABEL,
    MARGIN,
    PANEL,
    PAPER,
    WIDTH,
    clipped,
    color_legend,
    draw_bars,
    draw_iterations,
    draw_rows,
    draw_waits,
    drawable,
    high,
    page,
    panel,
    places_of,
    small,
    take_text_literally,
    texture_legend,
    width_of,
    write,
)
from loadeval.report.extra import check_installed
from loadeval.report.findings import findings_in_short
from loadeval.report.formatting import (
    LONGEST_NAME,
    bracketed,
    counted,
    share,
    shortened,
)
from loadeval.report.palette import LIGHT
from loadeval.report.point_charts import iterations_chart, waits_of_two
from loadeval.report.stage_charts import TEXTURES, loaders_chart, stages_chart
from loadeval.report.wording.backends import (
    backend_cautions,
    backend_not_measured,
    backend_verdict,
    backends_headline,
    difference_sentence,
    measured_in_words,
)
from loadeval.report.wording.metrics import gpus_in_words, gpus_of_backends
from loadeval.report.wording.page import DOTS_AND_LINES, INTERVALS, STEADY_RATES
from loadeval.report.wording.ranks import (
    described_job,
    job_cautions,
    job_headline,
    own_waits_of,
    stragglers_in_words,
)
from loadeval.report.wording.runs import described_loader
from loadeval.report.wording.stages import SPLIT_CAPTION, TITLE, WHAT_BARS_ARE
from loadeval.report.wording.verdict import (
    THRESHOLDS,
    cautions,
    headline,
    lost_in_words,
    measured,
    not_measured,
    reason,
    verdict_advice,
)
from loadeval.runlog.reader import read_run

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from loadeval.analysis.backends import BackendReport, BackendResult
    from loadeval.analysis.ranks import JobReport
    from loadeval.analysis.report import Report, Side
    from loadeval.analysis.stages import StageReport
    from loadeval.report.bar_charts import BarChart
    from loadeval.runlog.model import Run

    Style = dict[str, Any]

FORMATS = (".png", ".svg", ".pdf")
PANELS = 8.4
"""What the three panels of a comparison take of the height."""
ROW, INSIDE = 0.42, 0.95
"""A row of the stages, and what is around them all."""
NAMES_WIDTH, BARS_LEFT, BARS_WIDTH, LOST_LEFT = 2.8, 3.4, 7.0, 10.7
LEGEND_WIDTH = 5.6
HEADING, BACKEND, LOADER = 0.75, 1.45, 0.8
"""The title above the first backend; a backend, and its loader, with the gap below it."""


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
    found = comparison.headroom
    details = [*_reasoned(comparison), *_described(comparison)]
    footer = [
        *([] if comparison.stages is None else [WHAT_BARS_ARE]),
        *cautions(found),
        " ".join(not_measured(found)),
        *gpus_in_words(comparison.metrics),
        f"Verdicts: {THRESHOLDS}.",
        *_notes(comparison.runs),
    ]
    stages = None if comparison.stages is None else stages_chart(comparison.stages)
    inside = 0.0 if stages is None else high_of(stages) + INSIDE
    figure, bottom = page(headline(found), details, footer, PANELS + inside)
    foot, bottom = bottom, bottom + inside
    chart = comparison_chart(comparison)
    box = (MARGIN, bottom + 4.3, 5.1, 3.3)
    axes = panel(figure, box, _throughput_title(chart.unit, 5.1), labels=1.5)
    draw_rows(axes, chart)
    chart = lost_time_chart(comparison)
    box = (6.0, bottom + 4.3, 7.6, 3.3)
    axes = panel(figure, box, "Time per batch", labels=2.45)
    draw_rows(axes, chart)
    stacked = {bar.color: None for row in chart.rows for bar in row.bars if len(row.bars) > 1}
    if stacked:
        color_legend(axes, tuple(stacked))
    title = "Iterations" if comparison.ideal is None else "Waits"
    axes = panel(figure, (MARGIN, bottom + 0.8, 13.2, 2.6), title, labels=1.0)
    if comparison.ideal is None:
        draw_iterations(axes, iterations_chart(comparison.counted))
    else:
        draw_waits(axes, *waits_of_two(comparison.real, comparison.ideal))
    if stages is not None:
        _draw_inside(figure, stages, foot)
    take_text_literally(figure)
    return figure


def _draw_inside(figure: Figure, chart: BarChart, bottom: float) -> None:
    """Where a batch's loading time goes, at the foot of the page."""
    box = (MARGIN, bottom + 0.15, WIDTH - 2 * MARGIN, high_of(chart))
    axes = panel(figure, box, TITLE, labels=2.9)
    draw_rows(axes, chart)
    textures = {bar.texture: TEXTURES[bar.texture] for row in chart.rows for bar in row.bars}
    if len(textures) > 1:
        texture_legend(axes, textures, "fetch")


def high_of(chart: BarChart) -> float:
    """Inches that its rows take."""
    return ROW * (places_of(chart)[-1] + 1.2)


def _reasoned(comparison: Comparison) -> list[str]:
    headroom = comparison.headroom
    why, advice = reason(headroom), verdict_advice(headroom)
    if headroom.speedup is None and headroom.pairs is None:
        return [f"{why}.", advice]  # it begins with a path or a name, which stays as it is
    if headroom.speedup is None or headroom.verdict.objection is not None:
        return [advice]  # the title says why
    rows = findings_in_short(comparison.diagnosis)
    changes = [
        f"{rule}: {change}{gain and f' (predicted: {gain})'}" for rule, _, change, gain in rows
    ]
    if changes:
        advice = f"What to change: {'; '.join(changes)}."
    return [f"{why[:1].upper()}{why[1:]}.", advice]


def _described(comparison: Comparison) -> list[str]:
    found, run = comparison.headroom, comparison.real
    if comparison.ideal is not None:
        return [*map(_side, comparison.sides), f"{STEADY_RATES} {INTERVALS}"]
    name = shortened(run.header.name, LONGEST_NAME)
    served = f"{name}: {_served(run)}; {measured(found)} measured."
    return [lost_in_words(found), f"{served} {STEADY_RATES} {INTERVALS} {DOTS_AND_LINES}"]


def _side(side: Side) -> str:
    name = shortened(side.run.header.name, LONGEST_NAME)
    label = side.name if name == side.name else f"{side.name} ({name})"
    return f"{label}: {_served(side.run)}, {side.summary.steady_batches:,} of them steady"


def _served(run: Run) -> str:
    """By which loader, and how many batches."""
    batches = counted(run.batches, "batch", "batches")
    epochs = counted(len(np.unique(run.steps.epoch)), "epoch", "epochs")
    return f"{described_loader(run)}; {batches} in {epochs}"


def _notes(runs: list[Run]) -> list[str]:
    messages = [note for run in runs for note in run.notes]
    messages += [event.message for run in runs for event in run.events]
    messages = list(dict.fromkeys(messages))
    if not messages:
        return []
    also = f" (and {len(messages) - 1} more: see `loadeval show`)" if len(messages) > 1 else ""
    return [f"Note: {messages[0]}{also}"]


def job_figure(report: Report, job: JobReport) -> Figure:
    """The waits of the ranks that cost a job most, and its loss as a title."""
    chart = ranks_chart(job)
    details = [described_job(job), stragglers_in_words(job)]
    tall = high_of(chart) + HEADING
    figure, bottom = page(job_headline(report, job), details, job_cautions(job), tall)
    box = (MARGIN, bottom + 0.15, WIDTH - 2 * MARGIN, high_of(chart))
    title = own_waits_of(job, len(chart.rows))
    draw_rows(panel(figure, box, title, labels=1.5), chart)
    take_text_literally(figure)
    return figure


def backends_figure(found: BackendReport) -> Figure:
    """A group of bars for each backend, its loss beside it, and the finding as a title."""
    order = ranked(found.backends)
    tall = BACKEND * len(order)
    details = [f"{measured_in_words(found)} {STEADY_RATES}", INTERVALS]
    loaders = [(one.name, one.stages) for one in order if one.stages is not None]
    inside = LOADER * len(loaders) + INSIDE if loaders else 0.0
    tall_all = tall + HEADING + inside
    figure, bottom = page(backends_headline(found), details, _footer(found), tall_all)
    foot, bottom = bottom, bottom + inside
    chart = backends_chart(found)
    width = BARS_LEFT + BARS_WIDTH - MARGIN
    title = _throughput_title(chart.unit, width - LEGEND_WIDTH)
    axes = panel(figure, (MARGIN, bottom, width, tall), title, labels=BARS_LEFT - MARGIN)
    axes.set_ylim(tall, 0)
    tops = {one.name: BACKEND * at for at, one in enumerate(order)}
    rows = tuple(row for row in chart.rows if row.label)
    # Of each backend real, ideal and the loader alone.
    places = [tops[row.group] + 0.17 + 0.39 * (at % 3) for at, row in enumerate(rows)]
    draw_bars(axes, replace(chart, rows=rows), places, 0.34, labels=False)
    color_legend(axes, ("real", "ideal", "loader"))
    write(figure, ["Time lost"], (LOST_LEFT, bottom + tall + 0.36), PANEL, bold=True)
    for one in order:
        _write_backend(figure, one, bottom + tall - tops[one.name])
    if loaders:
        _draw_loaders(figure, loaders, foot)
    take_text_literally(figure)
    return figure


def _draw_loaders(
    figure: Figure, loaders: Sequence[tuple[str, StageReport]], bottom: float
) -> None:
    """A bar for each loader that was looked into, and its stages in words below."""
    chart = loaders_chart(loaders)
    tall = LOADER * len(loaders)
    box = (MARGIN, bottom, WIDTH - 2 * MARGIN, tall)
    axes = panel(figure, box, TITLE, labels=BARS_LEFT - MARGIN)
    axes.set_ylim(tall, 0)
    places = [LOADER * at + 0.2 for at in range(len(loaders))]
    bare = tuple(replace(row, interval="") for row in chart.rows)
    draw_bars(axes, replace(chart, rows=bare), places, 0.34, labels=True)
    for row, middle in zip(chart.rows, places, strict=True):
        top = bottom + tall - middle
        name = clipped(drawable(row.label), LABEL, NAMES_WIDTH, bold=True)
        write(figure, [name], (MARGIN, top + 0.12), LABEL, bold=True)
        write(figure, small([row.interval], WIDTH - MARGIN - BARS_LEFT, 1), (BARS_LEFT, top - 0.22))
    colors = dict.fromkeys(bar.color for row in chart.rows for bar in row.bars)
    color_legend(axes, tuple(colors))


def _footer(found: BackendReport) -> list[str]:
    fastest = found.differences[0].one if found.differences else None
    said = [difference_sentence(one) for one in found.differences if one.one == fastest]
    looked_into = any(one.stages is not None for one in found.backends)
    return [
        *([f"{SPLIT_CAPTION} {WHAT_BARS_ARE}"] if looked_into else []),
        *([f"Real throughput: {'; '.join(said)}."] if said else []),
        *backend_cautions(found),
        *backend_not_measured(found),
        *gpus_of_backends(found.backends),
        f"Verdicts: {THRESHOLDS}.",
    ]


def _write_backend(figure: Figure, one: BackendResult, top: float) -> None:
    """Its name and loader left of its bars, and what is lost, or why it failed, right of them."""
    below = top - high(1, LABEL)
    name = clipped(drawable(one.name), LABEL, NAMES_WIDTH, bold=True)
    write(figure, [name], (MARGIN, top), LABEL, bold=True)
    if one.run is not None:
        write(figure, small([described_loader(one.run)], NAMES_WIDTH), (MARGIN, below))
    if one.error:
        error = small([f"failed: {one.error}"], WIDTH - MARGIN - BARS_LEFT)
        write(figure, error, (BARS_LEFT, top), color=LIGHT["epoch_start"])
        return
    lost, told = one.lost_share, [backend_verdict(one)]
    if lost is not None:
        write(figure, [share(lost.value)], (LOST_LEFT, top), LABEL, bold=True)
        top = below
        told = [bracketed(lost, share), *told]
    write(figure, small(told, WIDTH - MARGIN - LOST_LEFT, 2), (LOST_LEFT, top))


def _throughput_title(unit: str, room: float) -> str:
    """The title of a throughput panel, in at most `room` inches."""
    start, end = "Throughput in ", "/s"
    left = room - width_of(start + end, PANEL, bold=True)
    return start + clipped(drawable(unit), PANEL, left, bold=True) + end
