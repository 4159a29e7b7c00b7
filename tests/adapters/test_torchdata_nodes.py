"""torchdata.nodes, in threads and processes: what is served, and what a graph tells of itself."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset
from torchdata.nodes import (
    BaseNode,
    Batcher,
    IterableWrapper,
    Loader,
    Mapper,
    MultiNodeWeightedSampler,
    ParallelMapper,
    Prefetcher,
    SamplerWrapper,
    StopCriteria,
    Unbatcher,
)

from loadeval import LoaderEvaluator, LoadevalWarning
from tests.adapters.loaders import adapter_of, break_off, contract, describe

# torchdata's own: processes that are forked beside its workers collect iterators of this one.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function _ParallelMapperIter.__del__"
    ":pytest.PytestUnraisableExceptionWarning"
)
READ_AHEAD = "ignore:mode='alternate' reads batches ahead:loadeval.LoadevalWarning"
STEPS = 4


def source(size: int = 40) -> Any:
    return SamplerWrapper(SequentialSampler(range(size)))


def pixels(number: int) -> Any:
    return np.full((2, 3), number)


def collate(samples: list[Any]) -> dict[str, Any]:
    return {"pixels": np.stack(samples), "label": np.array([each[0, 0] for each in samples])}


def threaded(size: int = 40, **options: Any) -> Any:
    mapped = ParallelMapper(source(size), pixels, **({"num_workers": 2} | options))
    return Prefetcher(Mapper(Batcher(mapped, 4, drop_last=False), collate), prefetch_factor=2)


def labels(batches: Any) -> list[list[int]]:
    return [batch["label"].tolist() for batch in batches]


def running() -> set[Any]:
    """This process's threads, ours and those at rest beside a queue excepted; its children."""
    others = ("QueueFeeder", "loadeval")
    threads = {each for each in threading.enumerate() if not each.name.startswith(others)}
    return {*threads, *psutil.Process().children()}


def two_sources() -> Any:
    nodes = {"one": threaded(), "other": threaded(20)}
    weights = {"one": 0.7, "other": 0.3}
    every = StopCriteria.ALL_DATASETS_EXHAUSTED
    return Loader(MultiNodeWeightedSampler(nodes, weights, every, seed=1))


TestLoaders = pytest.mark.filterwarnings(READ_AHEAD)(
    contract(
        adapter_of("torchdata.nodes"),
        in_the_training_loop=lambda: Loader(Mapper(Batcher(Mapper(source(), pixels), 4), collate)),
        threads=lambda: Loader(threaded()),
        processes=lambda: Loader(threaded(method="process")),
        node=threaded,
        two_sources=two_sources,
    )
)


@pytest.mark.filterwarnings(READ_AHEAD)
@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_an_epoch_of_a_node_after_a_broken_one_is_whole(mode: str) -> None:
    evaluator = LoaderEvaluator(threaded(), mode=mode)
    break_off(evaluator)
    whole = [list(range(at, at + 4)) for at in range(0, 40, 4)]
    assert [sorted(labels(evaluator)) for _ in range(2)] == [whole, whole]


@pytest.mark.parametrize("method", ["thread", "process"])
def test_a_state_taken_in_log_mode_resumes_exactly(method: str) -> None:
    whole = labels(Loader(threaded(method=method)))
    evaluator = LoaderEvaluator(Loader(threaded(method=method)))
    served = labels(break_off(evaluator, STEPS))
    state = evaluator.state_dict()
    assert served == whole[:STEPS]
    resumed = LoaderEvaluator(Loader(threaded(method=method)))
    resumed.load_state_dict(state)
    assert [labels(resumed) for _ in range(2)] == [whole[STEPS:], whole]
    node = LoaderEvaluator(threaded(method=method))
    served = labels(break_off(iter(node), STEPS))
    reset = threaded(method=method)
    reset.reset(node.state_dict())
    assert served + labels(reset) == whole


