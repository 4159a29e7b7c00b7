"""What is inside a batch: walk it, count it, and copy it.

A batch may hold anything, itself included. So no container is entered twice, no more than
MOST_NODES nodes are looked at, and what a container holds is read as Python keeps it: no method of
its class is called, but to copy it.
"""

from __future__ import annotations

import copy
import errno
import mmap
import operator
import sys
import weakref
from collections import UserDict, UserList
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from loadeval.data.columns import UNKNOWN
from loadeval.errors import is_of_a_signal

Array = np.ndarray[Any, Any]
Step = tuple["type[itemgetter[Any] | attrgetter[Any]]", Any]
"""It leads from a container to what it holds: by item or by attribute, and by which."""

SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
VALUES = frozenset({int, float, complex, bool, str, bytes, bytearray, type(None)})
MOST_NODES = 100_000
"""No more nodes of one batch are looked at; that takes some 0.1 s."""
DEEPEST = 100
"""No array is looked for in more containers that lie in one another."""
LARGEST_COUNT = 2**40
"""No batch is believed to have more samples, or bytes."""


class TooLargeError(ValueError):
    """A batch has more nodes than are looked at."""


def is_array(node: Any) -> bool:
    """Whether `node` is a NumPy array, a tensor of any framework, or the like."""
    kind: Any = type(node)
    return is_array_type(kind)


@lru_cache(maxsize=256)
def is_array_type(kind: Any) -> bool:
    """Whether objects of `kind` are arrays."""
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


def is_container(node: Any) -> bool:
    """Whether `node` holds other nodes: everything that `map_leaves` makes anew."""
    kind: Any = type(node)
    if kind in VALUES or is_array_type(kind):
        return False
    if issubclass(kind, (dict, list, tuple)) or hasattr(kind, "__dataclass_fields__"):
        return True
    return bool(attributes_of(node)) and not is_shared_type(kind)


def attributes_of(node: Any) -> dict[str, Any]:
    """The `__dict__` of an object, if its class does not make it up; a dataclass's slots too."""
    kind: Any = type(node)
    slots: dict[str, Any] = {}
    for name in getattr(kind, "__dataclass_fields__", ()):
        slot = getattr(kind, name, None)
        if type(slot) is MemberDescriptorType:
            with suppress(AttributeError):  # it was never set
                slots[name] = slot.__get__(node)
    try:
        attributes = object.__getattribute__(node, "__dict__")
    except Exception:  # noqa: BLE001 - it may be a property, of anybody's class
        attributes = None
    attributes = attributes if type(attributes) is dict else {}
    return {**attributes, **slots} if slots else attributes


def parts(node: Any) -> list[tuple[Step, Any]]:
    """What a container holds, and the step to each."""
    kind = type(node)
    if issubclass(kind, dict):
        return [((itemgetter, key), child) for key, child in dict.items(node)]
    if issubclass(kind, (list, tuple)):
        base = list if issubclass(kind, list) else tuple
        return [((itemgetter, place), child) for place, child in enumerate(base.__iter__(node))]
    return [((attrgetter, name), child) for name, child in attributes_of(node).items()]


def leaves(tree: Any) -> Iterator[Any]:
    """Every node of `tree` that is no container, depth first, in the order of `map_leaves`.

    A container that is met again has been walked. Raises ValueError after MOST_NODES nodes.

    >>> list(leaves({"x": [1, 2], "y": 3}))
    [1, 2, 3]
    """
    return map(itemgetter(1), named_leaves(tree))


def named_leaves(tree: Any) -> Iterator[tuple[Any, Any]]:
    """See `leaves`; before each leaf comes its key, place or name in its container."""
    waiting: list[tuple[Any, Any]] = [(None, tree)]
    walked: dict[int, Any] = {}  # held, so that no other object gets the number of one
    nodes = 0
    while waiting:
        name, node = waiting.pop()
        nodes += 1
        if not is_container(node):
            yield name, node
        elif id(node) not in walked:
            walked[id(node)] = node
            waiting.extend((name, child) for (_, name), child in reversed(parts(node)))
        _check(nodes)


def _check(nodes: int) -> None:
    if nodes > MOST_NODES:
        raise TooLargeError(f"the batch has more than {MOST_NODES:,} nodes")


