"""Measuring a DataLoader where it is: for frameworks that rebuild it, or insist on its class."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from loadeval.errors import UsageError
from loadeval.evaluator import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TORCH = "torch.utils.data"
WRAPPERS = {
    "accelerate.data_loader": "base_dataloader",
    "lightning.fabric.wrappers": "_dataloader",
    "lightning_fabric.wrappers": "_dataloader",
}
"""Where Accelerate's `prepare`, and Fabric's `setup_dataloaders`, put the DataLoader itself."""


def evaluate_in_place(loader: Any, mode: str = "log", **options: Any) -> LoaderEvaluator:
    """Measure a torch DataLoader without putting anything in its place.

    The loader itself is given to the framework as before, and stays of its class. Until the
    returned evaluator is closed, every epoch that it begins is served and timed, and so is every
    epoch of a loader that a framework builds from it: one with the same dataset, as Lightning
    makes for distributed training, and Accelerate in `prepare`. A loader that Accelerate or
    Fabric has prepared already is measured below what they do with its batches.

    `mode` and `options` are those of LoaderEvaluator. Returns the evaluator, for `headroom()`,
    `recorded()` and `close()`.

    Raises UsageError when `loader` is not a DataLoader of torch, or is measured already.
    """
    loader = _bare(loader)
    if not _is_dataloader(loader):
        raise UsageError(
            f"cannot measure {type(loader).__name__!r} in place: expected a torch DataLoader. "
            "Wrap other loaders: LoaderEvaluator(loader)"
        )
    if _follower_of(loader) is not None:
        raise UsageError(
            "this DataLoader, or one with the same dataset, is measured in place already: close() "
            "that evaluator first"
        )
    return _InPlaceEvaluator(loader, mode, **options)


class _InPlaceEvaluator(LoaderEvaluator):
    """A LoaderEvaluator that its loader, and those built from it, ask for their epochs."""

    def __init__(self, loader: Any, mode: str, **options: Any) -> None:
        super().__init__(loader, mode, **options)
        _followers.append(_Follower(loader, self))
        _hook(loader)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def close(self) -> None:
        """As LoaderEvaluator.close; the loader serves its epochs by itself again."""
        super().close()
        _followers[:] = [one for one in _followers if one.evaluator is not self]
        _unhook()


class _Follower:
    """Knows which loaders belong to one evaluator, and measures their epochs."""

    def __init__(self, loader: Any, evaluator: LoaderEvaluator) -> None:
        self.loader = loader
        self.evaluator = evaluator
        self._dataset = _plain(loader.dataset)
        self._is_opening = False

    def follows(self, loader: Any) -> bool:
        """Whether an epoch that `loader` begins now is to be measured."""
        return _plain(loader.dataset) is self._dataset and not self._is_opening

    def epoch(self, loader: Any) -> Iterator[Any]:
        """An epoch of `loader`, measured."""
        self._is_opening = True
        try:
            return self.evaluator._measurement.epoch(loader, self.evaluator)  # noqa: SLF001 - its own
        finally:
            self._is_opening = False


_followers: list[_Follower] = []
_originals: dict[type, Callable[[Any], Iterator[Any]]] = {}
"""The `__iter__` of each class in which ours stands now."""


def _follower_of(loader: Any) -> _Follower | None:
    return next((one for one in _followers if one.follows(loader)), None)


def _hook(loader: Any) -> None:
    for kind in _iterable_classes(loader):
        if kind not in _originals:
            _originals[kind] = vars(kind)["__iter__"]
            kind.__iter__ = _asking_first(kind, _originals[kind])  # type: ignore[attr-defined]  # has it


def _unhook() -> None:
    needed = {kind for one in _followers for kind in _iterable_classes(one.loader)}
    for kind in [kind for kind in _originals if kind not in needed]:
        kind.__iter__ = _originals.pop(kind)  # type: ignore[attr-defined]  # it has one


def _iterable_classes(loader: Any) -> list[type]:
    return [kind for kind in type(loader).__mro__ if "__iter__" in vars(kind)]


def _asking_first(
    kind: type, original: Callable[[Any], Iterator[Any]]
) -> Callable[[Any], Iterator[Any]]:
    @functools.wraps(original)
    def __iter__(self: Any) -> Iterator[Any]:  # noqa: N807 - it stands in for that
        # A subclass that calls this one by super() is measured by what it serves itself.
        is_inner = _iterable_classes(self)[0] is not kind
        follower = None if is_inner else _follower_of(self)
        return original(self) if follower is None else follower.epoch(self)

    return __iter__


def _is_dataloader(loader: Any) -> bool:
    torch_data = sys.modules.get(TORCH)
    return torch_data is not None and isinstance(loader, torch_data.DataLoader)


def _bare(loader: Any) -> Any:
    for kind in type(loader).__mro__:
        inside = WRAPPERS.get(kind.__module__)
        if inside is not None:
            return getattr(loader, inside, loader)
    return loader


def _plain(dataset: Any) -> Any:
    # Accelerate shards an iterable dataset by one of its own, around it.
    while type(dataset).__module__.startswith("accelerate."):
        dataset = dataset.dataset
    return dataset
