"""torch's DataLoaders, made again with other settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accelerate.data_loader import DataLoaderShard
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from loadeval import UsageError
from loadeval.runtime.registry import adapter_for
from tests.adapters.loaders import break_off

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
Numbers = TensorDataset(torch.arange(40))
WORKERS: dict[str, Any] = {"num_workers": 1, "prefetch_factor": 3, "persistent_workers": True}


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(40))


class Named(DataLoader[Any]):
    """Has the constructor of a DataLoader."""

    def name(self) -> str:
        return "mine"


class Halved(DataLoader[Any]):
    """Has its own."""

    def __init__(self, dataset: Any, twice: int) -> None:
        super().__init__(dataset, batch_size=twice // 2)


def seeded(number: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def shuffled() -> Any:
    return DataLoader(Numbers, batch_size=40, shuffle=True, generator=seeded())


def total(samples: list[Any]) -> Any:
    return torch.as_tensor(samples).sum()


def tunable(loader: Any) -> dict[str, Any]:
    return dict(adapter_for(loader).tunable(loader))


def reconfigured(loader: Any, **settings: Any) -> Any:
    return adapter_for(loader).reconfigured(loader, settings)


LOADERS: dict[str, dict[str, Any]] = {
    "map": {"dataset": Numbers, "batch_size": 8},
    "shuffled": {"dataset": Numbers, "batch_size": 8, "shuffle": True},
    "drop_last": {"dataset": Numbers, "batch_size": 7, "drop_last": True},
    "sampler": {"dataset": Numbers, "sampler": [5, 3, 30], "batch_size": 2},
    "batch_sampler": {"dataset": Numbers, "batch_sampler": [[5, 3], [30], [6, 7]]},
    "unbatched": {"dataset": Numbers, "batch_size": None},
    "stream": {"dataset": Stream(), "batch_size": 8, "collate_fn": total},
    "stream_unbatched": {"dataset": Stream(), "batch_size": None},
}


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("arguments", LOADERS.values(), ids=list(LOADERS))
@pytest.mark.parametrize("settings", [{}, WORKERS], ids=["in_process", "worker"])
def test_the_batches_are_those_of_a_new_loader(kind: Any, arguments: Any, settings: Any) -> None:
    """One with the same generator, and the settings from the start."""
    expected = kind(**arguments, **settings, generator=seeded())
    again = reconfigured(kind(**arguments, generator=seeded()), **settings)
    assert type(again) is kind
    assert list(map(str, again)) == list(map(str, expected))


def test_the_order_is_the_same_with_a_worker() -> None:
    loader = shuffled()
    expected = list(map(str, loader))
    loader.generator.manual_seed(3)
    assert list(map(str, reconfigured(loader, num_workers=1))) == expected


def test_the_settings_are_the_loaders() -> None:
    loader = DataLoader(Numbers, num_workers=2, batch_size=4, multiprocessing_context="spawn")
    assert tunable(loader) == {
        "num_workers": 2,
        "prefetch_factor": 2,
        "pin_memory": False,
        "persistent_workers": False,
        "in_order": True,
        "multiprocessing_context": "spawn",
        "batch_size": 4,
    }


def test_the_settings_are_those_asked_for() -> None:
    wanted = {**WORKERS, "in_order": False, "multiprocessing_context": "spawn", "batch_size": 5}
    again = reconfigured(DataLoader(Numbers, batch_size=8), **wanted)
    assert tunable(again) == {**wanted, "pin_memory": False}
    assert len(again) == 8


def test_others_stay() -> None:
    loader = DataLoader(
        Numbers, 8, num_workers=1, timeout=7, worker_init_fn=print, generator=seeded()
    )
    again = reconfigured(loader, num_workers=2)
    for name in ("dataset", "sampler", "collate_fn", "worker_init_fn", "generator"):
        assert getattr(again, name) is getattr(loader, name)
    assert (again.timeout, again.batch_size, again.drop_last) == (7, 8, False)


def test_without_workers_nothing_needs_them() -> None:
    """The start method and the timeout are also as torch wants."""
    loader = DataLoader(Numbers, 8, multiprocessing_context="fork", timeout=9, **WORKERS)
    again = reconfigured(loader, num_workers=0, prefetch_factor=4)
    assert (again.prefetch_factor, again.persistent_workers, again.timeout) == (None, False, 0)
    assert again.multiprocessing_context is None
    assert len(list(again)) == 5


def test_a_batch_sampler_of_the_users_has_its_batch_size() -> None:
    loader = DataLoader(Numbers, batch_sampler=BatchSampler(range(40), 6, drop_last=False))
    assert "batch_size" not in tunable(loader)
    with pytest.raises(UsageError, match="another batch_size: expected settings among num_workers"):
        reconfigured(loader, batch_size=4)


def test_samples_that_are_not_batched_have_no_batch_size() -> None:
    assert "batch_size" not in tunable(DataLoader(Numbers, batch_size=None))


def test_the_generator_goes_on_as_it_would() -> None:
    """Both loaders draw from it, as two do that are made with it."""
    loader = shuffled()
    expected = [str(batch) for _ in range(2) for batch in loader]
    loader = shuffled()
    again = reconfigured(loader, pin_memory=False)
    assert [str(batch) for source in (loader, again) for batch in source] == expected


def test_making_another_draws_no_random_numbers() -> None:
    loader = StatefulDataLoader(Numbers, batch_size=8, shuffle=True)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    reconfigured(loader, num_workers=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_state_is_not_taken_along() -> None:
    """A StatefulDataLoader that is made again begins its epoch."""
    loader = StatefulDataLoader(range(40), batch_size=8, snapshot_every_n_steps=2)
    break_off(loader, after=2)
    loader.load_state_dict(loader.state_dict())
    again = reconfigured(loader)
    assert (len(list(again)), len(list(loader))) == (5, 3)
    assert again.snapshot_every_n_steps == 2


def test_a_subclass_without_a_constructor_is_made_again() -> None:
    again = reconfigured(Named(Numbers, batch_size=8), num_workers=1)
    assert (again.name(), again.num_workers) == ("mine", 1)


def test_a_subclass_with_a_constructor_is_not() -> None:
    loader = Halved(Numbers, twice=16)
    assert tunable(loader) == {}
    with pytest.raises(
        UsageError, match=r"make this Halved again .* Halved\(\.\.\., \*\*settings\)"
    ):
        reconfigured(loader, num_workers=1)


def test_what_accelerate_has_prepared_is_not() -> None:
    loader = DataLoaderShard(Numbers, batch_size=8)
    assert tunable(loader) == {}
    with pytest.raises(UsageError, match="make this DataLoaderShard again"):
        reconfigured(loader)


def test_a_dataset_by_itself_is_not() -> None:
    assert tunable(Numbers) == {}
    with pytest.raises(UsageError, match="pass a function"):
        reconfigured(Numbers)
