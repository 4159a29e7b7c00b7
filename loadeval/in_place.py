"""Measure a DataLoader in place, for frameworks that rebuild it or check its class."""

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

    from loadeval.runtime.replay.cache import BatchCache
    from loadeval.runtime.settings import EvaluatorSettings

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


def evaluate_in_place(loader: Any, mode: str = "log", **options: Any) -> LoaderEvaluator:
    """Measure a torch DataLoader without wrapping it.

    Pass the loader itself to the framework, as before. Every epoch is measured until you
    close the returned evaluator. That includes epochs of loaders that a framework builds from
    this one: Lightning does for distributed training, Accelerate in `prepare` and when it
    resumes in the middle of an epoch. Another loader over the same dataset, such as one for
    validation, is not measured. If Accelerate or Fabric has already prepared the loader, what
    they do with its batches counts as part of the step.

    You need not keep the evaluator: measuring ends when the loader is garbage-collected.

    `mode` and `options` are those of LoaderEvaluator. If this process measures in place again
    with the same `log_file`, the new log gets a number: run-1.jsonl. Returns the evaluator, for
    `headroom()`, `recorded()` and `close()`.

    Raises UsageError if `loader` is not a torch DataLoader, or is already being measured.
    """
    loader = _unwrapped(loader)
    if not _is_dataloader(loader):
        raise UsageError(
            f"cannot measure a {type(loader).__name__} in place: expected a torch DataLoader; "
            "wrap other loaders with LoaderEvaluator(loader)"
        )
    for earlier in [
        follower for follower in _followers if follower.original.has_sampler_of(loader)
    ]:
        _replace(earlier)
    log_file = _free_log_file(**options)
    evaluator = _InPlaceEvaluator(loader, mode, **{**options, "log_file": log_file})
    if log_file is not None:
        _log_files.add(Path(log_file).absolute())
    return evaluator


class _InPlaceEvaluator(LoaderEvaluator):
    """A LoaderEvaluator whose loader, and loaders built from it, measure themselves."""

    def __init__(self, loader: Any, mode: str, **options: Any) -> None:
        super().__init__(loader, mode, **options)
        self._follow()

    def _restart(
        self, settings: EvaluatorSettings, loader: Any = None, cache: BatchCache | None = None
    ) -> None:
        super()._restart(settings, loader, cache)
        self._follow()

    def _follow(self) -> None:
        self._closer.detach()  # the loader may be measured on when this is gone
        _Follower(self._loader, self)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def close(self) -> None:
        """Close as LoaderEvaluator.close does. The loader serves its epochs by itself again."""
        super().close()  # for a copy, which nothing follows
        for follower in [
            follower for follower in _followers if follower.measurement is self._measurement
        ]:
            follower.end()


class _Follower:
    """Measures the epochs of all loaders that belong to one measurement.

    Ends when everything from which such a loader could be built has been garbage-collected.
    """

    def __init__(self, loader: Any, evaluator: LoaderEvaluator) -> None:
        self.original = Original(loader)
        self.evaluator = weakref.ref(evaluator)
        self.measurement = evaluator._measurement  # noqa: SLF001 - the evaluator is ours
        self.classes = _iterable_classes(loader)
        shared = shared_by(loader)
        self._left = len(shared)
        self._finalizers = [
            weakref.finalize(shared_object, self._on_shared_object_gone) for shared_object in shared
        ]
        with _lock:
            _followers.append(self)
            for kind in self.classes:
                _patch(kind)

    def epoch(self, loader: Any, original: Iter) -> Iterator[Any]:
        """A measured epoch of `loader`; `original` is the `__iter__` that ours replaced."""
        # The consumer may hold nothing but the iterator.
        owner = (self.evaluator(), self.original.loader(), loader)
        adapter = adapter_for(loader)
        adapter.epoch = functools.partial(_begun_by, original)  # type: ignore[method-assign]  # iter() would come back here
        return self.measurement.epoch(loader, owner, adapter)

    def end(self) -> None:
        """Finish the log, and restore the classes."""
        with _lock:
            if self not in _followers:
                return
            _followers.remove(self)
            for kind in self.classes:
                _unpatch(kind)
        for finalizer in self._finalizers:
            finalizer.detach()
        self.measurement.close()

    def _on_shared_object_gone(self) -> None:
        with _lock:
            self._left -= 1
        if not self._left:
            self.end()


