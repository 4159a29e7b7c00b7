"""Measures one DataLoader where it is, and those that a framework builds from it."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from loadeval.evaluator import Measurement
from loadeval.launch.session import Make, dataset_of, measured_epoch, samplers_of

TORCH = "torch.utils.data"
ACCELERATE = "accelerate.data_loader"
WRAPPERS = {
    ACCELERATE: "base_dataloader",
    "lightning.fabric.wrappers": "_dataloader",
    "lightning_fabric.wrappers": "_dataloader",
}
"""Which attribute of Accelerate's and Fabric's wrappers holds the DataLoader itself."""
_lock = threading.RLock()
"""Held while one ends, which may be on any thread that frees a loader."""


class OneLoader:
    """Measures the epochs of all loaders that belong to one measurement.

    Ends, and calls `ended`, once everything has been garbage-collected from which such a loader
    could be built. `loader` returns the loader while it exists.
    """

    def __init__(
        self, loader: Any, measurement: Measurement, ended: Callable[[OneLoader], None]
    ) -> None:
        self.loader: Callable[[], Any] = weakref.ref(loader)
        self.measurement = measurement
        dataset = dataset_of(loader)
        self._dataset, self._samplers = _reference(dataset), [*map(_reference, samplers_of(loader))]
        is_stream = isinstance(dataset, sys.modules[TORCH].IterableDataset)
        self._ended, self._has_ended = ended, False
        self._finalizers: list[Any] = []
        for part in (loader, dataset) if is_stream else (loader, *samplers_of(loader)):
            with suppress(TypeError):  # it takes no weak reference
                self._finalizers.append(weakref.finalize(part, self._part_is_gone))

    def _part_is_gone(self) -> None:
        if not any(finalizer.alive for finalizer in self._finalizers):
            self.end()

    def end(self) -> None:
        """Finish the log."""
        with _lock:
            if self._has_ended:
                return
            self._has_ended = True
            self._ended(self)
        for finalizer in self._finalizers:
            finalizer.detach()
        self.measurement.close()

    def epoch(self, loader: Any, make: Make) -> Iterator[Any]:
        """A measured epoch of `loader`, whose own iterator `make` makes."""
        # The consumer may hold nothing but the iterator.
        return measured_epoch(self.measurement, loader, make, (self.loader(), loader))

    def is_of(self, loader: Any) -> bool:
        """Whether `loader` is this one, or has its dataset and draws from its batch sampler."""
        return loader is self.loader() or (self._has_dataset_of(loader) and self._draws(loader, 1))

    def serves(self, loader: Any) -> bool:
        """Whether an epoch that `loader` begins now is an epoch of this one.

        A validation loader over the same dataset has another sampler. Where a framework puts
        another sampler in too, an epoch without gradients is not training.
        """
        with suppress(Exception):  # another loader's error must not stop its training
            if self.is_of(loader):
                return True
            if self._has_dataset_of(loader) and sys.modules["torch"].is_grad_enabled():
                return self._draws(loader, len(self._samplers)) or self._is_rebuilt(loader)
        return False

    def _has_dataset_of(self, loader: Any) -> bool:
        dataset = self._dataset()
        return dataset is not None and dataset_of(loader) is dataset

    def _draws(self, loader: Any, outermost: int) -> bool:
        """Whether `loader` draws from one of the outermost samplers of this one."""
        own = [sampler() for sampler in self._samplers[:outermost]]
        return any(used is sampler for used in samplers_of(loader) for sampler in own)

    def _is_rebuilt(self, loader: Any) -> bool:
        """Whether a framework made `loader`: it splits the samples for ranks, or reads a stream."""
        torch_data = sys.modules[TORCH]
        if isinstance(loader.dataset, torch_data.IterableDataset):
            frame: FrameType | None = sys._getframe()  # noqa: SLF001 - nothing else shows the caller
            while frame is not None and frame.f_globals.get("__name__") != ACCELERATE:
                frame = frame.f_back
            return frame is not None
        splits = [isinstance(used, torch_data.DistributedSampler) for used in samplers_of(loader)]
        own = [sampler() for sampler in self._samplers]
        return any(splits) and not any(isinstance(it, torch_data.DistributedSampler) for it in own)


def unwrapped(loader: Any) -> Any:
    """The DataLoader in what Accelerate or Fabric made of it."""
    for kind in type(loader).__mro__:
        inside = WRAPPERS.get(kind.__module__)
        if inside is not None:
            return getattr(loader, inside, loader)
    return loader


def _reference(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value
