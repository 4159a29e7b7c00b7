"""Replaces `__iter__` of known loaders, so that their epochs are measured.

And `__init__`, to note which line of the program made a loader. For that only frames are read, and
nothing of the program is called: a dataset may have a hash of its own.

A process imports this with the first known framework, and may never iterate a loader. The modules
that measure are imported when it does.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from pkgutil import resolve_name
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from loadeval.adapter import PLACES, Watch, made_at
from loadeval.errors import PACKAGES
from loadeval.frames import is_library
from loadeval.launch.loadeval_inject import FOLDER, Finder, failed

if TYPE_CHECKING:
    from loadeval.launch.session import OneLoader, Session

Method = Callable[..., Iterator[Any]]

OURS = "_loadeval_class"
"""An attribute of what is put into a class: that class."""


class State:
    """Who measures the loaders of this process.

    `session` measures all, and each of `ones`, the newest first, a single one. `watched` has what
    adapters declare for modules that were imported or are waited for.
    """

    def __init__(self) -> None:
        self.session: Session | None = None
        self.ones: list[OneLoader] = []
        self.is_off = False
        self.pid = os.getpid()
        self.watched: dict[str, Watch] = {}

    def declared(self, name: str) -> set[Any]:
        """All values of one attribute of these declarations."""
        watches = tuple(self.watched.values())  # another thread may import a framework
        return {value for watch in watches for value in getattr(watch, name)}


state = State()


def patch(name: str, adapter: str | None) -> list[str]:
    """Patch the loaders of the module `name`, which is imported; returns what to wait for next.

    `adapter` is the one registered for it; None if an adapter of another module declares this one.
    """
    module = sys.modules[name]
    if state.session is None:  # a worker that is forked later has its parent's
        state.pid = os.getpid()
    if adapter is None:
        watch = state.watched[name]
        for loader in (watch.classes or {}).get(name, ()):
            _patch_loader(getattr(module, loader), watch)
        return []
    watch = getattr(resolve_name(adapter), "watch", Watch())
    state.watched[name] = watch
    if watch.classes is None:
        for kind in [value for value in vars(module).values() if isinstance(value, type)]:
            # A class that it imports from elsewhere, such as deque, is not its own loader.
            is_own = f"{kind.__module__}.".startswith(f"{name}.")
            if is_own and callable(vars(kind).get("__iter__")):
                _patch_loader(kind, watch)
    declared = list(watch.classes or ())
    state.watched |= dict.fromkeys(declared, watch)
    return declared


def use(session: Session, adapters: Mapping[str, str]) -> None:
    """Measure all loaders of these adapters with `session`, whenever they are imported."""
    state.session, state.is_off, state.pid = session, False, os.getpid()
    # Each asks all others: two that stayed would ask each other.
    others = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
    sys.meta_path[:] = [Finder(adapters, patch), *others]


def add(one: OneLoader, adapters: Mapping[str, str]) -> None:
    """Measure one loader of these adapters, which is imported, and those built from it."""
    if state.session is None and not os.environ.get(FOLDER):
        state.is_off = True  # no command measures this process
    state.ones.insert(0, one)
    Finder(adapters, patch)


def is_of_command() -> bool:
    """Whether `loadeval run` measures this process, or will once it iterates a loader."""
    if state.session is not None:
        return state.session.of_command
    # Our sitecustomize imports it, also where PYTHONPATH alone was passed on.
    is_started = "loadeval_inject" in sys.modules and FOLDER in os.environ
    return is_started and not state.is_off and os.getpid() == state.pid


def end_session(session: Session) -> None:
    """Measure nothing more with `session`, and finish its logs, unless that was done before."""
    if state.session is session:
        state.session, state.is_off = None, True
        session.close()


def _patch_loader(kind: type, watch: Watch) -> None:
    """Patch `kind`, its subclasses, and those that are defined later."""
    _patch_class(kind)
    original = vars(kind).get("__init_subclass__")

    @classmethod  # type: ignore[misc]  # of the class that it is put into
    def __init_subclass__(cls: type, **options: Any) -> None:  # noqa: N807 - it replaces that method
        if original is None:
            super(kind, cls).__init_subclass__(**options)  # type: ignore[arg-type]  # it is one
        else:
            original.__get__(None, cls)(**options)
        _patch_class(cls)

    _replace(kind, "__init_subclass__", __init_subclass__)
    below: list[type] = type.__subclasses__(kind)
    for subclass in below:
        _patch_class(subclass)
        below += type.__subclasses__(subclass)
    for method, loader_for in watch.methods.items():
        _replace(kind, method, _measured(kind, method, vars(kind)[method], loader_for))


def _patch_class(kind: type) -> None:
    original, make = vars(kind).get("__iter__"), vars(kind).get("__init__")
    is_outside = kind.__module__.startswith(tuple(state.declared("outside")))
    if not callable(original) or is_outside:
        return
    _replace(kind, "__iter__", _measured(kind, "__iter__", original))
    # A program's own constructor may warn of the line that calls it.
    if isinstance(make, FunctionType) and is_library(make.__code__.co_filename):
        _replace(kind, "__init__", _noted(make))


def _replace(kind: type, name: str, ours: Any) -> None:
    """Put `ours` there, unless one of ours is. It stays, and passes on once nothing is measured."""
    if getattr(vars(kind).get(name), OURS, None) is not kind:
        setattr(ours, OURS, kind)
        setattr(kind, name, ours)


def _measured(
    kind: type, name: str, original: Method, loader_for: Callable[[Any, Method], Any] | None = None
) -> Method:
    """A method of `kind` that begins an epoch, measured; `loader_for` as in Watch.methods."""

    @wraps(original)
    def begin(self: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
        make = partial(original, self, *arguments, **options)
        # A subclass that calls this by super() is measured once, by its own method.
        if next(base for base in type(self).__mro__ if name in vars(base)) is not kind:
            return make()
        callers = _callers(sys._getframe(1))  # noqa: SLF001 - nothing else shows the caller
        if "inside" in callers:  # what a loader asks for is no epoch of the training
            return make()
        for one in sorted(state.ones, key=lambda one: one.loader() is not self):
            if one.serves(self):
                return one.epoch(self, make)
        session, epoch = _session(), None
        if session is not None:
            loader = self if loader_for is None else loader_for(self, make)
            epoch = session.epoch(loader, make, evaluates="evaluations" in callers)
        return make() if epoch is None else epoch

    return begin


def _callers(frame: FrameType | None) -> set[str]:
    """What adapters declare of the functions on the stack, by the names of a Watch's attributes."""
    inside = tuple(f"{package}." for package in {"loadeval", *state.declared("inside")})
    evaluations = state.declared("evaluations")
    callers: set[str] = set()
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if f"{module}.".startswith(inside):
            callers.add("inside")
        if (module, frame.f_code.co_name) in evaluations:
            callers.add("evaluations")
        frame = frame.f_back
    return callers