@pytest.mark.parametrize("method", ["thread", "process"])
def test_nothing_runs_under_replay(method: str) -> None:
    before = running()
    loader = Loader(threaded(method=method))
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=2, epoch_batches=4)
    for _ in evaluator:
        assert running() <= before
    assert len(list(loader)) == 10


@pytest.mark.parametrize("persistent", [False, True])
def test_a_wrapped_data_loaders_workers_are_stopped(persistent: bool) -> None:
    before = running()
    dataset = TensorDataset(torch.arange(40))
    loader = DataLoader(dataset, 4, num_workers=2, persistent_workers=persistent)
    wrapped = Loader(Prefetcher(IterableWrapper(loader), 2))
    evaluator = LoaderEvaluator(wrapped, mode="replay", num_cached_batches=2, epoch_batches=4)
    for _ in evaluator:
        assert running() <= before
    assert len(list(wrapped)) == 10
    info = evaluator.recorded().header.loader
    assert (info.workers, info.prefetch_depth) == (2, 2 * 2 + 2)


def test_an_alternating_run_warns_once_that_a_state_is_inexact() -> None:
    """When its first epoch begins; a log never does."""
    evaluator = LoaderEvaluator(Loader(threaded()), mode="alternate")
    with pytest.warns(LoadevalWarning, match="skips batches.*use mode='log'") as caught:
        list(evaluator)
    assert [warning.filename for warning in caught] == [__file__]
    assert len(list(evaluator)) == len(list(LoaderEvaluator(threaded()))) == 10


@pytest.mark.filterwarnings(READ_AHEAD)
@pytest.mark.parametrize("mode", ["log", "alternate"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_maps_exception_passes_through(mode: str, workers: int) -> None:

    def fail(number: int) -> int:
        if number == 20:
            raise OverflowError("sample 20 is broken")
        return number

    loader = Loader(Batcher(ParallelMapper(source(), fail, workers), 4))
    served: list[Any] = []
    with pytest.raises(OverflowError, match="sample 20 is broken"):
        served.extend(LoaderEvaluator(loader, mode=mode))
    assert served == [list(range(at, at + 4)) for at in range(0, 20, 4)]


def test_lists_of_arrays_are_counted_as_their_samples() -> None:
    lists = Prefetcher(Batcher(Mapper(source(10), pixels), 4, drop_last=False), 2)
    evaluator = LoaderEvaluator(Loader(lists))
    assert len(list(evaluator)) == 3
    assert evaluator.recorded().steps.samples.tolist() == [4, 4, 2]


def test_the_description_is_the_graphs() -> None:
    info = describe(Loader(threaded(num_workers=3)))
    assert info.backend == "torchdata.nodes.loader.Loader"
    assert (info.workers, info.batch_size, info.length, info.pinned) == (3, 4, None, None)
    # The prefetched ones, and six samples in the mapper for two more.
    assert info.prefetch_depth == 2 + 2
    few = describe(threaded(num_workers=3, max_concurrent=3))
    assert (few.workers, few.prefetch_depth) == (3, 2 + 1)


def test_threads_that_prefetch_are_workers_where_nothing_else_works() -> None:
    plain = Mapper(Batcher(source(), 4), np.array)
    assert describe(plain).workers == 0
    assert describe(plain).prefetch_depth == 0
    assert describe(Prefetcher(plain, 3)).workers == 1
    assert describe(Prefetcher(plain, 3)).prefetch_depth == 3


def test_how_many_batches_wait_behind_lists_taken_apart_is_unknown() -> None:
    info = describe(Unbatcher(Prefetcher(Batcher(source(), 4), 3)))
    assert (info.batch_size, info.prefetch_depth) == (None, None)


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
    before = running()
    info = describe(Twice(threaded()))
    assert (info.workers, info.prefetch_depth) == (2, 2 + 1)
    evaluator = LoaderEvaluator(
        Twice(threaded()), mode="replay", num_cached_batches=3, epoch_batches=3
    )
    assert labels(evaluator.cached_batches) == [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7]]
    assert running() <= before
    assert describe(Twice(source())).workers is None


def test_as_many_samples_get_ready_as_the_depth_says() -> None:
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
