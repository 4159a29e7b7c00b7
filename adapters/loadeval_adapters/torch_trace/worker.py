"""Times each batch that torch's fetchers make, in a DataLoader's workers or where it trains."""

from __future__ import annotations

import operator
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import queues, util
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import Any

from torch.utils.data import Subset, get_worker_info
from torch.utils.data._utils import fetch

from loadeval_adapters.torch_trace import pickles
from loadeval_adapters.torch_trace.channel import UNKNOWN, WORD, Channel, is_of_a_signal
from loadeval_adapters.torch_trace.code import CodeSampler
from loadeval_adapters.torch_trace.kernel import (
    UNCOUNTED,
    UNKNOWN_FIGURES,
    UNREAD,
    CallCounter,
    Consumption,
    OwnMemory,
)
from loadeval_adapters.torch_trace.transforms import Transforms

Fetch = Callable[[Any, Any], Any]
Taken = tuple[tuple[int, ...], tuple[int, ...]]
"""The words of a batch's record from `samples` to `requests`, and those of its transforms."""

WORTH_NS = 1_000_000
"""The kernel is asked only after a batch that took at least this long, and before the next."""
FETCHERS = (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher)  # noqa: SLF001 - torch has no public name
NAMES = (
    {"auto_collation", "hasattr", "dataset", "__getitems__", "collate_fn"},
    {"ended", "StopIteration", "auto_collation", "append", "next", "dataset_iter", "len"}
    | {"drop_last", "collate_fn"},
)
KNOWN = {
    function
    for kind, names in zip(FETCHERS, NAMES, strict=True)
    if set((function := vars(kind)["fetch"]).__code__.co_names) == names
}
"""Torch's functions that have these names, as since torch 2.1: they read a sample for each index in
turn, and then collate."""
UNEXPECTED = (
    "this version of torch reads samples in a way of its own: reading and collating are not told "
    "apart, nor are samples"
)
PLACE = "_loadeval_place"
"""Where a stream's fetcher keeps how many samples it has read."""
IN_THREADS = "the workers are threads: what they do is not timed"


