"""`loadeval compare`: a real run against an ideal one."""

from __future__ import annotations

import dataclasses
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import Annotated

import typer

from loadeval.analysis import headroom
from loadeval.analysis.summary import summarise
from loadeval.cli.console import errors_told, print_json, print_report
from loadeval.record.metrics import read_run
from loadeval.report.plots import comparison_figure, figure_path, save_figure
from loadeval.report.text import RunsReport, comparison_report
from loadeval.report.wording import printable

REAL = "The run that loaded, of mode log: a run log or a metrics file."
IDEAL = "The run that replayed, of mode replay: a run log or a metrics file."
OUTPUT = "Draw the comparison too, as PNG, SVG or PDF by the extension: comparison.png, say."


def compare(
    real: Annotated[Path, typer.Argument(metavar="REAL", help=REAL)],
    ideal: Annotated[Path, typer.Argument(metavar="IDEAL", help=IDEAL)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FIGURE", help=OUTPUT)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Tell how much faster training would be with free loading.

    Says too how much of the lost time is waiting and how much interference, and what to try.
    """
    with errors_told():
        figure = None if output is None else figure_path(output)
        one, other = read_run(real), read_run(ideal)
        found = headroom.compare(one, other)
        if figure is not None:
            save_figure(comparison_figure(one, other), figure)
    summaries = summarise(one), summarise(other)
    if as_json:
        sides = dict(zip(("real", "ideal"), map(dataclasses.asdict, summaries), strict=True))
        print_json({**dataclasses.asdict(found), **sides})
        return
    runs = zip((one, other), summaries, strict=True)
    print_report(comparison_report(found), RunsReport(list(runs)))
    if figure is not None:
        typer.echo(f"\nFigure written to {printable(figure)}")
