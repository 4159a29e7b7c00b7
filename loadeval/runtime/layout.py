"""What a backend's batches are like, and in what those of several backends differ."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from loadeval.runtime.tree import is_array, leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST_LEAVES = 6
"""Leaves that are told of one batch."""
SAME = {"float": "float32", "double": "float64"}
"""Names that frameworks have for one type."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A first batch: its samples, and its leaves in words; and how many batches an epoch has.

    None is not known.
    """

    samples: int | None
    leaves: tuple[str, ...]
    length: int | None

    def in_words(self) -> str:
        """The leaves, those that are alike together, and not more than some."""
        alike = [(leaf, len(list(group))) for leaf, group in groupby(self.leaves)]
        told = [leaf if count == 1 else f"{count} x {leaf}" for leaf, count in alike]
        more = len(told) - MOST_LEAVES
        also = f" and {more} more" if more > 0 else ""
        return ", ".join(told[:MOST_LEAVES]) + also if told else "empty"


def layout_of(batch: Any, samples: int | None, length: int | None) -> Layout:
    """The layout of `batch`; `length` is how many batches an epoch has."""
    return Layout(samples, tuple(map(_leaf_in_words, leaves(batch))), length)


def differences(layouts: Mapping[str, Layout]) -> list[str]:
    """In what each backend differs from the first one, a clause each; [] where all are alike.

    What is not known of one of the two is no difference.
    """
    named = list(layouts.items())
    return [told for name, other in named[1:] for told in _between(*named[0], name, other)]


def _between(first: str, one: Layout, name: str, other: Layout) -> Iterator[str]:
    if one.leaves != other.leaves:
        yield f"{name}: batch 0 is {other.in_words()} where {first} has {one.in_words()}"
    if None not in (one.samples, other.samples) and one.samples != other.samples:
        yield f"{name}: batch 0 has {other.samples} samples where {first} has {one.samples}"
    if None not in (one.length, other.length) and one.length != other.length:
        yield f"{name}: an epoch has {other.length:,} batches where {first} has {one.length:,}"


def _leaf_in_words(leaf: Any) -> str:
    try:
        if is_array(leaf):
            return f"{tuple(map(int, leaf.shape))} {_dtype_in_words(leaf)}"
    except Exception:  # noqa: BLE001, S110 - ragged ones have no shape; each kind raises its own error
        pass
    return type(leaf).__name__


def _dtype_in_words(array: Any) -> str:
    # torch.uint8, DALIDataType.UINT8 and NumPy's uint8 are one type.
    dtype = str(array.dtype).rpartition(".")[2].lower()
    return SAME.get(dtype, dtype)
