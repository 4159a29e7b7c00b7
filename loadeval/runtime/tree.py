"""Batches as trees: containers, however nested, around arrays and plain values."""

from __future__ import annotations

import copy
import dataclasses
from functools import lru_cache
from operator import attrgetter, itemgetter
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
VALUES = frozenset({int, float, complex, bool, str, bytes, bytearray, type(None)})

Step = tuple["type[itemgetter[Any] | attrgetter[Any]]", Any]
"""How to get from a container to what it holds: by item or by attribute, and by which."""


def is_array(node: Any) -> bool:
    """Whether `node` is a NumPy array, a tensor of any framework, or the like."""
    kind: Any = type(node)
    try:
        if is_array_type(kind):
            return hasattr(node, "shape")
        return hasattr(node, "shape") and hasattr(node, "dtype") and hasattr(node, "nbytes")
    except Exception:  # noqa: BLE001 - these may be properties, of anybody's class
        return False


@lru_cache(maxsize=256)
def is_array_type(kind: Any) -> bool:
    """Whether objects of `kind` are arrays as a rule: a nested tensor of torch has no shape."""
    if hasattr(kind, "__dataclass_fields__") or issubclass(kind, (dict, list, tuple)):
        return False
    return hasattr(kind, "shape") and hasattr(kind, "dtype") and hasattr(kind, "nbytes")


def leaves(tree: Any) -> Iterator[Any]:
    """Every node of `tree` that is no container, depth first, in the order of `map_leaves`.

    >>> list(leaves({"x": [1, 2], "y": 3}))
    [1, 2, 3]
    """
    waiting = [tree]
    objects = set()
    while waiting:
        node = waiting.pop()
        kind: Any = type(node)
        if kind in VALUES or is_array_type(kind):  # most are, and this is quick
            yield node
        elif isinstance(node, (dict, list, tuple)):
            waiting.extend(reversed(_children(node)))
        elif not _has_attributes(node):
            yield node
        elif id(node) not in objects:
            objects.add(id(node))
            waiting.extend(reversed(_children(node)))


def map_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """A new tree of fresh containers, with `change(leaf)` in each leaf's place.

    Containers are dicts, lists, tuples and named tuples, sets excepted, dataclasses, and other
    objects with attributes (a `UserDict`, say); subclasses keep their class. An object that
    is met twice stays one object.

    >>> map_leaves(lambda leaf: leaf * 10, {"x": [1, 2], "y": 3})
    {'x': [10, 20], 'y': 30}
    """
    return _Rebuild(change).node(tree)


def route_to(tree: Any, wanted: Callable[[Any], bool]) -> tuple[list[Step], Any] | None:
    """The way to the first leaf of `tree` that is `wanted`, and that leaf; None: there is none."""
    waiting: list[tuple[list[Step], Any]] = [([], tree)]
    objects = set()
    while waiting:
        steps, node = waiting.pop()
        if not is_container(node):
            if wanted(node):
                return steps, node
        elif isinstance(node, (dict, list, tuple)) or id(node) not in objects:
            objects.add(id(node))
            waiting += [([*steps, step], child) for step, child in reversed(_parts(node))]
    return None


def is_container(node: Any) -> bool:
    """Whether `node` holds other nodes: everything that `map_leaves` makes anew."""
    return isinstance(node, (dict, list, tuple)) or _has_attributes(node)


def _has_attributes(node: Any) -> bool:
    kind: Any = type(node)
    if is_array_type(kind):
        return False
    if hasattr(kind, "__dataclass_fields__"):
        return True
    return bool(getattr(node, "__dict__", None)) and not (
        is_array(node) or isinstance(node, SHARED)
    )


def attributes_of(node: Any) -> dict[str, Any]:
    """The attributes of an object, those in a dataclass's slots included."""
    found = dict(getattr(node, "__dict__", {}))
    if dataclasses.is_dataclass(node):
        found |= {
            field.name: getattr(node, field.name)
            for field in dataclasses.fields(node)
            if hasattr(node, field.name)
        }
    return found


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return list(node) if isinstance(node, (list, tuple)) else list(attributes_of(node).values())


def _parts(node: Any) -> list[tuple[Step, Any]]:
    if isinstance(node, dict):
        return [((itemgetter, key), child) for key, child in node.items()]
    if isinstance(node, (list, tuple)):
        return [((itemgetter, place), child) for place, child in enumerate(node)]
    return [((attrgetter, name), child) for name, child in attributes_of(node).items()]


class _Rebuild:
    """One walk over a tree; `made` holds what each object with attributes has become."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.change = change
        self.made: dict[int, Any] = {}

    def node(self, node: Any) -> Any:
        if isinstance(node, dict):
            return self._dict(node)
        if isinstance(node, list):
            return self._list(node)
        if isinstance(node, tuple):
            items = [self.node(item) for item in node]
            return tuple(items) if type(node) is tuple else tuple.__new__(type(node), items)
        return self._object(node) if _has_attributes(node) else self.change(node)

    def _dict(self, node: dict[Any, Any]) -> Any:
        if type(node) is dict:
            return {key: self.node(value) for key, value in node.items()}
        fresh = copy.copy(node)
        for key, value in node.items():
            dict.__setitem__(fresh, key, self.node(value))
        return fresh

    def _list(self, node: list[Any]) -> Any:
        items = [self.node(item) for item in node]
        if type(node) is list:
            return items
        fresh = copy.copy(node)
        list.__setitem__(fresh, slice(None), items)
        return fresh

    def _object(self, node: Any) -> Any:
        if id(node) in self.made:
            return self.made[id(node)]
        try:
            fresh = copy.copy(node)
        except (TypeError, copy.Error):  # it cannot be copied, so it is shared
            fresh = node
        self.made[id(node)] = fresh
        if fresh is not node:
            for name, value in attributes_of(node).items():
                object.__setattr__(fresh, name, self.node(value))
        return fresh
