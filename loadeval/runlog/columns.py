"""Columns of numbers to JSON and back; what is not known is null there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.errors import RunLogError
from loadeval.runlog.model import UNKNOWN, Column

if TYPE_CHECKING:
    from loadeval.runlog.readings import Values

LARGEST = 2**62 - 1
"""In nanoseconds 146 years; two of them still add up within 64 bits."""
WHOLE = "a whole number, 0 or more"
NUMBER = "a finite number or null"


def column_to_json(column: Column) -> list[int | None] | None:
    """A list with null for UNKNOWN; None where all of some are."""
    unknown = column == UNKNOWN
    if len(column) and unknown.all():
        return None
    values: list[int | None] = column.tolist()
    return [None if value == UNKNOWN else value for value in values] if unknown.any() else values


def column_from_json(name: str, values: Any, *, gaps: bool, optional: bool) -> Column:
    """The column that a list holds; `gaps` may be in it as null, and `optional` is null for all.

    Such a null makes an empty column. Raises RunLogError for anything else.
    """
    if values is None and optional:
        return np.empty(0, dtype=np.int64)
    if not isinstance(values, list):
        raise unexpected(name, values, "a list of whole numbers" + " or null" * optional)
    known = values
    if gaps and None in values:
        known = [value for value in values if value is not None]
        values = [UNKNOWN if value is None else value for value in values]
    # Looking at the types and the extremes is quicker than at each value.
    if set(map(type, known)) - {int} or (known and not 0 <= min(known) <= max(known) <= LARGEST):
        wrong = next(value for value in known if not is_count(value))
        raise unexpected(name, wrong, WHOLE + " or null" * gaps)
    return np.array(values, dtype=np.int64)


def values_to_json(values: Values) -> list[float | None]:
    """A list with null for NaN, and for what is not finite."""
    finite = np.isfinite(values)
    found: list[float | None] = values.tolist()
    return [value if known else None for value, known in zip(found, finite, strict=True)]


def values_from_json(name: str, values: Any) -> Values:
    """The values that a list holds, NaN for null. Raises RunLogError for anything else."""
    if not isinstance(values, list):
        raise unexpected(name, values, "a list of numbers or null")
    for value in values:
        if value is not None and not is_finite(value):
            raise unexpected(name, value, NUMBER)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def is_count(value: Any) -> bool:
    """Whether `value` is a whole number that a column can hold."""
    return type(value) is int and 0 <= value <= LARGEST


def is_finite(value: Any) -> bool:
    """Whether `value` is a number, and not infinite, nor so large that it would be."""
    return type(value) in {int, float} and abs(value) <= sys.float_info.max


def unexpected(name: str, value: Any, expected: str) -> RunLogError:
    """The error that says what was found as `name` and what was expected there."""
    shown = repr(value)
    limit = 60
    shown = shown if len(shown) <= limit else shown[:limit] + "…"
    return RunLogError(f"has {shown} as {name!r}, where {expected} was expected")
