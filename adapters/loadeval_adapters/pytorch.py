"""torch.utils.data: DataLoader, its subclasses, and what Accelerate's `prepare` makes of it."""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loadeval import IterableAdapter, LoaderInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_PLACE = "Measure it in place instead: evaluate_in_place(dataloader)"
UNPREPARED = (
    "Accelerate is in use, and its prepare() passes a LoaderEvaluator over: the loader would have "
    "neither the device nor the end of an epoch seen to. " + IN_PLACE + " before prepare(), or "
    "wrap what prepare() returns"
)
READ_AHEAD = (
    "Accelerate's loader tells the end of an epoch when its last batch is read, which mode="
    "'alternate' does ahead of time: gradients would be accumulated wrongly. " + IN_PLACE
)
UNSHARDED = (
    "Lightning can give each process its part of the data only where it can build the DataLoader "
    "anew, which it cannot behind a LoaderEvaluator: every process would train on all of it. "
    + IN_PLACE
    + ", or use a DistributedSampler"
)
LIGHTNING = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning", "lightning_fabric")


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
        loader = getattr(loader, "base_dataloader", loader)
        persistent = getattr(loader, "_iterator", None)
        for iterator in (epoch, persistent):
            shutdown = getattr(iterator, "_shutdown_workers", None)
            if shutdown is not None:
                shutdown()
        if persistent is not None:
            loader._iterator = None  # noqa: SLF001 - the only place where DataLoader keeps it

    def refusal(self, loader: Any, mode: str) -> str | None:
        """Why a framework that is in use would go wrong with a stand-in for `loader`; or None."""
        if hasattr(loader, "base_dataloader"):  # Accelerate has prepared it
            return READ_AHEAD if mode == "alternate" else None
        accelerate = sys.modules.get("accelerate.state")
        if accelerate is not None and accelerate.AcceleratorState._shared_state:  # noqa: SLF001 - is_initialized() came late
            return UNPREPARED
        return UNSHARDED if _lightning_would_shard(loader) else None


def _lightning_would_shard(loader: Any) -> bool:
    if not any(name in sys.modules for name in LIGHTNING) or not hasattr(loader, "sampler"):
        return False
    distributed = sys.modules["torch"].distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return False
    ours = type(loader.sampler).__name__ in {"RandomSampler", "SequentialSampler"}
    return bool(ours and distributed.get_world_size() > 1)


def _start_method(loader: Any) -> str:
    context = loader.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    # Asking for the default without allow_none would fix it for the whole process.
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]
