"""Columns of equal length, by name: what a run's figures are kept in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
Rows = npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice
"""Which rows: a mask, their numbers, or a slice."""
UNKNOWN = -1
"""What is not known, in a column of integers; in one of floats that is NaN."""


class Columns:
    """A table: NumPy arrays of equal length, by name. `table.wait_ns` is `table["wait_ns"]`.

    It cannot be written to: `replace` and the others make another table, which shares the arrays
    that stay the same.
    """

    __slots__ = ("_arrays",)

    def __init__(self, arrays: Mapping[str, npt.ArrayLike]) -> None:
        self._arrays = {name: np.asarray(values).view() for name, values in arrays.items()}
        for column in self._arrays.values():
            column.setflags(write=False)

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._arrays)

    def __len__(self) -> int:
        return len(next(iter(self._arrays.values()), ()))

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._arrays[name]

    def get(self, name: str, otherwise: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The column of that name, or what is given in its place."""
        return self._arrays.get(name, otherwise)

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name.startswith("_") or name not in self._arrays:
            raise AttributeError(f"there is no column {name!r}")
        return self._arrays[name]

    def __repr__(self) -> str:
        return f"Columns({len(self)} rows of {', '.join(self._arrays)})"

    def take(self, rows: Rows) -> Columns:
        """These rows alone."""
        return Columns({name: column[rows] for name, column in self._arrays.items()})

    def where(self, **values: int) -> Columns:
        """The rows in which these columns have these values."""
        rows = np.ones(len(self), dtype=np.bool_)
        for name, value in values.items():
            rows &= self._arrays[name] == value
        return self.take(rows)

    def by(self, name: str) -> list[tuple[int, Columns]]:
        """Each value of the column of that name, in order, with its rows."""
        order = np.argsort(self[name], kind="stable")
        values, starts = np.unique(self[name][order], return_index=True)
        rows = np.split(order, starts[1:]) if len(order) else []
        return [(value, self.take(each)) for value, each in zip(values.tolist(), rows, strict=True)]

    def replace(self, **columns: npt.ArrayLike) -> Columns:
        """This table with these columns in place of its own, or beside them."""
        return Columns({**self._arrays, **columns})

    @classmethod
    def empty(cls, names: Iterable[str]) -> Columns:
        """Columns of integers without a row."""
        return cls({name: np.empty(0, dtype=np.int64) for name in names})

    @classmethod
    def of_rows(cls, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Columns:
        """These rows, which have a value for each name."""
        if not rows:
            return cls.empty(names)
        return cls(dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True)))

    @classmethod
    def concat(cls, parts: Sequence[Columns]) -> Columns:
        """The rows of `parts`, one after the other; what a part does not have is not known."""
        kinds = {name: part[name].dtype for part in parts for name in part.names}
        columns = {}
        for name, kind in kinds.items():
            unknown = np.nan if kind.kind == "f" else UNKNOWN
            columns[name] = np.concatenate(
                [
                    part[name] if name in part else np.full(len(part), unknown, kind)
                    for part in parts
                ]
            )
        return cls(columns)


def column_of(values: Sequence[int | None]) -> Column:
    """A column of whole numbers, of which None is not known."""
    return np.array([UNKNOWN if value is None else value for value in values], dtype=np.int64)


def listed(column: Column) -> list[Any] | None:
    """The column as a list, None for what is not known; None for one that is unknown throughout."""
    known = column != UNKNOWN
    values: list[Any] | None = column.tolist() if known.any() or not len(column) else None
    if values is None or known.all():
        return values
    return [None if value == UNKNOWN else value for value in values]


def mean_known(column: Column) -> float | None:
    """The mean of what is known; None where nothing is."""
    known = column[column != UNKNOWN]
    return float(known.mean()) if len(known) else None
