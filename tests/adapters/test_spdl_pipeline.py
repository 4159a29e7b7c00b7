"""spdl's Pipeline, and functions that return one, decoding real JPEGs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from spdl.pipeline import SharedMemorySegmentPool, iterate_in_subprocess, run_pipeline_in_subprocess
from spdl.pipeline.defs import Aggregator

from loadeval import LoaderEvaluator, UsageError
from loadeval.testing import AdapterContract, same_batch
from tests.adapters.loaders import adapter_of, contract, describe
from tests.images import FILES, decode
from tests.spdl_pipelines import (
    NEVER_RUN,
    builder,
    made_while_nobody_takes,
    pipeline,
    source,
    spdl_threads,
)

pytestmark = NEVER_RUN


class Reiterated:
    """Runs in a subprocess: arrays of a megabyte each, as an arena takes them."""

    def __iter__(self) -> Iterator[Any]:
        return (np.full((4, 65_536), float(number), np.float32) for number in range(6))


def started() -> Any:
    loader = pipeline()
    loader.start()
    return loader


class OnceContract(AdapterContract):
    test_an_epoch_after_a_broken_one_is_whole = None  # type: ignore[assignment]  # it has one epoch

    def test_a_released_loader_serves_again(self) -> None:
        """It does not, since releasing stops it for good, and says so."""
        adapter = self.make_adapter()
        loader = self.make_loader()
        epoch = adapter.epoch(loader)
        next(epoch)
        adapter.release(loader, epoch)
        with pytest.raises(UsageError, match="can be run only once"):
            adapter.epoch(loader)


ADAPTER = adapter_of("spdl.pipeline")
TestPipelines = contract(
    ADAPTER, OnceContract, once=pipeline, continuous=lambda: pipeline(continuous=True)
)


class KeepsItsProcess(AdapterContract):
    """SPDL ends the subprocess with the iterable, not with an epoch of it.

    By itself, too, it now and then serves a batch of a broken epoch in the next one.
    """

    test_no_worker_process_is_alive_under_replay = None  # type: ignore[assignment]  # it lasts as the iterable

    test_an_epoch_after_a_broken_one_is_whole = None  # type: ignore[assignment]  # see above


TestSubprocess = contract(
    ADAPTER,
    KeepsItsProcess,
    subprocess=lambda: run_pipeline_in_subprocess(builder().get_config(), num_threads=3),
)


def test_kept_batches_give_their_shared_memory_back() -> None:
    """More batches are kept than there are segments, so none can be held."""
    arena = SharedMemorySegmentPool(segment_size=2_000_000, count=2, acquire_timeout=20)
    loader = iterate_in_subprocess(Reiterated, arena=arena)
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=6, epoch_batches=6)
    assert [batch[0, 0] for batch in evaluator.cached_batches] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("make", [pipeline, started])
def test_a_second_epoch_of_a_pipeline_is_an_error(make: Any) -> None:
    """It says what to pass instead, whoever has started the pipeline."""
    loader = make()
    evaluator = LoaderEvaluator(loader)
    assert len(list(evaluator)) == 5
    with pytest.raises(UsageError, match="pass a function that returns a new"):
        list(evaluator)
    loader.stop()


def test_a_pipeline_that_the_user_has_started_is_left_running() -> None:
    loader = pipeline()
    with loader.auto_stop():
        for _ in LoaderEvaluator(loader):
            break
        assert len(list(loader)) == 4


def test_a_continuous_pipeline_has_epochs() -> None:
    loader = pipeline(continuous=True)
    evaluator = LoaderEvaluator(loader)
    first, second = list(evaluator), list(evaluator)
    assert len(first) == len(second) == 5
    assert all(map(same_batch, first, second))
    assert spdl_threads() != []
    loader.stop()


def test_the_pipelines_of_a_function_are_described() -> None:
    evaluator = LoaderEvaluator(pipeline, mode="alternate")
    info = evaluator.recorded().header.loader
    assert info.adapter.endswith(".SPDLPipelineAdapter")
    assert (info.workers, info.batch_size) == (3, 8)
    assert (info.prefetch_depth or 0) > 2


@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_each_epoch_of_a_function_is_a_new_pipeline(mode: str) -> None:
    evaluator = LoaderEvaluator(pipeline, mode=mode)
    names = sorted(f"{decode(file).sum()}" for file in FILES)
    for _ in range(2):
        served = sorted(name for batch in evaluator for name in batch["names"])
        assert served == names
    assert spdl_threads() == []


SOURCE = 2 + 1
"""Items that the source holds, with the queue behind it."""


def array(number: int) -> Any:
    return np.full((2, 3), number)


def test_the_description_is_the_pipelines() -> None:
    builder = source(range(40)).pipe(array, concurrency=2, output_order="input")
    builder.aggregate(8).pipe(np.stack).add_sink(2)
    info = describe(builder.build(num_threads=3))
    assert info.backend == "spdl.pipeline._pipeline.Pipeline"
    assert (info.workers, info.batch_size, info.length) == (3, 8, None)
    # The sink's buffer and hands, a queue and the collated one, a queue and the aggregated one,
    # and what would be two more batches: a queue, two arrays, two in order, and the source's.
    assert info.prefetch_depth == 2 + 1 + (2 + 1) + (2 + 1) + 2


@pytest.mark.parametrize(("order", "concurrency"), [("completion", 3), ("input", 2)])
def test_as_many_batches_get_ready_as_the_depth_says(order: str, concurrency: int) -> None:
    """The stage that makes them goes on until the queues are full; the source's are not made."""

    def piped(make: Any, threads: int = 4) -> Any:
        builder = source(range(100)).pipe(make, concurrency=concurrency, output_order=order)
        return builder.add_sink(2).build(num_threads=threads)

    wanted = 1 + (describe(piped(array, 1)).prefetch_depth or 0) - SOURCE
    assert made_while_nobody_takes(ADAPTER(), piped, wanted) == wanted


def test_lists_of_arrays_are_counted_as_their_samples() -> None:
    builder = source(range(40)).pipe(array).aggregate(16).add_sink(2)
    evaluator = LoaderEvaluator(builder.build(num_threads=2))
    assert len(list(evaluator)) == 3
    steps = evaluator.recorded().steps
    assert steps.samples.tolist() == [16, 16, 8]
    assert steps.nbytes.tolist() == [16 * 48, 16 * 48, 8 * 48]


class Joined(Aggregator):  # type: ignore[misc]  # SPDL's is untyped
    """Makes a dict of eight items."""

    def __init__(self) -> None:
        self.n, self._items = 8, list[Any]()

    def accumulate(self, item: Any) -> Any:
        self._items.append(item)
        return self.flush() if len(self._items) == self.n else None

    def flush(self) -> Any:
        items, self._items = self._items, []
        return {"x": np.stack(items), "name": "a", "place": "b"} if items else None


@pytest.mark.parametrize(
    "build",
    [
        lambda made: made.aggregate(Joined()),
        lambda made: made.aggregate(4).disaggregate().aggregate(8),
    ],
)
def test_what_an_aggregator_gives_is_counted_by_what_it_is(build: Any) -> None:
    """A list by its items, a dict by its arrays; also behind what takes batches apart."""
    loader = build(source(range(16)).pipe(array)).add_sink(2).build(num_threads=2)
    evaluator = LoaderEvaluator(loader)
    assert len(list(evaluator)) == 2
    assert evaluator.recorded().steps.samples.tolist() == [8, 8]
