"""torchdata: StatefulDataLoader; nodes' Loader, or a node by itself."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from loadeval import IterableAdapter, LoaderInfo, LoadevalWarning, Watch
from loadeval_adapters.torch import PyTorchAdapter

try:
    from torchdata import nodes
except ImportError:  # before version 0.10
    nodes = None

if TYPE_CHECKING:
    from collections.abc import Iterator


INEXACT = (
    "mode='alternate' reads batches ahead of training, so a state_dict() taken during an epoch "
    "skips batches that training has not seen; use mode='log' to resume training from it"
)


class ResumableAdapter(IterableAdapter):
    """The adapter of loaders with a `state_dict()`.

    It warns, once, where a state could not be resumed from.
    """

    _has_warned = False

    def refusal(self, loader: Any, mode: str) -> str | None:
        """Refuse as other loaders do; warn of a mode whose states are inexact."""
        if mode == "alternate" and not self._has_warned:
            self._has_warned = True
            warnings.warn(INEXACT, LoadevalWarning, stacklevel=3)  # where it is iterated
        return super().refusal(loader, mode)


class StatefulDataLoaderAdapter(ResumableAdapter, PyTorchAdapter):
    """A DataLoader whose `state_dict()` tells where in its epoch it is.

    In `log` mode nothing is read ahead of the training loop: `evaluator.state_dict()` is exact
    in the midst of an epoch, and so is `evaluator.load_state_dict(state)`. In `alternate` mode
    batches are read ahead, of which a LoadevalWarning tells when the first epoch begins. In
    `replay` mode the loader stays where it was before batches were kept.
    """

    watch = replace(PyTorchAdapter.watch, inside=("torch.utils.data", "torchdata"))
    distributions = ("torch", "torchdata")
    _began_from: dict[str, Any] | None = None

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The rest of an epoch after `load_state_dict`, else a whole one."""
        self._began_from = loader.next_iter_state
        return super().epoch(loader)

    def describe(self, loader: Any) -> LoaderInfo:
        """What a DataLoader has; the queue is full if a first `state_dict()` started workers."""
        info = super().describe(loader)
        is_started = getattr(loader, "_initial_iter_for_state_dict", False)
        return replace(info, ready_batches=info.prefetch_depth if is_started else 0)

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop all workers; a state that `epoch` began from is to be loaded again."""
        super().release(loader, epoch)
        loader.load_state_dict(loader.next_iter_state or self._began_from or {})


class NodesAdapter(ResumableAdapter):
    """Knows the workers and queues of a graph of nodes, and stops them.

    A Loader has one iterator, which each epoch begins anew, or where `load_state_dict` says. In
    `log` mode nothing is read ahead, so `evaluator.state_dict()` is exact in the midst of an
    epoch; of `alternate` mode, where it is not, a LoadevalWarning tells when the first epoch
    begins. A node by itself is reset at each epoch: a state that it was reset to before is not
    resumed from, for which there is Loader.
    """

    watch = Watch(classes={"torchdata.nodes.loader": ("Loader",)}, inside=("torchdata",))
    distributions = ("torchdata",)
    _lists_samples = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The iterator of a Loader, or the node itself, at the beginning."""
        if isinstance(loader, nodes.BaseNode):
            loader.reset()
        return iter(loader)

    def samples(self, batch: Any) -> int | None:
        """The length of a list that a Batcher made; any other batch is counted as usual."""
        if self._lists_samples and isinstance(batch, list):
            return len(batch)
        return super().samples(batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """Workers, batch size and queues; there is no length.

        `workers` are those of all ParallelMappers and DataLoaders in the graph; where there are
        none, the threads of Prefetcher and PinMemory. `prefetch_depth` counts the batches that
        the graph holds when nobody takes any, at most.
        """
        root = _root(loader)
        graph = _graph(root)
        workers = sum(map(_workers_of, graph))
        threads = sum(isinstance(node, (nodes.Prefetcher, nodes.PinMemory)) for node in graph)
        all_known = all(type(node).__module__.startswith("torchdata.") for node in graph)
        batcher = _last_batcher(root)
        self._lists_samples = batcher is not None and batcher is _maker(root)
        return replace(
            super().describe(loader),
            workers=workers or threads or (0 if all_known else None),
            prefetch_depth=_ready(root),
            batch_size=None if batcher is None else batcher.batch_size,
            pinned=any(isinstance(node, nodes.PinMemory) for node in graph) or None,
        )

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:  # noqa: ARG002 - it is the loader's
        """Stop the threads and processes of all nodes, until the next epoch."""
        for node in _graph(_root(loader)):
            works: Any = getattr(node, "_it", None)
            inside = _data_loader(node)
            if inside is not None:
                PyTorchAdapter().release(inside, works)
            elif callable(getattr(works, "_shutdown", None)):
                works._shutdown()  # noqa: SLF001 - nodes have no other way to stop


def _root(loader: Any) -> Any:
    return loader.root if isinstance(loader, nodes.Loader) else loader


def _maker(node: Any) -> Any:
    """The node that made what `node` hands on as it is."""
    while isinstance(node, (nodes.Prefetcher, nodes.PinMemory)):
        node = node.source
    return node


def _graph(root: Any) -> list[Any]:
    """`root`, and all nodes that it reads from, directly or not."""
    by_id: dict[int, Any] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) not in by_id:
            by_id[id(node)] = node
            waiting += _nodes_in(node)
    return list(by_id.values())


