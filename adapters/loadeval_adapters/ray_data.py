"""Ray Data: what `iter_batches`, `iter_torch_batches` and `iter_rows` of a dataset return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadeval import IterableAdapter, LoaderInfo, UsageError, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator


class RayDataAdapter(IterableAdapter):
    """Knows rows from batches, and the rows of Arrow's and pandas' tables.

    Ray tells nothing of what it returns. How many batches it has ready is not known either:
    beside `prefetch_batches` it loads blocks ahead, as many as its object store has room for.
    """

    watch = Watch(classes={"ray.data.iterator": ("_IterableFromIterator",)}, inside=("ray.data",))
    distributions = ("ray",)
    _serves_rows = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """A new execution of the dataset."""
        made_by = getattr(getattr(loader, "iterator_gen", None), "__qualname__", "")
        self._serves_rows = ".iter_rows." in made_by
        return super().epoch(loader)

    def samples(self, batch: Any) -> int | None:
        """1 for a row, the rows of a table, else the first dimension of the first array."""
        if self._serves_rows:
            return 1
        return int(batch.shape[0]) if _is_table(batch) else super().samples(batch)

    def nbytes(self, batch: Any) -> int | None:
        """Bytes of all arrays, or of an Arrow table; None for a pandas one."""
        return getattr(batch, "nbytes", None) if _is_table(batch) else super().nbytes(batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """The backend alone. Raises UsageError for a dataset, which Ray does not iterate."""
        if hasattr(loader, "iter_batches"):
            raise UsageError(
                f"Ray does not iterate a {type(loader).__name__} by itself; pass what its "
                "iter_torch_batches() or iter_batches() returns"
            )
        return super().describe(loader)


def _is_table(batch: Any) -> bool:
    return hasattr(batch, "columns") and hasattr(batch, "shape")
