"""One backend of several: its loader, or what makes one, and its batches as the step takes them."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning, UsageError
from loadeval.runlog.model import UNKNOWN
from loadeval.runtime.adapter import Adapter, IterableAdapter, check_is_loader
from loadeval.runtime.counting import Counter
from loadeval.runtime.factory import FactoryAdapter
from loadeval.runtime.layout import Layout, layout_of
from loadeval.runtime.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadeval.runlog.model import LoaderInfo


@dataclass(frozen=True, slots=True)
class Backend:
    """A loader that `compare_backends` compares, and what makes its batches like the others'.

    `loader` is any loader, or a callable that returns a new one; each epoch calls it. `convert`
    makes of its batch one that the training step takes; the time of that counts as loading,
    since whoever uses this loader has to spend it.

    Raises UsageError when `convert` cannot be called.
    """

    loader: Any
    convert: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.convert is not None and not callable(self.convert):
            raise UsageError(
                f"convert is {self.convert!r}; expected a callable from a batch of this backend "
                "to one that the training step takes"
            )


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What is known of a backend before anything is timed."""

    info: LoaderInfo
    layout: Layout


class Source:
    """Opens the epochs of a backend, one at a time, and stops what it does in the background.

    Raises UsageError for what is no loader, and for an iterator, which has one epoch only; and
    what a callable raises.
    """

    def __init__(self, backend: Backend) -> None:
        self._loader = loader = backend.loader
        self._convert = backend.convert
        self._adapter = adapter_for(loader)
        if type(self._adapter) is IterableAdapter:
            check_is_loader(loader)
            _check_is_reiterable(loader)
        self._epoch: Iterator[Any] | None = None

    @property
    def batches(self) -> Adapter:
        """What counts and keeps its batches, as they come out of `open`."""
        return self._adapter if self._convert is None else IterableAdapter()

    def open(self) -> Iterator[Any]:
        """A new epoch, its batches converted."""
        with _quietly():
            self._epoch = self._adapter.epoch(self._loader)
        return self._epoch if self._convert is None else map(self._convert, self._epoch)

    def close(self) -> None:
        """Stop what the epoch that was opened last does in the background."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            self._adapter.release(self._loader, epoch)

    def fence(self) -> None:
        """Wait until the device has done all that was asked of it."""
        self._adapter.fence()

    def look(self, samples: Callable[[Any], int | None] | None) -> FirstLook:
        """Read the first batch of an epoch. Raises what the loader raises.

        UsageError when there is no batch.
        """
        info = self._adapter.describe(self._loader)
        try:
            for batch in self.open():
                count, _ = Counter(self.batches, samples).count(batch)
                known = None if count == UNKNOWN else count
                layout = layout_of(batch, known, info.length)
                break
            else:
                raise UsageError("the loader gave no batch; expected one that serves epochs")
        finally:
            self.close()
        return FirstLook(replace(info, ready_batches=self._ready_batches()), layout)

    def _ready_batches(self) -> int | None:
        if isinstance(self._adapter, FactoryAdapter):
            return 0  # each one fills its queue in the start-up of its epoch
        with _quietly():
            return self._adapter.describe(self._loader).ready_batches


def _check_is_reiterable(loader: Any) -> None:
    # One whose class is written in Python may start over when iter() is called.
    is_iterator = hasattr(type(loader), "__next__")
    if is_iterator and not isinstance(getattr(type(loader), "__iter__", None), FunctionType):
        raise UsageError(
            f"a {type(loader).__name__} can be iterated only once, and a backend has to serve "
            "several turns; pass a callable that returns a new one each time"
        )


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what an adapter says of an epoch that was broken off: here each of them is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoadevalWarning)
        yield
