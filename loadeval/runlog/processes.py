"""What each process of a `loadeval run` says of its loaders, in a file beside their logs."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from loadeval.runlog.fields import fields_of
from loadeval.runlog.remote import names_in, open_binary

Role = Literal["training", "validation", "other"]
REPLAYED = "-replay"
"""Ends the names of what a second run of the command wrote, that of `--replay`."""
RECORD = re.compile(r"rank\d+.*\.json")


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


def processes_in(folder: Path, *, replayed: bool = False) -> list[ProcessRecord]:
    """The processes that iterated a loader, by rank: of the first run of the command, or second.

    Raises OSError or RunLogError where `folder` cannot be looked into.
    """
    names = [name for name in names_in(folder) if RECORD.fullmatch(name)]
    found = [_read(folder / name) for name in names]
    chosen = (one for one in found if one is not None and one.name.endswith(REPLAYED) is replayed)
    return sorted(chosen, key=lambda one: (one.rank, len(one.name), one.name))


def _read(path: Path) -> ProcessRecord | None:
    try:
        with open_binary(path) as file:
            found = ProcessRecord(**fields_of(ProcessRecord, json.load(file)))
    except (OSError, ValueError, RecursionError):
        return None  # claimed a moment ago, or not ours
    names = [one.log for one in found.loaders]
    return found if all(name and Path(name).name == name for name in names) else None
