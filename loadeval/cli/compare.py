"""`loadeval compare`: real against ideal loading, of one run or two; or several backends."""

from __future__ import annotations

import shlex
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated

import typer

from loadeval.analysis.estimate.verdict import GateOutcome, InputBound, gate
from loadeval.analysis.inside.decoding import is_mostly_decoding
from loadeval.cli.console import (
    ABOVE_LIMIT,
    UNDECIDED,
    AsJson,
    Baseline,
    Price,
    asked_for,
    errors_printed,
    options_for,
    print_json,
    print_lines,
    print_report,
    report_of,
    screen_width,
)
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
from loadeval.report.terminal.screen import screen
from loadeval.report.terminal.text import backends_text, full_report
from loadeval.report.wording.baseline import slower_sentence
from loadeval.report.wording.verdict import gate_sentence
from loadeval.runlog.remote import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from loadeval.analysis.report import Report
    from loadeval.report.tables import Rows

RUNS = (
    "One run of mode alternate; or two, the first of mode log and the second of mode replay; or "
    "one run for each of several backends, of mode alternate or log. Run logs or metrics files, "
    "or the folder of a `loadeval run` or of the logs of a job's ranks."
)
FULL = "Print everything: advice, evidence, system metrics, and the figures of both arms."
OUTPUT = "Draw the comparison too, as PNG, SVG or PDF by the extension: comparison.png, say."
FAIL_ABOVE = (
    "For a CI job: exit with 3 when the whole 95% CI of the time lost is above PERCENT; with 4 "
    "when that is undecided."
)
FAIL_SLOWER = (
    "With --baseline, for a CI job: exit with 3 when throughput is more than PERCENT under the "
    "baseline's, with the whole 95% CI; with 4 when that is undecided."
)
NO_BASELINE = "--fail-slower compares with a baseline; pass --baseline, an earlier run"
NOTHING_TO_DRAW = (
    "--output draws real against ideal loading, several backends or the ranks of a job, and this "
    "is one run that did not alternate; leave it out, or write a page: loadeval report"
)
NO_GATE = (
    "--fail-above needs the share of time lost to data loading of one comparison, not of several "
    "backends; expected one run of mode alternate, or one of mode log and one of mode replay"
)
PERCENT = 100
CODES = {
    GateOutcome.ABOVE: ABOVE_LIMIT,
    GateOutcome.NOT_ABOVE: 0,
    GateOutcome.SPANS: UNDECIDED,
    GateOutcome.INCONCLUSIVE: UNDECIDED,
}


def compare(  # noqa: PLR0913, PLR0917 - the options of the command
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=RUNS)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FIGURE", help=OUTPUT)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help=FULL)] = False,
    as_json: AsJson = False,
    fail_above: Annotated[
        float | None, typer.Option("--fail-above", metavar="PERCENT", help=FAIL_ABOVE)
    ] = None,
    baseline: Baseline = None,
    fail_slower: Annotated[
        float | None, typer.Option("--fail-slower", metavar="PERCENT", help=FAIL_SLOWER)
    ] = None,
    price: Price = None,
) -> None:
    """Tell how much faster training would be with ideal loading.

    One screen: the verdict, the throughput of each arm, the time lost to waiting and to contention,
    the findings and what to change. For several backends, the throughput of each.
    """
    _check_percentage("--fail-above", fail_above)
    _check_percentage("--fail-slower", fail_slower)
    if fail_slower is not None and not baseline:
        raise typer.BadParameter(NO_BASELINE)
    with errors_printed():
        figure = None if output is None else figure_path(output)
        report = report_of(runs, compared=len(runs) == 1 and not baseline)
        if fail_above is not None and report.comparison is None:
            raise typer.BadParameter(NO_GATE)
        report = asked_for(report, baseline or [], price)
        if figure is not None:
            save_figure(_drawn(report), figure)
    if as_json:
        print_json(report_as_dict(report))
    else:
        _print(report, next_commands(runs, report, baseline or []), full=full)
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


def _print(report: Report, more: Rows, *, full: bool) -> None:
    width = screen_width()
    if report.baseline is not None:
        print_lines(baseline_screen(report.baseline, report.cost, more, width, full=full))
        if not full:
            return
        typer.echo()
    if not full:
        print_lines(screen(report, more, width))
    elif report.backends is not None:
        typer.echo(backends_text(report.backends))
    else:
        print_report(*full_report(report))


def _drawn(report: Report) -> Figure:
    if report.comparison is not None:
        return comparison_figure(report.comparison)
    if report.job is not None:
        return job_figure(report, report.job)
    if report.backends is not None:
        return backends_figure(report.backends)
    raise typer.BadParameter(NOTHING_TO_DRAW)


def next_commands(runs: Sequence[Path], report: Report, baseline: Sequence[Path] = ()) -> Rows:
    """The commands that say more about `runs`, compared with `baseline` if there is one."""
    paths = shlex.join([*map(text_of, runs), *options_for(baseline)])
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
    return [("straggler", f"loadeval show {shlex.quote(str(path))} --full")] if path else []
