"""The iterators of a DataLoader: each is timed in the training process, with what workers tell."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections import deque
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from loadeval import CodeSamples, StageNote, StageTimes, WorkerStart, leaves
from loadeval_adapters.pytorch_channel import (
    BATCH,
    CHANNEL_WORDS,
    CLOSED,
    COLLATING,
    FIXED,
    INIT_NS,
    LOOKING,
    NO_SAMPLE,
    NOT_SEEN,
    OPEN,
    PAUSED,
    READY_NS,
    RECORD,
    SAMPLE,
    STRIDE,
    UNKNOWN,
    UNPICKLING_NS,
    WORD,
    WORKER_WORDS,
    is_of_a_signal,
    packer,
)
from loadeval_adapters.pytorch_code import COUNTERS
from loadeval_adapters.pytorch_pickles import Pickles
from loadeval_adapters.pytorch_worker import FETCHERS, Tracer, fetches

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval_adapters.pytorch_channel import Channel
    from loadeval_adapters.pytorch_pins import Pins

    Measured = StageTimes | WorkerStart | CodeSamples
    Sizes = dict[str, dict[str, float]]
    Note = Callable[[StageNote], object]
    Receipt = tuple[int, int, int, bytes]
    """The start and end of getting a batch, nanoseconds of pinning it, its worker's record."""
    Row = tuple[int, int, int, int, int, int, int, int, bytes]
    """A batch's number in its epoch, when it was requested and given, nanoseconds of its index, its
    idx, its receipt."""

