"""Runs, comparisons and backends in full for the terminal; plain text where there is none.

Every text that comes out of a run's file is a `Text` without markup, its control characters
escaped.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from loadeval.analysis.backends import ranked
from loadeval.report import facts
from loadeval.report.facts import FactKind, On, sentences
from loadeval.report.formatting import (
    duration,
    estimated,
    number,
    printable,
    share,
    short_name,
    speedup,
)
from loadeval.report.tables import GAP, NO_LIMIT, Paragraph, Table
from loadeval.report.terminal.findings import diagnosis_report
from loadeval.report.terminal.metrics import metrics_report, metrics_rows
from loadeval.report.terminal.plan import plan_report
from loadeval.report.terminal.stages import StagesReport
from loadeval.report.wording import backends, ranks, runs, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from loadeval.analysis.backends import BackendReport
    from loadeval.analysis.job.ranks import JobReport
    from loadeval.analysis.report import Comparison, Report, RunReport
    from loadeval.report.tables import Rows

LONGEST_FIGURE = 24
"""Characters of a value that ask for room; what is longer goes on in further lines."""
LONGEST_IN_TABLE = 24
BACKEND_HEAD = ("", "if loading were free", "time lost", "epoch start", "verdict")


def runs_report(reports: Sequence[RunReport], *, metrics: bool = True) -> RenderableType:
    """One column for each arm of each run, as many side by side as there is room for; then notes.

    System metrics are among the rows unless `metrics` says no.
    """
    sides = [(report, side) for report in reports for side in report.sides]
    readings: Sequence[Rows] = [[] for _ in sides]
    if metrics:
        readings = metrics_rows([(report.metrics, side.arm) for report, side in sides])
    columns = [
        [*facts.figures(side), *rows, *facts.loader_facts(side.run)]
        for (_, side), rows in zip(sides, readings, strict=True)
    ]
    head, *rows = [
        [cells[0][0], *(value for _, value in cells)] for cells in zip(*columns, strict=True)
    ] or [[]]
    parts: list[RenderableType] = [
        Table("", head, rows, wraps=range(1, len(head)), least=LONGEST_FIGURE)
    ]
    notes = [note for report in reports for note in runs.run_notes(report)]
    if notes:
        parts.append(Text("\nNotes", style="bold"))
    return Group(*parts, *(Padding(Paragraph(note), (0, 0, 0, GAP)) for note in notes))


def full_report(report: Report) -> list[RenderableType]:
    """All that is known of a comparison, of a job, or of one run by itself."""
    comparison = report.comparison
    parts = [] if comparison is None else [comparison_report(comparison)]
    if report.job is not None:
        parts.append(job_text(report, report.job))
    if not parts:
        parts.append(Paragraph(printable(runs.report_headline(report)), "bold"))
    parts += [plan_report(plan) for _, plan in report.plans if plan.actions]
    parts += [diagnosis_report(diagnosis) for _, diagnosis in report.diagnoses]
    parts += [
        StagesReport(run) for run in report.runs if run.stages or run.operators or run.no_stages
    ]
    if comparison is not None:
        parts.append(metrics_report(comparison.metrics))
    return [*parts, runs_report(report.runs, metrics=comparison is None)]


def job_text(report: Report, job: JobReport) -> RenderableType:
    """The ranks of a job: its loss where it did not alternate, its stragglers, and a table."""
    shown = facts.job_facts(job)
    parts: list[RenderableType] = []
    if report.comparison is None:
        parts += [Paragraph(printable(runs.report_headline(report)), "bold"), Text()]
    parts += [*map(Paragraph, sentences(shown, FactKind.TEXT, On.FULL)), Text()]
    worst = ranks.worst_first(job)
    parts.append(
        Table("", ranks.HEAD, ranks.rank_rows(worst[: ranks.MOST_RANKS], LONGEST_IN_TABLE))
    )
    if len(worst) > ranks.MOST_RANKS:
        parts.append(Text(f"and {len(worst) - ranks.MOST_RANKS:,} more"))
    below = (
        ranks.WHAT_RANKS_ARE,
        *sentences(shown, FactKind.CAUTION, On.FULL),
        ranks.clocks_in_words(job),
        ranks.OF_ONE_RANK.format(rank=job.shown),
    )
    return Group(*parts, *map(Paragraph, filter(None, below)))


def comparison_report(comparison: Comparison) -> RenderableType:
    """The headline, and under it figures, reason, advice and cautions."""
    title = Paragraph(printable(verdict.headline(comparison.headroom)), "bold")
    return Group(title, Text(), Table(rows=comparison_rows(comparison), wraps=(1,)))


def comparison_rows(comparison: Comparison) -> Rows:
    """All that is known of a comparison, as labels and values."""
    shown = (fact for fact in facts.comparison_facts(comparison) if On.FULL in fact.shown)
    return [
        (label, " ".join(fact.text for fact in group))
        for label, group in groupby(shown, lambda fact: fact.label)
    ]


def backends_text(report: BackendReport) -> str:
    """All that is known of several backends; lines are as long as they need to be."""
    shown = facts.backend_facts(report)
    measured, *basis = sentences(shown, FactKind.BASIS, On.FULL)
    parts = [
        [backends.backends_headline(report), measured, " ".join(basis)],
        _rates(report).lines(NO_LIMIT),
    ]
    if not all(backend.error for backend in report.backends):
        parts.append(gains_table(report, LONGEST_IN_TABLE).lines(NO_LIMIT))
    parts += [[title, *lines] for title, lines in lists_of(shown)]
    if cautions := sentences(shown, FactKind.CAUTION, On.FULL):
        parts.append(["Cautions", *cautions])
    return "\n\n".join("\n".join(part) for part in parts)


def lists_of(shown: Sequence[facts.ShownFact]) -> list[tuple[str, list[str]]]:
    """Titles, and the sentences under each."""
    listed = (fact for fact in shown if fact.kind is FactKind.LISTED)
    return [
        (title, [fact.text for fact in group])
        for title, group in groupby(listed, lambda fact: fact.label)
    ]


def gains_table(report: BackendReport, longest: int) -> Table:
    """What each backend that did not fail would gain, the fastest first."""
    rows = [
        [
            short_name(backend.name, longest),
            estimated(backend.speedup, speedup),
            share(None if backend.lost_share is None else backend.lost_share.value),
            duration(backend.epoch_start_ns),
            backends.backend_verdict(backend),
        ]
        for backend in ranked(report.backends)
        if not backend.error
    ]
    return Table("What each would gain, with 95% CI", BACKEND_HEAD, rows)


def _rates(report: BackendReport) -> Table:
    unit = short_name(report.unit, LONGEST_IN_TABLE)
    rows = []
    for backend in ranked(report.backends):
        rates = (backend.real, backend.ideal, backend.loader_only)
        cells = [estimated(rate, number) for rate in rates]
        name = short_name(backend.name, LONGEST_IN_TABLE)
        rows.append([name, *(["failed", "", ""] if backend.error else cells)])
    return Table("", (f"{unit}/s", "real", "ideal", "loader alone"), rows)
