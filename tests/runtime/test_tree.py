"""Trees of batches: every kind of container, made anew."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from loadeval import leaves, map_leaves
from loadeval.runtime.batch import route_to
from loadeval.runtime.replay import refresher


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Frozen:
    x: Any


@dataclass(slots=True)
class Slotted:
    x: Any
    late: Any = field(init=False)


class Items(list[Any]):
    pass


def doubled(tree: Any) -> Any:
    return map_leaves(lambda leaf: leaf * 2, tree)


def test_plain_containers_are_mapped() -> None:
    """Dicts, lists and tuples keep their kinds and order."""
    assert doubled({"a": [1, (2, 3)], "b": 4}) == {"a": [2, (4, 6)], "b": 8}


def test_subclasses_keep_their_class() -> None:
    """Named tuples, ordered and default dicts, subclasses of list come out as themselves."""
    made = doubled([Pair(1, 2), OrderedDict(a=1), defaultdict(int, a=1), Items([1])])
    assert made == [Pair(2, 4), OrderedDict(a=2), {"a": 2}, [2]]
    assert [type(node) for node in made] == [Pair, OrderedDict, defaultdict, Items]
    assert made[2]["new"] == 0


def test_objects_with_attributes_are_mapped() -> None:
    """Dataclasses, frozen and slotted too, and plain objects are made anew."""
    assert doubled(Frozen([1])) == Frozen([2])
    assert doubled(Slotted(1)).x == 2
    assert doubled(SimpleNamespace(x=[1])).x == [2]


def test_an_object_met_twice_stays_one() -> None:
    """Two references to one object, or one to itself, are so in the new tree as well."""
    node = SimpleNamespace(x=1)
    node.me = node
    made = doubled([node, node])
    assert made[0] is made[1] is made[0].me
    assert made[0] is not node
    assert list(leaves([node, node])) == [1]


def test_what_cannot_be_copied_is_shared() -> None:
    """An object that refuses to be copied is handed on as it is."""
    holder = SimpleNamespace(local=threading.local())
    holder.local.x = 1
    assert map_leaves(lambda leaf: leaf, holder).local is holder.local


def test_functions_classes_and_modules_are_leaves() -> None:
    """What has attributes but is no data is not taken apart."""
    nodes = [len, int, np, test_plain_containers_are_mapped]
    assert list(leaves(nodes)) == nodes


def test_leaves_come_in_the_order_of_the_tree() -> None:
    """Leaves are met depth first, containers in their own order."""
    assert list(leaves({"a": [1, (2,)], "b": Pair(3, Frozen(4))})) == [1, 2, 3, 4]


def test_the_way_to_a_leaf_is_found() -> None:
    """By items and attributes, past others, and past an object that was met before."""
    node = SimpleNamespace(x=1)
    node.me = node
    tree: Any = [node, node, {"y": Frozen((2, "found"))}]
    route = route_to(tree, lambda leaf: leaf == "found")
    assert route is not None
    steps, leaf = route
    assert leaf == "found"
    assert [key for _, key in steps] == [2, "y", "x", 1]
    for make, key in steps:
        tree = make(key)(tree)
    assert tree == "found"
    assert route_to(tree, lambda leaf: leaf == "lost") is None


def test_refreshing_makes_new_containers_around_the_same_leaves() -> None:
    """A refreshed batch can be taken apart without a trace on the kept one."""
    array = np.zeros(2)
    trees = {"x": array}, [array], {"x": {"y": array}}, ([array], 1), OrderedDict(x=array)
    for tree in trees:
        fresh = refresher(tree)
        assert fresh() is not fresh()
        assert next(leaves(fresh())) is array


def test_what_cannot_change_needs_no_refreshing() -> None:
    """A tuple of leaves, and a leaf, are handed out themselves."""
    flat = (np.zeros(1), 2)
    assert refresher(flat)() is flat
    assert refresher(7)() == 7