NOT_RECEIVED: Receipt = (UNKNOWN, UNKNOWN, UNKNOWN, b"")
NOT_TORCHS = "the loader has an iterator of its own kind, into which loadeval cannot look"
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
    """One epoch's batches, in the order in which the loader gave them."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.rows: deque[Row] = deque()
        self.given = self.counted = 0
        self._known: Callable[[], object] | None = None

    def number_callback(self) -> Callable[[int], object]:
        """A function to call with the number; once it is garbage, nobody will. Called once."""

        def known(number: int) -> None:
            self.number = number

        self._known = weakref.ref(known)
        return known

    def is_done(self) -> bool:
        """Whether nothing of it is left to be taken."""
        if self.number is not None:
            return not self.rows
        return self._known is None or self._known() is None


class WatchedIterator:
    """An iterator of a DataLoader that is looked into; `epoch` is the one that it serves."""

    def __init__(self, iterator: Any, note: Note) -> None:
        self.alive: Callable[[], Any] = weakref.ref(iterator)
        self.epoch: Epoch | None = None
        self.starting: tuple[int, int] | None = None
        self.pickles = Pickles()
        self._note = note
        self._epochs: list[Epoch] = []
        self._hooks: dict[str, Any] = {}
        self._sized: set[int] = set()
        self._is_closed = False
        self._is_paused = False

    @property
    def looks(self) -> bool:
        """Whether it still looks into the iterator."""
        return not self._is_closed

    def begin(self, epoch: Epoch | None) -> None:
        """Serve `epoch` from now on; None is an epoch that is not measured."""
        self.epoch = epoch
        if epoch is not None:
            self._epochs.append(epoch)

    def take(self) -> list[Measured]:
        """What was measured since the last call."""
        measured: list[Measured] = []
        for epoch in list(self._epochs):
            if epoch.number is not None:
                rows = [epoch.rows.popleft() for _ in range(len(epoch.rows))]
                if rows:
                    measured.append(self._times(epoch, rows))
            if epoch is not self.epoch and epoch.is_done():
                self._epochs.remove(epoch)
        return measured

    def is_done(self) -> bool:
        """Whether nothing is left to be taken, if the iterator is gone."""
        return all(epoch.is_done() for epoch in self._epochs)

    def close(self) -> None:
        """Leave the iterator as it was."""
        self.epoch, self._is_closed = None, True
        self._unhook()

    def look(self, on: bool) -> None:
        """Look into the iterator from the batch on that it gives next, or no longer."""
        if on != self._is_paused or self._is_closed or self.alive() is None:
            return
        self._is_paused = not on
        if on:
            self._resume()
        else:
            self._pause()

    def _pause(self) -> None:
        self._unhook()

    def _resume(self) -> None:
        iterator = self.alive()
        if iterator is not None:
            vars(iterator).update(self._hooks)
            if self.epoch is not None:
                self.epoch.given = iterator._num_yielded  # noqa: SLF001 - torch has no public name

    def _unhook(self) -> None:
        iterator = self.alive()
        for name in self._hooks if iterator is not None else ():
            vars(iterator).pop(name, None)

    def fail(self, error: Exception) -> None:
        """Stop looking, and say why. Raises what a signal's handler raised."""
        if is_of_a_signal(error):
            raise error
        self._note(
            StageNote(f"the loader is not looked into any more ({type(error).__name__}: {error})")
        )
        self.close()

    def make_way(self) -> None:
        """Make way for another iterator of the loader, which begins in this process."""

    def _hook(self, iterator: Any, **methods: Any) -> None:
        self._hooks.update(methods)
        vars(iterator).update(methods)

    def _names(self, worker: int) -> list[str]:
        raise NotImplementedError

    def _sizes(self, worker: int) -> Sizes:
        """How large samples are in each transform of a worker, by column of StageTimes."""
        raise NotImplementedError

    def _times(self, epoch: Epoch, rows: list[Row]) -> StageTimes:
        own = np.array([row[:8] for row in rows], np.int64).T
        batch, requested, delivered, index_ns, idx, get_start, received, pin_ns = own
        size = STRIDE * WORD
        words = b"".join([row[8].ljust(size, b"\xff") for row in rows])
        records = np.frombuffer(words, np.int64).reshape(-1, STRIDE)
        # Where in_order=False lets batches overtake, one may have been written over another.
        is_its_own = (records[:, 0] == idx) & (records[:, FIXED - 1] == idx)
        records = np.where(is_its_own[:, None], records, UNKNOWN)
        column = dict(zip(RECORD, records.T[:FIXED], strict=True))
        ready = column["pickle_start_ns"] + column["pickle_ns"]
        receive_ns = np.maximum(received - np.maximum(get_start, ready), 0)
        is_known = (received != UNKNOWN) & (column["pickle_ns"] != UNKNOWN)
        transform_ns: dict[str, Any] = {}
        transform_calls: dict[str, Any] = {}
        sizes: dict[str, Any] = {}
        for worker in np.unique(column["worker"][is_its_own]):
            of_worker = is_its_own & (column["worker"] == worker)
            for number, name in enumerate(self._names(int(worker))):
                for values, offset in ((transform_ns, 0), (transform_calls, 1)):
                    values.setdefault(name, np.full(len(rows), np.nan))[of_worker] = records[
                        of_worker, FIXED + 2 * number + offset
                    ]
            known = {} if worker in self._sized else self._sizes(int(worker))
            for name, by_transform in known.items():
                self._sized.add(worker)
                of_column = sizes.setdefault(name, {})
                for transform, value in by_transform.items():
                    values = of_column.setdefault(transform, np.full(len(rows), np.nan))
                    values[of_worker.argmax()] = value
        del column["idx"], column["same_idx"]
        return StageTimes.of(
            epoch=epoch.number or 0,
            batch=batch,
            requested_ns=requested,
            delivered_ns=delivered,
            index_ns=index_ns,
            received_ns=received,
            receive_ns=np.where(is_known, receive_ns, UNKNOWN),
            pin_ns=pin_ns,
            transform_ns=transform_ns,
            transform_calls=transform_calls,
            **sizes,
            **column,
        )


class Borrowed(WatchedIterator):
    """An iterator that lives on and is looked into already, for another measurement of its loader.

    Its epochs are of one measurement or another: of training, or of an evaluation.
    """

    def __init__(self, lender: WatchedIterator, note: Note) -> None:
        super().__init__(lender.alive(), note)
        self._lender = lender

    @property
    def looks(self) -> bool:
        """Whether the lender still looks into the iterator."""
        return self._lender.looks

    def look(self, on: bool) -> None:
        """See WatchedIterator."""
        self._lender.look(on)

    def begin(self, epoch: Epoch | None) -> None:
        """Serve `epoch` from now on, by the lender, which does the looking."""
        super().begin(epoch)
        self._lender.epoch = epoch

    def _names(self, worker: int) -> list[str]:
        return self._lender._names(worker)  # noqa: SLF001 - of its own kind

    def _sizes(self, worker: int) -> Sizes:
        return self._lender._sizes(worker)  # noqa: SLF001 - of its own kind


