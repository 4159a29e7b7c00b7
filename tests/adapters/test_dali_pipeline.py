"""DALI pipelines by themselves, with both executors, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def

from loadeval import LoaderEvaluator
from tests.adapters.loaders import adapter_of, contract, describe
from tests.dali_loaders import GoesOnContract, numbered, sourced, trained

Make = Callable[..., Any]


class Contents(GoesOnContract):
    """Batches are TensorLists: they are compared by what is in them."""

    lacks = 0

    def content(self, batch: Any) -> Any:
        return [np.asarray(tensors[n]) for tensors in batch for n in range(len(tensors))]


class EndingContents(Contents):
    lacks = 1


ADAPTER = adapter_of("nvidia.dali.pipeline")
TestPipelines = contract(
    ADAPTER,
    Contents,
    "dali_pipeline",
    dynamic_executor=lambda pipeline: pipeline(),
    overwriting_executor=lambda pipeline: pipeline(batch_size=4, exec_dynamic=False),
    ragged=lambda pipeline: pipeline(resized=False, exec_dynamic=False),
)
TestExternalSource = contract(ADAPTER, EndingContents, source=lambda: sourced(numbered(5)))


@pytest.mark.parametrize("exec_dynamic", [True, False])
def test_the_description_is_the_pipelines(dali_pipeline: Make, exec_dynamic: bool) -> None:
    pipeline = dali_pipeline(exec_dynamic=exec_dynamic, num_threads=3, prefetch_queue_depth=4)
    info = describe(pipeline)
    assert info.backend == "nvidia.dali.pipeline.Pipeline"
    assert (info.workers, info.prefetch_depth, info.batch_size, info.length) == (3, 3, 8, 4)
    assert (info.device, info.pinned, info.ready_batches) == ("cpu", False, 0)


def test_a_pipeline_that_has_run_has_batches_ready(dali_pipeline: Make) -> None:
    pipeline = dali_pipeline(prefetch_queue_depth=3)
    pipeline.run()
    assert describe(pipeline).ready_batches == 2


@pytest.mark.parametrize(("shards", "length"), [(1, 8), (2, 4), (3, 3), (4, 2)])
def test_an_epoch_is_that_of_the_shard(dali_pipeline: Make, shards: int, length: int) -> None:
    evaluator = LoaderEvaluator(dali_pipeline(batch_size=4, num_shards=shards))
    assert evaluator.recorded().header.loader.length == length
    assert [sum(1 for _ in evaluator) for _ in range(2)] == [length] * 2


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
@pytest.mark.parametrize("exec_dynamic", [True, False])
def test_a_training_loop_gets_the_pipelines_batches(
    dali_pipeline: Make, mode: str, exec_dynamic: bool
) -> None:
    pipeline = dali_pipeline(batch_size=2, exec_dynamic=exec_dynamic)
    with LoaderEvaluator(pipeline, mode=mode, num_cached_batches=15) as evaluator:
        epochs = trained(evaluator, 3)
    assert [sorted(epoch) for epoch in epochs] == [[*range(30)]] * 3
    steps = evaluator.recorded().steps
    assert steps.samples.tolist() == [2] * 45
    assert steps.nbytes.tolist() == [2 * (16 * 16 * 3 + 4)] * 45


def test_the_end_of_a_source_is_not_lost_by_a_break() -> None:
    """What was prefetched when the source ended is served, before the source begins anew."""
    evaluator = LoaderEvaluator(sourced(numbered(3)))
    assert trained(evaluator, 1, batches=2) == [[0] * 4 + [1] * 4]
    assert trained(evaluator, 1) == [[2] * 4]
    assert trained(evaluator, 1) == [[0] * 4 + [1] * 4 + [2] * 4]


def test_a_source_without_end_has_no_length() -> None:
    """It is served as long as it is asked; replay needs a number of batches."""
    assert describe(sourced(numbered(2), "quiet")).length is None
    logged = LoaderEvaluator(sourced(numbered(2), "quiet"))
    assert len(list(islice(logged, 20))) == 20
    replayed = LoaderEvaluator(
        sourced(numbered(2), "quiet"), mode="replay", num_cached_batches=2, epoch_batches=3
    )
    assert trained(replayed, 2) == [[0] * 4 + [1] * 4 + [0] * 4] * 2


def test_an_epoch_is_that_of_the_longest_reader(jpegs: Path) -> None:
    @pipeline_def
    def disagreeing() -> Any:
        every, _ = fn.readers.file(file_root=str(jpegs), name="every")
        some, _ = fn.readers.file(file_root=str(jpegs), name="some", dir_filters="class 0")
        return every, some

    assert describe(disagreeing(batch_size=5, num_threads=1, device_id=None)).length == 6
