"""What training frameworks do with a stand-in for torch's DataLoader, and where it goes wrong."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch import distributed
from torch.utils.data import DistributedSampler, IterableDataset

if TYPE_CHECKING:
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


def is_only_trying() -> bool:
    """Whether Lightning's Trainer asks for an epoch that it drops, to see that there are any.

    It spares a DataLoader that: workers would be started for nothing, and random numbers drawn.
    """
    return _is_asked_by("lightning.pytorch.trainer.connectors.", "pytorch_lightning.trainer.conn")


def is_building_another() -> bool:
    """Whether Accelerate takes a stand-in apart, to build a DataLoader of its own."""
    return _is_asked_by("accelerate.data_loader")


def refusal(loader: Any, mode: str) -> str | None:
    """Why the framework that is about to iterate a stand-in would go wrong; or None."""
    if hasattr(loader, "base_dataloader"):  # Accelerate has prepared it
        return None if mode == "log" else END_UNSEEN
    if _lightning_would_shard(loader):
        return UNSHARDED
    if _is_asked_by("ignite.engine.deterministic"):
        return UNREPEATABLE
    accelerate = sys.modules.get("accelerate.state")
    in_use = accelerate is not None and accelerate.AcceleratorState._shared_state  # noqa: SLF001 - is_initialized() came late
    # Hugging Face's Trainer uses Accelerate, and gets on with a loader that is not prepared.
    return UNPREPARED if in_use and not _is_asked_by("transformers.trainer") else None


def _lightning_would_shard(loader: Any) -> bool:
    """Whether Lightning's Trainer iterates, and puts a DistributedSampler into a DataLoader."""
    if not distributed.is_available() or not distributed.is_initialized():
        return False
    is_alone = distributed.get_world_size() == 1
    is_split = isinstance(loader.sampler, DistributedSampler)
    is_stream = isinstance(loader.dataset, IterableDataset)
    asked = _is_asked_by("lightning.pytorch.", "pytorch_lightning.")
    return asked and not (is_alone or is_split or is_stream)


def _is_asked_by(*modules: str) -> bool:
    """Whether code of a module whose name begins so has led here."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - who asks is known nowhere else
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(modules):
            return True
        frame = frame.f_back
    return False
