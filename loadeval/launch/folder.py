"""The folder of a run: a file for each process that iterated a loader, beside its logs."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

from loadeval.data.folder import LoaderRecord, processes_in
from loadeval.data.log import read_run
from loadeval.data.run import Run
from loadeval.errors import RunLogError, UsageError

PARENT = Path("loadeval-runs")
LONGEST_NAME = 80
"""Of a folder for logs: a command's line may be longer than the name of a file can be."""


def trainings_in(folder: Path) -> list[list[Path]]:
    """The logs of each training in `folder`, one for each rank, in the order in which they began.

    The logs of a training's ranks have the same name, except for the rank.
    """
    trainings: dict[str, list[Path]] = {}
    for process in processes_in(folder):
        for loader in process.loaders:
            if loader.role == "training" and loader.epochs:
                name = re.sub(r"^rank\d+", "", loader.log)
                trainings.setdefault(name, []).append(folder / loader.log)
    return list(trainings.values())


def loaders_in(folder: Path) -> list[tuple[LoaderRecord, Run]]:
    """The loaders that served something, of each process the training loader first."""
    served: list[tuple[LoaderRecord, Run]] = []
    for process in processes_in(folder):
        main = process.main
        first = sorted(process.loaders, key=lambda record: record is not main)
        runs = ((record, read_run(folder / record.log)) for record in first)
        served += [(record, run) for record, run in runs if run.batches]
    return served


def claimed_name(folder: Path, rank: int) -> str:
    """A name that no other process has in `folder`: rank0, or rank0-run2. Raises OSError."""
    for number in count(1):
        name = f"rank{rank}" if number == 1 else f"rank{rank}-run{number}"
        with suppress(FileExistsError):
            (folder / f"{name}.json").touch(exist_ok=False)
            return name
    raise AssertionError  # pragma: no cover - the numbers do not end


def new_folder(name: str, time: str, output: Path | None = None) -> Path:
    """Make `output`, or `loadeval-runs/NAME-TIME`, with a number where that exists.

    If the current folder cannot be written, it is made in the system's folder for temporary files.
    Raises UsageError if `output` holds something already, RunLogError if it cannot be made.
    """
    try:
        if output is None:
            stem = f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name)[:LONGEST_NAME]}-{time}"
            try:
                PARENT.mkdir(exist_ok=True)
                return _numbered(PARENT / stem).absolute()
            except OSError:  # the folder that we are in cannot be written, or is gone
                return _numbered(Path(mkdtemp(prefix=f"{PARENT.name}-")).absolute() / stem)
        output.mkdir(parents=True, exist_ok=True)
        if any(output.iterdir()):
            raise UsageError(
                f"{output} is not empty, and measurements are not overwritten; expected a new or "
                "an empty folder"
            )
        return output.absolute()
    except OSError as error:
        raise RunLogError(
            f"cannot make a folder for the logs, {error.filename}: {error.strerror}; name one that "
            "can be written with --output"
        ) from error


def _numbered(path: Path) -> Path:
    """A new folder at `path`, with a number where that exists."""
    for number in count(1):
        folder = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError  # pragma: no cover - the numbers do not end
