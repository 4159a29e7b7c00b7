"""spdl's Pipeline, which runs once, decoding real JPEGs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from spdl.pipeline import (
    PipelineFailure,
    SharedMemorySegmentPool,
    iterate_in_subprocess,
    run_pipeline_in_subprocess,
)

from loadeval import LoaderEvaluator, UsageError
from loadeval.testing import AdapterContract, same_batch
from loadeval_adapters.spdl import SPDLPipelineAdapter
from tests.adapters.photographs import FILES, collate, decode
from tests.adapters.spdl_pipelines import NEVER_RUN, builder, pipeline, source, spdl_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = NEVER_RUN


class Reiterated:
    """In a subprocess: arrays of a megabyte each, as an arena takes them."""

    def __iter__(self) -> Iterator[Any]:
        return (np.full((4, 65_536), float(number), np.float32) for number in range(6))


class TestPipeline(AdapterContract):
    """A Pipeline, which has one epoch."""

    adapter_type = SPDLPipelineAdapter

    def make_loader(self) -> Any:
        return pipeline()

    def test_a_released_loader_serves_again(self) -> None:
        """It does not, and says so."""
        adapter = self.make_adapter()
        loader = self.make_loader()
        epoch = adapter.epoch(loader)
        next(epoch)
        adapter.release(loader, epoch)
        with pytest.raises(UsageError, match="pass its PipelineBuilder"):
            adapter.epoch(loader)


class TestContinuousPipeline(AdapterContract):
    """A Pipeline whose source begins again, and which runs on between epochs."""

    adapter_type = SPDLPipelineAdapter

    def make_loader(self) -> Any:
        return pipeline(continuous=True)

    def test_a_released_loader_serves_again(self) -> None:
        """It does not, since releasing stops it for good, and says so."""
        adapter = self.make_adapter()
        loader = self.make_loader()
        epoch = adapter.epoch(loader)
        next(epoch)
        adapter.release(loader, epoch)
        with pytest.raises(UsageError, match="can be run only once"):
            adapter.epoch(loader)


class TestSubprocess(AdapterContract):
    """A pipeline in a subprocess, whose iterable SPDL makes."""

    adapter_type = SPDLPipelineAdapter

    def make_loader(self) -> Any:
        return run_pipeline_in_subprocess(builder().get_config(), num_threads=3)


def test_kept_batches_give_their_shared_memory_back() -> None:
    """More batches are kept than there are segments, so none can be held."""
    arena = SharedMemorySegmentPool(segment_size=2_000_000, count=2, acquire_timeout=20)
    loader = iterate_in_subprocess(Reiterated, arena=arena)
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=6, epoch_batches=6)
    assert [batch[0, 0] for batch in evaluator.cached_batches] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("started", [False, True])
def test_a_second_epoch_of_a_pipeline_is_an_error(started: bool) -> None:
    """It says what to pass instead, whoever has started the pipeline."""
    loader = pipeline()
    if started:
        loader.start()
    evaluator = LoaderEvaluator(loader)
    assert len(list(evaluator)) == 5
    with pytest.raises(UsageError, match="pass its PipelineBuilder, or a function"):
        list(evaluator)
    loader.stop()


def test_a_pipeline_that_the_user_has_run_is_an_error() -> None:
    """An epoch that would be empty, or the rest of a sink, is refused."""
    loader = pipeline()
    list(loader)
    with pytest.raises(UsageError, match="has been run"):
        list(LoaderEvaluator(loader))


def test_a_pipeline_runs_while_its_epoch_is_served() -> None:
    """It is started with the first batch, and stopped when the epoch ends or is broken off."""
    for broken_off in (False, True):
        loader = pipeline()
        evaluator = LoaderEvaluator(loader)
        assert spdl_threads() == []
        for _ in evaluator:
            assert spdl_threads() != []
            if broken_off:
                break
        assert spdl_threads() == []


def test_a_pipeline_that_the_user_has_started_is_left_running() -> None:
    """After a broken-off epoch the user can read on."""
    loader = pipeline()
    with loader.auto_stop():
        for _ in LoaderEvaluator(loader):
            break
        assert len(list(loader)) == 4


def test_no_thread_is_alive_under_replay() -> None:
    """The pipeline is stopped before the first replayed batch, also one that was started."""
    for started in (False, True):
        loader = pipeline()
        if started:
            loader.start()
        evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=2, epoch_batches=4)
        for _ in evaluator:
            assert spdl_threads() == []


def test_a_continuous_pipeline_has_epochs() -> None:
    """Each is whole, and between them the pipeline runs on."""
    loader = pipeline(continuous=True)
    evaluator = LoaderEvaluator(loader)
    first, second = list(evaluator), list(evaluator)
    assert len(first) == len(second) == 5
    assert all(map(same_batch, first, second))
    assert spdl_threads() != []
    loader.stop()


def test_dropped_batches_of_a_pipeline_are_not_counted() -> None:
    """A batch that fails to collate is dropped by SPDL, and is no batch of the run."""

    def failing(images: list[Any]) -> dict[str, Any]:
        if images[0].sum() == decode(FILES[8]).sum():
            raise ValueError("the second batch is broken")
        return collate(images)

    made = source(FILES).pipe(decode).aggregate(8).pipe(failing)
    evaluator = LoaderEvaluator(made.add_sink(2).build(num_threads=2))
    assert len(list(evaluator)) == len(evaluator.recorded().steps) == 4


def test_a_pipelines_failure_passes_through() -> None:
    """With max_failures=0 the user sees SPDL's own error, after the batches before it."""
    loader = builder([*FILES[:24], b"no JPEG"]).build(num_threads=3, max_failures=0)
    evaluator = LoaderEvaluator(loader)
    with pytest.raises(PipelineFailure, match="stages failed"):
        list(evaluator)
    assert evaluator.recorded().ends[0].cause == "failed"
    assert spdl_threads() == []


def test_an_alternating_run_serves_every_batch_once() -> None:
    """Both arms together serve the epoch, if not in the order in which it was loaded."""
    files = FILES * 20
    expected = [batch["names"] for batch in pipeline(files)]
    evaluator = LoaderEvaluator(pipeline(files), mode="alternate")
    served = [batch["names"] for batch in evaluator]
    assert sorted(served) == sorted(expected)
    assert len(evaluator.recorded().prefetches) > 0
