"""What a batch holds, leaf by leaf."""

from __future__ import annotations

import array
import enum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from loadeval import IterableAdapter, is_array
from loadeval.runtime.batch import survey

DENSE = torch.tensor([[0.0, 1.0, 0.0, 2.0], [0.0] * 4, [3.0, 0.0, 0.0, 0.0], [0.0] * 4])


def test_samples_bytes_and_leaves_are_found_in_one_walk() -> None:
    """Samples are the first dimension of the first array that has one; bytes are of all."""
    batch = {"flag": torch.tensor(True), "x": [torch.zeros(4, 2), np.zeros(3)], "text": ("a", 1)}
    assert survey(batch) == (4, 1 + 32 + 24, 5)


def test_byte_strings_have_bytes_and_no_samples() -> None:
    """So have views of memory; texts and numbers have neither."""
    batch = [b"ab", bytearray(3), memoryview(array.array("d", [1.0])), "text", 7]
    assert survey(batch) == (None, 2 + 3 + 8, 5)
    assert survey(["text", 7, object()]) == (None, None, 3)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("layout", "blocks", "nbytes"),
    [
        (torch.sparse_coo, None, 3 * (2 * 8 + 4)),
        (torch.sparse_csr, None, 5 * 8 + 3 * (8 + 4)),
        (torch.sparse_csc, None, 5 * 8 + 3 * (8 + 4)),
        (torch.sparse_bsr, (2, 2), 3 * 8 + 3 * (8 + 16)),
        (torch.sparse_bsc, (2, 2), 3 * 8 + 3 * (8 + 16)),
    ],
    ids=str,
)
def test_a_sparse_tensor_takes_what_its_parts_take(
    layout: torch.layout, blocks: tuple[int, int] | None, nbytes: int
) -> None:
    """Its samples are those of its shape, and it is an array like others."""
    sparse = DENSE.to_sparse(layout=layout, blocksize=blocks)
    assert survey([sparse]) == (4, nbytes, 1)
    assert is_array(sparse)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_has_its_bytes() -> None:
    """That of the older kind tells no shape, so it tells no samples."""
    parts = [torch.zeros(2, 3), torch.zeros(4, 3)]
    assert survey(torch.nested.nested_tensor(parts)) == (None, 72, 1)
    assert survey(torch.nested.nested_tensor(parts, layout=torch.jagged))[0] == 2


def test_bytes_are_unknown_where_those_of_one_array_are() -> None:
    """A sum over the others would be too low; samples are known all the same."""
    sizeless = SimpleNamespace(shape=(2,), dtype="int", nbytes=None)
    assert survey([torch.zeros(4), sizeless, b"abc"]) == (4, None, 3)


def test_an_array_by_its_own_attributes_is_one() -> None:
    """Shape, dtype and nbytes make an array, be they the class's or the object's own."""
    assert survey([SimpleNamespace(shape=(3, 2), dtype="int", nbytes=48)]) == (3, 48, 1)


def test_a_dataclass_is_no_array() -> None:
    """Nor is a dict with a shape: both are taken apart, as they are for replay."""

    class Table(dict[str, Any]):
        shape, dtype, nbytes = (9,), "mixed", 99

    assert survey(Table(x=torch.zeros(4))) == (4, 16, 1)


def test_a_container_that_fails_leaves_everything_unknown() -> None:
    """What an adapter is asked of it raises nothing."""

    class Broken(dict[str, Any]):
        def values(self) -> Any:
            raise OSError

    assert survey([torch.zeros(4), Broken()])[:2] == (None, None)
    assert IterableAdapter().samples(Broken()) is None


def test_an_object_whose_shape_fails_is_no_array() -> None:
    """Whatever its property raises."""

    class Failing:
        dtype = "int"

        @property
        def shape(self) -> Any:
            raise OSError

    assert not is_array(Failing())
    assert survey([Failing(), torch.zeros(2)]) == (2, 8, 2)


def test_a_class_with_shapes_of_its_own_is_no_batch() -> None:
    """Classes and members of an enumeration are leaves, whatever attributes they have."""
    kinds = enum.Enum("kinds", "SMALL LARGE")
    assert survey([np.ndarray, torch.Tensor])[:2] == (None, None)
    assert survey([kinds]) == (None, None, 1)
