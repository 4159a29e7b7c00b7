"""Batches as graphs of containers, arrays and plain values: walk, rebuild and measure them.

A batch may hold anything, itself included. So no container is entered twice, no more than
MOST_NODES nodes are looked at, and what a container holds is read as Python keeps it: no method of
its class is called, but to copy it.
"""

from __future__ import annotations

import copy
import operator
import weakref
from collections import UserDict, UserList
from functools import lru_cache
from operator import attrgetter, itemgetter
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.data.columns import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
VALUES = frozenset({int, float, complex, bool, str, bytes, bytearray, type(None)})
MOST_NODES = 100_000
"""No more nodes of one batch are looked at; that takes some 0.1 s."""
DEEPEST = 100
"""No more containers may lie in one another in a batch that is copied."""
LARGEST_COUNT = 2**40
"""No batch is believed to have more samples, or bytes."""

Step = tuple["type[itemgetter[Any] | attrgetter[Any]]", Any]
"""It leads from a container to what it holds: by item or by attribute, and by which."""


class TooLargeError(ValueError):
    """A batch has more nodes than are looked at, or is nested deeper than can be copied."""


def is_array(node: Any) -> bool:
    """Whether `node` is a NumPy array, a tensor of any framework, or the like."""
    kind: Any = type(node)
    if is_array_type(kind):
        try:
            return hasattr(node, "shape")
        except Exception:  # noqa: BLE001 - a nested tensor of torch raises its own error
            return False
    own = _own_attributes(node)
    return all(name in own or hasattr(kind, name) for name in ("shape", "dtype", "nbytes"))


@lru_cache(maxsize=256)
def is_array_type(kind: Any) -> bool:
    """Whether objects of `kind` are arrays as a rule: a nested tensor of torch has no shape."""
    if hasattr(kind, "__dataclass_fields__") or issubclass(kind, (dict, list, tuple)):
        return False
    return hasattr(kind, "shape") and hasattr(kind, "dtype") and hasattr(kind, "nbytes")


@lru_cache(maxsize=256)
def is_shared_type(kind: Any) -> bool:
    """Whether objects of `kind` are no part of a batch that has them, such as torch's modules."""
    return issubclass(kind, SHARED) or any(
        (base.__module__, base.__qualname__) == ("torch.nn.modules.module", "Module")
        for base in kind.__mro__
    )


def leaves(tree: Any) -> Iterator[Any]:
    """Every node of `tree` that is no container, depth first, in the order of `map_leaves`.

    A container that is met again has been walked. Raises ValueError after MOST_NODES nodes.

    >>> list(leaves({"x": [1, 2], "y": 3}))
    [1, 2, 3]
    """
    waiting = [tree]
    walked: dict[int, Any] = {}  # held, so that no other object gets the number of one
    nodes = 0
    while waiting:
        node = waiting.pop()
        kind: Any = type(node)
        nodes += 1
        if kind in VALUES or is_array_type(kind) or not is_container(node):
            yield node
        elif id(node) not in walked:
            walked[id(node)] = node
            waiting.extend(reversed(_children(node)))
        if nodes > MOST_NODES:
            raise TooLargeError(f"the batch has more than {MOST_NODES:,} nodes")


def map_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """A new tree of fresh containers, with `change(leaf)` in each leaf's place.

    Containers are dicts, lists, tuples and named tuples, sets excepted, dataclasses, and other
    objects with attributes (a `UserDict`, say); subclasses keep their class. What is met twice
    stays one object. A container that cannot be copied stays as it is.

    Raises ValueError for a tree of more than MOST_NODES nodes, or deeper than DEEPEST.

    >>> map_leaves(lambda leaf: leaf * 10, {"x": [1, 2], "y": 3})
    {'x': [10, 20], 'y': 30}
    """
    return Rebuilding(change).rebuilt(tree)


def route_to(
    tree: Any, wanted: Callable[[Any], bool], is_open: Callable[[Any], bool] = lambda _: True
) -> tuple[list[Step], Any] | None:
    """The way to the first node of `tree` that is `wanted`, and that node; None: there is none.

    A container is entered if it `is_open`, and within DEEPEST others at most. Raises ValueError
    after MOST_NODES nodes.
    """
    waiting: list[tuple[list[Step], Any]] = [([], tree)]
    walked: dict[int, Any] = {}
    nodes = 0
    while waiting:
        steps, node = waiting.pop()
        nodes += 1
        if wanted(node):
            return steps, node
        is_shallow = len(steps) < DEEPEST
        if is_shallow and is_container(node) and id(node) not in walked and is_open(node):
            walked[id(node)] = node
            waiting += [([*steps, step], child) for step, child in reversed(parts(node))]
        if nodes > MOST_NODES:
            raise TooLargeError(f"the batch has more than {MOST_NODES:,} nodes")
    return None


def is_container(node: Any) -> bool:
    """Whether `node` holds other nodes: everything that `map_leaves` makes anew."""
    kind: Any = type(node)
    if kind in VALUES or is_array_type(kind):
        return False
    if issubclass(kind, (dict, list, tuple)) or hasattr(kind, "__dataclass_fields__"):
        return True
    return bool(_own_attributes(node)) and not (is_shared_type(kind) or is_array(node))


