"""Measuring a DataLoader where it is: for frameworks that rebuild it, or insist on its class."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.errors import UsageError
from loadeval.evaluator import LoaderEvaluator
from loadeval.runtime.adapter import Begun
from loadeval.runtime.measurement import free_name
from loadeval.runtime.registry import adapter_for

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from types import FrameType

    from loadeval.runtime.settings import Settings

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
"""Where Accelerate's `prepare`, and Fabric's `setup_dataloaders`, put the DataLoader itself."""


def evaluate_in_place(loader: Any, mode: str = "log", **options: Any) -> LoaderEvaluator:
    """Measure a torch DataLoader without putting anything in its place.

    Give the framework the loader itself, as before. Every epoch of it is measured until you
    close the returned evaluator, and so is every epoch of a loader that a framework builds from
    it: Lightning for distributed training, Accelerate in `prepare` or to resume in the midst of
    an epoch. Another loader over the same dataset, for validation say, is not measured. A
    loader that Accelerate or Fabric has prepared already is measured below what they do with
    its batches.

    You need not keep the evaluator: without it, measuring ends when the loader is gone.

    `mode` and `options` are those of LoaderEvaluator. If this process measures in place again
    with the same `log_file`, the log goes beside it: run-1.jsonl. Returns the evaluator, for
    `headroom()`, `recorded()` and `close()`.

    Raises UsageError when `loader` is not a DataLoader of torch, or is measured already.
    """
    loader = _bare(loader)
    if not _is_dataloader(loader):
        raise UsageError(
            f"cannot measure {type(loader).__name__!r} in place: expected a torch DataLoader. "
            "Wrap other loaders: LoaderEvaluator(loader)"
        )
    for earlier in [one for one in _followers if one.original.has_sampler_of(loader)]:
        _replace(earlier)
    log_file = _free_log_file(**options)
    evaluator = _InPlaceEvaluator(loader, mode, **{**options, "log_file": log_file})
    if log_file is not None:
        _log_files.add(Path(log_file).absolute())
    return evaluator


class _InPlaceEvaluator(LoaderEvaluator):
    """A LoaderEvaluator that its loader, and those built from it, ask for their epochs."""

    def __init__(self, loader: Any, mode: str, **options: Any) -> None:
        super().__init__(loader, mode, **options)
        self._follow()

    def _measure_anew(self, settings: Settings) -> None:
        super()._measure_anew(settings)
        self._follow()

    def _follow(self) -> None:
        self._closer.detach()  # the loader may be measured on when this is gone
        _Follower(self._loader, self)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def close(self) -> None:
        """As LoaderEvaluator.close; the loader serves its epochs by itself again."""
        super().close()  # for a copy, which nothing follows
        for follower in [one for one in _followers if one.measurement is self._measurement]:
            follower.end()


class _Follower:
    """Knows which loaders belong to one measurement, and measures their epochs.

    Ends it when all is gone that such a loader could be built from.
    """

    def __init__(self, loader: Any, evaluator: LoaderEvaluator) -> None:
        self.original = Original(loader)
        self.evaluator = weakref.ref(evaluator)
        self.measurement = evaluator._measurement  # noqa: SLF001 - its own
        self.classes = _iterable_classes(loader)
        shared = shared_by(loader)
        self._left = len(shared)
        self._finalizers = [weakref.finalize(one, self._one_is_gone) for one in shared]
        with _lock:
            _followers.append(self)
            for kind in self.classes:
                _patch(kind)

    def epoch(self, loader: Any, original: Iter) -> Iterator[Any]:
        """An epoch of `loader`, measured, that `original` begins: the `__iter__` below ours."""
        # Whoever iterates may hold nothing but the iterator.
        owner = (self.evaluator(), self.original.loader(), loader)
        adapter = adapter_for(loader)
        adapter.epoch = functools.partial(_begun_by, original)  # type: ignore[method-assign]  # iter() would come back here
        return self.measurement.epoch(loader, owner, adapter)

    def end(self) -> None:
        """Complete the log, and leave the classes as they were."""
        with _lock:
            if self not in _followers:
                return
            _followers.remove(self)
            for kind in self.classes:
                _unpatch(kind)
        for finalizer in self._finalizers:
            finalizer.detach()
        self.measurement.close()

    def _one_is_gone(self) -> None:
        with _lock:
            self._left -= 1
        if not self._left:
            self.end()


_lock = threading.RLock()
"""Held where followers or patches change. An epoch reads them without it: a worker that is forked
meanwhile would find it held for ever."""
_followers: list[_Follower] = []
_patches: dict[type, tuple[Iter, Iter]] = {}
"""Of each class our `__iter__`, and the one that it took the place of."""
_log_files: set[Path] = set()
"""Where this process has logged."""


def _follower_of(loader: Any) -> _Follower | None:
    """Whoever measures an epoch of `loader`; the newest, unless one was made for it."""
    followers = list(reversed(_followers))
    followers.sort(key=lambda one: one.original.loader() is not loader)
    return next((one for one in followers if one.original.serves(loader)), None)


def _replace(earlier: _Follower) -> None:
    if earlier.evaluator() is not None:
        gc.collect()  # an exception on its way here can keep what nobody can reach
    if earlier.evaluator() is not None:
        raise UsageError(
            "this DataLoader is measured in place already: close() the evaluator that "
            "evaluate_in_place returned for it first, or make a new DataLoader"
        )
    earlier.measurement.recorder.expects_batches = False  # nobody can ask it for them
    earlier.end()


def _free_log_file(
    log_file: str | os.PathLike[str] | None = None, *, overwrite: bool = False, **_: Any
) -> str | os.PathLike[str] | None:
    """`log_file`, or one beside it where that would spoil what this process has logged."""
    if log_file is None:
        return None
    path = Path(log_file).absolute()
    others = [one.measurement.settings.log_file for one in _followers]
    is_open = any(path == Path(other).absolute() for other in others if other is not None)
    return free_name(path) if is_open or (path in _log_files and not overwrite) else log_file


def _patch(kind: type) -> None:
    """Put our `__iter__` into a class. What another tool put over ours calls ours: it stays."""
    standing = vars(kind)["__iter__"]
    if kind not in _patches:
        _patches[kind] = _asking_first(kind, standing), standing
    ours, original = _patches[kind]
    if standing is original:
        kind.__iter__ = ours  # type: ignore[attr-defined]  # it has one


def _unpatch(kind: type) -> None:
    """Take ours out again, if nobody needs it, and nobody has put anything over it."""
    patch = _patches.get(kind)
    is_needed = any(kind in one.classes for one in _followers)
    if patch is not None and not is_needed and vars(kind)["__iter__"] is patch[0]:
        kind.__iter__ = patch[1]  # type: ignore[attr-defined]  # it has one
        _patches.pop(kind, None)


def _iterable_classes(loader: Any) -> list[type]:
    return [kind for kind in type(loader).__mro__ if "__iter__" in vars(kind)]


def _asking_first(kind: type, original: Iter) -> Iter:
    @functools.wraps(original)
    def __iter__(self: Any) -> Iterator[Any]:  # noqa: N807 - it stands in for that
        # A subclass that calls this one by super() is measured by what it serves itself.
        is_inner = _iterable_classes(self)[0] is not kind
        follower = None if is_inner else _follower_of(self)
        return original(self) if follower is None else follower.epoch(self, original)

    return __iter__


def _begun_by(original: Iter, loader: Any) -> Iterator[Any]:
    epoch = original(loader)
    return chain(Begun(epoch)) if epoch is loader else epoch


def _is_dataloader(loader: Any) -> bool:
    module = sys.modules.get(f"{TORCH}.dataloader")
    return module is not None and isinstance(loader, module.DataLoader)


def _bare(loader: Any) -> Any:
    for kind in type(loader).__mro__:
        inside = WRAPPERS.get(kind.__module__)
        if inside is not None:
            return getattr(loader, inside, loader)
    return loader


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
