"""`loadeval export`: a run for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loadeval.cli.console import log_at
from loadeval.data.log import read_run
from loadeval.export import ENDINGS, export_run
from loadeval.words import printable

RUN = "A log, the folder of one, or a metrics file."
FORMAT = "A timeline for Perfetto, or tables."
OUTPUT = "The file; by default beside the log."


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    form: Annotated[str, typer.Option("--format", "-f", metavar="chrome|csv", help=FORMAT)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help=OUTPUT)] = None,
) -> None:
    """Write a run in a form that another tool opens."""
    if form not in ENDINGS:
        raise typer.BadParameter(f"--format is {form!r}; expected chrome or csv")
    log = log_at(run)
    path = output or log.with_name(log.stem + ENDINGS[form])
    written = export_run(read_run(log), form, path)
    for file in written:
        typer.echo(f"Written to {printable(file)}")