def attributes_of(node: Any) -> dict[str, Any]:
    """The attributes of an object, those in a dataclass's slots included."""
    kind: Any = type(node)
    attributes = dict(_own_attributes(node))
    for name in getattr(kind, "__dataclass_fields__", ()):
        slot = getattr(kind, name, None)
        if type(slot) is MemberDescriptorType:
            try:
                attributes[name] = slot.__get__(node)
            except AttributeError:  # it was never set
                continue
    return attributes


def _own_attributes(node: Any) -> dict[str, Any]:
    """The `__dict__` of an object; empty where it has none, or its class makes one up."""
    try:
        attributes = object.__getattribute__(node, "__dict__")
    except Exception:  # noqa: BLE001 - it may be a property, of anybody's class
        return {}
    return attributes if type(attributes) is dict else {}


def _children(node: Any) -> list[Any]:
    kind = type(node)
    if issubclass(kind, dict):
        return list(dict.values(node))
    if issubclass(kind, list):
        return list(list.__iter__(node))
    if issubclass(kind, tuple):
        return list(tuple.__iter__(node))
    return list(attributes_of(node).values())


def parts(node: Any) -> list[tuple[Step, Any]]:
    """What a container holds, and the step to each."""
    kind = type(node)
    if issubclass(kind, dict):
        return [((itemgetter, key), child) for key, child in dict.items(node)]
    if issubclass(kind, (list, tuple)):
        return [((itemgetter, place), child) for place, child in enumerate(_children(node))]
    return [((attrgetter, name), child) for name, child in attributes_of(node).items()]


_BEING_MADE = object()


class Rebuilding:
    """Makes one tree anew; `change(leaf)` comes in a leaf's place.

    `kept` has the classes of those containers that could not be copied, and stayed as they were.
    """

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.kept: list[str] = []
        self._change = change
        # What was made of each node by its identity, and the node, so that it keeps that.
        self._made: dict[int, tuple[Any, Any]] = {}
        self._depth = 0

    def rebuilt(self, node: Any) -> Any:
        """What `node` is in the new tree."""
        if type(node) in VALUES:
            return self._change(node)
        made, _ = self._made.get(id(node), (None, None))
        if made is _BEING_MADE:
            raise TooLargeError("a tuple holds itself")
        if made is not None:
            return made
        if len(self._made) > MOST_NODES or self._depth > DEEPEST:
            raise TooLargeError(
                f"the batch has more than {MOST_NODES:,} nodes, or is nested deeper than {DEEPEST}"
            )
        self._depth += 1
        made = self._container(node) if is_container(node) else self._change(node)
        self._depth -= 1
        return self._note(node, made)

    def _note(self, node: Any, made: Any) -> Any:
        self._made[id(node)] = made, node
        return made

    def _container(self, node: Any) -> Any:
        kind: Any = type(node)
        if issubclass(kind, tuple):
            return self._tuple(node, kind)
        fresh: Any = {} if kind is dict else [] if kind is list else self._copy(node)
        if fresh is node:
            return node
        self._note(node, fresh)  # before what it holds, which may be itself
        if issubclass(kind, dict):
            for key, value in list(dict.items(node)):
                dict.__setitem__(fresh, key, self.rebuilt(value))
        elif issubclass(kind, list):
            items = [self.rebuilt(item) for item in list.__iter__(node)]
            list.__setitem__(fresh, slice(None), items)
        if kind not in (dict, list):
            self._fill(fresh, attributes_of(node))
        return fresh

    def _tuple(self, node: Any, kind: Any) -> Any:
        self._note(node, _BEING_MADE)
        before = list(tuple.__iter__(node))
        items = [self.rebuilt(item) for item in before]
        if kind is tuple:
            return tuple(items)
        attributes = attributes_of(node)
        if not attributes and all(map(operator.is_, items, before)):
            return node  # some, such as torch's sizes, cannot be made like this
        try:
            fresh = tuple.__new__(kind, items)
        except TypeError:
            return self._as_it_is(node)
        self._fill(fresh, attributes)
        return fresh

    def _copy(self, node: Any) -> Any:
        try:
            fresh = copy.copy(node)
        except Exception:  # noqa: BLE001 - a class may copy itself in its own way, and fail at it
            return self._as_it_is(node)
        own = _own_attributes(fresh)
        is_faithful = type(fresh) is type(node) and (not own or own is not _own_attributes(node))
        return fresh if is_faithful else self._as_it_is(node)

    def _as_it_is(self, node: Any) -> Any:
        self.kept.append(type(node).__qualname__)
        return node

    def _fill(self, fresh: Any, attributes: dict[str, Any]) -> None:
        own = _own_attributes(fresh)
        for name, value in attributes.items():
            made = self._referring(value)
            if name in own:
                own[name] = made
            else:
                object.__setattr__(fresh, name, made)

    def _referring(self, value: Any) -> Any:
        """What `rebuilt` returns, also for a weak reference to what is made anew, say a parent."""
        if type(value) is not weakref.ref:
            return self.rebuilt(value)
        made, _ = self._made.get(id(value()), (None, None))
        return value if made is None or made is _BEING_MADE else weakref.ref(made)


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
"""The methods, by layout, that return the tensors of which a sparse one is made."""


