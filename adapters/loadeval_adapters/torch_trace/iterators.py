"""The iterators of a DataLoader: each is timed in the training process, with what workers tell."""

from __future__ import annotations

import os
import signal
import struct
import threading
import weakref
from collections import deque
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from collections.abc import Callable

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

    def known(self, number: int) -> None:
        """Called with its number, once its first batch is asked for."""
        self.number = number

    def add(self, row: tuple[int, ...], record: bytes) -> None:
        """Note the next batch that the loader gave."""
        self.rows.append(((self.given, *row), record))
        self.given += 1


class WatchedIterator:
    """An iterator of a DataLoader that is looked into; `epoch` is the one that it serves.

    Whoever fetches for it tells by `channel`; None if nobody does.
    """

    _has_workers = True

    def __init__(self, iterator: Any, note: Note, channel: Channel | None) -> None:
        self.alive: Callable[[], Any] = weakref.ref(iterator)
        self.epoch: Epoch | None = None
        self.first_epoch: Epoch | None = None
        self.is_closed = self._is_paused = False
        self._note, self._channel = note, channel
        workers = range(0 if channel is None else channel.workers)
        self._texts: dict[int, dict[str, Any]] = {worker: {} for worker in workers}
        self._versions = dict.fromkeys(workers, 0)
        self._sized: set[int] = set()
        self._hooks: dict[str, Any] = {}

    def take(self) -> list[Measured]:
        """The lines of code of whoever fetches, since the last call; also its notes are taken."""
        samples: list[Measured] = []
        for worker, known in self._versions.items():
            read = None if self._channel is None else self._channel.read_text(worker, known)
            if read is None:
                continue
            before, (self._versions[worker], text) = self._texts[worker], read
            self._texts[worker], who = text, worker if self._has_workers else None
            for message in text.get("notes", ()):
                self._note(StageNote(message))
            for stage, kinds in text.get("code", {}).items():
                old = before.get("code", {}).get(stage, {})
                more = {
                    kind: {
                        place: count - old.get(kind, {}).get(place, 0)
                        for place, count in counts.items()
                        if count > old.get(kind, {}).get(place, 0)
                    }
                    for kind, counts in kinds.items()
                }
                if any(more.values()):
                    samples.append(CodeSamples(who, **more, stage=stage))
        return samples

    def times(self, epoch: Epoch) -> StageTimes:
        """The batches of an epoch that it served, since the last call."""
        rows, records = zip(*(epoch.rows.popleft() for _ in range(len(epoch.rows))), strict=True)
        own = dict(zip(ROW, np.array(rows, np.int64).T, strict=True))
        words = b"".join([record.ljust(STRIDE * WORD, b"\xff") for record in records])
        record = np.frombuffer(words, np.int64).reshape(-1, STRIDE)
        # Where in_order=False lets batches overtake, one may have been written over another.
        is_its_own = (record[:, 0] == own["idx"]) & (record[:, FIXED - 1] == own["idx"])
        record = np.where(is_its_own[:, None], record, UNKNOWN)
        column = dict(zip(RECORD, record.T[:FIXED], strict=True))
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
        for name in ("idx", "same_idx"):
            column.pop(name)
            own.pop(name, None)
        return StageTimes.of(
            epoch=epoch.number or 0,
            receive_ns=np.where(is_known, receive_ns, UNKNOWN),
            **own,
            **named,
            **column,
        )

    def close(self) -> None:
        """Leave the iterator as it was; workers stop looking at their next batch."""
        self.epoch, self.is_closed = None, True
        self._pause()
        if self._channel is not None:
            self._channel.words[Channel.OPEN] = Channel.CLOSED

    def look(self, on: bool) -> None:
        """Look into the iterator from the batch on that it gives next, or no longer."""
        iterator = self.alive()
        if on != self._is_paused or self.is_closed or iterator is None:
            return
        self._is_paused = not on
        if not on:
            self._pause()
            return
        self._resume()
        vars(iterator).update(self._hooks)
        if self.epoch is not None:
            self.epoch.given = iterator._num_yielded  # noqa: SLF001 - torch has no public name

    def _pause(self) -> None:
        iterator = self.alive()
        for name in self._hooks if iterator is not None else ():
            vars(iterator).pop(name, None)
        if self._channel is not None:
            self._channel.words[Channel.OPEN] = Channel.PAUSED

    def _resume(self) -> None:
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

    def __init__(self, iterator: Any, note: Note, *, looks: bool) -> None:
        channel = Channel(1, 1, shared=False)
        super().__init__(iterator, note, channel)
        self.tracer = Tracer(channel, 0, in_training=True)
        weakref.finalize(iterator, self.tracer.close).atexit = False
        own_fetcher = iterator._dataset_fetcher  # noqa: SLF001 - there is no other way in
        self._fetcher: Callable[[], Any] = weakref.ref(own_fetcher)
        self._is_paused = not looks
        if looks:
            self._resume()
            vars(iterator).update(self._hooks)

    def _pause(self) -> None:
        super()._pause()
        fetcher = self._fetcher()
        if fetcher is not None:
            vars(fetcher).pop("fetch", None)
        self.tracer.pause()

    def close(self) -> None:
        """Leave the iterator and the dataset as they were. The iterator may still fetch."""
        super().close()
        self.tracer.make_way()

    def _resume(self) -> None:
        super()._resume()
        iterator, tracer, alive, fetcher = self.alive(), self.tracer, self.alive, self._fetcher
        if self._hooks:
            tracer.resume()
        else:
            tracer.look_into(iterator._dataset)  # noqa: SLF001 - what it fetches from
        present: Any = fetcher()
        torchs = type(present).fetch
        present.fetch = lambda index: tracer.fetch(torchs, fetcher(), index)
        give, next_index = type(iterator)._next_data, type(iterator)._next_index  # noqa: SLF001 - torch has no public name
        is_pinned, index_ns = iterator._pin_memory, 0  # noqa: SLF001 - torch has no public name

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
                    record = struct.pack(
                        f"{FIXED + len(spent)}q", 0, UNKNOWN, *words, *NOT_PICKLED, 0, *spent
                    )
                    pin_ns = pinned_ns if is_pinned else UNKNOWN
                    row = requested_ns, delivered_ns, index_ns, 0, UNKNOWN, UNKNOWN, pin_ns, tensors
                    epoch.add(row, record)
                except Exception as error:  # noqa: BLE001 - looking may not end a training
                    self._fail(error)
            return batch

        self._hooks.update(_next_data=timed_next_data, _next_index=timed_next_index)


