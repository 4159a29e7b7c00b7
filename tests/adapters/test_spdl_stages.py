"""What the stages of SPDL's pipelines tell of themselves, against what they do."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from spdl.pipeline import build_pipeline
from spdl.pipeline.defs import Aggregate, Merge, Pipe, PipelineConfig, SinkConfig, SourceConfig

from loadeval import LoaderEvaluator
from loadeval_adapters.spdl import SPDLPipelineAdapter, Stages
from tests.adapters.spdl_pipelines import NEVER_RUN, TOLD_ITS_THREADS, source

pytestmark = [NEVER_RUN, TOLD_ITS_THREADS]
SOURCE = 2 + 1
"""Items that the source holds, with the queue behind it."""


def array(number: int) -> Any:
    return np.full((2, 3), number)


def test_the_description_is_the_pipelines() -> None:
    """Threads, batch size and queues; a pipeline has no length."""
    builder = source(range(40)).pipe(array, concurrency=2, output_order="input")
    builder.aggregate(8).pipe(np.stack).add_sink(2)
    info = SPDLPipelineAdapter().describe(builder.build(num_threads=3))
    assert info.backend == "spdl.pipeline._pipeline.Pipeline"
    assert (info.workers, info.batch_size, info.length) == (3, 8, None)
    # The sink's buffer and hands, a queue and the collated one, a queue and the aggregated one,
    # and what would be two more batches: a queue, two arrays, two in order, and the source's.
    assert info.prefetch_depth == 2 + 1 + (2 + 1) + (2 + 1) + 2
    built = SPDLPipelineAdapter().describe(builder)
    assert (built.prefetch_depth, built.batch_size) == (info.prefetch_depth, info.batch_size)


def test_a_pipeline_that_has_ended_is_not_known() -> None:
    """Its stages are gone; nothing is told in their place."""
    loader = source(range(3)).add_sink(2).build(num_threads=1)
    with loader.auto_stop():
        list(loader)
    info = SPDLPipelineAdapter().describe(loader)
    assert (info.prefetch_depth, info.batch_size) == (None, None)


class Making:
    """Makes arrays, and tells when it has made as many as were `wanted`."""

    def __init__(self) -> None:
        self.made = 0
        self.wanted = 0
        self.has_made_them = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, number: int) -> Any:
        with self._lock:
            self.made += 1
            if self.made == self.wanted:
                self.has_made_them.set()
        return array(number)


def depth_of(builder: Any) -> int:
    return Stages.of_builder(builder).depth or 0


def made_while_nobody_takes(builder: Any, make: Making, wanted: int) -> int:
    """After one batch was taken: how many are made, once the wanted ones are."""
    make.wanted = wanted
    pipeline = builder.build(num_threads=4)
    adapter = SPDLPipelineAdapter()
    epoch = adapter.epoch(pipeline)
    next(epoch)
    assert make.has_made_them.wait(10)
    adapter.release(pipeline, epoch)
    return make.made


@pytest.mark.parametrize(("order", "concurrency"), [("completion", 3), ("input", 2)])
def test_as_many_batches_get_ready_as_the_depth_says(order: str, concurrency: int) -> None:
    """The stage that makes them goes on until the queues are full; the source's are not made."""
    make = Making()
    builder = source(range(100)).pipe(make, concurrency=concurrency, output_order=order)
    depth = depth_of(builder.add_sink(2))
    wanted = 1 + depth - SOURCE
    assert made_while_nobody_takes(builder, make, wanted) == wanted


@pytest.mark.parametrize("size", [1, 2, 5])
def test_samples_before_an_aggregation_are_in_the_depth(size: int) -> None:
    """A queue and four threads hold samples for further batches."""
    make = Making()
    builder = source(range(400)).pipe(make, concurrency=4).aggregate(size)
    depth = depth_of(builder.add_sink(2))
    aggregated = size * (1 + (2 + 1) + (2 + 1))
    made = made_while_nobody_takes(builder, make, aggregated + 2 + 4)
    assert made <= size * (1 + depth) <= made + SOURCE + size


def test_items_of_a_list_are_in_the_depth() -> None:
    """Where each item of an aggregated list is a batch, those in all lists are ready."""
    make = Making()
    builder = source(range(100)).pipe(make).aggregate(4).disaggregate()
    depth = depth_of(builder.add_sink(2))
    assert made_while_nobody_takes(builder, make, 20) <= 1 + depth


def test_all_paths_of_a_merge_are_in_the_depth() -> None:
    """Of two merged pipelines both hold batches; and they are as large as what each makes."""
    numbers: Any = SourceConfig(range(9))
    arrays: Any = PipelineConfig(numbers, [Pipe(array, concurrency=3)], SinkConfig(1))
    lists: Any = PipelineConfig(numbers, [Pipe(array), Aggregate(4)], SinkConfig(1))
    merged: Any = PipelineConfig(Merge([arrays, lists]), [], SinkConfig(2))
    of_arrays, of_lists = SOURCE + (2 + 3), 2 + (2 + 1)
    in_the_merge = 2 + 2 + (2 + 1)
    loader = build_pipeline(merged, num_threads=2)
    assert Stages.of_pipeline(loader).depth == of_arrays + of_lists + in_the_merge + 1 + 2


def test_lists_of_arrays_are_counted_as_their_samples() -> None:
    """An aggregation without a collating stage makes lists of as many samples as are in them."""
    builder = source(range(40)).pipe(array).aggregate(16).add_sink(2)
    evaluator = LoaderEvaluator(builder.build(num_threads=2))
    assert len(list(evaluator)) == 3
    steps = evaluator.recorded().steps
    assert steps.samples.tolist() == [16, 16, 8]
    assert steps.nbytes.tolist() == [16 * 48, 16 * 48, 8 * 48]
