"""The runs that a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.errors import UsageError
from loadeval.runlog.reader import read_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadeval.runlog.model import Run


def read_each_once(paths: Sequence[Path]) -> list[Run]:
    """The runs in these files. Raises UsageError where a file was given twice."""
    if len({path.resolve() for path in paths}) < len(paths):
        told = ", ".join(map(str, paths))
        raise UsageError(f"{told}: the same file was given twice; expected different runs")
    return [read_run(path) for path in paths]
