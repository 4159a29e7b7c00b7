"""Loaders that get other settings in place, before their first epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.data_loader import DataLoaderShard
from spdl.dataloader import DataLoader as SPDLLoader
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from loadeval import UsageError, read_run
from loadeval.adapter import adapter_for
from tests.dali_loaders import iterator
from tests.launch.installing import install, uninstall

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
Numbers = TensorDataset(torch.arange(40))
WORKERS: dict[str, Any] = {"num_workers": 1, "prefetch_factor": 3, "persistent_workers": True}


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(40))


class Halved(DataLoader[Any]):
    """Has a constructor of its own, and keeps something."""

    def __init__(self, dataset: Any, twice: int) -> None:
        super().__init__(dataset, batch_size=twice // 2)
        self.twice = twice


class Eager(DataLoader[Any]):
    """Begins its epoch when it is made, as ultralytics' InfiniteDataLoader."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset)
        self.batches = super().__iter__()

    def __iter__(self) -> Any:
        return self.batches


def reconfigure(loader: Any, *, allow_changes: bool = False, **settings: Any) -> Any:
    """The loader itself."""
    adapter_for(loader).reconfigure(loader, settings, allow_changes=allow_changes)
    return loader


def attributes(loader: Any) -> dict[str, Any]:
    """What a DataLoader was made with; of what is made anew, the class."""
    names = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order")
    rest = {name: getattr(loader, name) for name in ("timeout", "batch_size", "drop_last")}
    context = loader.multiprocessing_context
    start_method = None if context is None else context.get_start_method()
    return {name: getattr(loader, name) for name in names} | rest | {"context": start_method}


def refused(loader: Any, settings: dict[str, Any]) -> str:
    """Why the adapter does not change `loader`, which stays as it was."""
    before = dict(vars(loader))
    with pytest.raises(UsageError) as caught:
        reconfigure(loader, **settings)
    assert vars(loader) == before
    return str(caught.value)


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize(
    ("own", "settings"),
    [
        ({}, WORKERS),
        ({}, {"multiprocessing_context": "spawn", "num_workers": 2, "timeout": 3}),
        (WORKERS, {"num_workers": 0}),
        ({}, {"pin_memory": True}),
    ],
    ids=["workers", "context", "none", "pinned"],
)
def test_a_dataloader_is_as_if_made_with_them(kind: Any, own: Any, settings: Any) -> None:
    """Also settings that follow, such as `prefetch_factor` of the first worker."""
    needs_workers = settings.get("num_workers") == 0
    edited = settings if needs_workers else {**own, **settings}
    expected = kind(Numbers, 8, shuffle=True, **edited)
    loader = kind(Numbers, 8, shuffle=True, **own)
    sampler = loader.sampler
    assert attributes(reconfigure(loader, **settings)) == attributes(expected)
    assert loader.sampler is sampler


def test_a_setting_that_it_does_not_have_is_named() -> None:
    message = refused(DataLoader(Numbers), {"num_worker": 2})
    assert message.startswith("this DataLoader has no num_worker that can be changed; expected num")


@pytest.mark.parametrize(
    ("loader", "settings"),
    [
        (DataLoader(Numbers), {"batch_size": 4}),
        (DataLoader(Numbers), {"drop_last": True}),
        (DataLoader(Numbers), {"in_order": False}),
        (DataLoader(Stream()), {"num_workers": 2}),
    ],
)
def test_other_batches_are_refused(loader: Any, settings: dict[str, Any]) -> None:
    assert "if that is wanted, pass --allow-changes" in refused(loader, settings)
    ((name, value),) = settings.items()
    assert getattr(reconfigure(loader, allow_changes=True, **settings), name) == value


def test_a_batch_sampler_stays() -> None:
    sampler = BatchSampler(range(40), 6, drop_last=False)
    loader = reconfigure(DataLoader(Numbers, batch_sampler=sampler), num_workers=2)
    assert loader.batch_sampler is sampler
    assert "has no batch_size" in refused(loader, {"batch_size": 4})


def test_a_subclass_keeps_what_it_has() -> None:
    """Its constructor is not called again."""
    loader = reconfigure(Halved(Numbers, twice=16), num_workers=1)
    assert (type(loader), loader.twice, loader.batch_size, loader.num_workers) == (Halved, 16, 8, 1)


def test_a_state_stays() -> None:
    """A StatefulDataLoader goes on from where a checkpoint was."""
    loader = StatefulDataLoader(range(40), batch_size=8)
    epoch = iter(loader)
    next(epoch)
    state = loader.state_dict()
    again = StatefulDataLoader(range(40), batch_size=8)
    again.load_state_dict(state)
    assert len(list(reconfigure(again, pin_memory=False))) == 4


@pytest.mark.parametrize("loader", [Eager(Numbers), DataLoaderShard(Numbers), Numbers])
def test_some_can_be_changed_only_where_they_are_made(loader: Any) -> None:
    """What iterates in a way of its own may have begun, and a dataset has no settings."""
    assert refused(loader, {"num_workers": 1}).endswith(
        "can get other settings only where it is made; change num_workers there"
    )


def test_workers_that_run_are_not_replaced() -> None:
    loader = DataLoader(Numbers, 8, **WORKERS)
    next(iter(loader))
    assert "has begun an epoch" in refused(loader, {"num_workers": 2})


def test_install_gives_them_to_spdls_loader(tmp_path: Path) -> None:

    def epoch() -> tuple[list[str], int | None]:
        loader: Any = SPDLLoader(range(12), batch_size=4, num_threads=1)
        return [str(batch) for batch in loader], adapter_for(loader).describe(loader).workers

    batches, workers = epoch()
    folder = install(output=tmp_path / "logs", settings={"num_threads": 3})
    try:
        assert epoch() == (batches, 3)
    finally:
        uninstall()
    assert workers == 1
    assert read_run(folder / "rank0.jsonl").header.loader.overrides == {"num_threads": 3}


def test_dalis_iterators_have_theirs_where_they_are_made(dali_pipeline: Callable[..., Any]) -> None:
    words = "can get other settings only where it is made; change num_threads there"
    assert words in refused(iterator(dali_pipeline()), {"num_threads": 3})
