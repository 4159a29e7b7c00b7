"""Looks inside torch's DataLoader: what each batch took, in its worker and on its way."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import groupby
from multiprocessing import reduction
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch.utils.data import dataloader
from torch.utils.data._utils import pin_memory

from loadeval import CodeSamples, StageNote, StageTimes, WorkerStart, leaves
from loadeval.errors import Guard
from loadeval_adapters.torch_trace.channel import (
    CLOSED,
    LOOKING,
    PAUSED,
    Channel,
    Record,
    reason,
)
from loadeval_adapters.torch_trace.worker import BEGIN_UNPICKLING, Tracer, WorkerInit

Measured = StageTimes | WorkerStart | CodeSamples
Note = Callable[[StageNote | str], object]
Pins = dict[int, tuple[int, int, int | None]]
"""Start and end of getting a batch, and nanoseconds of pinning it, by torch's number of it."""
NOT_TORCHS = "the loader has an iterator of its own kind, into which loadeval cannot look"
STARTED_BEFORE = (
    "the loader's workers were started before the measurement, so its stages are not timed; "
    "create the LoaderEvaluator before the first epoch"
)
IN_A_THREAD = StageNote(
    "a thread other than the main one reads the loader, and may load ahead of training",
    "read in a thread",
)
MAKES = "_get_iterator"
"""The method with which a DataLoader makes its iterators."""
COUNTED = 4
"""How many batches of an epoch have their tensors counted."""
MOST_PINNED = 1000
"""So many pinned batches are remembered until training gets them."""
BY_TRANSFORM = (
    ("transform_ns", "transforms", 0),
    ("transform_calls", "transforms", 1),
    ("elements_before", "sizes", 0),
    ("elements_after", "sizes", 1),
)
"""Columns of StageTimes, and where a Record has their values."""

_lock = threading.RLock()
"""Held while an iterator is made with functions of ours in torch's modules."""


