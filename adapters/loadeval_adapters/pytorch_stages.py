"""Looks inside torch's DataLoader: what each batch took, in its worker and on its way."""

from __future__ import annotations

import functools
import os
import signal
import threading
import weakref
from collections import deque
from contextlib import contextmanager, suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import dataloader
from torch.utils.data._utils import pin_memory

from loadeval import CodeSamples, Readings, StageNote, StageTimes, WorkerStart
from loadeval_adapters import pytorch_channel as told
from loadeval_adapters.pytorch_channel import FIXED, RECORD, STRIDE, UNKNOWN, WORD, Channel
from loadeval_adapters.pytorch_worker import FETCHERS, Tracer, WorkerInit, fetches

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Literal

    EventKind = Literal["stages missing", "worker died"]

    Found = StageTimes | WorkerStart | CodeSamples | Readings | StageNote
    Row = tuple[int, int, int, int, int, int, int, bytes]
    Receipt = tuple[int, int, int, bytes]

NOT_RECEIVED: Any = (UNKNOWN, UNKNOWN, UNKNOWN, b"")
NOTHING_TOLD = np.full(STRIDE, UNKNOWN, np.int64).tobytes()
STARTED_BEFORE = (
    "the loader's workers were started before the measurement, so what they do is not timed; "
    "create the LoaderEvaluator before the first epoch"
)
NOT_TORCHS = "the loader has an iterator of its own kind, into which loadeval cannot look"
NO_WORKER_INIT = "the loader's worker_init_fn cannot be set, so what its workers do is not timed"


class DataLoaderStages:
    """Times what happens inside torch's DataLoaders, in this process and in their workers.

    `inside(loader)` is the DataLoader within what is iterated. While one of these is open, the
    method that makes a DataLoader's iterators is ours, on its class; it alters nothing but what is
    made for a loader that `begin` was called with.
    """

    def __init__(self, inside: Callable[[Any], Any]) -> None:
        self._inside = inside
        self._iterators: list[Inside] = []
        self._notes: deque[StageNote] = deque()
        self._told: set[str] = set()
        self._kinds: set[type] = set()
        self._is_closed = False
        _all.add(self)

    def begin(self, loader: Any) -> Callable[[int], object]:
        """See LoaderStages."""
        loader = self._inside(loader)
        epoch = Epoch()
        known = epoch.to_be_known()
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
        known = next((one for one in self._iterators if one.alive() is kept), None)
        if known is None:
            self.note(STARTED_BEFORE)
            known = self._look_into(loader, kept, None)
        if known is not None:
            known.begin(opened.next)

    def make(self, loader: Any, opened: Opened, original: Callable[[Any], Any]) -> Any:
        """An iterator of `loader`, looked into."""
        if loader.num_workers == 0:
            iterator = original(loader)
            with self._noting():
                found = self._look_into(loader, iterator, None)
                if found is not None:
                    found.begin(opened.taken())
            return iterator
        channel = None
        with self._noting():
            slots = max(64, 4 * loader.num_workers * (loader.prefetch_factor or 2))
            channel = Channel(loader.num_workers, slots)
        pins = Pins()
        with _swapped(loader, channel, pins) as is_swapped:
            start_ns = perf_counter_ns()
            iterator = original(loader)
            starting_ns = perf_counter_ns() - start_ns
        with self._noting():
            if not is_swapped:
                self.note(NO_WORKER_INIT)
            found = self._look_into(loader, iterator, channel, pins)
            if found is not None:
                found.begin(opened.taken())
                found.starting = (start_ns, starting_ns)
        return iterator

    def _look_into(
        self, loader: Any, iterator: Any, channel: Channel | None, pins: Pins | None = None
    ) -> Inside | None:
        if not isinstance(iterator, dataloader._BaseDataLoaderIter):  # noqa: SLF001 - there is no public name
            self.note(NOT_TORCHS)
            return None
        found: Inside
        if loader.num_workers == 0:
            for one in self._iterators:
                one.make_way()
            found = InTraining(iterator, self)
        else:
            found = WithWorkers(iterator, self, channel, pins or Pins())
        self._iterators.append(found)
        return found

    def note(self, message: str, kind: EventKind = "stages missing") -> None:
        """Tell something, once."""
        if message not in self._told:
            self._told.add(message)
            self._notes.append(StageNote(message, kind))

    @contextmanager
    def _noting(self) -> Generator[None]:
        """A DataLoader's iterator is made all the same if we cannot look into it."""
        try:
            yield
        except Exception as error:
            if told.is_of_a_signal(error):
                raise
            self.note(f"the loader is not looked into ({type(error).__name__}: {error})")

    def take(self) -> list[Found]:
        """See LoaderStages."""
        found: list[Found] = []
        for one in list(self._iterators):
            is_alive = one.alive() is not None
            found += one.take()
            if not is_alive and one.is_done():
                self._iterators.remove(one)
        while self._notes:
            found.append(self._notes.popleft())
        return found

    def close(self) -> None:
        """See LoaderStages."""
        self._is_closed = True
        with _lock:
            for key in [key for key, one in list(_opened.items()) if one.stages is self]:
                _opened.pop(key, None)
            for kind in self._kinds:
                _unpatch(kind)
            self._kinds.clear()
        for one in self._iterators:
            one.close()

    def abandon(self) -> None:
        """In a process that was forked: nobody will ask what was found."""
        self._is_closed = True
        self._kinds.clear()
        for one in self._iterators:
            one.epoch = None
        self._iterators.clear()


