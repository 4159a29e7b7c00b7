"""Reads a file that was mutated, in every way that loadeval does, and objects to what is wrong."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.fuzz.seeds import PROCESS

# Readers are called themselves: a process for each of 100,000 files would take a day.
from loadeval.data.folder import logs_so_far, processes_in
from loadeval.data.log import read_run
from loadeval.errors import LoadevalError
from loadeval.live import FollowedRun

if TYPE_CHECKING:
    from collections.abc import Callable

SLOWEST_S_PER_MB = 5.0
MOST_MB = 300
NAMES_THE_PLACE = re.compile(r", line 1 | is no run log: | is neither a run log |^cannot read ")


def read_all_ways(path: Path) -> str:
    """Whether what is at `path` is "read" or "refused". Raises what is no error of loadeval's.

    Raises AssertionError where the error does not say what is wrong, or reading takes too long.
    """
    readers = [_processes] if path.name == PROCESS else [read_run, _followed]
    outcomes = [_outcome(read, path) for read in readers]
    return outcomes[0]


def _outcome(read: Callable[[Path], object], path: Path) -> str:
    began_s = time.process_time()
    try:
        read(path)
    except LoadevalError as error:
        said = str(error)
        assert NAMES_THE_PLACE.search(said), said
        assert len(said) < 1_000 + len(str(path)), said
        outcome = "refused"
    else:
        outcome = "read"
    took_s = time.process_time() - began_s
    allowed_s = SLOWEST_S_PER_MB * max(path.stat().st_size / 1e6, 1.0)
    assert took_s < allowed_s, f"{read.__name__} took {took_s:.1f} s"
    return outcome


def peak_mb() -> float:
    """The most memory that this process ever had; `ru_maxrss` counts that of its parent too."""
    (most,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(most) / 1024


def _followed(path: Path) -> None:
    """Follow it like `watch` does."""
    followed = FollowedRun(path)
    assert followed.read()
    followed.run.state(0)


def _processes(path: Path) -> None:
    """Read the folder like all commands do."""
    for process in processes_in(path.parent):
        assert all((path.parent / loader.log).parent == path.parent for loader in process.loaders)
    logs_so_far(path.parent)