class Epoch:
    """An epoch, and how many batches the loader has given in it."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.given = 0

    def known(self, number: int) -> None:
        """Called with its number, once its first batch is asked for."""
        self.number = number


def stage_times(epoch: int, rows: Sequence[Record]) -> StageTimes:
    """The line of a log for some batches of an epoch."""
    known = {name for row in rows for name, value in row.items() if value is not None}
    columns: dict[str, Any] = {
        name: [row.get(name) for row in rows] for name in StageTimes.COLUMNS if name in known
    }
    for column, key, place in BY_TRANSFORM:
        transforms = dict.fromkeys(name for row in rows for name in row.get(key, ()))
        columns[column] = {
            name: [row.get(key, {}).get(name, (None, None))[place] for row in rows]
            for name in transforms
        }
    return StageTimes(epoch, **columns)


def code_samples(rows: Sequence[Record]) -> list[CodeSamples]:
    """The lines of code in which workers were seen, by worker and stage."""
    seen: dict[tuple[int | None, Any], dict[str, Any]] = {}
    for row in rows:
        for (stage, kind, place), count in row.get("code", {}).items():
            kinds = seen.setdefault((row.get("worker"), stage), {"running": {}, "blocked": {}})
            counts = kinds.setdefault(kind, {})
            counts[place] = counts.get(place, 0) + count
    return [CodeSamples(worker, **kinds, stage=stage) for (worker, stage), kinds in seen.items()]


def tensors_in(batch: Any) -> int | None:
    """How many tensors `batch` has, each counted once; None if it has too many nodes."""
    try:
        return len({id(leaf) for leaf in leaves(batch) if issubclass(type(leaf), Tensor)})
    except ValueError:
        return None


class WatchedIterator:
    """An iterator of a DataLoader that is looked into; `epoch` is its own, None once it is closed.

    `rows` has what is known of its batches, in the order in which the loader gave them. While it
    is looked into, it has `_hooks` in place of its methods.
    """

    def __init__(self, note: Note, epoch: Epoch) -> None:
        self.alive: Callable[[], Any] = lambda: None
        self.epoch: Epoch | None = epoch
        self.rows: deque[tuple[Epoch, Record]] = deque()
        self.index_ns = 0
        self._note = note
        self._looks = False
        self._process = os.getpid()
        self._guard = Guard(self._fail)
        self._hooks: dict[str, Callable[..., Any]] = {}

    def attach(self, iterator: Any) -> None:
        """Look into `iterator`, once `look` says so."""
        self.alive = weakref.ref(iterator)
        # Of an epoch that is resumed; behind the end of one comes the next.
        self._before = 0 if has_ended(iterator) else iterator._num_yielded  # noqa: SLF001 - torch has no public name
        self._hook("_next_data", self._next)

    def _hook(self, name: str, timed: Callable[..., Any]) -> None:
        """Have `timed` called with a method, and with its iterator, in place of the method."""
        method = getattr(type(self.alive()), name)
        self._hooks[name] = lambda *args, **kwargs: timed(method, self.alive(), *args, **kwargs)

    def serve(self, epoch: Epoch) -> None:
        """The batches from now on are those of this epoch, from its first."""
        self.epoch, self._before = epoch, 0

    def _draw(self, method: Callable[[Any], Any], iterator: Any) -> Any:
        """Draw indices, which are the next batch's."""
        start_ns = perf_counter_ns()
        try:
            return method(iterator)
        finally:
            self.index_ns += perf_counter_ns() - start_ns

    def _next(self, give: Callable[[Any], Any], iterator: Any) -> Any:
        requested_ns = perf_counter_ns()
        try:
            batch = give(iterator)
        except StopIteration:
            self._exhausted()
            raise
        times = {"requested_ns": requested_ns, "delivered_ns": perf_counter_ns()}
        times["index_ns"], self.index_ns = self.index_ns, 0
        with self._guard:
            known, epoch = self._known_of(batch, times["delivered_ns"]), self.epoch
            # A fork may read on, of which nobody takes what is known.
            if known is not None and epoch is not None and os.getpid() == self._process:
                self.rows.append((epoch, {**times, **known, "batch": epoch.given}))
                epoch.given += 1
        return batch

    def _known_of(self, batch: Any, delivered_ns: int) -> Record | None:
        """What is known of the batch that was given last."""
        raise NotImplementedError

    def _exhausted(self) -> None:
        """The loader has no more batches."""

    def look(self, on: bool) -> None:
        """Look into the iterator from the batch on that it gives next, or no longer."""
        iterator, epoch = self.alive(), self.epoch
        if on == self._looks or epoch is None or iterator is None:
            return
        self._looks = on
        if on:
            self._resume(iterator)
            vars(iterator).update(self._hooks)
            epoch.given = iterator._num_yielded - self._before  # noqa: SLF001 - torch has no public name
        else:
            self._pause(iterator)

    def close(self) -> None:
        """Leave the iterator as it was; workers stop looking at their next batch."""
        self.epoch = None
        self._pause(self.alive())

    def _resume(self, iterator: Any) -> None:
        """Have it looked into by whoever fetches."""
        raise NotImplementedError

    def _pause(self, iterator: Any) -> None:
        for name in self._hooks if iterator is not None else ():
            vars(iterator).pop(name, None)

    def _fail(self, error: Exception) -> None:
        """Stop looking, and say why."""
        self._note(f"the loader is not looked into any more ({reason(error)})")
        self.close()

    def take(self) -> list[Measured]:
        """What is known beside its batches."""
        return []


