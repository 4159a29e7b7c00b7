"""Hugging Face datasets, iterated without a DataLoader."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import datasets  # type: ignore[import-untyped]  # it ships no marker of its types
import pytest
from torch.utils.data import DataLoader

from loadeval import IterableAdapter, LoaderEvaluator, UsageError
from loadeval.testing import AdapterContract
from tests.adapters.loaders import adapter_of, break_off, counted, describe
from tests.images import FILES

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 40


def dataset(form: str | None = None) -> Any:
    """Rows of three numbers, one number and a text."""
    columns = {
        "x": [[row + 0.5] * 3 for row in range(ROWS)],
        "y": list(range(ROWS)),
        "text": [f"row {row}" for row in range(ROWS)],
    }
    return datasets.Dataset.from_dict(columns).with_format(form)


def stream(form: str | None = None) -> Any:
    return dataset().to_iterable_dataset(num_shards=2).with_format(form)


def tokens() -> Any:
    """Rows of a list each, which may be an example or a batch."""
    return datasets.Dataset.from_dict({"ids": [[row] * 3 for row in range(ROWS)]})


def photographs() -> Any:
    """Crops of a photograph, as rows that hold a PIL image each."""
    images = [{"bytes": file, "path": None} for file in FILES[:8]]
    features = datasets.Features({"image": datasets.Image(), "y": datasets.Value("int64")})
    return datasets.Dataset.from_dict({"image": images, "y": range(8)}, features=features)


class Contract(AdapterContract):
    adapter_type = adapter_of("datasets")


class TestDataset(Contract):
    """Rows of plain values."""

    def make_loader(self) -> Any:
        return dataset()


class TestBatchedTensors(Contract):
    """A dataset of batches, as tensors."""

    def make_loader(self) -> Any:
        return dataset("torch").batch(8)


class TestStream(Contract):
    """An IterableDataset, which has no length."""

    def make_loader(self) -> Any:
        return stream()


class TestBatchedStream(Contract):
    """A stream of batches, as arrays."""

    def make_loader(self) -> Any:
        return stream("numpy").batch(8)


class TestGenerator(AdapterContract):
    """What `iter` returns is a generator, of one epoch."""

    adapter_type = IterableAdapter

    def make_loader(self) -> Any:
        return dataset("torch").iter(batch_size=8)


def test_a_dataset_is_read_in_this_process() -> None:
    """A Dataset tells its length, and has no workers and no queue."""
    info = describe(dataset())
    assert info.backend == "datasets.arrow_dataset.Dataset"
    assert (info.length, info.workers, info.prefetch_depth) == (ROWS, 0, 0)


def test_a_stream_tells_neither_its_length_nor_its_queue() -> None:
    """An IterableDataset has no length; what it reads ahead is not known."""
    info = describe(stream().batch(8))
    assert info.backend == "datasets.iterable_dataset.IterableDataset"
    assert (info.length, info.workers, info.prefetch_depth) == (None, None, None)


def test_a_batch_size_is_told_where_it_is_certain() -> None:
    """By a column that is no list, or by the last step of a stream; else it is unknown."""

    def batch_size(data: Any) -> int | None:
        return describe(data).batch_size

    assert batch_size(dataset()) == batch_size(stream()) == batch_size(photographs()) == 1
    assert batch_size(stream().batch(8)) == 8
    assert batch_size(stream().batch(by_column="y")) is None
    assert batch_size(dataset().batch(8)) is None
    assert batch_size(tokens()) is batch_size(tokens().to_iterable_dataset()) is None
    assert batch_size(stream().map(dict)) is None


@pytest.mark.parametrize("form", [None, "torch", "numpy"])
@pytest.mark.parametrize("make", [dataset, stream])
def test_an_example_is_one_sample(make: Callable[[str | None], Any], form: str | None) -> None:
    """Where a column is no list, a row is an example, however long its arrays are."""
    assert set(counted(make(form))) == {1}


def test_the_samples_in_a_row_of_lists_are_unknown() -> None:
    """It may be an example or a batch: the first dimension of its arrays says nothing."""
    assert set(counted(tokens().with_format("torch"))) == {-1}
    assert set(counted(dataset("torch").batch(8))) == {-1}


@pytest.mark.parametrize("form", [None, "torch", "numpy"])
def test_a_stream_of_batches_is_counted(form: str | None) -> None:
    """The batches that `batch` makes of a stream are counted, lists and arrays alike."""
    assert counted(stream(form).batch(16)) == [16, 16, 8]


def test_batches_of_a_generator_are_counted_by_their_arrays() -> None:
    """Those of `iter` are as many samples as the first array has rows; of lists it is unknown."""
    assert counted(dataset("torch").iter(batch_size=16)) == [16, 16, 8]
    assert counted(dataset().iter(batch_size=16)) == [-1, -1, -1]


def test_a_callable_gives_a_generator_for_each_epoch() -> None:
    """What calls `iter` has as many epochs as are wanted."""
    evaluator = LoaderEvaluator(partial(dataset("torch").iter, batch_size=8))
    assert [len(list(evaluator)) for _ in range(2)] == [5, 5]


def test_a_replayed_stream_needs_no_length() -> None:
    """`epoch_batches` says how long a replayed epoch of a stream is."""
    options: dict[str, Any] = {"num_cached_batches": 2, "epoch_batches": 7}
    evaluator = LoaderEvaluator(stream("torch").batch(8), mode="replay", **options)
    assert [len(batch["y"]) for _ in range(2) for batch in evaluator] == [8] * 14


def test_an_alternating_run_serves_every_row_once() -> None:
    """Two epochs, the first of which is broken off: the second is whole."""
    evaluator = LoaderEvaluator(stream(), mode="alternate")
    break_off(evaluator, 12)
    assert sorted(row["y"] for row in evaluator) == list(range(ROWS))


def test_a_datasets_own_error_reaches_the_loop() -> None:
    """What a mapped function raises is raised where its row is asked for."""

    def fail(row: dict[str, Any]) -> dict[str, Any]:
        if row["y"] == 5:
            raise ArithmeticError(row["text"])
        return row

    with pytest.raises(ArithmeticError, match="row 5"):
        list(LoaderEvaluator(stream().map(fail)))


def test_a_dict_of_datasets_is_refused() -> None:
    """A DatasetDict iterates its names: the error says to pass one of the datasets."""
    both = datasets.DatasetDict(train=dataset(), test=dataset())
    with pytest.raises(UsageError, match="holds several datasets, train, test"):
        LoaderEvaluator(both)


def test_the_users_count_wins() -> None:
    """`samples=` counts what the adapter cannot."""
    evaluator = LoaderEvaluator(dataset().batch(16), samples=lambda batch: len(batch["y"]))
    assert len(list(evaluator)) == 3
    assert evaluator.recorded().steps.samples.tolist() == [16, 16, 8]


def test_the_epoch_is_set_through_the_wrapper() -> None:
    """`set_epoch` shuffles a stream as without the wrapper."""
    shuffled = stream().shuffle(seed=3, buffer_size=ROWS)
    evaluator = LoaderEvaluator(shuffled)
    first = [row["y"] for row in evaluator]
    evaluator.set_epoch(1)
    second = [row["y"] for row in evaluator]
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    shuffled.set_epoch(1)
    assert [row["y"] for row in shuffled] == second


def test_the_state_is_that_of_the_last_row_served() -> None:
    """A checkpoint in a logged epoch resumes at the next row."""
    evaluator = LoaderEvaluator(stream())
    break_off(evaluator, 10)
    resumed = stream()
    resumed.load_state_dict(evaluator.state_dict())
    assert [row["y"] for row in resumed] == list(range(10, ROWS))


def test_decoded_images_are_served() -> None:
    """Rows with images reach the training loop as the dataset decodes them."""
    served = [row["image"] for row in LoaderEvaluator(photographs())]
    assert served == [row["image"] for row in photographs()]


def test_columns_and_rows_are_reached_through_the_wrapper() -> None:
    """A wrapped dataset has its length, its attributes and methods."""
    evaluator = LoaderEvaluator(dataset())
    assert (len(evaluator), evaluator.num_rows) == (ROWS, ROWS)
    assert evaluator.column_names == ["x", "y", "text"]
    assert len(evaluator.select(range(5))) == 5


def test_a_dataloader_over_a_dataset_is_torchs() -> None:
    """A torch DataLoader that reads a Dataset is served by torch's adapter."""
    evaluator = LoaderEvaluator(DataLoader(dataset("torch"), batch_size=8))
    assert len(list(evaluator)) == 5
    info = evaluator.recorded().header.loader
    assert info.adapter.endswith(".PyTorchAdapter")
