"""Measures one DataLoader where it is, and those that a framework builds from it."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from types import FrameType
from typing import Any

from loadeval.adapter import Begun, adapter_for
from loadeval.evaluator import Measurement

Iter = Callable[[Any], Iterator[Any]]
Reference = Callable[[], Any]

TORCH = "torch.utils.data"
ACCELERATE = "accelerate.data_loader"
LIGHTNING = ("lightning.", "lightning_fabric.", "pytorch_lightning.")
WRAPPERS = {
    "accelerate.data_loader": "base_dataloader",
    "lightning.fabric.wrappers": "_dataloader",
    "lightning_fabric.wrappers": "_dataloader",
}
"""Which attribute of Accelerate's and Fabric's wrappers holds the DataLoader itself."""
_lock = threading.RLock()
"""Held while one ends, which may be on any thread that frees a loader."""


class OneLoader:
    """Measures the epochs of all loaders that belong to one measurement.

    Ends, and calls `ended`, when everything from which such a loader could be built has been
    garbage-collected.
    """

    def __init__(
        self, loader: Any, measurement: Measurement, ended: Callable[[OneLoader], None]
    ) -> None:
        self.original = Original(loader)
        self.measurement = measurement
        self._ended = ended
        self._has_ended = False
        shared = shared_by(loader)
        self._left = len(shared)
        self._finalizers = [weakref.finalize(part, self._on_part_gone) for part in shared]

    def epoch(self, loader: Any, original: Iter) -> Iterator[Any]:
        """A measured epoch of `loader`; `original` is the `__iter__` that ours replaced."""
        # The consumer may hold nothing but the iterator.
        owner = (self.original.loader(), loader)
        adapter = adapter_for(loader)
        adapter.epoch = partial(_begun_by, original)  # type: ignore[method-assign]  # iter() would come back here
        return self.measurement.epoch(loader, owner, adapter)

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

    def _on_part_gone(self) -> None:
        with _lock:
            self._left -= 1
        if not self._left:
            self.end()


def _begun_by(original: Iter, loader: Any) -> Iterator[Any]:
    epoch = original(loader)
    return chain(Begun(epoch)) if epoch is loader else epoch


def unwrapped(loader: Any) -> Any:
    """The DataLoader in what Accelerate or Fabric made of it."""
    for kind in type(loader).__mro__:
        inside = WRAPPERS.get(kind.__module__)
        if inside is not None:
            return getattr(loader, inside, loader)
    return loader


class Original:
    """A weak reference to a DataLoader that is measured in place, and what identifies it."""

    def __init__(self, loader: Any) -> None:
        self.loader: Reference = weakref.ref(loader)
        self._dataset = _reference(plain(loader.dataset))
        self._samplers = [_reference(sampler) for sampler in samplers_of(loader)]

    def has_sampler_of(self, loader: Any) -> bool:
        """Whether `loader` is this one, or has its dataset and draws from its batch sampler."""
        if loader is self.loader():
            return True
        return self._has_dataset_of(loader) and _has(samplers_of(loader), self._samplers[0]())

    def serves(self, loader: Any) -> bool:
        """Whether an epoch that `loader` begins now is an epoch of this one.

        A validation loader over the same dataset has another sampler. Where a framework puts
        another sampler in too, an epoch without gradients is not training.
        """
        try:
            if self.has_sampler_of(loader):
                return True
            if not self._has_dataset_of(loader) or not sys.modules["torch"].is_grad_enabled():
                return False
            samplers = samplers_of(loader)
            return (
                any(_has(samplers, own()) for own in self._samplers)
                or self._is_split_for_ddp(loader, samplers)
                or _is_stream_of_accelerate(loader)
            )
        except Exception:  # noqa: BLE001 - another loader's error must not stop its training
            return False

    def _has_dataset_of(self, loader: Any) -> bool:
        dataset = self._dataset()
        return dataset is not None and plain(loader.dataset) is dataset

    def _is_split_for_ddp(self, loader: Any, samplers: list[Any]) -> bool:
        """Whether Lightning or Fabric put a DistributedSampler into a copy of this loader."""
        original, torch_data = self.loader(), sys.modules[TORCH]
        split = next(
            (sampler for sampler in samplers if isinstance(sampler, torch_data.DistributedSampler)),
            None,
        )
        if split is None or original is None:
            return False
        own = samplers_of(original)
        if any(isinstance(sampler, torch_data.DistributedSampler) for sampler in own):
            return False
        # Lightning's fit() also shuffles what was in order, so the reverse tells nothing.
        keeps_shuffling = split.shuffle or not any(
            isinstance(sampler, torch_data.RandomSampler) for sampler in own
        )
        return bool(
            keeps_shuffling
            and split.dataset is loader.dataset
            and loader.collate_fn == original.collate_fn
            and loader.batch_size == original.batch_size
        )


def samplers_of(loader: Any) -> list[Any]:
    """The sampler that `loader` draws its batches from, and the samplers inside that one."""
    first = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    samplers: list[Any] = [first]
    for sampler in samplers:
        inner = [getattr(sampler, name, None) for name in ("batch_sampler", "sampler")]
        if type(sampler).__module__.startswith(LIGHTNING):
            inner.append(getattr(getattr(sampler, "dataset", None), "_sampler", None))
        samplers += [
            candidate
            for candidate in inner
            # Two loaders could share a plain value by chance.
            if hasattr(type(candidate), "__iter__")
            and not isinstance(candidate, (str, tuple, type))
            and not _has(samplers, candidate)
        ]
    return samplers


def shared_by(loader: Any) -> list[Any]:
    """The loader, and the objects that loaders built from it share with it."""
    dataset = plain(loader.dataset)
    is_stream = isinstance(dataset, sys.modules[TORCH].IterableDataset)
    shared = [loader, dataset] if is_stream else [loader, *samplers_of(loader)]
    return [candidate for candidate in shared if _can_be_watched(candidate)]


def _is_stream_of_accelerate(loader: Any) -> bool:
    """Whether Accelerate is iterating a loader over an iterable dataset."""
    if not isinstance(loader.dataset, sys.modules[TORCH].IterableDataset):
        return False
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - nothing else shows the caller
    while frame is not None and frame.f_globals.get("__name__") != ACCELERATE:
        frame = frame.f_back
    return frame is not None


def plain(dataset: Any) -> Any:
    """`dataset`, without what Accelerate wraps it in to shard it."""
    while type(dataset).__module__.startswith("accelerate."):
        dataset = dataset.dataset
    return dataset


def _has(items: list[Any], wanted: Any) -> bool:
    return any(item is wanted for item in items)


def _can_be_watched(value: Any) -> bool:
    return type(value).__weakrefoffset__ != 0


def _reference(value: Any) -> Reference:
    return weakref.ref(value) if _can_be_watched(value) else lambda: value