class Tracer:
    """Times what torch's fetchers do for each batch, and tells by `channel` what is to be known."""

    def __init__(self, channel: Channel, worker: int, *, in_training: bool = False) -> None:
        self.transforms = Transforms(in_training=in_training)
        self.stage = ["fetch"]
        self.code = CodeSampler(
            *(self.transforms.thread, self.stage, Tracer.fetch.__code__, self.flush),
            in_training=in_training,
        )
        self.ended: Callable[[], object] = self.transforms.restore
        self._taken: Taken | None = None
        self._channel, self._worker = channel, worker
        self._in_training = in_training
        self._notes: list[str] = []
        self._consumption = Consumption()
        self._memory = None if in_training else OwnMemory()
        self._counter = CallCounter() if channel.words[Channel.COUNTS_CALLS] else None
        self._last_ns = WORTH_NS
        self._is_fetching = self._is_sized = self._is_over = False
        self._lock = threading.RLock()  # a finalizer may run while it is held

    def take(self) -> Taken | None:
        """What the last batch took, once; None where it was not timed, or raised."""
        taken, self._taken = self._taken, None
        return taken

    def look_into(self, dataset: Any) -> None:
        """Time the transforms of `dataset`."""
        try:
            self.transforms.find(dataset)
        except Exception as error:  # noqa: BLE001 - those found before it are timed
            self._notes.append(f"not all transforms are timed ({type(error).__name__}: {error})")
        if self._in_training:  # the program may look at its transforms between batches
            self.transforms.take_out()
        self.flush()

    def flush(self) -> None:
        """Tell what is known so far."""
        with self._lock:
            text = {
                "names": self.transforms.names,
                "sizes": self.transforms.sizes(),
                "notes": self._notes,
                "code": self.code.most_common(),
            }
            self._channel.write_text(self._worker, text)

    def fail(self, error: Exception) -> None:
        """Stop looking, and say why. Raises what a signal's handler raised."""
        if is_of_a_signal(error):
            raise error
        who = "the loader" if self._in_training else f"worker {self._worker}"
        self._notes.append(f"{who} is not looked into any more ({type(error).__name__}: {error})")
        self.close()

    def make_way(self) -> None:
        """Leave the transforms to another tracer, which begins in this process."""
        self.code.stop()
        self.ended()
        self.flush()

    def close(self) -> None:
        """Leave this process as it was. Called by what fetches, or once nothing does."""
        self._is_over = True
        self.make_way()
        self._consumption.close()

    def fetch(self, torchs: Fetch, fetcher: Any, index: Any) -> Any:
        """What `torchs`, torch's own fetch, returns."""
        if self._is_over or self._is_fetching:  # for a loader that the dataset itself reads
            return torchs(fetcher, index)
        self._taken, self._is_fetching = None, True
        reading: Reading | None = None
        try:
            cpu_ns, memory = self._begin()
            if torchs in KNOWN:
                reading = Reading(fetcher, index, self.stage)
        except Exception as error:  # noqa: BLE001 - measuring may not end a training
            self._end(reading)
            self.fail(error)
            return torchs(fetcher, index)
        is_by_sample = reading is not None and reading.is_by_sample
        calls, start_ns = UNCOUNTED, perf_counter_ns()
        try:
            batch = torchs(fetcher, reading if is_by_sample else index)
            end_ns = perf_counter_ns()
        finally:
            calls = self._end(reading)
        try:
            self._note(reading, index, start_ns, end_ns, (cpu_ns, memory, calls))
        except Exception as error:  # noqa: BLE001 - measuring may not end a training
            self.fail(error)
        return batch

    def _begin(self) -> tuple[int, tuple[int, int]]:
        """Put into place what times a batch; returns this thread's CPU time and memory so far."""
        transforms, size = self.transforms, 2 * len(self.transforms.names)
        memory = UNREAD if self._memory is None else self._memory.take()
        if self._in_training:
            transforms.put_in()
        transforms.spent[:size] = [0] * size
        transforms.sizing[0], transforms.thread[0] = not self._is_sized, get_ident()
        self.stage[0] = "fetch"
        asks = self._last_ns >= WORTH_NS
        cpu_ns = self._consumption.start() if asks else thread_time_ns()
        if self._counter is not None and self._is_sized:  # once what is opened once is open
            self._counter.start(self._last_ns)
        return cpu_ns, memory

    def _end(self, reading: Reading | None) -> tuple[int, int, int]:
        """Leave everything as it was before the batch; returns the calls that were counted."""
        calls = UNCOUNTED
        self._is_fetching, self.transforms.thread[0] = False, 0
        try:
            if reading is not None:
                reading.end()
            if self._counter is not None and self._is_sized:
                calls, self._counter = self._counter.stop(), None
            if self._in_training:
                self.transforms.take_out()
        except Exception as error:  # noqa: BLE001 - measuring may not end a training
            self.fail(error)
        return calls

    def _note(
        self,
        reading: Reading | None,
        index: Any,
        start_ns: int,
        end_ns: int,
        found: tuple[int, tuple[int, ...], tuple[int, ...]],
    ) -> None:
        """Keep what a batch took, until it is taken."""
        (cpu_ns, memory, calls), took_ns = found, end_ns - start_ns
        if reading is None:
            times = _length(index), start_ns, took_ns, 0, UNKNOWN, UNKNOWN
            if UNEXPECTED not in self._notes:
                self._notes.append(UNEXPECTED)
        else:
            fetched = start_ns, reading.read_ns - start_ns, end_ns - reading.read_ns
            times = reading.samples, *fetched, reading.slowest_ns, reading.slowest
        figures = UNKNOWN_FIGURES
        if took_ns >= WORTH_NS or self._last_ns >= WORTH_NS:
            figures = self._consumption.since(cpu_ns, took_ns)
        self._last_ns = took_ns
        spent = tuple(self.transforms.spent[: 2 * len(self.transforms.names)])
        self._taken = (*times, *figures, *memory, *calls), spent
        if not self._is_sized:
            self._is_sized = True
            self.flush()
        if self._in_training and took_ns >= WORTH_NS and not self.code.is_started:
            self.code.start(get_ident(), threading.get_native_id())


