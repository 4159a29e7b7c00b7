"""Owning a leaf: a copy that nobody else writes to, and a watch that tells when it changed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

SAMPLED_ELEMENTS = 64
"""How many elements of an array without a version counter are compared."""


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


Watch = tuple[Any, int, Any, int]
"""Two tensors, each with its version: unchanged while `one._version == its_version` for both."""


class Nothing:
    """Stands for a tensor where there is none: never changed."""

    _version = 0


UNWATCHED: Watch = (Nothing, 0, Nothing, 0)


class Watched:
    """Leaves, and what tells later whether one of them was changed in place.

    Tensors come with their version, which PyTorch counts up at every change in place, in `pairs`,
    of which there is at least one. Of NumPy arrays, SAMPLED_ELEMENTS evenly spread elements come
    with their present bytes, in `samples`: a change to few elements can pass unseen.
    """

    __slots__ = ("pairs", "samples")

    def __init__(self, leaves: list[Any]) -> None:
        tensors = [(leaf, leaf._version) for leaf in leaves if _counts_versions(leaf)]  # noqa: SLF001 - the counter has no public name
        if len(tensors) % 2:
            tensors.append((Nothing, 0))
        pairs = zip(tensors[::2], tensors[1::2], strict=True)
        self.pairs: list[Watch] = [(*one, *other) for one, other in pairs] or [UNWATCHED]
        self.samples = [found for leaf in leaves if (found := _sample(leaf)) is not None]

    def changed(self) -> bool:
        """Whether one of them was changed in place."""
        return any(
            one._version != one_version or other._version != other_version  # noqa: SLF001 - as above
            for one, one_version, other, other_version in self.pairs
        ) or any(map(differs, self.samples))


Sample = tuple["np.ndarray[Any, Any]", bytes]
"""Some elements of an array, and the bytes that they had."""


def differs(sample: Sample) -> bool:
    """Whether these elements were changed."""
    elements, content = sample
    return elements.tobytes() != content


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


def _sample(leaf: Any) -> Sample | None:
    if not isinstance(leaf, np.ndarray):
        return None
    flat = leaf.ravel(order="K")
    if leaf.dtype.hasobject or not leaf.size or not np.shares_memory(flat, leaf):
        return None
    elements = flat[:: max(1, leaf.size // SAMPLED_ELEMENTS)]
    return elements, elements.tobytes()
