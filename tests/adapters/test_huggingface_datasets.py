"""Hugging Face datasets, iterated without a DataLoader."""

from __future__ import annotations

from typing import Any

import datasets  # type: ignore[import-untyped]  # it ships no marker of its types
import pytest
from torch.utils.data import DataLoader

from loadeval import IterableAdapter
from tests.adapters.loaders import adapter_of, contract, counted, describe
from tests.images import FILES

ROWS = 40
FORMS = (None, "torch", "numpy")


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


TestLoaders = contract(
    adapter_of("datasets"),
    rows=dataset,
    batched_tensors=lambda: dataset("torch").batch(8),
    stream=stream,
    batched_stream=lambda: stream("numpy").batch(8),
)
TestGenerator = contract(IterableAdapter, iter=lambda: dataset("torch").iter(batch_size=8))


def test_the_shards_of_a_stream_in_a_loader() -> None:
    """Its own, and the call that makes more; a Dataset has none that workers divide."""
    info = describe(DataLoader(stream("torch")))
    assert info.shards == 2
    assert "to_iterable_dataset(num_shards=...)" in (info.setting_names or {})["num_shards"]
    assert describe(DataLoader(dataset("torch"))).shards is None


def test_a_dataset_is_read_in_this_process() -> None:
    info = describe(dataset())
    assert info.backend == "datasets.arrow_dataset.Dataset"
    assert (info.length, info.workers, info.prefetch_depth) == (ROWS, 0, 0)
    info = describe(stream().batch(8))
    assert info.backend == "datasets.iterable_dataset.IterableDataset"
    assert (info.length, info.workers, info.prefetch_depth) == (None, None, None)


def test_a_batch_size_is_told_where_it_is_certain() -> None:
    """A column that is no list tells it; else it is unknown."""

    def batch_size(data: Any) -> int | None:
        return describe(data).batch_size

    assert batch_size(dataset()) == batch_size(stream()) == batch_size(photographs()) == 1
    assert batch_size(stream().batch(8)) is batch_size(dataset().batch(8)) is None
    assert batch_size(tokens()) is batch_size(tokens().to_iterable_dataset()) is None
    assert batch_size(stream().map(dict)) is None


@pytest.mark.parametrize(
    ("loader", "samples"),
    [
        *((make(form), [1] * ROWS) for make in (dataset, stream) for form in FORMS),
        (tokens().with_format("torch"), [-1] * ROWS),
        (dataset("torch").batch(8), [-1] * 5),
        *((stream(form).batch(16), [-1] * 3) for form in FORMS),
        (dataset("torch").iter(batch_size=16), [16, 16, 8]),
        (dataset().iter(batch_size=16), [-1, -1, -1]),
    ],
)
def test_samples_are_counted_where_that_is_certain(loader: Any, samples: list[int]) -> None:
    """A row without lists is one sample; a row of lists may be an example or a batch."""
    assert counted(loader) == samples