def map_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """A new tree of fresh containers, with `change(leaf)` in each leaf's place.

    Containers are dicts, lists, tuples and named tuples, sets excepted, dataclasses, and other
    objects with attributes (a `UserDict`, say). They are made anew as `copy.deepcopy` does it:
    subclasses keep their class, and what is met twice stays one object. Numbers, text and None stay
    as they are.

    Raises ValueError for a tree of more than MOST_NODES nodes.

    >>> map_leaves(len, {"x": [{1, 2}, 7], "y": {3}})
    {'x': [2, 7], 'y': 1}
    """
    # copy.deepcopy looks there first, whether it has met a node.
    made = {id(leaf): change(leaf) for leaf in leaves(tree) if type(leaf) not in VALUES}
    return copy.deepcopy(tree, made)


# How many samples and bytes

Route = tuple[tuple[Step, ...], Any]
"""The steps from a batch to something in it, and that."""
OWN_COUNTS = ("num_graphs", "batch_size", "batch_sizes")
"""A batch tells its samples in one of these attributes: those of PyTorch Geometric and DGL, of
TensorDict, and of torch's packed sequences."""


def survey(batch: Any) -> tuple[int | None, int | None, int, Route | None]:
    """A batch's samples and bytes, its number of leaves, and the route to what tells the samples.

    None is not known. What tells the samples is the first object with a count of its own, or the
    first array that has dimensions: in nearly every collection the first of these is the samples.
    In an object of any other class, such as a graph, it is only where all arrays agree in it.
    Bytes are those of all arrays and byte strings, and not known when those of one of them are not,
    as of sparse tensors. Of a batch that is too large nothing is known.
    """
    samples: int | None = None
    route: Route | None = None
    sizes: list[int] = []
    number = nodes = 0
    walked: dict[int, Any] = {}
    # What is to be looked at, the steps to it, and whether it may tell the samples.
    waiting: list[tuple[Any, tuple[Step, ...], bool]] = [(batch, (), True)]
    try:
        while waiting:
            node, steps, may_tell = waiting.pop()
            may_tell = may_tell and samples is None
            count: int | None = None
            if not is_container(node):
                number += 1
                nbytes = _nbytes(node)
                sizes += [] if nbytes is None else [nbytes]
                count = first_dimension(node) if may_tell else None
            elif id(node) not in walked:
                walked[id(node)] = node
                own_count = own_count_of(node) if may_tell else None
                count = None if own_count is None else own_count(node)
                may_tell = may_tell and count is None and len(steps) < DEEPEST and _agree_in(node)
                for step, child in reversed(parts(node)):
                    waiting.append((child, (*steps, step) if may_tell else (), may_tell))
            if count is not None:
                samples, route = count, (steps, node)
            nodes += 1
            _check(nodes)
    except TooLargeError:
        return None, None, MOST_NODES, None
    except Exception as error:  # a class of anybody's fails at something
        if is_of_a_signal(error):
            raise
        return None, None, number, None
    is_known = sizes and UNKNOWN not in sizes and sum(sizes) <= LARGEST_COUNT
    return samples, sum(sizes) if is_known else None, number, route


def _nbytes(leaf: Any) -> int | None:
    """Its bytes, or UNKNOWN; None for what is neither an array nor a byte string."""
    kind: Any = type(leaf)
    if kind in (bytes, bytearray):
        return len(leaf)
    if not (kind is memoryview or is_array_type(kind)):
        return None
    try:
        # Of some layouts torch says what a dense tensor would take.
        is_sparse = "sparse" in str(getattr(leaf, "layout", ""))
        return UNKNOWN if is_sparse else as_count(leaf.nbytes)
    except Exception:  # noqa: BLE001 - each kind of array without a size raises its own error
        return UNKNOWN


def _agree_in(node: Any) -> bool:
    """Whether the arrays in a container are of as many samples.

    What people collect arrays of samples in is believed to be.
    """
    kind: Any = type(node)
    if _is_keyed(kind) or issubclass(kind, tuple) or hasattr(kind, "__dataclass_fields__"):
        return True
    return len({*map(first_dimension, leaves(node))} - {None}) <= 1


def own_count_of(node: Any) -> Callable[[Any], int] | None:
    """A function that reads the samples that objects such as `node` tell; None where they do not.

    An attribute that `__getattr__` makes up does not count: a lazy object would load what it stands
    for.
    """
    kind: Any = type(node)
    if _is_keyed(kind) or not is_container(node):
        return None
    for name in OWN_COUNTS:
        if name in attributes_of(node) or hasattr(kind, name):
            own_count = partial(_own_count, name)
            with suppress(Exception):  # a class may raise what it likes
                own_count(node)
                return own_count
    return None


