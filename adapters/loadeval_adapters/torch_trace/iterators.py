"""The iterators of a DataLoader: each is timed in the training process, with what workers tell."""

from __future__ import annotations

import os
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np
from torch import Tensor

from loadeval import CodeSamples, StageNote, StageTimes, WorkerStart, leaves
from loadeval_adapters.torch_trace.channel import (
    FIXED,
    RECORD,
    STRIDE,
    UNKNOWN,
    WORD,
    Channel,
    is_of_a_signal,
)
from loadeval_adapters.torch_trace.worker import Tracer

Measured = StageTimes | WorkerStart | CodeSamples
Note = Callable[[StageNote], object]
Pinned = dict[int, tuple[int, int, int]]
"""Start and end of getting a batch, and nanoseconds of pinning it, by torch's number of it."""

ROW = (
    *("batch", "requested_ns", "delivered_ns", "index_ns", "idx"),
    *("get_start_ns", "received_ns", "pin_ns", "tensors"),
)
"""What the training process notes of a batch, besides its worker's record."""
NOT_RECEIVED = NOT_PICKLED = (UNKNOWN, UNKNOWN, UNKNOWN)
IN_A_THREAD = StageNote(
    "a thread other than the main one reads the loader, and may load ahead of training",
    "read in a thread",
)
COUNTED = 4
"""How many batches of an epoch have their tensors counted."""


def tensors_in(batch: Any) -> int:
    """How many tensors `batch` has, each counted once; UNKNOWN if it has too many nodes."""
    try:
        return len({id(leaf) for leaf in leaves(batch) if issubclass(type(leaf), Tensor)})
    except ValueError:
        return UNKNOWN


class Epoch:
    """One epoch's batches, in the order in which the loader gave them: rows, and their records."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.rows: deque[tuple[tuple[int, ...], bytes]] = deque()
        self.given = 0
        self._process = os.getpid()

    def known(self, number: int) -> None:
        """Called with its number, once its first batch is asked for."""
        self.number = number

    def add(self, row: tuple[int, ...], record: bytes) -> None:
        """Note the next batch that the loader gave, unless to a fork, of which nobody takes it."""
        if os.getpid() == self._process:
            self.rows.append(((self.given, *row), record))
            self.given += 1


class WatchedIterator:
    """An iterator of a DataLoader that is looked into; `epoch` is the one that it serves.

    Whoever fetches for it tells by `channel`; None if nobody does. While it is looked into, it has
    `_hooks` in place of its methods.
    """

    _has_workers = True

    def __init__(self, iterator: Any, note: Note, channel: Channel | None) -> None:
        self.alive: Callable[[], Any] = weakref.ref(iterator)
        self.epoch: Epoch | None = None
        self.first_epoch: Epoch | None = None
        self.is_closed, self._is_paused = False, True
        self._note, self._channel = note, channel
        workers = range(0 if channel is None else channel.workers)
        self._texts: dict[int, dict[str, Any]] = {worker: {} for worker in workers}
        self._versions = dict.fromkeys(workers, 0)
        self._seen: dict[tuple[int, str, str, str], int] = {}
        self._sized: set[int] = set()
        self._hooks: dict[str, Any] = {}

    def take(self) -> list[Measured]:
        """The lines of code of whoever fetches, since the last call; also its notes are taken."""
        samples: list[Measured] = []
        for worker, known in self._versions.items():
            read = None if self._channel is None else self._channel.read_text(worker, known)
            if read is None:
                continue
            self._versions[worker], self._texts[worker] = read
            for message in read[1].get("notes", ()):
                self._note(StageNote(message))
            for stage, kinds in read[1].get("code", {}).items():
                more: dict[str, dict[str, int]] = {kind: {} for kind in kinds}
                for kind, counts in kinds.items():
                    for place, count in counts.items():
                        before = self._seen.get((worker, stage, kind, place), 0)
                        if count > before:
                            more[kind][place] = count - before
                            self._seen[worker, stage, kind, place] = count
                if any(more.values()):
                    who = worker if self._has_workers else None
                    samples.append(CodeSamples(who, **more, stage=stage))
        return samples

    def times(self, epoch: Epoch) -> StageTimes:
        """The batches of an epoch that it served, since the last call."""
        rows, records = zip(*(epoch.rows.popleft() for _ in range(len(epoch.rows))), strict=True)
        own = dict(zip(ROW, np.array(rows, np.int64).T, strict=True))
        words = b"".join([record.ljust(STRIDE * WORD, b"\xff") for record in records])
        record = np.frombuffer(words, np.int64).reshape(-1, STRIDE)
        # Where in_order=False lets batches overtake, one may have been written over another.
        is_its_own = (record[:, 0] == own["idx"]) & (record[:, FIXED - 1] == own.pop("idx"))
        record = np.where(is_its_own[:, None], record, UNKNOWN)
        column = dict(zip(RECORD, record.T[:FIXED], strict=True))
        del column["idx"], column["same_idx"]
        ready_ns, received_ns = column["pickle_start_ns"] + column["pickle_ns"], own["received_ns"]
        is_known = (received_ns != UNKNOWN) & (column["pickle_ns"] != UNKNOWN)
        receive_ns = np.maximum(received_ns - np.maximum(own.pop("get_start_ns"), ready_ns), 0)
        named: dict[str, dict[str, Any]] = {}

        def column_of(name: str, transform: str) -> Any:
            return named.setdefault(name, {}).setdefault(transform, np.full(len(rows), np.nan))

        for worker in np.unique(column["worker"][is_its_own]).tolist():
            text = self._texts.get(max(worker, 0), {})
            of_worker = is_its_own & (column["worker"] == worker)
            for number, transform in enumerate(text.get("names", ())):
                for name, place in (("transform_ns", FIXED), ("transform_calls", FIXED + 1)):
                    column_of(name, transform)[of_worker] = record[of_worker, place + 2 * number]
            sizes = {} if worker in self._sized else text.get("sizes", {})
            for name, by_transform in sizes.items():
                for transform, value in by_transform.items():
                    self._sized.add(worker)
                    column_of(name, transform)[of_worker.argmax()] = value
        return StageTimes.of(
            epoch=epoch.number or 0,
            receive_ns=np.where(is_known, receive_ns, UNKNOWN),
            **own,
            **named,
            **column,
        )

    def look(self, on: bool) -> None:
        """Look into the iterator from the batch on that it gives next, or no longer."""
        iterator = self.alive()
        if on != self._is_paused or self.is_closed or iterator is None:
            return
        self._is_paused = not on
        if on:
            self._resume(iterator)
            vars(iterator).update(self._hooks)
            if self.epoch is not None:
                self.epoch.given = iterator._num_yielded  # noqa: SLF001 - torch has no public name
        else:
            self._pause()

    def close(self) -> None:
        """Leave the iterator as it was; workers stop looking at their next batch."""
        self.epoch, self.is_closed = None, True
        self._pause()
        if self._channel is not None:
            self._channel.words[Channel.OPEN] = Channel.CLOSED

    def _pause(self) -> None:
        iterator = self.alive()
        for name in self._hooks if iterator is not None else ():
            vars(iterator).pop(name, None)
        if self._channel is not None:
            self._channel.words[Channel.OPEN] = Channel.PAUSED

    def _resume(self, iterator: Any) -> None:  # noqa: ARG002 - a subclass needs it
        if self._channel is not None:
            self._channel.words[Channel.OPEN] = Channel.LOOKING

    def _fail(self, error: Exception) -> None:
        """Stop looking, and say why. Raises what a signal's handler raised."""
        if is_of_a_signal(error):
            raise error
        self._note(
            StageNote(f"the loader is not looked into any more ({type(error).__name__}: {error})")
        )
        self.close()