class InTraining(WatchedIterator):
    """An iterator without workers: the training process itself fetches."""

    def attach(self, iterator: Any) -> None:
        """See WatchedIterator."""
        super().attach(iterator)
        self._hook("_next_index", self._draw)
        self._pins = iterator._pin_memory  # noqa: SLF001 - torch has no public name
        self._fetched: Record | None = None
        self._tracer = tracer = Tracer(
            iterator._dataset,  # noqa: SLF001 - what it fetches from
            "the loader",
            self._note,
            in_training=True,
        )
        weakref.finalize(iterator, tracer.close).atexit = False

    def _known_of(self, batch: Any, delivered_ns: int) -> Record | None:
        known, self._fetched = self._fetched, None
        if known is None or self.epoch is None:
            return None
        if self._pins:
            taken_ns = known["fetch_start_ns"] + known["fetch_ns"] + known["collate_ns"]
            known["pin_ns"] = delivered_ns - taken_ns
        if self.epoch.given < COUNTED:
            known["tensors"] = tensors_in(batch)
            if threading.current_thread() is not threading.main_thread():
                self._note(IN_A_THREAD)
        return known

    def _exhausted(self) -> None:
        self._tracer.close()

    def make_way(self) -> None:
        """Leave the dataset's transforms to another iterator."""
        self._tracer.make_way()

    def close(self) -> None:
        """Leave the iterator and the dataset as they were. The iterator may still fetch."""
        super().close()
        self.make_way()

    def _pause(self, iterator: Any) -> None:
        super()._pause(iterator)
        if iterator is not None:
            vars(iterator._dataset_fetcher).pop("fetch", None)  # noqa: SLF001 - there is no other way in
        self._tracer.look(on=False)

    def _resume(self, iterator: Any) -> None:
        self._tracer.look(on=True)
        fetcher = iterator._dataset_fetcher  # noqa: SLF001 - there is no other way in
        torchs, itself = type(fetcher).fetch, weakref.ref(fetcher)

        def timed_fetch(index: Any) -> Any:
            batch, self._fetched = self._tracer.fetch(torchs, itself(), index)
            return batch

        fetcher.fetch = timed_fetch


