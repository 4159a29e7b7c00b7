"""Replaces `__iter__` of known loaders, so that a Session can measure their epochs.

And `__init__`, to note which line of the program made a loader. For that only frames are read, and
nothing of the program is called: a dataset may have a hash of its own.

A process imports this with the first known framework, and may never iterate a loader. The modules
that measure are imported when it does.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from contextlib import suppress
from pkgutil import resolve_name
from types import FunctionType
from typing import TYPE_CHECKING, Any

from loadeval.adapter import PLACES, Watch, made_at
from loadeval.launch.iterators import (
    SERVE,
    inner_of,
    is_serving,
    iterated_by_torch,
    serve_by,
    serving,
)
from loadeval.launch.loadeval_inject import FOLDER, failed

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from types import FrameType

    from loadeval.launch.measured import MeasuredLoader
    from loadeval.launch.one_loader import OneLoader
    from loadeval.launch.session import Session

    Iter = Callable[[Any], Iterator[Any]]

TORCH = "torch.utils.data.dataloader"
MADE_BY_OTHERS = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
"""Torch's iterators, which the loaders of other libraries make for themselves."""
SPAWNED = ("--multiprocessing-fork", "multiprocessing.forkserver")
"""What the arguments of a process contain if multiprocessing started it."""
PYTHONS_OWN = os.path.dirname(os.__file__)  # noqa: PTH120 - frames have such names, and pathlib takes 5 ms
OWN = {"loadeval", "loadeval_adapters"}


class _Hook:
    """What is patched in this process, and its session once there is one.

    `watched` has the declarations for modules that were imported or are waited for. `ones` are the
    single loaders that are measured, and `alternating` those of a session that has ended.
    """

    def __init__(self) -> None:
        self.session: Session | None = None
        self.ones: list[OneLoader] = []
        self.alternating: list[MeasuredLoader] = []
        self.is_off = False
        self.pid = os.getpid()
        self.replaced: list[tuple[type, str, Any, Any]] = []
        self.watched: dict[str, Watch] = {}

    def declared(self, name: str) -> set[Any]:
        """All values of one attribute of these declarations."""
        watches = tuple(self.watched.values())  # another thread may import a framework
        return {value for watch in watches for value in getattr(watch, name)}


_hook = _Hook()


def patch(name: str, adapter: str | None = None) -> list[str]:
    """Patch the loaders of the module `name`, which is imported; returns what to wait for next.

    `adapter` is the one registered for it; None if an adapter of another module declares this one.
    """
    module = sys.modules.get(name)
    if module is None:  # it has removed itself
        return []
    _hook.pid = os.getpid()
    if adapter is None:
        watch = _hook.watched[name]
        for loader in (watch.classes or {}).get(name, ()):
            _patch_loader(getattr(module, loader), watch)
        if name in watch.steps:
            optimizer, method, needed = watch.steps[name]
            _patch_step(getattr(module, optimizer), method, needed)
        return []
    watch = getattr(resolve_name(adapter), "watch", Watch())
    _hook.watched[name] = watch
    if watch.classes is None:
        for kind in [value for value in vars(module).values() if isinstance(value, type)]:
            # A class that it imports from elsewhere, such as deque, is not its own loader.
            is_own = f"{kind.__module__}.".startswith(f"{name}.")
            if is_own and callable(vars(kind).get("__iter__")):
                _patch_loader(kind, watch)
    declared = [*(watch.classes or ()), *watch.steps]
    _hook.watched |= dict.fromkeys(declared, watch)
    for module_name in declared:
        patch(module_name)
    return [module_name for module_name in declared if module_name not in sys.modules]


def _patch_loader(kind: type, watch: Watch) -> None:
    _patch_iterable(kind)
    for method, loader_for in watch.methods.items():
        _replace(kind, method, _measured_method(vars(kind)[method], loader_for))
    if kind.__module__ == TORCH:
        iterator = sys.modules[TORCH]._BaseDataLoaderIter  # noqa: SLF001 - there is no public name
        if not is_serving(iterator):
            _replace(iterator, SERVE, None)
            _replace(iterator, "__next__", serving(vars(iterator)["__next__"]))
        for name in MADE_BY_OTHERS:
            made = getattr(sys.modules[TORCH], name)
            _replace(made, "__init__", _measured_iterator(vars(made)["__init__"]))


def use(session: Session) -> None:
    """Measure with `session` from now on."""
    _hook.session, _hook.is_off, _hook.pid = session, False, os.getpid()


def current() -> Session | None:
    """The session of this process, if there is one."""
    return _hook.session


def end_session() -> None:
    """Measure nothing more with the session."""
    session = _hook.session
    loaders = [] if session is None else session.loaders
    _hook.alternating = [loader for loader in loaders if loader.mode == "alternate"]
    _hook.session, _hook.is_off = None, True
    _restore()


