"""Grain: DataLoader, MapDataset and IterDataset, and their iterators."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval import IterableAdapter, LoaderInfo, Watch, map_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

REGROUPING = (
    "FlatMap",
    "Pack",
    "Rebatch",
    "ConcatThenSplit",
)  # the number of inputs per output varies
PROCESS, THREAD = "ProcessPrefetchIterDataset", "_MpContextIterDataset"
QUEUE_SIZES = ("_buffer_size", "_iter_buffer_size", "_prefetch_buffer_size")
Nodes = list[tuple[Any, int]]  # datasets, each with how many of its elements go into a batch


class GrainAdapter(IterableAdapter):
    """Knows the processes, threads and queues of a pipeline, and stops them.

    An iterator that is wrapped by itself has one epoch, and cannot be read once released.
    """

    watch = Watch(
        classes={
            "grain._src.python.data_loader": ("DataLoader",),
            "grain._src.python.dataset.dataset": ("MapDataset", "IterDataset"),
        },
        inside=("grain",),
    )
    distributions = ("grain",)
    _batch_size: int | None = None

    def epoch(self, loader: Any) -> Iterator[Any]:
        """A new iterator, from the first element."""
        self._batch_size = _batch_size(_nodes(loader))
        return super().epoch(loader)

    def samples(self, batch: Any) -> int | None:
        """1 if nothing is batched, else the first dimension of an array; None if it is unknown."""
        if self._batch_size is None or self._batch_size == 1:
            return self._batch_size
        return super().samples(batch)

    def keep(self, batch: Any) -> Any:
        """A copy out of the workers' shared memory, in plain arrays."""
        return super().keep(map_leaves(_plain, batch))

    def describe(self, loader: Any) -> LoaderInfo:
        """Processes, or threads where there are none, and all queues, in batches."""
        info = super().describe(loader)
        nodes = _nodes(loader)
        if not nodes:
            return info
        processes = sum(type(node).__name__ == PROCESS for node, _ in nodes)
        batch_size = _batch_size(nodes)
        depth = sum(math.ceil(_queue(node)[1] / size) for node, size in nodes)
        length = info.length if all(_is_counted(node) for node, _ in nodes) else None
        return replace(
            info,
            workers=processes or sum(_queue(node)[0] for node, _ in nodes),
            prefetch_depth=None if batch_size is None else min(depth, length or depth),
            batch_size=batch_size,
            length=length,
            start_method="spawn" if processes else None,
            ready_batches=0,
        )

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Close `epoch`, which ends its workers."""
        super().release(loader, getattr(epoch, "_iterator", epoch))  # of a DataLoader


def _plain(leaf: Any) -> Any:
    # Grain's own class of arrays cannot be pickled once it is copied out of shared memory.
    return leaf.view(np.ndarray) if type(leaf).__name__ == "SharedMemoryArray" else leaf


def _nodes(loader: Any) -> Nodes:
    """What `loader` iterates, from its output to its sources; empty if that is unknown."""
    if hasattr(loader, "to_iter_dataset"):  # a MapDataset, which iterates like this
        loader = loader.to_iter_dataset()
    dataset = getattr(loader, "_dataset", loader)  # of a DataLoader
    nodes = list(_upstream(dataset, 1)) if hasattr(dataset, "parents") else []
    known = all(_workers(node) or not hasattr(node, "_datasets") for node, _ in nodes)
    return nodes if known else []


def _upstream(dataset: Any, size: int) -> Iterator[tuple[Any, int]]:
    yield dataset, size
    size *= getattr(dataset, "_batch_size", 1)
    for source in (*getattr(dataset, "parents", ()), *_workers(dataset)):
        yield from _upstream(source, size)


def _workers(node: Any) -> list[Any]:
    """What `mp_prefetch` or `multithread_prefetch` interleaves; a user's interleaving is not."""
    shards = getattr(node, "_datasets", None)
    shards = shards if isinstance(shards, list) else []
    return shards if all(type(shard).__name__ in {PROCESS, THREAD} for shard in shards) else []


def _batch_size(nodes: Nodes) -> int | None:
    regroups = any(word in type(node).__name__ for node, _ in nodes for word in REGROUPING)
    return None if regroups else max((size for _, size in nodes), default=None)


def _is_counted(node: Any) -> bool:
    """Whether `node` drops no elements, and has an end."""
    drops = any(word in type(node).__name__ for word in ("Filter", "FlatMap"))
    return not drops and (not hasattr(node, "__len__") or len(node) < sys.maxsize)


def _queue(node: Any) -> tuple[int, int]:
    """How many threads or processes fill a queue at `node`, and how many elements they hold."""
    reading = getattr(node, "_read_options", None)
    if reading is not None:
        threads, size = int(reading.num_threads), int(reading.prefetch_buffer_size)
        return (threads, size) if threads and size else (0, 0)
    size = max(int(getattr(node, name, 0)) for name in QUEUE_SIZES)
    workers = (len(_workers(node)) or 1) if size else 0
    return workers, workers * (size + 1)  # one that waits for its queue holds an element
