"""The lines of a run log, to JSON and back. docs/run-log.md describes every field.

What is wrong with a line raises RunLogError, without path and number, which says what was found
and what was expected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from loadeval.errors import RunLogError
from loadeval.runlog.columns import UNKNOWN, Column, Values
from loadeval.runlog.log_file.fields import (
    LARGEST,
    LARGEST_VALUE,
    LATER_STAGE_COLUMNS,
    OPTIONAL_COLUMNS,
    STAGE_COLUMNS,
    WITH_GAPS,
    Fields,
    check_lengths,
    fields_of,
    shown,
    unexpected,
)
from loadeval.runlog.model import (
    Block,
    EpochEnd,
    Event,
    GpuIdle,
    Header,
    PaddedBatches,
    Prefetch,
    Readings,
    Window,
)
from loadeval.runlog.stages import CodeSamples, OperatorTimes, StageTimes, WorkerStart

FORMAT = "loadeval-run"
VERSION = 1


TIMES, ELEMENTS = ("transform_ns", "transform_calls"), ("elements_before", "elements_after")
"""Columns by transform: all of a group, or none, have one."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The run ended by itself, after `batches` batches in all."""

    batches: int


Line = (
    Header
    | Block
    | EpochEnd
    | Prefetch
    | Window
    | StageTimes
    | WorkerStart
    | CodeSamples
    | OperatorTimes
    | Readings
    | GpuIdle
    | PaddedBatches
    | Event
    | RunEnd
)

KINDS: dict[str, type[Line]] = {
    "header": Header,
    "block": Block,
    "epoch": EpochEnd,
    "prefetch": Prefetch,
    "window": Window,
    "stages": StageTimes,
    "worker_start": WorkerStart,
    "code": CodeSamples,
    "operator": OperatorTimes,
    "readings": Readings,
    "gpu_idle": GpuIdle,
    "padding": PaddedBatches,
    "event": Event,
    "end": RunEnd,
}
FIRST_COLUMNS: dict[type[Line], str] = {
    Block: "wait_ns",
    GpuIdle: "gpu_idle_ns",
    PaddedBatches: "batch",
    StageTimes: "batch",
}
"""Lines of columns, which are as long as this one."""
LINE_TYPES = {kind: name for name, kind in KINDS.items()}


def encode(line: Line) -> Fields:
    """The JSON-ready form of `line`; a column that is unknown throughout is a plain null."""
    content = {field.name: _to_json(getattr(line, field.name)) for field in fields(line)}
    if isinstance(line, Header):
        content = {"format": FORMAT, "version": VERSION, **content}
    if isinstance(line, Block | Prefetch) and not line.instrumented:
        del content["instrumented"]
    for name in ELEMENTS if isinstance(line, StageTimes) else ():
        if not content[name]:
            del content[name]
    return {"type": LINE_TYPES[type(line)], **content}


def _to_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _list_of(value)
    if isinstance(value, Mapping):
        return {name: _to_json(item) for name, item in value.items()}
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _list_of(values: Column | Values) -> list[float | None] | None:
    """A list with null for what is unknown or no reading; None where all of a Column is."""
    whole = values.dtype.kind == "i"
    known = values != UNKNOWN if whole else np.abs(values) <= LARGEST_VALUE
    if whole and len(values) and not known.any():
        return None
    numbers: list[float | None] = values.tolist()
    if known.all():
        return numbers
    return [number if is_known else None for number, is_known in zip(numbers, known, strict=True)]


def to_text(fields: Fields) -> str:
    """One line of the log, its newline included."""
    # A loader may tell its workers, say, as one of NumPy's integers.
    return json.dumps(fields, separators=(",", ":"), default=np.generic.item) + "\n"


def decode(content: Any) -> Line:
    """What a line, parsed from JSON, stands for.

    Raises RunLogError when it stands for nothing.
    """
    if not isinstance(content, dict):
        raise RunLogError("is not a JSON object, where a line of a run log was expected")
    content = dict(content)
    name = content.pop("type", None)
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise unexpected("type", name, " or ".join(map(repr, KINDS)))
    if kind is Header:
        return _header_of(content)
    values = fields_of(kind, content)
    if kind is StageTimes:
        values = dict.fromkeys(LATER_STAGE_COLUMNS) | values
    first = FIRST_COLUMNS.get(kind)
    if first is not None:
        _complete_columns(values, first)
    if kind is StageTimes:
        _check_transforms(values)
    elif kind is Readings:
        check_lengths({"time_ns": values["time_ns"], **values["values"]}, "time_ns")
    line: Line = kind(**values)
    if isinstance(line, Prefetch) and len(line.waits_ns) not in {0, line.batches}:
        expected = f"a wait for each of its {line.batches} batches"
        raise unexpected("waits_ns", content["waits_ns"], expected)
    return line


def check_readable(line: Line) -> None:
    """Raises RunLogError when a log that had `line` could not be read."""
    if not isinstance(line, StageTimes):
        decode(json.loads(to_text(encode(line))))
        return
    # There are many rows, so without encoding them.
    values = {field.name: getattr(line, field.name) for field in fields(line)}
    columns = {name: values[name] for name in ("batch", *STAGE_COLUMNS)}
    for name, column in columns.items():
        least = UNKNOWN if name in WITH_GAPS else 0
        if column.dtype.kind != "i" or ((column < least) | (column > LARGEST)).any():
            raise unexpected(name, column.tolist(), f"a column of whole numbers from {least} on")
    check_lengths(columns, "batch")
    _check_transforms(values)


def _check_transforms(values: Fields) -> None:
    """Raises RunLogError when a transform has more or fewer values than there are batches.

    Or when one of what belongs together is not known, such as its calls.
    """
    for group in (TIMES, ELEMENTS):
        first = values.get(group[0], {})
        for name in group:
            columns = values.get(name, {})
            if columns.keys() != first.keys():
                raise RunLogError(
                    f"has other transforms in {group[0]!r} than in {name!r}, where the same were "
                    "expected"
                )
            by_transform = {f"{name}: {key}": column for key, column in columns.items()}
            check_lengths({"batch": values["batch"], **by_transform}, "batch")


def _header_of(content: Fields) -> Header:
    name, version = content.pop("format", None), content.pop("version", None)
    # Their texts are compared, for to Python True and 1.0 are equal to 1.
    if shown(name) != repr(FORMAT) or shown(version) != repr(VERSION):
        raise RunLogError(
            f"has format {shown(name)} version {shown(version)}, where {FORMAT!r} version "
            f"{VERSION} was expected"
        )
    return Header(**fields_of(Header, content))


def _complete_columns(values: Fields, first: str) -> None:
    """Make a column of each that was null; all must be as long as the one named `first`."""
    for name in OPTIONAL_COLUMNS:
        if name in values and values[name] is None:
            values[name] = np.full(len(values[first]), UNKNOWN)
    columns = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    check_lengths(columns, first)
