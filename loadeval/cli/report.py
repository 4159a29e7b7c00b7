"""`loadeval report`: what runs found as one HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loadeval.cli.console import (
    Baseline,
    Price,
    Redact,
    asked_for,
    errors_printed,
    files_to_read,
    options_for,
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
    "One run of any mode; or two, the first of mode log and the second of mode replay; or one run "
    "for each of several backends, or ranks, of mode alternate or log. Run logs or metrics files, "
    "or the folder of a `loadeval run` or of the logs of a job's ranks."
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
    baseline: Baseline = None,
    price: Price = None,
) -> None:
    """Write a page with the verdict, the findings and figures of runs.

    One HTML file that opens in a browser, without a network. It holds the names of the files, and
    what the runs recorded about their machine.
    """
    with errors_printed():
        path = default_path(runs[0]) if output is None else page_path(output)
        check_replaceable(path)
        with files_to_read([*runs, *(baseline or [])], redact=redact) as files:
            read, read_before = files[: len(runs)], files[len(runs) :]
            runs_report = asked_for(report_of(read), read_before, price)
            page, names, names_before = path, runs, baseline or []
            if redact:
                page = Path(f"report{EXTENSION}")
                names, names_before = (
                    [Path(file.name) for file in part] for part in (read, read_before)
                )
            text = page_of(runs_report, names, page, options_for(names_before, price))
        write_page(text, path)
    typer.echo(f"Page written to {printable(path)}")