class Epoch:
    """One epoch's batches, in the order in which the loader gave them."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.rows: deque[Row] = deque()
        self.taken = 0

        def known(number: int) -> None:
            self.number = number

        self.known = weakref.ref(known)
        self._first: Callable[[int], None] | None = known

    def to_be_known(self) -> Callable[[int], object]:
        """What is to be called with the number; once it is gone, nobody will."""
        known, self._first = self._first, None
        return known or _ignore

    def is_done(self) -> bool:
        """Whether nothing is left to be taken of it."""
        return not self.rows if self.number is not None else self.known() is None


class Inside:
    """An iterator of a DataLoader that is looked into; `epoch` is the one that it serves."""

    def __init__(self, iterator: Any, stages: DataLoaderStages) -> None:
        self.alive: Callable[[], Any] = weakref.ref(iterator)
        self.epoch: Epoch | None = None
        self.starting: tuple[int, int] | None = None
        self._stages = stages
        self._epochs: list[Epoch] = []
        self._hooked: list[str] = []

    def begin(self, epoch: Epoch | None) -> None:
        """Batches are those of `epoch` from now on; None is an epoch that is not measured."""
        self.epoch = epoch
        if epoch is not None:
            self._epochs.append(epoch)

    def take(self) -> list[Found]:
        """What was found since the last call."""
        found: list[Found] = []
        for epoch in list(self._epochs):
            if epoch.number is not None:
                rows = [epoch.rows.popleft() for _ in range(len(epoch.rows))]
                if rows:
                    found.append(self._times(epoch, rows))
            if epoch is not self.epoch and epoch.is_done():
                self._epochs.remove(epoch)
        return found

    def is_done(self) -> bool:
        """Whether nothing is left to be taken, if the iterator is gone."""
        return all(epoch.is_done() for epoch in self._epochs)

    def close(self) -> None:
        """Leave the iterator as it was."""
        self.epoch = None
        iterator = self.alive()
        for name in self._hooked if iterator is not None else ():
            vars(iterator).pop(name, None)

    def fail(self, error: Exception) -> None:
        """Stop looking, and say why. Raises what a signal's handler raised."""
        if told.is_of_a_signal(error):
            raise error
        self._stages.note(
            f"the loader is not looked into any more ({type(error).__name__}: {error})"
        )
        self.close()

    def make_way(self) -> None:
        """Another iterator of the loader begins in this process."""

    def _hook(self, iterator: Any, **methods: Any) -> None:
        for name, method in methods.items():
            vars(iterator)[name] = method
            self._hooked.append(name)

    def _names(self, worker: int) -> list[str]:
        raise NotImplementedError

    def _times(self, epoch: Epoch, rows: list[Row]) -> StageTimes:
        own = np.array([row[:7] for row in rows], np.int64).T
        requested, delivered, index_ns, idx, get_start, received, pin_ns = own
        size = STRIDE * WORD
        words = b"".join([row[7].ljust(size, b"\xff") for row in rows])
        records = np.frombuffer(words, np.int64).reshape(-1, STRIDE)
        # Where in_order=False lets batches overtake, one may have been written over another.
        is_its_own = (records[:, 0] == idx) & (records[:, FIXED - 1] == idx)
        records = np.where(is_its_own[:, None], records, UNKNOWN)
        column = dict(zip(RECORD, records.T[:FIXED], strict=True))
        ready = column["pickle_start_ns"] + column["pickle_ns"]
        receive_ns = np.maximum(received - np.maximum(get_start, ready), 0)
        is_known = (received != UNKNOWN) & (column["pickle_ns"] != UNKNOWN)
        first, epoch.taken = epoch.taken, epoch.taken + len(rows)
        transform_ns: dict[str, Any] = {}
        transform_calls: dict[str, Any] = {}
        for worker in np.unique(column["worker"][is_its_own]):
            of_worker = is_its_own & (column["worker"] == worker)
            for number, name in enumerate(self._names(int(worker))):
                for values, offset in ((transform_ns, 0), (transform_calls, 1)):
                    values.setdefault(name, np.full(len(rows), np.nan))[of_worker] = records[
                        of_worker, FIXED + 2 * number + offset
                    ]
        del column["idx"], column["same_idx"]
        return StageTimes(
            epoch=epoch.number or 0,
            batch=np.arange(first, first + len(rows)),
            requested_ns=requested,
            delivered_ns=delivered,
            index_ns=index_ns,
            received_ns=received,
            receive_ns=np.where(is_known, receive_ns, UNKNOWN),
            pin_ns=pin_ns,
            transform_ns=transform_ns,
            transform_calls=transform_calls,
            **column,
        )


