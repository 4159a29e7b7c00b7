"""torchdata's StatefulDataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from loadeval import LoaderInfo
from loadeval_adapters.others import ResumableAdapter
from loadeval_adapters.torch import PyTorchAdapter


class StatefulDataLoaderAdapter(ResumableAdapter, PyTorchAdapter):
    """A DataLoader that may have begun its next epoch, for it was asked for its state."""

    watch = replace(PyTorchAdapter.watch, inside=("torch.utils.data", "torchdata"))
    distributions: ClassVar[tuple[str, ...]] = ("torch", "torchdata")
    _began_from: dict[str, Any] | None = None

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The rest of an epoch after `load_state_dict`, else a whole one."""
        self._began_from = loader.next_iter_state
        return super().epoch(loader)

    def describe(self, loader: Any) -> LoaderInfo:
        """As a DataLoader's; its workers load for the epoch to come once the state was asked."""
        info = super().describe(loader)
        has_begun = getattr(loader, "_initial_iter_for_state_dict", False)
        return replace(info, ready_batches=info.prefetch_depth) if has_begun else info

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop all workers; a state that the epoch began from is to be loaded again."""
        super().release(loader, epoch)
        loader.load_state_dict(loader.next_iter_state or self._began_from or {})
