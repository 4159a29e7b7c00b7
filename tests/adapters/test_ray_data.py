"""Ray Data, on a Ray of this process's own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray
import ray.data

from loadeval import IterableAdapter
from loadeval.testing import AdapterContract
from tests.adapters.loaders import adapter_of, contract, counted, describe

# Ray's own: settings of its data context that it has given up, but sets itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`use_push_based_shuffle` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`use_polars` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`use_arrow_tensor_v2` is deprecated:DeprecationWarning"),
    pytest.mark.check,
]
ROWS = 40


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100_000_000,
    )
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True  # else batches come in any order
    context.enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def dataset(_ray: None) -> Any:
    """Rows of six numbers each and their own number, made by a task of Ray's."""
    return ray.data.range(ROWS, override_num_blocks=2).map(
        lambda row: {"x": np.full((3, 2), row["id"], np.float32), "y": row["id"]}
    )


TestLoaders = contract(
    adapter_of("ray.data"),
    given="dataset",
    tensors=lambda dataset: dataset.iter_torch_batches(batch_size=8),
    arrays_in_shared_memory=lambda dataset: dataset.iter_batches(batch_size=8, prefetch_batches=2),
    rows=lambda dataset: dataset.iter_rows(),
)


class Tables(AdapterContract):
    def content(self, batch: Any) -> Any:
        return {"x": np.stack(list(batch["x"])), "y": batch["y"].to_numpy()}


TestTables = contract(
    adapter_of("ray.data"),
    Tables,
    "dataset",
    pandas=lambda dataset: dataset.iter_batches(batch_size=8, batch_format="pandas"),
)


def test_ray_tells_nothing_of_what_it_returns(dataset: Any) -> None:
    info = describe(dataset.iter_torch_batches(batch_size=8))
    assert info.backend == "ray.data.iterator._IterableFromIterator"
    assert info.adapter.endswith(".RayDataAdapter")
    assert (info.length, info.batch_size) == (None, None)
    assert describe(dataset.iter_rows()).batch_size == 1
    assert (info.workers, info.prefetch_depth, info.ready_batches) == (None, None, None)


def test_samples_are_the_rows_of_batches_and_tables(dataset: Any) -> None:
    assert counted(dataset.iter_torch_batches(batch_size=16)) == [16, 16, 8]
    for batch_format in ("numpy", "pandas", "pyarrow"):
        loader = dataset.iter_batches(batch_size=16, batch_format=batch_format)
        assert counted(loader) == [16, 16, 8]
    assert counted(dataset.iter_rows()) == [1] * ROWS


def test_an_arrow_table_tells_its_bytes(dataset: Any) -> None:
    """The bytes of arrays and of Arrow are counted; what a pandas table takes is unknown."""
    adapter: IterableAdapter = adapter_of("ray.data")()

    def nbytes(batch_format: str) -> int | None:
        return adapter.nbytes(
            next(iter(dataset.iter_batches(batch_size=8, batch_format=batch_format)))
        )

    assert nbytes("numpy") == 8 * (6 * 4 + 8)
    assert (nbytes("pyarrow") or 0) >= 8 * (6 * 4 + 8)
    assert nbytes("pandas") is None


def test_of_an_arrow_table_its_rows_alone_are_kept() -> None:
    """A batch is a slice of a block, which may have 128 MB."""
    batch = pa.table({"x": range(100_000)}).slice(10, 8)
    kept = adapter_of("ray.data")().keep(batch)
    assert kept.equals(batch)
    assert kept.get_total_buffer_size() == batch.nbytes == 64
