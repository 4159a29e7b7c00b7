"""Replaces `__iter__` of known loaders, so that a Session can measure their epochs.

Imported with the first known loader, in processes that may never iterate one: what measures is
imported when one does.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

from loadeval.launch.batches import DatasetBatches, iterated_by_torch
from loadeval.launch.inject.loadeval_inject import CLASSES, failed
from loadeval.launch.iterators import SERVE, inner_of, is_serving, serve_by, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, ModuleType

    from loadeval.launch.session import Session

    Iter = Callable[[Any], Iterator[Any]]

TORCH = "torch.utils.data.dataloader"
KERAS, FASTAI = "keras.src.optimizers.base_optimizer", "fastai.optimizer"
STEPS = {KERAS: ("apply", "keras.src.backend.torch"), FASTAI: ("step", FASTAI)}
"""What makes a step of optimizers that are none of torch's, by their module; and what is imported
where it does: with another backend Keras's is called to compile a step."""
MADE_BY_OTHERS = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
"""Torch's iterators, which the loaders of other libraries make for themselves."""
NOT_PATCHED = ("accelerate", "lightning", "lightning_fabric", "pytorch_lightning")
"""Packages whose loaders iterate a loader of torch's and mark its end for themselves: that inner
one is measured."""
DATA = (
    *("loadeval", "torch.utils.data", "torchdata", "webdataset", "datasets", "litdata"),
    *("grain", "ray.data", "spdl", "nvidia.dali"),
)
"""Packages that iterate loaders inside of loaders, which is no epoch of the training."""
LOOKS = {("fastai.data.load", "one_batch")}
"""Functions of loaders, by their module, that read a batch for another end than training."""
SPAWNED = ("--multiprocessing-fork", "multiprocessing.forkserver")
"""How a process is started by multiprocessing, in its arguments."""


