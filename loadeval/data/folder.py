"""A folder of run logs: what each process says of its loaders, and the logs of a job's ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from loadeval.data.log import read_run
from loadeval.data.run import Run
from loadeval.errors import RunLogError

Role = Literal["training", "validation", "other"]
LOG = ".jsonl"
RECORD = re.compile(r"rank\d+.*\.json")
RANK_LOG = re.compile(rf"rank(\d+)(-.*)?\{LOG}")
"""The logs of a rank's loaders. That of its training loader is the one without a second part, or
the one that `loadeval run` names."""


class LoaderRecord(msgspec.Struct, frozen=True):
    """One loader of a process.

    `log` is the name of its run log. `epochs` were asked for, with gradients on if it
    `has_gradients`, and optimizers made `optimizer_steps` between its batches.
    """

    log: str
    role: Role
    has_gradients: bool
    epochs: int
    optimizer_steps: int


class ProcessRecord(msgspec.Struct, frozen=True):
    """One process that iterated loaders; `ended` is True once it has closed its logs."""

    name: str
    rank: int
    pid: int
    ended: bool
    loaders: tuple[LoaderRecord, ...] = ()

    @property
    def main(self) -> LoaderRecord | None:
        """The training loader: the one with most optimizer steps, or with gradients; the first."""
        return max(
            self.loaders,
            key=lambda loader: (loader.optimizer_steps, loader.has_gradients),
            default=None,
        )

    def save(self, folder: Path) -> None:
        """Replace this process's file in `folder`. Raises OSError."""
        path = folder / f"{self.name}.json"
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self))
        new.replace(path)


def processes_in(folder: Path) -> list[ProcessRecord]:
    """The processes that iterated a loader, by rank.

    Raises OSError where `folder` cannot be looked into.
    """
    records = []
    for path in folder.iterdir():
        if not RECORD.fullmatch(path.name):
            continue
        try:
            record = msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # it is made at this moment, or not ours
        if all(loader.log and Path(loader.log).name == loader.log for loader in record.loaders):
            records.append(record)
    return sorted(records, key=lambda record: (record.rank, len(record.name), record.name))


def logs_in(folder: Path) -> list[Path]:
    """The logs of the ranks' training loaders, in the order of ranks; all logs if there are none.

    Raises RunLogError where there is no log.
    """
    if logs := logs_so_far(folder):
        return logs
    runs = sorted({log.parent.name for log in folder.glob(f"*/*{LOG}")})
    expected = f"one that loadeval run or log_file= wrote, such as rank0{LOG}"
    if runs:
        expected = f"the folder of one run, such as {folder / runs[-1]}"
    raise RunLogError(f"there is no run log in {folder}; expected {expected}")


def logs_so_far(folder: Path) -> list[Path]:
    """The logs of a job that goes on, as `logs_in` has them; there may be none yet."""
    mains = [process.main for process in processes_in(folder) if process.main is not None]
    # Another program, beside the one that trains, may only evaluate.
    trained = [loader for loader in mains if loader.role == "training"] or mains
    if trained:
        return [folder / loader.log for loader in trained]
    logs = sorted(path for path in folder.iterdir() if path.suffix == LOG and path.is_file())
    matches = [(RANK_LOG.fullmatch(path.name), path) for path in logs]
    ranks = {int(match[1]): path for match, path in matches if match and not match[2]}
    return [ranks[rank] for rank in sorted(ranks)] or logs


def read_ranks(paths: Sequence[Path]) -> list[Run]:
    """The runs of these logs with their batches alone, for `read_whole` has the rest of one rank.

    The rank of a log that does not tell it is the one in its name. Raises RunLogError.
    """
    ranks: list[Run] = []
    for path in paths:
        run = read_run(path)
        header, match = run.header, RANK_LOG.fullmatch(path.name)
        if "rank" not in header.environment and match is not None:
            place = {"world_size": len(paths), **header.environment, "rank": int(match[1])}
            header = msgspec.structs.replace(header, environment=place)
        of_batches = run.steps, run.ends, run.events, run.prefetches, run.windows
        ranks.append(Run(header, *of_batches, closed=run.closed, notes=run.notes, path=path))
    return ranks


def read_whole(rank: Run) -> Run:
    """All that the log of `rank`, one of `read_ranks`, has."""
    return rank if rank.path is None else replace(read_run(rank.path), header=rank.header)
