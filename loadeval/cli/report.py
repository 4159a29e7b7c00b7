"""`loadeval report`: what runs found as one HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loadeval.cli.console import (
    Price,
    Redact,
    errors_printed,
    files_to_read,
    report_of,
)
from loadeval.report.formatting import printable
from loadeval.report.page.page import (
    EXTENSION,
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
    redact: Redact = False,
    price: Price = None,
) -> None:
    """Write a page with the verdict, the findings and figures of runs.

    One HTML file that opens in a browser, without a network. It holds the names of the files, and
    what the runs recorded about their machine.
    """
    with errors_printed():
        path = default_path(runs[0]) if output is None else page_path(output)
        check_replaceable(path)
        with files_to_read(runs, redact=redact) as files:
            page, names = path, runs
            if redact:
                page, names = Path(f"report{EXTENSION}"), [Path(file.name) for file in files]
            options = [] if price is None else ["--price", f"{price:g}"]
            text = page_of(report_of(files, price), names, page, options)
        write_page(text, path)
    typer.echo(f"Page written to {printable(path)}")