def add(one: OneLoader, name: str, adapter: str) -> None:
    """Measure one loader of the module `name`, and those that are built from it; see patch."""
    if _hook.session is None and not os.environ.get(FOLDER):
        _hook.is_off = True  # no command measures this process
    patch(name, adapter)
    _hook.ones.append(one)


def remove(one: OneLoader) -> None:
    """Measure it no more."""
    _hook.ones.remove(one)
    _restore()


def ones() -> list[OneLoader]:
    """The single loaders that are measured; the last one is the newest."""
    return list(_hook.ones)


def _restore() -> None:
    """Restore the classes once nothing is measured, unless another tool has replaced our methods.

    An iterator that alternates serves its epoch to the end: batches may be prefetched.
    """
    if _hook.ones or not _hook.is_off:
        return
    is_ahead = any(loader.is_read for loader in _hook.alternating)
    kept = []
    for entry in reversed(_hook.replaced):
        kind, name, ours, original = entry
        standing = vars(kind).get(name)
        if is_ahead and name in {SERVE, "__next__"}:
            kept.append(entry)
        elif standing is not ours:
            if standing is not original:
                kept.append(entry)
        elif original is None:
            delattr(kind, name)
        else:
            setattr(kind, name, original)
    _hook.replaced[:] = reversed(kept)


def _patch_iterable(kind: type) -> None:
    """Patch `kind`, its subclasses, and those that are defined later."""
    _patch_iter(kind)
    original = vars(kind).get("__init_subclass__")

    @classmethod  # type: ignore[misc]  # of the class that it is put into
    def __init_subclass__(cls: type, **options: Any) -> None:  # noqa: N807 - it replaces that method
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
    return [*below, *(deeper for subclass in below for deeper in _subclasses(subclass))]


def _patch_iter(kind: type) -> None:
    is_outside = kind.__module__.startswith(tuple(_hook.declared("outside")))
    if callable(vars(kind).get("__iter__")) and not is_outside:
        _replace(kind, "__iter__", _measured(kind, vars(kind)["__iter__"]))
        make = vars(kind).get("__init__")
        # A program's own constructor may warn of the line that calls it.
        if isinstance(make, FunctionType) and is_library(make.__code__.co_filename):
            _replace(kind, "__init__", _noted(make))


def _replace(kind: type, name: str, ours: Any) -> None:
    """Put `ours` there, unless one of ours is there, or below what another tool put there."""
    for replaced, of_name, earlier, original in _hook.replaced:
        if replaced is kind and of_name == name:
            if vars(kind).get(name) is original:  # another tool took ours out
                setattr(kind, name, earlier)
            return
    _hook.replaced.append((kind, name, ours, vars(kind).get(name)))
    setattr(kind, name, ours)


def _noted(original: Callable[..., None]) -> Callable[..., None]:
    """A loader's `__init__`, after which it is noted where the program called it."""

    @functools.wraps(original)
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807 - it replaces that method
        original(self, *arguments, **options)
        note_made(self, sys._getframe(1), _hook.declared("outside"))  # noqa: SLF001 - nothing else shows the caller

    return __init__


def note_made(loader: Any, caller: FrameType | None, rebuilders: Container[str]) -> None:
    """Note that `loader` was made in the line that `caller`, or the program below it, is at.

    `rebuilders` are packages that make loaders again which the program has made. Such a loader
    has the line of the one before it, of the same dataset. Nothing is raised.
    """
    with suppress(Exception):
        dataset = vars(loader).get("dataset")
        place, is_rebuilt = _line_of_program(caller, rebuilders)
        if is_rebuilt:
            place = made_at(dataset)
        if place is not None and made_at(loader) is None:  # a subclass may call this one
            _note(loader, place)
            _note(dataset, place)


def is_library(path: str) -> bool:
    """Whether a file belongs to Python or a package, or is none."""
    return path.startswith(("<", PYTHONS_OWN)) or "-packages" in path


def _note(thing: Any, place: str) -> None:
    number = id(thing)
    with suppress(TypeError):  # a list takes no weak reference
        PLACES[number] = weakref.ref(thing, lambda _: PLACES.pop(number, None)), place


def _line_of_program(
    frame: FrameType | None, rebuilders: Container[str]
) -> tuple[str | None, bool]:
    """The innermost line that is no library's, and whether a rebuilder is further in.

    The file is told from the working directory, where it is below that.
    """
    is_rebuilt = False
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        path = frame.f_code.co_filename
        is_rebuilt = is_rebuilt or package in rebuilders
        if package not in OWN and not is_library(path):
            with suppress(OSError):  # the working directory may be gone
                path = path.removeprefix(f"{os.getcwd()}{os.sep}")  # noqa: PTH109 - pathlib takes 5 ms
            return f"{path}:{frame.f_lineno}", is_rebuilt
        frame = frame.f_back
    return None, is_rebuilt


