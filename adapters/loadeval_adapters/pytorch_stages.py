"""Looks inside torch's DataLoader: what each batch took, in its worker and on its way."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections import deque
from contextlib import contextmanager
from multiprocessing import reduction
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from torch.utils.data import dataloader
from torch.utils.data._utils import pin_memory

from loadeval import StageNote
from loadeval_adapters.pytorch_channel import (
    COUNTS_CALLS,
    LOOKING,
    OPEN,
    PAUSED,
    Channel,
    is_of_a_signal,
)
from loadeval_adapters.pytorch_iterators import (
    NOT_TORCHS,
    Borrowed,
    Epoch,
    InTraining,
    WithWorkers,
)
from loadeval_adapters.pytorch_pickles import Pickles
from loadeval_adapters.pytorch_pins import Pins
from loadeval_adapters.pytorch_worker import WorkerInit

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from loadeval_adapters.pytorch_iterators import Measured, WatchedIterator

STARTED_BEFORE = (
    "the loader's workers were started before the measurement, so what they do is not timed; "
    "create the LoaderEvaluator before the first epoch"
)
NO_WORKER_INIT = "the loader's worker_init_fn cannot be set, so what its workers do is not timed"


class DataLoaderStages:
    """Times what happens inside torch's DataLoaders, in this process and in their workers.

    `inside(loader)` is the DataLoader within what is iterated. While one of these is open, the
    method that makes a DataLoader's iterators is ours, on its class; it alters nothing but what is
    made for a loader that `begin` was called with.
    """

    def __init__(self, inside: Callable[[Any], Any]) -> None:
        self._inside = inside
        self._iterators: list[WatchedIterator] = []
        self._notes: deque[StageNote] = deque()
        self._noted: set[StageNote] = set()
        self._kinds: set[type] = set()
        self._is_closed = self._has_counted_calls = False
        self._looks = True
        _all.add(self)

    def look(self, on: bool) -> None:
        """See LoaderStages."""
        self._looks = on
        for watched in self._iterators:
            watched.look(on)

    def begin(self, loader: Any) -> Callable[[int], object]:
        """See LoaderStages."""
        loader = self._inside(loader)
        epoch = Epoch()
        known = epoch.number_callback()
        if self._is_closed or not isinstance(loader, dataloader.DataLoader):
            return known
        opened = _opened_of(loader, self)
        opened.next = epoch
        kind = next(kind for kind in type(loader).__mro__ if "_get_iterator" in vars(kind))
        if kind not in self._kinds:
            self._kinds.add(kind)
            _patch(kind)
        self._continue(loader, opened)
        return known

    def _continue(self, loader: Any, opened: Opened) -> None:
        """Tell an iterator that lives on, with its workers, that this epoch is its next."""
        kept = loader._iterator  # noqa: SLF001 - where a DataLoader keeps it
        is_next = loader.persistent_workers or getattr(
            loader, "_initial_iter_for_state_dict", False
        )
        if kept is None or not is_next:
            return
        known = self._watching(kept) or self._borrowed(kept)
        if known is None:
            self._note(StageNote(STARTED_BEFORE))
            known = self._look_into(loader, kept, None)
        if known is not None:
            known.begin(opened.next)

    def _watching(self, iterator: Any) -> WatchedIterator | None:
        looking = (watched for watched in self._iterators if watched.looks)
        return next((watched for watched in looking if watched.alive() is iterator), None)

    def _borrowed(self, iterator: Any) -> WatchedIterator | None:
        """Borrow `iterator` from another measurement that looks into it; None if none does."""
        of_others = (stages._watching(iterator) for stages in list(_all))  # noqa: SLF001 - of this class
        lender = next(
            (watched for watched in of_others if watched and not isinstance(watched, Borrowed)),
            None,
        )
        if lender is None:
            return None
        borrowed = Borrowed(lender, self._note)
        self._iterators.append(borrowed)
        return borrowed

    def make(self, loader: Any, opened: Opened, original: Callable[[Any], Any]) -> Any:
        """Make an iterator of `loader`, and look into it."""
        if loader.num_workers == 0:
            iterator = original(loader)
            with self._noting():
                watched = self._look_into(loader, iterator, None)
                if watched is not None:
                    watched.begin(opened.taken())
            return iterator
        channel = None
        with self._noting():
            slots = max(64, 4 * loader.num_workers * (loader.prefetch_factor or 2))
            channel = Channel(loader.num_workers, slots)
            channel.words[COUNTS_CALLS] = not self._has_counted_calls
            self._has_counted_calls = True
            channel.words[OPEN] = LOOKING if self._looks else PAUSED
        pins, pickles = Pins(), Pickles()
        with _swapped(loader, channel, pins, pickles) as is_swapped, _timing_indices() as index_ns:
            start_ns = perf_counter_ns()
            iterator = original(loader)
            starting_ns = perf_counter_ns() - start_ns
        with self._noting():
            if not is_swapped:
                self._note(StageNote(NO_WORKER_INIT))
            watched = self._look_into(loader, iterator, channel, pins)
            if watched is not None:
                watched.begin(opened.taken())
                watched.starting, watched.pickles = (start_ns, starting_ns), pickles
            if isinstance(watched, WithWorkers):
                watched.index_ns[0] = index_ns[0]
        return iterator

    def _look_into(
        self, loader: Any, iterator: Any, channel: Channel | None, pins: Pins | None = None
    ) -> WatchedIterator | None:
        if not isinstance(iterator, dataloader._BaseDataLoaderIter):  # noqa: SLF001 - there is no public name
            self._note(StageNote(NOT_TORCHS))
            return None
        watched: WatchedIterator
        if loader.num_workers == 0:
            for other in self._iterators:
                other.make_way()
            watched = InTraining(iterator, self._note, looks=self._looks)
        else:
            watched = WithWorkers(iterator, self._note, channel, pins or Pins(), looks=self._looks)
        self._iterators.append(watched)
        return watched

    def _note(self, note: StageNote) -> None:
        """Keep a note to be taken, once."""
        if note not in self._noted:
            self._noted.add(note)
            self._notes.append(note)

    @contextmanager
    def _noting(self) -> Generator[None]:
        """A DataLoader's iterator is made all the same if we cannot look into it."""
        try:
            yield
        except Exception as error:
            if is_of_a_signal(error):
                raise
            why = f"the loader is not looked into ({type(error).__name__}: {error})"
            self._note(StageNote(why))

    def take(self) -> list[Measured | StageNote]:
        """See LoaderStages."""
        measured: list[Measured | StageNote] = []
        for watched in list(self._iterators):
            is_alive = watched.alive() is not None
            measured += watched.take()
            if not is_alive and watched.is_done():
                self._iterators.remove(watched)
        while self._notes:
            measured.append(self._notes.popleft())
        return measured

    def close(self) -> None:
        """See LoaderStages."""
        self._is_closed = True
        with _lock:
            for key in [key for key, opened in list(_opened.items()) if opened.stages is self]:
                _opened.pop(key, None)
            for kind in self._kinds:
                _unpatch(kind)
            self._kinds.clear()
        for watched in self._iterators:
            watched.close()

    def abandon(self) -> None:
        """Stop in a forked process, where nobody will ask for what was found."""
        self._is_closed = True
        self._kinds.clear()
        for watched in self._iterators:
            watched.epoch = None
        self._iterators.clear()


