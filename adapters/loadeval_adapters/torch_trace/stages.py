"""Looks inside torch's DataLoader: what each batch took, in its worker and on its way."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing import reduction
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

from torch.utils.data import dataloader
from torch.utils.data._utils import pin_memory

from loadeval import StageNote
from loadeval_adapters.torch_trace.channel import UNKNOWN, Channel, is_of_a_signal
from loadeval_adapters.torch_trace.iterators import (
    Epoch,
    InTraining,
    Measured,
    Pinned,
    WatchedIterator,
    WithWorkers,
)
from loadeval_adapters.torch_trace.pickles import timed_dump
from loadeval_adapters.torch_trace.worker import WorkerInit

NOT_TORCHS = "the loader has an iterator of its own kind, into which loadeval cannot look"
STARTED_BEFORE = (
    "the loader's workers were started before the measurement, so what they do is not timed; "
    "create the LoaderEvaluator before the first epoch"
)
MAKES = "_get_iterator"
"""The method with which a DataLoader makes its iterators."""

_lock = threading.RLock()
"""Held while an iterator is made with functions of ours in torch's modules."""
_watched: weakref.WeakKeyDictionary[Any, WatchedIterator] = weakref.WeakKeyDictionary()
"""What looks into an iterator, for whichever measurement of its loader."""


class DataLoaderStages:
    """Times what happens inside torch's DataLoaders, in this process and in their workers.

    `inside(loader)` is the DataLoader within what is iterated. From `begin` until its iterator is
    made, a DataLoader has a method of ours that makes it.
    """

    def __init__(self, inside: Callable[[Any], Any]) -> None:
        self._inside = inside
        self._iterators: list[WatchedIterator] = []
        self._epochs: list[tuple[WatchedIterator, Epoch]] = []
        self._notes: list[StageNote] = []
        self._noted: set[StageNote] = set()
        self._is_closed = self._has_counted_calls = False
        self._looks = True
        self._begun: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def look(self, on: bool) -> None:
        """See LoaderStages."""
        self._looks = on
        for watched in self._iterators:
            watched.look(on)

    def begin(self, loader: Any) -> Callable[[int], object]:
        """See LoaderStages."""
        loader, epoch = self._inside(loader), Epoch()
        if self._is_closed or not isinstance(loader, dataloader.DataLoader):
            return epoch.known
        kept = loader._iterator  # noqa: SLF001 - where a DataLoader keeps it
        is_next = loader.persistent_workers or getattr(
            loader, "_initial_iter_for_state_dict", False
        )
        if kept is not None and is_next:  # its workers live on, and this epoch is its next
            watched = _watched.get(kept)
            if watched is None or watched.is_closed:
                self._note(StageNote(STARTED_BEFORE))
                watched = self._look_into(loader, kept, None, {})
            self._serve(watched, epoch)
            return epoch.known
        vars(loader)[MAKES] = Making(self, loader, epoch)
        self._begun[id(loader)] = loader
        return epoch.known

    def _serve(self, watched: WatchedIterator | None, epoch: Epoch) -> None:
        if watched is not None:
            watched.epoch = epoch
            watched.first_epoch = watched.first_epoch or epoch
            self._epochs.append((watched, epoch))

    def make(self, loader: Any, epoch: Epoch) -> Any:
        """Make an iterator of `loader`, and look into it."""
        original = getattr(type(loader), MAKES)
        if self._is_closed:
            return original(loader)
        if loader.num_workers == 0:
            iterator = original(loader)
            with self._noting():
                self._serve(self._look_into(loader, iterator, None, {}), epoch)
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
        with _swapped(loader, channel, pins, pickled) as index_ns:
            start_ns = perf_counter_ns()
            iterator = original(loader)
            starting = start_ns, perf_counter_ns() - start_ns
        with self._noting():
            of_queue = pins.setdefault(id(getattr(iterator, "_worker_result_queue", None)), {})
            watched = self._look_into(loader, iterator, channel, of_queue)
            if isinstance(watched, WithWorkers):
                watched.pickled, watched.starting, watched.index_ns = pickled, starting, index_ns[0]
            self._serve(watched, epoch)
        return iterator

    def _look_into(
        self, loader: Any, iterator: Any, channel: Channel | None, pins: Pinned
    ) -> WatchedIterator | None:
        if not isinstance(iterator, dataloader._BaseDataLoaderIter):  # noqa: SLF001 - there is no public name
            self._note(StageNote(NOT_TORCHS))
            return None
        watched: WatchedIterator
        if loader.num_workers:
            watched = WithWorkers(iterator, self._note, channel, pins)
        else:
            for other in self._iterators:
                if isinstance(other, InTraining):
                    other.tracer.make_way()  # code that knows the length may never read to the end
            watched = InTraining(iterator, self._note)
        watched.look(self._looks)
        self._iterators.append(watched)
        _watched[iterator] = watched
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
            if not is_alive:
                self._iterators.remove(watched)
        for served in list(self._epochs):
            watched, epoch = served
            is_over = watched.alive() is None or watched.epoch is not epoch
            if epoch.rows and epoch.number is not None:
                measured.append(watched.times(epoch))
            if is_over and not epoch.rows:
                self._epochs.remove(served)
        while self._notes:
            measured.append(self._notes.pop(0))
        return measured

    def close(self) -> None:
        """See LoaderStages."""
        self._is_closed = True
        for loader in list(self._begun.values()):
            if getattr(vars(loader).get(MAKES), "stages", None) is self:
                del vars(loader)[MAKES]
        for watched in self._iterators:
            watched.close()


