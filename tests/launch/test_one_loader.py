"""install(loader): a DataLoader is measured where it is, and where it was built anew."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
)
from torchdata.stateful_dataloader import StatefulDataLoader

from loadeval import LoaderEvaluator, UsageError, install, read_run

PLAIN = DataLoader.__iter__


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(20.0)), 4)


def is_complete(log_file: Path) -> bool:
    return '{"type":"end"' in log_file.read_text(encoding="utf-8")


def numbers(batches: Any) -> list[float]:
    return [float(value) for (batch,) in batches for value in batch]


every_mode = pytest.mark.parametrize("mode", ["log", "replay", "alternate"])


class Halving(BatchSampler):
    """Wraps a batch sampler, as Accelerate's do to skip batches or to share them out."""

    def __init__(self, batch_sampler: BatchSampler) -> None:
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Iterator[list[int]]:
        return islice(self.batch_sampler, len(self))

    def __len__(self) -> int:
        return (len(self.batch_sampler) + 1) // 2


def halved(own: DataLoader[Any]) -> DataLoader[Any]:
    """A loader that a framework builds from `own`, with its first three batches."""
    assert own.batch_sampler is not None
    return DataLoader(own.dataset, batch_sampler=Halving(own.batch_sampler))  # type: ignore[arg-type]  # torch's own class


# torchdata's StatefulDataLoader warns so about torch.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@every_mode
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_a_loader_built_from_it_is_measured(kind: Any, mode: str) -> None:
    """One that draws from its batch sampler, by the adapter for the class of the new one."""
    own = kind(TensorDataset(torch.arange(20.0)), 4)
    with install(own, mode, num_cached_batches=1) as installed:
        assert len(list(halved(own))) == 3
        assert len(installed.recorded().steps) == 3


@every_mode
def test_validation_on_the_same_dataset_is_not_measured(mode: str) -> None:
    """It has a sampler of its own; in replay it is served its own batches too."""
    dataset = TensorDataset(torch.arange(20.0))
    training, validation = (
        DataLoader(dataset, 4, sampler=SubsetRandomSampler(half))
        for half in (range(12), range(12, 20))
    )
    with install(training, mode) as installed:
        assert sorted(numbers(validation)) == list(range(12, 20))
        assert len(list(training)) == 3
        assert len(installed.recorded().steps) == 3


@pytest.mark.parametrize("kind", [SequentialSampler, DistributedSampler])
def test_what_a_framework_builds_trains_where_gradients_are_on(kind: Any) -> None:
    """It draws from the same sampler, or from one that splits the samples for ranks."""
    dataset = TensorDataset(torch.arange(20.0))
    own = DataLoader(dataset, 4)
    split = DistributedSampler(dataset, 2, 0)
    other = DataLoader(dataset, 4, sampler=own.sampler if kind is SequentialSampler else split)
    with install(own) as installed:
        with torch.no_grad():
            list(other)
        assert len(installed.recorded().steps) == 0
        assert len(list(other)) == len(installed.recorded().steps)


def test_one_of_the_same_dataset_can_be_measured_beside_it() -> None:
    dataset = TensorDataset(torch.arange(20.0))
    training, validation = DataLoader(dataset, 4), DataLoader(dataset, 10)
    with install(validation) as of_validation:
        with install(training) as of_training:
            list(training)
            list(validation)
        list(validation)
    assert len(of_training.recorded().steps) == 5
    assert len(of_validation.recorded().steps) == 4


def test_the_patch_of_another_tool_is_kept() -> None:
    """Made meanwhile, it is there after close(), and what is measured later goes through it."""
    own, seen = loader(), []
    first = install(own)
    ours = DataLoader.__iter__

    def another_tools(self: DataLoader[Any]) -> Iterator[Any]:
        seen.append(self)
        yield from ours(self)  # when the first batch is asked for

    DataLoader.__iter__ = another_tools  # type: ignore[method-assign, assignment]  # as a tool does
    try:
        list(own)
        first.close()
        assert DataLoader.__iter__ is another_tools
        assert numbers(own) == list(range(20))
        with install(own) as later:
            list(own)
        assert [first.recorded().batches, later.recorded().batches] == [5, 5]
        assert seen == [own] * 3  # once for each epoch
    finally:
        DataLoader.__iter__ = PLAIN  # type: ignore[method-assign]  # as it was


def test_a_loader_is_measured_without_what_install_returns(tmp_path: Path) -> None:
    """One built from it is too, when it is gone itself; without both, it ends."""
    own = loader()
    install(own, log_file=tmp_path / "run.jsonl")
    built = halved(own)
    list(own)
    del own
    list(built)
    assert not is_complete(tmp_path / "run.jsonl")
    del built
    assert is_complete(tmp_path / "run.jsonl")
    assert len(read_run(tmp_path / "run.jsonl").steps) == 8


def test_installing_again_ends_the_earlier_measurement(tmp_path: Path) -> None:
    """As in a notebook, where a cell is run again; what was measured is not lost."""
    own = loader()
    earlier = install(own, log_file=tmp_path / "run.jsonl")
    list(own)
    with install(own) as again:
        assert is_complete(tmp_path / "run.jsonl")
        list(own)
    assert [earlier.recorded().batches, again.recorded().batches] == [5, 5]


class Doubling(DataLoader[Any]):
    """Has an `__iter__` of its own, on top of DataLoader's."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield [2 * leaf for leaf in batch]


class Prefetching(DataLoader[Any]):
    """Is its own iterator."""

    def __iter__(self) -> Any:
        self._batches = super().__iter__()
        return self

    def __next__(self) -> Any:
        return next(self._batches)


@pytest.mark.parametrize("mode", ["log", "alternate"])
@pytest.mark.parametrize(("kind", "factor"), [(Doubling, 2), (Prefetching, 1)])
def test_a_subclass_is_measured_once(kind: Any, factor: int, mode: str) -> None:
    """What it serves itself counts; reading on begins no other epoch of its own iterator."""
    own = kind(TensorDataset(torch.arange(400.0)), 4)
    with install(own, mode) as installed:
        assert sorted(numbers(own)) == [factor * value for value in range(400)]
        assert installed.recorded().steps.epoch.tolist() == [0] * 100


def test_what_cannot_be_measured_in_place_is_refused() -> None:
    for other in ([1, 2], loader().dataset, LoaderEvaluator(loader())):
        with pytest.raises(UsageError, match=r"a torch DataLoader; wrap other loaders with Load"):
            install(other)