def _nodes_in(node: Any) -> list[Any]:
    """The nodes that `node` reads from, those in a dict or list of its own included."""
    sources: list[Any] = []
    for held in vars(node).values():
        several = held.values() if isinstance(held, dict) else held
        several = several if isinstance(held, (dict, list, tuple)) else [held]
        if isinstance(next(iter(several), None), nodes.BaseNode):  # a list of files may be long
            sources += [source for source in several if isinstance(source, nodes.BaseNode)]
    return sources


def _sources(node: Any) -> list[Any]:
    return [node.source] if isinstance(node, nodes.ParallelMapper) else _nodes_in(node)


def _data_loader(node: Any) -> Any:
    """The torch DataLoader that `node` wraps, or None."""
    iterable = node.iterable if isinstance(node, nodes.IterableWrapper) else None
    return iterable if isinstance(iterable, DataLoader) else None


def _workers_of(node: Any) -> int:
    """Threads or processes that `node` maps with, or that its DataLoader loads with."""
    inside = _data_loader(node)
    if inside is not None:
        return int(inside.num_workers)
    return int(node.num_workers) if isinstance(node, nodes.ParallelMapper) else 0


def _ready(node: Any) -> int:
    """How many items `node` holds at most, when nobody takes any."""
    before: int = sum(map(_ready, _sources(node)))
    if isinstance(node, nodes.ParallelMapper):
        before += int(node.num_workers and (node.max_concurrent or 2 * node.num_workers))
        return before if node.prebatch is None else (before + 1) * int(node.prebatch)
    if isinstance(node, nodes.Prefetcher):
        return before + int(node.prefetch_factor)
    if isinstance(node, nodes.Batcher):
        return ceil(before / int(node.batch_size))
    if isinstance(node, nodes.Unbatcher):
        batcher = _last_batcher(node.source)
        return (before + 1) * (1 if batcher is None else int(batcher.batch_size))
    inside = _data_loader(node)
    if inside is not None:
        before = PyTorchAdapter().describe(inside).prefetch_depth or 0
    return before + isinstance(node, nodes.PinMemory)


def _last_batcher(node: Any) -> Any:
    """The Batcher whose lists are the batches, in whatever shape; None if none is known."""
    while not isinstance(node, nodes.Batcher):
        if isinstance(node, nodes.ParallelMapper) and node.prebatch is not None:
            node = node.source  # a Batcher of its own, whose lists it takes apart again
        sources = _sources(node)
        if isinstance(node, nodes.Unbatcher) or len(sources) != 1:
            return None
        node = sources[0]
    return node
