"""torch.utils.data: DataLoader, its subclasses, and what Accelerate and Fabric make of it."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import distributed
from torch.utils.data import DistributedSampler, IterableDataset

from loadeval import IterableAdapter, LoaderInfo, LoadevalWarning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

IN_PLACE = "Measure it in place instead: evaluate_in_place(dataloader)"
UNPREPARED = (
    "Accelerate is in use, and its prepare() passes a LoaderEvaluator over: the loader would have "
    "neither the device nor the end of an epoch seen to. " + IN_PLACE + " before prepare(), or "
    "wrap what prepare() returns"
)
END_UNSEEN = (
    "Accelerate's loader tells the end of an epoch when it has read the last batch. Only in mode="
    "'log' is that when training gets it; else gradients would be accumulated wrongly. " + IN_PLACE
)
UNSHARDED = (
    "Lightning can give each process its part of the data only where it can build the DataLoader "
    "anew, which it cannot behind a LoaderEvaluator: every process would train on all of it. "
    + IN_PLACE
    + ", or use a DistributedSampler"
)
PASSED_BY = (
    "Accelerate builds a new DataLoader from this LoaderEvaluator, as skip_first_batches does to "
    "resume an epoch. The batches of the new one are not measured. " + IN_PLACE
)
UNREPEATABLE = (
    "Ignite's DeterministicEngine exchanges a DataLoader's batch sampler, which it cannot behind a "
    "LoaderEvaluator: the batches would be others. " + IN_PLACE
)


class PyTorchAdapter(IterableAdapter):
    """Knows a DataLoader's workers, and stops them, persistent ones included."""

    _has_warned_of_another = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """`iter(loader)`; of nothing where a framework only tries whether there is one."""
        return iter(()) if _lightning_only_tries() else super().epoch(loader)

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
        return _refusal(loader, mode)

    def dataset_was_read(self) -> None:
        """Warns, once, that Accelerate builds a loader which is not measured."""
        if not self._has_warned_of_another and _accelerate_rebuilds():
            self._has_warned_of_another = True
            warnings.warn(PASSED_BY, LoadevalWarning, stacklevel=4)


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


def _lightning_only_tries() -> bool:
    """Whether Lightning's Trainer asks for an epoch that it drops, to see that there are any.

    It spares a DataLoader that: workers would be started for nothing, and random numbers drawn.
    """
    return _is_called_from("lightning.pytorch.trainer.conn", "pytorch_lightning.trainer.conn")


def _accelerate_rebuilds() -> bool:
    """Whether Accelerate takes a stand-in apart, to build a DataLoader of its own."""
    return _is_called_from("accelerate.data_loader")


def _refusal(loader: Any, mode: str) -> str | None:
    """Why the framework that is about to iterate a stand-in would go wrong; or None."""
    if hasattr(loader, "base_dataloader"):  # Accelerate has prepared it
        return None if mode == "log" else END_UNSEEN
    if _lightning_would_shard(loader):
        return UNSHARDED
    if _is_called_from("ignite.engine.deterministic"):
        return UNREPEATABLE
    accelerate = sys.modules.get("accelerate.state")
    in_use = accelerate is not None and accelerate.AcceleratorState._shared_state  # noqa: SLF001 - is_initialized() came late
    # Hugging Face's Trainer uses Accelerate, and gets on with a loader that is not prepared.
    return UNPREPARED if in_use and not _is_called_from("transformers.trainer") else None


def _lightning_would_shard(loader: Any) -> bool:
    """Whether Lightning's Trainer iterates, and puts a DistributedSampler into a DataLoader."""
    if not distributed.is_available() or not distributed.is_initialized():
        return False
    is_alone = distributed.get_world_size() == 1
    is_split = isinstance(loader.sampler, DistributedSampler)
    is_stream = isinstance(loader.dataset, IterableDataset)
    asked = _is_called_from("lightning.pytorch.", "pytorch_lightning.")
    return asked and not (is_alone or is_split or is_stream)


def _is_called_from(*modules: str) -> bool:
    """Whether the call came through a module whose name begins so."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - who asks is known nowhere else
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(modules):
            return True
        frame = frame.f_back
    return False
