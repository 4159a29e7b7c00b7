"""torch.utils.data: DataLoader and its subclasses."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loadeval import IterableAdapter, LoaderInfo

if TYPE_CHECKING:
    from collections.abc import Iterator


class PyTorchAdapter(IterableAdapter):
    """Knows a DataLoader's workers, and stops them, persistent ones included."""

    def describe(self, loader: Any) -> LoaderInfo:
        """Workers, queue, batch size, pinning and start method of `loader`."""
        info = super().describe(loader)
        workers = getattr(loader, "num_workers", None)
        if workers is None:  # a Dataset, iterated by itself
            return info
        return replace(
            info,
            workers=workers,
            prefetch_depth=workers * (loader.prefetch_factor or 0),
            batch_size=loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
            pinned=loader.pin_memory,
            device="cpu",
            start_method=_start_method(loader) if workers else None,
            persistent_workers=loader.persistent_workers,
            ready_batches=0,
        )

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop the workers of `epoch`, and those that `loader` keeps between epochs."""
        super().release(loader, epoch)
        persistent = getattr(loader, "_iterator", None)
        for iterator in (epoch, persistent):
            shutdown = getattr(iterator, "_shutdown_workers", None)
            if shutdown is not None:
                shutdown()
        if persistent is not None:
            loader._iterator = None  # noqa: SLF001 - the only place where DataLoader keeps it


def _start_method(loader: Any) -> str:
    context = loader.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    # Asking for the default without allow_none would fix it for the whole process.
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]
