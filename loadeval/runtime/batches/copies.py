"""Copies of batches, in memory of their own."""

from __future__ import annotations

import copy
import mmap
import sys
import weakref
from operator import itemgetter
from typing import Any

import numpy as np

from loadeval.runtime.batches.tree import (
    MOST_NODES,
    SHARED,
    VALUES,
    Rebuilding,
    TooLargeError,
    is_array,
    is_shared_type,
    leaves,
)

Array = np.ndarray[Any, Any]

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
        free = self._free
        try:
            region = free.setdefault(size, []).pop()
        except IndexError:
            try:
                region = mmap.mmap(-1, size, **PRIVATE)
            except OSError:
                return None
        memory = np.frombuffer(region, np.uint8)
        weakref.finalize(memory, self._put_back, region, free).atexit = False
        return memory

    def release(self) -> None:
        """Unmap all regions: the unused ones now, the others as soon as nothing refers to them."""
        self._free = {}

    def _put_back(self, region: mmap.mmap, free: dict[int, list[mmap.mmap]]) -> None:
        if free is self._free:  # else it was released, and is unmapped with its last reference
            free[len(region)].append(region)


REGIONS = Regions()
"""All measurements of this process share these."""


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
    try:
        clone = _Clone(batch)
        rebuilding = Rebuilding(clone)
        made = rebuilding.rebuilt(batch)
    except Exception as error:
        if _is_short_of_memory(error):
            raise
        return batch, [type(batch).__qualname__]  # a class may fail at being copied in its own way
    return made, [*clone.kept, *rebuilding.kept]


def clone(batch: Any) -> Any:
    """A copy of `batch`: see `copied`."""
    return copied(batch)[0]


class _Clone:
    """Clones the leaves of one batch; `kept` has the classes of those that are still the same."""

    def __init__(self, batch: Any) -> None:
        self.kept: list[str] = []
        self._memo = _Memo()
        self._in_one_memory = _copies_in_one_memory(batch)

    def __call__(self, leaf: Any) -> Any:
        kind: Any = type(leaf)
        if kind in VALUES and kind is not bytearray:
            return leaf
        if issubclass(kind, SHARED):
            return leaf
        if id(leaf) in self._in_one_memory:
            return self._in_one_memory[id(leaf)]
        try:
            made = self._made(leaf, kind)
            is_faithful = type(made) is kind and bool(_form(made) == _form(leaf))
        except Exception as error:  # each library and class has its own errors
            if _is_short_of_memory(error):
                raise
            is_faithful = False
        if is_faithful:
            return made
        self.kept.append(kind.__qualname__)
        return leaf

    def _made(self, leaf: Any, kind: Any) -> Any:
        if issubclass(kind, np.ndarray) and not leaf.dtype.hasobject:
            return _array_copy(leaf)
        if hasattr(kind, "clone") and hasattr(kind, "detach"):
            return _tensor_copy(leaf)
        if kind is memoryview:
            return _memory_copy(leaf)
        return None if is_shared_type(kind) else copy.deepcopy(leaf, self._memo)


def _copies_in_one_memory(batch: Any) -> dict[int, Any]:
    """Copies of those arrays and tensors of `batch` that lie in each other's memory, by identity.

    These are cut from one piece of memory each, as they lie in their own.
    """
    arrays = {id(leaf): leaf for leaf in leaves(batch) if is_array(leaf)}
    if len(arrays) < 2:  # noqa: PLR2004 - one cannot share
        return {}
    placed = [(*place, leaf) for leaf in arrays.values() if (place := _place_of(leaf))]
    made: dict[int, Any] = {}
    together: list[tuple[str, int, int, Any]] = []
    for each in [*sorted(placed, key=itemgetter(0, 1)), ("", 0, 0, None)]:
        reached = max((end for _, _, end, _ in together), default=0)
        if together and (each[0] != together[0][0] or each[1] >= reached):
            if len(together) > 1:
                made |= _cut_from_one_copy(together)
            together = []
        together.append(each)
    return made


def _place_of(leaf: Any) -> tuple[str, int, int] | None:
    """The device, first address and end of an array's or tensor's elements.

    None for what is no mere view of numbers: a class of its own, or one that overlaps itself.
    """
    if type(leaf) is np.ndarray and not leaf.dtype.hasobject:
        device, first, size, steps = "cpu", leaf.ctypes.data, leaf.itemsize, leaf.strides
    elif _is_plain(leaf) and not leaf.requires_grad and leaf.device.type != "meta":
        device, first, size = str(leaf.device), leaf.data_ptr(), leaf.element_size()
        steps = tuple(step * size for step in leaf.stride())
    else:
        return None
    if 0 in leaf.shape or any(step == 0 < n - 1 for n, step in zip(leaf.shape, steps, strict=True)):
        return None
    reach = [(n - 1) * step for n, step in zip(leaf.shape, steps, strict=True)]
    first += sum(min(bytes_, 0) for bytes_ in reach)
    return device, first, first + sum(map(abs, reach)) + size


