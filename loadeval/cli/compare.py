"""`loadeval compare`: real against ideal loading, of one run or two; or several backends."""

from __future__ import annotations

import shlex
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated

import typer

from loadeval.analysis.estimate.verdict import GateOutcome, gate
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
from loadeval.report.figure.figure import (
    backends_figure,
    comparison_figure,
    figure_path,
    job_figure,
    save_figure,
)
from loadeval.report.formatting import printable
from loadeval.report.json import report_as_dict
from loadeval.report.terminal.screen import screen
from loadeval.report.terminal.text import backends_text, full_report
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
) -> None:
    """Tell how much faster training would be with ideal loading.

    One screen: the verdict, the throughput of each arm, the time lost to waiting and to contention,
    the findings and what to change. For several backends, the throughput of each.
    """
    if fail_above is not None and not 0 < fail_above < PERCENT:
        raise typer.BadParameter(
            f"--fail-above is {fail_above:g}; expected a percentage of the training time, above 0 "
            "and under 100, such as 20"
        )
    with errors_printed():
        figure = None if output is None else figure_path(output)
        report = report_of(runs, compared=len(runs) == 1)
        if fail_above is not None and report.comparison is None:
            raise typer.BadParameter(NO_GATE)
        if figure is not None:
            save_figure(_drawn(report), figure)
    if as_json:
        print_json(report_as_dict(report))
    elif not full:
        print_lines(screen(report, next_commands(runs, report), screen_width()))
    elif report.backends is not None:
        typer.echo(backends_text(report.backends))
    else:
        print_report(*full_report(report))
    if figure is not None and not as_json:
        typer.echo(f"\nFigure written to {printable(figure)}")
    if fail_above is not None and report.comparison is not None:
        headroom, bound = report.comparison.headroom, fail_above / PERCENT
        outcome = gate(headroom.verdict, headroom.lost_share, bound)
        typer.echo(printable(gate_sentence(outcome, headroom, bound)), err=True)
        raise typer.Exit(CODES[outcome])


def _drawn(report: Report) -> Figure:
    if report.comparison is not None:
        return comparison_figure(report.comparison)
    if report.job is not None:
        return job_figure(report, report.job)
    assert report.backends is not None  # noqa: S101 - one of them is there
    return backends_figure(report.backends)


def next_commands(runs: Sequence[Path], report: Report) -> Rows:
    """The commands that say more about `runs`."""
    paths = shlex.join(map(text_of, runs))
    return [
        *straggler_command(report),
        ("everything", f"loadeval compare {paths} --full"),
        ("page", f"loadeval report {paths}"),
    ]


def straggler_command(report: Report) -> Rows:
    """The command that looks at the rank that makes a job wait, where there is one."""
    if report.job is None or not report.job.stragglers.ranks:
        return []
    rank = report.job.stragglers.ranks[0]
    (path,) = (candidate.path for candidate in report.job.ranks if candidate.rank == rank)
    return [("straggler", f"loadeval show {shlex.quote(str(path))} --full")] if path else []
