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
from loadeval.runlog.fields import (
    LARGEST,
    LARGEST_VALUE,
    OPTIONAL_COLUMNS,
    STAGE_COLUMNS,
    WITH_GAPS,
    Fields,
    check_lengths,
    check_names,
    fields_of,
    shown,
    unexpected,
)
from loadeval.runlog.histogram import BINS
from loadeval.runlog.model import (
    Aggregate,
    Block,
    EpochEnd,
    Event,
    Excerpt,
    GpuIdle,
    Header,
    Prefetch,
    Readings,
    Window,
)
from loadeval.runlog.stages import CodeSamples, OperatorTimes, StageTimes, WorkerStart

FORMAT = "loadeval-run"
VERSION = 1
THINNED = 2
"""The version of a log that keeps every N-th batch; any other is of VERSION, as ever."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The run ended by itself, after `batches` batches in all."""

    batches: int


Line = (
    Header
    | Block
    | Aggregate
    | EpochEnd
    | Prefetch
    | Window
    | StageTimes
    | WorkerStart
    | CodeSamples
    | OperatorTimes
    | Readings
    | GpuIdle
    | Event
    | RunEnd
)

KINDS: dict[str, type[Line]] = {
    "header": Header,
    "block": Block,
    "excerpt": Excerpt,
    "aggregate": Aggregate,
    "epoch": EpochEnd,
    "prefetch": Prefetch,
    "window": Window,
    "stages": StageTimes,
    "worker_start": WorkerStart,
    "code": CodeSamples,
    "operator": OperatorTimes,
    "readings": Readings,
    "gpu_idle": GpuIdle,
    "event": Event,
    "end": RunEnd,
}
LINE_TYPES = {kind: name for name, kind in KINDS.items()}


def encode(line: Line) -> Fields:
    """The JSON-ready form of `line`; a column that is unknown throughout is a plain null."""
    found = {one.name: _to_json(getattr(line, one.name)) for one in fields(line)}
    if isinstance(line, Header):
        version = VERSION if line.every == 1 else THINNED
        found = {"format": FORMAT, "version": version, **found}
        if version == VERSION:
            del found["every"]
    return {"type": LINE_TYPES[type(line)], **found}


def _to_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _list_of(value)
    if isinstance(value, Mapping):
        return {name: _to_json(one) for name, one in value.items()}
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _list_of(values: Column | Values) -> list[float | None] | None:
    """A list with null for what is unknown or no reading; None where all of a Column is."""
    whole = values.dtype.kind == "i"
    known = values != UNKNOWN if whole else np.abs(values) <= LARGEST_VALUE
    if whole and len(values) and not known.any():
        return None
    found: list[float | None] = values.tolist()
    if known.all():
        return found
    return [one if is_known else None for one, is_known in zip(found, known, strict=True)]


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
    found = fields_of(kind, content)
    if issubclass(kind, Block):
        _complete_columns(found, "wait_ns")
    elif kind is GpuIdle:
        _complete_columns(found, "gpu_idle_ns")
    elif kind is StageTimes:
        _complete_columns(found, "batch")
        _check_transforms(found)
    elif kind is Readings:
        check_lengths({"time_ns": found["time_ns"], **found["values"]}, "time_ns")
    line: Line = kind(**found)
    if isinstance(line, Aggregate):
        _check_aggregate(line)
    elif isinstance(line, Prefetch) and len(line.waits_ns) not in {0, line.batches}:
        expected = f"a wait for each of its {line.batches} batches"
        raise unexpected("waits_ns", content["waits_ns"], expected)
    return line


def check_readable(line: Line) -> None:
    """Raises RunLogError when a log that had `line` could not be read."""
    if not isinstance(line, StageTimes):
        decode(json.loads(to_text(encode(line))))
        return
    # There are many rows, so without encoding them.
    found = {one.name: getattr(line, one.name) for one in fields(line)}
    columns = {name: found[name] for name in ("batch", *STAGE_COLUMNS)}
    for name, column in columns.items():
        least = UNKNOWN if name in WITH_GAPS else 0
        if column.dtype.kind != "i" or ((column < least) | (column > LARGEST)).any():
            raise unexpected(name, column.tolist(), f"a column of whole numbers from {least} on")
    check_lengths(columns, "batch")
    _check_transforms(found)


def _check_transforms(found: Fields) -> None:
    """Raises RunLogError when a transform has more or fewer values than there are batches.

    Or when its calls are not known, or nothing but them.
    """
    if found["transform_ns"].keys() != found["transform_calls"].keys():
        raise RunLogError(
            "has other transforms in 'transform_ns' than in 'transform_calls', where the same were "
            "expected"
        )
    for name in ("transform_ns", "transform_calls"):
        by_transform = {f"{name}: {key}": column for key, column in found[name].items()}
        check_lengths({"batch": found["batch"], **by_transform}, "batch")


def _header_of(content: Fields) -> Header:
    name, version = content.pop("format", None), content.pop("version", None)
    # By their text, for to Python True and 1.0 are equal to 1.
    if shown(name) != repr(FORMAT) or shown(version) not in (repr(VERSION), repr(THINNED)):
        raise RunLogError(
            f"has format {shown(name)} version {shown(version)}, where {FORMAT!r} version "
            f"{VERSION} or {THINNED} was expected"
        )
    if version == VERSION:
        check_names(content, [one.name for one in fields(Header) if one.name != "every"])
        content["every"] = 1
    header = Header(**fields_of(Header, content))
    if version == THINNED and header.every <= 1:
        raise unexpected("every", header.every, "a whole number, 2 or more,")
    return header


def _complete_columns(found: Fields, first: str) -> None:
    """Make a column of each that was null; all must be as long as the one named `first`."""
    for name in OPTIONAL_COLUMNS:
        if name in found and found[name] is None:
            found[name] = np.full(len(found[first]), UNKNOWN)
    columns = {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
    check_lengths(columns, first)


def _check_aggregate(aggregate: Aggregate) -> None:
    """Raises RunLogError when what `aggregate` says does not fit together."""
    if not aggregate.batches:
        raise unexpected("batches", aggregate.batches, "a whole number, 1 or more")
    if aggregate.step_ns is None and aggregate.batches > 1:
        raise unexpected("step_ns", None, "the sum over several batches")
    if not aggregate.first <= aggregate.slowest_batch < aggregate.first + aggregate.batches:
        raise unexpected(
            "slowest_batch", aggregate.slowest_batch, "the number of one of its batches"
        )
    if aggregate.shortest_wait_ns > aggregate.longest_wait_ns:
        raise unexpected("shortest_wait_ns", aggregate.shortest_wait_ns, "at most the longest")
    _check_bins("wait", aggregate.wait_bins, aggregate.wait_counts, aggregate.batches)
    steps = 0 if aggregate.step_ns is None else aggregate.batches
    _check_bins("step", aggregate.step_bins, aggregate.step_counts, steps)


def _check_bins(what: str, bins: Column, counts: Column, batches: int) -> None:
    if (np.diff(bins, append=BINS) <= 0).any():
        expected = f"bins under {BINS}, in ascending order, each once,"
        raise unexpected(f"{what}_bins", bins.tolist(), expected)
    total = sum(counts.tolist())  # exact, where 64 bits may be too few
    if len(counts) != len(bins) or total != batches:
        raise RunLogError(
            f"has {total} batches in {len(counts)} values of '{what}_counts', where {batches} in "
            f"{len(bins)}, one for each bin, were expected"
        )
