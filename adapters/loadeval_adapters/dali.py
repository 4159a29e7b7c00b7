# ruff: noqa: SLF001 - DALI keeps what an iterator or a reader was made with under private names alone
"""NVIDIA DALI: its iterators, pipelines without one, and the dynamic mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from nvidia.dali.types import to_numpy_type

from loadeval import IterableAdapter, LoaderInfo, Watch

NOT_TIMED = (
    "DALI tells the times of its operators only to Nsight Systems: run nsys profile -t nvtx,cuda "
    "python train.py"
)
NAMES = {"num_workers": "num_threads", "prefetch_depth": "prefetch_queue_depth"}


class AnyDALIAdapter(IterableAdapter):
    """What all of DALI's loaders have in common.

    None can go back to the start of an epoch: after a `break` the next one is the remainder, as
    without loadeval. Readers cannot seek, a checkpoint can be restored only before a pipeline is
    built, and reading on to the end would take as long as the epoch.
    """

    watch = Watch(classes={}, inside=("nvidia.dali",))
    distributions = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")

    def stages(self, loader: Any) -> str:  # noqa: ARG002 - the same for all
        """Why DALI's operators are not timed."""
        return NOT_TIMED


def _calls(next_batch: Callable[[], Any], batches: int | None) -> Iterator[Any]:
    """An epoch of as many calls; None: until StopIteration."""
    try:
        for _ in count() if batches is None else range(batches):
            yield next_batch()
    except StopIteration:
        return


def _batches_ahead(pipeline: Any) -> int:
    """How many batches a pipeline has ready beside the one that it was last asked for."""
    deepest: int = max(pipeline.cpu_queue_size, pipeline.gpu_queue_size)
    return deepest - 1 if pipeline.exec_pipelined else 0


def _device_of(pipeline: Any) -> str:
    return "cpu" if pipeline.device_id is None else f"cuda:{pipeline.device_id}"


