"""torchdata's StatefulDataLoader, with real workers."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import active_children
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from loadeval import LoaderEvaluator, LoadevalWarning, StageTimes
from loadeval_adapters.torch_trace.iterators import DataLoaderStages
from tests.adapters.children import still_running
from tests.adapters.loaders import adapter_of, break_off, contract, recorded

Numbers = TensorDataset(torch.arange(80))
# torchdata's own, which it has of torch each time that a StatefulDataLoader is made.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
READ_AHEAD = "ignore:mode='alternate' reads batches ahead:loadeval.LoadevalWarning"


class Stream(IterableDataset[int]):
    """80 numbers, split among the workers, which can begin at any of them."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        numbers = range(first, 80, step)
        begin, self.at = self.at, 0
        for place in range(begin, len(numbers)):
            self.at = place + 1
            yield numbers[place]
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def loader(workers: int = 0, dataset: Any = Numbers, **options: Any) -> Any:
    chosen = {"batch_size": 4, "num_workers": workers}
    return StatefulDataLoader(dataset, **(chosen | options))


def shuffled(workers: int) -> Any:
    return loader(workers, shuffle=True, generator=torch.Generator().manual_seed(3))


def streamed(workers: int) -> Any:
    return loader(workers, Stream())


def numbers(batches: Any) -> list[list[int]]:
    return [(batch[0] if isinstance(batch, list) else batch).tolist() for batch in batches]


TestLoaders = pytest.mark.filterwarnings(READ_AHEAD)(
    contract(
        adapter_of("torchdata.stateful_dataloader"),
        in_process=loader,
        workers=lambda: loader(2),
        persistent_workers=lambda: loader(2, persistent_workers=True),
        stream=lambda: streamed(2),
    )
)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [loader, shuffled, streamed])
def test_a_state_taken_in_log_mode_resumes_exactly(make: Any, workers: int) -> None:
    whole = numbers(make(workers))
    evaluator = LoaderEvaluator(make(workers))
    served = numbers(break_off(evaluator, 7))
    state = evaluator.state_dict()
    assert served == whole[:7]
    resumed = make(workers)
    resumed.load_state_dict(state)
    assert numbers(resumed) == whole[7:]


def state_after_5(workers: int) -> dict[str, Any]:
    interrupted = loader(workers)
    batches = iter(interrupted)
    for _ in range(5):
        next(batches)
    state: dict[str, Any] = interrupted.state_dict()
    return state


def test_a_state_asked_for_before_an_epoch_takes_nothing_from_it() -> None:
    """It starts the workers of the epoch that comes, which is whole, and begins with no wait."""
    asked = loader(2)
    asked.state_dict()
    evaluator = LoaderEvaluator(asked)
    assert evaluator.recorded().header.loader.ready_batches == 4
    assert len(list(evaluator)) == 20


@pytest.mark.parametrize("workers", [0, 2])
def test_what_replay_keeps_is_not_taken_from_the_loader(workers: int) -> None:
    others = set(active_children())
    resumed = loader(workers)
    resumed.load_state_dict(state_after_5(workers))
    evaluator = LoaderEvaluator(resumed, mode="replay", num_cached_batches=3)
    assert not still_running(others)
    assert numbers(evaluator.cached_batches) == numbers(loader())[5:8]
    assert numbers(resumed) == numbers(loader())[5:]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_batches_of_a_resumed_epoch_are_numbered_from_its_first(workers: int) -> None:
    """Also where looking inside was paused, and went on."""
    resumed = loader(workers)
    resumed.load_state_dict(state_after_5(workers))
    stages = DataLoaderStages(lambda each: each)
    known = stages.begin(resumed)
    batches = iter(resumed)
    known(0)
    for at, _ in enumerate(batches):
        stages.look(at not in {2, 3, 4})
    (rows,) = (taken.batch for taken in stages.take() if isinstance(taken, StageTimes))
    stages.close()
    assert rows == [*range(3), *range(6, 15)]


@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_an_epoch_after_the_end_of_a_saved_one_has_its_stages(
    workers: int, persistent: bool, is_asked: bool
) -> None:
    """But for workers that were started when the loader was asked for its state, and stay."""
    ended, resumed = (loader(workers, persistent_workers=persistent) for _ in range(2))
    list(ended)
    resumed.load_state_dict(ended.state_dict())
    if is_asked:
        resumed.state_dict()
    run = recorded(resumed)
    assert len(run.steps) == 20
    assert run.stages.batch.tolist() == ([] if is_asked and persistent else [*range(20)])


@pytest.mark.parametrize("persistent", [False, True])
def test_a_released_loader_can_be_asked_for_its_state(persistent: bool) -> None:
    """This also holds where the iterator that was stopped had been made for a state."""
    others = set(active_children())
    asked = loader(2, persistent_workers=persistent)
    adapter = adapter_of("torchdata.stateful_dataloader")()
    adapter.release(asked, adapter.epoch(asked))
    asked.state_dict()
    adapter.release(asked, iter(()))
    assert not still_running(others)
    assert len(list(asked)) == 20


def test_an_alternating_run_warns_once_that_a_state_is_inexact() -> None:
    """When its first epoch begins; a log never does."""
    evaluator = LoaderEvaluator(loader(), mode="alternate")
    with pytest.warns(LoadevalWarning, match="skips batches.*use mode='log'") as caught:
        list(evaluator)
    assert [warning.filename for warning in caught] == [__file__]
    assert len(list(evaluator)) == len(list(LoaderEvaluator(loader()))) == 20


def test_where_warnings_are_errors_an_alternating_run_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluator = LoaderEvaluator(loader(), mode="alternate")
    assert len(list(evaluator)) == evaluator.recorded().batches == 20
    assert "skips batches" in capsys.readouterr().err
