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
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from torch.utils.data import dataloader
from torch.utils.data._utils import pin_memory

from loadeval import StageNote
from loadeval_adapters.torch_trace.channel import UNKNOWN, Channel, is_of_a_signal
from loadeval_adapters.torch_trace.iterators import Epoch, InTraining, WithWorkers
from loadeval_adapters.torch_trace.pickles import timed_dump
from loadeval_adapters.torch_trace.worker import WorkerInit

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from loadeval_adapters.torch_trace.iterators import Measured, Pinned, WatchedIterator

NOT_TORCHS = "the loader has an iterator of its own kind, into which loadeval cannot look"
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
        self.iterators: list[WatchedIterator] = []
        self._epochs: list[tuple[WatchedIterator, Epoch]] = []
        self._notes: deque[StageNote] = deque()
        self._noted: set[StageNote] = set()
        self._kinds: set[type] = set()
        self._is_closed = self._has_counted_calls = False
        self._looks = True
        _all.add(self)

    def look(self, on: bool) -> None:
        """See LoaderStages."""
        self._looks = on
        for watched in self.iterators:
            watched.look(on)

    def begin(self, loader: Any) -> Callable[[int], object]:
        """See LoaderStages."""
        loader, epoch = self._inside(loader), Epoch()
        if self._is_closed or not isinstance(loader, dataloader.DataLoader):
            return epoch.known
        begun = _begun.get(id(loader))
        if begun is None or begun.stages is not self or begun.loader() is not loader:
            begun = _begun[id(loader)] = Begun(loader, self)
        begun.epoch = epoch
        kind = next(kind for kind in type(loader).__mro__ if "_get_iterator" in vars(kind))
        if kind not in self._kinds:
            self._kinds.add(kind)
            _patch(kind)
        kept = loader._iterator  # noqa: SLF001 - where a DataLoader keeps it
        is_next = loader.persistent_workers or getattr(
            loader, "_initial_iter_for_state_dict", False
        )
        if kept is not None and is_next:  # its workers live on, and this epoch is its next
            watched = next((each for each in _watching() if each.alive() is kept), None)
            if watched is None:
                self._note(StageNote(STARTED_BEFORE))
                watched = self._look_into(loader, kept, None, {})
            self._serve(watched, loader)
        return epoch.known

    def _serve(self, watched: WatchedIterator | None, loader: Any) -> None:
        """Let an iterator serve the epoch of `loader` that has begun, and that no other serves."""
        begun = _begun[id(loader)]
        epoch, begun.epoch = begun.epoch, None
        if watched is not None:
            watched.epoch = epoch
            if epoch is not None:
                watched.first_epoch = watched.first_epoch or epoch
                self._epochs.append((watched, epoch))

    def make(self, loader: Any, original: Callable[[Any], Any]) -> Any:
        """Make an iterator of `loader`, and look into it."""
        if loader.num_workers == 0:
            iterator = original(loader)
            with self._noting():
                self._serve(self._look_into(loader, iterator, None, {}), loader)
            return iterator
        channel = None
        with self._noting():
            slots = max(64, 4 * loader.num_workers * (loader.prefetch_factor or 2))
            channel = Channel(loader.num_workers, slots)
            channel.words[Channel.COUNTS_CALLS] = not self._has_counted_calls
            self._has_counted_calls = True
            channel.words[Channel.OPEN] = Channel.LOOKING if self._looks else Channel.PAUSED
        pins: dict[int, Pinned] = {}
        pickled: dict[int, dict[str, int]] = {}
        with _swapped(loader, channel, pins, pickled) as (is_swapped, index_ns):
            start_ns = perf_counter_ns()
            iterator = original(loader)
            starting = start_ns, perf_counter_ns() - start_ns
        with self._noting():
            if not is_swapped:
                self._note(StageNote(NO_WORKER_INIT))
            of_queue = pins.setdefault(id(getattr(iterator, "_worker_result_queue", None)), {})
            watched = self._look_into(loader, iterator, channel, of_queue)
            if isinstance(watched, WithWorkers):
                watched.pickled, watched.starting, watched.index_ns = pickled, starting, index_ns[0]
            self._serve(watched, loader)
        return iterator

    def _look_into(
        self, loader: Any, iterator: Any, channel: Channel | None, pins: Pinned
    ) -> WatchedIterator | None:
        if not isinstance(iterator, dataloader._BaseDataLoaderIter):  # noqa: SLF001 - there is no public name
            self._note(StageNote(NOT_TORCHS))
            return None
        watched: WatchedIterator
        if loader.num_workers:
            watched = WithWorkers(iterator, self._note, channel, pins, looks=self._looks)
        else:
            for other in self.iterators:
                if isinstance(other, InTraining):
                    other.tracer.make_way()  # code that knows the length may never read to the end
            watched = InTraining(iterator, self._note, looks=self._looks)
        self.iterators.append(watched)
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
        for watched in list(self.iterators):
            is_alive = watched.alive() is not None
            measured += watched.take()
            if not is_alive:
                self.iterators.remove(watched)
        for served in list(self._epochs):
            watched, epoch = served
            is_over = watched.alive() is None or watched.epoch is not epoch
            if epoch.rows and epoch.number is not None:
                measured.append(watched.times(epoch))
            if is_over and not epoch.rows:
                self._epochs.remove(served)
        while self._notes:
            measured.append(self._notes.popleft())
        return measured

    def close(self) -> None:
        """See LoaderStages."""
        self._is_closed = True
        with _lock:
            for key in [key for key, begun in list(_begun.items()) if begun.stages is self]:
                _begun.pop(key, None)
            for kind in self._kinds:
                _unpatch(kind)
            self._kinds.clear()
        for watched in self.iterators:
            watched.close()


