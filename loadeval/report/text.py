"""Runs, comparisons and backends in full for the terminal; plain text where there is none.

Every text that comes out of a run's file is a `Text` without markup, its control characters
escaped.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loadeval.analysis.backends import ranked
from loadeval.analysis.summary import warmup_of
from loadeval.report.findings import diagnosis_report
from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    duration,
    estimated,
    number,
    per_second,
    printable,
    share,
    short_name,
    size,
    speedup,
    throughput,
    wall_clock,
)
from loadeval.report.lost import lost_parts
from loadeval.report.metrics import metrics_report, metrics_rows
from loadeval.report.stages import StagesReport
from loadeval.report.tables import GAP, NO_LIMIT, CellTable, Paragraph, table_lines
from loadeval.report.wording.backends import (
    BRACKETS,
    backend_cautions,
    backend_not_measured,
    backend_verdict,
    backends_headline,
    difference_sentence,
    failures,
    measured_in_words,
)
from loadeval.report.wording.metrics import gpus_of_backends
from loadeval.report.wording.page import STEADY_RATES
from loadeval.report.wording.ranks import (
    HEAD,
    MOST_RANKS,
    OF_ONE_RANK,
    WHAT_RANKS_ARE,
    clocks_in_words,
    described_job,
    job_cautions,
    job_headline,
    rank_rows,
    stragglers_in_words,
    worst_first,
)
from loadeval.report.wording.runs import class_name, run_notes
from loadeval.report.wording.verdict import (
    STEADY,
    THRESHOLDS,
    cautions,
    epoch_start_in_words,
    headline,
    known,
    lost_of_whole,
    lost_part,
    measured,
    not_measured,
    reason,
    required_in_words,
    speedup_in_words,
    verdict_advice,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from loadeval.analysis.backends import BackendReport
    from loadeval.analysis.ranks import JobReport
    from loadeval.analysis.report import Comparison, Report, RunReport, Side
    from loadeval.analysis.stats import Estimate
    from loadeval.report.tables import Rows
    from loadeval.runlog.model import Run

LONGEST_FIGURE = 24
"""Characters of a value that ask for room; what is longer is folded."""
LONGEST_FACT = 120
"""Characters that are shown of what a file says of its loader."""
LONGEST_IN_TABLE = 24
BACKEND_HEAD = ["", "if loading were free", "time lost", "epoch start", "verdict"]


class RunsReport:
    """One column for each arm of each run, as many side by side as there is room for; then notes.

    System metrics are among the rows unless `metrics` says no.
    """

    def __init__(self, runs: Sequence[RunReport], *, metrics: bool = True) -> None:
        sides = [(one, side) for one in runs for side in one.sides]
        read: Sequence[Rows] = [[] for _ in sides]
        if metrics:
            read = metrics_rows([(one.metrics, side.arm) for one, side in sides])
        self.columns = [
            [*figures(side), *rows, *loader_facts(side.run)]
            for (_, side), rows in zip(sides, read, strict=True)
        ]
        self.notes = [line for one in runs for line in run_notes(one)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Tables that fit into the console's width, so that no figure is cut off."""
        labels = max((len(label) for rows in self.columns for label, _ in rows), default=0)
        column = max((_room(rows) for rows in self.columns), default=0)
        each = max(1, (options.max_width - labels) // (column + GAP))
        for start in range(0, len(self.columns), each):
            if start:
                yield Text()
            yield _side_by_side(self.columns[start : start + each])
        if self.notes:
            yield Text("\nNotes", style="bold")
            yield from (Padding(Paragraph(line), (0, 0, 0, GAP)) for line in self.notes)


def full_report(report: Report) -> list[RenderableType]:
    """All that is known of a comparison."""
    found = report.comparison
    job = [] if report.job is None else [JobText(report, report.job)]
    if found is None:
        return [*job, RunsReport(report.runs)] if job else []
    return [
        comparison_report(found),
        *job,
        diagnosis_report(found.diagnosis),
        *(
            StagesReport(one, full=True)
            for one in report.runs
            if one.stages or one.operators or one.no_stages
        ),
        metrics_report(found.metrics),
        RunsReport(report.runs, metrics=False),
    ]


class JobText:
    """The ranks of a job: its loss where it did not alternate, its stragglers, and a table."""

    def __init__(self, report: Report, job: JobReport) -> None:
        self.headline = job_headline(report, job) if report.comparison is None else ""
        self.job = job

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """The table folds by whole columns."""
        if self.headline:
            yield Paragraph(printable(self.headline), "bold")
            yield Text()
        yield Paragraph(printable(described_job(self.job)))
        yield Paragraph(printable(stragglers_in_words(self.job)))
        yield Text()
        ranks = worst_first(self.job)
        yield CellTable([HEAD, *rank_rows(ranks[:MOST_RANKS], LONGEST_IN_TABLE)])
        if len(ranks) > MOST_RANKS:
            yield Text(f"and {len(ranks) - MOST_RANKS:,} more")
        yield Paragraph(WHAT_RANKS_ARE)
        told = (*job_cautions(self.job), clocks_in_words(self.job))
        for line in filter(None, told):
            yield Paragraph(printable(line))
        yield Paragraph(OF_ONE_RANK.format(rank=self.job.shown))


def comparison_report(found: Comparison) -> RenderableType:
    """The headline, and under it figures, reason, advice and cautions."""
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in comparison_facts(found):
        grid.add_row(label, Paragraph(value))
    return Group(Paragraph(printable(headline(found.headroom)), "bold"), Text(), grid)


def comparison_facts(found: Comparison) -> Rows:
    """All that a comparison found; at the end why something was not measured."""
    headroom = found.headroom
    times_ns = (headroom.real_ns, headroom.ideal_ns, headroom.loader_only_ns)
    rates = [_iteration(*pair, found.unit) for pair in zip(times_ns, found.rates, strict=True)]
    facts = [
        ("speed-up", speedup_in_words(headroom)),
        (f"speed-up, {STEADY}", estimated(headroom.steady_speedup, speedup)),
        *zip((f"real, {STEADY}", f"ideal, {STEADY}", "loader alone"), rates, strict=True),
        ("lost per batch", lost_of_whole(headroom)),
        *((f"  {one.name}", lost_part(one)) for one in lost_parts(headroom)),
        ("required", required_in_words(headroom.required)),
        ("epoch start", epoch_start_in_words(headroom)),
    ]
    if headroom.real_ns is None and headroom.ideal_ns is None:
        facts = []
    if told := known(headroom):
        facts.append(("known", printable(" ".join(told))))
    if headroom.gpu_idle_ns is not None:
        idle = f"{duration(headroom.gpu_idle_ns)} per batch, by CUDA events"
        facts.append(("GPU idle while waiting", idle))
    facts += [
        ("measured", measured(headroom)),
        ("verdict", printable(f"{headroom.verdict}: {reason(headroom)}")),
        ("thresholds", THRESHOLDS),
    ]
    if headroom.verdict.objection is not None or not found.diagnosis.findings:
        facts.append(("advice", printable(verdict_advice(headroom))))
    for label, sentences in (
        ("caution", cautions(headroom)),
        (NOT_MEASURED, not_measured(headroom)),
    ):
        if sentences:
            facts.append((label, printable(" ".join(sentences))))
    return facts


def figures(side: Side) -> Rows:
    """What was measured, as labels and values."""
    run, summary, waits = side.run, side.summary, side.summary.waits
    header, samples = run.header, summary.samples_per_batch
    ready = bool(header.loader.ready_batches)
    first, later = summary.epoch_start_ns[: not ready], summary.epoch_start_ns[not ready :]
    alternates = header.mode == "alternate"
    left_out = counted(warmup_of(run), "batch", "batches")
    return [
        ("run", short_name(header.name)),
        ("mode", f"alternate, {side.arm} arm" if alternates else header.mode),
        ("throughput", throughput(summary, short_name(header.unit))),
        ("iteration, mean", duration(summary.iteration_ns)),
        ("step, mean", duration(summary.step_ns)),
        ("wait, mean", duration(waits.mean_ns if waits else None)),
        ("wait, p50", duration(waits.p50_ns if waits else None)),
        ("wait, p95", duration(waits.p95_ns if waits else None)),
        ("wait, p99", duration(waits.p99_ns if waits else None)),
        ("wait, max", duration(waits.max_ns if waits else None)),
        ("share waited", share(summary.wait_share)),
        ("first batch, first epoch", duration(next(iter(first), None))),
        ("first batch, later epochs", _between(later)),
        ("batches", f"{summary.batches:,}"),
        ("epochs", f"{summary.epochs:,}"),
        ("steady batches", f"{summary.steady_batches:,}"),
        ("left out per epoch", "epoch start, warm-up" if alternates else left_out),
        ("samples per batch", _average(samples)),
        ("bytes per batch", size(summary.bytes_per_batch)),
    ]


def loader_facts(run: Run) -> Rows:
    """What served the batches, and where, as labels and values."""
    loader, cache = run.header.loader, run.header.cache
    kept = "none" if cache is None else f"{fact(cache.batches)} ({size(cache.nbytes)})"
    return [
        ("loader", fact(class_name(loader))),
        ("workers", fact(loader.workers)),
        ("prefetch depth", fact(loader.prefetch_depth)),
        ("batch size", fact(loader.batch_size)),
        ("batches in an epoch", fact(loader.length)),
        ("ready when wrapped", fact(loader.ready_batches)),
        ("pinned", fact(loader.pinned)),
        ("device", fact(loader.device)),
        ("start method", fact(loader.start_method)),
        ("persistent workers", fact(loader.persistent_workers)),
        ("kept for replay", kept),
        ("recorded", _moment(run.header.created)),
        ("host", fact(run.header.environment.get("host"))),
        ("usable CPUs", fact(run.header.environment.get("cpus_usable"))),
    ]


def fact(value: object, unknown: str = "unknown") -> str:
    """What a file says, as text; `unknown` for None."""
    if value is None:
        return unknown
    if isinstance(value, bool):
        return "yes" if value else "no"
    return short_name(value, LONGEST_FACT)


def backends_text(found: BackendReport) -> str:
    """All that is known of several backends; lines are as long as they need to be."""
    heading = [backends_headline(found), measured_in_words(found), f"{BRACKETS} {STEADY_RATES}"]
    parts = [heading, table_lines(_rates(found), NO_LIMIT)]
    if not all(one.error for one in found.backends):
        gains = [BACKEND_HEAD, *backend_gains(found, LONGEST_IN_TABLE)]
        parts.append(table_lines(gains, NO_LIMIT))
    cautions_of = backend_cautions(found)
    lists = [*backend_lists(found), *([("Cautions", cautions_of)] if cautions_of else [])]
    parts += [[title, *map(printable, sentences)] for title, sentences in lists]
    return "\n\n".join("\n".join(part) for part in parts)


def backend_lists(found: BackendReport) -> list[tuple[str, list[str]]]:
    """Titles, and the sentences under each; nothing where there are none."""
    lists = [
        ("Failed", failures(found)),
        ("Differences in real throughput", list(map(difference_sentence, found.differences))),
        ("GPUs", gpus_of_backends(found.backends)),
        ("Not measured", backend_not_measured(found)),
    ]
    return [(title, sentences) for title, sentences in lists if sentences]


def backend_gains(found: BackendReport, longest: int) -> list[list[str]]:
    """For each backend that did not fail what BACKEND_HEAD says, the fastest first."""
    return [
        [
            short_name(one.name, longest),
            estimated(one.speedup, speedup),
            share(None if one.lost_share is None else one.lost_share.value),
            duration(one.epoch_start_ns),
            backend_verdict(one),
        ]
        for one in ranked(found.backends)
        if not one.error
    ]


def _rates(found: BackendReport) -> list[list[str]]:
    unit = short_name(found.unit, LONGEST_IN_TABLE)
    rows = [[f"{unit}/s", "real", "ideal", "loader alone"]]
    for one in ranked(found.backends):
        rates = (one.real, one.ideal, one.loader_only)
        cells = ["failed", "", ""] if one.error else [estimated(rate, number) for rate in rates]
        rows.append([short_name(one.name, LONGEST_IN_TABLE), *cells])
    return rows


def _iteration(iteration_ns: float | None, rate: Estimate | None, unit: str) -> str:
    if iteration_ns is None or rate is None:
        return NOT_MEASURED
    return f"{duration(iteration_ns)} per batch, {per_second(rate.value, short_name(unit))}"


def _average(samples: float | None) -> str:
    return "unknown" if samples is None else f"{samples:,.1f}".removesuffix(".0")


def _moment(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return printable(created)
    return wall_clock(moment)


def _between(epoch_start_ns: Sequence[int]) -> str:
    if not epoch_start_ns:
        return "none"
    least, most = duration(min(epoch_start_ns)), duration(max(epoch_start_ns))
    return least if least == most else f"{least} to {most}"


def _room(rows: Rows) -> int:
    return max(min(len(value), LONGEST_FIGURE) for _, value in rows)


def _side_by_side(columns: list[Rows]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    label = columns[0][0][0]
    table.add_column(label, no_wrap=True)
    for rows in columns:
        table.add_column(Text(rows[0][1], overflow="fold"), overflow="fold")
    for row, (name, _) in list(enumerate(columns[0]))[1:]:
        table.add_row(name, *(Paragraph(rows[row][1]) for rows in columns))
    return table