class _Hook:
    """What is patched in this process, and its session once there is one."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.is_off = False
        self.pid = os.getpid()
        self.replaced: list[tuple[type, str, Any, Any]] = []


_hook = _Hook()


def patch(module: ModuleType) -> None:
    """Patch the loaders of `module`; where a package has named it, all that it can iterate."""
    name = module.__name__
    if name in CLASSES:
        kinds = [getattr(module, kind) for kind in CLASSES[name]]
    else:
        kinds = [
            one for one in vars(module).values() if isinstance(one, type) and _has_own_iter(one)
        ]
    _hook.pid = os.getpid()
    for kind in kinds:
        if not any(one is kind for one, *_ in _hook.replaced):
            _patch_class(kind, name)


def _patch_class(kind: type, module: str) -> None:
    if module in STEPS:
        name, needed = STEPS[module]
        _replace(kind, name, _counted(vars(kind)[name], needed))
        return
    _patch_iterable(kind)
    if module.startswith("datasets."):
        _replace(kind, "iter", _measured_batches(vars(kind)["iter"]))
    if module == TORCH:
        iterator = sys.modules[TORCH]._BaseDataLoaderIter  # noqa: SLF001 - there is no public name
        if not is_serving(iterator):
            _replace(iterator, SERVE, None)
            _replace(iterator, "__next__", serving(vars(iterator)["__next__"]))
        for name in MADE_BY_OTHERS:
            made = getattr(sys.modules[TORCH], name)
            _replace(made, "__init__", _measured_iterator(vars(made)["__init__"]))


def patch_imported(names: list[str]) -> None:
    """Patch what of `names` was imported already."""
    for name in names:
        module = sys.modules.get(name)
        if module is not None:
            patch(module)


def use(session: Session) -> None:
    """Measure with `session` from now on."""
    _hook.session, _hook.is_off, _hook.pid = session, False, os.getpid()


def current() -> Session | None:
    """The session of this process, if there is one."""
    return _hook.session


def unpatch() -> None:
    """Restore the classes, unless another tool has replaced our methods.

    An iterator that alternates serves its epoch to the end: batches may be prefetched.
    """
    session = _hook.session
    loaders = [] if session is None else session.loaders
    is_ahead = any(one.is_read and one.mode == "alternate" for one in loaders)
    kept = [one for one in _hook.replaced if is_ahead and one[1] in {SERVE, "__next__"}]
    for one in reversed(_hook.replaced):
        kind, name, ours, original = one
        if one not in kept and vars(kind).get(name) is ours:
            if original is None:
                delattr(kind, name)
            else:
                setattr(kind, name, original)
    _hook.replaced[:] = kept
    _hook.session, _hook.is_off = None, True


def _has_own_iter(kind: type) -> bool:
    return callable(vars(kind).get("__iter__"))


def _patch_iterable(kind: type) -> None:
    """Patch `kind`, the subclasses that it has, and those that it gets."""
    _patch_iter(kind)
    original = vars(kind).get("__init_subclass__")

    @classmethod  # type: ignore[misc]  # of the class that it is put into
    def __init_subclass__(cls: type, **options: Any) -> None:  # noqa: N807 - it stands in for that
        if original is None:
            super(kind, cls).__init_subclass__(**options)  # type: ignore[arg-type]  # it is one
        else:
            original.__get__(None, cls)(**options)
        _patch_iter(cls)

    _replace(kind, "__init_subclass__", __init_subclass__)
    for below in _subclasses(kind):
        _patch_iter(below)


def _subclasses(kind: type) -> list[type]:
    below: list[type] = type.__subclasses__(kind)
    return [*below, *(deeper for one in below for deeper in _subclasses(one))]


def _patch_iter(kind: type) -> None:
    if _has_own_iter(kind) and not kind.__module__.startswith(NOT_PATCHED):
        _replace(kind, "__iter__", _measured(kind, vars(kind)["__iter__"]))


def _replace(kind: type, name: str, ours: Any) -> None:
    _hook.replaced.append((kind, name, ours, vars(kind).get(name)))
    setattr(kind, name, ours)


def _measured(kind: type, original: Iter) -> Iter:
    @functools.wraps(original)
    def __iter__(self: Any) -> Iterator[Any]:  # noqa: N807 - it stands in for that
        # A subclass that calls this by super() is measured once, by its own __iter__.
        is_own = next(one for one in type(self).__mro__ if "__iter__" in vars(one)) is kind
        session = _session_for(sys._getframe(1)) if is_own else None  # noqa: SLF001 - nothing else tells the caller
        epoch = None if session is None else session.epoch(self, original)
        return original(self) if epoch is None else epoch

    return __iter__


def _measured_batches(original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @functools.wraps(original)
    def batches(self: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
        make = functools.partial(original, self, *arguments, **options)
        session = _session_for(sys._getframe(1))  # noqa: SLF001 - nothing else tells the caller
        epoch = None
        if session is not None:
            epoch = session.epoch(DatasetBatches(self, make), DatasetBatches.__iter__)
        return make() if epoch is None else epoch

    return batches


def _measured_iterator(original: Callable[..., None]) -> Callable[..., None]:
    """An iterator that no DataLoader has asked for: the loader of another library is iterated."""

    @functools.wraps(original)
    def __init__(self: Any, loader: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807 - it stands in for that
        made: list[Any] = []

        def make(_: Any = None) -> Any:
            original(self, loader, *arguments, **options)
            made.append(self)
            return self

        frame = sys._getframe(1)  # noqa: SLF001 - as above
        session, epoch = _session_for(frame), None
        if session is not None:
            owner = frame.f_locals.get("self", loader)
            kind: Any = type(owner)
            one = iterated_by_torch(kind)(owner, loader, lambda: inner_of(make()))
            epoch = session.epoch(one, make)
            del one.make  # it holds the iterator, which holds what serves it
        if not made:
            make()
        if epoch is not None and epoch is not self:
            serve_by(self, epoch)

    return __init__


def _counted(step: Callable[..., Any], needed: str) -> Callable[..., Any]:
    """A step of an optimizer that is none of torch's, where the module `needed` is imported."""

    @functools.wraps(step)
    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        found = step(self, *arguments, **options)
        if _hook.session is not None and needed in sys.modules:
            _hook.session.stepped()
        return found

    return counted


def _session_for(caller: FrameType | None) -> Session | None:
    """The session, if this is a training process and not inside of another loader."""
    if _hook.is_off or os.getpid() != _hook.pid or _is_worker() or _is_inside(caller):
        return None
    if _hook.session is None:
        try:
            from loadeval.launch.session import Session, Settings  # noqa: PLC0415 - see above

            _hook.session = Session(Settings.from_environment(os.environ))
        except Exception as error:  # noqa: BLE001 - the program goes on
            _hook.is_off = True
            failed(error)
    return _hook.session


def _is_worker() -> bool:
    """Whether this process serves a loader, and is none of the ranks that mp.spawn starts."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and torch_data.get_worker_info() is not None:
        return True
    arguments = " ".join(getattr(sys, "orig_argv", ())[:4])
    if not any(one in arguments for one in SPAWNED):
        return False
    distributed = sys.modules.get("torch.distributed")
    return distributed is None or not (distributed.is_available() and distributed.is_initialized())


def _is_inside(frame: FrameType | None) -> bool:
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if (name, frame.f_code.co_name) in LOOKS:
            return True
        if name.startswith(DATA) and any(name == one or name.startswith(f"{one}.") for one in DATA):
            return True
        frame = frame.f_back
    return False
