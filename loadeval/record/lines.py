"""The lines of a run log: each kind to JSON and back. docs/run-log.md describes every field."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from loadeval.errors import RunLogError
from loadeval.record.columns import (
    WHOLE,
    column_from_json,
    column_to_json,
    is_count,
    unexpected,
    values_from_json,
    values_to_json,
)
from loadeval.record.model import UNKNOWN, Block, EpochEnd, Event, Header, Pull, Window
from loadeval.record.readings import Readings, Starvation

FORMAT = "loadeval-run"
VERSION = 1
COLUMNS = ("request_ns", "wait_ns", "step_ns", "samples", "nbytes")
OPTIONAL_COLUMNS = ("request_ns", "step_ns", "samples", "nbytes")
"""Those that may be unknown throughout."""
WITH_GAPS = ("step_ns", "samples", "nbytes")
"""Those that may be unknown in part."""
TYPES_IN_WORDS = {int: WHOLE, str: "text", bool: "true or false", NoneType: "null"}


@dataclasses.dataclass(frozen=True, slots=True)
class RunEnd:
    """The run ended by itself, after `batches` batches in all."""

    batches: int


Line = Header | Block | EpochEnd | Pull | Window | Readings | Starvation | Event | RunEnd
Fields = dict[str, Any]

KINDS: dict[str, type[Line]] = {
    "header": Header,
    "block": Block,
    "epoch": EpochEnd,
    "pull": Pull,
    "window": Window,
    "readings": Readings,
    "starvation": Starvation,
    "event": Event,
    "end": RunEnd,
}
NAMES = {kind: name for name, kind in KINDS.items()}


def encode(line: Line) -> Fields:
    """The JSON-ready form of `line`; a column that is unknown throughout is a plain null."""
    fields: Fields = {"type": NAMES[type(line)]}
    if isinstance(line, Header):
        fields |= {"format": FORMAT, "version": VERSION}
    if isinstance(line, Block | Readings | Starvation):
        names = [field.name for field in dataclasses.fields(line)]
        return fields | {name: _to_json(getattr(line, name)) for name in names}
    return fields | dataclasses.asdict(line)


def _to_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return column_to_json(value)
    if isinstance(value, Mapping):
        return {name: values_to_json(column) for name, column in value.items()}
    return value


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
    line: Line = TABLES[kind](fields) if kind in TABLES else _record(kind, fields)
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
        return is_count(value)
    return isinstance(value, option if option in (str, bool, NoneType) else dict)


def _in_words(option: Any) -> str:
    return repr(option) if isinstance(option, str) else TYPES_IN_WORDS.get(option, "an object")


def _block(fields: Fields) -> Block:
    plain = _plain(Block, fields, COLUMNS)
    columns = {
        name: column_from_json(
            name, fields[name], gaps=name in WITH_GAPS, optional=name in OPTIONAL_COLUMNS
        )
        for name in COLUMNS
    }
    length = len(columns["wait_ns"])
    for name in OPTIONAL_COLUMNS:
        if fields[name] is None:
            columns[name] = np.full(length, UNKNOWN)
    _check_lengths(columns, "wait_ns")
    return Block(**plain | columns)


def _readings(fields: Fields) -> Readings:
    plain = _plain(Readings, fields, ("time_ns", "values"))
    time_ns = column_from_json("time_ns", fields["time_ns"], gaps=False, optional=False)
    found = fields["values"]
    if not isinstance(found, dict):
        raise unexpected("values", found, "an object of lists")
    values = {name: values_from_json(name, column) for name, column in found.items()}
    _check_lengths({"time_ns": time_ns, **values}, "time_ns")
    return Readings(**plain, time_ns=time_ns, values=values)


def _starvation(fields: Fields) -> Starvation:
    plain = _plain(Starvation, fields, ("starved_ns",))
    starved_ns = column_from_json("starved_ns", fields["starved_ns"], gaps=True, optional=False)
    return Starvation(**plain, starved_ns=starved_ns)


TABLES: dict[Any, Callable[[Fields], Line]] = {
    Block: _block,
    Readings: _readings,
    Starvation: _starvation,
}
"""Kinds of lines that hold columns."""


def _plain(kind: Any, fields: Fields, columns: Iterable[str]) -> Fields:
    """The fields that hold one value, checked; and that there are all, and no others."""
    expected = _options(kind)
    _check_names(fields, expected)
    others = expected.keys() - set(columns)
    return {name: _value(expected[name], name, fields[name]) for name in others}


def _check_lengths(columns: Mapping[str, Any], first: str) -> None:
    length = len(columns[first])
    for name, column in columns.items():
        if len(column) != length:
            raise RunLogError(
                f"has {len(column)} values in {name!r} and {length} in {first!r}, where as many "
                "were expected"
            )
