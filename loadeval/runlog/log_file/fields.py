"""The fields of a line, from JSON: each is checked by its annotation.

What is wrong raises RunLogError, which says what was found and what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from loadeval.errors import RunLogError
from loadeval.runlog.columns import UNKNOWN, Column, Values, ValuesByName
from loadeval.runlog.stages import StageTimes

STAGE_COLUMNS = tuple(
    field.name for field in fields(StageTimes) if field.type == "Column" and field.name != "batch"
)
OPTIONAL_COLUMNS = ("request_ns", "step_ns", "samples", "nbytes", "gpu_step_ns", *STAGE_COLUMNS)
"""These may be unknown throughout, and are null then."""
WITH_GAPS = ("step_ns", "samples", "nbytes", "gpu_idle_ns", "gpu_step_ns", *STAGE_COLUMNS)
"""These may be unknown in part."""
LATER_STAGE_COLUMNS = (
    *("minor_faults", "system_ns", "private_bytes", "shared_bytes"),
    *("opened_files", "connections", "requests"),
)
MAY_BE_MISSING = (
    *("setting_names", "shards", "dataset_objects", "dataset_object_bytes", "overrides"),
    *("made_at", "calls", "instrumented", "started_ms"),
    *LATER_STAGE_COLUMNS,
    *("elements_before", "elements_after"),
    *("pickling_start_ns", "pickling_ns", "sent_bytes", "unpickling_ns"),
)
"""Older logs do not have these, nor some lines of newer ones."""
NO_LONGER_READ = {"bytes_before", "bytes_after", "varies"}
"""Older logs have these, which are ignored."""
LARGEST = 2**62 - 1
"""It is 146 years in nanoseconds, and twice as much still fits into 64 bits."""
LARGEST_VALUE = 1e100
"""No probe reads more, and the squares of so much still add up to what a float holds."""
WHOLE = "a whole number, 0 or more"
NUMBER = f"a number up to {LARGEST_VALUE:g} or null"
TYPES_IN_WORDS = {int: WHOLE, str: "text", bool: "true or false", NoneType: "null"}

Fields = dict[str, Any]


def fields_of(kind: Any, content: Any) -> Fields:
    """The fields of `kind`, a dataclass: all of `content`, checked by their annotations."""
    if not isinstance(content, dict):
        raise RunLogError("is not a JSON object")
    readers = _readers_of(kind)
    check_names(content, readers)
    return {name: read(name, content[name]) for name, read in readers.items() if name in content}


@cache
def _readers_of(kind: Any) -> dict[str, Callable[[str, Any], Any]]:
    """What checks each field of a dataclass, by its annotation."""
    readers: dict[str, Callable[[str, Any], Any]] = {}
    for name, hint in get_type_hints(kind).items():
        if hint == Column:
            readers[name] = _column_of
        elif hint == ValuesByName:
            readers[name] = _values_by_name
        elif hint == tuple[int, ...]:
            readers[name] = _counts_of
        elif hint == Mapping[str, int]:
            readers[name] = _counts_by_name
        elif get_origin(hint) is tuple:
            readers[name] = partial(_objects_of, get_args(hint)[0])
        else:
            several = isinstance(hint, UnionType) or get_origin(hint) is Literal
            readers[name] = partial(_value, get_args(hint) if several else (hint,))
    return readers


def check_names(content: Fields, expected: Collection[str]) -> None:
    """Raises RunLogError when `found` has other names than `expected`."""
    for name in expected:
        if name not in content and name not in MAY_BE_MISSING:
            raise RunLogError(f"has no {name!r}, which was expected there")
    unknown = ", ".join(
        repr(name) for name in content if name not in expected and name not in NO_LONGER_READ
    )
    if unknown:
        raise RunLogError(
            f"has {_shortened(unknown)}, which the format does not know, where only "
            f"{', '.join(map(repr, expected))} were expected"
        )


def check_lengths(columns: Mapping[str, Any], first: str) -> None:
    """Raises RunLogError when a column is not as long as the one named `first`."""
    length = len(columns[first])
    for name, column in columns.items():
        if len(column) != length:
            raise RunLogError(
                f"has {len(column)} values in {shown(name)} and {length} in {first!r}, "
                "where as many were expected"
            )


def _value(options: tuple[Any, ...], name: str, value: Any) -> Any:
    for option in options:
        if _fits(option, value):
            nested = isinstance(value, dict) and is_dataclass(option)
            return option(**fields_of(option, value)) if nested else value
    raise unexpected(name, value, " or ".join(map(_in_words, options)))


def _fits(option: Any, value: Any) -> bool:
    if isinstance(option, str):
        return bool(value == option)
    if option is int:
        return _is_count(value)
    return isinstance(value, option if option in (str, bool, NoneType) else dict)


def _in_words(option: Any) -> str:
    return repr(option) if isinstance(option, str) else TYPES_IN_WORDS.get(option, "an object")


def _column_of(name: str, values: Any) -> Column | None:
    """The column that a list holds; None for the null of one that may be unknown throughout."""
    optional, gaps = name in OPTIONAL_COLUMNS, name in WITH_GAPS
    if values is None and optional:
        return None
    if not isinstance(values, list):
        raise unexpected(name, values, "a list of whole numbers" + " or null" * optional)
    known = values
    if gaps and None in values:
        known = [value for value in values if value is not None]
        values = [UNKNOWN if value is None else value for value in values]
    _check_counts(name, known, WHOLE + " or null" * gaps)
    return np.array(values, dtype=np.int64)


def _counts_of(name: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise unexpected(name, values, "a list of whole numbers")
    _check_counts(name, values, WHOLE)
    return tuple(values)


def _objects_of(kind: Any, name: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list):
        raise unexpected(name, values, "a list of objects")
    return tuple(kind(**fields_of(kind, value)) for value in values)


def _check_counts(name: str, values: list[Any], expected: str) -> None:
    # Looking at the types and the extremes is quicker than at each value.
    if set(map(type, values)) - {int} or (
        values and not 0 <= min(values) <= max(values) <= LARGEST
    ):
        wrong = next(value for value in values if not _is_count(value))
        raise unexpected(name, wrong, expected)


def _counts_by_name(name: str, counts: Any) -> Mapping[str, int]:
    if not isinstance(counts, dict):
        raise unexpected(name, counts, "an object of whole numbers")
    _check_counts(name, list(counts.values()), WHOLE)
    return counts


def _values_by_name(name: str, columns: Any) -> ValuesByName:
    if not isinstance(columns, dict):
        raise unexpected(name, columns, "an object of lists")
    return {quantity: values_of(quantity, values) for quantity, values in columns.items()}


def values_of(name: str, values: Any) -> Values:
    """The values that a list holds, NaN for null."""
    if not isinstance(values, list):
        raise unexpected(name, values, "a list of numbers or null")
    if set(map(type, values)) <= {int, float, NoneType}:
        with suppress(OverflowError):  # a whole number that is more than a float holds
            numbers: Values = np.array(values, dtype=np.float64)
            if (np.abs(numbers) <= LARGEST_VALUE).sum() == len(values) - values.count(None):
                return numbers
    wrong = next(value for value in values if not (value is None or _is_number(value)))
    raise unexpected(name, wrong, NUMBER)


def _is_count(value: Any) -> bool:
    """Whether `value` is a whole number that a column can hold."""
    return type(value) is int and 0 <= value <= LARGEST


def _is_number(value: Any) -> bool:
    return type(value) in {int, float} and abs(value) <= LARGEST_VALUE


def unexpected(name: str, value: Any, expected: str) -> RunLogError:
    """The error that says what was found as `name` and what was expected there."""
    return RunLogError(f"has {shown(value)} as {shown(name)}, where {expected} was expected")


def shown(value: Any) -> str:
    """What stands in a file, in 60 characters at most, and an ellipsis."""
    try:
        return _shortened(repr(value))
    except RecursionError:
        return "something nested too deep to show"


def _shortened(text: str) -> str:
    limit = 60
    return text if len(text) <= limit else text[:limit] + "…"