def survey(batch: Any) -> tuple[int | None, int | None, int]:
    """A batch's samples and bytes, None where that is not known, and how many leaves it has.

    Samples are what `route_to_samples` leads to. Bytes are those of all arrays and byte strings,
    and not known when those of one of them are not.
    """
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
            elif kind in BYTES:
                sizes.append(len(leaf))
            elif kind is memoryview:
                sizes.append(leaf.nbytes)
        route = route_to_samples(batch)
        samples = None if route is None else samples_of(route[1])
    except Exception:  # noqa: BLE001 - it is too large, or a class of anybody's fails at something
        return None, None, number
    is_known = sizes and UNKNOWN not in sizes and sum(sizes) <= LARGEST_COUNT
    return samples, sum(sizes) if is_known else None, number


OWN_COUNTS = ("num_graphs", "batch_size", "batch_sizes")
"""A batch tells its samples in one of these attributes: those of PyTorch Geometric and DGL, of
TensorDict, of torchtext, and of torch's packed sequences."""


def route_to_samples(batch: Any) -> tuple[list[Step], Any] | None:
    """The way to what tells how many samples `batch` has; None where nothing does.

    That is the first object with a count of its own, or the first array that has dimensions, of
    which the first one is that of the samples in nearly every collection. Not so in an object whose
    class is anybody's, such as a graph: there all arrays must agree in it.
    """
    return route_to(batch, lambda node: samples_of(node) is not None, _is_open)


def samples_of(node: Any) -> int | None:
    """The samples that `node` tells: see `route_to_samples`."""
    if not is_container(node):
        return first_dimension(node)
    name = own_count_name(node)
    return None if name is None else by_own_count(name)(node)


def by_own_count(name: str) -> Callable[[Any], int]:
    """A function that reads a batch's own count; it raises where there is none."""

    def own_count(node: Any) -> int:
        count = getattr(node, name)
        # A TensorDict has the shape of a batch there, and a packed sequence those of its steps.
        return as_count(count[0] if hasattr(type(count), "__getitem__") else count)

    return own_count


def own_count_name(node: Any) -> str | None:
    """The attribute in which `node` tells its samples; None where it does not.

    One that `__getattr__` makes up does not count: a lazy object would load what it stands for.
    """
    kind: Any = type(node)
    if kind in (dict, list, tuple) or not is_container(node) or _is_keyed(kind):
        return None
    own = _own_attributes(node)
    for name in OWN_COUNTS:
        if name not in own and not hasattr(kind, name):
            continue
        try:
            by_own_count(name)(node)
        except Exception:  # noqa: BLE001, S112 - a class may raise what it likes
            continue
        return name
    return None


def _is_keyed(kind: Any) -> bool:
    """Whether what is read as an attribute may be an item of the user's."""
    return issubclass(kind, (dict, list, UserDict, UserList))


def is_collection_type(kind: Any) -> bool:
    """Whether containers of `kind` are what people collect arrays of samples in."""
    return _is_keyed(kind) or issubclass(kind, tuple) or hasattr(kind, "__dataclass_fields__")


def _is_open(node: Any) -> bool:
    """Whether the first dimension of the first array in this container tells samples."""
    return (
        is_collection_type(type(node))
        or len({first_dimension(leaf) for leaf in leaves(node)} - {None}) <= 1
    )


def first_dimension(leaf: Any) -> int | None:
    """The first dimension of an array; None where it has none, and for everything else."""
    if type(leaf) in VALUES or not is_array(leaf):
        return None
    try:
        shape = leaf.shape
        return as_count(shape[0]) if len(shape) else None
    except Exception:  # noqa: BLE001 - each kind of array without a shape raises its own error
        return None


def as_count(number: Any) -> int:
    """`number` as a count of samples or bytes.

    Raises TypeError, ValueError or OverflowError for what is none: what is no number, has a
    fraction, is negative or larger than LARGEST_COUNT.
    """
    if isinstance(number, (bool, np.bool_, str, bytes)):
        raise TypeError(f"{number!r} is no count")
    try:
        count = operator.index(number)
    except TypeError:
        count = int(number)
        if count != float(number):
            raise ValueError(f"{number!r} is no whole number") from None
    if not 0 <= count <= LARGEST_COUNT:
        raise ValueError(f"{count:.3g} is not a count between 0 and {LARGEST_COUNT}")
    return count


def _nbytes(array: Any) -> int:
    try:
        parts = _parts_of(getattr(array, "layout", None))
        if parts:
            return sum(getattr(array, part)().nbytes for part in parts)
        return as_count(array.nbytes)
    except Exception:  # noqa: BLE001 - each kind of array without a size raises its own error
        return UNKNOWN


@lru_cache(maxsize=16)
def _parts_of(layout: object) -> tuple[str, ...]:
    return SPARSE.get(str(layout), ())
