"""spdl's PipelineBuilder, and functions that return a Pipeline, decoding real JPEGs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from loadeval import LoaderEvaluator, LoadevalWarning
from loadeval.runtime.adapter import FactoryAdapter
from loadeval.testing import AdapterContract, same_batch
from loadeval_adapters.spdl import SPDLPipelineAdapter
from tests.adapters.photographs import FILES, decode
from tests.adapters.spdl_pipelines import (
    NEVER_RUN,
    TOLD_ITS_THREADS,
    builder,
    pipeline,
    source,
    spdl_threads,
)

pytestmark = NEVER_RUN


@TOLD_ITS_THREADS
class TestPipelineBuilder(AdapterContract):
    """A PipelineBuilder: each epoch is a new pipeline."""

    adapter_type = SPDLPipelineAdapter

    def make_loader(self) -> Any:
        return builder()


@TOLD_ITS_THREADS
def test_each_epoch_of_a_builder_is_a_new_pipeline() -> None:
    """Two epochs serve the same batches, and leave no thread."""
    evaluator = LoaderEvaluator(builder())
    first, second = list(evaluator), list(evaluator)
    assert len(first) == 5
    assert all(map(same_batch, first, second))
    assert spdl_threads() == []


@TOLD_ITS_THREADS
def test_a_builders_epochs_share_no_samples() -> None:
    """What an aggregation had left over is not in the next epoch's first batch."""
    made = source(range(10)).aggregate(4, drop_last=True).add_sink(2)
    evaluator = LoaderEvaluator(made)
    whole = [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [list(evaluator), list(evaluator)] == [whole, whole]


def test_a_builder_is_told_its_threads_by_the_adapter() -> None:
    """A warning says how many it gets: two decode, and one collates."""
    with pytest.warns(LoadevalWarning, match="it gets 3, one for each item that"):
        evaluator = LoaderEvaluator(builder())
    assert len(list(evaluator)) == 5
    assert evaluator.recorded().header.loader.workers == 3


@TOLD_ITS_THREADS
def test_dropped_items_of_a_builder_are_counted() -> None:
    """Files that cannot be decoded are no samples, and their number is told, by epoch."""
    evaluator = LoaderEvaluator(builder([*FILES[:20], b"no JPEG", b"nor this", *FILES[20:]]))
    for _ in range(2):
        with pytest.warns(LoadevalWarning, match="^2 items failed in this epoch"):
            batches = list(evaluator)
        assert sum(len(batch["images"]) for batch in batches) == 40
    assert evaluator.recorded().steps.samples.tolist() == [8] * 10


class TestFactory(AdapterContract):
    """A function that returns a Pipeline: each epoch is a new one."""

    adapter_type = FactoryAdapter

    def make_loader(self) -> Any:
        return pipeline


def test_a_function_that_makes_pipelines_is_served() -> None:
    """Each epoch's pipeline runs while it is served, and its threads end with it."""
    evaluator = LoaderEvaluator(pipeline)
    for _ in range(2):
        assert spdl_threads() == []
        batches = iter(evaluator)
        next(batches)
        assert spdl_threads() != []
        assert len(list(batches)) == 4
    for _ in evaluator:
        break
    assert spdl_threads() == []


def test_the_pipelines_of_a_function_are_described() -> None:
    """Their threads, batch size and depth are known before the first epoch."""
    evaluator = LoaderEvaluator(pipeline, mode="alternate")
    info = evaluator.recorded().header.loader
    assert info.adapter == "loadeval_adapters.spdl.SPDLPipelineAdapter"
    assert (info.workers, info.batch_size) == (3, 8)
    assert (info.prefetch_depth or 0) > 2


def test_the_pipelines_of_a_function_are_stopped_under_replay() -> None:
    """Once the batches are kept, none of their threads is left."""
    evaluator = LoaderEvaluator(pipeline, mode="replay", num_cached_batches=2, epoch_batches=4)
    for _ in evaluator:
        assert spdl_threads() == []


@TOLD_ITS_THREADS
@pytest.mark.parametrize("make", [builder, partial(partial, pipeline)])
def test_alternating_epochs_serve_every_batch_once(make: Any) -> None:
    """Two epochs, each of a pipeline of its own, each whole."""
    evaluator = LoaderEvaluator(make(), mode="alternate")
    names = sorted(f"{decode(file).sum()}" for file in FILES)
    for _ in range(2):
        served = sorted(name for batch in evaluator for name in batch["names"])
        assert served == names
    assert spdl_threads() == []
