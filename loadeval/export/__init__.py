"""Export a run in formats that other tools open: timelines, tables, scalars."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from loadeval.errors import UsageError
from loadeval.export.files import NewFiles, new_files
from loadeval.export.tables import write_csv, write_parquet
from loadeval.export.trace import write_timeline
from loadeval.runlog.columns import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadeval.runlog.model import Run

    Writer = Callable[[Run, Path, NewFiles], None]

EXTRAS = {"pyarrow": "export", "tensorboard": "export", "prometheus_client": "metrics"}
"""Which extra installs a package that a format needs."""


class Format(str, Enum):
    """A file format that another tool opens."""

    CHROME = "chrome"
    CSV = "csv"
    OPENMETRICS = "openmetrics"
    PARQUET = "parquet"
    TENSORBOARD = "tensorboard"


ENDINGS = {
    Format.CHROME: ".trace.json",
    Format.CSV: ".csv",
    Format.OPENMETRICS: ".openmetrics.txt",
    Format.PARQUET: ".parquet",
    Format.TENSORBOARD: "-tensorboard",
}
TIMELINES = (Format.CHROME, Format.OPENMETRICS, Format.TENSORBOARD)


def default_path(run_path: Path, form: Format) -> Path:
    """Where the run at `run_path` is exported to by default: next to it."""
    return run_path.with_name(run_path.stem + ENDINGS[form])


def export_run(run: Run, form: Format, path: Path, *, overwrite: bool = False) -> list[Path]:
    """Write `run` to `path`: a file, the first of two or three tables, or a folder for TensorBoard.

    Returns the written files. Raises UsageError if one exists and `overwrite` is not set, if
    they cannot be written, if a package is missing, or if a timeline needs times that the run
    does not have.
    """
    if form in TIMELINES:
        _check_times(run)
    try:
        write = _writer(form)
        with new_files(path, overwrite=overwrite) as files:
            write(run, path, files)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise UsageError(
            f"the format {form.value} needs the package {error.name}, which is not installed; "
            f'install it with: pip install "loadeval[{extra}]"'
        ) from error
    return files.paths


def _check_times(run: Run) -> None:
    requests = run.steps.request_ns
    if len(requests) and (requests == UNKNOWN).all():
        raise UsageError(
            f"{run.path} has no times at which batches were requested, since DALI's "
            "LoaderEvaluator does not save them, so there is no timeline; export its waits as "
            "csv or parquet"
        )


def _writer(form: Format) -> Writer:
    if form is Format.TENSORBOARD:
        from loadeval.export.tensorboard import write_scalars  # noqa: PLC0415 - imports tensorboard

        return write_scalars
    if form is Format.OPENMETRICS:
        from loadeval.export.openmetrics import write_openmetrics  # noqa: PLC0415 - reads the report

        return write_openmetrics
    if form is Format.PARQUET:
        return write_parquet
    return write_csv if form is Format.CSV else write_timeline