class Making:
    """Stands for the method of `loader` that makes its iterators, until it has made one."""

    def __init__(self, stages: DataLoaderStages, loader: Any, epoch: Epoch) -> None:
        self.stages = stages
        self._loader, self._epoch = loader, epoch

    def __call__(self) -> Any:
        """Make an iterator that is looked into; as ever for a shallow copy of the loader."""
        if vars(self._loader).pop(MAKES, None) is not self:
            return getattr(type(self._loader), MAKES)(self._loader)
        return self.stages.make(self._loader, self._epoch)

    def __reduce__(self) -> Any:
        """A copy or pickle of the loader has the method of its class."""
        return getattr, (self._loader, MAKES)


@contextmanager
def _swapped(
    loader: Any,
    channel: Channel | None,
    pins: dict[int, Pinned],
    pickled: dict[int, dict[str, int]],
) -> Generator[list[int]]:
    """Let our functions be called by workers and the pinning thread of an iterator that is made.

    Yields how long this thread has drawn indices.
    """
    kind: Any = dataloader._BaseDataLoaderIter  # noqa: SLF001 - there is no public name
    torchs_pinning: Any = pin_memory
    taken_ns, thread = [0], threading.get_ident()
    with _lock:
        user, dump = loader.worker_init_fn, reduction.dump
        loop, next_index = torchs_pinning._pin_memory_loop, kind._next_index  # noqa: SLF001 - torch has no public names

        @functools.wraps(next_index)
        def _next_index(self: Any) -> Any:
            if threading.get_ident() != thread:
                return next_index(self)
            start_ns = perf_counter_ns()
            try:
                return next_index(self)
            finally:
                taken_ns[0] += perf_counter_ns() - start_ns

        if channel is not None:
            ours = WorkerInit(user, channel)
            vars(loader)["worker_init_fn"] = ours  # past a __setattr__ that notes what is set
            reduction.dump = timed_dump(dump, ours, pickled)
        torchs_pinning._pin_memory_loop = _timed_loop(loop, pins)  # noqa: SLF001 - torch looks it up there
        kind._next_index = _next_index  # noqa: SLF001 - it has one
        try:
            yield taken_ns
        finally:
            kind._next_index = next_index  # noqa: SLF001 - as it was
            torchs_pinning._pin_memory_loop = loop  # noqa: SLF001 - as it was
            vars(loader)["worker_init_fn"], reduction.dump = user, dump


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
