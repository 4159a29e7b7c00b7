"""Which loaders count as built from one that is measured in place."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import torch
from accelerate.data_loader import prepare_data_loader, skip_first_batches
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_convert,
)

from loadeval import install
from loadeval.launch.one_loader import Original

if TYPE_CHECKING:
    from collections.abc import Iterator

DATASET = TensorDataset(torch.arange(20.0))


def loader(dataset: Any = DATASET, batch_size: int | None = 4, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size, **options)


def split(*, shuffle: bool, dataset: Any = DATASET) -> DistributedSampler[Any]:
    """What Lightning and Fabric put into a DataLoader for one of two processes."""
    return DistributedSampler(dataset, 2, 0, shuffle=shuffle)


def test_what_draws_from_its_sampler_is_built_from_it() -> None:
    """It also is where nothing collates, so that there is no batch sampler."""
    own = loader(batch_size=None)
    assert Original(own).serves(loader(batch_size=None, sampler=own.sampler))


def test_another_dataset_has_other_batches() -> None:
    """The same batch sampler may draw from two datasets."""
    own = loader()
    other = DataLoader(TensorDataset(torch.zeros(20)), batch_sampler=own.batch_sampler)
    assert not Original(own).serves(other)
    assert not Original(own).has_sampler_of(other)


def test_samplers_that_accelerate_exchanges_do_not_matter() -> None:
    """A seeded one in the same batch sampler; shares and rests of that batch sampler."""
    own = loader(shuffle=True)
    prepared = prepare_data_loader(own, num_processes=2, process_index=0, use_seedable_sampler=True)
    resumed = skip_first_batches(prepared, 1)
    for built in (prepared, resumed):
        assert Original(own).serves(built.base_dataloader)


@pytest.mark.parametrize("is_split", [True, False])
def test_a_sampler_that_lightning_wraps_is_found(is_split: bool) -> None:
    """One of the user's, which is shared out; another one's is not ours."""
    sampler, other = (WeightedRandomSampler([1.0] * 20, 20) for _ in range(2))
    own = loader(sampler=sampler)
    lightnings = import_module("lightning.fabric.utilities.distributed")  # takes seconds
    wrapped = lightnings.DistributedSamplerWrapper(sampler if is_split else other, 2, 0)
    assert Original(own).serves(loader(sampler=wrapped)) is is_split


@pytest.mark.parametrize(
    ("own", "shuffles", "expected"),
    [(True, True, True), (True, False, False), (False, True, True), (False, False, True)],
)
def test_a_split_for_ddp_is_built_from_it(own: bool, shuffles: bool, expected: bool) -> None:
    """Unless it is in order where the loader shuffles: Lightning's validation is."""
    original = loader(shuffle=own)
    assert Original(original).serves(loader(sampler=split(shuffle=shuffles))) is expected


def test_a_split_of_the_users_is_not_built_from_it() -> None:
    """It has another batch size or dataset, or is beside a loader that is split by itself."""
    own = loader()
    other = TensorDataset(torch.zeros(20))
    for sampler, options in (
        (split(shuffle=True), {"batch_size": 2}),
        (split(shuffle=True), {"collate_fn": default_convert}),
        (split(shuffle=True, dataset=other), {}),
    ):
        assert not Original(own).serves(loader(sampler=sampler, **options))
    already_split = loader(sampler=split(shuffle=True))
    assert not Original(already_split).serves(loader(sampler=split(shuffle=True)))


def test_without_the_loader_a_split_tells_nothing() -> None:
    """Nothing is left to compare it with."""
    own = loader()
    original = Original(own)
    del own
    assert not original.serves(loader(sampler=split(shuffle=True)))


def test_without_gradients_a_split_is_no_training() -> None:
    """It may be for validation, by Lightning too."""
    own = loader()
    with torch.no_grad():
        assert not Original(own).serves(loader(sampler=split(shuffle=True)))


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(torch.arange(20.0))


def test_a_stream_is_known_where_accelerate_iterates_it() -> None:
    """It shares nothing but the dataset; another loader of the user's own is not measured."""
    own = loader(Stream())
    with install(own) as evaluator:
        prepared = prepare_data_loader(own, num_processes=2, process_index=0)
        assert len(list(prepared)) == 3
        assert len(evaluator.recorded().steps) == 3
        with torch.no_grad():
            assert len(list(prepared)) == 3
        assert len(list(loader(own.dataset))) == 5
        assert len(evaluator.recorded().steps) == 3


def test_a_stream_is_measured_while_its_dataset_lives() -> None:
    """Accelerate's loader has nothing else of one that was dropped."""
    dataset = Stream()
    own = loader(dataset)
    install(own)
    patched = DataLoader.__iter__
    prepared = prepare_data_loader(own)
    del own
    assert len(list(prepared)) == 5
    assert DataLoader.__iter__ is patched
    del dataset, prepared
    assert DataLoader.__iter__ is not patched


class Odd(BatchSampler):
    """Has attributes that are no samplers, or raise."""

    batch_sampler = "buckets"

    def __init__(self) -> None: ...

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0], [1]])

    def __len__(self) -> int:
        return 2

    @property
    def sampler(self) -> Any:  # type: ignore[override]
        raise RuntimeError("only in an epoch")


def test_a_value_that_two_samplers_have_is_not_shared() -> None:
    """A word, say, is the same object in both."""

    class Named(Odd):
        sampler = "random"

    own, other = (loader(batch_size=1, batch_sampler=Named()) for _ in range(2))
    assert not Original(own).serves(other)


def test_a_strangers_loader_is_served_whatever_it_does() -> None:
    """One whose sampler raises when it is looked at is none of ours."""
    own = loader()
    assert not Original(own).serves(loader(batch_size=1, batch_sampler=Odd()))


def test_a_sampler_that_wraps_itself_ends() -> None:
    """Each is looked at once."""
    sampler = RandomSampler(DATASET)
    vars(sampler)["sampler"] = sampler
    own = loader(sampler=sampler)
    assert Original(own).serves(loader(sampler=sampler))
    assert not Original(own).serves(loader(sampler=SequentialSampler(DATASET)))
