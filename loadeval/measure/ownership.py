"""Owning a leaf: a copy that nobody else writes to, and a watch that tells when it changed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

SAMPLED_ELEMENTS = 64
"""How many elements of an array without a version counter are compared at each replay."""


def own(leaf: Any) -> Any:
    """A copy of `leaf` in memory of its own: same values, layout, device and pinning.

    Tensors are cut from their graph and from the shared memory of the worker that sent them.
    """
    if isinstance(leaf, np.ndarray):
        return copy.deepcopy(leaf) if leaf.dtype.hasobject else leaf.copy(order="K")
    if hasattr(leaf, "clone") and hasattr(leaf, "detach"):
        owned = leaf.detach().clone()
        return owned.pin_memory() if leaf.is_pinned() else owned
    return copy.deepcopy(leaf)


class Watch:
    """Remembers what some leaves hold, and tells whether one was changed in place since.

    Exact for tensors, which count their versions. For NumPy arrays SAMPLED_ELEMENTS evenly
    spread elements are compared, so a change to few elements can pass unseen.
    """

    __slots__ = ("arrays", "tensors")

    def __init__(self, leaves: list[Any]) -> None:
        self.tensors = [(leaf, leaf._version) for leaf in leaves if _counts_versions(leaf)]  # noqa: SLF001 - documented by PyTorch for exactly this
        samples = [_sample(leaf) for leaf in leaves if isinstance(leaf, np.ndarray)]
        self.arrays = [(sample, sample.tobytes()) for sample in samples if sample is not None]

    def changed(self) -> bool:
        """Whether a watched leaf was changed in place."""
        for tensor, version in self.tensors:
            if tensor._version != version:  # noqa: SLF001 - see above
                return True
        return any(sample.tobytes() != content for sample, content in self.arrays)


def same_arrays(some: list[Any], others: list[Any]) -> bool:
    """Whether the NumPy arrays among two lists of leaves are equal, element by element."""
    return all(
        np.array_equal(a.view(np.uint8), b.view(np.uint8))
        for a, b in zip(some, others, strict=True)
        if isinstance(a, np.ndarray)
    )


def _counts_versions(leaf: Any) -> bool:
    try:
        leaf._version  # noqa: B018, SLF001 - asked for its exception
    except (AttributeError, RuntimeError):  # RuntimeError: a tensor made in inference mode
        return False
    return True


def _sample(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    flat = array.ravel(order="K")
    if array.dtype.hasobject or not array.size or not np.shares_memory(flat, array):
        return None
    return flat[:: max(1, array.size // SAMPLED_ELEMENTS)]
