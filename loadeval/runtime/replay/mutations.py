"""Finds batches that a step has changed in place, by a look at a little of each."""

from __future__ import annotations

from typing import Any

import numpy as np

SAMPLED_ELEMENTS = 64
"""So many elements of a NumPy array are compared."""
Watch = tuple[Any, int, Any, int]
"""It has two tensors, each with the `_version` that it has while it is unchanged."""
Sample = tuple["np.ndarray[Any, Any]", bytes]
"""It has some elements of an array, and the bytes that they had."""


class NeverMutated:
    """Stands for a tensor where there is none: never changed."""

    _version = 0


UNWATCHED: Watch = (NeverMutated, 0, NeverMutated, 0)


class MutationWatch:
    """Leaves, and what it takes to find in-place changes of them later.

    `pairs` has the tensors with their versions, which PyTorch increments at every in-place
    change; there is at least one pair. `samples` has SAMPLED_ELEMENTS evenly spread elements of
    each NumPy array with their current bytes, so a change of few elements can go unnoticed.
    """

    __slots__ = ("pairs", "samples")

    def __init__(self, leaves: list[Any]) -> None:
        tensors = [(leaf, leaf._version) for leaf in leaves if _counts_versions(leaf)]  # noqa: SLF001 - the counter has no public name
        if len(tensors) % 2:
            tensors.append((NeverMutated, 0))
        pairs = zip(tensors[::2], tensors[1::2], strict=True)
        self.pairs: list[Watch] = [(*first, *second) for first, second in pairs] or [UNWATCHED]
        self.samples = [sample for leaf in leaves if (sample := _sample(leaf)) is not None]

    def changed(self) -> bool:
        """Whether a leaf was changed in place."""
        return any(
            tensor._version != version or other_tensor._version != other_version  # noqa: SLF001 - it has no public name
            for tensor, version, other_tensor, other_version in self.pairs
        ) or any(map(differs, self.samples))


def differs(sample: Sample) -> bool:
    """Whether these elements were changed."""
    elements, content = sample
    return elements.tobytes() != content


def same_arrays(some: list[Any], others: list[Any]) -> bool:
    """Whether the NumPy arrays among two lists of leaves hold the same bytes, NaNs included.

    Of lists that are not alike nothing is known: an object may fill itself in when it is used.
    """
    if list(map(type, some)) != list(map(type, others)):
        return True
    return all(
        array.tobytes() == other.tobytes()
        for array, other in zip(some, others, strict=True)
        if issubclass(type(array), np.ndarray) and not array.dtype.hasobject
    )


def _counts_versions(leaf: Any) -> bool:
    try:
        leaf._version  # noqa: B018, SLF001 - asked for its exception
    except Exception:  # noqa: BLE001 - RuntimeError: a tensor made in inference mode; or anybody's
        return False
    return True


def _sample(leaf: Any) -> Sample | None:
    if not issubclass(type(leaf), np.ndarray):  # an object may lie about its class
        return None
    flat = leaf.ravel(order="K")
    if leaf.dtype.hasobject or not leaf.size or not np.shares_memory(flat, leaf):
        return None
    elements = flat[:: max(1, leaf.size // SAMPLED_ELEMENTS)]
    return elements, elements.tobytes()
