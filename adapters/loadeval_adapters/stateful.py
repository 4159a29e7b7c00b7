"""torchdata's StatefulDataLoader: torch's DataLoader with a state of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from loadeval import LoaderInfo
from loadeval_adapters.others import ResumableAdapter
from loadeval_adapters.torch import PyTorchAdapter


class StatefulDataLoaderAdapter(ResumableAdapter, PyTorchAdapter):
    """A DataLoader whose `state_dict()` tells where in its epoch it is.

    In `log` mode nothing is read ahead of the training loop: `evaluator.state_dict()` is exact
    in the midst of an epoch, and so is `evaluator.load_state_dict(state)`. In `alternate` mode
    batches are read ahead, of which a LoadevalWarning tells when the first epoch begins. In
    `replay` mode the loader stays where it was before batches were kept.
    """

    watch = replace(PyTorchAdapter.watch, inside=("torch.utils.data", "torchdata"))
    distributions = ("torch", "torchdata")
    _began_from: dict[str, Any] | None = None

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The rest of an epoch after `load_state_dict`, else a whole one."""
        self._began_from = loader.next_iter_state
        return super().epoch(loader)

    def describe(self, loader: Any) -> LoaderInfo:
        """What a DataLoader has; the queue is full if a first `state_dict()` started workers."""
        info = super().describe(loader)
        is_started = getattr(loader, "_initial_iter_for_state_dict", False)
        return replace(info, ready_batches=info.prefetch_depth if is_started else 0)

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop all workers; a state that `epoch` began from is to be loaded again."""
        super().release(loader, epoch)
        loader.load_state_dict(loader.next_iter_state or self._began_from or {})