class InTraining(WatchedIterator):
    """An iterator without workers: the training process itself fetches."""

    def __init__(self, iterator: Any, note: Note, *, looks: bool) -> None:
        super().__init__(iterator, note)
        words = [1] * (CHANNEL_WORDS + WORKER_WORDS)
        self._tracer = Tracer(self._tell, words, CHANNEL_WORDS, in_training=True)
        end = weakref.finalize(iterator, self._tracer.close)
        end.atexit = False
        self._lines: dict[str, dict[str, int]] = {}
        self._fetcher = weakref.ref(iterator._dataset_fetcher)  # noqa: SLF001 - there is no other way in
        self._fetch: Callable[[Any], Any] | None = None
        self._is_paused = not looks
        if looks:
            self._hook_into(iterator)

    def _resume(self) -> None:
        fetcher = self._fetcher()
        if not self._hooks:
            self._hook_into(self.alive())
        elif fetcher is not None:
            self._tracer.resume()
            fetcher.fetch = self._fetch
        super()._resume()

    def _pause(self) -> None:
        super()._pause()
        fetcher = self._fetcher()
        if fetcher is not None:
            vars(fetcher).pop("fetch", None)
        self._tracer.pause()

    def _hook_into(self, iterator: Any) -> None:
        self._tracer.look_into(iterator._dataset)  # noqa: SLF001 - what it fetches from
        alive, fetcher, tracer = self.alive, self._fetcher, self._tracer
        pack, parts = packer(len(tracer.transforms.names)).pack, tracer.parts
        kind = type(iterator)
        give, next_index = kind._next_data, kind._next_index  # noqa: SLF001 - torch has no public name
        by_kind = dict(zip(FETCHERS, fetches(tracer), strict=True))
        own: Any = fetcher()
        ours = by_kind.get(type(own))
        if ours is None:
            self._note(StageNote(NOT_TORCHS))
            return
        is_pinned = iterator._pin_memory  # noqa: SLF001 - torch has no public name
        index_ns, unpickled = [0], (UNKNOWN, UNKNOWN, UNKNOWN)

        def timed_next_index() -> Any:
            start = perf_counter_ns()
            try:
                return next_index(alive())
            finally:
                index_ns[0] = perf_counter_ns() - start

        def timed_next_data() -> Any:
            parts.clear()
            requested = perf_counter_ns()
            try:
                batch = give(alive())
            except StopIteration:
                tracer.close()
                raise
            delivered = perf_counter_ns()
            epoch = self.epoch
            if epoch is not None and parts:
                try:
                    _, words, spent = parts.pop()
                    pinned = delivered - words[1] - words[2] - words[3] if is_pinned else UNKNOWN
                    tensors = UNKNOWN
                    if epoch.counted < COUNTED:
                        epoch.counted += 1
                        tensors = tensors_in(batch)
                        if threading.current_thread() is not threading.main_thread():
                            self._note(IN_A_THREAD)
                    record = pack(0, UNKNOWN, *words, *unpickled, tensors, 0, *spent)
                    times = requested, delivered, index_ns[0]
                    epoch.rows.append((epoch.given, *times, 0, UNKNOWN, UNKNOWN, pinned, record))
                    epoch.given += 1
                except Exception as error:  # noqa: BLE001 - looking may not end a training
                    self.fail(error)
            return batch

        own.fetch = self._fetch = lambda index: ours(fetcher(), index)
        self._hook(iterator, _next_data=timed_next_data, _next_index=timed_next_index)

    def _tell(self, text: dict[str, Any]) -> None:
        for note in text["notes"]:
            self._note(StageNote(note))

    def take(self) -> list[Measured]:
        """What was measured since the last call, and the lines of code."""
        before, self._lines = self._lines, self._tracer.lines()
        return [*super().take(), *_code_since(before, self._lines, None)]

    def _names(self, worker: int) -> list[str]:  # noqa: ARG002 - there is none
        return self._tracer.transforms.names

    def _sizes(self, worker: int) -> Sizes:  # noqa: ARG002 - there is none
        return self._tracer.transforms.sizes()

    def make_way(self) -> None:
        """Leave the transforms to it: code that knows the length may never read to the end."""
        self._tracer.end()

    def close(self) -> None:
        """Leave the iterator and the dataset as they were. The iterator may still fetch."""
        super().close()
        self._tracer.end()
        fetcher = self._fetcher()
        if fetcher is not None:
            vars(fetcher).pop("fetch", None)


