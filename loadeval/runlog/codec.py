"""The lines of a run log, to JSON and back. docs/run-log.md describes every field.

What is wrong with a line raises RunLogError, without path and number, which says what was found
and what was expected.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from loadeval.errors import RunLogError
from loadeval.runlog.columns import UNKNOWN, Column, Values, ValuesByName
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
STAGE_COLUMNS = tuple(
    one.name for one in fields(StageTimes) if one.type == "Column" and one.name != "batch"
)
OPTIONAL_COLUMNS = ("request_ns", "step_ns", "samples", "nbytes", *STAGE_COLUMNS)
"""Those that may be unknown throughout, and are null then."""
WITH_GAPS = ("step_ns", "samples", "nbytes", "gpu_idle_ns", *STAGE_COLUMNS)
"""Those that may be unknown in part."""
MAY_BE_MISSING = (
    *("waits_ns", "end_ns", "began_ns", "minor_faults"),
    *("dataset", "sampler", "worker_init"),
)
"""Fields that older logs do not have."""
LARGEST = 2**62 - 1
"""In nanoseconds 146 years; two of them still add up within 64 bits."""
WHOLE = "a whole number, 0 or more"
NUMBER = "a finite number or null"
TYPES_IN_WORDS = {int: WHOLE, str: "text", bool: "true or false", NoneType: "null"}
BACKWARDS = (
    "goes back in time: it holds a request before the delivery that the same epoch last had, "
    "where times in the order of the clock were expected"
)

Fields = dict[str, Any]


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
    """A list with null for what is unknown or not finite; None where all of a Column is."""
    whole = values.dtype.kind == "i"
    known = values != UNKNOWN if whole else np.isfinite(values)
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
    found = _fields_of(kind, content)
    if issubclass(kind, Block):
        _complete_columns(found, "wait_ns")
    elif kind is StageTimes:
        _complete_columns(found, "batch")
        _check_transforms(found)
    elif kind is Readings:
        _check_lengths({"time_ns": found["time_ns"], **found["values"]}, "time_ns")
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
    _check_lengths(columns, "batch")
    _check_transforms(found)


def _check_transforms(found: Fields) -> None:
    """Raises RunLogError when a transform has more or fewer values than there are batches."""
    for name in ("transform_ns", "transform_calls"):
        by_transform = {f"{name}: {key}": column for key, column in found[name].items()}
        _check_lengths({"batch": found["batch"], **by_transform}, "batch")


def _header_of(content: Fields) -> Header:
    name, version = content.pop("format", None), content.pop("version", None)
    # By their text, for to Python True and 1.0 are equal to 1.
    if repr(name) != repr(FORMAT) or repr(version) not in (repr(VERSION), repr(THINNED)):
        raise RunLogError(
            f"has format {name!r} version {version!r}, where {FORMAT!r} version {VERSION} or "
            f"{THINNED} was expected"
        )
    if version == VERSION:
        _check_names(content, [name for name in _readers_of(Header) if name != "every"])
        content["every"] = 1
    header = Header(**_fields_of(Header, content))
    if version == THINNED and header.every <= 1:
        raise unexpected("every", header.every, "a whole number, 2 or more,")
    return header


def _complete_columns(found: Fields, first: str) -> None:
    """Make a column of each that was null; all must be as long as the one named `first`."""
    for name in OPTIONAL_COLUMNS:
        if name in found and found[name] is None:
            found[name] = np.full(len(found[first]), UNKNOWN)
    columns = {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
    _check_lengths(columns, first)


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


def _fields_of(kind: Any, content: Fields) -> Fields:
    """The fields of `kind`, a dataclass: all of `content`, checked by their annotations."""
    readers = _readers_of(kind)
    _check_names(content, readers)
    return {name: read(name, content[name]) for name, read in readers.items() if name in content}


@cache
def _readers_of(kind: Any) -> dict[str, Callable[[str, Any], Any]]:
    """What checks each field of a dataclass, by its annotation."""
    found: dict[str, Callable[[str, Any], Any]] = {}
    for name, hint in get_type_hints(kind).items():
        if hint == Column:
            found[name] = _column_of
        elif hint == ValuesByName:
            found[name] = _values_by_name
        elif hint == tuple[int, ...]:
            found[name] = _counts_of
        elif hint == Mapping[str, int]:
            found[name] = _counts_by_name
        else:
            several = isinstance(hint, UnionType) or get_origin(hint) is Literal
            found[name] = partial(_value, get_args(hint) if several else (hint,))
    return found


def _check_names(found: Fields, expected: Collection[str]) -> None:
    """Raises RunLogError when `found` has other names than `expected`."""
    for name in expected:
        if name not in found and name not in MAY_BE_MISSING:
            raise RunLogError(f"has no {name!r}, which was expected there")
    unknown = ", ".join(repr(name) for name in found if name not in expected)
    if unknown:
        raise RunLogError(
            f"has {unknown}, which the format does not know, where only "
            f"{', '.join(map(repr, expected))} were expected"
        )


def _check_lengths(columns: Mapping[str, Any], first: str) -> None:
    """Raises RunLogError when a column is not as long as the one named `first`."""
    length = len(columns[first])
    for name, column in columns.items():
        if len(column) != length:
            raise RunLogError(
                f"has {len(column)} values in {name!r} and {length} in {first!r}, where as many "
                "were expected"
            )


def _value(options: tuple[Any, ...], name: str, value: Any) -> Any:
    for option in options:
        if _fits(option, value):
            nested = isinstance(value, dict) and is_dataclass(option)
            return option(**_fields_of(option, value)) if nested else value
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
    return {quantity: _values_of(quantity, values) for quantity, values in columns.items()}


def _values_of(name: str, values: Any) -> Values:
    """The values that a list holds, NaN for null."""
    if not isinstance(values, list):
        raise unexpected(name, values, "a list of numbers or null")
    for value in values:
        # No more than a float holds, either: it would be infinite.
        finite = type(value) in {int, float} and abs(value) <= sys.float_info.max
        if value is not None and not finite:
            raise unexpected(name, value, NUMBER)
    return np.array(values, dtype=np.float64)


def _is_count(value: Any) -> bool:
    """Whether `value` is a whole number that a column can hold."""
    return type(value) is int and 0 <= value <= LARGEST


def unexpected(name: str, value: Any, expected: str) -> RunLogError:
    """The error that says what was found as `name` and what was expected there."""
    shown = repr(value)
    limit = 60
    shown = shown if len(shown) <= limit else shown[:limit] + "…"
    return RunLogError(f"has {shown} as {name!r}, where {expected} was expected")


class LineValidator:
    """Sees the lines of one log, one after the other, and objects to what cannot be."""

    def __init__(self) -> None:
        self._begun = self._ended = False
        self._batches = 0
        self._every = 1
        self._delivered_ns: dict[int, int] = {}
        self._excerpted: dict[int, int] = {}
        self._aggregated: dict[int, int] = {}
        self._aggregated_ns: dict[int, int] = {}
        self._ended_epochs: set[int] = set()

    def check(self, line: Line) -> None:
        """Raises RunLogError when `line` cannot come now."""
        if self._ended:
            raise RunLogError("comes after the end line, where nothing more was expected")
        if isinstance(line, Header) is self._begun:
            raise RunLogError("is out of order: one header was expected, before everything else")
        self._begun = True
        if (
            isinstance(line, Block | Aggregate | EpochEnd | Prefetch | Window)
            and line.epoch in self._ended_epochs
        ):
            raise RunLogError(
                f"is of epoch {line.epoch}, where none was expected after its epoch line"
            )
        if isinstance(line, Header):
            self._check_header(line)
        elif isinstance(line, Aggregate):
            self._check_aggregate(line)
        elif isinstance(line, Block):
            self._check_block(line)
        elif isinstance(line, EpochEnd):
            self._check_epoch_end(line)
        elif isinstance(line, RunEnd):
            self._check_run_end(line)

    def _check_header(self, header: Header) -> None:
        self._every = header.every
        if header.every > 1 and header.mode != "log":
            raise RunLogError(
                f"keeps one batch in {header.every} in mode {header.mode!r}, where mode 'log' was "
                "expected"
            )

    def _check_aggregate(self, aggregate: Aggregate) -> None:
        epoch = aggregate.epoch
        if self._every == 1:
            raise RunLogError("is an aggregate, where blocks of all batches were expected")
        first = self._aggregated.get(epoch, 0)
        if aggregate.first != first:
            raise RunLogError(
                f"begins with batch {aggregate.first} of its epoch, where number {first} was "
                "expected: lines were lost or added"
            )
        if aggregate.request_ns < self._aggregated_ns.get(epoch, 0):
            raise RunLogError(BACKWARDS)
        self._aggregated[epoch] = first + aggregate.batches
        self._aggregated_ns[epoch] = aggregate.end_ns
        self._batches += aggregate.batches

    def _check_block(self, block: Block) -> None:
        if isinstance(block, Excerpt) is (self._every == 1):
            kinds = "excerpts and aggregates" if self._every > 1 else "blocks of all batches"
            raise RunLogError(f"is of another kind than its log, where {kinds} were expected")
        if isinstance(block, Excerpt):
            self._check_numbers(block)
        else:
            self._batches += len(block)
        if not len(block) or block.request_ns[0] == UNKNOWN:
            return
        deliver_ns = block.request_ns + block.wait_ns
        early = (block.request_ns[1:] < deliver_ns[:-1]).any()
        if early or block.request_ns[0] < self._delivered_ns.get(block.epoch, 0):
            raise RunLogError(BACKWARDS)
        self._delivered_ns[block.epoch] = int(deliver_ns[-1])

    def _check_numbers(self, excerpt: Excerpt) -> None:
        expected = self._excerpted.get(excerpt.epoch, 0)
        for batch in excerpt.batch.tolist():
            if batch != expected:
                raise RunLogError(
                    f"has batch {batch} of its epoch, where number {expected} was expected: one in "
                    f"{self._every} is kept"
                )
            expected += self._every
        self._excerpted[excerpt.epoch] = expected

    def _check_epoch_end(self, end: EpochEnd) -> None:
        if end.request_ns is not None and end.request_ns < self._delivered_ns.get(end.epoch, 0):
            raise RunLogError(BACKWARDS)
        self._ended_epochs.add(end.epoch)

    def _check_run_end(self, end: RunEnd) -> None:
        if end.batches != self._batches:
            raise RunLogError(
                f"says that the run had {end.batches} batches, where {self._batches} were "
                "expected from the lines before it: lines were lost or added"
            )
        for epoch in self._aggregated.keys() | self._excerpted.keys():
            batches = self._aggregated.get(epoch, 0)
            kept, expected = (
                self._excerpted.get(epoch, 0) // self._every,
                -(-batches // self._every),
            )
            if kept != expected:
                raise RunLogError(
                    f"comes after {kept} batches in the excerpts of epoch {epoch}, where "
                    f"{expected} of {batches} were expected: lines were lost or added"
                )
        self._ended = True