class InTraining(Inside):
    """An iterator without workers: the training process itself fetches."""

    def __init__(self, iterator: Any, stages: DataLoaderStages) -> None:
        super().__init__(iterator, stages)
        words = [1] * (told.CHANNEL_WORDS + told.WORKER_WORDS)
        self._tracer = Tracer(self._tell, words, told.CHANNEL_WORDS, in_training=True)
        self._text: dict[str, dict[str, int]] = {}
        self._tracer.look_into(iterator._dataset)  # noqa: SLF001 - what it fetches from
        self._pack = told.packer(len(self._tracer.transforms.names)).pack
        self._fetcher = weakref.ref(iterator._dataset_fetcher)  # noqa: SLF001 - there is no other way in
        end = weakref.finalize(iterator, self._tracer.end)
        end.atexit = False
        self._hook_into(iterator)

    def _hook_into(self, iterator: Any) -> None:
        alive, fetcher, tracer = self.alive, self._fetcher, self._tracer
        kind, pack, parts = type(iterator), self._pack, tracer.parts
        give, next_index = kind._next_data, kind._next_index  # noqa: SLF001 - as above
        by_kind = dict(zip(FETCHERS, fetches(tracer), strict=True))
        own: Any = fetcher()
        ours = by_kind.get(type(own))
        if ours is None:
            self._stages.note(NOT_TORCHS)
            return
        is_pinned = iterator._pin_memory  # noqa: SLF001 - as above
        index_ns = [0]

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
                tracer.end()
                raise
            delivered = perf_counter_ns()
            epoch = self.epoch
            if epoch is not None and parts:
                try:
                    _, words, spent = parts.pop()
                    pinned = delivered - words[1] - words[2] - words[3] if is_pinned else UNKNOWN
                    record = pack(0, UNKNOWN, *words, UNKNOWN, UNKNOWN, UNKNOWN, 0, *spent)
                    epoch.rows.append(
                        (requested, delivered, index_ns[0], 0, UNKNOWN, UNKNOWN, pinned, record)
                    )
                except Exception as error:  # noqa: BLE001 - looking may not end a training
                    self.fail(error)
            return batch

        own.fetch = lambda index: ours(fetcher(), index)
        self._hook(iterator, _next_data=timed_next_data, _next_index=timed_next_index)

    def _tell(self, text: dict[str, Any]) -> None:
        for note in text["notes"]:
            self._stages.note(note)

    def take(self) -> list[Found]:
        """As of others, and the lines of code."""
        text, self._text = self._text, self._tracer.lines()
        more = [_more(self._text, text, name) for name in ("running", "blocked")]
        return [*super().take(), *([CodeSamples(None, *more)] if any(more) else [])]

    def _names(self, worker: int) -> list[str]:  # noqa: ARG002 - there is none
        return self._tracer.transforms.names

    def make_way(self) -> None:
        """Leave the transforms to it: who knows a loader's length may never ask for its end."""
        self._tracer.end()

    def close(self) -> None:
        """As of others; the dataset is left as it was, too."""
        super().close()
        self._tracer.end()
        fetcher = self._fetcher()
        if fetcher is not None:
            vars(fetcher).pop("fetch", None)


