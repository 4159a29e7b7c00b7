"""Export a run in formats that other tools open: a timeline, tables."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from loadeval.data.columns import UNKNOWN
from loadeval.errors import UsageError
from loadeval.export.files import new_files
from loadeval.export.tables import write_csv
from loadeval.export.trace import write_timeline

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.data.run import Run


class Format(str, Enum):
    """A file format that another tool opens."""

    CHROME = "chrome"
    CSV = "csv"


ENDINGS = {Format.CHROME: ".trace.json", Format.CSV: ".csv"}


def default_path(run_path: Path, form: Format) -> Path:
    """Where the run at `run_path` is exported to by default: next to it."""
    return run_path.with_name(run_path.stem + ENDINGS[form])


def export_run(run: Run, form: Format, path: Path, *, overwrite: bool = False) -> list[Path]:
    """Write `run` to `path`: a timeline, or the first of two or three tables.

    Returns the written files. Raises UsageError if one exists and `overwrite` is not set, if
    they cannot be written, or if a timeline needs times that the run does not have.
    """
    requests = run.steps.request_ns
    if form is Format.CHROME and len(requests) and (requests == UNKNOWN).all():
        raise UsageError(
            f"{run.path} has no times at which batches were requested, since DALI's "
            "LoaderEvaluator does not save them, so there is no timeline; export its waits as csv"
        )
    with new_files(path, overwrite=overwrite) as files:
        (write_timeline if form is Format.CHROME else write_csv)(run, path, files)
    return list(files.parts)
