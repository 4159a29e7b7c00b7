"""Parts of a run as tests compare them, and copies of anything with changes."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np

from loadeval.data.columns import Columns
from loadeval.data.run import Run


def replace(what: Any, **changes: Any) -> Any:
    """A copy with `changes`, as `copy.replace` of Python 3.13 makes it of anything."""
    if isinstance(what, msgspec.Struct):
        return msgspec.structs.replace(what, **changes)
    return dataclasses.replace(what, **changes)


class Rows:
    """What a loader did for the batches of an epoch: columns of stages, and transforms by name.

    Batches in which a transform was not called have NaN.
    """

    def __init__(self, run: Run, epoch: int, table: Columns) -> None:
        self.epoch, self.table = epoch, table
        self.transform_ns, self.transform_calls = (
            {name: self._spread(each, of) for name, each in run.transforms.items()}
            for of in ("ns", "calls")
        )

    def __len__(self) -> int:
        return len(self.table)

    def __getattr__(self, name: str) -> Any:
        return self.table[name]

    def _spread(self, transform: Columns, name: str) -> np.ndarray:
        called = transform.where(epoch=self.epoch)
        values = np.full(len(self), np.nan)
        values[np.searchsorted(self.table.batch, called.batch)] = called[name]
        return values


def rows_of(run: Run) -> tuple[Rows, ...]:
    """The stages of the run, one Rows for each epoch."""
    return tuple(Rows(run, epoch, table) for epoch, table in run.stages.by("epoch"))
