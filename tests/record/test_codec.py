"""Every kind of line as JSON and back, whatever is in it; and JSON that may be no line."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from loadeval.errors import RunLogError
from loadeval.runlog.codec import (
    KINDS,
    LARGEST,
    OPTIONAL_COLUMNS,
    WITH_GAPS,
    decode,
    encode,
    to_text,
)
from loadeval.runlog.histogram import BINS
from loadeval.runlog.model import (
    UNKNOWN,
    Aggregate,
    Block,
    Event,
    Excerpt,
    GpuIdle,
    Header,
    Readings,
)

Draw = st.DrawFn
WHOLE = st.integers(0, LARGEST)
TEXT = st.text(st.characters(), max_size=9)
"""Of any character, lone surrogates too, which a message may have."""
JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(TEXT, some, max_size=3),
    max_leaves=6,
)


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Values that the annotation of a field allows."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if is_dataclass(hint):
        return objects(hint)
    plain = {int: WHOLE, str: TEXT, bool: st.booleans(), type(None): st.none()}
    if hint in plain:
        return plain[hint]
    if type(None) in get_args(hint):
        return st.one_of(*map(of, get_args(hint)))
    return st.dictionaries(TEXT, JSON, max_size=3)


def objects(kind: Any, **columns: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lines of a `kind` whose fields are plain, but for `columns`."""
    hints = get_type_hints(kind)
    others = {name: of(hint) for name, hint in hints.items() if name not in columns}
    return st.builds(kind, **others, **columns)


def column(rows: int, least: int = 0, most: int = LARGEST) -> st.SearchStrategy[Any]:
    return arrays(np.int64, rows, elements=st.integers(least, most))


@st.composite
def blocks(draw: Draw, kind: Any = Block) -> Any:
    """Columns of one length, those that may be unknown being so in part or throughout."""
    rows = draw(st.integers(0, 4))
    names = [field.name for field in fields(kind) if field.type == "Column"]
    columns = {name: column(rows, UNKNOWN if name in WITH_GAPS else 0) for name in names}
    for name in OPTIONAL_COLUMNS:
        columns[name] |= st.just(np.full(rows, UNKNOWN))
    return draw(objects(kind, **columns))


@st.composite
def aggregates(draw: Draw) -> Any:
    """Totals of one batch or several, that fit together."""
    batches = draw(st.integers(1, 9))
    first = draw(WHOLE.filter(lambda first: first + 9 <= LARGEST))
    shortest, longest = sorted((draw(WHOLE), draw(WHOLE)))
    step_ns = draw(WHOLE if batches > 1 else st.none() | WHOLE)
    histograms = {}
    for what, count in (("wait", batches), ("step", batches * (step_ns is not None))):
        counts = np.bincount(
            draw(arrays(np.int64, count, elements=st.integers(0, BINS - 1))), minlength=BINS
        )
        histograms[f"{what}_bins"] = st.just(np.flatnonzero(counts))
        histograms[f"{what}_counts"] = st.just(counts[counts > 0])
    return draw(
        objects(
            Aggregate,
            batches=st.just(batches),
            first=st.just(first),
            slowest_batch=st.integers(first, first + batches - 1),
            shortest_wait_ns=st.just(shortest),
            longest_wait_ns=st.just(longest),
            step_ns=st.just(step_ns),
            **histograms,
        )
    )


@st.composite
def readings(draw: Draw) -> Any:
    """Quantities of any name, as many values each as there are times."""
    rows = draw(st.integers(0, 4))
    values = arrays(np.float64, rows, elements=st.floats())
    return draw(
        objects(Readings, time_ns=column(rows), values=st.dictionaries(TEXT, values, max_size=3))
    )


LINES = {
    **{name: objects(kind) for name, kind in KINDS.items()},
    "header": objects(Header, every=st.integers(1, LARGEST)),
    "block": blocks(),
    "excerpt": blocks(Excerpt),
    "aggregate": aggregates(),
    "readings": readings(),
    "gpu_idle": objects(
        GpuIdle, gpu_idle_ns=st.integers(0, 4).flatmap(lambda rows: column(rows, UNKNOWN))
    ).filter(lambda line: not len(line) or (line.gpu_idle_ns != UNKNOWN).any()),
}


def plain(line: Any) -> Any:
    """What compares, by the names of the fields; NaN and what is not finite as None."""
    if isinstance(line, np.ndarray):
        return [value if np.isfinite(value) else None for value in line.tolist()]
    if is_dataclass(line):
        return {field.name: plain(getattr(line, field.name)) for field in fields(line)}
    return {name: plain(one) for name, one in line.items()} if isinstance(line, dict) else line


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_line_comes_back(kind: str, data: st.DataObject) -> None:
    """Of the same kind, with the same in each field, and in one line of ASCII."""
    line = data.draw(LINES[kind])
    text = to_text(encode(line))
    assert text.isascii()
    assert text.index("\n") == len(text) - 1
    again = decode(json.loads(text))
    assert type(again) is KINDS[kind]
    assert plain(again) == plain(line)


def test_an_event_without_a_kind_is_a_note() -> None:
    """Older logs have none."""
    assert decode({"type": "event", "time_ns": 1, "message": "m"}) == Event(1, "m", "note")


@given(data=st.data(), value=JSON)
def test_a_line_is_read_or_refused(data: st.DataObject, value: Any) -> None:
    """With one field lost, added or changed to anything, all that is raised is RunLogError."""
    line = json.loads(to_text(encode(data.draw(st.one_of(*LINES.values())))))
    name = data.draw(st.sampled_from(sorted(line)) | TEXT)
    known, lost = name in line, data.draw(st.booleans())
    changed = {key: one for key, one in line.items() if key != name}
    if not (known and lost):
        changed[name] = value
    try:
        found = decode(changed)
    except RunLogError as error:
        assert "expected" in str(error)  # noqa: PT017 - what is raised is not the point
    else:
        assert known
        assert not lost or (line["type"], name) == ("event", "kind")
        assert plain(decode(json.loads(to_text(encode(found))))) == plain(found)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_field_too_few_or_too_many_is_named(kind: str, data: st.DataObject) -> None:
    """A line has all of its fields, and no others: nothing is read past."""
    line = json.loads(to_text(encode(data.draw(LINES[kind]))))
    with pytest.raises(RunLogError, match="has 'color', which the format does not know, where"):
        decode({**line, "color": "red"})
    optional = {"kind"} if kind == "event" else set()
    for name in line.keys() - {"type", "format", "version"} - optional:
        with pytest.raises(RunLogError, match=f"^has no '{name}', which was expected there$"):
            decode({key: value for key, value in line.items() if key != name})
