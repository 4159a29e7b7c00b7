"""nvidia.dali.pipeline: a Pipeline by itself, without an iterator around it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from nvidia.dali.types import to_numpy_type

from loadeval import LoaderInfo, UsageError
from loadeval_adapters.dali_epochs import ForwardAdapter

if TYPE_CHECKING:
    from collections.abc import Iterator


class DALIPipelineAdapter(ForwardAdapter):
    """Runs a pipeline for as many batches as its reader's epoch has, or until a source ends.

    A batch is what `run()` returns, a tuple of TensorLists. The reader's epoch is that of its
    shard, the last batch included, which the reader fills. Without a reader, and with a source
    that does not end, it is endless.
    """

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The outputs of as many runs as an epoch has; a source that has ended begins anew."""
        batches = _batches_in_an_epoch(loader)
        if loader.empty():  # else the reset would lose the end of an epoch that was broken off
            loader.reset()
        return self.forward(loader, loader.run, batches)

    def samples(self, batch: Any) -> int | None:
        """The length of the first TensorList."""
        return len(batch[0]) if batch else None

    def nbytes(self, batch: Any) -> int | None:
        """Bytes of all TensorLists, without padding."""
        return sum(map(_nbytes_of, batch)) if batch else None

    def keep(self, batch: Any) -> Any:
        """TensorLists of their own memory: `exec_dynamic=False` overwrites those of a run."""
        return tuple(type(tensors)(list(tensors), tensors.layout()) for tensors in batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, queue and batch size; builds the pipeline where that is still to be done."""
        length = _batches_in_an_epoch(loader)
        return replace(
            super().describe(loader),
            workers=loader.num_threads,
            prefetch_depth=ahead_of_run(loader),
            batch_size=loader.max_batch_size,
            pinned=False if loader.device_id is None else None,
            device=device_of(loader),
            length=length,
            ready_batches=0 if loader.empty() else ahead_of_run(loader),
        )


def ahead_of_run(pipe: Any) -> int:
    """How many batches a pipeline has ready beside the one that it was last asked for."""
    return max(pipe.cpu_queue_size, pipe.gpu_queue_size) - 1 if pipe.exec_pipelined else 0


def device_of(pipe: Any) -> str:
    """The device that a pipeline works on."""
    return "cpu" if pipe.device_id is None else f"cuda:{pipe.device_id}"


def _batches_in_an_epoch(pipe: Any) -> int | None:
    found = {}
    for name, meta in pipe.reader_meta().items():
        shard = math.ceil(meta["epoch_size"] / meta["number_of_shards"])
        found[name] = math.ceil(shard / pipe.max_batch_size)
    lengths = set(found.values())
    if len(lengths) > 1:
        told = ", ".join(f"{name} {batches}" for name, batches in found.items())
        raise UsageError(
            f"the pipeline's readers differ in batches per epoch ({told}): expected one length; "
            "wrap a DALIGenericIterator with reader_name=, or a callable that yields pipe.run() "
            "as often as your epoch has batches"
        )
    return lengths.pop() if lengths else None


def _nbytes_of(tensors: Any) -> int:
    itemsize = np.dtype(to_numpy_type(tensors.dtype)).itemsize  # type: ignore[no-untyped-call]  # DALI's
    return itemsize * sum(map(math.prod, tensors.shape()))
