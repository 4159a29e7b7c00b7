"""What is inside a batch: walk it, rebuild it, count it, and copy it.

A batch may hold anything, itself included. So no container is entered twice, no more than
MOST_NODES nodes are looked at, and what a container holds is read as Python keeps it: no method of
its class is called, but to copy it.
"""

from __future__ import annotations

import copy
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
"""No more containers may lie in one another in a batch that is copied."""
LARGEST_COUNT = 2**40
"""No batch is believed to have more samples, or bytes."""


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
    waiting = [tree]
    walked: dict[int, Any] = {}  # held, so that no other object gets the number of one
    nodes = 0
    while waiting:
        node = waiting.pop()
        nodes += 1
        if not is_container(node):
            yield node
        elif id(node) not in walked:
            walked[id(node)] = node
            waiting.extend(child for _, child in reversed(parts(node)))
        _check(nodes)


def _check(nodes: int) -> None:
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
    return _Rebuilding(change).rebuilt(tree)


class _Rebuilding:
    """Makes one tree anew; `kept` has the classes of containers that had to stay as they were."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.kept: list[str] = []
        self._change = change
        # What was made of each node by its identity, and the node, so that it keeps that.
        self._made: dict[int, tuple[Any, Any]] = {}
        self._depth = 0

    def rebuilt(self, node: Any) -> Any:
        if type(node) in VALUES:
            return self._change(node)
        if id(node) in self._made:
            return self._made[id(node)][0]
        if len(self._made) > MOST_NODES or self._depth > DEEPEST:
            raise TooLargeError(
                f"the batch has more than {MOST_NODES:,} nodes, or is nested deeper than {DEEPEST}"
            )
        self._depth += 1
        made = self._container(node) if is_container(node) else self._change(node)
        self._depth -= 1
        self._made[id(node)] = made, node
        return made

    def _container(self, node: Any) -> Any:
        kind: Any = type(node)
        if issubclass(kind, tuple):
            return self._tuple(node, kind)
        fresh: Any = {} if kind is dict else [] if kind is list else self._copy(node)
        if fresh is node:
            return node
        self._made[id(node)] = fresh, node  # before what it holds, which may be itself
        if issubclass(kind, dict):
            for key, value in list(dict.items(node)):
                dict.__setitem__(fresh, key, self.rebuilt(value))
        elif issubclass(kind, list):
            items = [self.rebuilt(item) for item in list.__iter__(node)]
            list.__setitem__(fresh, slice(None), items)
        self._fill(fresh, attributes_of(node))
        return fresh

    def _tuple(self, node: Any, kind: Any) -> Any:
        before = list(tuple.__iter__(node))
        items = [self.rebuilt(item) for item in before]
        attributes = attributes_of(node)
        if kind is not tuple and not attributes and all(map(operator.is_, items, before)):
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
        except Exception as error:  # a class may copy itself in its own way, and fail at it
            if _is_of_no_class(error):
                raise
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
            is_ours = own.get(name, value) is value or type(value) in VALUES
            if not (is_ours or is_container(value) or is_array(value)):
                try:  # its class has made a new one, which may share memory, as pandas' does
                    own[name] = copy.deepcopy(own[name])
                except Exception as error:  # and may be all that can be made, as Pillow's is
                    if _is_of_no_class(error):
                        raise
                continue
            if type(value) is weakref.ref:  # of what is made anew, such as a parent, or the same
                made, _ = self._made.get(id(value()), (None, None))
                made = value if made is None else weakref.ref(made)
            else:
                made = self.rebuilt(value)
            if name in own:
                own[name] = made
            else:
                object.__setattr__(fresh, name, made)


# How many samples and bytes

BYTES = (bytes, bytearray)
Route = tuple[tuple[Step, ...], Any]
"""The steps from a batch to something in it, and that."""
OWN_COUNTS = ("num_graphs", "batch_size", "batch_sizes")
"""A batch tells its samples in one of these attributes: those of PyTorch Geometric and DGL, of
TensorDict, and of torch's packed sequences."""


