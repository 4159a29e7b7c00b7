"""The folder of a run: a file for each process that iterated a loader, beside its logs."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
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


def claimed(name: str, claim: Callable[[str], object], before_number: str = "-") -> str:
    """`name`, or the first of NAME-2, NAME-3 and so on for which `claim` finds no file there.

    Raises what `claim` raises, but for FileExistsError.
    """
    number = 1
    while True:
        own_name = name if number == 1 else f"{name}{before_number}{number}"
        with suppress(FileExistsError):
            claim(own_name)
            return own_name
        number += 1


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
                return (PARENT / claimed(stem, lambda name: (PARENT / name).mkdir())).absolute()
            except OSError:  # the folder that we are in cannot be written, or is gone
                folder = Path(mkdtemp(prefix=f"{PARENT.name}-")).absolute() / stem
                folder.mkdir()
                return folder
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
