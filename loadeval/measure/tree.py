"""Batches as trees: containers, however nested, around arrays and plain values."""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def is_array(node: Any) -> bool:
    """Whether `node` is a NumPy array, a tensor of any framework, or the like."""
    try:
        return hasattr(node, "shape") and hasattr(node, "dtype") and hasattr(node, "nbytes")
    except RuntimeError:  # a sparse tensor of torch has no size in bytes
        return False


def leaves(tree: Any) -> Iterator[Any]:
    """Every node of `tree` that is no container, depth first, in the order of `map_leaves`.

    >>> list(leaves({"x": [1, 2], "y": 3}))
    [1, 2, 3]
    """
    waiting = [tree]
    objects = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, (dict, list, tuple)):
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


def refresher(tree: Any) -> Callable[[], Any]:
    """A function that returns `tree` in fresh containers around the same leaves, each time."""
    if not is_container(tree):
        return partial(_same, tree)
    if not any(map(is_container, _children(tree))):
        if type(tree) in {dict, list}:
            return tree.copy  # type: ignore[no-any-return]
        if isinstance(tree, tuple):
            return partial(_same, tree)  # nothing in it can be exchanged
    return partial(map_leaves, _same, tree)


def is_container(node: Any) -> bool:
    """Whether `node` holds other nodes: everything that `map_leaves` makes anew."""
    return isinstance(node, (dict, list, tuple)) or _has_attributes(node)


def _same(node: Any) -> Any:
    return node


def _has_attributes(node: Any) -> bool:
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return True
    return bool(getattr(node, "__dict__", None)) and not (
        is_array(node) or isinstance(node, SHARED)
    )


def _attributes(node: Any) -> dict[str, Any]:
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
    return list(node) if isinstance(node, (list, tuple)) else list(_attributes(node).values())


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
            for name, value in _attributes(node).items():
                object.__setattr__(fresh, name, self.node(value))
        return fresh
