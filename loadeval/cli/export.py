"""`loadeval export`: a run for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loadeval.cli.console import errors_printed
from loadeval.data.folder import logs_in
from loadeval.data.log import read_run
from loadeval.errors import UsageError
from loadeval.export import ENDINGS, Format, export_run
from loadeval.words import printable

RUN = "A run log, or the folder of one; or a file of save_metrics(); for csv also one of DALI's."
FORMAT = (
    "chrome: a timeline for ui.perfetto.dev and chrome://tracing; csv: tables of batches, of "
    "readings and of the loader's stages."
)
OUTPUT = "The file; by default beside the run's file."
OVERWRITE = "Replace an earlier export."


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    form: Annotated[Format, typer.Option("--format", "-f", help=FORMAT)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help=OUTPUT)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=OVERWRITE)] = False,
) -> None:
    """Write a run in a form that another tool opens."""
    with errors_printed():
        log = _log_at(run)
        path = output or log.with_name(log.stem + ENDINGS[form])
        written = export_run(read_run(log), form, path, overwrite=overwrite)
    for file in written:
        typer.echo(f"Written to {printable(file)}")


def _log_at(path: Path) -> Path:
    """The log at `path`; of a folder its only one."""
    if not path.is_dir():
        return path
    first, *others = logs_in(path)
    if others:
        raise UsageError(f"{path} has {1 + len(others)} run logs; give one, such as {first}")
    return first