def _own_count(name: str, node: Any) -> int:
    count = getattr(node, name)
    # A TensorDict has the shape of a batch there, and a packed sequence those of its steps.
    return as_count(count[0] if hasattr(type(count), "__getitem__") else count)


def _is_keyed(kind: Any) -> bool:
    """Whether what is read as an attribute may be an item of the user's."""
    return issubclass(kind, (dict, list, UserDict, UserList))


def first_dimension(leaf: Any) -> int | None:
    """The first dimension of an array; None where it has none, and for everything else."""
    if not is_array(leaf):
        return None
    try:
        shape = leaf.shape
        return as_count(shape[0]) if len(shape) else None
    except Exception:  # noqa: BLE001 - each kind of array without a shape raises its own error
        return None


def as_count(number: Any) -> int:
    """`number` as a count of samples or bytes.

    Raises TypeError or ValueError for what is no whole number from 0 to LARGEST_COUNT.
    """
    count = operator.index(number)
    if not 0 <= count <= LARGEST_COUNT:
        raise ValueError(f"{count:.3g} is not a count between 0 and {LARGEST_COUNT}")
    return count


# Copies

LARGE = 128 * 1024
"""From so many bytes on the C library asks the system for memory (glibc's M_MMAP_THRESHOLD)."""
ALIGNMENT = 64
"""Bytes of a cache line: no type of numbers has to begin at a rounder address."""


class Regions:
    """Memory outside the C library's heap, reused as soon as nothing refers to it any more.

    On the heap, holding and freeing copies would change how often the memory of the training step
    is returned to the system, and so how many page faults the step has.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {}

    def take(self, nbytes: int) -> Array:
        """`nbytes` bytes of any content; fewer than LARGE are of the heap.

        They are in use until the last view of the returned array is gone.
        """
        if nbytes < LARGE:
            return np.empty(nbytes, np.uint8)
        # Batches of varying size then reuse regions: pages that nobody touched take no memory.
        size = 1 << (nbytes - 1).bit_length()
        free = self._free.setdefault(size, [])
        try:
            region = free.pop()
        except IndexError:
            region = mmap.mmap(-1, size, mmap.MAP_PRIVATE)  # a fork must not write to it
        memory = np.frombuffer(region, np.uint8)
        weakref.finalize(memory, free.append, region).atexit = False
        return memory[:nbytes]

    def release(self) -> None:
        """Unmap all regions: the unused ones now, the others once none of their size is in use."""
        before, self._free = self._free, {}
        for free in before.values():
            free.clear()


REGIONS = Regions()
"""All measurements of this process share these."""


def clone(batch: Any) -> Any:
    """A copy of `batch`: see `copied`."""
    return copied(batch)[0]


def copied(batch: Any) -> tuple[Any, list[str]]:
    """A copy of `batch` in memory of its own, and the classes of what in it is still the same.

    Leaves keep their class, values, layout, device and pinning, and those of the host that lie in
    one memory, such as a tensor and a view of it, do so in the copy. Tensors are cut from the
    shared memory of the worker that sent them. Large arrays and tensors are copied into
    REGIONS, so they do not own their memory, and cannot be resized in place.

    What has a meaning beyond its values is still the same: tensors that require gradients,
    torch's modules, functions; and so are leaves that cannot be copied. Where a container cannot be
    copied, or there are too many nodes, it is all of `batch`.
    """
    uncopied: dict[int, Any] = {}

    def cloned(leaf: Any) -> Any:
        kind: Any = type(leaf)
        if id(leaf) in together:
            return together[id(leaf)]
        try:
            made = leaf if issubclass(kind, SHARED) else _copy_of(leaf, kind)
            if type(made) is kind:
                return made
        except Exception as error:  # each library and class has its own errors
            if _is_memory_or_signal(error):
                raise
        uncopied[id(leaf)] = leaf
        return leaf

    try:
        together = _copies_in_regions(batch)
        made = map_leaves(cloned, batch)
        if type(made) is type(batch):
            # An object that copies itself, as an image of Pillow's, may not need its parts for it.
            same = (leaf for leaf in leaves(made) if id(leaf) in uncopied) if uncopied else ()
            return made, [type(leaf).__qualname__ for leaf in same]
    except Exception as error:  # a class may fail at being copied in its own way
        if _is_memory_or_signal(error):
            raise
    return batch, [type(batch).__qualname__]


def _is_memory_or_signal(error: Exception) -> bool:
    """Whether `error` is of a signal's handler, or for want of memory, on the host or a device."""
    is_short = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    is_short |= type(error).__name__ == "OutOfMemoryError"
    return is_short or is_of_a_signal(error)


