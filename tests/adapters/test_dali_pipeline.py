"""DALI pipelines by themselves, with both executors, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import LoaderEvaluator, LoadevalWarning
from loadeval.testing import AdapterContract
from loadeval_adapters.dali import DALIPipelineAdapter
from tests.adapters.dali_iterators import numbered, sourced

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]


def content(batch: Any) -> list[Any]:
    """The samples of a batch, as arrays that share its memory."""
    return [np.asarray(tensors[n]) for tensors in batch for n in range(len(tensors))]


class PipelineContract(AdapterContract):
    """The contract, for batches of TensorLists: they are compared by what is in them."""

    adapter_type = DALIPipelineAdapter

    @pytest.fixture(autouse=True)
    def _pipelines(self, dali_pipeline: Make) -> None:
        self.pipeline = dali_pipeline

    def content(self, batch: Any) -> Any:
        return content(batch)

    def test_a_released_loader_serves_again(self) -> None:
        """As many runs as ever, but they begin in the middle of the data, with a warning."""
        adapter, loader = self.make_adapter(), self.make_loader()
        whole = sum(1 for _ in adapter.epoch(self.make_loader()))
        epoch = adapter.epoch(loader)
        next(epoch)
        adapter.release(loader, epoch)
        with pytest.warns(LoadevalWarning, match="broken off"):
            again = adapter.epoch(loader)
        assert sum(1 for _ in again) == whole


class TestDynamicExecutor(PipelineContract):
    """The default executor, whose outputs live as long as somebody holds them."""

    def make_loader(self) -> Any:
        return self.pipeline()


class TestOverwritingExecutor(PipelineContract):
    """`exec_dynamic=False`, which writes each batch into the buffers of an earlier one."""

    def make_loader(self) -> Any:
        return self.pipeline(batch_size=4, exec_dynamic=False)


class TestRaggedImages(PipelineContract):
    """Images of different sizes in one TensorList."""

    def make_loader(self) -> Any:
        return self.pipeline(resized=False, exec_dynamic=False)


class TestExternalSource(PipelineContract):
    """A source that ends its epochs by StopIteration."""

    def make_loader(self) -> Any:
        return sourced(numbered(5))

    def test_a_released_loader_serves_again(self) -> None:
        """It serves what is left of the source, with a warning, and then the source anew."""
        adapter, loader = self.make_adapter(), self.make_loader()
        epoch = adapter.epoch(loader)
        next(epoch)
        adapter.release(loader, epoch)
        with pytest.warns(LoadevalWarning, match="broken off"):
            again = adapter.epoch(loader)
        assert sum(1 for _ in again) == 4
        assert sum(1 for _ in adapter.epoch(loader)) == 5


@pytest.mark.parametrize("exec_dynamic", [True, False])
def test_the_description_is_the_pipelines(dali_pipeline: Make, exec_dynamic: bool) -> None:
    """Threads, queue, batch size, device and length are the pipeline's; nothing is ready."""
    pipeline = dali_pipeline(exec_dynamic=exec_dynamic, num_threads=3, prefetch_queue_depth=4)
    info = DALIPipelineAdapter().describe(pipeline)
    assert info.backend == "nvidia.dali.pipeline.Pipeline"
    assert (info.workers, info.prefetch_depth, info.batch_size, info.length) == (3, 3, 8, 4)
    assert (info.device, info.pinned, info.ready_batches) == ("cpu", False, 0)


def test_a_pipeline_that_has_run_has_batches_ready(dali_pipeline: Make) -> None:
    """What it prefetched before it was wrapped is told."""
    pipeline = dali_pipeline(prefetch_queue_depth=3)
    pipeline.run()
    assert DALIPipelineAdapter().describe(pipeline).ready_batches == 2


def test_a_pipeline_without_a_queue_has_nothing_ready(dali_pipeline: Make) -> None:
    """Without pipelining a batch is made when it is asked for."""
    pipeline = dali_pipeline(exec_pipelined=False, exec_async=False, exec_dynamic=False)
    info = DALIPipelineAdapter().describe(pipeline)
    assert (info.prefetch_depth, info.ready_batches) == (0, 0)
    assert sum(1 for _ in LoaderEvaluator(pipeline)) == 4


@pytest.mark.parametrize(("shards", "length"), [(1, 8), (2, 4), (3, 3), (4, 2)])
def test_an_epoch_is_that_of_the_shard(dali_pipeline: Make, shards: int, length: int) -> None:
    """A reader of a shard has as many batches as the largest shard fills."""
    evaluator = LoaderEvaluator(dali_pipeline(batch_size=4, num_shards=shards))
    assert evaluator.recorded().header.loader.length == length
    assert [sum(1 for _ in evaluator) for _ in range(2)] == [length] * 2


def test_a_kept_batch_keeps_its_layout(dali_pipeline: Make) -> None:
    """Height, width and channels of an image have the same places."""
    batch = next(DALIPipelineAdapter().epoch(dali_pipeline()))
    kept = DALIPipelineAdapter().keep(batch)
    assert [tensors.layout() for tensors in kept] == [tensors.layout() for tensors in batch]
