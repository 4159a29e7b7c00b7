"""The folder of a run: a file for each process that iterated a loader, beside its logs."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from enum import Enum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loadeval.errors import RunLogError, UsageError

if TYPE_CHECKING:
    import os

Role = Literal["training", "validation", "other"]
PARENT = Path("loadeval-runs")
REPLAYED = "-replay"
"""Ends the names of what a second run of the command wrote, that of `--replay`."""


class NothingMeasured(Enum):
    """Why a command has no log."""

    NO_PYTHON = "no Python was started that reads PYTHONPATH"
    NO_LOADER = "no known loader was iterated"
    FAILED = "a loader could not be measured"


@dataclass(frozen=True, slots=True)
class LoaderRecord:
    """One loader of a process.

    `log` is the name of its run log. `has_gradients` tells whether gradients were on when its
    first batch was asked for, None before that. `optimizer_steps` counts those between its batches.
    """

    log: str
    role: Role
    mode: str
    loader: str
    dataset: str | None
    has_gradients: bool | None
    epochs: int
    optimizer_steps: int


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process that iterated loaders; `ended` is True once it has closed its logs."""

    name: str
    rank: int
    pid: int
    host: str
    ended: bool
    loaders: tuple[LoaderRecord, ...] = ()

    @property
    def main(self) -> LoaderRecord | None:
        """The training loader: the one with most optimizer steps, or with gradients; the first."""
        return max(
            self.loaders,
            key=lambda one: (one.optimizer_steps, one.has_gradients is not False),
            default=None,
        )

    def save(self, folder: Path) -> None:
        """Replace this process's file in `folder`. Raises OSError."""
        path = folder / f"{self.name}.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)), encoding="utf-8")
        new.replace(path)


def with_roles(loaders: tuple[LoaderRecord, ...]) -> tuple[LoaderRecord, ...]:
    """Training is what had gradients, and optimizer steps if any loader had."""
    are_steps = any(one.optimizer_steps for one in loaders)

    def role(one: LoaderRecord) -> Role:
        if one.has_gradients is False:
            return "validation"
        return "training" if one.optimizer_steps or not are_steps else "other"

    return tuple(replace(one, role=role(one)) for one in loaders)


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
        PARENT.mkdir(exist_ok=True)
        stem = f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name)}-{time}"
        for number in count(1):
            folder = PARENT / (stem if number == 1 else f"{stem}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder.absolute()
    except OSError as error:
        raise RunLogError(
            f"cannot make a folder for the logs: {error}; name one that can be written with "
            "--output"
        ) from error
    raise AssertionError  # pragma: no cover - the numbers do not end


def processes_in(folder: Path, *, replayed: bool = False) -> list[ProcessRecord]:
    """The processes that iterated a loader, by rank: of the first run of the command, or second."""
    found = [_read(path) for path in sorted(folder.glob("rank*.json"))]
    chosen = (one for one in found if one is not None and one.name.endswith(REPLAYED) is replayed)
    return sorted(chosen, key=lambda one: (one.rank, len(one.name), one.name))


def _read(path: Path) -> ProcessRecord | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        loaders = tuple(LoaderRecord(**one) for one in found.pop("loaders"))
        return ProcessRecord(**found, loaders=loaders)
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None  # claimed a moment ago, or not ours


def training_logs(path: str | os.PathLike[str]) -> list[Path]:
    """`path` itself; of a run's folder the log of each process's training loader, by rank.

    Where there was a replay, the first real log and the first replayed one. Raises RunLogError if
    there is none.
    """
    folder = Path(path)
    if not folder.is_dir():
        return [folder]
    real, replayed = (
        [folder / one.main.log for one in processes_in(folder, replayed=again) if one.main]
        for again in (False, True)
    )
    logs = [*real[:1], *replayed[:1]] if replayed else real
    if not logs:
        raise RunLogError(
            f"there is no run log in the folder {path}; expected the folder of a `loadeval run` "
            "whose command has iterated a data loader"
        )
    return logs
