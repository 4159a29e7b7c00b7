"""Times each batch that torch's fetchers make, in a DataLoader's workers or where it trains."""

from __future__ import annotations

import operator
import os
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from multiprocessing import queues
from threading import get_ident, get_native_id
from time import perf_counter_ns
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Subset, _DatasetKind, get_worker_info
from torch.utils.data._utils import fetch

from loadeval import leaves
from loadeval.errors import Guard
from loadeval_adapters.torch_trace.channel import CLOSED, LOOKING, Channel, Record, reason
from loadeval_adapters.torch_trace.code import Activity, CodeSampler
from loadeval_adapters.torch_trace.kernel import LEAVES, CallCounter, Consumption, OwnMemory
from loadeval_adapters.torch_trace.transforms import Transforms

Fetch = Callable[[Any, Any], Any]
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
HAS_BEGUN = "_loadeval_has_begun"
"""Where a fetcher, of which each epoch has its own, keeps that it has made a batch."""
HELD_LAST = "_loadeval_held_last"
"""Where a fetcher keeps what goes when all else that it has is gone."""
LARGEST_INDEX = 2**62
FINGERPRINTED, NUMBERS = 4, 1000
"""So many batches of a worker have a fingerprint, of some numbers of each array."""
STABLE, FEWEST_BYTES = ("int32", "int64", "<U", "|S"), 64
IN_THREADS = "the workers are threads: what they do is not timed"
BEGIN_UNPICKLING = f"c{__name__}\nbegin_unpickling\n)R0".encode()
"""Opcodes of pickle that call that function and drop what it returns.

They may stand before any pickle, whose content they leave as it is. A worker imports this module,
and so torch, before: that is not timed.
"""
unpickling_began_ns = 0
"""When this process began to unpickle what a worker is sent; 0 in one that was sent nothing."""


def begin_unpickling() -> None:
    """Called in a worker that is not forked, by BEGIN_UNPICKLING."""
    global unpickling_began_ns  # noqa: PLW0603 - a process is sent one worker
    unpickling_began_ns = perf_counter_ns()


class Reading:
    """A batch that torch's fetcher makes.

    From `begin` to `end` the fetcher has a `collate_fn` that notes when it is called, and where it
    reads sample by sample, this object stands for the indices, and notes what passes between one
    and the next. A dataset that is asked for a whole batch, by `__getitems__`, gets the indices as
    they are: nothing tells when it reads which.
    """

    is_by_sample = is_stream = False
    read: Callable[[list[Any]], object] | None = None
    data: Sequence[Any] = ()

    def __init__(self, fetcher: Any, index: Any, activity: Activity) -> None:
        self.read_ns = 0
        self._fetcher, self._index, self._activity = fetcher, index, activity
        self._held: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        self._samples: int | None = None
        self._slowest_ns: int | None = None
        self._slowest: Any = None
        self._place: int | None = None
        self._each: Any = ()

    def begin(self) -> None:
        """Put into place what notes; not where torch's fetch is not as expected."""
        held, index = vars(self._fetcher), self._index
        self._held = held
        dataset, self._is_batch = held["dataset"], held["auto_collation"]
        self._before = {"dataset": dataset, "collate_fn": held["collate_fn"]}
        self._collate = held["collate_fn"]
        if "dataset_iter" in held:
            self.is_stream = True
            self._slowest = self._place = held.get(PLACE, 0)
            if self._is_batch:
                self._each = range(self._place, self._place + len(index))
                self.is_by_sample = True
        elif not self._is_batch:
            self._slowest = index
            self._samples = len(index) if isinstance(index, (list, tuple)) else 1
        else:
            self._samples, unrolled = _length(index), []
            while type(dataset) is Subset:
                unrolled.append(dataset.indices)
                dataset = dataset.dataset
            if not (hasattr(dataset, "__getitems__") and dataset.__getitems__):
                self._each = index
                for indices in unrolled:
                    self._each = [indices[position] for position in self._each]
                held["dataset"], self.is_by_sample = dataset, True
        held["collate_fn"] = self.collate

    def __len__(self) -> int:
        return len(self._each)

    def __iter__(self) -> Iterator[Any]:
        slowest_ns, then = -1, perf_counter_ns()
        for index in self._each:
            yield index
            now = perf_counter_ns()
            if now - then > slowest_ns:
                self._slowest_ns = slowest_ns = now - then
                self._slowest = index
            then = now

    def collate(self, data: Any) -> Any:
        """What the user's `collate_fn` returns."""
        self.read_ns = perf_counter_ns()
        self._activity.stage = "collate"
        is_several = self._is_batch and type(data) is list
        if is_several:
            self._samples = len(data)
        self.data = data if is_several else [data]
        if self.read is not None:
            self.read(self.data)
        return self._collate(data)

    def end(self) -> None:
        """Leave the fetcher as it was; a stream's knows how much it has read."""
        self._held.update(self._before)
        if self._place is not None and self.read_ns:
            self._held[PLACE] = self._place + ((self._samples or 0) if self._is_batch else 1)

    def times(self, start_ns: int, end_ns: int) -> Record:
        """What reading and collating took; together, where torch's fetch is not as expected."""
        read_ns = self.read_ns or end_ns
        times = {"fetch_start_ns": start_ns, "fetch_ns": read_ns - start_ns}
        times["collate_ns"] = end_ns - read_ns
        samples = self._samples if self.read_ns else _length(self._index)
        if samples is not None:
            times["samples"] = samples
        if self._slowest_ns is not None:
            times["slowest_ns"] = self._slowest_ns
        try:
            number = int(operator.index(self._slowest))
        except Exception:  # noqa: BLE001 - it is no number, and a user's class may raise anything
            return times
        if 0 <= number < LARGEST_INDEX:
            times["slowest_index"] = number
        return times


