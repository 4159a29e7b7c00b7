"""Hugging Face datasets, iterated by themselves, without a DataLoader."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from loadeval import IterableAdapter, LoaderInfo, UsageError, Watch

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


# The name by which the adapter for datasets, and readers of the log, know it.
DatasetBatches.__module__, DatasetBatches.__qualname__ = "datasets", "Dataset.iter"


class DatasetsAdapter(IterableAdapter):
    """Serves a Dataset or an IterableDataset row by row.

    A row is an example, or a batch where the dataset was made by `batch()`, which makes a list
    of every column. So a row with a column that is none is an example; of other rows only an
    IterableDataset tells, and their samples are unknown where it does not.

    `dataset.iter(batch_size=8)` is a generator, which has one epoch, and no adapter of its own.
    Wrap `lambda: dataset.iter(batch_size=8)` instead, of which each epoch calls a new one.
    """

    watch = Watch(
        classes={
            "datasets.arrow_dataset": ("Dataset",),
            "datasets.iterable_dataset": ("IterableDataset",),
        },
        methods={"iter": DatasetBatches},
        inside=("datasets",),
        is_dataset=True,
    )
    setting_names: ClassVar[dict[str, str]] = {
        "num_shards": "dataset.to_iterable_dataset(num_shards=...), reshard() of a stream, and "
        "shuffle(max_buffer_input_shards=1) in datasets 5.0"
    }
    distributions = ("datasets",)
    _batch_size: int | None = None
    _serves_batches = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The dataset's rows."""
        self._batch_size = _batch_size(loader)
        return super().epoch(loader)

    def samples(self, batch: Any) -> int | None:
        """1 for an example, the length of a column for a batch; None if it is unknown."""
        if self._serves_batches:
            return len(next(iter(batch.values()))) if isinstance(batch, dict) else len(batch)
        if self._batch_size is None or self._batch_size == 1:
            return self._batch_size
        return len(next(iter(batch.values()))) if isinstance(batch, dict) else None

    def describe(self, loader: Any) -> LoaderInfo:
        """The length of a Dataset, which reads in this process; the batch size if it is known.

        Raises UsageError for a DatasetDict, which holds several datasets.
        """
        if isinstance(loader, dict):
            raise UsageError(
                f"a {type(loader).__name__} holds several datasets, {', '.join(map(str, loader))}; "
                "pass the one that the training loop iterates"
            )
        self._serves_batches = isinstance(loader, DatasetBatches)
        info = replace(super().describe(loader), batch_size=_batch_size(loader))
        if hasattr(loader, "set_epoch"):  # an IterableDataset, which may read ahead in threads
            return replace(info, shards=_shards(loader))
        return replace(info, workers=0, prefetch_depth=0, ready_batches=0)


def _shards(stream: Any) -> int | None:
    """How many shards a stream has; None where it cannot tell, as for lists of several lengths."""
    with suppress(RuntimeError):
        count: int | None = getattr(stream, "num_shards", None) or getattr(stream, "n_shards", None)
        return count
    return None


def _batch_size(dataset: Any) -> int | None:
    """How many examples each row but the last holds; None if it is unknown."""
    columns = (getattr(dataset, "features", None) or {}).values()
    if any(hasattr(column, "dtype") and not hasattr(column, "feature") for column in columns):
        return 1  # a list would have a `feature`, that of its items
    rows = getattr(dataset, "_ex_iterable", None)
    made_by = getattr(getattr(rows, "function", None), "__name__", None)
    is_batch = made_by in {"_batch_fn", "_batch_arrow_table"}  # those of batch()
    return getattr(rows, "batch_size", None) if is_batch else None
