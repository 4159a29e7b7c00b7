"""What loadeval needs to know of a loader, and the answers that suit any iterable or callable."""

from __future__ import annotations

from itertools import chain
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

from loadeval.errors import UsageError
from loadeval.runlog.model import LoaderInfo
from loadeval.runtime.batch import clone_leaf, map_leaves, survey
from loadeval.runtime.cuda import synchronize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Adapter(Protocol):
    """How loadeval speaks with one kind of loader. Subclass IterableAdapter to write one."""

    def epoch(self, loader: Any) -> Iterator[Any]:
        """A fresh iterator over one epoch, reset where the backend needs it."""

    def samples(self, batch: Any) -> int | None:
        """How many samples `batch` holds, or None when that cannot be known; never a guess."""

    def nbytes(self, batch: Any) -> int | None:
        """The size of `batch` in bytes, or None when that cannot be known."""

    def keep(self, batch: Any) -> Any:
        """A copy that stays as it is when the loader moves on and uses its buffers again."""

    def describe(self, loader: Any) -> LoaderInfo:
        """What is known of `loader`, without reading a batch."""

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop what `loader` and its iterator `epoch` do in the background."""

    def refusal(self, loader: Any, mode: str) -> str | None:
        """Why a LoaderEvaluator cannot stand in for `loader` here, and what to do; or None."""

    def fence(self) -> None:
        """Wait until the device has done all that was asked of it; called at blocks' edges."""

    def dataset_was_read(self) -> None:
        """Somebody reads `dataset` of a LoaderEvaluator: to build another loader, it may be."""


class IterableAdapter:
    """Serves any iterable. Samples are the first dimension of the first array in a batch."""

    def epoch(self, loader: Any) -> Iterator[Any]:
        """`iter(loader)`, which is called once, also where a loader is its own iterator."""
        epoch = iter(loader)
        restarts = epoch is loader and isinstance(type(loader).__iter__, FunctionType)
        # A chain is read on in parts, and after an exception, without an iter() of the loader.
        return chain(Begun(epoch)) if restarts else epoch

    def samples(self, batch: Any) -> int | None:
        """The first dimension of the first array in `batch`; None when there is no such."""
        return survey(batch)[0]

    def nbytes(self, batch: Any) -> int | None:
        """Bytes of all arrays and byte strings in `batch`; None when there are none."""
        return survey(batch)[1]

    def keep(self, batch: Any) -> Any:
        """Fresh containers around a clone of each leaf."""
        return map_leaves(clone_leaf, batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """The loader's class, and its length where it tells one."""
        kind = type(self)
        return LoaderInfo(
            backend=f"{type(loader).__module__}.{type(loader).__qualname__}",
            adapter=f"{kind.__module__}.{kind.__qualname__}",
            length=length_of(loader),
        )

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:  # noqa: ARG002 - adapters override it
        """Close `epoch` if it can be closed, as a generator can."""
        close = getattr(epoch, "close", None)
        if callable(close):
            close()

    def refusal(self, loader: Any, mode: str) -> str | None:  # noqa: ARG002 - adapters override it
        """None: it can."""
        return None

    def fence(self) -> None:
        """Synchronise with the CUDA device, where torch has one in use."""
        synchronize()

    def dataset_was_read(self) -> None:
        """Nothing follows from it."""


def check_is_loader(loader: Any) -> None:
    """Raises UsageError when batches cannot be read from `loader`."""
    if not is_iterable(loader) and not callable(loader):
        raise UsageError(
            f"cannot read batches from {type(loader).__name__!r}: expected an iterable, or a "
            "callable that returns an iterator; pass the loader that the training loop iterates"
        )


def is_iterable(loader: Any) -> bool:
    """Whether `iter(loader)` can work: by iteration, or by index as a dataset."""
    return hasattr(type(loader), "__iter__") or hasattr(type(loader), "__getitem__")


class Begun:
    """An iterator that is not begun anew by the `iter()` of whoever goes on with it."""

    def __init__(self, epoch: Iterator[Any]) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        return self._epoch


def length_of(loader: Any) -> int | None:
    """`len(loader)`, or None where it has none, or says 0 or less, as endless loaders do."""
    try:
        return len(loader) or None
    except (TypeError, ValueError):  # ValueError: less than 0
        return None


class FactoryAdapter:
    """Serves a callable that returns a loader, or an iterator: each epoch calls it.

    It is called at once, to learn what kind of loader it makes, and the first epoch gets that
    one. All that it makes are served by the adapter of the first, which `adapter_for` finds.

    Raises UsageError when what it makes cannot be iterated.
    """

    def __init__(self, factory: Callable[[], Any], adapter_for: Callable[[Any], Adapter]) -> None:
        self._factory = factory
        self._made = made = factory()
        self._unused = True
        self._inner = inner = adapter_for(made)
        if type(inner) is IterableAdapter and not is_iterable(made):
            raise UsageError(
                f"{factory!r} returned {type(made).__name__!r}, from which no batches can be "
                "read: expected a loader or an iterator; pass a callable that returns a new one"
            )
        # Bound to the adapter itself: counting asks by which rules it counts.
        self.samples = inner.samples
        self.nbytes = inner.nbytes
        self.keep = inner.keep
        self.fence = inner.fence
        self.dataset_was_read = inner.dataset_was_read

    def epoch(self, loader: Any) -> Iterator[Any]:
        """An epoch of what `loader()` returns."""
        if not self._unused or loader is not self._factory:
            self._made = loader()
        self._unused = False
        return self._inner.epoch(self._made)

    def describe(self, loader: Any) -> LoaderInfo:  # noqa: ARG002 - another one would have to be made
        """What is known of the loader that was made last."""
        return self._inner.describe(self._made)

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:  # noqa: ARG002 - as above
        """Stop what the loader that was made last does in the background."""
        self._inner.release(self._made, epoch)

    def refusal(self, loader: Any, mode: str) -> str | None:  # noqa: ARG002 - as above
        """Why a LoaderEvaluator cannot stand in for the loaders that it makes; or None."""
        return self._inner.refusal(self._made, mode)