class WithWorkers(Inside):
    """An iterator with worker processes, which tell by `channel`; None where they tell nothing."""

    def __init__(
        self, iterator: Any, stages: DataLoaderStages, channel: Channel | None, pins: Pins
    ) -> None:
        super().__init__(iterator, stages)
        self._channel = channel
        self._processes: list[Any] = list(iterator._workers)  # noqa: SLF001 - there is no other way in
        workers = range(len(self._processes))
        self._versions = dict.fromkeys(workers, 0)
        self._texts: dict[int, dict[str, Any]] = {worker: {} for worker in workers}
        self._not_started = set(workers)
        self._dead: set[int] = set()
        self._first: Epoch | None = None
        self._pins = pins.of(iterator._worker_result_queue)  # noqa: SLF001 - as above
        self._hook_into(iterator)

    def begin(self, epoch: Epoch | None) -> None:
        """As of others; the first epoch is the one in which the workers start."""
        if self.epoch is None and not self._epochs:
            self._first = epoch
        super().begin(epoch)

    def _hook_into(self, iterator: Any) -> None:  # noqa: C901 - closures over a weak reference
        alive, kind, channel, pins = self.alive, type(iterator), self._channel, self._pins
        give, get, put = kind._next_data, kind._try_get_data, kind._try_put_index  # noqa: SLF001 - as above
        in_order = getattr(iterator, "_in_order", True)  # since torch 2.6
        receipts: dict[int, Receipt] = {}
        index_ns = [0]
        last_idx = [0]

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
                        receipts[idx] = received(idx, start, end)
                except Exception as error:  # noqa: BLE001 - looking may not end a training
                    self.fail(error)
            return got

        def received(idx: int, start: int, end: int) -> Receipt:
            of_thread = pins.pop(idx, None)
            record = b""
            if channel is not None:
                slot = channel.slot(idx)
                record = bytes(channel.bytes[slot * WORD : (slot + STRIDE) * WORD])
                channel.words[slot] = UNKNOWN
            return (start, end, UNKNOWN, record) if of_thread is None else (*of_thread, record)

        def timed_try_put_index() -> None:
            start = perf_counter_ns()
            put(alive())
            index_ns[0] += perf_counter_ns() - start

        def timed_next_data() -> Any:
            index_ns[0] = 0
            requested = perf_counter_ns()
            batch = give(alive())
            delivered = perf_counter_ns()
            epoch = self.epoch
            if epoch is not None:
                try:
                    idx = alive()._rcvd_idx - 1 if in_order else last_idx[0]  # noqa: SLF001 - as above
                    receipt = receipts.pop(idx, NOT_RECEIVED)
                    epoch.rows.append((requested, delivered, index_ns[0], idx, *receipt))
                except Exception as error:  # noqa: BLE001 - as above
                    self.fail(error)
            return batch

        self._hook(
            iterator,
            _next_data=timed_next_data,
            _try_get_data=timed_try_get_data,
            _try_put_index=timed_try_put_index,
        )

    def take(self) -> list[Found]:
        """As of others, and how the workers started, their lines of code, and their deaths."""
        if self._channel is None:
            return super().take()
        code = self._read_texts(self._channel)
        self.look_for_dead()
        return [*super().take(), *self._starts(self._channel), *code]

    def close(self) -> None:
        """As of others; the workers stop looking with their next batch."""
        self.look_for_dead()
        super().close()
        if self._channel is not None:
            self._channel.words[told.OPEN] = 0

    def _names(self, worker: int) -> list[str]:
        names: list[str] = self._texts[worker].get("names", [])
        return names

    def _read_texts(self, channel: Channel) -> list[CodeSamples]:
        found = []
        for worker, known in self._versions.items():
            read = channel.read_text(worker, known)
            if read is None:
                continue
            before = self._texts[worker]
            self._versions[worker], text = read
            self._texts[worker] = text
            for note in text.get("notes", ()):
                self._stages.note(note)
            more = [_more(text, before, name) for name in ("running", "blocked")]
            if any(more):
                found.append(CodeSamples(worker, *more))
        return found

    def _starts(self, channel: Channel) -> list[WorkerStart]:
        epoch = self._first
        if epoch is None or epoch.number is None or self.starting is None:
            return []
        found = []
        for worker in sorted(self._not_started):
            own = channel.own(worker)
            ready_ns, init_ns = (
                channel.words[own + told.READY_NS],
                channel.words[own + told.INIT_NS],
            )
            if ready_ns:
                found.append(WorkerStart(epoch.number, worker, *self.starting, ready_ns, init_ns))
                self._not_started.remove(worker)
        return found

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
                self._stages.note(
                    f"worker {worker} (pid {process.pid}) died ({_cause(code)})"
                    f"{self._over_what(worker)}",
                    "worker died",
                )

    def _over_what(self, worker: int) -> str:
        if self._channel is None:
            return ""
        own = self._channel.own(worker)
        sample, batch = (
            self._channel.words[own + told.SAMPLE],
            self._channel.words[own + told.BATCH],
        )
        if sample == told.NO_SAMPLE:
            return " between two batches"
        if sample == told.COLLATING:
            return f" while collating batch {batch}"
        return f" while loading sample {sample} of batch {batch}"


