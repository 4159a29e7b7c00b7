"""Serves a measured epoch by the iterator of torch's that the program has, so that its type stays.

Where a DataLoader keeps its iterator for the next epoch, with persistent workers, nothing tells
that the program has dropped it; and a replay has no iterator. There the program gets another one,
which passes on what is read of it.
"""

from __future__ import annotations

import functools
import sys
import weakref
from itertools import repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Next = Callable[[Any], Any]

SERVE = "_loadeval_next"
"""The attribute of an iterator with what serves its batches, measured; None of its class."""
ORIGINAL = "_loadeval_original"
"""The attribute of our `__next__` with what it replaced; another tool's wrapper copies it."""


def serving(original: Next) -> Next:
    """A `__next__` that serves measured batches where there are some, and else as `original`."""

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807 - it stands in for that
        serve = self._loadeval_next
        return original(self) if serve is None else serve()

    setattr(__next__, ORIGINAL, original)
    return __next__


def is_serving(kind: type) -> bool:
    """Whether the `__next__` of `kind` is ours, or calls ours."""
    return hasattr(kind.__next__, ORIGINAL)  # type: ignore[attr-defined]  # an iterator's class


def serve_by(iterator: Any, epoch: Iterator[Any]) -> None:
    """Let `iterator` serve the batches of `epoch`."""
    setattr(iterator, SERVE, epoch.__next__)


def keeps_type(loader: Any, iterator: Any) -> bool:
    """Whether `iterator` itself can serve what is measured of it."""
    module = sys.modules.get("torch.utils.data.dataloader")
    if module is None or not isinstance(iterator, module._BaseDataLoaderIter):  # noqa: SLF001 - there is no public name
        return False
    is_kept = getattr(loader, "_iterator", None) is iterator
    return not is_kept and is_serving(type(iterator))


class Inner(map):  # type: ignore[type-arg]  # of anything
    """The loader's own batches of an iterator whose `__next__` was replaced."""


def inner_of(iterator: Any) -> Inner:
    """They hold `iterator` weakly: it holds the epoch that is measured, and ends when dropped.

    No function of Python's is called for a batch, but the one that was replaced.
    """
    original: Next = getattr(type(iterator).__next__, ORIGINAL)
    return Inner(original, map(weakref.ref.__call__, repeat(weakref.ref(iterator))))