_lock = threading.RLock()
"""Held while followers or patches change. An epoch reads them without it: a worker forked while it
was held would wait for it forever."""
_followers: list[_Follower] = []
_patches: dict[type, tuple[Iter, Iter]] = {}
"""Our `__iter__` for each patched class, and the one that it replaced."""
_log_files: set[Path] = set()
"""Where this process has written logs."""


def _follower_of(loader: Any) -> _Follower | None:
    """The follower to measure an epoch of `loader`: the one made for it, or else the newest."""
    followers = list(reversed(_followers))
    followers.sort(key=lambda follower: follower.original.loader() is not loader)
    return next((follower for follower in followers if follower.original.serves(loader)), None)


def _replace(earlier: _Follower) -> None:
    if earlier.evaluator() is not None:
        gc.collect()  # a pending exception can keep an evaluator that nobody can reach
    if earlier.evaluator() is not None:
        raise UsageError(
            "this DataLoader is already being measured in place: first close() the evaluator that "
            "evaluate_in_place returned for it, or create a new DataLoader"
        )
    earlier.measurement.recorder.expects_batches = False  # nobody can ask it for them
    earlier.end()


def _free_log_file(
    log_file: str | os.PathLike[str] | None = None, *, overwrite: bool = False, **_: Any
) -> str | os.PathLike[str] | None:
    """`log_file`, or a numbered one if this process has already written to that."""
    if log_file is None:
        return None
    path = Path(log_file).absolute()
    others = [follower.measurement.settings.log_file for follower in _followers]
    is_open = any(path == Path(other).absolute() for other in others if other is not None)
    return free_name(path) if is_open or (path in _log_files and not overwrite) else log_file


def _patch(kind: type) -> None:
    """Replace a class's `__iter__`, unless another tool has replaced ours: its own calls ours."""
    standing = vars(kind)["__iter__"]
    if kind not in _patches:
        _patches[kind] = _asking_first(kind, standing), standing
    ours, original = _patches[kind]
    if standing is original:
        kind.__iter__ = ours  # type: ignore[attr-defined]  # it has one


def _unpatch(kind: type) -> None:
    """Restore the `__iter__` once nobody needs ours, unless another tool has replaced it."""
    patch = _patches.get(kind)
    is_needed = any(kind in follower.classes for follower in _followers)
    if patch is not None and not is_needed and vars(kind)["__iter__"] is patch[0]:
        kind.__iter__ = patch[1]  # type: ignore[attr-defined]  # it has one
        del _patches[kind]


def _iterable_classes(loader: Any) -> list[type]:
    return [kind for kind in type(loader).__mro__ if "__iter__" in vars(kind)]


def _asking_first(kind: type, original: Iter) -> Iter:
    @functools.wraps(original)
    def __iter__(self: Any) -> Iterator[Any]:  # noqa: N807 - it replaces that method
        # A subclass that calls this by super() is measured once, by its own __iter__.
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


def _unwrapped(loader: Any) -> Any:
    for kind in type(loader).__mro__:
        inside = WRAPPERS.get(kind.__module__)
        if inside is not None:
            return getattr(loader, inside, loader)
    return loader


class Original:
    """A weak reference to a DataLoader that is measured in place, and what identifies it."""

    def __init__(self, loader: Any) -> None:
        self.loader: Reference = weakref.ref(loader)
        self._dataset = _reference(_plain(loader.dataset))
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
        return dataset is not None and _plain(loader.dataset) is dataset

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
            if _may_be_a_sampler(candidate) and not _has(samplers, candidate)
        ]
    return samplers


def shared_by(loader: Any) -> list[Any]:
    """The loader, and the objects that loaders built from it share with it."""
    dataset = _plain(loader.dataset)
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


def _plain(dataset: Any) -> Any:
    # Accelerate wraps an iterable dataset to shard it.
    while type(dataset).__module__.startswith("accelerate."):
        dataset = dataset.dataset
    return dataset


def _has(items: list[Any], wanted: Any) -> bool:
    return any(item is wanted for item in items)


def _may_be_a_sampler(value: Any) -> bool:
    """Whether this can be a sampler. Two loaders could share a plain value by chance."""
    return hasattr(type(value), "__iter__") and not isinstance(value, (str, tuple, type))


def _can_be_watched(value: Any) -> bool:
    return type(value).__weakrefoffset__ != 0


def _reference(value: Any) -> Reference:
    return weakref.ref(value) if _can_be_watched(value) else lambda: value
