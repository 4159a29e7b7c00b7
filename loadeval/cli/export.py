"""`loadeval export`: a run for other tools."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import Annotated

import typer

from loadeval.cli.console import Redact, errors_printed, files_to_read
from loadeval.errors import UsageError
from loadeval.export import Format, default_path, export_run
from loadeval.report.formatting import printable
from loadeval.runlog.log_file.reader import read_run
from loadeval.runlog.run_folder.folder import is_folder, logs_in

RUN = (
    "A run log, or the folder of one; or a file of save_metrics(); for csv and parquet also one of "
    "DALI's."
)
FORMAT = (
    "chrome: a timeline for ui.perfetto.dev and chrome://tracing; csv, parquet: a table of batches "
    "and one of readings; openmetrics: what Prometheus would have scraped, for promtool; "
    "tensorboard: scalars in a folder."
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

    parquet and tensorboard need packages of their own, pip install "loadeval[export]", and so does
    openmetrics: pip install "loadeval[metrics]".
    """
    with errors_printed():
        log = _log_at(run)
        path = default_path(log, form) if output is None else output
        with files_to_read([log], redact=redact) as (file,):
            written = export_run(read_run(file), form, path, overwrite=overwrite)
    for file in written:
        typer.echo(f"Written to {printable(file)}")


def _log_at(path: Path) -> Path:
    """The log at `path`; of a folder its only one."""
    if not is_folder(path):
        return path
    first, *others = logs_in(path)
    if others:
        raise UsageError(f"{path} has {1 + len(others)} run logs; give one, such as {first}")
    return first
