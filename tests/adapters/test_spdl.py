"""spdl's data loaders, decoding real JPEGs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from spdl.dataloader import CacheDataLoader, DataLoader, get_pytorch_dataloader
from torch.utils.data import Dataset

from loadeval import LoaderEvaluator, UsageError
from loadeval.adapter import adapter_for
from loadeval.testing import AdapterContract
from tests.adapters.loaders import adapter_of, break_off, contract, describe
from tests.images import FILES, collate, decode
from tests.spdl_pipelines import NEVER_RUN, made_while_nobody_takes, pipeline, spdl_threads


class Images(Dataset[Any]):
    """The photograph's crops, one of them broken if `broken` says which."""

    def __init__(self, broken: int | None = None) -> None:
        self.broken = broken

    def __len__(self) -> int:
        return len(FILES)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file = b"no JPEG" if index == self.broken else FILES[index]
        return torch.from_numpy(decode(file).copy()), index


def threaded(files: list[bytes] = FILES, **options: Any) -> Any:
    chosen: dict[str, Any] = {"aggregator": collate, "batch_size": 8, "num_threads": 2}
    chosen["output_order"] = "input"
    return DataLoader(files, preprocessor=decode, **(chosen | options))


def in_processes(dataset: Dataset[Any] | None = None, **options: Any) -> Any:
    chosen = {"batch_size": 8, "num_workers": 2, "in_order": True}
    return get_pytorch_dataloader(dataset or Images(), **(chosen | options))


TestLoaders = contract(
    adapter_of("spdl.dataloader"), quick=["threads"], threads=threaded, processes=in_processes
)


class ServesTheSameLater(AdapterContract):
    """The first two batches come again and again after the third: no epoch is like the first."""

    test_an_epoch_after_a_broken_one_is_whole = None  # type: ignore[assignment]  # no epoch is like the first


TestCacheDataLoader = contract(
    adapter_of("spdl.dataloader"),
    ServesTheSameLater,
    cached=lambda: CacheDataLoader(threaded(), num_caches=2, return_caches_after=3, stop_after=9),
)


def test_the_description_is_the_loaders() -> None:
    info = describe(threaded(num_threads=3, buffer_size=4, output_order="completion"))
    assert info.backend == "spdl.dataloader._dataloader.DataLoader"
    assert (info.workers, info.batch_size, info.length) == (3, 8, None)
    # Buffer and the sink's hands, a queue and the collated ones, a queue and the aggregated one,
    # and samples for one more.
    assert info.prefetch_depth == 4 + 1 + (2 + 3) + (2 + 1) + 1


def test_the_description_of_a_pytorch_data_loader() -> None:
    info = describe(in_processes(batch_size=6, multiprocessing_context="fork"))
    assert (info.workers, info.batch_size, info.length) == (2, 6, 7)
    assert (info.start_method, info.persistent_workers) == ("fork", False)
    # Buffer, the sink's hands, a queue, two batches in work, two in order; three that are drawn.
    assert info.prefetch_depth == 4 + 1 + 2 + 2 + 2 + 3
    unbatched = in_processes(batch_size=None)
    assert describe(unbatched).batch_size is None


def test_the_length_of_a_cache_is_its_own() -> None:
    """Without `stop_after` it is endless, and has none."""
    cached = CacheDataLoader(in_processes(), num_caches=2, return_caches_after=2)
    assert describe(cached).length is None
    cached.stop_after = 7
    assert describe(cached).length == 7


@pytest.mark.parametrize(("order", "threads"), [("completion", 3), ("input", 2)])
def test_as_many_batches_get_ready_as_the_depth_says(order: str, threads: int) -> None:
    """While nobody takes any, samples are loaded for nearly so many batches, and for no more."""

    def loader_of(make: Any) -> Any:
        options: Any = {"num_threads": threads, "output_order": order, "aggregator": np.array}
        return DataLoader(range(400), preprocessor=make, batch_size=4, **options)

    adapter = adapter_of("spdl.dataloader")()
    depth = adapter.describe(loader_of(int)).prefetch_depth or 0
    assert made_while_nobody_takes(adapter, loader_of, 4 * (depth - 2)) <= 4 * (depth + 1)


@pytest.mark.parametrize("make", [threaded, in_processes])
def test_no_thread_of_spdl_is_left(make: Any) -> None:
    evaluator = LoaderEvaluator(make())
    break_off(evaluator)
    assert spdl_threads() == []
    assert len(list(evaluator)) == 5
    assert spdl_threads() == []
    for _ in LoaderEvaluator(make(), mode="replay", num_cached_batches=2, epoch_batches=4):
        assert spdl_threads() == []


def test_dropped_samples_are_not_counted() -> None:
    evaluator = LoaderEvaluator(threaded([*FILES[:12], b"no JPEG", *FILES[12:]]))
    assert sum(len(batch["names"]) for batch in evaluator) == 40
    assert evaluator.recorded().steps.samples.tolist() == [8] * 5


def test_lists_of_arrays_are_counted_as_their_samples() -> None:
    evaluator = LoaderEvaluator(threaded(aggregator=None, batch_size=16))
    assert len(list(evaluator)) == 3
    assert evaluator.recorded().steps.samples.tolist() == [16, 16, 8]


def test_a_data_loader_has_other_threads_and_buffer() -> None:
    loader = threaded(num_threads=8, buffer_size=3)
    adapter = adapter_for(loader)
    assert dict(adapter.tunable(loader)) == {"num_threads": 8, "buffer_size": 3}
    served = [batch["names"] for batch in adapter.epoch(loader)]
    adapter.reconfigure(loader, {"num_threads": 2, "buffer_size": 5})
    assert dict(adapter.tunable(loader)) == {"num_threads": 2, "buffer_size": 5}
    assert [batch["names"] for batch in adapter.epoch(loader)] == served
    assert len(served) == 5


@NEVER_RUN
def test_a_pipeline_has_no_settings() -> None:
    loader = pipeline()
    adapter = adapter_for(loader)
    assert adapter.tunable(loader) == {}
    with pytest.raises(UsageError, match="only where it is made"):
        adapter.reconfigure(loader, {"num_threads": 2})
