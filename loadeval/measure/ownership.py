"""Owning a leaf: a copy that nobody else writes to, and a watch that tells when it changed."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

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
    if isinstance(leaf, memoryview):
        return np.array(leaf).data
    try:
        return copy.deepcopy(leaf)
    except (TypeError, copy.Error):  # it cannot be copied, so it is shared
        return leaf


class Others(NamedTuple):
    """Watched leaves beyond the first two tensors."""

    tensors: list[tuple[Any, int]]
    arrays: list[tuple[np.ndarray[Any, Any], bytes]]


Watch = tuple[Any, int, Any, int, Others | None]
"""Two tensors, each with its version, and the others: the hot loop looks at the two by itself.

Unchanged are leaves for which `one._version == its_version`, likewise the other, and not
`changed(others)`.
"""


class Nothing:
    """Stands for a tensor where there is none: never changed."""

    _version = 0


def watch(leaves: list[Any]) -> Watch:
    """What tells later whether one of `leaves` was changed in place.

    Tensors come with their version, which PyTorch counts up at every change in place. Of NumPy
    arrays, SAMPLED_ELEMENTS evenly spread elements come with their present bytes: a change to
    few elements can pass unseen.
    """
    tensors = [(leaf, leaf._version) for leaf in leaves if _counts_versions(leaf)]  # noqa: SLF001 - the counter has no public name
    samples = [_sample(leaf) for leaf in leaves if isinstance(leaf, np.ndarray)]
    arrays = [(sample, sample.tobytes()) for sample in samples if sample is not None]
    one, other = [*tensors, (Nothing, 0), (Nothing, 0)][:2]
    others = Others(tensors[2:], arrays)
    return (*one, *other, others if any(others) else None)


def changed(others: Others | None) -> bool:
    """Whether one of them was changed in place."""
    if others is None:
        return False
    return any(tensor._version != version for tensor, version in others.tensors) or any(  # noqa: SLF001 - as above
        sample.tobytes() != content for sample, content in others.arrays
    )


def same_arrays(some: list[Any], others: list[Any]) -> bool:
    """Whether the NumPy arrays among two lists of leaves hold the same bytes, NaNs included."""
    return all(
        one.tobytes() == other.tobytes()
        for one, other in zip(some, others, strict=True)
        if isinstance(one, np.ndarray) and not one.dtype.hasobject
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