def _copy_of(leaf: Any, kind: Any) -> Any:
    """A copy of one leaf by its own rules; None for what has none."""
    if issubclass(kind, np.ndarray) and not leaf.dtype.hasobject:
        return leaf.copy(order="K")
    if hasattr(kind, "clone") and hasattr(kind, "detach"):
        if getattr(leaf, "requires_grad", False):  # its identity or graph may matter
            return None
        made = leaf.detach().clone()
        made = made.pin_memory() if leaf.is_pinned() else made
        attributes = getattr(leaf, "__dict__", None)
        if attributes:
            vars(made).update({**attributes, **vars(made)})
        return made
    return None if is_shared_type(kind) else copy.deepcopy(leaf)


Place = tuple[int, int, Any]
"""Where the elements of a leaf begin and end in the memory of the host, and the leaf."""


def _copies_in_regions(batch: Any) -> dict[int, Any]:
    """Copies of large arrays and tensors of `batch`, and of those in one memory, by identity."""
    arrays = {id(leaf): leaf for leaf in leaves(batch) if is_array(leaf)}
    places = filter(None, map(_place_of, arrays.values()))
    groups: list[list[Place]] = []
    reached = 0
    for place in sorted(places, key=itemgetter(0, 1)):
        if place[0] < reached:
            groups[-1].append(place)
        else:
            groups.append([place])
        reached = max(reached, place[1])
    made: dict[int, Any] = {}
    for group in groups:
        first, end, leaf = group[0]
        is_whole = leaf.nbytes == end - first  # of an array with gaps the copy has none
        if len(group) > 1 or (leaf.nbytes >= LARGE and is_whole):
            made |= _cut_from_one_copy(group)
    return made


def _place_of(leaf: Any) -> Place | None:
    """None for what is no mere view of numbers: a class of its own, or one that overlaps itself."""
    if type(leaf) is np.ndarray and not leaf.dtype.hasobject:
        first, size, steps = leaf.ctypes.data, leaf.itemsize, leaf.strides
    elif _is_plain(leaf):
        first, size = leaf.data_ptr(), leaf.element_size()
        steps = tuple(step * size for step in leaf.stride())
    else:
        return None
    if 0 in leaf.shape or any(step == 0 < n - 1 for n, step in zip(leaf.shape, steps, strict=True)):
        return None
    reach = [(n - 1) * step for n, step in zip(leaf.shape, steps, strict=True)]
    first += sum(min(bytes_, 0) for bytes_ in reach)
    return first, first + sum(map(abs, reach)) + size, leaf


def _is_plain(tensor: Any) -> bool:
    """Whether `tensor` is of torch's own class, and no more than numbers in the host's memory."""
    torch: Any = sys.modules.get("torch")
    return (
        type(tensor) is getattr(torch, "Tensor", None)
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not (tensor.is_nested or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not (tensor.requires_grad or tensor.is_pinned())
    )


def _cut_from_one_copy(group: list[Place]) -> dict[int, Any]:
    """A copy of each leaf, as they lie in their memory."""
    torch: Any = sys.modules.get("torch")
    begin = group[0][0]
    begin -= begin % ALIGNMENT if len(group) > 1 else 0  # so that what was aligned is
    memory = REGIONS.take(max(end for _, end, _ in group) - begin)
    made: dict[int, Any] = {}
    for first, _, leaf in group:
        if type(leaf) is np.ndarray:
            # Of an array that is read backwards, the first element has the last address.
            offset = leaf.ctypes.data - begin
            view: Any = np.ndarray(leaf.shape, leaf.dtype, memory, offset, leaf.strides)
            view[...] = leaf
        else:
            storage = torch.as_tensor(memory).untyped_storage()
            view = torch.empty(0, dtype=leaf.dtype)
            view.set_(storage, (first - begin) // leaf.element_size(), leaf.shape, leaf.stride())
            view.copy_(leaf)
            vars(view).update(vars(leaf))
        made[id(leaf)] = view
    return made
