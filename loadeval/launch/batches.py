"""What programs iterate that is no loader by itself, as one.

The batches of a Hugging Face dataset, which `dataset.iter(batch_size=8)` serves; and an iterator of
torch's that another class than DataLoader makes for itself, as fastai's DataLoader does.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from loadeval.runtime.adapter import length_of

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


class IteratedByTorch:
    """One epoch of a loader that has torch's iterators, but is no DataLoader of torch's.

    `settings` is what it gives to the iterator that `make` makes: it has a DataLoader's attributes.
    `owner` is the loader itself, whose class and length are known.
    """

    batch_sampler = persistent_workers = None

    def __init__(self, owner: Any, settings: Any, make: Callable[[], Iterator[Any]]) -> None:
        for name in ("num_workers", "prefetch_factor", "pin_memory", "worker_init_fn", "in_order"):
            setattr(self, name, getattr(settings, name, None))
        self.multiprocessing_context = getattr(settings, "multiprocessing_context", None)
        self.batch_size = getattr(owner, "batch_size", None) or getattr(owner, "bs", None)
        self.dataset = getattr(owner, "dataset", None)
        self.length = length_of(owner)
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        return self.make()

    def __len__(self) -> int:
        return self.length or 0


@cache
def iterated_by_torch(kind: type) -> type[IteratedByTorch]:
    """The class for loaders of this `kind`, named as that is: it tells one from another."""
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (IteratedByTorch,), names)


# The adapter for DataLoaders knows it.
IteratedByTorch.__module__ = "torch.utils.data"


def rows_of(batch: Any) -> int:
    """How many examples `batch` holds: a mapping of columns, or a table."""
    return len(next(iter(batch.values()))) if isinstance(batch, dict) else len(batch)
