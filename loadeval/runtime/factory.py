"""Loaders that a callable makes, a new one for each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadeval.errors import UsageError
from loadeval.runtime.adapter import IterableAdapter, is_iterable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadeval.runlog.model import LoaderInfo
    from loadeval.runtime.adapter import Adapter


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