class InTraining(WatchedIterator):
    """An iterator without workers: the training process itself fetches."""

    _has_workers = False

    def __init__(self, iterator: Any, note: Note) -> None:
        channel = Channel(1, 1, shared=False)
        super().__init__(iterator, note, channel)
        self.tracer = Tracer(channel, 0, in_training=True)
        weakref.finalize(iterator, self.tracer.close).atexit = False
        self._has_begun = False
        alive, tracer, index_ns = self.alive, self.tracer, 0
        give, next_index = type(iterator)._next_data, type(iterator)._next_index  # noqa: SLF001 - torch has no public name
        is_pinned = iterator._pin_memory  # noqa: SLF001 - torch has no public name

        def timed_next_index() -> Any:
            nonlocal index_ns
            start_ns = perf_counter_ns()
            try:
                return next_index(alive())
            finally:
                index_ns = perf_counter_ns() - start_ns

        def timed_next_data() -> Any:
            requested_ns = perf_counter_ns()
            try:
                batch = give(alive())
            except StopIteration:
                tracer.close()
                raise
            delivered_ns, epoch, taken = perf_counter_ns(), self.epoch, tracer.take()
            if epoch is not None and taken is not None:
                try:
                    words, spent = taken
                    _, start_ns, fetch_ns, collate_ns, *_ = words
                    pinned_ns = delivered_ns - start_ns - fetch_ns - collate_ns
                    tensors = UNKNOWN
                    if epoch.given < COUNTED:
                        tensors = tensors_in(batch)
                        if threading.current_thread() is not threading.main_thread():
                            self._note(IN_A_THREAD)
                    record = (0, UNKNOWN, *words, *NOT_PICKLED, 0, *spent)
                    pin_ns = pinned_ns if is_pinned else UNKNOWN
                    row = requested_ns, delivered_ns, index_ns, 0, UNKNOWN, UNKNOWN, pin_ns, tensors
                    epoch.add(row, struct.pack(f"{len(record)}q", *record))
                except Exception as error:  # noqa: BLE001 - looking may not end a training
                    self._fail(error)
            return batch

        self._hooks.update(_next_data=timed_next_data, _next_index=timed_next_index)

    def close(self) -> None:
        """Leave the iterator and the dataset as they were. The iterator may still fetch."""
        super().close()
        self.tracer.make_way()

    def _pause(self) -> None:
        super()._pause()
        iterator = self.alive()
        if iterator is not None:
            vars(iterator._dataset_fetcher).pop("fetch", None)  # noqa: SLF001 - there is no other way in
        self.tracer.transforms.pause()

    def _resume(self, iterator: Any) -> None:
        super()._resume(iterator)
        if self._has_begun:
            self.tracer.transforms.resume()
        else:
            self._has_begun = True
            self.tracer.look_into(iterator._dataset)  # noqa: SLF001 - what it fetches from
        fetcher, tracer = iterator._dataset_fetcher, self.tracer  # noqa: SLF001 - there is no other way in
        torchs, itself = type(fetcher).fetch, weakref.ref(fetcher)
        fetcher.fetch = lambda index: tracer.fetch(torchs, itself(), index)


