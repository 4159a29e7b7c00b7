"""`loadeval report`: what runs found as one HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loadeval.cli.console import errors_printed, report_of
from loadeval.report.formatting import printable
from loadeval.report.page.page import (
    check_replaceable,
    default_path,
    page_of,
    page_path,
    write_page,
)

RUNS = (
    "One run of any mode; or several, as of loadeval compare: before and after a change, real and "
    "ideal, or one for each of several backends. Run logs or metrics files, or the folder of a "
    "`loadeval run` or of the logs of a job's ranks."
)
OUTPUT = (
    "Where the page goes; by default beside the first run, under its name: run.html; of a folder "
    "in it: report.html. An earlier page is replaced, anything else is not."
)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=RUNS)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PAGE", help=OUTPUT)
    ] = None,
) -> None:
    """Write a page with the verdict, the findings and figures of runs.

    One HTML file that opens in a browser, without a network. It holds the names of the files, and
    what the runs recorded about their machine.
    """
    with errors_printed():
        path = default_path(runs[0]) if output is None else page_path(output)
        check_replaceable(path)
        write_page(page_of(report_of(runs), runs, path), path)
    typer.echo(f"Page written to {printable(path)}")
