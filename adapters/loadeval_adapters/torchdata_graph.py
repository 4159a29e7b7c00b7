"""What the nodes of a torchdata graph hold, and what they work with."""

from __future__ import annotations

from math import ceil
from typing import Any

from torch.utils.data import DataLoader
from torchdata.nodes import (
    BaseNode,
    Batcher,
    IterableWrapper,
    ParallelMapper,
    PinMemory,
    Prefetcher,
    Unbatcher,
)

from loadeval_adapters.pytorch import PyTorchAdapter


def graph(root: Any) -> list[Any]:
    """`root`, and all nodes that it reads from, those within others too."""
    found: dict[int, Any] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            found[id(node)] = node
            waiting += _nodes_in(node)
    return list(found.values())


def _nodes_in(node: Any) -> list[Any]:
    """The nodes that `node` reads from, those in a dict or list of its own included."""
    found: list[Any] = []
    for held in vars(node).values():
        several = held.values() if isinstance(held, dict) else held
        several = several if isinstance(held, (dict, list, tuple)) else [held]
        if isinstance(next(iter(several), None), BaseNode):  # a list of files may be long
            found += [each for each in several if isinstance(each, BaseNode)]
    return found


def _sources(node: Any) -> list[Any]:
    return [node.source] if isinstance(node, ParallelMapper) else _nodes_in(node)


def data_loader(node: Any) -> Any:
    """The torch DataLoader that `node` wraps, or None."""
    iterable = node.iterable if isinstance(node, IterableWrapper) else None
    return iterable if isinstance(iterable, DataLoader) else None


def workers_of(node: Any) -> int:
    """Threads or processes that `node` maps with, or that its DataLoader loads with."""
    inside = data_loader(node)
    if inside is not None:
        return int(inside.num_workers)
    return int(node.num_workers) if isinstance(node, ParallelMapper) else 0


def ready(node: Any) -> int:
    """Items that `node` holds when nobody takes any, at most."""
    before: int = sum(map(ready, _sources(node)))
    if isinstance(node, ParallelMapper):
        before += int(node.num_workers and (node.max_concurrent or 2 * node.num_workers))
        return before if node.prebatch is None else (before + 1) * int(node.prebatch)
    if isinstance(node, Prefetcher):
        return before + int(node.prefetch_factor)
    if isinstance(node, Batcher):
        return ceil(before / int(node.batch_size))
    if isinstance(node, Unbatcher):
        batcher = last_batcher(node.source)
        return (before + 1) * (1 if batcher is None else int(batcher.batch_size))
    inside = data_loader(node)
    if inside is not None:
        before = PyTorchAdapter().describe(inside).prefetch_depth or 0
    return before + isinstance(node, PinMemory)


def last_batcher(node: Any) -> Any:
    """The Batcher whose lists are the batches, in whatever shape; None where none is known."""
    while not isinstance(node, Batcher):
        if isinstance(node, ParallelMapper) and node.prebatch is not None:
            node = node.source  # a Batcher of its own, whose lists it takes apart again
        sources = _sources(node)
        if isinstance(node, Unbatcher) or len(sources) != 1:
            return None
        node = sources[0]
    return node