def survey(batch: Any) -> tuple[int | None, int | None, int, Route | None]:
    """A batch's samples and bytes, None where that is not known, and how many leaves it has.

    Then the way to what tells the samples. That is the first object with a count of its own, or the
    first array that has dimensions, of which the first one is that of the samples in nearly every
    collection. Not so in an object whose class is anybody's, such as a graph: there all arrays must
    agree in it. Bytes are those of all arrays and byte strings, and not known when those of one of
    them are not, as of sparse tensors. Of a batch that is too large nothing is known.
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
            told: int | None = None
            if not is_container(node):
                number += 1
                nbytes = _nbytes(node)
                sizes += [] if nbytes is None else [nbytes]
                told = first_dimension(node) if may_tell else None
            elif id(node) not in walked:
                walked[id(node)] = node
                own_count = own_count_of(node) if may_tell else None
                told = None if own_count is None else own_count(node)
                may_tell = may_tell and told is None and len(steps) < DEEPEST and _agree_in(node)
                for step, child in reversed(parts(node)):
                    waiting.append((child, (*steps, step) if may_tell else (), may_tell))
            if told is not None:
                samples, route = told, (steps, node)
            nodes += 1
            _check(nodes)
    except TooLargeError:
        return None, None, MOST_NODES, None
    except Exception:  # noqa: BLE001 - a class of anybody's fails at something
        return None, None, number, None
    is_known = sizes and UNKNOWN not in sizes and sum(sizes) <= LARGEST_COUNT
    return samples, sum(sizes) if is_known else None, number, route


def _nbytes(leaf: Any) -> int | None:
    """Its bytes, or UNKNOWN; None for what is neither an array nor a byte string."""
    kind: Any = type(leaf)
    if kind in BYTES:
        return len(leaf)
    if kind in VALUES or not (kind is memoryview or is_array(leaf) or is_array_type(kind)):
        return None
    try:
        # Of some layouts torch says what a dense tensor would take.
        is_sparse = "sparse" in str(getattr(leaf, "layout", ""))
        return UNKNOWN if is_sparse else as_count(leaf.nbytes)
    except Exception:  # noqa: BLE001 - each kind of array without a size raises its own error
        return UNKNOWN


def _agree_in(node: Any) -> bool:
    """Whether the arrays in a container are of as many samples; collections are believed to be."""
    if is_collection_type(type(node)):
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
        if name in _own_attributes(node) or hasattr(kind, name):
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


def is_collection_type(kind: Any) -> bool:
    """Whether containers of `kind` are what people collect arrays of samples in."""
    return _is_keyed(kind) or issubclass(kind, tuple) or hasattr(kind, "__dataclass_fields__")


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
    if type(number) is int and 0 <= number <= LARGEST_COUNT:  # nearly all, and this is quick
        return number
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


# Copies

LARGE = 128 * 1024
"""From so many bytes on the C library asks the system for memory (glibc's M_MMAP_THRESHOLD)."""
ALIGNMENT = 64
"""Bytes of a cache line: no type of numbers has to begin at a rounder address."""
PRIVATE: dict[str, Any] = {"flags": mmap.MAP_PRIVATE} if hasattr(mmap, "MAP_PRIVATE") else {}
"""A forked process must not write to its parent's regions; Windows has neither forks nor flags."""


class Regions:
    """Memory outside the C library's heap, reused as soon as nothing refers to it any more.

    On the heap, holding and freeing copies would change how often the memory of the training step
    is returned to the system, and so how many page faults the step has.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {}

    def take(self, nbytes: int) -> Array | None:
        """`nbytes` bytes of any content, or more; None for fewer than LARGE, or if memory is short.

        They are in use until the last view of the returned array is gone.
        """
        if nbytes < LARGE:
            return None
        # Batches of varying size then reuse regions: pages that nobody touched take no memory.
        size = 1 << (nbytes - 1).bit_length()
        free = self._free.setdefault(size, [])
        try:
            region = free.pop()
        except IndexError:
            try:
                region = mmap.mmap(-1, size, **PRIVATE)
            except OSError:
                return None
        memory = np.frombuffer(region, np.uint8)
        weakref.finalize(memory, free.append, region).atexit = False
        return memory

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

    Leaves keep their class, values, layout, device and pinning, and those that lie in the same
    memory, such as a tensor and a view of it, do so in the copy. Tensors are cut from the shared
    memory of the worker that sent them. Large arrays and tensors are copied into REGIONS, so they
    do not own their memory, and cannot be resized in place.

    What has a meaning beyond its values is still the same: tensors that require gradients,
    torch's modules, functions; and so is what cannot be copied. Where that is `batch` itself, it
    has too many nodes, or is nested too deep.
    """
    kept: list[str] = []
    memo: dict[int, Any] = {}

    def cloned(leaf: Any) -> Any:
        kind: Any = type(leaf)
        if (kind in VALUES and kind is not bytearray) or issubclass(kind, SHARED):
            return leaf
        if id(leaf) in together:
            return together[id(leaf)]
        try:
            made = _copy_of(leaf, kind, memo)
            if type(made) is kind:
                return made
        except Exception as error:  # each library and class has its own errors
            if _is_of_no_class(error):
                raise
        kept.append(kind.__qualname__)
        return leaf

    try:
        together = _copies_in_regions(batch)
        rebuilding = _Rebuilding(cloned)
        return rebuilding.rebuilt(batch), [*kept, *rebuilding.kept]
    except Exception as error:  # a class may fail at being copied in its own way
        if _is_of_no_class(error):
            raise
        return batch, [type(batch).__qualname__]


def _is_of_no_class(error: Exception) -> bool:
    """Whether `error` is of a signal's handler, or for want of memory, on the host or a device."""
    is_short = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_short or is_of_a_signal(error)


def _copy_of(leaf: Any, kind: Any, memo: dict[int, Any]) -> Any:
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
    return None if is_shared_type(kind) else copy.deepcopy(leaf, memo)


def _is_plain(tensor: Any) -> bool:
    """Whether `tensor` is of torch's own class, and no more than numbers in memory."""
    torch: Any = sys.modules.get("torch")
    return (
        type(tensor) is getattr(torch, "Tensor", None)
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not any(getattr(tensor, "names", ()))  # newer versions of torch have none
    )


Place = tuple[str, int, int, Any]
"""The memory of a leaf, where its elements begin and end in it, and the leaf."""


def _copies_in_regions(batch: Any) -> dict[int, Any]:
    """Copies of large arrays and tensors of `batch`, and of those in one memory, by identity."""
    arrays = {id(leaf): leaf for leaf in leaves(batch) if is_array(leaf)}
    places = filter(None, map(_place_of, arrays.values()))
    groups: list[list[Place]] = []
    reached = 0
    for place in sorted(places, key=itemgetter(0, 1)):
        device, first, end, _ = place
        if groups and groups[-1][0][0] == device and first < reached:
            groups[-1].append(place)
        else:
            groups.append([place])
            reached = 0
        reached = max(reached, end)
    made: dict[int, Any] = {}
    for group in groups:
        device, first, end, leaf = group[0]
        is_whole = leaf.nbytes == end - first  # of an array with gaps the copy has none
        if len(group) > 1 or (device == "cpu" and leaf.nbytes >= LARGE and is_whole):
            made |= _cut_from_one_copy(group)
    return made


def _place_of(leaf: Any) -> Place | None:
    """None for what is no mere view of numbers: a class of its own, or one that overlaps itself."""
    if type(leaf) is np.ndarray and not leaf.dtype.hasobject:
        device, first, size, steps = "cpu", leaf.ctypes.data, leaf.itemsize, leaf.strides
    elif _is_plain(leaf) and not leaf.requires_grad and leaf.device.type != "meta":
        device = "pinned" if leaf.is_pinned() else str(leaf.device)
        first, size = leaf.data_ptr(), leaf.element_size()
        steps = tuple(step * size for step in leaf.stride())
    else:
        return None
    if 0 in leaf.shape or any(step == 0 < n - 1 for n, step in zip(leaf.shape, steps, strict=True)):
        return None
    reach = [(n - 1) * step for n, step in zip(leaf.shape, steps, strict=True)]
    first += sum(min(bytes_, 0) for bytes_ in reach)
    return device, first, first + sum(map(abs, reach)) + size, leaf


def _cut_from_one_copy(group: list[Place]) -> dict[int, Any]:
    """A copy of each leaf, as they lie in their memory."""
    torch: Any = sys.modules.get("torch")
    device, begin, *_, leaf = group[0]
    begin -= begin % ALIGNMENT if len(group) > 1 else 0  # so that what was aligned is
    size = max(end for _, _, end, _ in group) - begin
    region = REGIONS.take(size) if device == "cpu" else None
    memory: Any
    if region is not None:
        memory = region[:size]
    elif device == "cpu":
        memory = np.empty(size, np.uint8)
    else:
        on = "cpu" if device == "pinned" else device
        memory = torch.empty(size, dtype=torch.uint8, device=on, pin_memory=device == "pinned")
    made: dict[int, Any] = {}
    for _, first, _, leaf in group:
        if type(leaf) is np.ndarray:
            # Of an array that is read backwards, the first element has the last address.
            offset = leaf.ctypes.data - begin
            view = np.ndarray(leaf.shape, leaf.dtype, np.asarray(memory), offset, leaf.strides)
            view[...] = leaf
        else:
            storage = torch.as_tensor(memory, device=leaf.device).untyped_storage()
            view = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
            view.set_(storage, (first - begin) // leaf.element_size(), leaf.shape, leaf.stride())
            view.copy_(leaf)
            vars(view).update(vars(leaf))
        made[id(leaf)] = view
    return made
