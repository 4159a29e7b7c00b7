"""torchdata.nodes: a Loader, or a node by itself."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchdata.nodes import BaseNode, Loader, PinMemory, Prefetcher

from loadeval import IterableAdapter, LoaderInfo, LoadevalWarning
from loadeval_adapters.pytorch import PyTorchAdapter
from loadeval_adapters.torchdata_graph import data_loader, graph, last_batcher, ready, workers_of
from loadeval_adapters.torchdata_stateful import INEXACT

if TYPE_CHECKING:
    from collections.abc import Iterator


class NodesAdapter(IterableAdapter):
    """Knows the workers and queues of a graph of nodes, and stops them.

    A Loader has one iterator, which each epoch begins anew, or where `load_state_dict` says. In
    `log` mode nothing is read ahead, so `evaluator.state_dict()` is exact in the midst of an
    epoch; of `alternate` mode, where it is not, a LoadevalWarning tells when the first epoch
    begins. A node by itself is reset at each epoch: a state that it was reset to before is not
    resumed from, for which there is Loader.
    """

    _has_warned = False
    _lists_samples = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The iterator of a Loader, or the node itself, at the beginning."""
        if isinstance(loader, BaseNode):
            loader.reset()
        return iter(loader)

    def samples(self, batch: Any) -> int | None:
        """The length of a list that a Batcher made; else as of any batch."""
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
        nodes = graph(root)
        workers = sum(map(workers_of, nodes))
        threads = sum(isinstance(node, (Prefetcher, PinMemory)) for node in nodes)
        all_known = all(type(node).__module__.startswith("torchdata.") for node in nodes)
        batcher = last_batcher(root)
        self._lists_samples = batcher is not None and batcher is _maker(root)
        return replace(
            super().describe(loader),
            workers=workers or threads or (0 if all_known else None),
            prefetch_depth=ready(root),
            batch_size=None if batcher is None else batcher.batch_size,
            pinned=any(isinstance(node, PinMemory) for node in nodes) or None,
        )

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:  # noqa: ARG002 - it is the loader's
        """Stop the threads and processes of all nodes, until the next epoch."""
        for node in graph(_root(loader)):
            works: Any = getattr(node, "_it", None)
            inside = data_loader(node)
            if inside is not None:
                PyTorchAdapter().release(inside, works)
            elif callable(getattr(works, "_shutdown", None)):
                works._shutdown()  # noqa: SLF001 - nodes have no other way to stop

    def refusal(self, loader: Any, mode: str) -> str | None:  # noqa: ARG002 - of no other loader
        """None. Warns, once, where a state could not be resumed from."""
        if mode == "alternate" and not self._has_warned:
            self._has_warned = True
            warnings.warn(INEXACT, LoadevalWarning, stacklevel=3)  # where it is iterated
        return None


def _root(loader: Any) -> Any:
    return loader.root if isinstance(loader, Loader) else loader


def _maker(node: Any) -> Any:
    """The node that made what `node` hands on as it is."""
    while isinstance(node, (Prefetcher, PinMemory)):
        node = node.source
    return node
