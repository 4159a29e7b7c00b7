"""Serves a measured epoch through torch's own iterator, so that the iterator keeps its type.

With persistent workers, a DataLoader keeps its iterator for the next epoch, so nothing shows that
the program has dropped it; and a replay has no iterator. In both cases the program gets another
iterator, which passes the batches on.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from itertools import repeat
from typing import Any

from loadeval.adapter import length_of

Next = Callable[[Any], Any]

SERVE = "_loadeval_next"
"""An iterator's attribute: the function that serves its measured batches; None in its class."""
ORIGINAL = "_loadeval_original"
"""An attribute of our `__next__`: the method it replaced; another tool's wrapper copies it."""


def serving(original: Next) -> Next:
    """A `__next__` that serves measured batches where there are some, and else as `original`."""

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807 - it replaces that method
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
    """The loader's own batches. They hold `iterator` weakly, since it holds the measured epoch.

    The iterator ends when it is dropped. The only Python function called for a batch is the one
    that was replaced.
    """
    original: Next = getattr(type(iterator).__next__, ORIGINAL)
    return Inner(original, map(weakref.ref.__call__, repeat(weakref.ref(iterator))))


class IteratedByTorch:
    """One epoch of a loader that uses torch's iterators, but is not torch's DataLoader.

    `settings` is what it gives to the iterator that `make` makes: it has a DataLoader's attributes.
    `owner` is the loader itself, whose class and length are known.
    """

    batch_sampler = persistent_workers = None

    def __init__(self, owner: Any, settings: Any, make: Callable[[], Iterator[Any]]) -> None:
        for name in ("num_workers", "prefetch_factor", "pin_memory", "worker_init_fn", "in_order"):
            setattr(self, name, getattr(settings, name, None))
        self.multiprocessing_context = getattr(settings, "multiprocessing_context", None)
        self.batch_size = getattr(owner, "batch_size", None) or getattr(owner, "bs", None)
        self.dataset = getattr(owner, "dataset", None)
        self.length = length_of(owner)
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        return self.make()

    def __len__(self) -> int:
        return self.length or 0


@cache
def iterated_by_torch(kind: type) -> type[IteratedByTorch]:
    """The class for loaders of this `kind`, with its name, which tells it from other classes."""
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (IteratedByTorch,), names)


# The adapter for DataLoaders knows it.
IteratedByTorch.__module__ = "torch.utils.data"
