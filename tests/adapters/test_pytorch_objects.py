"""The estimate of how many Python objects a dataset holds."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from loadeval_adapters.pytorch_objects import objects_in
from tests.adapters.loaders import describe

ROWS = 10_000


class Rows(Dataset[Any]):
    """A dataset of `rows`."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([str(row) for row in range(ROWS)], ROWS, id="texts"),
        pytest.param([(row, str(row)) for row in range(ROWS)], 3 * ROWS, id="tuples"),
        pytest.param([{"a": row, "b": [row]} for row in range(ROWS)], 6 * ROWS, id="dicts"),
        pytest.param({str(row): row for row in range(ROWS)}, 2 * ROWS, id="a dict"),
        pytest.param({str(row) for row in range(ROWS)}, ROWS, id="a set"),
        pytest.param([Rows("a") for _ in range(ROWS)], 3 * ROWS, id="instances"),
        pytest.param(np.zeros(ROWS), 1, id="an array"),
        pytest.param([], 1, id="nothing"),
        pytest.param(sys, 1, id="a module"),
    ],
)
def test_each_object_counts(rows: Any, expected: int) -> None:
    """What holds them counts too: the list, the dataset and its attribute's name."""
    assert objects_in(Rows(rows)) == pytest.approx(expected, abs=4)


def test_items_of_different_sizes_are_spread() -> None:
    """Not only the first ones are looked at."""
    rows = [[0] * (10 if row < ROWS / 2 else 30) for row in range(ROWS)]
    assert objects_in(rows) == pytest.approx(21 * ROWS, rel=0.05)


def test_a_list_that_holds_itself_ends() -> None:
    """It is looked into so many times only."""
    rows: list[Any] = []
    rows.append(rows)
    assert objects_in(rows) in range(10)


def test_slots_are_attributes() -> None:
    """They are counted as those in a dict."""

    class Row:
        __slots__ = ("text",)

        def __init__(self, text: str) -> None:
            self.text = text

    assert objects_in([Row(str(row)) for row in range(ROWS)]) == pytest.approx(3 * ROWS, abs=4)


def test_a_dataset_whose_attributes_raise() -> None:
    """How many it holds is not known."""

    class Odd:
        @property
        def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
            raise RuntimeError

    assert objects_in(Odd()) is None


def test_the_log_has_it() -> None:
    """An evaluator of a DataLoader notes how many objects its dataset has."""
    assert describe(DataLoader(Rows(list("abc")))).dataset_objects == 6
