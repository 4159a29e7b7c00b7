"""Transforms read from a line of text, such as "resize 256, crop 224"."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Kept = TypeVar("Kept")


def parse(
    text: str,
    transforms: Kept,
    parsers: Mapping[str, Callable[[Kept, list[str], str], Kept]],
    known: str,
    example: str,
) -> Kept:
    """`transforms` with those that `text` names, with commas between them, added by `parsers`.

    A parser gets the words after the name, and the whole part. Raises UsageError for a transform
    that is not among the `known`, stands twice or in another order than `parsers`.
    """
    order, last = list(parsers), -1
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, *words = part.split()
        if name not in parsers:
            raise UsageError(f"transform {part!r} is not known; expected {known}")
        place = order.index(name)
        if place <= last:
            raise UsageError(
                f"transform {part!r} comes after {order[last]}; expected each once, in the order "
                f"{', '.join(order)}, such as {example}"
            )
        last = place
        transforms = parsers[name](transforms, words, part)
    return transforms