class Pins:
    """When the thread that pins batches got each, and how long it took to pin it."""

    def __init__(self) -> None:
        self._by_queue: dict[int, dict[int, tuple[int, int, int]]] = {}

    def of(self, queue: Any) -> dict[int, tuple[int, int, int]]:
        """Start and end of reading, and nanoseconds of pinning, of batches from `queue`."""
        return self._by_queue.setdefault(id(queue), {})

    def timed(self, loop: Callable[..., None]) -> Callable[..., None]:
        """`loop`, which is torch's, timed."""

        def timed_loop(incoming: Any, outgoing: Any, *args: Any) -> None:
            pins = self.of(incoming)
            loop(TimedIncoming(incoming, pins), TimedOutgoing(outgoing, pins), *args)

        return timed_loop


class TimedIncoming:
    """The queue from which the pinning thread reads."""

    def __init__(self, queue: Any, pins: dict[int, tuple[int, int, int]]) -> None:
        self._queue, self._pins = queue, pins

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """As of the queue."""
        start = perf_counter_ns()
        got = self._queue.get(*args, **kwargs)
        if type(got[0]) is int:
            self._pins[got[0]] = start, perf_counter_ns(), UNKNOWN
        return got


class TimedOutgoing:
    """The queue in which it puts them."""

    def __init__(self, queue: Any, pins: dict[int, tuple[int, int, int]]) -> None:
        self._queue, self._pins = queue, pins

    def put(self, item: Any, *args: Any, **kwargs: Any) -> Any:
        """As of the queue."""
        now = perf_counter_ns()
        if type(item[0]) is int and item[0] in self._pins:
            start, end, _ = self._pins[item[0]]
            self._pins[item[0]] = start, end, now - end
        return self._queue.put(item, *args, **kwargs)


class Opened:
    """A loader that is looked into: `next` is its epoch that no iterator serves yet."""

    def __init__(self, loader: Any, stages: DataLoaderStages) -> None:
        key = id(loader)
        self.loader = weakref.ref(loader, lambda _: _opened.pop(key, None))
        self.stages = stages
        self.next: Epoch | None = None
        self.is_making = False

    def taken(self) -> Epoch | None:
        """The next epoch, which no other iterator shall serve."""
        taken, self.next = self.next, None
        return taken


_lock = threading.RLock()
"""Held while classes are patched, and while an iterator is made."""
_opened: dict[int, Opened] = {}
"""By the identity of a loader, which need not be hashable."""
_patches: dict[type, tuple[Any, Any, int]] = {}
"""For each class our `_get_iterator`, the one that it replaced, and how many need it."""
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
    # Where another tool has replaced ours, that calls ours.
    if count == 1 and vars(kind)["_get_iterator"] is ours:
        kind._get_iterator = original  # type: ignore[attr-defined]  # noqa: SLF001 - as above
        del _patches[kind]


@contextmanager
def _swapped(loader: Any, channel: Channel | None, pins: Pins) -> Generator[bool]:
    """While an iterator is made, its workers and its pinning thread get ours to run."""
    held = vars(loader)
    with _lock:
        user, loop = held.get("worker_init_fn"), pin_memory._pin_memory_loop  # noqa: SLF001 - looked up there
        is_settable = "worker_init_fn" in held and channel is not None
        if is_settable and channel is not None:
            held["worker_init_fn"] = WorkerInit(
                user, channel
            )  # past a __setattr__ that notes what is set
        if loader.pin_memory:
            pin_memory._pin_memory_loop = pins.timed(loop)  # noqa: SLF001 - as above
        try:
            yield is_settable
        finally:
            pin_memory._pin_memory_loop = loop  # noqa: SLF001 - as above
            if is_settable:
                held["worker_init_fn"] = user


def _forget() -> None:
    """In a process that was forked nothing is looked into: nobody would ask for it."""
    global _lock  # noqa: PLW0603 - a thread may have held it that is not here
    _lock = threading.RLock()
    _opened.clear()
    for stages in list(_all):
        stages.abandon()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_forget)


def _exit_code(process: Any) -> int | None:
    """As `process.exitcode`, but torch can still ask how its child ended."""
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


def _more(text: dict[str, Any], before: dict[str, Any], name: str) -> dict[str, int]:
    known = before.get(name, {})
    return {
        place: more
        for place, count in text.get(name, {}).items()
        if (more := count - known.get(place, 0)) > 0
    }


def _ignore(_epoch: int) -> None:
    """Nobody looks into this epoch."""