def _measured(kind: type, original: Iter) -> Iter:
    @functools.wraps(original)
    def __iter__(self: Any) -> Iterator[Any]:  # noqa: N807 - it replaces that method
        # A subclass that calls this by super() is measured once, by its own __iter__.
        is_own = next(base for base in type(self).__mro__ if "__iter__" in vars(base)) is kind
        frame = sys._getframe(1)  # noqa: SLF001 - nothing else shows the caller
        one = _one_for(self, frame) if is_own else None
        if one is not None:
            return one.epoch(self, original)
        session, epoch = _session_for(frame) if is_own else None, None
        if session is not None:
            evaluates = _is_called_by(frame, "evaluations")
            epoch = session.epoch(self, original, evaluates=evaluates)
        return original(self) if epoch is None else epoch

    return __iter__


def _measured_method(
    original: Callable[..., Iterator[Any]], loader_for: Callable[..., Any]
) -> Callable[..., Iterator[Any]]:
    """A method of a loader that begins an epoch; see Watch."""

    @functools.wraps(original)
    def batches(self: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
        make = functools.partial(original, self, *arguments, **options)
        session = _session_for(sys._getframe(1))  # noqa: SLF001 - nothing else shows the caller
        epoch = None
        if session is not None:
            loader = loader_for(self, make)
            epoch = session.epoch(loader, type(loader).__iter__)
        return make() if epoch is None else epoch

    return batches


def _measured_iterator(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces `__init__` of torch's iterators, for those that other libraries' loaders make."""

    @functools.wraps(original)
    def __init__(self: Any, loader: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807 - it replaces that method
        iterators: list[Any] = []

        def make(_: Any = None) -> Any:
            original(self, loader, *arguments, **options)
            iterators.append(self)
            return self

        frame = sys._getframe(1)  # noqa: SLF001 - nothing else shows the caller
        session, epoch = _session_for(frame), None
        if session is not None:
            owner = frame.f_locals.get("self", loader)
            kind: Any = type(owner)
            iterated = iterated_by_torch(kind)(owner, loader, lambda: inner_of(make()))
            epoch = session.epoch(iterated, make)
            del iterated.make  # it holds the iterator, which holds what serves it
        if not iterators:
            make()
        if epoch is not None and epoch is not self:
            serve_by(self, epoch)

    return __init__


def _patch_step(kind: type, name: str, needed: str) -> None:
    """Count the calls of an optimizer's method where the module `needed` is imported."""
    original = vars(kind)[name]

    @functools.wraps(original)
    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        result = original(self, *arguments, **options)
        if _hook.session is not None and needed in sys.modules:
            _hook.session.stepped()
        return result

    _replace(kind, name, counted)


def _one_for(loader: Any, caller: FrameType | None) -> OneLoader | None:
    """Whose measurement an epoch of `loader` belongs to: the one made for it, or the newest."""
    if not _hook.ones or _is_inside(caller):
        return None
    newest_first = _hook.ones[::-1]
    own = [one for one in newest_first if one.original.loader() is loader]
    return next((one for one in own + newest_first if one.original.serves(loader)), None)


def _session_for(caller: FrameType | None) -> Session | None:
    """The session, if this is a training process and the call does not come from a loader."""
    if _hook.is_off or os.getpid() != _hook.pid or _is_worker() or _is_inside(caller):
        return None
    if _hook.session is None:
        try:
            from loadeval.launch.session import Session  # noqa: PLC0415 - only who iterates needs it
            from loadeval.launch.settings import RunSettings  # noqa: PLC0415 - only who iterates needs it

            settings = RunSettings.from_environment(os.environ)
            _hook.session = Session(settings, of_command=True)
        except Exception as error:  # noqa: BLE001 - the program goes on
            _hook.is_off = True
            failed(error)
    return _hook.session


def _is_worker() -> bool:
    """Whether this process is a worker of a loader, not a rank that mp.spawn started."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and torch_data.get_worker_info() is not None:
        return True
    arguments = " ".join(getattr(sys, "orig_argv", ())[:4])
    if not any(word in arguments for word in SPAWNED):
        return False
    distributed = sys.modules.get("torch.distributed")
    return distributed is None or not (distributed.is_available() and distributed.is_initialized())


def _is_called_by(frame: FrameType | None, declared: str) -> bool:
    """Whether one of the functions called, that an attribute of a Watch names."""
    functions = _hook.declared(declared)
    while functions and frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in functions:
            return True
        frame = frame.f_back
    return False


def _is_inside(frame: FrameType | None) -> bool:
    """Whether a loader called, or a function that looks at one batch: no epoch of the training."""
    if _is_called_by(frame, "looks"):
        return True
    packages = tuple(f"{package}." for package in {"loadeval", *_hook.declared("inside")})
    while frame is not None:
        if f"{frame.f_globals.get('__name__')}.".startswith(packages):
            return True
        frame = frame.f_back
    return False
