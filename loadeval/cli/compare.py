"""`loadeval compare`: real against ideal loading, of one run or two; or several backends."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadeval.analysis.estimate.verdict import GateOutcome, InputBound, gate
from loadeval.analysis.inside.decoding import is_mostly_decoding
from loadeval.analysis.report import why_not_compared
from loadeval.cli.console import (
    ABOVE_LIMIT,
    UNDECIDED,
    AsJson,
    errors_printed,
    print_json,
    print_lines,
    print_report,
    report_of,
    screen_width,
)
from loadeval.errors import UsageError
from loadeval.launch.folder import loaders_in
from loadeval.report.figure.figure import (
    backends_figure,
    comparison_figure,
    figure_path,
    job_figure,
    save_figure,
)
from loadeval.report.formatting import printable
from loadeval.report.json import report_as_dict
from loadeval.report.terminal.baseline import baseline_screen
from loadeval.report.terminal.launch import launch_screen
from loadeval.report.terminal.screen import screen
from loadeval.report.terminal.text import backends_text, full_report
from loadeval.report.wording.baseline import slower_sentence
from loadeval.report.wording.verdict import gate_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from loadeval.analysis.report import Report
    from loadeval.report.tables import Rows

RUNS = (
    "One run of mode alternate or log; or two runs of the same loader, both of mode alternate or "
    "both of mode log, before and after a change; or two, the first of mode log and the second of "
    "mode replay, for real and ideal loading; or one run for each of several backends, of mode "
    "alternate or log. Run logs or metrics files, or the folder of a `loadeval run` or of the logs "
    "of a job's ranks."
)
FULL = "Print everything: advice, evidence, system metrics, and the figures of both arms."
OUTPUT = "Draw the comparison too, as PNG, SVG or PDF by the extension: comparison.png, say."
FAIL_ABOVE = (
    "For a CI job: exit with 3 when the whole 95% CI of the time lost is above PERCENT; with 4 "
    "when that is undecided."
)
FAIL_SLOWER = (
    "With two runs, before and after, for a CI job: exit with 3 when throughput is more than "
    "PERCENT under that of the first, with the whole 95% CI; with 4 when that is undecided."
)
NOT_BEFORE_AND_AFTER = (
    "--fail-slower compares a run with an earlier one; expected two runs of the same loader in the "
    "same mode, the earlier one first"
)
NOTHING_TO_DRAW = (
    "--output draws real against ideal loading, several backends or the ranks of a job, and this "
    "is one run that did not alternate; leave it out, or write a page: loadeval report"
)
NO_GATE = (
    "--fail-above needs the share of time lost to data loading, which one run of mode log and "
    "several backends do not have; expected a run of mode alternate, or one of mode log and one of "
    "mode replay"
)
PERCENT = 100
CODES = {
    GateOutcome.ABOVE: ABOVE_LIMIT,
    GateOutcome.NOT_ABOVE: 0,
    GateOutcome.SPANS: UNDECIDED,
    GateOutcome.INCONCLUSIVE: UNDECIDED,
}


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=RUNS)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FIGURE", help=OUTPUT)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help=FULL)] = False,
    as_json: AsJson = False,
    fail_above: Annotated[
        float | None, typer.Option("--fail-above", metavar="PERCENT", help=FAIL_ABOVE)
    ] = None,
    fail_slower: Annotated[
        float | None, typer.Option("--fail-slower", metavar="PERCENT", help=FAIL_SLOWER)
    ] = None,
) -> None:
    """Tell how much faster training would be with ideal loading.

    One screen: the verdict, the throughput of each arm, the time lost to waiting and to contention,
    the findings and what to change. Of a run of mode log, how long training waited. Of two runs of
    the same loader in the same mode, whether the second is slower than the first, and what changed.
    For several backends, the throughput of each.
    """
    _check_percentage("--fail-above", fail_above)
    _check_percentage("--fail-slower", fail_slower)
    with errors_printed():
        figure = None if output is None else figure_path(output)
        report = report_of(runs)
        if len(runs) == 1 and report.runs[0].run.header.mode == "replay":
            raise UsageError(why_not_compared(report.runs[0].run))
        if fail_above is not None and report.comparison is None:
            raise typer.BadParameter(NO_GATE)
        if fail_slower is not None and report.baseline is None:
            raise typer.BadParameter(NOT_BEFORE_AND_AFTER)
        if figure is not None:
            save_figure(_drawn(report), figure)
    if as_json:
        print_json(report_as_dict(report))
    else:
        _print(report, runs, full=full)
    if figure is not None and not as_json:
        typer.echo(f"\nFigure written to {printable(figure)}")
    outcomes = []
    if fail_above is not None and report.comparison is not None:
        headroom, bound = report.comparison.headroom, fail_above / PERCENT
        outcomes.append(gate(headroom.verdict, headroom.lost_share, bound))
        typer.echo(printable(gate_sentence(outcomes[-1], headroom, bound)), err=True)
    if fail_slower is not None and report.baseline is not None:
        bound = fail_slower / PERCENT
        outcomes.append(report.baseline.gate(bound))
        typer.echo(printable(slower_sentence(outcomes[-1], report.baseline, bound)), err=True)
    codes = {CODES[outcome] for outcome in outcomes}
    raise typer.Exit(next((code for code in (ABOVE_LIMIT, UNDECIDED) if code in codes), 0))


def _check_percentage(option: str, percent: float | None) -> None:
    if percent is not None and not 0 < percent < PERCENT:
        raise typer.BadParameter(
            f"{option} is {percent:g}; expected a percentage, above 0 and under 100, such as 20"
        )


def _print(report: Report, runs: Sequence[Path], *, full: bool) -> None:
    width, more = screen_width(), next_commands(runs, report)
    if report.baseline is not None:
        print_lines(baseline_screen(report.baseline, more, width, full=full))
        if not full:
            return
        typer.echo()
    if report.backends is not None and full:
        typer.echo(backends_text(report.backends))
    elif full:
        print_report(*full_report(report))
    elif report.comparison or report.backends or report.job:
        print_lines(screen(report, more, width))
    else:
        loaders = loaders_in(runs[0]) if runs[0].is_dir() else []
        print_lines(launch_screen([(runs[0].name, report)], loaders, more, width))


def _drawn(report: Report) -> Figure:
    if report.comparison is not None:
        return comparison_figure(report.comparison)
    if report.job is not None:
        return job_figure(report, report.job)
    if report.backends is not None:
        return backends_figure(report.backends)
    raise typer.BadParameter(NOTHING_TO_DRAW)


def next_commands(runs: Sequence[Path], report: Report) -> Rows:
    """The commands that say more about `runs`."""
    paths = shlex.join(map(str, runs))
    return [
        *backends_command(runs, report),
        *straggler_command(report),
        ("everything", f"loadeval compare {paths} --full"),
        ("page", f"loadeval report {paths}"),
    ]


def backends_command(runs: Sequence[Path], report: Report) -> Rows:
    """The command that measures other decoders, where training waits and decoding is the cause."""
    comparison = report.comparison
    if len(runs) != 1 or comparison is None or not is_mostly_decoding(comparison.stages):
        return []
    headroom = comparison.headroom
    if headroom.verdict.lowest in {None, InputBound.NOT} or not headroom.ideal_ns:
        return []
    step_ms = max(headroom.ideal_ns / 1e6, 0.1)
    return [("other decoders", f"loadeval backends FOLDER --step {step_ms:.1f}ms")]


def straggler_command(report: Report) -> Rows:
    """The command that looks at the rank that makes a job wait, where there is one."""
    if report.job is None or not report.job.stragglers.ranks:
        return []
    rank = report.job.stragglers.ranks[0]
    (path,) = (candidate.path for candidate in report.job.ranks if candidate.rank == rank)
    return [("straggler", f"loadeval compare {shlex.quote(str(path))} --full")] if path else []
