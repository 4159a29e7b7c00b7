"""`loadeval compare`: real loading against free loading, of one run or of two."""

from __future__ import annotations

import dataclasses
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import Annotated, Any

import typer

from loadeval.cli.console import errors_told, print_json, print_report
from loadeval.record.metrics import read_run
from loadeval.record.model import ARMS
from loadeval.report.comparison import Comparison
from loadeval.report.plots import comparison_figure, figure_path, save_figure
from loadeval.report.text import RunsReport, comparison_report
from loadeval.report.wording import printable

RUNS = (
    "One run of mode alternate; or two, the first of mode log and the second of mode replay. "
    "Run logs or metrics files."
)
OUTPUT = "Draw the comparison too, as PNG, SVG or PDF by the extension: comparison.png, say."
MOST = 2


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN [IDEAL]", help=RUNS)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FIGURE", help=OUTPUT)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Tell how much faster training would be with free loading.

    Says too how much of the lost time is waiting and how much interference, and what to try.
    """
    if len(runs) > MOST:
        raise typer.BadParameter(
            f"{len(runs)} files were given, where one run of mode alternate, or a real and an "
            "ideal run, were expected; look at more with: loadeval show"
        )
    with errors_told():
        figure = None if output is None else figure_path(output)
        comparison = Comparison.of(*map(read_run, runs))
        if figure is not None:
            save_figure(comparison_figure(comparison), figure)
    if as_json:
        print_json(_as_json(comparison))
        return
    print_report(comparison_report(comparison.headroom), RunsReport(comparison.sides))
    if figure is not None:
        typer.echo(f"\nFigure written to {printable(figure)}")


def _as_json(comparison: Comparison) -> dict[str, Any]:
    """The fields of Headroom, and the summaries of both sides as `real` and `ideal`."""
    summaries = [dataclasses.asdict(summary) for _, summary in comparison.sides]
    sides = dict(zip(ARMS, summaries, strict=True))
    return {**dataclasses.asdict(comparison.headroom), **sides}
