"""Batches as trees of containers, arrays and plain values: walk, rebuild and measure them."""

from __future__ import annotations

import copy
import dataclasses
from functools import lru_cache
from operator import attrgetter, itemgetter
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from loadeval.runlog.columns import UNKNOWN

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
    return _rebuilt(tree, change, {})


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


def _rebuilt(node: Any, change: Callable[[Any], Any], made: dict[int, Any]) -> Any:
    """`node` made anew; `made` holds what each object with attributes has become."""
    if isinstance(node, dict):
        values = {key: _rebuilt(value, change, made) for key, value in node.items()}
        if type(node) is dict:
            return values
        fresh = copy.copy(node)
        for key, value in values.items():
            dict.__setitem__(fresh, key, value)
        return fresh
    if isinstance(node, (list, tuple)):
        items = [_rebuilt(item, change, made) for item in node]
        if isinstance(node, tuple):
            return tuple(items) if type(node) is tuple else tuple.__new__(type(node), items)
        if type(node) is list:
            return items
        subclass = copy.copy(node)
        list.__setitem__(subclass, slice(None), items)
        return subclass
    return _rebuilt_object(node, change, made) if _has_attributes(node) else change(node)


def _rebuilt_object(node: Any, change: Callable[[Any], Any], made: dict[int, Any]) -> Any:
    if id(node) in made:
        return made[id(node)]
    try:
        fresh = copy.copy(node)
    except (TypeError, copy.Error):  # it cannot be copied, so it is shared
        fresh = node
    made[id(node)] = fresh
    if fresh is not node:
        for name, value in attributes_of(node).items():
            object.__setattr__(fresh, name, _rebuilt(value, change, made))
    return fresh


BYTES = (bytes, bytearray)
NUMBERS_AND_TEXT = VALUES - {*BYTES}
COLUMNS = ("ccol_indices", "row_indices", "values")
ROWS = ("crow_indices", "col_indices", "values")
SPARSE = {
    "torch.sparse_coo": ("_indices", "_values"),  # the public ones want it coalesced
    "torch.sparse_csr": ROWS,
    "torch.sparse_bsr": ROWS,
    "torch.sparse_csc": COLUMNS,
    "torch.sparse_bsc": COLUMNS,
}
"""By layout, the methods that return the tensors of which a sparse one is made."""


def survey(batch: Any) -> tuple[int | None, int | None, int]:
    """A batch's samples and bytes, None where that is not known, and how many leaves it has.

    Samples are the first dimension of the first array that has one; bytes are those of all
    arrays and byte strings, and not known when those of one of them are not.
    """
    samples: int | None = None
    sizes: list[int] = []
    number = 0
    try:
        for leaf in leaves(batch):
            number += 1
            kind: Any = type(leaf)
            if kind in NUMBERS_AND_TEXT:
                continue
            if is_array_type(kind) or is_array(leaf):
                sizes.append(_nbytes(leaf))
                if samples is None:
                    samples = first_dimension(leaf)
            elif isinstance(leaf, BYTES):
                sizes.append(len(leaf))
            elif isinstance(leaf, memoryview):
                sizes.append(leaf.nbytes)
    except Exception:  # noqa: BLE001 - a container of anybody's class may fail to tell what it holds
        return None, None, number
    return samples, None if not sizes or UNKNOWN in sizes else sum(sizes), number


def first_dimension(leaf: Any) -> int | None:
    """Of an array that has one; None for one without dimensions, and for everything else."""
    try:
        shape = leaf.shape
        return int(shape[0]) if len(shape) and is_array(leaf) else None
    except Exception:  # noqa: BLE001 - each kind of array without a shape raises its own error
        return None


def _nbytes(array: Any) -> int:
    try:
        parts = _parts_of(getattr(array, "layout", None))
        return sum(getattr(array, part)().nbytes for part in parts) if parts else int(array.nbytes)
    except Exception:  # noqa: BLE001 - each kind of array without a size raises its own error
        return UNKNOWN


@lru_cache(maxsize=16)
def _parts_of(layout: object) -> tuple[str, ...]:
    return SPARSE.get(str(layout), ())