class DALIAdapter(AnyDALIAdapter):
    """Serves the epochs of an iterator. One without `size` and `reader_name` has no length."""

    watch = Watch(
        classes={"nvidia.dali.plugin.base_iterator": ("_DaliBaseIterator",)},
        inside=("nvidia.dali",),
    )
    setting_names = NAMES
    _stacked = False

    def samples(self, batch: Any) -> int | None:
        """The samples of all pipelines together: for PyTorch, each has a dict in a list."""
        if not isinstance(batch, list):  # for JAX the arrays of several pipelines are stacked
            return None if self._stacked else super().samples(batch)
        counts = [_samples_in(outputs) for outputs in batch]
        return None if None in counts else sum(filter(None, counts))

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, queue and batch size of all its pipelines together.

        `ready_batches` is 1 where DALI has prepared a batch, or has begun to: by default it does
        when the iterator is made.
        """
        info, pipelines = super().describe(loader), loader._pipes
        self._stacked = len(pipelines) > 1 and getattr(loader, "_sharding", loader) is None
        ready = loader._first_batch is not None or not all(each.empty() for each in pipelines)
        devices = list(dict.fromkeys(map(_device_of, pipelines)))
        # Where the last batch is filled with the next epoch's samples, that may be shorter.
        carries_over = loader._last_batch_policy.name == "FILL" and not loader._last_batch_padded
        has_length = loader.size >= 0 and not (carries_over and loader._ever_consumed)
        return replace(
            info,
            workers=sum(each.num_threads for each in pipelines),
            # An iterator asks for the next batch before it hands out one.
            prefetch_depth=1 + max(map(_batches_ahead, pipelines)),
            batch_size=loader.batch_size * len(pipelines),
            pinned=False if devices == ["cpu"] else None,
            device=", ".join(devices),
            length=info.length if has_length else None,
            ready_batches=int(ready),
        )


def _samples_in(outputs: dict[str, Any]) -> int | None:
    for output in outputs.values():
        if isinstance(output, list):  # of DALIRaggedIterator: a tensor for each sample
            return len(output)
        # A sparse tensor has no rows for samples at its end that are empty.
        if len(output.shape) > 0 and not getattr(output, "is_sparse", False):
            return int(output.shape[0])
    return None


class DALIPipelineAdapter(AnyDALIAdapter):
    """Runs a pipeline for as many batches as its longest reader has, or until a source ends.

    A batch is what `run()` returns, a tuple of TensorLists. The reader's epoch is that of its
    shard, the last batch included, which the reader fills. Without a reader, and with a source
    that does not end, it is endless.
    """

    setting_names = NAMES

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The outputs of as many runs as an epoch has; a source that has ended begins anew."""
        batches = _batches_in_an_epoch(loader)
        if loader.empty():  # else the reset would lose the end of an epoch that was broken off
            loader.reset()
        return _calls(loader.run, batches)

    def samples(self, batch: Any) -> int | None:
        """The length of the first TensorList."""
        return len(batch[0]) if batch else None

    def nbytes(self, batch: Any) -> int | None:
        """Bytes of all TensorLists, without padding."""
        total = 0
        for tensors in batch:
            itemsize = np.dtype(to_numpy_type(tensors.dtype)).itemsize  # type: ignore[no-untyped-call]  # DALI's
            total += itemsize * sum(map(math.prod, tensors.shape()))
        return total or None

    def keep(self, batch: Any) -> Any:
        """TensorLists of their own memory: `exec_dynamic=False` overwrites those of a run."""
        return tuple(type(tensors)(list(tensors), tensors.layout()) for tensors in batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, queue and batch size; builds the pipeline where that is still to be done."""
        length = _batches_in_an_epoch(loader)
        return replace(
            super().describe(loader),
            workers=loader.num_threads,
            prefetch_depth=_batches_ahead(loader),
            batch_size=loader.max_batch_size,
            pinned=False if loader.device_id is None else None,
            device=_device_of(loader),
            length=length,
            ready_batches=0 if loader.empty() else _batches_ahead(loader),
        )


def _batches_in_an_epoch(pipeline: Any) -> int | None:
    """Those of the reader that has most; None without a reader."""
    shards = (
        math.ceil(meta["epoch_size"] / meta["number_of_shards"])
        for meta in pipeline.reader_meta().values()
    )
    return max((math.ceil(shard / pipeline.max_batch_size) for shard in shards), default=None)


class DALIDynamicAdapter(AnyDALIAdapter):
    """Calls `next_epoch()` of a reader for each epoch, and an ExternalSource for each batch.

    A reader's batches have the size that it was made with, `max_batch_size`; without one it
    hands out single samples. What a training loop then makes of them, decoding above all, is its
    step: to have that counted as loading, wrap a generator function that does it.
    """

    def __init__(self) -> None:
        from nvidia.dali.experimental import dynamic  # noqa: PLC0415 - older versions have none

        self._dynamic = dynamic

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The next epoch of a reader; a source until it raises StopIteration."""
        if hasattr(loader, "next_epoch"):
            return iter(loader.next_epoch())
        return _calls(loader, None)

    def samples(self, batch: Any) -> int | None:
        """The batch size of the first output; 1 for single samples."""
        first = _outputs(batch)[0]
        return int(first.batch_size) if isinstance(first, self._dynamic.Batch) else 1

    def nbytes(self, batch: Any) -> int | None:
        """Bytes of all outputs."""
        total = 0
        for output in _outputs(batch):
            shapes = output.shape if isinstance(output, self._dynamic.Batch) else [output.shape]
            total += int(output.dtype.bytes) * sum(map(math.prod, shapes))
        return total

    def keep(self, batch: Any) -> Any:
        """Evaluated copies of all outputs, on their device."""
        if isinstance(batch, dict):
            return {name: self._owned(output) for name, output in batch.items()}
        return tuple(map(self._owned, batch)) if isinstance(batch, tuple) else self._owned(batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """A reader's batch size and queue."""
        info = super().describe(loader)
        if not hasattr(loader, "next_epoch"):
            return info
        ahead = loader._init_args.get("prefetch_queue_depth")
        return replace(
            info,
            workers=1,  # a reader reads ahead in a thread of its own
            prefetch_depth=1 if ahead is None else ahead,
            batch_size=loader._batch_size,
        )

    def _owned(self, output: Any) -> Any:
        if isinstance(output, self._dynamic.Batch):
            return self._dynamic.batch(output)
        return self._dynamic.tensor(output).evaluate()


def _outputs(batch: Any) -> tuple[Any, ...]:
    """The Batches and Tensors of a batch."""
    outputs = tuple(batch.values()) if isinstance(batch, dict) else batch
    return outputs if isinstance(outputs, tuple) else (outputs,)
