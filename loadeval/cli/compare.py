"""`loadeval compare`: real loading against free loading, of one run or two; or several backends."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadeval.analysis.findings.diagnosis import diagnose
from loadeval.analysis.gate import Outcome, gate
from loadeval.cli.console import (
    CANNOT_TELL,
    LOST_TOO_MUCH,
    errors_told,
    print_json,
    print_lines,
    print_report,
    screen_width,
)
from loadeval.cli.runs import read_each_once
from loadeval.report.backends import BackendComparison
from loadeval.report.comparison import Comparison, are_backends
from loadeval.report.findings import diagnosis_as_dict, diagnosis_report
from loadeval.report.formatting import printable
from loadeval.report.json import headroom_as_dict
from loadeval.report.plots import comparison_figure, figure_path, save_figure
from loadeval.report.readings import readings_as_dict
from loadeval.report.readings_table import readings_report
from loadeval.report.screen import backends_screen, comparison_screen
from loadeval.report.text import RunsReport, comparison_report
from loadeval.report.wording import gate_sentence
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.headroom import Headroom
    from loadeval.report.facts import Rows
    from loadeval.runlog.model import Run

RUNS = (
    "One run of mode alternate; or two, the first of mode log and the second of mode replay; or "
    "one run for each of several backends, of mode alternate or log. Run logs or metrics files."
)
FULL = "Print everything: advice, evidence, system metrics, and the figures of both arms."
OUTPUT = "Draw the comparison too, as PNG, SVG or PDF by the extension: comparison.png, say."
FAIL_ABOVE = (
    "For a CI job: exit with 3 when the whole 95% CI of the time lost is above PERCENT; with 4 "
    "when that is undecided."
)
NO_GATE = (
    "--fail-above goes by the share of the time that is lost to loading, and of several backends "
    "none is told; expected one run of mode alternate, or one of mode log and one of mode replay"
)
ALL = 100
"""Percent."""
CODES = {
    Outcome.ABOVE: LOST_TOO_MUCH,
    Outcome.NOT_ABOVE: 0,
    Outcome.SPANS: CANNOT_TELL,
    Outcome.INCONCLUSIVE: CANNOT_TELL,
}


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=RUNS)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FIGURE", help=OUTPUT)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help=FULL)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    fail_above: Annotated[
        float | None, typer.Option("--fail-above", metavar="PERCENT", help=FAIL_ABOVE)
    ] = None,
) -> None:
    """Tell how much faster training would be with free loading.

    One screen: the verdict, the throughput of each arm, the time lost to waiting and to contention,
    the findings and what to change. Of several backends, the throughput of each.
    """
    _check_bound(fail_above)
    found = None
    with errors_told():
        figure = None if output is None else figure_path(output)
        read = read_each_once(runs)
        more = None if full else more_of(runs)
        if not are_backends(read):
            found = _tell_headroom(read, figure, as_json, more)
        elif fail_above is None:
            _tell_backends(read, figure, as_json, more)
        else:
            raise typer.BadParameter(NO_GATE)
    if figure is not None and not as_json:
        typer.echo(f"\nFigure written to {printable(figure)}")
    if found is not None and fail_above is not None:
        _exit_by(found, fail_above)


def more_of(runs: Sequence[Path]) -> Rows:
    """The commands that tell more of `runs`."""
    paths = shlex.join(map(str, runs))
    return [
        ("everything", f"loadeval compare {paths} --full"),
        ("page", f"loadeval report {paths}"),
    ]


def _check_bound(percent: float | None) -> None:
    if percent is not None and not 0 < percent < ALL:
        raise typer.BadParameter(
            f"--fail-above is {percent:g}; expected a percentage of the training time, above 0 and "
            "under 100, such as 20"
        )


def _exit_by(found: Headroom, percent: float) -> None:
    """Tell on stderr whether more is lost, and exit with the code for that."""
    result = gate(found, percent / ALL)
    typer.echo(printable(gate_sentence(result)), err=True)
    raise typer.Exit(CODES[result.outcome])


def _tell_headroom(
    runs: Sequence[Run], figure: Path | None, as_json: bool, more: Rows | None
) -> Headroom:
    comparison = Comparison.of(*runs)
    if figure is not None:
        save_figure(comparison_figure(comparison), figure)
    if as_json:
        print_json(_as_json(comparison))
    elif more is None:
        print_report(
            comparison_report(comparison.headroom),
            diagnosis_report(diagnose(*comparison.runs)),
            readings_report(*comparison.runs),
            RunsReport(comparison.sides, readings=False),
        )
    else:
        print_comparison(comparison, more)
    return comparison.headroom


def print_comparison(comparison: Comparison, more: Rows) -> None:
    """One screen of what was found and what to change; `more` is where to look for the rest."""
    diagnosis = diagnose(*comparison.runs)
    print_lines(comparison_screen(comparison, diagnosis, more, screen_width()))


def _tell_backends(
    runs: Sequence[Run], figure: Path | None, as_json: bool, more: Rows | None
) -> None:
    comparison = BackendComparison.of_runs(runs)
    if figure is not None:
        comparison.plot(figure)
    if as_json:
        print_json(comparison.as_dict())
    elif more is None:
        typer.echo(str(comparison))
    else:
        print_lines(backends_screen(comparison, more, screen_width()))


def _as_json(comparison: Comparison) -> dict[str, Any]:
    """The fields of Headroom, the summaries of both sides, readings and diagnosis."""
    summaries = [dataclasses.asdict(summary) for _, summary in comparison.sides]
    sides = dict(zip(ARMS, summaries, strict=True))
    readings = [readings_as_dict(run) for run in comparison.runs]
    return {
        **headroom_as_dict(comparison.headroom),
        **sides,
        "readings": readings,
        "diagnosis": diagnosis_as_dict(diagnose(*comparison.runs)),
    }
