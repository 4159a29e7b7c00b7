"""The estimate of how many Python objects a dataset holds."""

from __future__ import annotations

import sys
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from loadeval_adapters.torch_trace import objects as torch_objects
from loadeval_adapters.torch_trace.objects import Objects, objects_in
from tests.adapters.loaders import describe

ROWS = 10_000


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy would end looking early."""
    monkeypatch.setattr(torch_objects, "perf_counter_ns", lambda: 0)


class Rows(Dataset[Any]):
    """A dataset of `rows`."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


Point = namedtuple("Point", ("x", "y"))  # noqa: PYI024 - a tuple's class without annotations


def counted(dataset: Any) -> int:
    """How many objects are found in it."""
    found = objects_in(dataset)
    assert found is not None
    return found.number


def large(number: int) -> int:
    """An integer of its own; Python keeps small ones."""
    return number + 1000


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([str(large(row)) for row in range(ROWS)], ROWS, id="texts"),
        pytest.param([(large(row), str(large(row))) for row in range(ROWS)], 3 * ROWS, id="tuples"),
        pytest.param([Point(large(row), None) for row in range(ROWS)], 2 * ROWS, id="namedtuples"),
        pytest.param(
            [{"a": large(row), "b": [2.5 * row]} for row in range(ROWS)], 4 * ROWS, id="dicts"
        ),
        pytest.param({str(large(row)): large(row) for row in range(ROWS)}, 2 * ROWS, id="a dict"),
        pytest.param({str(large(row)) for row in range(ROWS)}, ROWS, id="a set"),
        pytest.param([Rows(large(row)) for row in range(ROWS)], 2 * ROWS, id="instances"),
        pytest.param(np.zeros(ROWS), 1, id="an array"),
        pytest.param([], 1, id="nothing"),
        pytest.param(sys, 1, id="a module"),
    ],
)
def test_each_object_counts(rows: Any, expected: int) -> None:
    """What holds them counts too: the list and the dataset."""
    assert counted(Rows(rows)) == pytest.approx(expected, rel=0.1, abs=4)


def test_an_object_that_several_hold_counts_once() -> None:
    """As a label that all rows have, and the names in a row."""
    label = "a label"
    rows = [{"label": label, "row": large(row)} for row in range(ROWS)]
    assert counted(rows) == pytest.approx(2 * ROWS, rel=0.1)


@pytest.mark.parametrize(
    ("rows", "each"),
    [
        pytest.param([str(large(row)) * 40 for row in range(ROWS)], 49 + 4.1 * 40, id="texts"),
        pytest.param([(2.5 * row,) for row in range(ROWS)], 16 + 32 + 24, id="tuples"),
        pytest.param([np.zeros(1000) for _ in range(20)], 112, id="arrays"),
    ],
)
def test_their_bytes(rows: list[Any], each: float) -> None:
    """By what each takes and the list's pointer to it; the buffer of an array does not count."""
    found = objects_in(rows)
    assert found is not None
    assert found.nbytes == pytest.approx((each + 8) * len(rows), rel=0.1)


def test_nothing_of_a_users_class_is_called() -> None:
    """Neither its length and items nor its attributes or size."""

    class Strict(list[Any]):
        def fail(self, *_: Any) -> Any:
            raise AssertionError

        __len__ = __iter__ = __getitem__ = __getattribute__ = __sizeof__ = __eq__ = fail
        __hash__ = __class__ = fail  # type: ignore[assignment]

    assert counted([Strict([large(row)]) for row in range(ROWS)]) == pytest.approx(2 * ROWS, abs=4)


def test_looking_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its time is over what was seen until then stands for the rest."""
    monkeypatch.setattr(torch_objects, "MOST_NS", 0)
    rows = [[2.5 * row, 3.5 * row] for row in range(ROWS)]
    assert counted(rows) == pytest.approx(3 * ROWS, abs=4)
    assert counted([rows[0], *[[] for _ in rows]]) == pytest.approx(3 * ROWS, rel=0.01)


def test_items_of_different_sizes_are_spread() -> None:
    """Not only the first ones are looked at."""
    rows = [[2.5 * place for place in range(10 if row < ROWS / 2 else 30)] for row in range(ROWS)]
    assert counted(rows) == pytest.approx(21 * ROWS, rel=0.05)


def test_a_list_that_holds_itself_ends() -> None:
    """It is looked into once."""
    rows: list[Any] = []
    rows.append(rows)
    assert counted(rows) == 1


def test_slots_are_attributes() -> None:
    """They are counted as those in a dict."""

    class Row:
        __slots__ = ("text",)

        def __init__(self, text: str) -> None:
            self.text = text

    assert counted([Row(str(large(row))) for row in range(ROWS)]) == pytest.approx(2 * ROWS, abs=4)


def test_a_dataset_whose_attributes_raise() -> None:
    """How many it holds is not known."""

    class Odd:
        @property
        def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
            raise RuntimeError

    assert objects_in(Odd()) is None


def test_the_log_has_it() -> None:
    """An evaluator of a DataLoader notes how many objects its dataset has, and their size."""
    rows = Rows(list("abc"))
    info = describe(DataLoader(rows))
    assert objects_in(rows) == Objects(info.dataset_objects or 0, info.dataset_object_bytes or 0)
    assert info.dataset_objects == 5
