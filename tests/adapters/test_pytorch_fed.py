"""DataLoaders that load the batches whose indices they are given."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from loadeval import UsageError
from loadeval.runtime.adapter import FactoryAdapter, IterableAdapter
from loadeval.runtime.registry import adapter_for
from tests.adapters.test_pytorch_reconfigured import LOADERS, Halved, Numbers, Stream, seeded

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
MAP_STYLE = {name: loader for name, loader in LOADERS.items() if "stream" not in name}


def feeding(loader: Any) -> Any:
    return adapter_for(loader).feeding(loader)


def fed(loader: Any, indices: Any, **settings: Any) -> Any:
    """A loader like `loader` that was given `indices`."""
    made = feeding(loader).make(settings)
    made.open()
    made.put(indices)
    return made


def as_text(batches: Any) -> list[str]:
    return list(map(str, batches))


@pytest.mark.parametrize("arguments", MAP_STYLE.values(), ids=list(MAP_STYLE))
@pytest.mark.parametrize("workers", [0, 2])
def test_it_serves_what_it_is_given_in_order(arguments: Any, workers: int) -> None:
    """The batches of the loader's own epoch, in two parts, then nothing; and stops its workers."""
    expected = as_text(DataLoader(**arguments, generator=seeded()))
    loader = DataLoader(**arguments, generator=seeded())
    indices = feeding(loader).indices(is_first=True)
    made = fed(loader, islice(indices, 2), num_workers=workers)
    batches = as_text(made)
    assert len(batches) == 2
    made.put(indices)
    assert batches + as_text(made) == expected
    assert not made.unserved
    made.close()


def test_it_describes_itself_as_the_loader_would() -> None:
    """Batches in an epoch, batch size, workers and queue."""
    loader = DataLoader(Numbers, batch_size=8)
    made = feeding(loader).make({"num_workers": 2, "prefetch_factor": 3})
    info = adapter_for(made.loader).describe(made.loader)
    assert (info.length, info.batch_size, info.workers) == (5, 8, 2)
    assert made.depth == info.prefetch_depth == 6


def test_a_sampler_without_length_has_none() -> None:
    """The length is unknown, then, and not the number of batches that were put in."""

    class Endless:
        def __iter__(self) -> Any:
            return iter([[1], [2]])

    loader: Any = DataLoader(Numbers, batch_sampler=Endless())
    made = feeding(loader).make({})
    assert adapter_for(made.loader).describe(made.loader).length is None


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("persists", [False, True])
def test_an_epoch_draws_the_random_numbers_of_the_loaders_own(workers: int, persists: bool) -> None:
    """Its indices, and what torch's generator gives after it, in the second epoch too."""
    options: Any = {"num_workers": workers, "persistent_workers": persists and workers > 0}
    drawn = []
    for is_fed in (False, True):
        torch.manual_seed(7)
        loader = DataLoader(Numbers, batch_size=8, shuffle=True, **options)
        own, numbers = feeding(loader), []
        for epoch in range(2):
            if is_fed:
                indices = own.indices(is_first=not epoch)
                torch.rand(1)  # as a training does, once workers have asked for batches
                numbers += [sorted(each) for each in indices]
            else:
                iterator = iter(loader)
                torch.rand(1)
                numbers += [sorted(batch.tolist()) for (batch,) in iterator]
        drawn.append((numbers, torch.rand(1).item()))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_is_taken_over_where_it_is(workers: int) -> None:
    """What its workers were asked for comes from the iterator itself, the rest from the other."""
    expected = as_text(DataLoader(Numbers, batch_size=2, shuffle=True, generator=seeded()))
    loader = DataLoader(
        Numbers, batch_size=2, shuffle=True, generator=seeded(), num_workers=workers
    )
    iterator = iter(loader)
    batches = as_text(islice(iterator, 3))
    indices, pending = feeding(loader).take_over(iterator)
    assert pending == 2 * workers
    batches += as_text(islice(iterator, pending))
    made = fed(loader, indices, num_workers=1)
    assert batches + as_text(made) == expected
    made.close()


def test_it_stops_when_it_is_closed_and_can_be_opened_again() -> None:
    """What was not served is forgotten."""
    loader = DataLoader(Numbers, batch_size=8)
    made = fed(loader, [[1], [2], [3]], num_workers=1)
    next(made)
    assert list(made.unserved) == [[2], [3]]
    made.close()
    assert as_text(made) == []
    made.open()
    made.put([[4]])
    assert [batch.tolist() for (batch,) in made] == [[4]]
    made.close()


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        (
            lambda: DataLoader(Stream(), num_workers=1, persistent_workers=True),
            "iterable-style, and its workers persist",
        ),
        (lambda: Halved(Numbers, 4), "a constructor of its own"),
        (lambda: DataLoader(Numbers, in_order=False, num_workers=1), "in_order=False"),
        (lambda: StatefulDataLoader(Numbers), "state_dict"),
        (lambda: [1, 2], "of list"),
    ],
)
def test_others_are_refused_with_the_reason(loader: Any, why: str) -> None:
    """What depends on workers, cannot be made again, or knows where its own sampler is."""
    with pytest.raises(UsageError, match=why):
        feeding(loader())


def test_what_an_iterable_style_dataset_yields_is_not_chosen() -> None:
    """Settings may take turns by whole epochs."""
    assert feeding(DataLoader(Stream(), batch_size=8)) is None


def test_what_a_function_makes_is_not_fed() -> None:
    """Another call would make another loader."""
    adapter = FactoryAdapter(lambda: [1], lambda _: IterableAdapter())
    with pytest.raises(UsageError, match="a function makes"):
        adapter.feeding(None)


def test_the_dataset_is_shared() -> None:
    """Without workers nothing is copied."""
    dataset = TensorDataset(torch.arange(4))
    assert feeding(DataLoader(dataset)).make({}).loader.dataset is dataset
