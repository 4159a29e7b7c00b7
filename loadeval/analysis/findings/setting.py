"""What loaders call the settings that the advice is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadeval.runlog.model import LoaderInfo

WORKERS = {
    "torch": "num_workers",
    "torchdata": "num_workers",
    "accelerate": "num_workers",
    "lightning": "num_workers",
    "webdataset": "num_workers",
    "litdata": "num_workers",
    "nvidia": "num_threads",
    "spdl": "num_threads",
}
"""By the package that the loader's class is from."""
PREFETCH = {
    "torch": "prefetch_factor",
    "nvidia": "prefetch_queue_depth",
    "spdl": "buffer_size",
}


def workers_setting(loader: LoaderInfo) -> str:
    """What the number of workers or threads is set by."""
    return WORKERS.get(_package(loader), "the number of workers")


def prefetch_setting(loader: LoaderInfo) -> str:
    """What the number of batches that are kept ready is set by."""
    return PREFETCH.get(_package(loader), "the prefetch depth")


def deeper_prefetch(loader: LoaderInfo) -> str:
    """How to let `loader` keep more batches ready."""
    setting, depth = PREFETCH.get(_package(loader)), loader.prefetch_depth
    if setting is None or not depth:
        return "prefetch more batches"
    if setting != "prefetch_factor":
        return f"raise {setting}, so that {2 * depth} batches are ready instead of {depth}"
    factor = depth // loader.workers if loader.workers else depth
    return f"raise prefetch_factor from {factor} to {2 * factor}"


def _package(loader: LoaderInfo) -> str:
    return loader.backend.split(".", maxsplit=1)[0]
