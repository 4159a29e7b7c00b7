"""Copies of batches, in memory of their own."""

from __future__ import annotations

import copy
import mmap
import sys
import weakref
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LARGE = 128 * 1024
"""Bytes from which the C library asks the system for memory anew (glibc's M_MMAP_THRESHOLD)."""
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
        # So that batches of varying size reuse regions: pages that nobody touched take no memory.
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
"""Those of all measurements of this process."""


def clone_leaf(leaf: Any) -> Any:
    """A copy of `leaf` in memory of its own: same values, layout, device and pinning.

    Tensors are cut from their graph and from the shared memory of the worker that sent them.
    Large arrays and tensors are copied into REGIONS, so they do not own their memory, and
    cannot be resized in place.
    """
    if isinstance(leaf, np.ndarray):
        return copy.deepcopy(leaf) if leaf.dtype.hasobject else _array_copy(leaf)
    if hasattr(leaf, "clone") and hasattr(leaf, "detach"):
        return _tensor_copy(leaf)
    if isinstance(leaf, memoryview):
        return np.array(leaf).data
    try:
        return copy.deepcopy(leaf)
    except (TypeError, copy.Error):  # it cannot be copied, so it is shared
        return leaf


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


def _tensor_copy(tensor: Any) -> Any:
    memory = REGIONS.take(tensor.nbytes) if _is_plain(tensor) else None
    source = tensor.detach()
    if memory is None:
        cloned = source.clone()
        return cloned.pin_memory() if tensor.is_pinned() else cloned
    torch: Any = sys.modules["torch"]
    strides = torch.empty_like(source, device="meta").stride()  # those of a clone
    made = torch.frombuffer(memory, dtype=source.dtype, count=source.numel())
    made.as_strided_(source.shape, strides)  # changed in place, since a clone is no view
    return made.copy_(source)


def _is_plain(tensor: Any) -> bool:
    """Whether `tensor` is of torch's own class, and no more than numbers in the CPU's memory."""
    torch: Any = sys.modules.get("torch")
    return (
        type(tensor) is getattr(torch, "Tensor", None)
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.nbytes >= LARGE  # asked early: most batches have many small leaves
        and tensor.device.type == "cpu"
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not any(getattr(tensor, "names", ()))  # newer versions of torch have none
        and not tensor.is_pinned()
    )