class Opened:
    """A loader that is looked into: `next` is its epoch that no iterator serves yet."""

    def __init__(self, loader: Any, stages: DataLoaderStages) -> None:
        key = id(loader)
        self.loader = weakref.ref(loader, lambda _: _opened.pop(key, None))
        self.stages = stages
        self.next: Epoch | None = None
        self.is_making = False

    def taken(self) -> Epoch | None:
        """Take the next epoch, so that no other iterator serves it."""
        taken, self.next = self.next, None
        return taken


_lock = threading.RLock()
"""Held while classes are patched, and while an iterator is made."""
_opened: dict[int, Opened] = {}
"""Keyed by the identity of a loader, which need not be hashable."""
_patches: dict[type, tuple[Any, Any, int]] = {}
"""Our `_get_iterator` in each class, the one that it replaced, and how many need it."""
_all: weakref.WeakSet[DataLoaderStages] = weakref.WeakSet()


def _opened_of(loader: Any, stages: DataLoaderStages) -> Opened:
    known = _opened.get(id(loader))
    if known is None or known.stages is not stages or known.loader() is not loader:
        known = _opened[id(loader)] = Opened(loader, stages)
    return known


def _patch(kind: type) -> None:
    with _lock:
        if kind in _patches:
            ours, original, count = _patches[kind]
            _patches[kind] = ours, original, count + 1
            return
        original = vars(kind)["_get_iterator"]

        @functools.wraps(original)
        def _get_iterator(self: Any) -> Any:
            opened = _opened.get(id(self))
            if opened is None or opened.is_making or opened.loader() is not self:
                return original(self)
            opened.is_making = True
            try:
                return opened.stages.make(self, opened, original)
            finally:
                opened.is_making = False

        _patches[kind] = _get_iterator, original, 1
        kind._get_iterator = _get_iterator  # type: ignore[attr-defined]  # noqa: SLF001 - it has one


