"""LitData: StreamingDataLoader, and StreamingDataset and its like iterated by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loadeval import IterableAdapter, LoaderInfo
from loadeval_adapters.torch import PyTorchAdapter

if TYPE_CHECKING:
    from collections.abc import Iterator


class LitDataAdapter(PyTorchAdapter):
    """Distinguishes a StreamingDataLoader, which is a torch DataLoader, from a dataset alone.

    A dataset has attributes of the DataLoader that is to read it, such as `num_workers`. It
    serves samples, not batches.
    """

    watch = replace(PyTorchAdapter.watch, inside=("torch.utils.data", "litdata"))
    distributions = ("torch", "litdata")
    _serves_samples = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The loader's own iterator."""
        self._serves_samples = not _is_dataloader(loader)
        return super().epoch(loader)

    def samples(self, batch: Any) -> int | None:
        """1 for a dataset by itself, else the first dimension of the first array."""
        return 1 if self._serves_samples else super().samples(batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """What a DataLoader tells, or the length of a dataset."""
        if _is_dataloader(loader):
            return super().describe(loader)
        return replace(IterableAdapter.describe(self, loader), batch_size=1)


def _is_dataloader(loader: Any) -> bool:
    return hasattr(loader, "batch_sampler")