class WithWorkers(WatchedIterator):
    """An iterator whose worker processes report by `channel`; None if they report nothing."""

    def __init__(
        self, iterator: Any, note: Note, channel: Channel | None, pins: Pins, *, looks: bool
    ) -> None:
        super().__init__(iterator, note)
        self._channel = channel
        self._processes: list[Any] = list(iterator._workers)  # noqa: SLF001 - there is no other way in
        workers = range(len(self._processes))
        self._versions = dict.fromkeys(workers, 0)
        self._texts: dict[int, dict[str, Any]] = {worker: {} for worker in workers}
        self._not_started = set(workers)
        self._dead: set[int] = set()
        self._first: Epoch | None = None
        self.index_ns = [0]
        self._receipts: dict[int, Receipt] = {}
        self._pins = pins.of(iterator._worker_result_queue)  # noqa: SLF001 - torch has no public name
        self._hook_into(iterator)
        self.look(looks)

    def begin(self, epoch: Epoch | None) -> None:
        """Serve `epoch` from now on; the workers start in the first one."""
        if self.epoch is None and not self._epochs:
            self._first = epoch
        super().begin(epoch)

    def _pause(self) -> None:
        super()._pause()
        if self._channel is not None:
            self._channel.words[OPEN] = PAUSED

    def _resume(self) -> None:
        for of_batches in (self._receipts, self._pins):  # they were given meanwhile
            of_batches.clear()
        self.index_ns[0] = 0
        super()._resume()
        if self._channel is not None:
            self._channel.words[OPEN] = LOOKING

    def _hook_into(self, iterator: Any) -> None:
        kind = type(iterator)
        receipts, last_idx, index_ns = self._receipts, [0], self.index_ns
        in_order = getattr(iterator, "_in_order", True)  # since torch 2.6
        self._hook(
            iterator,
            _try_get_data=self._receiving(kind._try_get_data, receipts, last_idx),  # noqa: SLF001 - torch has no public name
            _try_put_index=self._asking(kind._try_put_index, index_ns),  # noqa: SLF001 - torch has no public name
            _next_data=self._giving(
                kind._next_data,  # noqa: SLF001 - torch has no public name
                receipts,
                None if in_order else last_idx,
                index_ns,
            ),
        )

    def _receiving(
        self, get: Callable[..., Any], receipts: dict[int, Receipt], last_idx: list[int]
    ) -> Callable[..., Any]:
        """Wrap `get`, which receives batches in any order, to leave a receipt for each."""
        alive, channel, pins = self.alive, self._channel, self._pins

        def receipt(idx: int, start: int, end: int) -> Receipt:
            of_thread = pins.pop(idx, None)
            record = b""
            if channel is not None:
                slot = channel.slot(idx)
                record = bytes(channel.bytes[slot * WORD : (slot + STRIDE) * WORD])
                channel.words[slot] = UNKNOWN
            return (start, end, UNKNOWN, record) if of_thread is None else (*of_thread, record)

        def timed_try_get_data(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter_ns()
            try:
                got = get(alive(), *args, **kwargs)
            except Exception:
                self.look_for_dead()
                raise
            end = perf_counter_ns()
            if got[0]:
                try:
                    idx = got[1][0]
                    if type(idx) is int:
                        last_idx[0] = idx
                        receipts[idx] = receipt(idx, start, end)
                except Exception as error:  # noqa: BLE001 - looking may not end a training
                    self.fail(error)
            return got

        return timed_try_get_data

    def _asking(self, put: Callable[[Any], None], index_ns: list[int]) -> Callable[[], None]:
        """Wrap `put`, which asks a worker for a batch, to add its time to `index_ns`."""
        alive = self.alive

        def timed_try_put_index() -> None:
            start = perf_counter_ns()
            put(alive())
            index_ns[0] += perf_counter_ns() - start

        return timed_try_put_index

    def _giving(
        self,
        give: Callable[[Any], Any],
        receipts: dict[int, Receipt],
        last_idx: list[int] | None,
        index_ns: list[int],
    ) -> Callable[[], Any]:
        """Wrap `give`, which gives the batch of `last_idx`, or if None, the next in order."""
        alive = self.alive

        def timed_next_data() -> Any:
            requested = perf_counter_ns()
            batch = give(alive())
            delivered = perf_counter_ns()
            epoch, taken_ns = self.epoch, index_ns[0]
            index_ns[0] = 0
            if epoch is not None:
                try:
                    idx = alive()._rcvd_idx - 1 if last_idx is None else last_idx[0]  # noqa: SLF001 - torch has no public name
                    receipt = receipts.pop(idx, NOT_RECEIVED)
                    epoch.rows.append((epoch.given, requested, delivered, taken_ns, idx, *receipt))
                    epoch.given += 1
                except Exception as error:  # noqa: BLE001 - looking may not end a training
                    self.fail(error)
            return batch

        return timed_next_data

    def take(self) -> list[Measured]:
        """What was measured, how workers started, and their lines of code; notes their deaths."""
        self.look_for_dead()
        if self._channel is None:
            return super().take()
        code = self._read_texts(self._channel)
        return [*super().take(), *self._starts(self._channel), *code]

    def close(self) -> None:
        """Leave the iterator as it was; the workers stop looking at their next batch."""
        self.look_for_dead()
        super().close()
        if self._channel is not None:
            self._channel.words[OPEN] = CLOSED

    def _names(self, worker: int) -> list[str]:
        names: list[str] = self._texts[worker].get("names", [])
        return names

    def _sizes(self, worker: int) -> Sizes:
        sizes: Sizes = self._texts[worker].get("sizes", {})
        return sizes

    def _read_texts(self, channel: Channel) -> list[CodeSamples]:
        samples: list[CodeSamples] = []
        for worker, known in self._versions.items():
            read = channel.read_text(worker, known)
            if read is None:
                continue
            before = self._texts[worker]
            self._versions[worker], text = read
            self._texts[worker] = text
            for note in text.get("notes", ()):
                self._note(StageNote(note))
            samples += _code_since(before, text, worker)
        return samples

    def _starts(self, channel: Channel) -> list[WorkerStart]:
        epoch = self._first
        if epoch is None or epoch.number is None or self.starting is None:
            return []
        starts = []
        for worker in sorted(self._not_started):
            words, own = channel.words, channel.own(worker)
            ready_ns, init_ns = words[own + READY_NS], words[own + INIT_NS]
            if ready_ns:
                start = WorkerStart(epoch.number, worker, *self.starting, ready_ns, init_ns)
                pickled = self.pickles.of(self._processes[worker])
                if pickled is not None:
                    unpickling_ns = words[own + UNPICKLING_NS]
                    start = WorkerStart(
                        epoch.number,
                        worker,
                        *self.starting,
                        ready_ns,
                        init_ns,
                        **pickled._asdict(),
                        unpickling_ns=unpickling_ns,
                    )
                starts.append(start)
                self._not_started.remove(worker)
        return starts

    def look_for_dead(self) -> None:
        """Note which workers have died, and over what."""
        with suppress(Exception):
            iterator = self.alive()
            for worker, process in enumerate(self._processes):
                code = _exit_code(process)
                was_ended = code == -signal.SIGTERM and getattr(iterator, "_shutdown", True)
                if not code or was_ended or worker in self._dead:
                    continue
                self._dead.add(worker)
                died = f"worker {worker} (pid {process.pid}) died ({_cause(code)})"
                self._note(StageNote(died + self._over_what(worker), "worker died"))

    def _over_what(self, worker: int) -> str:
        if self._channel is None:
            return ""
        words, own = self._channel.words, self._channel.own(worker)
        sample, batch = words[own + SAMPLE], words[own + BATCH]
        if sample == NOT_SEEN:
            return f" after it was asked for batch {batch}"
        if sample == NO_SAMPLE:
            return " between two batches"
        if sample == COLLATING:
            return f" while collating batch {batch}"
        return f" while loading sample {sample} of batch {batch}"


def _exit_code(process: Any) -> int | None:
    """The `process.exitcode`, read so that torch can still ask how its child ended."""
    popen = process._popen  # noqa: SLF001 - its poll() would take the answer away
    code: int | None = popen.returncode
    if code is None and hasattr(os, "waitid"):
        with suppress(OSError):
            how = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if how is not None:
                code = how.si_status if how.si_code == os.CLD_EXITED else -how.si_status
    return code


def _cause(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _code_since(
    before: dict[str, Any], text: dict[str, Any], worker: int | None
) -> list[CodeSamples]:
    """How often lines of code were seen since `before`; empty if none was seen."""
    more = [_more(text.get(name, {}), before.get(name, {})) for name in COUNTERS]
    return [CodeSamples(worker, *more)] if any(more) else []


def _more(counts: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {
        place: more for place, count in counts.items() if (more := count - before.get(place, 0)) > 0
    }
