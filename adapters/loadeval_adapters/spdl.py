"""spdl.dataloader: DataLoader, PyTorchDataLoader and CacheDataLoader."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spdl.dataloader import CacheDataLoader, DataLoader, PyTorchDataLoader
from spdl.pipeline import PipelineBuilder

from loadeval import IterableAdapter, LoaderInfo, LoadevalWarning
from loadeval_adapters.spdl_stages import Stages, told

if TYPE_CHECKING:
    from collections.abc import Iterator


class SPDLAdapter(IterableAdapter):
    """Knows the threads or processes of SPDL's data loaders, and their queues.

    Each epoch builds a pipeline, which is stopped when the epoch ends or is closed. Items that
    fail in it are dropped, and are no batches. SPDL logs an error for each; how many they were
    cannot be known, except for a PyTorchDataLoader, which drops whole batches: at the end of the
    epoch a LoadevalWarning tells how many its length has and the epoch had not.

    What a CacheDataLoader serves after `return_caches_after` batches was loaded before: it is
    measured as what it is, a loader that does next to nothing.
    """

    _lists_samples = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """A new pipeline's batches."""
        length = super().describe(loader).length
        if isinstance(loader, PyTorchDataLoader) and length is not None:
            return _watched(loader, length)
        return super().epoch(loader)

    def samples(self, batch: Any) -> int | None:
        """The length of a list that a DataLoader without an aggregator made; else as usual."""
        if self._lists_samples and isinstance(batch, list):
            return len(batch)
        return super().samples(batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """Workers, queues, batch size, and the length of those that have one.

        `prefetch_depth` counts the batches that are ready when nobody takes any, at most: those
        in the buffer, and those in and between the stages, samples included.
        """
        info = super().describe(loader)
        if isinstance(loader, CacheDataLoader):
            if isinstance(loader.dl, (CacheDataLoader, DataLoader, PyTorchDataLoader)):
                info = replace(self.describe(loader.dl), backend=info.backend)
            return replace(info, length=loader.stop_after)
        threads, processes = told(loader, "_num_threads"), told(loader, "_num_workers")
        workers = threads or processes
        if workers is None or told(loader, "_buffer_size") is None:
            return info
        stages = Stages.of_builder(_builder(loader, workers))
        info = replace(info, workers=workers, prefetch_depth=stages.depth)
        if processes is None:
            self._lists_samples = stages.end_in_lists
            return replace(info, batch_size=stages.batch_size)
        context = told(loader, "_mp_ctx")
        return replace(
            info,
            batch_size=told(loader, "_sampler.batch_size"),
            start_method=None if context is None else context.get_start_method(),
            persistent_workers=False,
        )


def _watched(loader: Any, length: int) -> Iterator[Any]:
    served = 0
    for batch in loader:
        served += 1
        yield batch
    if served < length:
        warnings.warn(
            f"SPDL served {served} of {length} batches in this epoch: it drops those in which a "
            "sample fails. Its log has the errors",
            LoadevalWarning,
            stacklevel=2,
        )


def _builder(loader: Any, workers: int) -> Any:
    """Stages as `loader` has them, which do nothing."""
    order = told(loader, "_output_order") or "input"
    builder: Any = PipelineBuilder().add_source([])
    for stage in ("_preprocessor", "_fetch_fn", "_batch_size", "_aggregator", "_transfer_fn"):
        chosen = told(loader, stage)
        if not chosen:
            continue
        if stage == "_batch_size":
            builder.aggregate(chosen)
        elif stage == "_transfer_fn":
            builder.pipe(_same, output_order=order)
        else:
            builder.pipe(_same, concurrency=workers, output_order=order)
    return builder.add_sink(told(loader, "_buffer_size"))


def _same(item: Any) -> Any:
    return item