class Reading:
    """A batch that torch's fetcher is about to make.

    Until its end the fetcher has a `collate_fn` that notes when it is called, and where it reads
    sample by sample, this stands for the indices of the batch, and notes what passes between one
    and the next. A dataset that is asked for a whole batch, by `__getitems__`, gets the indices as
    they are: nothing tells when it reads which.
    """

    is_by_sample = False
    samples = slowest_ns = UNKNOWN
    read_ns = _place = 0

    def __init__(self, fetcher: Any, index: Any, stage: list[str]) -> None:
        self._held = held = vars(fetcher)
        self._stage = stage
        dataset = self._dataset = held["dataset"]
        self._collate = held["collate_fn"]
        self._is_batch, self._is_stream = held["auto_collation"], "dataset_iter" in held
        self._slowest: Any = None
        if self._is_stream:
            self._place = held.get(PLACE, 0)
        if not self._is_batch:
            self._slowest = self._place if self._is_stream else index
            if not self._is_stream:
                self.samples = len(index) if isinstance(index, (list, tuple)) else 1
        elif self._is_stream:
            self._indices: Any = range(self._place, self._place + len(index))
            self.is_by_sample = True
        else:
            self.samples, self._indices, unrolled = _length(index), index, []
            while type(dataset) is Subset:
                unrolled.append(dataset.indices)
                dataset = dataset.dataset
            if not (hasattr(dataset, "__getitems__") and dataset.__getitems__):
                for indices in unrolled:
                    self._indices = [indices[position] for position in self._indices]
                held["dataset"], self.is_by_sample = dataset, True
        held["collate_fn"] = self.collate

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[Any]:
        slowest_ns, then = UNKNOWN, perf_counter_ns()
        for index in self._indices:
            yield index
            now = perf_counter_ns()
            if now - then > slowest_ns:
                self.slowest_ns = slowest_ns = now - then
                self._slowest = index
            then = now

    @property
    def slowest(self) -> int:
        """The index of the slowest sample; UNKNOWN if it is no number that fits eight bytes."""
        with suppress(Exception):  # a user's class may raise anything
            number = operator.index(self._slowest)
            return number if abs(number) < 1 << 63 else UNKNOWN
        return UNKNOWN

    def collate(self, data: Any) -> Any:
        """What the user's `collate_fn` returns."""
        self.read_ns = perf_counter_ns()
        self._stage[0] = "collate"
        if self._is_batch and type(data) is list:
            self.samples = len(data)
        return self._collate(data)

    def end(self) -> None:
        """Leave the fetcher as it was; a stream's knows how much it has read."""
        self._held["dataset"], self._held["collate_fn"] = self._dataset, self._collate
        if self._is_stream and self.read_ns:
            self._held[PLACE] = self._place + (self.samples if self._is_batch else 1)