def fingerprint(batch: Any) -> Record:
    """A number that tells batches of other content apart, in some 10 us for each array.

    Of labels, names and tokens alone, if there are eight: transforms change others at random.
    """
    contents: list[tuple[bool, bytes]] = []
    for leaf in islice(leaves(batch), LEAVES):
        with suppress(Exception):  # of a sparse tensor, say, or a class of the user's
            array = np.asarray(leaf.detach() if isinstance(leaf, Tensor) else leaf)
            # Without a copy of all; an odd step meets all columns.
            some = array.flat[:: max(array.size // NUMBERS, 1) | 1]
            if not some.dtype.hasobject:
                contents.append((str(some.dtype).startswith(STABLE), some.tobytes()))
    stable = [content for is_stable, content in contents if is_stable]
    chosen = stable if sum(map(len, stable)) >= FEWEST_BYTES else [each for _, each in contents]
    return {"fingerprint": zlib.crc32(b"".join(chosen))} if chosen else {}


def _length(index: Any) -> int | None:
    try:
        return len(index)
    except Exception:  # noqa: BLE001 - it can be iterated, and perhaps no more
        return None


class Tracer:
    """Times what torch's fetchers do for each batch in this process; `note` is told what fails.

    `who` fetches, in words. `counts_calls` tells that the calls of one batch are counted.
    """

    def __init__(
        self,
        dataset: Any,
        who: str,
        note: Callable[[str], object],
        *,
        in_training: bool = False,
        counts_calls: bool = False,
    ) -> None:
        self.activity = Activity()
        until = Tracer.fetch.__code__, Tracer.fetcher.__code__
        self.code = CodeSampler(self.activity, *until, in_training=in_training)
        self.guard = Guard(self._fail)
        self.dataset = None if in_training else dataset  # what holds it keeps its loader open
        self._transforms = Transforms(dataset, self.activity, in_training=in_training)
        self._who, self._note, self._in_training = who, note, in_training
        self._consumption = Consumption()
        self._memory = None if in_training else OwnMemory()
        self._counter = CallCounter() if counts_calls else None
        self._last_ns = WORTH_NS
        self._fingerprints, self._seen = 0 if in_training else FINGERPRINTED, set[int]()
        self._is_over = False

    def look(self, on: bool) -> None:
        """Time the transforms of the dataset, or let them run as they were found."""
        # Those that were found before one failed are timed.
        with Guard(lambda error: self._note(f"not all transforms are timed ({reason(error)})")):
            self._transforms.look(on)

    def make_way(self) -> None:
        """Leave the transforms to another tracer, which begins in this process."""
        self.code.stop()
        self._transforms.restore()

    def close(self) -> None:
        """Leave this process as it was. Called by what fetches, or once nothing does."""
        self._is_over = True
        self.make_way()
        self._consumption.close()

    def _fail(self, error: Exception) -> None:
        self._note(f"{self._who} is not looked into any more ({reason(error)})")
        self.close()

    def fetcher(self, torchs: Callable[..., Any], *of_dataset: Any) -> Any:
        """What `torchs`, torch's own function, makes: it asks a stream's dataset for an epoch."""
        if self._is_over or self.activity.thread:  # of a loader that the dataset itself reads
            return torchs(*of_dataset)
        self.activity.thread, self.activity.stage = get_ident(), "start"
        try:
            return torchs(*of_dataset)
        finally:
            self.activity.thread = 0

    def fetch(self, torchs: Fetch, fetcher: Any, index: Any) -> tuple[Any, Record | None]:
        """What `torchs`, torch's own fetch, returns, and what is known of it."""
        if self._is_over:
            return torchs(fetcher, index), None
        reading, known = Reading(fetcher, index, self.activity), Record()
        try:
            with self.guard:
                self._begin(torchs, fetcher, reading, known)
            start_ns = perf_counter_ns()
            batch = torchs(fetcher, reading if reading.is_by_sample else index)
            end_ns = perf_counter_ns()
        finally:
            self.activity.thread = 0
            with self.guard:
                reading.end()
                self._transforms.end()
                if self._counter is not None and not self._transforms.is_sizing:
                    counter, self._counter = self._counter, None
                    known |= counter.stop()
        with self.guard:
            known |= self._known_of(reading, start_ns, end_ns)
            if reading.is_stream and self._fingerprints:
                self._fingerprints -= 1
                own = [each["fingerprint"] for each in map(fingerprint, reading.data) if each]
                if len(self._seen.union(own)) < len(self._seen) + len(own):
                    self._fingerprints = 0  # samples of one worker are alike: so may be others'
                else:
                    known |= fingerprint(batch)
                self._seen.update(own)
        return batch, known if "fetch_ns" in known else None

    def _begin(self, torchs: Fetch, fetcher: Any, reading: Reading, known: Record) -> None:
        """Put into place what times a batch."""
        if self._memory is not None:
            known |= self._memory.take()
        self._consumption.start(asks=self._last_ns >= WORTH_NS)
        if torchs in KNOWN:
            reading.begin()
        self._transforms.begin()
        has_begun, vars(fetcher)[HAS_BEGUN] = vars(fetcher).get(HAS_BEGUN), True
        self.activity.thread, self.activity.stage = get_ident(), "fetch" if has_begun else "start"
        if self._counter is not None and not self._transforms.is_sizing:
            reading.read = self._read
            self._counter.start(self._last_ns)  # once what is opened once is open

    def _read(self, samples: list[Any]) -> None:
        """Called with the samples of a batch whose calls are counted."""
        with self.guard:
            if self._counter is not None:
                self._counter.read(samples)

    def _known_of(self, reading: Reading, start_ns: int, end_ns: int) -> Record:
        """What was found of a batch; nothing if looking has failed meanwhile."""
        if self._is_over:
            return {}
        known, transforms = reading.times(start_ns, end_ns), self._transforms
        took_ns = end_ns - start_ns
        if not reading.read_ns:
            self._note(UNEXPECTED)
        if max(took_ns, self._last_ns) >= WORTH_NS:
            known |= self._consumption.since_start(took_ns)
        self._last_ns = took_ns
        known["transforms"] = {each.name: (each.ns, each.calls) for each in transforms.timers}
        if transforms.is_sizing:
            transforms.is_sizing = False
            known["sizes"] = {
                name: tuple(sum(side) / len(side) for side in zip(*sizes, strict=True))
                for name, sizes in transforms.sized.items()
                if sizes
            }
        known["code"] = self.code.take()
        if self._in_training and took_ns >= WORTH_NS and not self.code.is_started:
            self.code.start(get_ident(), get_native_id())
        return known


class WorkerInit:
    """Stands in for a user's `worker_init_fn`: calls it, and then looks into this worker."""

    def __init__(
        self, user: Callable[[int], object] | None, channel: Channel, *, counts_calls: bool
    ) -> None:
        self._user, self._channel, self._counts_calls = user, channel, counts_calls
        self._training = os.getpid()

    def __call__(self, worker: int) -> None:
        """Called in the worker, as the user's is."""
        began_ns = perf_counter_ns()
        if self._user is not None:
            self._user(worker)
        start = {"ready_ns": began_ns, "init_ns": perf_counter_ns() - began_ns}
        if unpickling_began_ns:
            start["unpickling_ns"] = began_ns - unpickling_began_ns
        own = Worker(self._channel, worker)
        with Guard(lambda error: own.note(f"worker {worker} is not looked into ({reason(error)})")):
            if os.getpid() == self._training:
                own.note(IN_THREADS)
            else:
                own.install(counts_calls=self._counts_calls)
                own.tell(start=start)


class Worker:
    """A worker process that is looked into.

    Its own class stands in for the one with which the queues of multiprocessing pickle: a request
    is unpickled before a batch is fetched, and the batch is pickled afterwards, in another thread.
    """

    def __init__(self, channel: Channel, worker: int) -> None:
        self._channel, self._worker = channel, worker
        self._told: Record = {"notes": []}
        self._times_told = 0

    def tell(self, **facts: Any) -> None:
        """Tell what is known of the worker itself."""
        self._told |= facts
        self._times_told += 1
        self._channel.tell(self._channel.of_worker(self._worker), self._times_told, self._told)

    def note(self, message: str) -> None:
        """Tell what is missing, and why, once."""
        if message not in self._told["notes"]:
            self._told["notes"].append(message)
            self.tell()

    def install(self, *, counts_calls: bool) -> None:
        """Look into what this process fetches from now on."""
        info: Any = get_worker_info()
        who = f"worker {self._worker}"
        self._tracer = Tracer(info.dataset, who, self.note, counts_calls=counts_calls)
        self._thread = get_ident(), get_native_id()
        self._requested: int | None = None
        self._known: dict[int, Record] = {}
        self._state = CLOSED
        self._looks()  # before the worker makes its fetcher
        for kind in FETCHERS:
            kind.fetch = self._looking(vars(kind)["fetch"])  # type: ignore[method-assign]
        fetcher = partial(self._fetcher, _DatasetKind.create_fetcher)
        _DatasetKind.create_fetcher = staticmethod(fetcher)  # type: ignore[method-assign]
        self._tracer.code.start(*self._thread)  # a worker's first batch may be its longest
        pickler: Any = queues._ForkingPickler  # type: ignore[attr-defined]  # noqa: SLF001 - the one seam
        self._pickle, self._unpickle = pickler.dumps, pickler.loads
        methods = {"dumps": staticmethod(self._dumps), "loads": staticmethod(self._loads)}
        queues._ForkingPickler = type(pickler.__name__, (pickler,), methods)  # type: ignore[attr-defined]  # noqa: SLF001 - the one seam

    def _fetcher(self, torchs: Callable[..., Any], *of_dataset: Any) -> Any:
        """What `torchs` makes; once it goes, a stream that training has left ends in here."""
        fetcher = self._tracer.fetcher(torchs, *of_dataset)
        with self._tracer.guard:
            if any(each is self._tracer.dataset for each in of_dataset):
                last = vars(fetcher)[HELD_LAST] = set[None]()  # it goes after the stream's iterator
                weakref.finalize(fetcher, self._begin_end).atexit = False
                weakref.finalize(last, self._tell_end).atexit = False
        return fetcher

    def _begin_end(self) -> None:
        with self._tracer.guard:
            self._tracer.code.keep()
            self._tracer.activity.thread = self._thread[0]

    def _tell_end(self) -> None:
        with self._tracer.guard, suppress(ValueError):  # of so many lines that they do not fit
            self._tracer.activity.thread = 0
            if seen := self._tracer.code.ended():
                try:
                    self.tell(code=seen)
                finally:
                    del self._told["code"]

    def _looks(self) -> bool:
        """Whether somebody looks into this worker now."""
        state = self._channel.state
        if state != self._state:
            self._state = state
            if state == CLOSED:
                self._tracer.close()
            else:
                self._tracer.look(state == LOOKING)
        return state == LOOKING

    def _looking(self, torchs: Fetch) -> Fetch:
        def fetch_timed(fetcher: Any, index: Any) -> Any:
            idx, looks = self._requested, False
            # A loader that the dataset itself reads fetches what nobody has requested.
            if idx is not None and get_ident() == self._thread[0]:
                self._requested = None
                with self._tracer.guard:
                    looks = self._looks()
            if idx is None or not looks:
                return torchs(fetcher, index)
            try:
                batch, known = self._tracer.fetch(torchs, fetcher, index)
            except StopIteration:
                self._known[idx] = {"code": self._tracer.code.ended()}
                raise
            if known is not None:
                self._known[idx] = known
            return batch

        return fetch_timed

    def _loads(self, pickled: Any, *rest: Any) -> Any:
        """Unpickle a message of any queue; if it requests a batch, note which."""
        message = self._unpickle(pickled, *rest)
        is_awaited = not self._tracer.activity.thread and get_ident() == self._thread[0]
        if is_awaited and is_of_batch(message):
            self._requested = message[0]
        return message

    def _dumps(self, message: Any, *rest: Any) -> Any:
        """Pickle a message of any queue; if it brings a batch, tell what is known of that."""
        known = self._known.pop(message[0], None) if is_of_batch(message) else None
        start_ns = perf_counter_ns()
        pickled = self._pickle(message, *rest)
        if known is None:
            return pickled
        with self._tracer.guard:
            known |= {"pickle_start_ns": start_ns, "pickle_ns": perf_counter_ns() - start_ns}
            known |= {"pickled_bytes": len(pickled), "worker": self._worker}
            idx, channel = message[0], self._channel
            channel.tell(channel.of_batch(idx), idx, known)
        return pickled


def is_of_batch(message: Any) -> bool:
    """Whether a queue's message is torch's number of a batch, and its indices or the batch."""
    return type(message) is tuple and len(message) == 2 and type(message[0]) is int  # noqa: PLR2004 - a pair
