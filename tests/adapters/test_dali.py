"""DALI's iterators for PyTorch, over real pipelines on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import (
    DALIClassificationIterator,
    DALIRaggedIterator,
)

from loadeval import LoaderEvaluator, LoadevalWarning
from loadeval.analysis.summary import epoch_starts
from loadeval.testing import AdapterContract
from loadeval_adapters.dali import DALIAdapter
from tests.adapters.dali_iterators import iterator, trained

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]

DENSE, LIST, COO = (
    DALIRaggedIterator.DENSE_TAG,
    DALIRaggedIterator.SPARSE_LIST_TAG,
    DALIRaggedIterator.SPARSE_COO_TAG,
)
SPARSE = "ignore:Sparse invariant checks are implicitly disabled:UserWarning"  # torch's own
BYTES = 16 * 16 * 3 + 4
"""Of an image, and its number."""


def ragged(pipeline: Any, *types: str, **options: Any) -> Any:
    names = ["image", "number"]
    return DALIRaggedIterator(
        pipeline, names, reader_name="Reader", output_types=list(types), **options
    )


class IteratorContract(AdapterContract):
    """The contract, with pipelines to read."""

    adapter_type = DALIAdapter

    @pytest.fixture(autouse=True)
    def _pipelines(self, dali_pipeline: Make) -> None:
        self.pipeline = dali_pipeline

    def test_a_released_loader_serves_again(self) -> None:
        """It serves what is left, with a warning: DALI cannot end an epoch before its time."""
        adapter, loader = self.make_adapter(), self.make_loader()
        whole = sum(1 for _ in adapter.epoch(self.make_loader()))
        epoch = adapter.epoch(loader)
        next(epoch)
        adapter.release(loader, epoch)
        with pytest.warns(LoadevalWarning, match="broken off"):
            rest = adapter.epoch(loader)
        assert sum(1 for _ in rest) == whole - 1
        assert sum(1 for _ in adapter.epoch(loader)) == whole


class TestGenericIterator(IteratorContract):
    """A reader's epochs, whose last batch is partial."""

    def make_loader(self) -> Any:
        return iterator(self.pipeline())


class TestClassificationIterator(IteratorContract):
    """Batches of data and label, which reset themselves, and drop the last."""

    def make_loader(self) -> Any:
        return DALIClassificationIterator(
            self.pipeline(batch_size=4),
            reader_name="Reader",
            auto_reset=True,
            last_batch_policy=LastBatchPolicy.DROP,
        )


class TestRaggedIterator(IteratorContract):
    """Images of different sizes, a list of them in each batch."""

    def make_loader(self) -> Any:
        return ragged(
            self.pipeline(resized=False), LIST, DENSE, last_batch_policy=LastBatchPolicy.PARTIAL
        )


class TestOverwritingExecutor(IteratorContract):
    """A pipeline that uses its buffers again, and an iterator that has nothing ready."""

    def make_loader(self) -> Any:
        return iterator(self.pipeline(exec_dynamic=False), prepare_first_batch=False)


class TestTwoPipelines(IteratorContract):
    """Two shards, each read by a pipeline of its own: a batch is a list of two dicts."""

    def make_loader(self) -> Any:
        shards = [self.pipeline(batch_size=4, shard_id=n, num_shards=2) for n in range(2)]
        return iterator(shards)


def test_the_description_is_the_iterators(dali_pipeline: Make) -> None:
    """Threads, queue, batch size, device and length are those of the iterator."""
    info = DALIAdapter().describe(iterator(dali_pipeline(num_threads=3, prefetch_queue_depth=4)))
    assert info.backend == "nvidia.dali.plugin.pytorch.DALIGenericIterator"
    assert (info.workers, info.prefetch_depth, info.batch_size, info.length) == (3, 4, 8, 4)
    assert (info.device, info.pinned, info.start_method) == ("cpu", False, None)


