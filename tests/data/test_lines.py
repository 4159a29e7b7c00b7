"""Lines of a run log: what is written is read back equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from loadeval.data.lines import (
    FORMAT,
    VERSION,
    Event,
    Header,
    Line,
    LoaderInfo,
    OperatorTimes,
    Prefetch,
    StageTimes,
    decode,
    encode,
    since,
)
from tests.runs.given import make_header

VALUES: dict[type, Callable[[Any, int], st.SearchStrategy[Any]]] = {
    inspect.IntType: lambda kind, _: st.integers(kind.ge, kind.le),
    inspect.FloatType: lambda kind, _: st.floats(kind.ge, kind.le),
    inspect.BoolType: lambda *_: st.booleans(),
    inspect.StrType: lambda *_: st.text(),
    inspect.NoneType: lambda *_: st.none(),
    inspect.LiteralType: lambda kind, _: st.sampled_from(kind.values),
    inspect.ListType: lambda kind, length: st.lists(
        values_of(kind.item_type, length), min_size=length, max_size=length
    ),
    inspect.DictType: lambda kind, length: st.dictionaries(
        st.text(), values_of(kind.value_type, length), max_size=3
    ),
    inspect.UnionType: lambda kind, length: st.one_of(
        [values_of(each, length) for each in kind.types]
    ),
    inspect.DataclassType: lambda kind, length: st.builds(kind.cls, **fields_of(kind, length)),
    inspect.AnyType: lambda *_: (
        st.none() | st.integers(-9, 9) | st.text() | st.lists(st.booleans())
    ),
}
"""For each type of a field any value of it; each list has that length."""


def values_of(kind: Any, length: int) -> st.SearchStrategy[Any]:
    return VALUES[type(kind)](kind, length)


def fields_of(kind: Any, length: int) -> dict[str, st.SearchStrategy[Any]]:
    return {field.name: values_of(field.type, length) for field in kind.fields}


def lines(kind: type) -> st.SearchStrategy[Any]:
    def of(length: int) -> st.SearchStrategy[Any]:
        fields = fields_of(inspect.type_info(kind), length)
        if kind is Header:
            fields |= {"format": st.just(FORMAT), "version": st.just(VERSION)}
        if kind is Prefetch:  # it has a wait for each batch
            fields["batches"] = st.just(length)
        return st.builds(kind, **fields)

    return st.integers(0, 3).flatmap(of)


@pytest.mark.parametrize("kind", get_args(Line), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_line_comes_back(kind: type, data: st.DataObject) -> None:
    line = data.draw(lines(kind))
    text = encode(line)
    assert text.count(b"\n") == 1
    assert text.startswith(b'{"type":')
    assert decode(text) == line


def test_arrays_become_a_line() -> None:
    """What is not known is null; a column that is unknown throughout is left out."""
    line = StageTimes.of(
        3,
        batch=np.array([0, 1]),
        fetch_ns=np.array([5, -1]),
        pin_ns=np.array([-1, -1]),
        transform_ns={"crop": np.array([7.5, np.nan])},
    )
    assert line == StageTimes(3, [0, 1], fetch_ns=[5, None], transform_ns={"crop": [7.5, None]})
    assert encode(line) == (
        b'{"type":"stages","epoch":3,"batch":[0,1],"fetch_ns":[5,null],'
        b'"transform_ns":{"crop":[7.5,null]}}\n'
    )


def test_moments_count_from_the_start_of_the_run() -> None:
    """Durations stay as they are, and what is not known stays unknown."""
    line = StageTimes(0, [0, 1], requested_ns=[100, None], fetch_ns=[100, 100])
    assert since(line, 30) == StageTimes(0, [0, 1], requested_ns=[70, None], fetch_ns=[100, 100])
    moved = since(OperatorTimes(0, "decode", 1, 900, 500, 3), 400)
    assert (moved.time_ns, moved.elapsed_ns) == (500, 500)


def test_numbers_of_numpy_are_numbers() -> None:
    loader: Any = LoaderInfo("loader", workers=np.int64(3))  # type: ignore[arg-type]  # as told
    again: Any = decode(encode(make_header(loader=loader)))
    assert again.loader.workers == 3


def test_half_of_a_character_is_escaped() -> None:
    """Python has it in the names of files that are not UTF-8, which errors tell."""
    again: Any = decode(encode(Event(3, "cannot read \udcff.jpg")))
    assert again.message == r"cannot read \udcff.jpg"