class WorkerInit:
    """Stands in for a user's `worker_init_fn`: calls it, and then times this worker.

    From then on it stands in, too, for the class with which the queues of multiprocessing pickle: a
    request is unpickled before a batch is fetched, and the batch is pickled afterwards, in another
    thread.
    """

    def __init__(self, user: Callable[[int], object] | None, channel: Channel) -> None:
        self._user, self._channel = user, channel
        self._training = os.getpid()

    def __call__(self, worker: int) -> None:
        """Called in the worker, as the user's is."""
        began_ns = perf_counter_ns()
        if self._user is not None:
            self._user(worker)
        ready_ns, channel = perf_counter_ns(), self._channel
        try:
            if os.getpid() == self._training:
                channel.write_text(worker, {"notes": [IN_THREADS]})
                return
            self._install(worker)
            own = channel.own(worker)
            channel.words[own + Channel.UNPICKLING_NS] = began_ns - pickles.unpickling_began_ns
            channel.words[own + Channel.INIT_NS] = ready_ns - began_ns
            channel.words[own + Channel.READY_NS] = began_ns
        except Exception as error:  # noqa: BLE001 - measuring may not end a training
            note = f"worker {worker} is not looked into ({type(error).__name__}: {error})"
            channel.write_text(worker, {"notes": [note]})

    def _install(self, worker: int) -> None:
        info: Any = get_worker_info()
        self._dataset, self._worker = info.dataset, worker
        self._tracer = tracer = Tracer(self._channel, worker)
        self._taken: dict[int, Taken] = {}
        self._thread = get_ident(), threading.get_native_id()
        self._idx = UNKNOWN
        self._has_begun, self._state = False, UNKNOWN
        self._looks()  # before the worker makes its fetcher
        self._pickler: Any = queues._ForkingPickler  # type: ignore[attr-defined]  # noqa: SLF001 - the one seam
        self._torchs = [vars(kind)["fetch"] for kind in FETCHERS]
        for kind, torchs in zip(FETCHERS, self._torchs, strict=True):
            kind.fetch = self._looking(torchs)  # type: ignore[method-assign,assignment]
        queues._ForkingPickler = self  # type: ignore[attr-defined]  # noqa: SLF001 - the one seam
        tracer.ended = self._uninstall
        # Once more at the end of the process, for what was found since the last time.
        util.Finalize(None, tracer.flush, exitpriority=100)

    def _looking(self, torchs: Fetch) -> Fetch:
        tracer, taken = self._tracer, self._taken

        def fetch_timed(fetcher: Any, index: Any) -> Any:
            try:
                looks = get_ident() == self._thread[0] and self._looks()
            except Exception as error:  # noqa: BLE001 - measuring may not end a training
                tracer.fail(error)
                looks = False
            if not looks:
                return torchs(fetcher, index)
            idx, batch = self._idx, tracer.fetch(torchs, fetcher, index)
            found = tracer.take()
            if found is not None:
                taken[idx] = found
            return batch

        return fetch_timed

    def _looks(self) -> bool:
        """Whether somebody looks into this worker now."""
        state = self._channel.words[Channel.OPEN]
        if state != self._state:
            self._state = state
            if state == Channel.CLOSED:
                self._tracer.close()
            elif state == Channel.PAUSED:
                self._tracer.transforms.pause()
            elif self._has_begun:
                self._tracer.transforms.resume()
            else:
                self._has_begun = True
                self._tracer.look_into(self._dataset)
        return state == Channel.LOOKING

    def _uninstall(self) -> None:
        for kind, torchs in zip(FETCHERS, self._torchs, strict=True):
            kind.fetch = torchs  # type: ignore[method-assign]
        queues._ForkingPickler = self._pickler  # type: ignore[attr-defined]  # noqa: SLF001 - the one seam
        self._tracer.transforms.restore()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_pickler" not in vars(self):  # until it is installed
            raise AttributeError(name)
        return getattr(self._pickler, name)

    def loads(self, pickled: Any, *rest: Any) -> Any:
        """Unpickle a message of any queue; if it requests a batch, note which."""
        message = self._pickler.loads(pickled, *rest)
        is_request = type(message) is tuple and len(message) == 2 and type(message[0]) is int  # noqa: PLR2004 - idx, index
        if is_request and not self._tracer.transforms.thread[0] and get_ident() == self._thread[0]:
            self._idx = message[0]
        return message

    def dumps(self, message: Any, *rest: Any) -> Any:
        """Pickle a message of any queue; if it brings a batch, send its record."""
        is_batch = type(message) is tuple and len(message) == 2 and type(message[0]) is int  # noqa: PLR2004 - idx, batch
        taken = self._taken.pop(message[0], None) if is_batch else None
        start_ns = perf_counter_ns()
        pickled = self._pickler.dumps(message, *rest)
        if taken is None:
            return pickled
        try:
            idx, channel, (words, spent) = message[0], self._channel, taken
            pickle_ns = perf_counter_ns() - start_ns
            record = (idx, self._worker, *words, start_ns, pickle_ns, len(pickled), idx, *spent)
            struct.pack_into(f"{len(record)}q", channel.bytes, channel.slot(idx) * WORD, *record)
            if not self._tracer.code.is_started:  # now that the queue has its thread
                self._tracer.code.start(*self._thread)
        except Exception as error:  # noqa: BLE001 - measuring may not end a training
            self._tracer.fail(error)
        return pickled


def _length(index: Any) -> int:
    try:
        return len(index)
    except Exception:  # noqa: BLE001 - it can be iterated, and perhaps no more
        return UNKNOWN
