"""The lines of a run log: each kind to JSON and back. docs/run-log.md describes every field."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from loadeval.errors import RunLogError
from loadeval.record.model import (
    UNKNOWN,
    Block,
    CacheInfo,
    Column,
    EpochEnd,
    Event,
    Header,
    LoaderInfo,
)

FORMAT = "loadeval-run"
VERSION = 1
COLUMNS = ("request_ns", "wait_ns", "step_ns", "samples", "nbytes")
OPTIONAL_COLUMNS = ("step_ns", "samples", "nbytes")
CHOICES = {
    "mode": ("log", "replay"),
    "arm": ("real", "ideal"),
    "cause": ("exhausted", "broken off", "failed"),
}

Line = Header | Block | EpochEnd | Event
Fields = dict[str, Any]


def encode(line: Line) -> Fields:
    """The JSON-ready form of `line`; a column that is unknown throughout is a plain null."""
    if isinstance(line, Header):
        return {"type": "header", "format": FORMAT, "version": VERSION, **dataclasses.asdict(line)}
    if isinstance(line, Block):
        columns = {name: _column_to_json(getattr(line, name)) for name in COLUMNS}
        return {"type": "block", "epoch": line.epoch, "arm": line.arm, **columns}
    kind = "epoch" if isinstance(line, EpochEnd) else "event"
    return {"type": kind, **dataclasses.asdict(line)}


def to_text(fields: Fields) -> str:
    """One line of the log, its newline included."""
    return json.dumps(fields, separators=(",", ":")) + "\n"


def decode(fields: Fields) -> Line:
    """What a line's fields stand for.

    Raises RunLogError, without a line number, naming what was found and what was expected.
    """
    kind = fields.get("type")
    if kind == "header":
        return _header(fields)
    if kind == "block":
        return _block(fields)
    if kind == "epoch":
        return EpochEnd(
            epoch=_whole(fields, "epoch"),
            cause=_choice(fields, "cause"),
            request_ns=_whole_or_none(fields, "request_ns"),
            wait_ns=_whole_or_none(fields, "wait_ns"),
            error=_text_or_none(fields, "error"),
        )
    if kind == "event":
        return Event(time_ns=_whole(fields, "time_ns"), message=_text(fields, "message"))
    raise RunLogError(
        f"has type {kind!r}, where header, block, epoch, event or end was expected; "
        "if a newer loadeval wrote it, read it with that version"
    )


def _header(fields: Fields) -> Header:
    if fields.get("format") != FORMAT or fields.get("version") != VERSION:
        raise RunLogError(
            f"has format {fields.get('format')!r} version {fields.get('version')!r}, where "
            f"{FORMAT!r} version {VERSION} was expected; read it with the loadeval that wrote it"
        )
    cache = fields.get("cache")
    return Header(
        run_id=_text(fields, "run_id"),
        name=_text(fields, "name"),
        mode=_choice(fields, "mode"),
        created=_text(fields, "created"),
        unit=_text(fields, "unit"),
        warmup=_whole(fields, "warmup"),
        loader=_record(LoaderInfo, _object(fields, "loader"), "loader"),
        settings=_object(fields, "settings"),
        environment=_object(fields, "environment"),
        cache=None if cache is None else _record(CacheInfo, _object(fields, "cache"), "cache"),
    )


def _block(fields: Fields) -> Block:
    columns = {name: _column_from_json(fields, name) for name in COLUMNS}
    length = len(_present(columns, "request_ns"))
    for name, column in columns.items():
        if column is None:
            columns[name] = np.full(length, UNKNOWN, dtype=np.int64)
        elif len(column) != length:
            raise RunLogError(
                f"has {len(column)} values in column {name!r} and {length} in 'request_ns', "
                "where all columns of a block have the same length; the log is damaged there"
            )
    return Block(epoch=_whole(fields, "epoch"), arm=_choice(fields, "arm"), **columns)


def _column_to_json(column: Column) -> list[int | None] | None:
    unknown = column == UNKNOWN
    if not unknown.any():
        return column.tolist()
    if unknown.all():
        return None
    return [None if value == UNKNOWN else value for value in column.tolist()]


def _column_from_json(fields: Fields, name: str) -> Column | None:
    values = _present(fields, name)
    if values is None and name in OPTIONAL_COLUMNS:
        return None
    if not isinstance(values, list):
        raise _unexpected(fields, name, "a list of whole numbers")
    if name in OPTIONAL_COLUMNS and None in values:
        values = [UNKNOWN if value is None else value for value in values]
    column = np.array(values) if values else np.empty(0, dtype=np.int64)
    if column.dtype != np.int64 or column.ndim != 1:
        raise RunLogError(
            f"holds something other than whole numbers in column {name!r}, where nanoseconds, "
            "counts or bytes were expected; the log is damaged there"
        )
    return column


def _record(kind: type[Any], fields: Fields, name: str) -> Any:
    expected = {field.name for field in dataclasses.fields(kind)}
    if fields.keys() != expected:
        different = ", ".join(sorted(fields.keys() ^ expected))
        raise RunLogError(f"has other fields in {name!r} than expected: {different}")
    return kind(**fields)


def _present(fields: Fields, name: str) -> Any:
    if name not in fields:
        raise RunLogError(
            f"has no {name!r}, which every such line has; the log is damaged there "
            "or was not written by loadeval"
        )
    return fields[name]


def _whole(fields: Fields, name: str) -> int:
    value = _present(fields, name)
    if type(value) is not int or value < 0:
        raise _unexpected(fields, name, "a whole number, 0 or more,")
    return value


def _whole_or_none(fields: Fields, name: str) -> int | None:
    return None if _present(fields, name) is None else _whole(fields, name)


def _text(fields: Fields, name: str) -> str:
    value = _present(fields, name)
    if not isinstance(value, str):
        raise _unexpected(fields, name, "text")
    return value


def _text_or_none(fields: Fields, name: str) -> str | None:
    return None if _present(fields, name) is None else _text(fields, name)


def _object(fields: Fields, name: str) -> Fields:
    value = _present(fields, name)
    if not isinstance(value, dict):
        raise _unexpected(fields, name, "an object")
    return value


def _choice(fields: Fields, name: str) -> Any:
    value = _text(fields, name)
    if value not in CHOICES[name]:
        raise _unexpected(fields, name, " or ".join(map(repr, CHOICES[name])))
    return value


def _unexpected(fields: Fields, name: str, expected: str) -> RunLogError:
    shown = repr(fields[name])
    limit = 60
    shown = shown if len(shown) <= limit else shown[:limit] + "…"
    return RunLogError(f"has {shown} as {name!r}, where {expected} was expected")