def _session() -> Session | None:
    """The session, if this is a process that trains, and a command measures it."""
    if state.is_off or os.getpid() != state.pid:
        return None
    if state.session is None and not _is_worker():
        try:
            from loadeval.launch.session import Session  # noqa: PLC0415 - only who iterates needs it
            from loadeval.launch.settings import SETTINGS, RunSettings  # noqa: PLC0415 - only who iterates needs it

            settings = RunSettings(**json.loads(os.environ.get(SETTINGS, "{}")))
            state.session = Session(settings, Path(os.environ[FOLDER]), of_command=True)
        except Exception as error:  # noqa: BLE001 - the program goes on
            state.is_off = True
            failed(error)
    return state.session


def _is_worker() -> bool:
    """Whether multiprocessing started this process, and it is no rank of torch.distributed."""
    if multiprocessing.parent_process() is None:
        return False
    distributed = sys.modules.get("torch.distributed")
    return distributed is None or not (distributed.is_available() and distributed.is_initialized())


def _noted(original: Callable[..., None]) -> Callable[..., None]:
    """A loader's `__init__`, after which it is noted where the program called it."""

    @wraps(original)
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807 - it replaces that method
        original(self, *arguments, **options)
        note_made(self, sys._getframe(1), state.declared("outside"))  # noqa: SLF001 - nothing else shows the caller

    return __init__


def note_made(loader: Any, frame: FrameType | None, rebuilders: Container[str]) -> None:
    """Note that `loader` was made in the innermost line from `frame` on that is no library's.

    `rebuilders` are packages that make loaders again which the program has made. Such a loader
    has the line of the one before it, of the same dataset. A file is told from the working
    directory, where it is below that. Nothing is raised.
    """
    with suppress(Exception):
        dataset = vars(loader).get("dataset")
        place = None
        while frame is not None and place is None:
            path = frame.f_code.co_filename
            package = str(frame.f_globals.get("__name__")).partition(".")[0]
            if package in rebuilders:
                place = made_at(dataset)
                break
            if package not in PACKAGES and not is_library(path):
                path = path.removeprefix(f"{os.getcwd()}{os.sep}")  # noqa: PTH109 - pathlib takes 5 ms
                place = f"{path}:{frame.f_lineno}"
            frame = frame.f_back
        if place is None or made_at(loader) is not None:  # a subclass may call this one
            return
        for made in (loader, dataset):
            with suppress(TypeError):  # a list takes no weak reference
                PLACES[id(made)] = weakref.ref(made, partial(_forget, id(made))), place


def _forget(number: int, _: object) -> None:
    PLACES.pop(number, None)
