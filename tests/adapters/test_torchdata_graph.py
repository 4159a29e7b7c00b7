"""What a graph of torchdata's nodes tells of itself, against what it does."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from torch.utils.data import SequentialSampler
from torchdata.nodes import (
    BaseNode,
    Batcher,
    Loader,
    Mapper,
    ParallelMapper,
    Prefetcher,
    SamplerWrapper,
    Unbatcher,
)

from loadeval import LoaderEvaluator
from tests.adapters.loaders import adapter_of, describe


def source(size: int = 40) -> Any:
    return SamplerWrapper(SequentialSampler(range(size)))


def pixels(number: int) -> Any:
    return np.full((2, 3), number)


def threaded(**options: Any) -> Any:
    mapped = ParallelMapper(source(), pixels, **({"num_workers": 2} | options))
    return Prefetcher(Mapper(Batcher(mapped, 4), np.stack), prefetch_factor=2)


def test_lists_of_arrays_are_counted_as_their_samples() -> None:
    """A Batcher makes lists, which a Prefetcher hands on, of as many samples as are in them."""
    lists = Prefetcher(Batcher(Mapper(source(10), pixels), 4, drop_last=False), 2)
    evaluator = LoaderEvaluator(Loader(lists))
    assert len(list(evaluator)) == 3
    assert evaluator.recorded().steps.samples.tolist() == [4, 4, 2]


def test_the_description_is_the_graphs() -> None:
    """Workers, batch size and queues of all nodes; there is no length."""
    info = describe(Loader(threaded(num_workers=3)))
    assert info.backend == "torchdata.nodes.loader.Loader"
    assert (info.workers, info.batch_size, info.length, info.pinned) == (3, 4, None, None)
    # The prefetched ones, and six samples in the mapper for two more.
    assert info.prefetch_depth == 2 + 2
    few = describe(threaded(num_workers=3, max_concurrent=3))
    assert (few.workers, few.prefetch_depth) == (3, 2 + 1)


def test_threads_that_prefetch_are_workers_where_nothing_else_works() -> None:
    """A graph without any has none."""
    plain = Mapper(Batcher(source(), 4), np.array)
    assert describe(plain).workers == 0
    assert describe(plain).prefetch_depth == 0
    assert describe(Prefetcher(plain, 3)).workers == 1
    assert describe(Prefetcher(plain, 3)).prefetch_depth == 3


def test_samples_of_lists_taken_apart_are_in_the_depth() -> None:
    """A mapper that works on lists holds the samples of them all."""
    mapped = ParallelMapper(source(), pixels, num_workers=2, prebatch=5)
    assert describe(mapped).prefetch_depth == (2 * 2 + 1) * 5
    assert describe(mapped).batch_size is None
    apart = Unbatcher(Prefetcher(Batcher(source(), 4), 3))
    assert describe(apart).prefetch_depth == (3 + 1) * 4


class Twice(BaseNode[Any]):  # type: ignore[misc]  # torchdata has no types
    """A user's own node: each item two times. What it works with is not known."""

    def __init__(self, inside: Any) -> None:
        super().__init__()
        self._inside = [inside]
        self._again: Any = None

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self._inside[0].reset(None)
        self._again = None

    def next(self) -> Any:
        if self._again is None:
            self._again = next(self._inside[0])
            return self._again
        item, self._again = self._again, None
        return item


def test_a_users_own_node_is_looked_through() -> None:
    """Nodes that it reads from are described, and stopped; without any, workers are unknown."""
    before = set(threading.enumerate())
    info = describe(Twice(threaded()))
    assert (info.workers, info.prefetch_depth) == (2, 2 + 1)
    evaluator = LoaderEvaluator(
        Twice(threaded()), mode="replay", num_cached_batches=3, epoch_batches=3
    )
    assert [batch[0, 0, 0] for batch in evaluator.cached_batches] == [0, 0, 4]
    assert set(threading.enumerate()) <= before
    assert describe(Twice(source())).workers is None


def test_as_many_samples_get_ready_as_the_depth_says() -> None:
    """While nobody takes any, the mapper goes on until its queue is full."""
    made = []
    full = threading.Event()

    def make(number: int) -> int:
        made.append(number)
        if len(made) == 1 + depth:
            full.set()
        return number

    node = Prefetcher(ParallelMapper(source(), make, 2), 3)
    adapter = adapter_of("torchdata.nodes")()
    depth = adapter.describe(node).prefetch_depth or 0
    epoch = adapter.epoch(node)
    next(epoch)
    assert full.wait(10)
    adapter.release(node, epoch)
    assert len(made) == 1 + depth == 1 + 3 + 2 * 2
