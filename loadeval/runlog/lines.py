"""The lines of a run log: each kind to JSON and back. docs/run-log.md describes every field."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from loadeval.errors import RunLogError
from loadeval.runlog.columns import (
    column_from_json,
    column_to_json,
    unexpected,
    values_from_json,
    values_to_json,
)
from loadeval.runlog.fields import (
    Fields,
    check_lengths,
    check_names,
    options_of,
    plain_fields,
    record_of,
)
from loadeval.runlog.model import UNKNOWN, Block, EpochEnd, Event, Excerpt, Header, Pull, Window
from loadeval.runlog.readings import Readings, Starvation
from loadeval.runlog.tally import Tally, check

FORMAT = "loadeval-run"
VERSION = 1
THINNED = 2
"""The version of a log that keeps every N-th batch; any other is of VERSION, as ever."""
COLUMNS = ("request_ns", "wait_ns", "step_ns", "samples", "nbytes")
OPTIONAL_COLUMNS = ("request_ns", "step_ns", "samples", "nbytes")
"""Those that may be unknown throughout."""
WITH_GAPS = ("step_ns", "samples", "nbytes")
"""Those that may be unknown in part."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunEnd:
    """The run ended by itself, after `batches` batches in all."""

    batches: int


Line = Header | Block | Tally | EpochEnd | Pull | Window | Readings | Starvation | Event | RunEnd

KINDS: dict[str, type[Line]] = {
    "header": Header,
    "block": Block,
    "excerpt": Excerpt,
    "tally": Tally,
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
        return fields | _header_to_json(line)
    if isinstance(line, Block | Tally | Readings | Starvation):
        names = [field.name for field in dataclasses.fields(line)]
        return fields | {name: _to_json(getattr(line, name)) for name in names}
    return fields | dataclasses.asdict(line)


def _header_to_json(header: Header) -> Fields:
    fields = dataclasses.asdict(header)
    if header.every == 1:
        del fields["every"]
    return {"format": FORMAT, "version": VERSION if header.every == 1 else THINNED, **fields}


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
    line: Line = TABLES[kind](fields) if kind in TABLES else record_of(kind, fields)
    return line


def _header(fields: Fields) -> Header:
    name, version = fields.pop("format", None), fields.pop("version", None)
    # By their text, for to Python True and 1.0 are equal to 1.
    if repr(name) != repr(FORMAT) or repr(version) not in (repr(VERSION), repr(THINNED)):
        raise RunLogError(
            f"has format {name!r} version {version!r}, where {FORMAT!r} version {VERSION} or "
            f"{THINNED} was expected"
        )
    expected = options_of(Header)
    if version == VERSION:
        check_names(fields, {name: expected[name] for name in expected if name != "every"})
        fields["every"] = 1
    header: Header = record_of(Header, fields)
    if version == THINNED and header.every <= 1:
        raise unexpected("every", header.every, "a whole number, 2 or more,")
    return header


def _excerpt(fields: Fields) -> Excerpt:
    check_names(fields, options_of(Excerpt))
    batch = column_from_json("batch", fields.pop("batch"), gaps=False, optional=False)
    block = _block(fields)
    check_lengths({"wait_ns": block.wait_ns, "batch": batch}, "wait_ns")
    return block.numbered(batch)


def _tally(fields: Fields) -> Tally:
    names = ("wait_bins", "wait_counts", "step_bins", "step_counts")
    plain = plain_fields(Tally, fields, names)
    for name in names:
        plain[name] = column_from_json(name, fields[name], gaps=False, optional=False)
    tally = Tally(**plain)
    check(tally)
    return tally


def _block(fields: Fields) -> Block:
    plain = plain_fields(Block, fields, COLUMNS)
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
    check_lengths(columns, "wait_ns")
    return Block(**plain | columns)


def _readings(fields: Fields) -> Readings:
    plain = plain_fields(Readings, fields, ("time_ns", "values"))
    time_ns = column_from_json("time_ns", fields["time_ns"], gaps=False, optional=False)
    found = fields["values"]
    if not isinstance(found, dict):
        raise unexpected("values", found, "an object of lists")
    values = {name: values_from_json(name, column) for name, column in found.items()}
    check_lengths({"time_ns": time_ns, **values}, "time_ns")
    return Readings(**plain, time_ns=time_ns, values=values)


def _starvation(fields: Fields) -> Starvation:
    plain = plain_fields(Starvation, fields, ("starved_ns",))
    starved_ns = column_from_json("starved_ns", fields["starved_ns"], gaps=True, optional=False)
    return Starvation(**plain, starved_ns=starved_ns)


TABLES: dict[Any, Callable[[Fields], Line]] = {
    Header: _header,
    Block: _block,
    Excerpt: _excerpt,
    Tally: _tally,
    Readings: _readings,
    Starvation: _starvation,
}
"""Kinds of lines that have more than plain fields."""
