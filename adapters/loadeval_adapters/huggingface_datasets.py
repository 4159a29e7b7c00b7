"""Hugging Face datasets, iterated by themselves, without a DataLoader."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loadeval import IterableAdapter, LoaderInfo, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class DatasetsAdapter(IterableAdapter):
    """Serves a Dataset or an IterableDataset row by row.

    A row is an example, or a batch where the dataset was made by `batch()`, which makes a list
    of every column. So a row with a column that is none is an example; of other rows only an
    IterableDataset tells, and their samples are unknown where it does not.

    `dataset.iter(batch_size=8)` is a generator, which has one epoch, and no adapter of its own.
    Wrap `lambda: dataset.iter(batch_size=8)` instead, of which each epoch calls a new one.
    """

    _batch_size: int | None = None

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The dataset's rows."""
        self._batch_size = _batch_size(loader)
        return super().epoch(loader)

    def samples(self, batch: Any) -> int | None:
        """1 of an example, the length of a column of a batch; None where that is not known."""
        if self._batch_size is None or self._batch_size == 1:
            return self._batch_size
        return len(next(iter(batch.values()))) if isinstance(batch, dict) else None

    def describe(self, loader: Any) -> LoaderInfo:
        """The length of a Dataset, which reads in this process; a batch size where it is known.

        Raises UsageError for a DatasetDict, which holds several datasets.
        """
        if isinstance(loader, dict):
            raise UsageError(
                f"a {type(loader).__name__} holds several datasets, {', '.join(map(str, loader))}; "
                "pass the one that the training loop iterates"
            )
        info = replace(super().describe(loader), batch_size=_batch_size(loader))
        if hasattr(loader, "set_epoch"):  # an IterableDataset, which may read ahead in threads
            return info
        return replace(info, workers=0, prefetch_depth=0, ready_batches=0)


def _batch_size(dataset: Any) -> int | None:
    """How many examples a row holds, the last one excepted; None: not known."""
    columns = (getattr(dataset, "features", None) or {}).values()
    if any(hasattr(column, "dtype") and not hasattr(column, "feature") for column in columns):
        return 1  # a list has the feature that it is a list of
    rows = getattr(dataset, "_ex_iterable", None)
    made_by = getattr(getattr(rows, "function", None), "__name__", None)
    is_batch = made_by in {"_batch_fn", "_batch_arrow_table"}  # those of batch()
    return getattr(rows, "batch_size", None) if is_batch else None
