"""Handing out a batch in fresh containers: what `map_leaves` makes, quicker."""

from __future__ import annotations

import copy
import copyreg
from collections import OrderedDict, UserDict, UserList, defaultdict
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from loadeval import map_leaves
from loadeval.runtime.replay import refresher


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Example:
    x: Any
    y: Any = None


@dataclass(frozen=True)
class Frozen:
    x: Any


@dataclass(slots=True)
class Slotted:
    x: Any


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


class Copied(Plain):
    def __copy__(self) -> Copied:
        return Copied("its own copy")


class Stateful(Plain):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state | {"restored": True}


class Argued(Plain):
    def __getnewargs__(self) -> tuple[Any, ...]:
        return ()


class Registered(Plain):
    pass


class Table(dict[str, Any]):
    pass


X = torch.zeros(2)
TREES = {
    "tensor": X,
    "dict": {"x": X, "y": 1},
    "dict of dicts and lists": {"x": {"y": X, "z": [1, 2]}, "w": [X], "v": X},
    "dict with a list": {"x": X, "names": ["a", "b"]},
    "list": [X, 1],
    "list of dicts": [{"x": X}, {"x": X}, X],
    "tuple": (X, 1),
    "tuple with a list": (X, [X]),
    "named tuple": Pair(X, 1),
    "named tuple with a dict": Pair(X, {"x": X}),
    "ordered dict": OrderedDict(x=X, y=[X]),
    "default dict": defaultdict(list, x=[X]),
    "dict of a class": Table(x=[X]),
    "user dict": UserDict({"x": X, "y": [X]}),
    "user list": UserList([X, [X]]),
    "dataclass": Example(X),
    "dataclass with a list": Example(X, [X]),
    "frozen dataclass": Frozen([X]),
    "slotted dataclass": Slotted([X]),
    "object": Plain([X]),
    "namespace": SimpleNamespace(x=[X]),
    "object that copies itself": Copied([X]),
    "object with a state": Stateful([X]),
    "object with arguments": Argued([X]),
}


def outline(tree: Any) -> str:
    """The tree in words, with the classes of its containers, and its tensors by identity."""
    if isinstance(tree, torch.Tensor):
        return f"tensor {id(tree)}"
    inside: Any = getattr(tree, "__dict__", {})
    if isinstance(tree, dict):
        inside = inside | dict(tree)
    elif isinstance(tree, (list, tuple)):
        inside = inside | dict(enumerate(tree))
    elif isinstance(tree, Slotted):
        inside = {"x": tree.x}
    found = {name: outline(value) for name, value in inside.items()} or repr(tree)
    return f"{type(tree).__qualname__}{found}"


def containers(tree: Any) -> list[Any]:
    """Those of a tree that can be changed."""
    inside = list(getattr(tree, "__dict__", {}).values())
    if isinstance(tree, dict):
        inside += tree.values()
    elif isinstance(tree, (list, tuple)):
        inside += tree
    changeable = [] if isinstance(tree, (tuple, torch.Tensor, str, int)) else [tree]
    return changeable + [found for node in inside for found in containers(node)]


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_fresh_batch_is_what_a_mapped_one_is(tree: Any) -> None:
    """The same classes around the same tensors, in the same places."""
    fresh = refresher(tree)
    expected = outline(map_leaves(lambda leaf: leaf, tree))
    assert outline(fresh()) == outline(fresh()) == expected


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_fresh_batches_share_no_container(tree: Any) -> None:
    """Whatever is put into one is not in the next, nor in the batch that is kept."""
    fresh = refresher(tree)
    nodes = [*containers(tree), *(held := containers(fresh())), *containers(fresh())]
    changeable = [node for node in nodes if node is not None]
    assert held or not containers(tree)
    assert len({id(node) for node in changeable}) == len(changeable)


@pytest.mark.parametrize(
    "name", ["dict", "list", "tuple", "list of dicts", "dataclass", "frozen dataclass", "user dict"]
)
def test_the_usual_containers_are_not_mapped(name: str) -> None:
    """What there is to copy in them is found out once, not for each batch."""
    fresh = refresher(TREES[name])
    assert not (isinstance(fresh, partial) and fresh.func is map_leaves)


def test_an_object_met_twice_stays_one() -> None:
    """It is one object in each fresh batch, and another one in each."""
    shared = Example(X)
    fresh = refresher([shared, {"again": shared}])
    one, other = fresh(), fresh()
    assert one[0] is one[1]["again"]
    assert one[0] is not other[0]


def test_a_class_registered_with_copyreg_is_copied_as_it_says() -> None:
    """`copy.copy` asks there first."""
    copyreg.pickle(Registered, lambda _: (Registered, ("by copyreg",)))
    try:
        node = Registered([X])
        assert copy.copy(node).x == "by copyreg"
        assert outline(refresher(node)()) == outline(map_leaves(lambda leaf: leaf, node))
    finally:
        del copyreg.dispatch_table[Registered]


def test_a_batch_encoding_is_made_anew() -> None:
    """A tokeniser's batch is one of its class, with a dict of its own."""
    transformers = pytest.importorskip("transformers")
    kept = transformers.BatchEncoding({"x": X, "y": X})
    fresh = refresher(kept)
    one = fresh()
    one.pop("y")
    one["x"] = None
    assert type(fresh()) is transformers.BatchEncoding
    assert fresh()["x"] is kept["x"] is X
    assert set(fresh()) == set(kept) == {"x", "y"}
