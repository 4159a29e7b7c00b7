"""Grain, with its threads and processes."""

from __future__ import annotations

from multiprocessing import active_children
from typing import Any

import grain  # type: ignore[import-untyped]  # it ships no marker of its types
import numpy as np
import pytest

from loadeval import LoaderEvaluator, LoadevalWarning
from loadeval.adapter import adapter_for
from tests.adapters.children import still_running
from tests.adapters.loaders import adapter_of, contract, counted, describe

ELEMENTS = 40
READING = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)


# Plain values, as worker processes may not find this module.
SOURCE = [{"x": np.full((3, 2), number, np.float32), "y": number} for number in range(ELEMENTS)]


def elements() -> Any:
    return grain.MapDataset.source(SOURCE)


def batches(reading: Any = READING) -> Any:
    return elements().to_iter_dataset(reading).batch(8)


def in_processes(count: int, buffer: int = 1) -> Any:
    options = grain.MultiprocessingOptions(num_workers=count, per_worker_buffer_size=buffer)
    return batches().mp_prefetch(options)


def dataloader(**options: Any) -> Any:
    sampler = grain.samplers.SequentialSampler(ELEMENTS, grain.sharding.NoSharding())
    return grain.DataLoader(
        data_source=SOURCE,
        sampler=sampler,
        operations=[grain.transforms.Batch(8)],
        read_options=READING,
        **options,
    )


def test_a_dataloader_that_is_released_has_no_processes() -> None:
    """Also while something keeps its iterator."""
    others = set(active_children())
    loader = dataloader(worker_count=1)
    adapter = adapter_for(loader)
    epoch = adapter.epoch(loader)
    next(epoch)
    assert set(active_children()) - others
    adapter.release(loader, epoch)
    assert not still_running(others)


TestLoaders = contract(
    adapter_of("grain"),
    read_by_many_threads=lambda: elements().batch(8),
    read_by_two_threads=batches,
    dataloader=dataloader,
    process=lambda: dataloader(worker_count=1),
    prefetching_processes=lambda: in_processes(2),
)


def test_an_iterator_by_itself_has_one_epoch() -> None:
    for iterator in (iter(batches()), iter(dataloader())):
        evaluator = LoaderEvaluator(iterator)
        assert len(list(evaluator)) == 5
        with pytest.warns(LoadevalWarning, match="gave no batch"):
            assert list(evaluator) == []
        info = evaluator.recorded().header.loader
        assert (info.workers, info.prefetch_depth, info.batch_size) == (None, None, None)


def test_a_length_that_may_be_wrong_is_not_told() -> None:
    """A MapDataset counts what it drops, and an endless one says a large number."""
    assert describe(elements().repeat(2)).length == 2 * ELEMENTS
    assert describe(elements().repeat()).length is None
    assert describe(elements().repeat().batch(8)).length is None
    assert describe(elements().filter(lambda element: element["y"] > 3)).length is None


def test_samples_are_counted_where_that_is_certain() -> None:
    """A batch by its arrays, an element as one; of an iterator and of packed rows unknown."""
    assert counted(batches()) == counted(dataloader()) == [8] * 5
    assert counted(elements()) == [1] * ELEMENTS
    assert set(counted(iter(batches()))) == {-1}
    packed = grain.experimental.RebatchIterDataset(batches(), batch_size=4)
    assert set(counted(packed)) == {-1}
