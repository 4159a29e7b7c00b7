"""`loadeval report`: what runs say as one HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loadeval.cli.compare import RUNS
from loadeval.errors import UsageError
from loadeval.report.report import report_of
from loadeval.words import printable

OUTPUT = "The page; by default beside the first run."


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=RUNS)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PAGE", help=OUTPUT)
    ] = None,
) -> None:
    """Write one HTML page with everything, and charts.

    A file that opens in a browser, without a network. It holds the names of the files, and
    what the runs recorded about their machine. An earlier page is replaced, anything else is not.
    """
    run = runs[0]
    path = output or (run / "report.html" if run.is_dir() else run.with_suffix(".html"))
    if path.suffix.lower() != ".html":
        raise UsageError(f"--output is {path}; expected a page whose name ends in .html")
    report_of(runs).write_page(path)
    typer.echo(f"Page written to {printable(path)}")
