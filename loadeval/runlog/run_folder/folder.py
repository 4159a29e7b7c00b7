"""Folders of run logs: those of the ranks of one job, read in parallel."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.errors import RunLogError
from loadeval.runlog.log_file.reader import Assembly, read_run
from loadeval.runlog.model import Run, Steps
from loadeval.runlog.run_folder.processes import processes_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOG = ".jsonl"
RANK_LOG = re.compile(rf"rank(\d+)\{LOG}")
"""A rank's training loader has a log of this name, unless `loadeval run` names another."""
OF_RANK = re.compile(rf"rank(\d+)(-.*)?\{LOG}")
"""All loaders of a rank have logs of such names."""
NOT_NEEDED = ("stages", "worker_start", "code", "operator", "readings", "gpu_idle")
"""These lines are most of a log, and those of one rank are enough."""


def logs_in(folder: Path) -> list[Path]:
    """The logs of the ranks' training loaders, in the order of ranks; all logs if there are none.

    Raises RunLogError where there is no log.
    """
    logs = logs_so_far(folder)
    if not logs:
        raise RunLogError(
            f"there is no run log in {folder}; expected one for each rank: "
            f"rank0{LOG}, rank1{LOG} and so on"
        )
    return logs


def logs_so_far(folder: Path) -> list[Path]:
    """The logs of a job that goes on, as `logs_in` has them; there may be none yet."""
    trained = _trained(folder)
    if trained:
        return trained
    names = [path.name for path in folder.iterdir() if path.is_file()]
    ranks = {int(match[1]): name for name in names if (match := RANK_LOG.fullmatch(name))}
    logs = [name for _, name in sorted(ranks.items())]
    logs = logs or sorted(name for name in names if name.endswith(LOG))
    return [folder / name for name in logs]


def _trained(folder: Path) -> list[Path]:
    """What `loadeval run` says the training loaders are; none where it did not write `folder`."""
    processes = processes_in(folder)
    mains = [process.main for process in processes if process.main is not None]
    # Another program, beside the one that trains, may only evaluate.
    trained = [loader for loader in mains if loader.role == "training"] or mains
    return [folder / loader.log for loader in trained]


def read_ranks(paths: Sequence[Path]) -> list[Run]:
    """What these logs say of batches, without what NOT_NEEDED names.

    Columns that are equal are there but once. The rank of a log that does not tell it is the one in
    its name. Raises RunLogError.
    """
    ranks: list[Run] = []
    for path in paths:
        placed = _placed(read_batches(path), path, len(paths))
        ranks.append(_sharing(placed, ranks[0].steps) if ranks else placed)
    return ranks


def read_whole(rank: Run) -> Run:
    """All that the log of `rank`, one of `read_ranks`, has."""
    if rank.path is None:
        return rank
    return replace(read_run(rank.path), header=rank.header)


def read_batches(path: Path) -> Run:
    """The run in `path` without what NOT_NEEDED names. Raises RunLogError."""
    return Assembly.of_file(path, without=NOT_NEEDED).run()


def _placed(run: Run, path: Path, count: int) -> Run:
    environment, match = run.header.environment, OF_RANK.fullmatch(path.name)
    if "rank" in environment or match is None:
        return run
    place = {"rank": int(match[1]), "world_size": environment.get("world_size", count)}
    return replace(run, header=replace(run.header, environment={**environment, **place}))


def _sharing(run: Run, like: Steps) -> Run:
    """`run` with the columns of `like` where they are equal, so that these are there but once."""
    columns = {name: getattr(run.steps, name) for name in Steps.__slots__}
    for name, column in columns.items():
        if np.array_equal(column, getattr(like, name)):
            columns[name] = getattr(like, name)
    return replace(run, steps=Steps(**columns))