class WithWorkers(WatchedIterator):
    """An iterator whose worker processes report by `channel`; None if they report nothing.

    `pins` are noted by the thread that pins its batches. `starting` is when the workers were
    started and how long that took, `pickled` what they were sent then, and `index_ns` how long
    indices were drawn for batches that training has not got.
    """

    def __init__(
        self,
        iterator: Any,
        note: Note,
        channel: Channel | None,
        pins: Pinned,
        *,
        looks: bool,
    ) -> None:
        super().__init__(iterator, note, channel)
        self._processes: list[Any] = list(iterator._workers)  # noqa: SLF001 - there is no other way in
        self._not_started = set(self._texts)
        self._dead: set[int] = set()
        self._pins = pins
        self.pickled: dict[int, dict[str, int]] = {}
        self.starting = 0, 0
        self.index_ns = 0
        self._receipts: dict[int, tuple[tuple[int, int, int], bytes]] = {}
        self._hook(iterator)
        vars(iterator).update(self._hooks)
        self.look(looks)

    def _resume(self) -> None:
        for of_batches in (self._receipts, self._pins):  # they were given meanwhile
            of_batches.clear()
        self.index_ns = 0
        super()._resume()

    def _hook(self, iterator: Any) -> None:
        alive, kind, channel = self.alive, type(iterator), self._channel
        get, put, give = kind._try_get_data, kind._try_put_index, kind._next_data  # noqa: SLF001 - torch has no public names
        in_order = getattr(iterator, "_in_order", True)  # since torch 2.6
        pins, receipts, last_idx = self._pins, self._receipts, 0

        def timed_try_get_data(*args: Any, **kwargs: Any) -> Any:
            nonlocal last_idx
            start_ns = perf_counter_ns()
            try:
                got = get(alive(), *args, **kwargs)
            except Exception:
                self.look_for_dead()
                raise
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
        """Lines of code, and how workers started; notes their deaths."""
        self.look_for_dead()
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

    def close(self) -> None:
        """Leave the iterator as it was; the workers stop looking at their next batch."""
        self.look_for_dead()
        super().close()

    def look_for_dead(self) -> None:
        """Note which workers have died, and over what."""
        with suppress(AttributeError):  # threads that stand for processes have no exit code
            iterator = self.alive()
            for worker, process in enumerate(self._processes):
                code = _exit_code(process)
                was_ended = code == -signal.SIGTERM and getattr(iterator, "_shutdown", True)
                if code and not was_ended and worker not in self._dead:
                    self._dead.add(worker)
                    cause = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
                    died = f"worker {worker} (pid {process.pid}) died ({cause})"
                    self._note(StageNote(died + self._over_what(worker), "worker died"))

    def _over_what(self, worker: int) -> str:
        if self._channel is None:
            return ""
        words, own = self._channel.words, self._channel.own(worker)
        sample, batch = words[own + Channel.SAMPLE], words[own + Channel.BATCH]
        if sample == Channel.NOT_SEEN:
            return f" after it was asked for batch {batch}"
        if sample == Channel.NO_SAMPLE:
            return " between two batches"
        if sample == Channel.COLLATING:
            return f" while collating batch {batch}"
        return f" while loading sample {sample} of batch {batch}"


def _exit_code(process: Any) -> int | None:
    """The `process.exitcode`, read so that torch can still ask how its child ended."""
    popen = process._popen  # noqa: SLF001 - its poll() would take the answer away
    code: int | None = popen.returncode
    if code is None and hasattr(os, "waitid"):
        with suppress(OSError):  # somebody else has asked
            how = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if how is not None:
                code = how.si_status if how.si_code == os.CLD_EXITED else -how.si_status
    return code