def _unpatch(kind: type) -> None:
    ours, original, count = _patches[kind]
    _patches[kind] = ours, original, count - 1
    # If another tool has replaced our method, its own calls ours.
    if count == 1 and vars(kind)["_get_iterator"] is ours:
        kind._get_iterator = original  # type: ignore[attr-defined]  # noqa: SLF001 - the class had it
        del _patches[kind]


@contextmanager
def _swapped(loader: Any, channel: Channel | None, pins: Pins, pickles: Pickles) -> Generator[bool]:
    """Let workers and the pinning thread run our functions while an iterator is made."""
    held = vars(loader)  # past a __setattr__ that notes what is set
    with _lock:
        user, loop = held.get("worker_init_fn"), pin_memory._pin_memory_loop  # noqa: SLF001 - looked up there
        ours = WorkerInit(user, channel) if channel and "worker_init_fn" in held else None
        dump = reduction.dump
        if ours is not None:
            held["worker_init_fn"] = ours
            reduction.dump = pickles.timed(dump, ours)
        if loader.pin_memory:
            pin_memory._pin_memory_loop = pins.timed(loop)  # noqa: SLF001 - torch looks it up there
        try:
            yield ours is not None
        finally:
            pin_memory._pin_memory_loop = loop  # noqa: SLF001 - torch looks it up there
            if ours is not None:
                held["worker_init_fn"] = user
                reduction.dump = dump


@contextmanager
def _timing_indices() -> Generator[list[int]]:
    """Add up how long this thread draws indices, while an iterator is made that asks for some."""
    kind, taken_ns, thread = dataloader._BaseDataLoaderIter, [0], threading.get_ident()  # noqa: SLF001 - there is no public name
    with _lock:
        original: Callable[[Any], Any] = kind._next_index  # noqa: SLF001 - torch has no public name

        @functools.wraps(original)
        def _next_index(self: Any) -> Any:
            if threading.get_ident() != thread:
                return original(self)
            start = perf_counter_ns()
            try:
                return original(self)
            finally:
                taken_ns[0] += perf_counter_ns() - start

        kind._next_index = _next_index  # type: ignore[method-assign]  # noqa: SLF001 - it has one
        try:
            yield taken_ns
        finally:
            kind._next_index = original  # type: ignore[method-assign]  # noqa: SLF001 - as it was


def _forget() -> None:
    """Forget all loaders in a forked process, where nobody would ask about them."""
    global _lock  # noqa: PLW0603 - a thread may have held it that is not here
    _lock = threading.RLock()
    _opened.clear()
    for stages in list(_all):
        stages.abandon()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_forget)
