"""What the adapters of DALI share: no loader of DALI's can go back to the start of an epoch."""

from __future__ import annotations

import inspect
import warnings
from itertools import count
from typing import TYPE_CHECKING, Any

from loadeval import IterableAdapter, LoadevalWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BROKEN_OFF = (
    "the epoch before was broken off (filling the cache of a replay does that too), and DALI "
    "cannot go back to its start: this one begins where that one ended. To measure whole epochs, "
    "read each to its end, or wrap a callable that makes a new loader for each"
)
OURS = ("loadeval", "loadeval_adapters")


def warn_broken_off() -> None:
    """Warn of an epoch that begins in the middle, at the line outside loadeval that asked."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals["__name__"].split(".")[0] in OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(BROKEN_OFF, LoadevalWarning, stacklevel=level)


class ForwardAdapter(IterableAdapter):
    """Serves what is called for each batch, until it raises StopIteration or has had enough."""

    def __init__(self) -> None:
        self._part_read: Any = None

    def forward(
        self, loader: Any, next_batch: Callable[[], Any], batches: int | None
    ) -> Iterator[Any]:
        """An epoch of at most `batches` calls; None: until StopIteration."""
        if loader is self._part_read:
            warn_broken_off()
        return self._calls(loader, next_batch, batches)

    def _calls(
        self, loader: Any, next_batch: Callable[[], Any], batches: int | None
    ) -> Iterator[Any]:
        try:
            for left in count(1) if batches is None else reversed(range(batches)):
                self._part_read = loader if left else None
                yield next_batch()
        except StopIteration:
            self._part_read = None
