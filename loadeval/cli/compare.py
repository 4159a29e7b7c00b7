"""`loadeval compare`: real loading against free loading, of one run or two; or several backends."""

from __future__ import annotations

import dataclasses
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadeval.analysis.findings.diagnosis import diagnose
from loadeval.analysis.gate import gate
from loadeval.cli.console import (
    CANNOT_TELL,
    LOST_TOO_MUCH,
    errors_told,
    print_json,
    print_report,
)
from loadeval.cli.runs import read_each_once
from loadeval.report.backends import BackendComparison
from loadeval.report.comparison import Comparison, are_backends
from loadeval.report.findings import diagnosis_as_dict, diagnosis_report
from loadeval.report.plots import comparison_figure, figure_path, save_figure
from loadeval.report.readings import readings_as_dict
from loadeval.report.readings_table import readings_report
from loadeval.report.text import RunsReport, comparison_report
from loadeval.report.wording import printable
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.gate import Outcome
    from loadeval.analysis.headroom import Headroom
    from loadeval.runlog.model import Run

RUNS = (
    "One run of mode alternate; or two, the first of mode log and the second of mode replay; or "
    "one run for each of several backends, of mode alternate or log. Run logs or metrics files."
)
OUTPUT = "Draw the comparison too, as PNG, SVG or PDF by the extension: comparison.png, say."
FAIL_ABOVE = (
    "For CI: exit with 3 when surely more than PERCENT of the training time is lost, the whole "
    "95% interval; with 4 when that cannot be told."
)
NO_GATE = (
    "--fail-above goes by the share of the time that is lost to loading, and of several backends "
    "none is told; expected one run of mode alternate, or one of mode log and one of mode replay"
)
ALL = 100
"""Percent."""
CODES: dict[Outcome, int] = {"above": LOST_TOO_MUCH, "cannot tell": CANNOT_TELL, "not above": 0}


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=RUNS)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FIGURE", help=OUTPUT)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    fail_above: Annotated[
        float | None, typer.Option("--fail-above", metavar="PERCENT", help=FAIL_ABOVE)
    ] = None,
) -> None:
    """Tell how much faster training would be with free loading.

    Says too how much of the lost time is waiting and how much interference, and what to try. Of
    several backends it tells the throughput of each, and the differences between them.
    """
    _check_bound(fail_above)
    found = None
    with errors_told():
        figure = None if output is None else figure_path(output)
        read = read_each_once(runs)
        if not are_backends(read):
            found = _tell_headroom(read, figure, as_json)
        elif fail_above is None:
            _tell_backends(read, figure, as_json)
        else:
            raise typer.BadParameter(NO_GATE)
    if figure is not None and not as_json:
        typer.echo(f"\nFigure written to {printable(figure)}")
    if found is not None and fail_above is not None:
        _exit_by(found, fail_above)


def _check_bound(percent: float | None) -> None:
    if percent is not None and not 0 < percent < ALL:
        raise typer.BadParameter(
            f"--fail-above is {percent:g}; expected a percentage of the training time, above 0 and "
            "under 100, such as 20"
        )


def _exit_by(found: Headroom, percent: float) -> None:
    """Tell on stderr whether more is lost, and exit with the code for that."""
    result = gate(found, percent / ALL)
    typer.echo(printable(result.reason), err=True)
    raise typer.Exit(CODES[result.outcome])


def _tell_headroom(runs: Sequence[Run], figure: Path | None, as_json: bool) -> Headroom:
    comparison = Comparison.of(*runs)
    if figure is not None:
        save_figure(comparison_figure(comparison), figure)
    if as_json:
        print_json(_as_json(comparison))
    else:
        print_comparison(comparison)
    return comparison.headroom


def print_comparison(comparison: Comparison) -> None:
    """What was found, why and what to change; the machine meanwhile; the figures of both sides."""
    print_report(
        comparison_report(comparison.headroom),
        diagnosis_report(diagnose(*comparison.runs)),
        readings_report(*comparison.runs),
        RunsReport(comparison.sides, readings=False),
    )


def _tell_backends(runs: Sequence[Run], figure: Path | None, as_json: bool) -> None:
    comparison = BackendComparison.of_runs(runs)
    if figure is not None:
        comparison.plot(figure)
    if as_json:
        print_json(comparison.as_dict())
    else:
        typer.echo(str(comparison))


def _as_json(comparison: Comparison) -> dict[str, Any]:
    """The fields of Headroom, the summaries of both sides, readings and diagnosis."""
    summaries = [dataclasses.asdict(summary) for _, summary in comparison.sides]
    sides = dict(zip(ARMS, summaries, strict=True))
    readings = [readings_as_dict(run) for run in comparison.runs]
    return {
        **dataclasses.asdict(comparison.headroom),
        **sides,
        "readings": readings,
        "diagnosis": diagnosis_as_dict(diagnose(*comparison.runs)),
    }
