"""Telling whether a framework built a DataLoader from one that is measured in place."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    Reference = Callable[[], Any]

TORCH = "torch.utils.data"
ACCELERATE = "accelerate.data_loader"
LIGHTNING = ("lightning.", "lightning_fabric.", "pytorch_lightning.")


class Original:
    """A DataLoader that is measured in place; this does not keep it alive."""

    def __init__(self, loader: Any) -> None:
        self.loader: Reference = weakref.ref(loader)
        self._dataset = _reference(_plain(loader.dataset))
        self._samplers = [_reference(one) for one in samplers_of(loader)]

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
            found = samplers_of(loader)
            return (
                any(_has(found, sampler()) for sampler in self._samplers)
                or self._is_split_for_ddp(loader, found)
                or _is_stream_of_accelerate(loader)
            )
        except Exception:  # noqa: BLE001 - of a stranger's loader, which must be served
            return False

    def _has_dataset_of(self, loader: Any) -> bool:
        dataset = self._dataset()
        return dataset is not None and _plain(loader.dataset) is dataset

    def _is_split_for_ddp(self, loader: Any, found: list[Any]) -> bool:
        """Whether Lightning or Fabric put a DistributedSampler into a copy of this loader."""
        original, torch_data = self.loader(), sys.modules[TORCH]
        split = next((one for one in found if isinstance(one, torch_data.DistributedSampler)), None)
        if split is None or original is None:
            return False
        own = samplers_of(original)
        if any(isinstance(one, torch_data.DistributedSampler) for one in own):
            return False
        # Lightning's fit() also shuffles what was in order, so the reverse tells nothing.
        keeps_shuffling = split.shuffle or not any(
            isinstance(one, torch_data.RandomSampler) for one in own
        )
        return bool(
            keeps_shuffling
            and split.dataset is loader.dataset
            and loader.collate_fn == original.collate_fn
            and loader.batch_size == original.batch_size
        )


def samplers_of(loader: Any) -> list[Any]:
    """The sampler by which `loader` draws its batches, and those that it draws from in turn."""
    first = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    found: list[Any] = [first]
    for sampler in found:
        inner = [getattr(sampler, name, None) for name in ("batch_sampler", "sampler")]
        if type(sampler).__module__.startswith(LIGHTNING):
            inner.append(getattr(getattr(sampler, "dataset", None), "_sampler", None))
        found += [one for one in inner if _may_be_a_sampler(one) and not _has(found, one)]
    return found


def shared_by(loader: Any) -> list[Any]:
    """What loaders that are built from `loader` have in common with it; the loader comes first."""
    dataset = _plain(loader.dataset)
    is_stream = isinstance(dataset, sys.modules[TORCH].IterableDataset)
    shared = [loader, dataset] if is_stream else [loader, *samplers_of(loader)]
    return [one for one in shared if _can_be_watched(one)]


def _is_stream_of_accelerate(loader: Any) -> bool:
    """Whether Accelerate iterates a loader that has no sampler of its own."""
    if not isinstance(loader.dataset, sys.modules[TORCH].IterableDataset):
        return False
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - who asks is known nowhere else
    while frame is not None and frame.f_globals.get("__name__") != ACCELERATE:
        frame = frame.f_back
    return frame is not None


def _plain(dataset: Any) -> Any:
    # Accelerate shards an iterable dataset by one of its own, around it.
    while type(dataset).__module__.startswith("accelerate."):
        dataset = dataset.dataset
    return dataset


def _has(some: list[Any], wanted: Any) -> bool:
    return any(one is wanted for one in some)


def _may_be_a_sampler(one: Any) -> bool:
    """Not a mere value, of which two loaders may have the same."""
    return hasattr(type(one), "__iter__") and not isinstance(one, (str, tuple, type))


def _can_be_watched(one: Any) -> bool:
    return type(one).__weakrefoffset__ != 0


def _reference(one: Any) -> Reference:
    return weakref.ref(one) if _can_be_watched(one) else lambda: one
