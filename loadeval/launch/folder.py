"""The folder of a run: a file for each process that iterated a loader, beside its logs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from loadeval.errors import RunLogError, UsageError
from loadeval.runlog.processes import REPLAYED, processes_in

if TYPE_CHECKING:
    from loadeval.runlog.processes import LoaderRecord, Role

PARENT = Path("loadeval-runs")


class NothingMeasured(Enum):
    """Why a command has no log."""

    NO_PYTHON = "no Python was started that reads PYTHONPATH"
    NO_LOADER = "no known loader was iterated"
    FAILED = "a loader could not be measured"
    NO_BATCH = "it ended before a loader served a batch"
    ENDED = "it failed before a loader was iterated"


def is_dataset(name: str) -> bool:
    """Whether the class called `name` is of Hugging Face's datasets, which are no loaders.

    Programs iterate their rows for other ends too.
    """
    return name.startswith("datasets.")


def with_roles(loaders: tuple[LoaderRecord, ...]) -> tuple[LoaderRecord, ...]:
    """Training is what had gradients, and optimizer steps if any loader had them.

    A dataset needs steps of its own. Others keep the role that they have.
    """
    are_steps = any(one.optimizer_steps for one in loaders)

    def role(one: LoaderRecord) -> Role:
        if one.has_gradients is False:
            return "validation"
        may_train = not are_steps and not is_dataset(one.loader)
        return "training" if one.optimizer_steps or may_train else one.role

    return tuple(replace(one, role=role(one)) for one in loaders)


@dataclass(frozen=True, slots=True)
class Training:
    """One training of a command: the logs of its ranks, and those of its second run, a replay."""

    logs: tuple[str, ...]
    replayed: tuple[str, ...] = ()


def trainings_in(folder: Path) -> list[Training]:
    """Those of the processes in `folder`, in the order in which they began.

    The logs of its ranks are called alike, but for the rank.
    """
    found: dict[str, tuple[list[str], list[str]]] = {}
    for replayed in (False, True):
        for process in processes_in(folder, replayed=replayed):
            for one in process.loaders:
                if one.role == "training" and one.epochs:
                    which = re.sub(rf"^rank\d+|({REPLAYED})?\.jsonl$", "", one.log)
                    found.setdefault(which, ([], []))[replayed].append(one.log)
    return [Training(tuple(logs), tuple(again)) for logs, again in found.values()]


def claimed_name(folder: Path, rank: int, suffix: str = "") -> str:
    """A name that no other process has in `folder`: rank0, or rank0-run2. Raises OSError."""
    for number in count(1):
        name = f"rank{rank}{'' if number == 1 else f'-run{number}'}{suffix}"
        try:
            (folder / f"{name}.json").open("x").close()
        except FileExistsError:
            continue
        return name
    raise AssertionError  # pragma: no cover - the numbers do not end


def new_folder(name: str, time: str, output: Path | None = None) -> Path:
    """Make `output`, or `loadeval-runs/NAME-TIME`, with a number where that exists.

    That is in the system's folder for temporary files where the current one cannot be written.
    Raises UsageError if `output` holds something already, RunLogError if it cannot be made.
    """
    try:
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            if any(output.iterdir()):
                raise UsageError(
                    f"{output} is not empty, and measurements are not overwritten; expected a new "
                    "or an empty folder"
                )
            return output.absolute()
        stem = f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name)}-{time}"
        try:
            PARENT.mkdir(exist_ok=True)
            return _numbered(PARENT / stem)
        except OSError:  # the folder that we are in cannot be written, or is gone
            return _numbered(Path(mkdtemp(prefix=f"{PARENT.name}-")) / stem)
    except OSError as error:
        raise RunLogError(
            f"cannot make a folder for the logs: {error}; name one that can be written with "
            "--output"
        ) from error


def _numbered(path: Path) -> Path:
    """Make the folder `path`, with a number where that exists."""
    for number in count(1):
        folder = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder.absolute()
    raise AssertionError  # pragma: no cover - the numbers do not end