class WithWorkers(WatchedIterator):
    """An iterator whose worker processes report by `channel`; None if they report nothing.

    `pins` are noted by the thread that pins its batches. `starting` is when the workers were
    started and how long that took, `pickled` what they were sent then, and `index_ns` how long
    indices were drawn for batches that training has not got.
    """

    def __init__(self, iterator: Any, note: Note, channel: Channel | None, pins: Pinned) -> None:
        super().__init__(iterator, note, channel)
        self._processes: list[Any] = list(iterator._workers)  # noqa: SLF001 - there is no other way in
        self._not_started = set(self._texts)
        self._pins = pins
        self.pickled: dict[int, dict[str, int]] = {}
        self.starting = 0, 0
        self.index_ns = 0
        self._receipts: dict[int, tuple[tuple[int, int, int], bytes]] = {}
        self._hook(iterator)
        vars(iterator).update(self._hooks)
        self._is_paused = False  # to resume would forget what has been pinned already

    def _resume(self, iterator: Any) -> None:
        for of_batches in (self._receipts, self._pins):  # they were given meanwhile
            of_batches.clear()
        self.index_ns = 0
        super()._resume(iterator)

    def _hook(self, iterator: Any) -> None:
        alive, kind, channel = self.alive, type(iterator), self._channel
        get, put, give = kind._try_get_data, kind._try_put_index, kind._next_data  # noqa: SLF001 - torch has no public names
        in_order = getattr(iterator, "_in_order", True)  # since torch 2.6
        pins, receipts, last_idx = self._pins, self._receipts, 0

        def timed_try_get_data(*args: Any, **kwargs: Any) -> Any:
            nonlocal last_idx
            start_ns = perf_counter_ns()
            got = get(alive(), *args, **kwargs)
            end_ns = perf_counter_ns()
            if got[0] and type(got[1][0]) is int:
                try:
                    last_idx = got[1][0]
                    record = b"" if channel is None else channel.take_record(last_idx)
                    pinned = pins.pop(last_idx, (start_ns, end_ns, UNKNOWN))
                    receipts[last_idx] = pinned, record
                except Exception as error:  # noqa: BLE001 - looking may not end a training
                    self._fail(error)
            return got

        def timed_try_put_index() -> None:
            start_ns = perf_counter_ns()
            put(alive())
            self.index_ns += perf_counter_ns() - start_ns

        def timed_next_data() -> Any:
            requested_ns = perf_counter_ns()
            batch = give(alive())
            delivered_ns, epoch = perf_counter_ns(), self.epoch
            index_ns, self.index_ns = self.index_ns, 0
            if epoch is not None:
                try:
                    idx = alive()._rcvd_idx - 1 if in_order else last_idx  # noqa: SLF001 - torch has no public name
                    received, record = receipts.pop(idx, (NOT_RECEIVED, b""))
                    row = requested_ns, delivered_ns, index_ns, idx, *received, UNKNOWN
                    epoch.add(row, record)
                except Exception as error:  # noqa: BLE001 - looking may not end a training
                    self._fail(error)
            return batch

        self._hooks.update(
            _try_get_data=timed_try_get_data,
            _try_put_index=timed_try_put_index,
            _next_data=timed_next_data,
        )

    def take(self) -> list[Measured]:
        """Lines of code, and how workers started."""
        taken, channel, epoch = super().take(), self._channel, self.first_epoch
        if channel is None or epoch is None or epoch.number is None:
            return taken
        for worker in sorted(self._not_started):
            words, own = channel.words, channel.own(worker)
            if words[own + Channel.READY_NS]:
                self._not_started.remove(worker)
                own_ns = words[own + Channel.READY_NS], words[own + Channel.INIT_NS]
                sent = dict(self.pickled.get(id(self._processes[worker]), {}))
                if sent:
                    sent["unpickling_ns"] = words[own + Channel.UNPICKLING_NS]
                taken.append(WorkerStart(epoch.number, worker, *self.starting, *own_ns, **sent))
        return taken