def _cut_from_one_copy(places: list[tuple[str, int, int, Any]]) -> dict[int, Any]:
    """A copy of each leaf, all in one piece of memory."""
    torch: Any = sys.modules.get("torch")
    begin = places[0][1] - places[0][1] % ALIGNMENT  # so that what was aligned is
    size = max(end for _, _, end, _ in places) - begin
    memory: Any = REGIONS.take(size)
    tensors = [leaf for *_, leaf in places if type(leaf) is not np.ndarray]
    if tensors and (tensors[0].device.type != "cpu" or tensors[0].is_pinned()):
        device = tensors[0].device
        memory = torch.empty(
            size, dtype=torch.uint8, device=device, pin_memory=device.type == "cpu"
        )
    elif memory is None:
        memory = np.empty(size, np.uint8)
    made: dict[int, Any] = {}
    for _, first, _, leaf in places:
        if type(leaf) is np.ndarray:
            # Of an array that is read backwards, the first element has the last address.
            offset = leaf.ctypes.data - begin
            view = np.ndarray(leaf.shape, leaf.dtype, np.asarray(memory), offset, leaf.strides)
            view[...] = leaf
        else:
            flat = torch.as_tensor(memory)
            offset = (first - begin) // leaf.element_size()
            view = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
            view.set_(flat.untyped_storage(), offset, leaf.shape, leaf.stride())
            view.copy_(leaf)
            vars(view).update(vars(leaf))
        made[id(leaf)] = view
    return made


def _is_short_of_memory(error: Exception) -> bool:
    """Whether there is no room for a copy, on the host or on a device."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def _form(leaf: Any) -> Any:
    """The shape and type of an array's elements; None for everything else."""
    if not hasattr(type(leaf), "shape"):
        return None
    try:
        return leaf.shape, leaf.dtype
    except Exception:  # noqa: BLE001 - a nested tensor of torch has no shape, and raises its own error
        return None


class _Memo(dict[int, Any]):
    """What copy.deepcopy has copied of one batch: not more than MOST_NODES objects."""

    def __setitem__(self, key: int, value: Any) -> None:
        if len(self) > MOST_NODES:
            raise TooLargeError(f"more than {MOST_NODES:,} objects belong to it")
        super().__setitem__(key, value)


def _array_copy(array: Array) -> Array:
    memory = REGIONS.take(array.nbytes) if type(array) is np.ndarray else None
    if memory is None:
        return array.copy(order="K")
    axes = list(range(array.ndim))
    if not array.flags.c_contiguous:  # the rules of order="K"
        axes.reverse()
        if not array.flags.f_contiguous:
            axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    shape = [array.shape[axis] for axis in axes]
    made = np.ndarray(shape, array.dtype, memory).transpose(np.argsort(axes))
    made[...] = array
    return made


def _memory_copy(view: memoryview) -> Any:
    made = np.array(view).data
    if made.format != view.format:
        return None
    return made.toreadonly() if view.readonly else made


def _tensor_copy(tensor: Any) -> Any:
    """A clone; None for a tensor that requires gradients: its identity or graph may matter."""
    if getattr(tensor, "requires_grad", False):
        return None
    attributes = getattr(tensor, "__dict__", None)
    made = _numbers_copy(tensor)
    if attributes and made is not None:
        vars(made).update({**attributes, **vars(made)})
    return made


def _numbers_copy(tensor: Any) -> Any:
    memory = None
    if _is_plain(tensor) and tensor.nbytes >= LARGE and tensor.device.type == "cpu":
        memory = None if tensor.is_pinned() else REGIONS.take(tensor.nbytes)
    source = tensor.detach()
    if memory is None:
        return _clone_of(source, tensor)
    torch: Any = sys.modules["torch"]
    strides = torch.empty_like(source, device="meta").stride()  # those of a clone
    made = torch.frombuffer(memory, dtype=source.dtype, count=source.numel())
    made.as_strided_(source.shape, strides)  # changed in place, since a clone is no view
    return made.copy_(source)


def _clone_of(source: Any, tensor: Any) -> Any:
    """A clone of `source`, pinned as `tensor` is, and a conjugated or negated view if that is."""
    torch: Any = sys.modules.get("torch")
    if getattr(tensor, "is_conj", bool)():
        return _clone_of(source.conj(), tensor.conj()).conj()
    if getattr(tensor, "is_neg", bool)():
        return torch._neg_view(_clone_of(torch._neg_view(source), torch._neg_view(tensor)))  # noqa: SLF001 - there is no public name
    cloned = source.clone()
    return cloned.pin_memory() if tensor.is_pinned() else cloned


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
