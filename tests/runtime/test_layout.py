"""What batches are like, and in what those of several backends differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from loadeval.runtime.backends import Layout, differences, layout_of


def words(batch: Any) -> str:
    return layout_of(batch, None, None).in_words()


def test_arrays_are_told_by_shape_and_type() -> None:
    """Whatever holds them."""
    images, labels = np.zeros((4, 3, 8, 8), np.uint8), np.zeros(4, np.int64)
    expected = "(4, 3, 8, 8) uint8, (4,) int64"
    assert words((images, labels)) == words({"images": images, "labels": labels}) == expected


def test_tensors_and_arrays_of_one_type_are_alike() -> None:
    """torch.uint8 is NumPy's uint8."""
    assert layout_of(torch.zeros(2, 3), 2, 5) == layout_of(np.zeros((2, 3), np.float32), 2, 5)


def test_frameworks_own_names_of_a_type_are_alike() -> None:
    """What one calls FLOAT is float32."""

    class Array:
        shape, dtype, nbytes = (2,), "DALIDataType.FLOAT", 8

    assert words([Array()]) == "(2,) float32"


def test_other_leaves_are_told_by_their_class() -> None:
    """Those that are alike and follow each other once."""
    assert words([["a", "b", "c"], 1]) == "3 x str, int"


def test_what_has_no_one_shape_is_told_by_its_class() -> None:
    """A nested tensor has rows of several lengths."""
    rows = [torch.zeros(2), torch.zeros(3)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    assert words(nested) == "NestedTensor"


def test_a_batch_of_many_leaves_is_not_told_whole() -> None:
    """After six it says how many there are more."""
    assert words([np.zeros(size) for size in range(9)]).endswith("(5,) float64 and 3 more")


def test_an_empty_batch_is_called_so() -> None:
    """It has no leaves."""
    assert words([]) == "empty"


def test_alike_backends_do_not_differ() -> None:
    """There is nothing to tell of them, nor of a single one."""
    one = Layout(4, ("(4,) uint8",), 10)
    assert differences({"torch": one, "dali": one}) == []
    assert differences({"torch": one}) == []
    assert differences({}) == []


def test_each_difference_from_the_first_is_told() -> None:
    """Leaves, samples, and batches an epoch."""
    one, other = Layout(4, ("(4,) uint8",), 10), Layout(8, ("(8,) int64",), 1005)
    assert differences({"torch": one, "dali": other, "spdl": one}) == [
        "dali: batch 0 is (8,) int64 where torch has (4,) uint8",
        "dali: batch 0 has 8 samples where torch has 4",
        "dali: an epoch has 1,005 batches where torch has 10",
    ]


def test_what_is_not_known_is_no_difference() -> None:
    """A loader without a length may have as many batches as the others."""
    one, other = Layout(4, ("str",), 10), Layout(None, ("str",), None)
    assert differences({"torch": one, "spdl": other}) == []
    assert differences({"spdl": other, "torch": one}) == []
