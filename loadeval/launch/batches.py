"""The batches of a Hugging Face dataset, which `dataset.iter(batch_size=8)` serves, as a loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class DatasetBatches:
    """One call of `dataset.iter()`; the next one is another epoch. `make` is that call."""

    def __init__(self, dataset: Any, make: Callable[[], Iterator[Any]]) -> None:
        self.column_names = dataset.column_names
        self.make = make
        if hasattr(dataset, "set_epoch"):  # a stream, which may read ahead
            self.set_epoch = dataset.set_epoch

    def __iter__(self) -> Iterator[Any]:
        return self.make()


# As the adapter for datasets, and whoever reads the log, know it.
DatasetBatches.__module__, DatasetBatches.__qualname__ = "datasets", "Dataset.iter"


def rows_of(batch: Any) -> int:
    """How many examples `batch` holds: a mapping of columns, or a table."""
    return len(next(iter(batch.values()))) if isinstance(batch, dict) else len(batch)
