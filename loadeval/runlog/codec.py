"""The lines of a run log, to JSON and back. docs/run-log.md describes every field.

What is wrong with a line raises RunLogError, without path and number, which says what was found
and what was expected.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from loadeval.errors import RunLogError
from loadeval.runlog.histogram import BINS
from loadeval.runlog.model import (
    UNKNOWN,
    Aggregate,
    Block,
    Column,
    EpochEnd,
    Event,
    Excerpt,
    GpuIdle,
    Header,
    Prefetch,
    Readings,
    Values,
    Window,
)

FORMAT = "loadeval-run"
VERSION = 1
THINNED = 2
"""The version of a log that keeps every N-th batch; any other is of VERSION, as ever."""
COLUMNS = ("request_ns", "wait_ns", "step_ns", "samples", "nbytes")
OPTIONAL_COLUMNS = ("request_ns", "step_ns", "samples", "nbytes")
"""Those that may be unknown throughout."""
WITH_GAPS = ("step_ns", "samples", "nbytes")
"""Those that may be unknown in part."""
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


@dataclasses.dataclass(frozen=True, slots=True)
class RunEnd:
    """The run ended by itself, after `batches` batches in all."""

    batches: int


Line = (
    Header | Block | Aggregate | EpochEnd | Prefetch | Window | Readings | GpuIdle | Event | RunEnd
)

KINDS: dict[str, type[Line]] = {
    "header": Header,
    "block": Block,
    "excerpt": Excerpt,
    "aggregate": Aggregate,
    "epoch": EpochEnd,
    "prefetch": Prefetch,
    "window": Window,
    "readings": Readings,
    "gpu_idle": GpuIdle,
    "event": Event,
    "end": RunEnd,
}
LINE_TYPES = {kind: name for name, kind in KINDS.items()}


def encode(line: Line) -> Fields:
    """The JSON-ready form of `line`; a column that is unknown throughout is a plain null."""
    fields: Fields = {"type": LINE_TYPES[type(line)]}
    if isinstance(line, Header):
        return fields | _header_to_json(line)
    if isinstance(line, Block | Aggregate | Readings | GpuIdle):
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
        return _column_to_json(value)
    if isinstance(value, Mapping):
        return {name: _values_to_json(column) for name, column in value.items()}
    return value


def _column_to_json(column: Column) -> list[int | None] | None:
    """A list with null for UNKNOWN; None where all of some are."""
    unknown = column == UNKNOWN
    if len(column) and unknown.all():
        return None
    values: list[int | None] = column.tolist()
    return [None if value == UNKNOWN else value for value in values] if unknown.any() else values


def _values_to_json(values: Values) -> list[float | None]:
    """A list with null for NaN, and for what is not finite."""
    finite = np.isfinite(values)
    found: list[float | None] = values.tolist()
    return [value if known else None for value, known in zip(found, finite, strict=True)]


def to_text(fields: Fields) -> str:
    """One line of the log, its newline included."""
    # A loader may tell its workers, say, as one of NumPy's integers.
    return json.dumps(fields, separators=(",", ":"), default=np.generic.item) + "\n"


def decode(fields: Any) -> Line:
    """What a line, parsed from JSON, stands for.

    Raises RunLogError when it stands for nothing.
    """
    if not isinstance(fields, dict):
        raise RunLogError("is not a JSON object, where a line of a run log was expected")
    fields = dict(fields)
    name = fields.pop("type", None)
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise unexpected("type", name, " or ".join(map(repr, KINDS)))
    line: Line = DECODERS[kind](fields) if kind in DECODERS else _record_of(kind, fields)
    return line


def _decode_header(fields: Fields) -> Header:
    name, version = fields.pop("format", None), fields.pop("version", None)
    # By their text, for to Python True and 1.0 are equal to 1.
    if repr(name) != repr(FORMAT) or repr(version) not in (repr(VERSION), repr(THINNED)):
        raise RunLogError(
            f"has format {name!r} version {version!r}, where {FORMAT!r} version {VERSION} or "
            f"{THINNED} was expected"
        )
    expected = _options_of(Header)
    if version == VERSION:
        _check_names(fields, {name: expected[name] for name in expected if name != "every"})
        fields["every"] = 1
    header: Header = _record_of(Header, fields)
    if version == THINNED and header.every <= 1:
        raise unexpected("every", header.every, "a whole number, 2 or more,")
    return header


def _decode_block(fields: Fields) -> Block:
    plain = _plain_fields(Block, fields, COLUMNS)
    columns = {
        name: _column_from_json(
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


def _decode_excerpt(fields: Fields) -> Excerpt:
    _check_names(fields, _options_of(Excerpt))
    batch = _column_from_json("batch", fields.pop("batch"), gaps=False, optional=False)
    block = _decode_block(fields)
    _check_lengths({"wait_ns": block.wait_ns, "batch": batch}, "wait_ns")
    return block.numbered(batch)


def _decode_aggregate(fields: Fields) -> Aggregate:
    names = ("wait_bins", "wait_counts", "step_bins", "step_counts")
    plain = _plain_fields(Aggregate, fields, names)
    for name in names:
        plain[name] = _column_from_json(name, fields[name], gaps=False, optional=False)
    aggregate = Aggregate(**plain)
    _check_aggregate(aggregate)
    return aggregate


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
    found: list[int] = bins.tolist()
    if any(one >= other for one, other in pairwise([*found, BINS])):
        expected = f"bins under {BINS}, in ascending order, each once,"
        raise unexpected(f"{what}_bins", found, expected)
    total = sum(counts.tolist())
    if len(counts) != len(found) or total != batches:
        raise RunLogError(
            f"has {total} batches in {len(counts)} values of '{what}_counts', where {batches} in "
            f"{len(found)}, one for each bin, were expected"
        )


def _decode_readings(fields: Fields) -> Readings:
    plain = _plain_fields(Readings, fields, ("time_ns", "values"))
    time_ns = _column_from_json("time_ns", fields["time_ns"], gaps=False, optional=False)
    found = fields["values"]
    if not isinstance(found, dict):
        raise unexpected("values", found, "an object of lists")
    values = {name: _values_from_json(name, column) for name, column in found.items()}
    _check_lengths({"time_ns": time_ns, **values}, "time_ns")
    return Readings(**plain, time_ns=time_ns, values=values)


def _decode_gpu_idle(fields: Fields) -> GpuIdle:
    plain = _plain_fields(GpuIdle, fields, ("gpu_idle_ns",))
    gpu_idle_ns = _column_from_json("gpu_idle_ns", fields["gpu_idle_ns"], gaps=True, optional=False)
    return GpuIdle(**plain, gpu_idle_ns=gpu_idle_ns)


DECODERS: dict[Any, Callable[[Fields], Line]] = {
    Header: _decode_header,
    Block: _decode_block,
    Excerpt: _decode_excerpt,
    Aggregate: _decode_aggregate,
    Readings: _decode_readings,
    GpuIdle: _decode_gpu_idle,
}
"""Kinds of lines that have more than plain fields, or may lack one."""


def _record_of(kind: Any, fields: Fields) -> Any:
    """`kind`, a dataclass of plain fields, with all of `fields`, which are checked."""
    expected = _options_of(kind)
    _check_names(fields, expected)
    return kind(**{name: _value(options, name, fields[name]) for name, options in expected.items()})


@cache
def _options_of(kind: Any) -> dict[str, tuple[Any, ...]]:
    """The types or the words that each field of a dataclass may be, by its annotation."""
    return {
        name: get_args(hint)
        if isinstance(hint, UnionType) or get_origin(hint) is Literal
        else (hint,)
        for name, hint in get_type_hints(kind).items()
    }


def _plain_fields(kind: Any, fields: Fields, columns: Iterable[str]) -> Fields:
    """The fields that hold one value, checked; and that there are all, and no others."""
    expected = _options_of(kind)
    _check_names(fields, expected)
    others = expected.keys() - set(columns)
    return {name: _value(expected[name], name, fields[name]) for name in others}


def _check_names(fields: Fields, expected: Fields) -> None:
    """Raises RunLogError when `fields` have other names than `expected`."""
    if fields.keys() == expected.keys():
        return
    for name in expected:
        if name not in fields:
            raise RunLogError(f"has no {name!r}, which was expected there")
    unknown = ", ".join(repr(name) for name in fields if name not in expected)
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
            nested = isinstance(value, dict) and dataclasses.is_dataclass(option)
            return _record_of(option, value) if nested else value
    raise unexpected(name, value, " or ".join(map(_in_words, options)))


def _fits(option: Any, value: Any) -> bool:
    if isinstance(option, str):
        return bool(value == option)
    if option is int:
        return _is_count(value)
    return isinstance(value, option if option in (str, bool, NoneType) else dict)


def _in_words(option: Any) -> str:
    return repr(option) if isinstance(option, str) else TYPES_IN_WORDS.get(option, "an object")


def _column_from_json(name: str, values: Any, *, gaps: bool, optional: bool) -> Column:
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
        wrong = next(value for value in known if not _is_count(value))
        raise unexpected(name, wrong, WHOLE + " or null" * gaps)
    return np.array(values, dtype=np.int64)


def _values_from_json(name: str, values: Any) -> Values:
    """The values that a list holds, NaN for null. Raises RunLogError for anything else."""
    if not isinstance(values, list):
        raise unexpected(name, values, "a list of numbers or null")
    for value in values:
        if value is not None and not _is_finite(value):
            raise unexpected(name, value, NUMBER)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _is_count(value: Any) -> bool:
    """Whether `value` is a whole number that a column can hold."""
    return type(value) is int and 0 <= value <= LARGEST


def _is_finite(value: Any) -> bool:
    """Whether `value` is a number, and not infinite, nor so large that it would be."""
    return type(value) in {int, float} and abs(value) <= sys.float_info.max


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
        self._delivered: dict[int, int] = {}
        self._excerpted: dict[int, int] = {}
        self._aggregated: dict[int, tuple[int, int]] = {}
        self._ended_epochs: set[int] = set()

    def check(self, line: Line) -> None:
        """Raises RunLogError when `line` cannot come now."""
        if self._ended:
            raise RunLogError("comes after the end line, where nothing more was expected")
        if isinstance(line, Header) is self._begun:
            raise RunLogError("is out of order: one header was expected, before everything else")
        self._begun = True
        if isinstance(line, Header):
            self._check_header(line)
        elif isinstance(line, Aggregate):
            self._check_aggregate(line)
        elif isinstance(line, Block):
            self._check_block(line)
        elif isinstance(line, EpochEnd):
            self._check_epoch_end(line)
        elif isinstance(line, Prefetch | Window):
            self._check_epoch(line.epoch)
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
        self._check_epoch(aggregate.epoch)
        if self._every == 1:
            raise RunLogError("is an aggregate, where blocks of all batches were expected")
        first, request_ns = self._aggregated.get(aggregate.epoch, (0, 0))
        if aggregate.first != first:
            raise RunLogError(
                f"begins with batch {aggregate.first} of its epoch, where number {first} was "
                "expected: lines were lost or added"
            )
        if aggregate.request_ns < request_ns:
            raise RunLogError(BACKWARDS)
        self._aggregated[aggregate.epoch] = (first + aggregate.batches, aggregate.end_ns)
        self._batches += aggregate.batches

    def _check_excerpt(self, block: Block) -> None:
        if isinstance(block, Excerpt) is (self._every == 1):
            kinds = "excerpts and aggregates" if self._every > 1 else "blocks of all batches"
            raise RunLogError(f"is of another kind than its log, where {kinds} were expected")
        if not isinstance(block, Excerpt):
            return
        expected = self._excerpted.get(block.epoch, 0)
        for batch in block.batch.tolist():
            if batch != expected:
                raise RunLogError(
                    f"has batch {batch} of its epoch, where number {expected} was expected: one in "
                    f"{self._every} is kept"
                )
            expected += self._every
        self._excerpted[block.epoch] = expected

    def _check_block(self, block: Block) -> None:
        self._check_epoch(block.epoch)
        self._check_excerpt(block)
        self._batches += 0 if isinstance(block, Excerpt) else len(block)
        if not len(block) or block.request_ns[0] == UNKNOWN:
            return
        deliver_ns = block.request_ns + block.wait_ns
        early = len(block) > 1 and (block.request_ns[1:] < deliver_ns[:-1]).any()
        if early or block.request_ns[0] < self._delivered.get(block.epoch, 0):
            raise RunLogError(BACKWARDS)
        self._delivered[block.epoch] = int(deliver_ns[-1])

    def _check_epoch_end(self, end: EpochEnd) -> None:
        self._check_epoch(end.epoch)
        if end.request_ns is not None and end.request_ns < self._delivered.get(end.epoch, 0):
            raise RunLogError(BACKWARDS)
        self._ended_epochs.add(end.epoch)

    def _check_epoch(self, epoch: int) -> None:
        if epoch in self._ended_epochs:
            raise RunLogError(f"is of epoch {epoch}, where none was expected after its epoch line")

    def _check_run_end(self, end: RunEnd) -> None:
        if end.batches != self._batches:
            raise RunLogError(
                f"says that the run had {end.batches} batches, where {self._batches} were "
                "expected from the lines before it: lines were lost or added"
            )
        for epoch in self._aggregated.keys() | self._excerpted.keys():
            self._check_all_kept(epoch)
        self._ended = True

    def _check_all_kept(self, epoch: int) -> None:
        batches, _ = self._aggregated.get(epoch, (0, 0))
        kept, expected = self._excerpted.get(epoch, 0) // self._every, -(-batches // self._every)
        if kept != expected:
            raise RunLogError(
                f"comes after {kept} batches in the excerpts of epoch {epoch}, where {expected} of "
                f"{batches} were expected: lines were lost or added"
            )