class WithWorkers(WatchedIterator):
    """An iterator whose worker processes report by `channel`."""

    def __init__(self, note: Note, epoch: Epoch, channel: Channel) -> None:
        super().__init__(note, epoch)
        self._channel = channel
        self._first = epoch
        self._starting = {"start_ns": 0, "starting_ns": 0}
        self._not_started = set(range(channel.workers))
        self._sent: list[dict[str, int]] = []
        self._received: dict[int, Record] = {}
        self._ends: list[Record] = []
        self._pins: Pins = {}

    @contextmanager
    def starting(self, loader: Any, *, counts_calls: bool) -> Generator[None]:
        """While an iterator is made, give functions of ours to workers and the pinning thread."""
        kind: Any = dataloader._BaseDataLoaderIter  # noqa: SLF001 - there is no public name
        pinning: Any = pin_memory
        with _lock:
            user, dump = loader.worker_init_fn, reduction.dump
            loop, next_index = pinning._pin_memory_loop, kind._next_index  # noqa: SLF001 - torch has no public names

            def _next_index(iterator: Any) -> Any:
                return self._draw(next_index, iterator)

            ours = WorkerInit(user, self._channel, counts_calls=counts_calls)
            vars(loader)["worker_init_fn"] = ours  # past a __setattr__ that notes what is set
            reduction.dump = timed_dump(dump, ours, self._sent)
            pinning._pin_memory_loop = self._timed_pinning(loop)  # noqa: SLF001 - torch looks it up there
            kind._next_index = _next_index  # noqa: SLF001 - it has one
            start_ns = perf_counter_ns()
            try:
                yield
            finally:
                self._starting = {"start_ns": start_ns, "starting_ns": perf_counter_ns() - start_ns}
                kind._next_index = next_index  # noqa: SLF001 - as it was
                pinning._pin_memory_loop = loop  # noqa: SLF001 - as it was
                vars(loader)["worker_init_fn"], reduction.dump = user, dump

    def _timed_pinning(self, loop: Callable[..., None]) -> Callable[..., None]:
        """What the pinning thread runs, `loop`, timed by the queues on both sides of it."""

        def timed_loop(incoming: Any, outgoing: Any, *args: Any) -> None:
            start_ns = end_ns = 0

            def get(*args: Any, **kwargs: Any) -> Any:
                nonlocal start_ns, end_ns
                start_ns = perf_counter_ns()
                got = incoming.get(*args, **kwargs)
                end_ns = perf_counter_ns()
                return got

            def put(item: Any, *args: Any, **kwargs: Any) -> Any:
                if type(item[0]) is int:
                    self._pins[item[0]] = start_ns, end_ns, perf_counter_ns() - end_ns
                    self._pins.pop(item[0] - MOST_PINNED, None)
                return outgoing.put(item, *args, **kwargs)

            loop(SimpleNamespace(get=get), SimpleNamespace(put=put), *args)

        return timed_loop

    def attach(self, iterator: Any) -> None:
        """See WatchedIterator. It is looked into at once, so that no batch is missed."""
        super().attach(iterator)
        self._hook("_try_put_index", self._draw)
        self._hook("_try_get_data", self._get)
        self._in_order = getattr(iterator, "_in_order", True)  # since torch 2.6
        vars(iterator).update(self._hooks)
        self._looks = True

    def _get(self, get: Callable[..., Any], iterator: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = perf_counter_ns()
        got = get(iterator, *args, **kwargs)
        end_ns = perf_counter_ns()
        if got[0] and type(got[1][0]) is int:
            with self._guard:
                self._last = got[1][0]
                self._received[self._last] = self._receipt(self._last, start_ns, end_ns)
        return got

    def _receipt(self, idx: int, start_ns: int, end_ns: int) -> Record:
        """What is known of a batch when it has come, between these moments."""
        known = self._channel.take(self._channel.of_batch(idx), idx)
        start_ns, received_ns, pin_ns = self._pins.pop(idx, (start_ns, end_ns, None))
        if known is not None and "fetch_ns" not in known:  # it is the end of a worker's epoch
            self._ends.append(known)
            known = None
        if known is None:
            return {"received_ns": received_ns, "pin_ns": pin_ns}
        ready_ns = known["pickle_start_ns"] + known["pickle_ns"]
        receive_ns = max(0, received_ns - max(start_ns, ready_ns))
        return {**known, "received_ns": received_ns, "receive_ns": receive_ns, "pin_ns": pin_ns}

    def _known_of(self, batch: Any, delivered_ns: int) -> Record | None:  # noqa: ARG002 - as of all
        idx = self.alive()._rcvd_idx - 1 if self._in_order else self._last  # noqa: SLF001 - torch has no public name
        return self._received.pop(idx, {})

    def close(self) -> None:
        """See WatchedIterator."""
        super().close()
        self._channel.state = CLOSED

    def _pause(self, iterator: Any) -> None:
        super()._pause(iterator)
        self._channel.state = PAUSED

    def _resume(self, iterator: Any) -> None:  # noqa: ARG002 - as of all
        self._received.clear()  # what was on its way has been given meanwhile
        self._pins.clear()
        self.index_ns = 0
        self._channel.state = LOOKING

    def take(self) -> list[Measured]:
        """How workers started, and lines of code of the ends of their epochs."""
        ends, self._ends = self._ends, []
        taken: list[Measured] = [*code_samples(ends)]
        channel, epoch = self._channel, self._first.number
        if epoch is None:
            return taken
        for worker in range(channel.workers):
            told = channel.take(channel.of_worker(worker)) or {"notes": []}
            for message in told["notes"]:
                self._note(message)
            taken += code_samples([{**told, "worker": worker}])
            if "start" in told and worker in self._not_started:
                self._not_started.remove(worker)
                start = {**self._starting, **told["start"]}
                if self._sent:
                    start |= self._sent[worker]
                taken.append(WorkerStart(epoch, worker, **start))
        return taken


def timed_dump(
    dump: Callable[..., None], ours: WorkerInit, sent_to: list[dict[str, int]]
) -> Callable[..., None]:
    """Wrap the `dump` with which multiprocessing pickles the processes that it starts.

    `sent_to` gets columns of WorkerStart of each process that has `ours` among its arguments.
    """

    def timed(sent: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        if all(argument is not ours for argument in getattr(sent, "_args", ())):
            dump(sent, file, *args, **kwargs)
            return
        file.write(BEGIN_UNPICKLING)
        start, start_ns = file.tell(), perf_counter_ns()
        dump(sent, file, *args, **kwargs)
        took_ns, sent_bytes = perf_counter_ns() - start_ns, file.tell() - start
        took = {"pickling_start_ns": start_ns, "pickling_ns": took_ns, "sent_bytes": sent_bytes}
        sent_to.append(took)

    return timed


def has_ended(iterator: Any) -> bool:
    """Whether an iterator of torchdata's was made of the state at the end of an epoch."""
    return bool(getattr(iterator, "_finished", False))


def is_replaced(iterator: Any, loader: Any) -> bool:
    """Whether torchdata's loader makes another iterator at once."""
    return has_ended(iterator) and not loader.persistent_workers


class DataLoaderStages:
    """Times what happens inside torch's DataLoaders, in this process and in their workers.

    `inside(loader)` is the DataLoader within what is iterated. From `begin` until its iterator is
    made, a DataLoader has a method of ours that makes it.
    """

    def __init__(self, inside: Callable[[Any], Any]) -> None:
        self._inside = inside
        self._iterators: list[WatchedIterator] = []
        self._notes: list[StageNote] = []
        self._is_closed = self._has_counted_calls = False
        self._looks = True
        self._begun: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._guard = Guard(
            lambda error: self._note(f"the loader is not looked into ({reason(error)})")
        )

    def look(self, on: bool) -> None:
        """See LoaderStages."""
        self._looks = on
        for watched in list(self._iterators):
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
        if kept is None or not is_next or is_replaced(kept, loader):
            vars(loader)[MAKES] = Making(self, loader, epoch)
            self._begun[id(loader)] = loader
            return epoch.known
        for watched in self._iterators:  # its workers live on, and this epoch is its next
            if watched.alive() is kept and watched.epoch is not None:
                watched.serve(epoch)
                return epoch.known
        if loader.num_workers > 0:
            self._note(STARTED_BEFORE)
        else:
            self._watch(None, kept, epoch)
        return epoch.known

    def make(self, loader: Any, epoch: Epoch) -> Any:
        """Make an iterator of `loader`, and look into it."""
        original = getattr(type(loader), MAKES)
        if self._is_closed:
            return original(loader)
        watched: WithWorkers | None = None
        with self._guard:
            if loader.num_workers > 0:
                under_way = loader.num_workers * (1 + (loader.prefetch_factor or 2))
                apart = 1 if getattr(loader, "in_order", True) else 4  # by how much they overtake
                channel = Channel(loader.num_workers, max(16, apart * under_way))
                channel.state = LOOKING if self._looks else PAUSED
                watched = WithWorkers(self._note, epoch, channel)
        if watched is None:
            iterator = original(loader)
        else:
            counts_calls, self._has_counted_calls = not self._has_counted_calls, True
            with watched.starting(loader, counts_calls=counts_calls):
                iterator = original(loader)
        with self._guard:
            if is_replaced(iterator, loader):
                vars(loader)[MAKES] = Making(self, loader, epoch)
            elif watched is not None or loader.num_workers == 0:
                self._watch(watched, iterator, epoch)
        return iterator

    def _watch(self, watched: WithWorkers | None, iterator: Any, epoch: Epoch) -> None:
        """Look into an iterator, whose workers are watched if it has some."""
        if not isinstance(iterator, dataloader._BaseDataLoaderIter):  # noqa: SLF001 - there is no public name
            self._note(NOT_TORCHS)
            return
        new: WatchedIterator = watched or InTraining(self._note, epoch)
        for other in self._iterators if watched is None else ():
            if isinstance(other, InTraining):
                other.make_way()  # code that knows the length may never read to the end
        new.attach(iterator)
        new.look(self._looks)
        self._iterators.append(new)

    def _note(self, note: StageNote | str) -> None:
        """Keep a note to be taken."""
        self._notes.append(StageNote(note) if isinstance(note, str) else note)

    def take(self) -> list[Measured | StageNote]:
        """See LoaderStages."""
        measured: list[Measured | StageNote] = []
        for watched in list(self._iterators):
            is_alive = watched.alive() is not None
            measured += watched.take()
            rows = []
            while watched.rows and watched.rows[0][0].number is not None:
                rows.append(watched.rows.popleft())
            for number, of_epoch in groupby(rows, lambda row: row[0].number or 0):
                records = [record for _, record in of_epoch]
                measured += [*code_samples(records), stage_times(number, records)]
            if not (is_alive or watched.rows):
                self._iterators.remove(watched)
        while self._notes:
            measured.append(self._notes.pop(0))
        return measured

    def close(self) -> None:
        """See LoaderStages."""
        self._is_closed = True
        for loader in list(self._begun.values()):
            if getattr(vars(loader).get(MAKES), "stages", None) is self:
                del vars(loader)[MAKES]
        for watched in list(self._iterators):
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