def test_several_pipelines_are_described_together(dali_pipeline: Make) -> None:
    """A batch has the samples, and is the work, of all pipelines; there is a queue for each."""
    shards = [dali_pipeline(batch_size=4, shard_id=n, num_shards=3) for n in range(3)]
    info = DALIAdapter().describe(iterator(shards))
    assert (info.workers, info.prefetch_depth, info.batch_size, info.length) == (6, 2, 12, 3)


def test_the_constructors_batch_is_no_free_load(dali_pipeline: Make) -> None:
    """The batch that DALI prepared beforehand is told, and its epoch has no epoch start."""
    evaluator = LoaderEvaluator(iterator(dali_pipeline()))
    trained(evaluator, epochs=3)
    run = evaluator.recorded()
    assert run.header.loader.ready_batches == 1
    assert len(epoch_starts(run)) == 2


def test_nothing_is_ready_where_nothing_was_prepared(dali_pipeline: Make) -> None:
    """With `prepare_first_batch=False` the first epoch start is measured."""
    evaluator = LoaderEvaluator(iterator(dali_pipeline(), prepare_first_batch=False))
    trained(evaluator, epochs=1)
    run = evaluator.recorded()
    assert run.header.loader.ready_batches == 0
    assert len(epoch_starts(run)) == 1


@pytest.mark.parametrize(
    ("policy", "counts"), [("PARTIAL", [8, 8, 8, 6]), ("FILL", [8, 8, 8, 8]), ("DROP", [8, 8, 8])]
)
def test_samples_and_bytes_are_those_of_the_batch(
    dali_pipeline: Make, policy: str, counts: list[int]
) -> None:
    """Last batches count as many samples and bytes as training gets of them."""
    evaluator = LoaderEvaluator(iterator(dali_pipeline(), policy))
    trained(evaluator, epochs=1)
    steps = evaluator.recorded().steps
    assert steps.samples.tolist() == counts
    assert steps.nbytes.tolist() == [count * BYTES for count in counts]


def test_samples_of_several_pipelines_are_added_up(dali_pipeline: Make) -> None:
    """A batch of two dicts has the samples of both, also where one pipeline has ended."""
    shards = [dali_pipeline(batch_size=8, shard_id=n, num_shards=2) for n in range(2)]
    evaluator = LoaderEvaluator(iterator(shards))
    trained(evaluator, epochs=1)
    assert evaluator.recorded().steps.samples.tolist() == [16, 14]


@pytest.mark.filterwarnings(SPARSE)
def test_ragged_batches_are_counted(dali_pipeline: Make) -> None:
    """Lists of tensors, and sparse tensors with their indices, have samples and bytes."""
    evaluator = LoaderEvaluator(ragged(dali_pipeline(resized=False), LIST, COO))
    batch = next(iter(evaluator))[0]
    images = sum(image.numel() for image in batch["image"])
    sparse = 8 * (4 + 2 * 8)  # a value of 4 bytes, and two indices of 8, for each sample
    steps = evaluator.recorded().steps
    assert (steps.samples.tolist(), steps.nbytes.tolist()) == ([8], [images + sparse])


@pytest.mark.filterwarnings(SPARSE)
def test_sparse_samples_alone_are_unknown(dali_pipeline: Make) -> None:
    """A sparse tensor may lack rows for empty samples, so it tells no number of them."""
    outputs = next(ragged(dali_pipeline(), DENSE, COO))[0]
    assert DALIAdapter().samples([{"number": outputs["number"]}]) is None


def test_what_a_subclass_makes_of_batches_is_counted(dali_pipeline: Make) -> None:
    """An iterator of the user's that returns a pair is served and counted as such."""

    class Pairs(DALIClassificationIterator):
        def __next__(self) -> Any:
            outputs = super().__next__()[0]
            return outputs["data"], outputs["label"]

    evaluator = LoaderEvaluator(Pairs(dali_pipeline(), reader_name="Reader"))
    assert [len(images) for images, _ in evaluator] == [8] * 4
    run = evaluator.recorded()
    assert run.header.loader.adapter == "loadeval_adapters.dali.DALIAdapter"
    assert run.steps.samples.tolist() == [8] * 4
