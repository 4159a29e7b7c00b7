"""`loadeval export`: a run for other tools."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import Annotated

import typer

from loadeval.cli.console import Redact, errors_printed, files_to_read
from loadeval.export import Format, default_path, export_run
from loadeval.report.formatting import printable
from loadeval.runlog.log_file.reader import read_run

RUN = "A run log, or a file of save_metrics(); for csv and parquet also one of DALI's."
FORMAT = (
    "chrome: a timeline for ui.perfetto.dev and chrome://tracing; csv, parquet: a table of batches "
    "and one of readings; tensorboard: scalars in a folder."
)
OUTPUT = "The file, or for tensorboard the folder; by default beside the run's file."
OVERWRITE = "Replace an earlier export."


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    form: Annotated[Format, typer.Option("--format", "-f", help=FORMAT)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help=OUTPUT)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=OVERWRITE)] = False,
    redact: Redact = False,
) -> None:
    """Write a run in a form that another tool opens.

    parquet and tensorboard need packages of their own: pip install "loadeval[export]".
    """
    with errors_printed():
        path = default_path(run, form) if output is None else output
        with files_to_read([run], redact=redact) as (file,):
            written = export_run(read_run(file), form, path, overwrite=overwrite)
    for file in written:
        typer.echo(f"Written to {printable(file)}")
