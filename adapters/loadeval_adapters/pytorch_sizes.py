"""How large a sample is, or a part of it: the numbers that it has, and its bytes."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

WHOLE = "__getitem__"
"""Stands for the whole sample among the transforms: no transform has that name."""
NUMBER_BYTES = 8
"""A number of Python's takes so many bytes as an item of an array."""
MOST_PARTS = 64
"""What has more parts is not looked into: a list may hold itself, or one other list many times."""


class CallSizes:
    """The sizes of what went into calls of one transform, and came out; None is not known."""

    def __init__(self) -> None:
        self.elements: list[tuple[int, int]] = []
        self.bytes_before: list[int | None] = []
        self.bytes_after: list[int | None] = []

    def note(self, x: Any) -> Callable[[Any], None]:
        """A call with `x` begins; what it returns is to be called with the result."""
        elements, size = elements_of(x), bytes_of(x)

        def add(result: Any) -> None:
            after = elements_of(result)
            if elements is not None and after is not None:
                self.elements.append((elements, after))
            self.bytes_before.append(size)
            self.bytes_after.append(bytes_of(result))

        return add


def means_of(sizes: dict[str, CallSizes]) -> dict[str, dict[str, float | None]]:
    """On average of a call, by column of StageTimes and then by transform.

    Only of what is always known; transforms of which no elements are known have none.
    """
    elements = {name: calls.elements for name, calls in sizes.items() if calls.elements}
    before, after = (
        {name: _mean([pair[place] for pair in pairs]) for name, pairs in elements.items()}
        for place in (0, 1)
    )
    return {
        "elements_before": before,
        "elements_after": after,
        "bytes_before": {name: _mean(calls.bytes_before) for name, calls in sizes.items()},
        "bytes_after": {name: _mean(calls.bytes_after) for name, calls in sizes.items()},
    }


def _mean(sizes: list[int] | list[int | None]) -> float | None:
    known = [size for size in sizes if size is not None]
    return sum(known) / len(known) if known and len(known) == len(sizes) else None


def elements_of(x: Any) -> int | None:
    """How many numbers an array, a tensor or an image of Pillow's has; None for all else."""
    kind = type(x)
    with suppress(Exception):  # of a class of the user's
        if issubclass(kind, np.ndarray):
            return int(x.size)
        if issubclass(kind, Tensor):
            return int(x.numel())
        if is_image(kind):
            return _pixels(x)
    return None


def bytes_of(x: Any) -> int | None:
    """The bytes that keeping `x` takes, without reading any; None where a part has no known size.

    A pixel of an image has a byte for each channel.
    """
    with suppress(Exception):  # of a class of the user's
        return sum(map(_leaf_bytes, parts_of(x)))
    return None


def parts_of(x: Any) -> Iterator[Any]:
    """What is in tuples, lists and dicts, nested too; no code of their classes is run.

    Raises ValueError where there are more than MOST_PARTS.
    """
    waiting, count = [x], 0
    while waiting:
        part = waiting.pop()
        kind = type(part)
        items: Iterable[Any]
        if issubclass(kind, dict):
            items = dict.values(part)
        elif issubclass(kind, list):
            items = list.__iter__(part)
        elif issubclass(kind, tuple):
            items = tuple.__iter__(part)
        else:
            yield part
            continue
        held = list(islice(items, MOST_PARTS + 1))
        count += len(held)
        if count > MOST_PARTS:
            raise ValueError
        waiting += reversed(held)


def is_image(kind: type) -> bool:
    """Whether it is a class of Pillow's images."""
    return any(base.__module__ == "PIL.Image" for base in kind.__mro__)


def _leaf_bytes(x: Any) -> int:
    kind = type(x)
    if issubclass(kind, (np.ndarray, np.generic, Tensor, memoryview)):
        return int(x.nbytes)
    if issubclass(kind, (bytes, bytearray, str)):
        return len(x)
    if x is None or issubclass(kind, (bool, int, float)):
        return NUMBER_BYTES
    if is_image(kind):
        return _pixels(x)
    raise ValueError


def _pixels(image: Any) -> int:
    return int(image.width * image.height * len(image.getbands()))
