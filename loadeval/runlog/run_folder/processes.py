"""What each process of a `loadeval run` says of its loaders, in a file beside their logs."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Literal

from loadeval.runlog.log_file.fields import fields_of

Role = Literal["training", "validation", "other"]
RECORD = re.compile(r"rank\d+.*\.json")


class NothingMeasured(Enum):
    """Why a command has no log."""

    NO_PYTHON = "no Python was started that reads PYTHONPATH"
    NO_LOADER = "no known loader was iterated"
    REFUSED = "a loader does not take the settings of --set"
    FAILED = "a loader could not be measured"
    NO_BATCH = "it ended before a loader served a batch"
    ENDED = "it failed before a loader was iterated"


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
    """One process that iterated loaders; `ended` is True once it has closed its logs.

    `started_ms` is when the system started it, in milliseconds since 1970.
    """

    name: str
    rank: int
    pid: int
    host: str
    ended: bool
    loaders: tuple[LoaderRecord, ...] = ()
    started_ms: int | None = None

    @property
    def main(self) -> LoaderRecord | None:
        """The training loader: the one with most optimizer steps, or with gradients; the first."""
        return max(
            self.loaders,
            key=lambda loader: (loader.optimizer_steps, loader.has_gradients is not False),
            default=None,
        )

    def save(self, folder: Path) -> None:
        """Replace this process's file in `folder`. Raises OSError."""
        path = folder / f"{self.name}.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)), encoding="utf-8")
        new.replace(path)


def processes_in(folder: Path) -> list[ProcessRecord]:
    """The processes that iterated a loader, by rank.

    Raises OSError where `folder` cannot be looked into.
    """
    paths = (path for path in folder.iterdir() if RECORD.fullmatch(path.name))
    records = filter(None, map(_read, paths))
    return sorted(records, key=lambda record: (record.rank, len(record.name), record.name))


def _read(path: Path) -> ProcessRecord | None:
    try:
        with path.open("rb") as file:
            record = ProcessRecord(**fields_of(ProcessRecord, json.load(file)))
    except (OSError, ValueError, RecursionError):
        return None  # claimed a moment ago, or not ours
    names = [loader.log for loader in record.loaders]
    return record if all(name and Path(name).name == name for name in names) else None
