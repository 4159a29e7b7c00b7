"""The lines of a run log: each kind to JSON and back. docs/run-log.md describes every field."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from loadeval.errors import RunLogError
from loadeval.record.model import UNKNOWN, Block, Column, EpochEnd, Event, Header, Pull, Window

FORMAT = "loadeval-run"
VERSION = 1
COLUMNS = ("request_ns", "wait_ns", "step_ns", "samples", "nbytes")
OPTIONAL_COLUMNS = ("request_ns", "step_ns", "samples", "nbytes")
"""Those that may be unknown throughout; all but the first may be so in part."""
LARGEST = 2**62 - 1
"""In nanoseconds 146 years; two of them still add up within 64 bits."""

WHOLE = "a whole number, 0 or more"
TYPES_IN_WORDS = {int: WHOLE, str: "text", bool: "true or false", NoneType: "null"}


@dataclasses.dataclass(frozen=True, slots=True)
class RunEnd:
    """The run ended by itself, after `batches` batches in all."""

    batches: int


Line = Header | Block | EpochEnd | Pull | Window | Event | RunEnd
Fields = dict[str, Any]

KINDS: dict[str, type[Line]] = {
    "header": Header,
    "block": Block,
    "epoch": EpochEnd,
    "pull": Pull,
    "window": Window,
    "event": Event,
    "end": RunEnd,
}
NAMES = {kind: name for name, kind in KINDS.items()}


def encode(line: Line) -> Fields:
    """The JSON-ready form of `line`; a column that is unknown throughout is a plain null."""
    fields: Fields = {"type": NAMES[type(line)]}
    if isinstance(line, Header):
        fields |= {"format": FORMAT, "version": VERSION}
    if isinstance(line, Block):
        columns = {name: _column_to_json(getattr(line, name)) for name in COLUMNS}
        return {**fields, "epoch": line.epoch, "arm": line.arm, "pair": line.pair, **columns}
    return fields | dataclasses.asdict(line)


def to_text(fields: Fields) -> str:
    """One line of the log, its newline included."""
    # A loader may tell its workers, say, as one of NumPy's integers.
    return json.dumps(fields, separators=(",", ":"), default=np.generic.item) + "\n"


def decode(fields: Any) -> Line:
    """What a line, parsed from JSON, stands for.

    Raises RunLogError, without path and number, naming what was found and what was expected.
    """
    if not isinstance(fields, dict):
        raise RunLogError("is not a JSON object, where a line of a run log was expected")
    fields = dict(fields)
    name = fields.pop("type", None)
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise unexpected("type", name, " or ".join(map(repr, KINDS)))
    if kind is Header:
        _check_version(fields.pop("format", None), fields.pop("version", None))
    line: Line = _block(fields) if kind is Block else _record(kind, fields)
    return line


def _check_version(name: Any, version: Any) -> None:
    # By their text, for to Python True and 1.0 are equal to 1.
    if (repr(name), repr(version)) != (repr(FORMAT), repr(VERSION)):
        raise RunLogError(
            f"has format {name!r} version {version!r}, where {FORMAT!r} version {VERSION} was "
            "expected"
        )


def _record(kind: Any, fields: Fields) -> Any:
    expected = _options(kind)
    _check_names(fields, expected)
    return kind(**{name: _value(options, name, fields[name]) for name, options in expected.items()})


@cache
def _options(kind: Any) -> dict[str, tuple[Any, ...]]:
    """The types or the words that each field of a dataclass may be, by its annotation."""
    return {
        name: get_args(hint)
        if isinstance(hint, UnionType) or get_origin(hint) is Literal
        else (hint,)
        for name, hint in get_type_hints(kind).items()
    }


def _check_names(fields: Fields, expected: Fields) -> None:
    if fields.keys() == expected.keys():
        return
    for name in expected:
        if name not in fields:
            raise RunLogError(f"has no {name!r}, which was expected there")
    unknown = ", ".join(repr(name) for name in fields if name not in expected)
    raise RunLogError(
        f"has {unknown}, which version {VERSION} of the format does not know, where only "
        f"{', '.join(map(repr, expected))} were expected"
    )


def _value(options: tuple[Any, ...], name: str, value: Any) -> Any:
    for option in options:
        if _fits(option, value):
            nested = isinstance(value, dict) and dataclasses.is_dataclass(option)
            return _record(option, value) if nested else value
    raise unexpected(name, value, " or ".join(map(_in_words, options)))


def _fits(option: Any, value: Any) -> bool:
    if isinstance(option, str):
        return bool(value == option)
    if option is int:
        return _is_count(value)
    return isinstance(value, option if option in (str, bool, NoneType) else dict)


def _in_words(option: Any) -> str:
    return repr(option) if isinstance(option, str) else TYPES_IN_WORDS.get(option, "an object")


def _block(fields: Fields) -> Block:
    expected = _options(Block)
    _check_names(fields, expected)
    columns = {name: _column_from_json(name, fields[name]) for name in COLUMNS}
    length = len(columns["wait_ns"])
    for name, column in columns.items():
        if fields[name] is None:
            columns[name] = np.array([UNKNOWN] * length, dtype=np.int64)
        elif len(column) != length:
            raise RunLogError(
                f"has {len(column)} values in {name!r} and {length} in 'wait_ns', where as many "
                "were expected"
            )
    others = set(expected) - set(COLUMNS)
    values = {name: _value(expected[name], name, fields[name]) for name in others}
    return Block(**values | columns)


def _column_to_json(column: Column) -> list[int | None] | None:
    unknown = column == UNKNOWN
    if len(column) and unknown.all():
        return None
    values: list[int | None] = column.tolist()
    return [None if value == UNKNOWN else value for value in values] if unknown.any() else values


def _column_from_json(name: str, values: Any) -> Column:
    if values is None and name in OPTIONAL_COLUMNS:
        return np.empty(0, dtype=np.int64)
    if not isinstance(values, list):
        or_null = " or null" if name in OPTIONAL_COLUMNS else ""
        raise unexpected(name, values, "a list of whole numbers" + or_null)
    known = values
    gaps = name in OPTIONAL_COLUMNS[1:]
    if gaps and None in values:
        known = [value for value in values if value is not None]
        values = [UNKNOWN if value is None else value for value in values]
    # Looking at the types and the extremes is quicker than at each value.
    if set(map(type, known)) - {int} or (known and not 0 <= min(known) <= max(known) <= LARGEST):
        wrong = next(value for value in known if not _is_count(value))
        raise unexpected(name, wrong, WHOLE + (" or null" if gaps else ""))
    return np.array(values, dtype=np.int64)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def unexpected(name: str, value: Any, expected: str) -> RunLogError:
    """The error that says what was found as `name` and what was expected there."""
    shown = repr(value)
    limit = 60
    shown = shown if len(shown) <= limit else shown[:limit] + "…"
    return RunLogError(f"has {shown} as {name!r}, where {expected} was expected")