class Begun:
    """A loader that is looked into: `epoch` has begun, and no iterator serves it yet."""

    def __init__(self, loader: Any, stages: DataLoaderStages) -> None:
        key = id(loader)
        self.loader = weakref.ref(loader, lambda _: _begun.pop(key, None))
        self.stages = stages
        self.epoch: Epoch | None = None
        self.is_making = False


_lock = threading.RLock()
"""Held while classes are patched, and while an iterator is made."""
_begun: dict[int, Begun] = {}
"""By the identity of the loader, which may have no hash."""
_patches: dict[type, tuple[Any, Any, int]] = {}
"""Our `_get_iterator` in each class, the one that it replaced, and how many need it."""
_all: weakref.WeakSet[DataLoaderStages] = weakref.WeakSet()


def _watching() -> Generator[WatchedIterator]:
    """All that look into an iterator, for whichever measurement of its loader."""
    for stages in list(_all):
        yield from (watched for watched in stages.iterators if not watched.is_closed)


def _patch(kind: type) -> None:
    with _lock:
        if kind in _patches:
            ours, original, count = _patches[kind]
            _patches[kind] = ours, original, count + 1
            return
        original = vars(kind)["_get_iterator"]

        @functools.wraps(original)
        def _get_iterator(self: Any) -> Any:
            begun = _begun.get(id(self))
            if begun is None or begun.is_making or begun.loader() is not self:
                return original(self)
            begun.is_making = True
            try:
                return begun.stages.make(self, original)
            finally:
                begun.is_making = False

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
def _swapped(
    loader: Any,
    channel: Channel | None,
    pins: dict[int, Pinned],
    pickled: dict[int, dict[str, int]],
) -> Generator[tuple[bool, list[int]]]:
    """Let our functions be called by workers and the pinning thread of an iterator that is made.

    Yields whether the workers will call ours, and how long this thread has drawn indices.
    """
    kind: Any = dataloader._BaseDataLoaderIter  # noqa: SLF001 - there is no public name
    torchs_pinning: Any = pin_memory
    taken_ns, thread = [0], threading.get_ident()
    held = vars(loader)  # past a __setattr__ that notes what is set
    with _lock:
        user, dump = held.get("worker_init_fn"), reduction.dump
        loop, next_index = torchs_pinning._pin_memory_loop, kind._next_index  # noqa: SLF001 - torch has no public names
        is_swapped = channel is not None and "worker_init_fn" in held

        @functools.wraps(next_index)
        def _next_index(self: Any) -> Any:
            if threading.get_ident() != thread:
                return next_index(self)
            start_ns = perf_counter_ns()
            try:
                return next_index(self)
            finally:
                taken_ns[0] += perf_counter_ns() - start_ns

        if channel is not None and is_swapped:
            held["worker_init_fn"] = ours = WorkerInit(user, channel)
            reduction.dump = timed_dump(dump, ours, pickled)
        if loader.pin_memory:
            torchs_pinning._pin_memory_loop = _timed_loop(loop, pins)  # noqa: SLF001 - torch looks it up there
        kind._next_index = _next_index  # noqa: SLF001 - it has one
        try:
            yield is_swapped, taken_ns
        finally:
            kind._next_index = next_index  # noqa: SLF001 - as it was
            torchs_pinning._pin_memory_loop = loop  # noqa: SLF001 - as it was
            if is_swapped:
                held["worker_init_fn"], reduction.dump = user, dump


def _timed_loop(loop: Callable[..., None], pins: dict[int, Pinned]) -> Callable[..., None]:
    """What the thread runs that pins batches, `loop`, timed by the queues on both sides of it."""

    def timed_loop(incoming: Any, outgoing: Any, *args: Any) -> None:
        of_queue = pins.setdefault(id(incoming), {})

        def get(*args: Any, **kwargs: Any) -> Any:
            start_ns = perf_counter_ns()
            got = incoming.get(*args, **kwargs)
            if type(got[0]) is int:
                of_queue[got[0]] = start_ns, perf_counter_ns(), UNKNOWN
            return got

        def put(item: Any, *args: Any, **kwargs: Any) -> Any:
            now_ns = perf_counter_ns()
            if type(item[0]) is int and item[0] in of_queue:
                start_ns, end_ns, _ = of_queue[item[0]]
                of_queue[item[0]] = start_ns, end_ns, now_ns - end_ns
            return outgoing.put(item, *args, **kwargs)

        loop(SimpleNamespace(get=get), SimpleNamespace(put=put), *args)

    return timed_loop


def _forget() -> None:
    """Forget all loaders in a forked process, where nobody would ask about them."""
    _begun.clear()
    for watched in _watching():
        watched.epoch = None


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_forget)
