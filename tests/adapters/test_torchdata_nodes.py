"""torchdata.nodes, decoding real JPEGs in threads and processes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset
from torchdata.nodes import (
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

from loadeval import LoaderEvaluator, LoadevalWarning
from loadeval.testing import AdapterContract
from tests.adapters.loaders import adapter_of, break_off

if TYPE_CHECKING:
    from pathlib import Path

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


class Contract(AdapterContract):
    adapter_type = adapter_of("torchdata.nodes")


class TestInline(Contract):
    """A Loader whose nodes work in the training loop."""

    def make_loader(self) -> Any:
        return Loader(Mapper(Batcher(Mapper(source(), pixels), 4), collate))


class TestThreads(Contract):
    """A Loader with threads that map and prefetch."""

    def make_loader(self) -> Any:
        return Loader(threaded())


class TestProcesses(Contract):
    """A Loader with processes that map."""

    def make_loader(self) -> Any:
        return Loader(threaded(method="process"))


class TestNode(Contract):
    """A node by itself, which is an iterator."""

    def make_loader(self) -> Any:
        return threaded()


class TestSeveralSources(Contract):
    """Batches drawn from two sources."""

    def make_loader(self) -> Any:
        nodes = {"one": threaded(), "other": threaded(20)}
        weights = {"one": 0.7, "other": 0.3}
        every = StopCriteria.ALL_DATASETS_EXHAUSTED
        return Loader(MultiNodeWeightedSampler(nodes, weights, every, seed=1))


def test_decoded_jpegs_are_served(jpegs: Path) -> None:
    """Files that threads decode, over two epochs."""
    files = IterableWrapper(sorted(map(str, jpegs.rglob("*.jpg"))))

    def decode(file: str) -> Any:
        with Image.open(file) as image:
            return np.asarray(image.resize((16, 16)))

    batches = Mapper(Batcher(ParallelMapper(files, decode, 2), 8, drop_last=False), np.stack)
    evaluator = LoaderEvaluator(Loader(batches))
    for _ in range(2):
        assert [batch.shape for batch in evaluator] == [(8, 16, 16, 3)] * 3 + [(6, 16, 16, 3)]
    assert evaluator.recorded().steps.samples.tolist() == [8, 8, 8, 6] * 2


@pytest.mark.parametrize("make", [threaded, lambda: Loader(threaded())])
def test_each_epoch_is_whole(make: Any) -> None:
    """Also after one that was broken off, of a Loader and of a node."""
    evaluator = LoaderEvaluator(make())
    break_off(evaluator)
    whole = [list(range(at, at + 4)) for at in range(0, 40, 4)]
    assert [labels(evaluator) for _ in range(2)] == [whole, whole]


@pytest.mark.parametrize("method", ["thread", "process"])
def test_a_state_taken_in_log_mode_resumes_exactly(method: str) -> None:
    """What a new Loader serves from it is what training had not had yet."""
    whole = labels(Loader(threaded(method=method)))
    evaluator = LoaderEvaluator(Loader(threaded(method=method)))
    served = []
    for batch in evaluator:
        served += labels([batch])
        if len(served) == STEPS:
            break
    state = evaluator.state_dict()
    assert served == whole[:STEPS]
    resumed = LoaderEvaluator(Loader(threaded(method=method)))
    resumed.load_state_dict(state)
    assert labels(resumed) == whole[STEPS:]
    assert labels(resumed) == whole


def test_a_nodes_state_is_exact_in_log_mode() -> None:
    """A node that is reset to it goes on with the next batch."""
    evaluator = LoaderEvaluator(threaded())
    batches = iter(evaluator)
    served = labels([next(batches) for _ in range(STEPS)])
    resumed = threaded()
    resumed.reset(evaluator.state_dict())
    assert served + labels(resumed) == labels(threaded())


@pytest.mark.parametrize("method", ["thread", "process"])
def test_nothing_runs_under_replay(method: str) -> None:
    """Threads and processes of all nodes are stopped before the first replayed batch."""
    before = running()
    loader = Loader(threaded(method=method))
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=2, epoch_batches=4)
    for _ in evaluator:
        assert running() <= before
    assert len(list(loader)) == 10


@pytest.mark.parametrize("persistent", [False, True])
def test_a_wrapped_data_loaders_workers_are_stopped(persistent: bool) -> None:
    """Those of a torch DataLoader that an IterableWrapper reads."""
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


@pytest.mark.filterwarnings(READ_AHEAD)
@pytest.mark.parametrize("make", [threaded, lambda: Loader(threaded())])
def test_alternating_epochs_serve_every_batch_once(make: Any) -> None:
    """One epoch after the other, both arms together."""
    evaluator = LoaderEvaluator(make(), mode="alternate")
    for _ in range(2):
        assert sorted(labels(evaluator)) == labels(threaded())


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
    """The user sees torchdata's error of its kind, after the batches before it."""

    def fail(number: int) -> int:
        if number == 20:
            raise OverflowError("sample 20 is broken")
        return number

    loader = Loader(Batcher(ParallelMapper(source(), fail, workers), 4))
    served: list[Any] = []
    with pytest.raises(OverflowError, match="sample 20 is broken"):
        served.extend(LoaderEvaluator(loader, mode=mode))
    assert served == [list(range(at, at + 4)) for at in range(0, 20, 4)]
