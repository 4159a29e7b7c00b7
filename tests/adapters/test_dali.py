"""DALI's iterators for PyTorch, over real pipelines and sources on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import (
    DALIClassificationIterator,
    DALIGenericIterator,
    DALIRaggedIterator,
)

from loadeval import LoaderEvaluator
from loadeval.estimate.steady import first_waits
from tests.adapters.loaders import adapter_of, contract, describe
from tests.dali_loaders import GoesOnContract, iterator, numbered, numbers, sourced, trained

Make = Callable[..., Any]

ADAPTER = adapter_of("nvidia.dali.plugin")
DENSE, LIST = (DALIRaggedIterator.DENSE_TAG, DALIRaggedIterator.SPARSE_LIST_TAG)
BYTES = 16 * 16 * 3 + 4
"""The bytes of an image and its number."""


def ragged(pipeline: Any, *types: str, **options: Any) -> Any:
    names = ["image", "number"]
    return DALIRaggedIterator(
        pipeline, names, reader_name="Reader", output_types=list(types), **options
    )


TestIterators = contract(
    ADAPTER,
    GoesOnContract,
    "dali_pipeline",
    quick=["partial_last_batch"],
    partial_last_batch=lambda pipeline: iterator(pipeline()),
    resets_itself=lambda pipeline: DALIClassificationIterator(
        pipeline(batch_size=4),
        reader_name="Reader",
        auto_reset=True,
        last_batch_policy=LastBatchPolicy.DROP,
    ),
    ragged=lambda pipeline: ragged(
        pipeline(resized=False), LIST, DENSE, last_batch_policy=LastBatchPolicy.PARTIAL
    ),
    overwriting=lambda pipeline: iterator(pipeline(exec_dynamic=False), prepare_first_batch=False),
    two_pipelines=lambda pipeline: iterator(
        [pipeline(batch_size=4, shard_id=n, num_shards=2) for n in range(2)]
    ),
)


def test_the_description_is_the_iterators(dali_pipeline: Make) -> None:
    info = describe(iterator(dali_pipeline(num_threads=3, prefetch_queue_depth=4)))
    assert info.backend == "nvidia.dali.plugin.pytorch.DALIGenericIterator"
    assert (info.workers, info.prefetch_depth, info.batch_size, info.length) == (3, 4, 8, 4)
    assert (info.device, info.pinned, info.start_method) == ("cpu", False, None)


def test_several_pipelines_are_described_together(dali_pipeline: Make) -> None:
    """A batch has the samples, and is the work, of all pipelines; there is a queue for each."""
    shards = [dali_pipeline(batch_size=4, shard_id=n, num_shards=3) for n in range(3)]
    info = describe(iterator(shards))
    assert (info.workers, info.prefetch_depth, info.batch_size, info.length) == (6, 2, 12, 3)


@pytest.mark.parametrize("prepared", [True, False])
def test_the_constructors_batch_is_no_free_load(dali_pipeline: Make, prepared: bool) -> None:
    """The batch that DALI prepared beforehand is told, and its epoch has no epoch start."""
    evaluator = LoaderEvaluator(iterator(dali_pipeline(), prepare_first_batch=prepared))
    trained(evaluator, epochs=3)
    run = evaluator.recorded()
    assert run.header.loader.ready_batches == int(prepared)
    assert len(first_waits(run)) == 3 - prepared


@pytest.mark.parametrize(
    ("policy", "counts"), [("PARTIAL", [8, 8, 8, 6]), ("FILL", [8, 8, 8, 8]), ("DROP", [8, 8, 8])]
)
def test_samples_and_bytes_are_those_of_the_batch(
    dali_pipeline: Make, policy: str, counts: list[int]
) -> None:
    evaluator = LoaderEvaluator(iterator(dali_pipeline(), policy))
    trained(evaluator, epochs=1)
    steps = evaluator.recorded().steps
    assert steps.samples.tolist() == counts
    assert steps.nbytes.tolist() == [count * BYTES for count in counts]


def test_ragged_batches_are_counted(dali_pipeline: Make) -> None:
    evaluator = LoaderEvaluator(ragged(dali_pipeline(resized=False), LIST, DENSE))
    batch = next(iter(evaluator))[0]
    images = sum(image.numel() for image in batch["image"])
    steps = evaluator.recorded().steps
    assert (steps.samples.tolist(), steps.nbytes.tolist()) == ([8], [images + 8 * 4])


IMAGES = 30


@pytest.mark.filterwarnings("ignore:Please set `reader_name`:Warning")  # DALI's own, of `size`
@pytest.mark.parametrize("policy", ["FILL", "DROP", "PARTIAL"])
@pytest.mark.parametrize(
    ("padded", "shards", "by_size"),
    [(False, 1, False), (True, 3, False), pytest.param(False, 1, True, marks=pytest.mark.check)],
)
def test_epochs_are_dalis_own(
    dali_pipeline: Make, policy: str, padded: bool, shards: int, by_size: bool
) -> None:
    options = {"reader_name": None, "size": IMAGES} if by_size else {}

    def make() -> Any:
        pipelines = [
            dali_pipeline(4, shard_id=n, num_shards=shards, pad_last_batch=padded)
            for n in range(shards)
        ]
        return iterator(pipelines, policy, auto_reset=True, **options)

    bare, loader = make(), make()
    evaluator = LoaderEvaluator(loader)
    for _ in range(6):
        length = describe(loader).length
        served = [numbers(batch) for batch in evaluator]
        assert served == [numbers(batch) for batch in bare]
        assert length in {None, len(served)}


@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_after_a_break_the_remainder_is_served(dali_pipeline: Make, mode: str) -> None:
    bare, loader = iterator(dali_pipeline()), iterator(dali_pipeline())
    evaluator = LoaderEvaluator(loader, mode=mode)
    assert trained(evaluator, 1, batches=1) == trained(bare, 1, batches=1) == [[*range(8)]]
    rest = sorted(n for batch in evaluator for n in numbers(batch))
    assert [rest] == trained(bare, 1) == [[*range(8, 30)]]
    assert sorted(*trained(evaluator, 1)) == sorted(*trained(bare, 1)) == [*range(30)]


@pytest.mark.parametrize("exec_dynamic", [True, False])
@pytest.mark.parametrize("shards", [1, 2])
def test_an_alternating_run_serves_every_image_once(
    dali_pipeline: Make, exec_dynamic: bool, shards: int
) -> None:
    pipelines = [
        dali_pipeline(1, exec_dynamic=exec_dynamic, shard_id=n, num_shards=shards)
        for n in range(shards)
    ]
    with LoaderEvaluator(iterator(pipelines), mode="alternate") as evaluator:
        epochs = trained(evaluator, 4)
    assert [sorted(epoch) for epoch in epochs] == [[*range(IMAGES)]] * 4
    assert evaluator.recorded().steps.samples.sum() == 4 * IMAGES


def sourcing(source: Any, batch_size: int = 4, cycle: str | None = "raise", **options: Any) -> Any:
    """An iterator over a source."""
    return DALIGenericIterator(sourced(source, cycle, batch_size), ["number"], **options)


def batch_numbers(loader: Any) -> list[int]:
    """The number of each batch of an epoch."""
    return [int(batch[0]["number"][0, 0]) for batch in loader]


TestExternalSource = contract(ADAPTER, GoesOnContract, source=lambda: sourcing(numbered(6)))


@pytest.mark.parametrize("auto_reset", [False, True])
@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_a_source_that_ends_is_served_epoch_by_epoch(auto_reset: bool, mode: str) -> None:
    evaluator = LoaderEvaluator(sourcing(numbered(7), auto_reset=auto_reset), mode=mode)
    assert [sorted(batch_numbers(evaluator)) for _ in range(3)] == [[*range(7)]] * 3
    run = evaluator.recorded()
    assert run.header.loader.length is None
    assert run.steps.samples.tolist() == [4] * 21


def test_operators_are_said_not_to_be_timed(dali_pipeline: Make) -> None:
    with LoaderEvaluator(iterator(dali_pipeline()), stages=True, probes=()) as evaluator:
        list(evaluator)
    (event,) = evaluator.recorded().events
    assert "only to Nsight Systems: run nsys profile -t nvtx,cuda" in event.message
