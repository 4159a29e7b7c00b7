"""Trees of batches, and what a batch holds, leaf by leaf."""

from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from loadeval import leaves, map_leaves
from loadeval.core.batch import survey


class Table(dict[str, Any]):
    shape, dtype, nbytes = (9,), "mixed", 99


class Broken(dict[str, Any]):
    def values(self) -> Any:
        raise OSError

    items = __iter__ = __getitem__ = __len__ = values  # type: ignore[assignment]  # all are broken


class Shapeless:
    dtype = "int"

    @property
    def shape(self) -> Any:
        raise OSError


@dataclass(slots=True)
class Slotted:
    x: Any


def array_like(**attributes: Any) -> Any:
    return type("Array", (), {"dtype": "int", **attributes})()


FLAG = torch.tensor(True)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (
            {"flag": FLAG, "x": [torch.zeros(4, 2), np.zeros(3)], "text": ("a", 1)},
            (4, 1 + 32 + 24, 5),
        ),
        ([b"ab", bytearray(3), "text", 7], (None, 2 + 3, 4)),
        ([torch.zeros(4), array_like(shape=(2,), nbytes=None), b"abc"], (4, None, 3)),
        ([array_like(shape=(3, 2), nbytes=48)], (3, 48, 1)),
        ([array_like(shape={"x": 2}, nbytes=48), torch.zeros(4)], (4, 64, 2)),
        (Table(x=torch.zeros(4)), (4, 16, 1)),
        (Slotted(torch.zeros(4)), (4, 16, 1)),
        ([Shapeless(), torch.zeros(2)], (2, 8, 2)),
        ([enum.Enum("kinds", "SMALL LARGE")], (None, None, 1)),
        ([np.ndarray, torch.Tensor], (None, None, 2)),
        ({"x": SimpleNamespace(num_graphs=4, x=torch.zeros(12, 3))}, (4, 144, 2)),
    ],
    ids=[
        "samples are the first dimension of the first array that has one",
        "byte strings have bytes and no samples",
        "bytes are unknown where those of one array are",
        "shape, dtype and nbytes make an array",
        "a shape without a first dimension tells nothing",
        "a dict with a shape is taken apart all the same",
        "a dataclass may have slots",
        "an object whose shape fails is no array",
        "an enumeration is a leaf",
        "classes are leaves, whatever attributes they have",
        "a batch says itself how many samples it has",
    ],
)
def test_samples_bytes_and_leaves(batch: Any, expected: tuple[int | None, ...]) -> None:
    assert survey(batch)[:3] == expected


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_has_its_bytes() -> None:
    """That of the older kind tells no shape, so it tells no samples."""
    parts = [torch.zeros(2, 3), torch.zeros(4, 3)]
    assert survey(torch.nested.nested_tensor(parts))[:3] == (None, 72, 1)
    assert survey(torch.nested.nested_tensor(parts, layout=torch.jagged))[0] == 2


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Frozen:
    x: Any


class Items(list[Any]):
    pass


A = np.array(1)


def mapped(tree: Any) -> Any:
    return map_leaves(lambda leaf: int(leaf) + 1, tree)


def test_containers_keep_their_classes() -> None:
    assert mapped({"a": [A, (7, A)], "b": "text"}) == {"a": [2, (7, 2)], "b": "text"}
    made = mapped([Pair(A, 7), OrderedDict(a=A), defaultdict(int, a=A), Items([A])])
    assert made == [Pair(2, 7), OrderedDict(a=2), {"a": 2}, [2]]
    assert [type(node) for node in made] == [Pair, OrderedDict, defaultdict, Items]
    assert made[2]["new"] == 0


def test_objects_with_attributes_are_mapped() -> None:
    assert mapped(Frozen([A])) == Frozen([2])
    assert mapped(SimpleNamespace(x=[A])).x == [2]


def test_an_object_met_twice_stays_one() -> None:
    node = SimpleNamespace(x=1)
    node.me = node
    made = mapped([node, node])
    assert made[0] is made[1] is made[0].me
    assert made[0] is not node
    assert list(leaves([node, node])) == [1]


def test_leaves_come_in_the_order_of_the_tree() -> None:
    """Depth first; functions, classes and modules are leaves, though they have attributes."""
    assert list(leaves({"a": [1, (2,)], "b": Pair(3, Frozen(4))})) == [1, 2, 3, 4]
    nodes = [len, int, np, mapped]
    assert list(leaves(nodes)) == nodes
