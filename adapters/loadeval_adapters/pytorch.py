"""torch.utils.data: DataLoader, its subclasses, and what Accelerate and Fabric make of it."""

from __future__ import annotations

import multiprocessing
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loadeval import IterableAdapter, LoaderInfo, LoadevalWarning
from loadeval_adapters import pytorch_frameworks as frameworks

if TYPE_CHECKING:
    from collections.abc import Iterator


class PyTorchAdapter(IterableAdapter):
    """Knows a DataLoader's workers, and stops them, persistent ones included."""

    _has_warned_of_another = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """`iter(loader)`; of nothing where a framework only tries whether there is one."""
        return iter(()) if frameworks.is_only_trying() else super().epoch(loader)

    def describe(self, loader: Any) -> LoaderInfo:
        """Workers, queue, batch size, pinning and start method of `loader`."""
        inside = _bare(loader)
        # From the moment that somebody asks for its length, a DataLoader over an iterable dataset
        # warns where it serves more. Who asks is the user alone.
        asked = getattr(inside, "_IterableDataset_len_called", None)
        info = super().describe(loader)
        if hasattr(inside, "_IterableDataset_len_called"):
            inside._IterableDataset_len_called = asked  # noqa: SLF001 - as above
        workers = getattr(inside, "num_workers", None)
        if workers is None:  # a Dataset, iterated by itself
            return info
        return replace(
            info,
            workers=workers,
            prefetch_depth=workers * (inside.prefetch_factor or 0),
            batch_size=inside.batch_size or getattr(inside.batch_sampler, "batch_size", None),
            pinned=inside.pin_memory,
            device="cpu" if inside is loader else _target(loader),
            start_method=_start_method(inside) if workers else None,
            persistent_workers=inside.persistent_workers,
            ready_batches=0,
        )

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop the workers of `epoch`, and those that `loader` keeps between epochs."""
        super().release(loader, epoch)
        loader = _bare(loader)
        persistent = getattr(loader, "_iterator", None)
        for iterator in (epoch, persistent):
            shutdown = getattr(iterator, "_shutdown_workers", None)
            if shutdown is not None:
                shutdown()
        if persistent is not None:
            loader._iterator = None  # noqa: SLF001 - the only place where DataLoader keeps it

    def refusal(self, loader: Any, mode: str) -> str | None:
        """Why a framework that is in use would go wrong with a stand-in for `loader`; or None."""
        if type(loader).__module__.startswith("lightning") or not hasattr(loader, "sampler"):
            return None  # Fabric has set it up; or it is a Dataset
        return frameworks.refusal(loader, mode)

    def dataset_was_read(self) -> None:
        """Warns, once, that Accelerate builds a loader which is not measured."""
        if not self._has_warned_of_another and frameworks.is_building_another():
            self._has_warned_of_another = True
            warnings.warn(frameworks.PASSED_BY, LoadevalWarning, stacklevel=4)


def _bare(loader: Any) -> Any:
    """The DataLoader inside what Accelerate or Fabric have made of one."""
    if type(loader).__module__.startswith("lightning"):
        return getattr(loader, "_dataloader", loader)
    return getattr(loader, "base_dataloader", loader)


def _target(loader: Any) -> str | None:
    # Where Accelerate or Fabric put the batches; their loaders do not always tell.
    device = getattr(loader, "device", None)
    return None if device is None else str(device)


def _start_method(loader: Any) -> str:
    context = loader.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    # Asking for the default without allow_none would fix it for the whole process.
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]
