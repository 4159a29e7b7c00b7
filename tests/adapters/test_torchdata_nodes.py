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
)

from loadeval import LoaderEvaluator
from tests.adapters.loaders import adapter_of, break_off, contract

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


class FirstOf(BaseNode[Any]):
    """A node of the program's own, which holds others in a list."""

    def __init__(self, nodes: list[Any]) -> None:
        super().__init__()
        self.nodes = nodes

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self.nodes[0].reset()

    def next(self) -> Any:
        return next(self.nodes[0])

    def get_state(self) -> dict[str, Any]:
        return {}


def test_nodes_behind_one_of_the_programs_own_are_stopped() -> None:
    before = running()
    loader = Loader(FirstOf([threaded()]))
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=2, epoch_batches=4)
    for _ in evaluator:
        assert running() <= before


def test_lists_of_arrays_are_counted_as_their_samples() -> None:
    lists = Prefetcher(Batcher(Mapper(source(10), pixels), 4, drop_last=False), 2)
    evaluator = LoaderEvaluator(Loader(lists))
    assert len(list(evaluator)) == 3
    assert evaluator.recorded().steps.samples.tolist() == [4, 4, 2]
