"""What runs in a DataLoader's workers: it times each batch, and tells the training process."""

from __future__ import annotations

import operator
import os
import threading
from collections import Counter, deque
from contextlib import suppress
from functools import partial
from multiprocessing import queues, util
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from torch.utils.data import Subset, get_worker_info
from torch.utils.data import dataset as torch_dataset
from torch.utils.data._utils import fetch

from loadeval_adapters import pytorch_pickles
from loadeval_adapters.pytorch_calls import UNCOUNTED, CallCounter
from loadeval_adapters.pytorch_channel import (
    BATCH,
    COLLATING,
    COUNTS_CALLS,
    INIT_NS,
    LOOKING,
    NO_SAMPLE,
    NOT_SEEN,
    OPEN,
    PAUSED,
    READY_NS,
    SAMPLE,
    UNKNOWN,
    UNPICKLING_NS,
    WORD,
    Channel,
    is_of_a_signal,
    packer,
)
from loadeval_adapters.pytorch_code import COUNTERS, CodeSampler
from loadeval_adapters.pytorch_kernel import (
    UNKNOWN_FIGURES,
    UNREAD,
    Consumption,
    OwnMemory,
)
from loadeval_adapters.pytorch_transforms import Transforms

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval_adapters.pytorch_calls import Calls

    Fetch = Callable[[Any, Any], Any]

WORTH_NS = 1_000_000
"""The kernel is asked only after a batch that took at least this long, and before the next."""
FETCHERS = (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher)  # noqa: SLF001 - torch has no public name
NAMES = (
    {"auto_collation", "hasattr", "dataset", "__getitems__", "collate_fn"},
    {"ended", "StopIteration", "auto_collation", "append", "next", "dataset_iter", "len"}
    | {"drop_last", "collate_fn"},
)
"""The names in torch's fetchers since torch 2.1: our code stands in only for such fetchers."""
FAILURES = {"ExceptionWrapper", "_IterableDatasetStopIteration"}
UNEXPECTED = (
    "this version of torch reads samples in a way of its own: reading and collating are not told "
    "apart, nor are samples"
)
IN_THREADS = "the workers are threads: what they do is not timed"


class WorkerInit:
    """Stands in for a user's `worker_init_fn`: calls it, and then times this worker."""

    def __init__(self, user: Callable[[int], object] | None, channel: Channel) -> None:
        self.user, self.channel = user, channel
        self._training = os.getpid()

    def __call__(self, worker: int) -> None:
        """Called in the worker, as the user's is."""
        began = perf_counter_ns()
        if self.user is not None:
            self.user(worker)
        ready = perf_counter_ns()
        try:
            _start(self.channel, worker, (began, ready - began), self._training)
        except Exception as error:  # noqa: BLE001 - measuring may not end a training
            _give_up(self.channel, worker, error)


def _start(channel: Channel, worker: int, times: tuple[int, int], training: int) -> None:
    if os.getpid() == training:
        channel.write_text(worker, {"notes": [IN_THREADS]})
        return
    info: Any = get_worker_info()
    tracer = Tracer(partial(_write_text, channel, worker), channel.words, channel.own(worker))
    sender = Sender(tracer, channel, worker, info.dataset)
    if channel.words[OPEN] == LOOKING:
        sender.begin()
    sender.install()
    own = channel.own(worker)
    channel.words[own + UNPICKLING_NS] = times[0] - pytorch_pickles.unpickling_began_ns
    channel.words[own + INIT_NS] = times[1]
    channel.words[own + READY_NS] = times[0]


def _write_text(channel: Channel, worker: int, text: dict[str, Any]) -> None:
    for most in (sum(len(text[name]) for name in COUNTERS), 100, 50, 20, 0):
        for name in COUNTERS:
            text[name] = dict(Counter(text[name]).most_common(most))
        if channel.write_text(worker, text):
            return


def _give_up(channel: Channel, worker: int, error: Exception) -> None:
    with suppress(Exception):
        note = f"worker {worker} is not looked into ({type(error).__name__}: {error})"
        channel.write_text(worker, {"notes": [note]})


class Tracer:
    """Times what a fetcher of torch's does for each batch, in the process where it works.

    `fetch(fetcher, index)` does what torch's own does. What was found for each batch is appended to
    `parts`: the identity of the batch (0: it raised), the words of its record from `samples` to
    `shared_bytes`, and those of its transforms. `words` are memory that others see, `own` the
    first word for this worker, and `tell` is called with what else is to be known.
    """

    def __init__(
        self,
        tell: Callable[[dict[str, Any]], object],
        words: Any,
        own: int,
        *,
        in_training: bool = False,
    ) -> None:
        self.parts: deque[tuple[int, tuple[int, ...], tuple[int, ...]]] = deque()
        self.transforms = Transforms(in_training=in_training)
        self.words, self.own = words, own
        self.notes: list[str] = []
        self.consumption = Consumption()
        info = get_worker_info()
        workers = info.num_workers if info else 1
        self._memory = None if in_training else OwnMemory(workers)
        counts_calls = not in_training and words[COUNTS_CALLS]
        self._calls = CallCounter() if counts_calls else None
        self.can_tell_samples = True
        self.last_ns = WORTH_NS
        self.ended: Callable[[], object] = self.transforms.restore
        self.code = CodeSampler(
            self.transforms.thread, FETCH_CODE, self.flush, in_training=in_training
        )
        self._in_training = in_training
        self._is_sized = self._takes_out = False
        self._tell = tell
        self._lock = threading.RLock()  # a finalizer may run while it is held

    def look_into(self, dataset: Any) -> None:
        """Time the transforms of `dataset`."""
        try:
            self.transforms.find(dataset)
        except Exception as error:  # noqa: BLE001 - those found before it are timed
            self.notes.append(f"not all transforms are timed ({type(error).__name__}: {error})")
        if self._in_training:  # the program may look at its transforms between batches
            self._takes_out = self.transforms.take_out()

    def flush(self) -> None:
        """Pass on what is known so far."""
        with self._lock:
            self._tell(
                {
                    "names": self.transforms.names,
                    "sizes": self.transforms.sizes(),
                    "notes": self.notes,
                    **self.lines(),
                }
            )

    def lines(self) -> dict[str, dict[str, int]]:
        """How often it was seen in which lines of code so far."""
        return {name: dict(getattr(self.code, name)) for name in COUNTERS}

    def fail(self, error: Exception) -> None:
        """Stop looking, and say why. Raises what a signal's handler raised."""
        if is_of_a_signal(error):
            raise error
        self.notes.append(f"a worker is not looked into any more ({type(error).__name__}: {error})")
        self.end()

    def end(self) -> None:
        """Leave this process as it was."""
        self.code.stop()
        self.ended()
        with suppress(Exception):
            self.flush()

    def pause(self) -> None:
        """Let the dataset be as it was found. Called by what fetches, or beside it in training."""
        self.words[self.own + SAMPLE] = NOT_SEEN
        self.transforms.pause()

    def resume(self) -> None:
        """Look again. In training, stand-ins are put in for each batch."""
        self.parts.clear()
        self.transforms.resume()
        if not self._in_training:
            self.transforms.put_in()

    def close(self) -> None:
        """End, and close the kernel's files. Called by what fetches, or once nothing does."""
        self.end()
        self.consumption.close()

    def before(self) -> int | None:
        """The CPU time of this thread so far; None if it is unknown. Does not raise."""
        try:
            # Of one batch, sizes are noted, which takes longer.
            busy = self.transforms.thread if self._is_sized else self.transforms.sizing
            busy[0] = get_ident()
            if self._takes_out:
                self.transforms.put_in()
            size = 2 * len(self.transforms.names)
            if size:
                self.transforms.spent[:size] = [0] * size
            began_ns = self.consumption.start(asks=self.last_ns >= WORTH_NS)
        except Exception as error:  # noqa: BLE001 - looking may not end a training
            self.fail(error)
            return None
        if self._calls is not None and self._is_sized:  # once what is opened once is open
            self._calls.start(self.last_ns)
        return began_ns

    def after(
        self,
        before: int | None,
        moments: tuple[int, int, int],
        sample_stats: tuple[int, int, Any],
        batch: Any,
    ) -> None:
        """Note what a batch took: when its samples began, when collating did, and when it ended.

        `sample_stats` are its samples, the nanoseconds of the slowest, and that one's index.
        """
        try:
            calls = self._counted()
            start, read, end = moments
            samples, slowest_ns, slowest = sample_stats
            self.transforms.thread[0] = self.transforms.sizing[0] = 0
            if self._takes_out:
                self.transforms.take_out()
            last_ns, self.last_ns = self.last_ns, end - start
            figures = UNKNOWN_FIGURES
            if before is not None and (last_ns >= WORTH_NS or self.last_ns >= WORTH_NS):
                figures = self.consumption.since(before, self.last_ns)
            self.words[self.own + SAMPLE] = NO_SAMPLE
            slowest = _index(slowest)
            memory = UNREAD if self._memory is None else self._memory.take(figures[-1])
            taken = (samples, start, read - start, end - read, slowest_ns, slowest)
            words = (*taken, *figures, *memory, *calls)
            spent = tuple(self.transforms.spent[: 2 * len(self.transforms.names)])
            self.parts.append((id(batch), words, spent))
            if not self._is_sized:
                self._is_sized = True
                self.flush()
            if self._in_training and self.last_ns >= WORTH_NS and not self.code.is_started:
                self.code.start(get_ident(), threading.get_native_id())
        except Exception as error:  # noqa: BLE001 - measuring may not end a training
            self.fail(error)

    def _counted(self) -> Calls:
        """The calls of this batch, if they were counted, which they are once."""
        if self._calls is None or not self._is_sized:
            return UNCOUNTED
        calls, self._calls = self._calls.stop(), None
        return calls

    def after_failure(self) -> None:
        """Note that there is no batch."""
        self._counted()
        self.transforms.thread[0] = self.transforms.sizing[0] = 0
        with suppress(Exception):
            if self._takes_out:
                self.transforms.take_out()
            self.words[self.own + SAMPLE] = NO_SAMPLE
        self.parts.append((0, (), ()))


def map_fetch(tracer: Tracer, fetcher: Any, index: Any) -> Any:
    """Do what `_MapDatasetFetcher.fetch` does, timed."""
    words, sample = tracer.words, tracer.own + SAMPLE
    tells = tracer.can_tell_samples
    samples = slowest_ns = slowest = UNKNOWN
    before = tracer.before()
    start = then = perf_counter_ns()
    try:
        dataset = fetcher.dataset
        if fetcher.auto_collation:
            indices = index
            if hasattr(dataset, "__getitems__") and dataset.__getitems__:
                dataset, indices = _unrolled(dataset, index)
            if indices is None:
                data = dataset.__getitems__(index)
                samples = _length(index)
            else:
                data = []
                append = data.append
                for sample_index in indices:
                    if tells:
                        try:
                            words[sample] = sample_index
                        except Exception as error:
                            if is_of_a_signal(error):
                                raise
                            tells = tracer.can_tell_samples = False  # they are no integers
                    append(dataset[sample_index])
                    now = perf_counter_ns()
                    if now - then > slowest_ns:
                        slowest_ns = now - then
                        slowest = sample_index
                    then = now
                samples = len(data)
        else:
            data = dataset[index]
            samples = len(index) if isinstance(index, (list, tuple)) else 1
            slowest = index
        read = perf_counter_ns()
        words[sample] = COLLATING
        batch = fetcher.collate_fn(data)
        end = perf_counter_ns()
    except BaseException:
        tracer.after_failure()
        raise
    tracer.after(before, (start, read, end), (samples, slowest_ns, slowest), batch)
    return batch


def iterable_fetch(tracer: Tracer, fetcher: Any, index: Any) -> Any:
    """Do what `_IterableDatasetFetcher.fetch` does, timed."""
    if fetcher.ended:
        raise StopIteration
    words, sample = tracer.words, tracer.own + SAMPLE
    place = first = vars(fetcher).get("_loadeval_place", 0)
    slowest_ns = slowest = UNKNOWN
    before = tracer.before()
    start = then = perf_counter_ns()
    try:
        if fetcher.auto_collation:
            data: Any = []
            append = data.append
            for _ in index:
                words[sample] = place
                try:
                    append(next(fetcher.dataset_iter))
                except StopIteration:
                    fetcher.ended = True
                    break
                now = perf_counter_ns()
                if now - then > slowest_ns:
                    slowest_ns = now - then
                    slowest = place
                then = now
                place += 1
            if len(data) == 0 or (fetcher.drop_last and len(data) < len(index)):
                raise StopIteration  # noqa: TRY301 - as torch's own
            samples = place - first
        else:
            words[sample] = slowest = place
            data = next(fetcher.dataset_iter)
            place += 1
            samples = UNKNOWN  # it may have batches of its own
        read = perf_counter_ns()
        words[sample] = COLLATING
        batch = fetcher.collate_fn(data)
        end = perf_counter_ns()
    except BaseException:
        tracer.after_failure()
        raise
    fetcher._loadeval_place = place  # noqa: SLF001 - it has one for each epoch
    tracer.after(before, (start, read, end), (samples, slowest_ns, slowest), batch)
    return batch


def whole_fetch(fetch_as_torch: Fetch, tracer: Tracer, fetcher: Any, index: Any) -> Any:
    """Call torch's own fetch, and time it as a whole."""
    before = tracer.before()
    start = perf_counter_ns()
    try:
        batch = fetch_as_torch(fetcher, index)
        end = perf_counter_ns()
    except BaseException:
        tracer.after_failure()
        raise
    tracer.after(before, (start, end, end), (_length(index), UNKNOWN, UNKNOWN), batch)
    return batch


FETCH_CODE = {map_fetch.__code__, iterable_fetch.__code__, whole_fetch.__code__}


def fetches(tracer: Tracer) -> list[Fetch]:
    """The functions that replace the `fetch` of each of torch's fetchers."""
    replacements: list[Fetch] = []
    for kind, names, ours in zip(FETCHERS, NAMES, (map_fetch, iterable_fetch), strict=True):
        own: Any = vars(kind)["fetch"]
        if _is_as_expected(own, fetch.__name__, names):
            replacements.append(_bound(ours, tracer))
        else:
            replacements.append(_bound(partial(whole_fetch, own), tracer))
            tracer.notes.append(UNEXPECTED)
    return replacements


def _bound(ours: Any, tracer: Tracer) -> Fetch:
    return lambda fetcher, index: ours(tracer, fetcher, index)


class Sender:
    """Installs a tracer in a worker, whose queue thread adds pickling times and sends records."""

    def __init__(self, tracer: Tracer, channel: Channel, worker: int, dataset: Any) -> None:
        self._tracer, self._channel, self._worker, self._dataset = tracer, channel, worker, dataset
        self._pack: Callable[..., None] | None = None
        self._is_paused = False
        self._pickler: Any = queues._ForkingPickler  # type: ignore[attr-defined]  # noqa: SLF001 - the one seam
        self._torchs = [vars(kind)["fetch"] for kind in FETCHERS]
        self._thread = get_ident(), threading.get_native_id()

    def begin(self) -> None:
        """Find the transforms of the dataset, once."""
        self._tracer.look_into(self._dataset)
        self._pack = packer(len(self._tracer.transforms.names)).pack_into

    def install(self) -> None:
        """Time this worker from now on, whenever somebody looks."""
        tracer = self._tracer
        tracer.ended = self._uninstall
        for kind, torchs, ours in zip(FETCHERS, self._torchs, fetches(tracer), strict=True):
            kind.fetch = self._while_open(torchs, ours)  # type: ignore[method-assign,assignment]
        self._ours = TimedPickler(self._pickler, self.dumps, self.loads)
        queues._ForkingPickler = self._ours  # type: ignore[attr-defined]  # noqa: SLF001 - the one seam
        tracer.flush()
        # Flush once more at the end of the process, for what was found since the last time.
        util.Finalize(None, tracer.flush, exitpriority=100)

    def _while_open(self, torchs: Fetch, ours: Fetch) -> Fetch:
        words, tracer = self._channel.words, self._tracer

        def fetch_timed(fetcher: Any, index: Any) -> Any:
            state = words[OPEN]
            if state == LOOKING:
                if self._pack is None:
                    self.begin()
                elif self._is_paused:
                    tracer.resume()
                self._is_paused = False
                return ours(fetcher, index)
            if state == PAUSED:
                if not self._is_paused:
                    self._is_paused = True
                    tracer.pause()
            else:
                tracer.close()
            return torchs(fetcher, index)

        return fetch_timed

    def _uninstall(self) -> None:
        for kind, torchs in zip(FETCHERS, self._torchs, strict=True):
            kind.fetch = torchs  # type: ignore[method-assign]
        if queues._ForkingPickler is self._ours:  # type: ignore[attr-defined]  # noqa: SLF001 - the one seam
            queues._ForkingPickler = self._pickler  # type: ignore[attr-defined]  # noqa: SLF001 - the one seam
        self._tracer.transforms.restore()

    def loads(self, pickled: Any, *rest: Any) -> Any:
        """Unpickle a message of any queue; if it requests a batch, note which."""
        message = self._pickler.loads(pickled, *rest)
        if type(message) is tuple and message and type(message[0]) is int:
            with suppress(Exception):
                self._channel.words[self._tracer.own + BATCH] = message[0]
        return message

    def dumps(self, message: Any, *rest: Any) -> Any:
        """Pickle a message of any queue; if it brings a batch, send its record."""
        if self._is_paused:
            return self._pickler.dumps(message, *rest)
        start = perf_counter_ns()
        pickled = self._pickler.dumps(message, *rest)
        if type(message) is tuple and len(message) == 2 and type(message[0]) is int:  # noqa: PLR2004 - idx, batch
            try:
                self._send(message[0], message[1], start, len(pickled))
            except Exception as error:  # noqa: BLE001 - measuring may not end a training
                self._tracer.fail(error)
        return pickled

    def _send(self, idx: int, batch: Any, start: int, size: int) -> None:
        pickle_ns = perf_counter_ns() - start
        part = self._part_of(batch)
        if part is None or not part[0] or self._pack is None:
            return
        channel = self._channel
        self._pack(
            channel.bytes,
            channel.slot(idx) * WORD,
            *(idx, self._worker, *part[1], start, pickle_ns, size, UNKNOWN, idx, *part[2]),
        )
        if not self._tracer.code.is_started:  # now that the queue has its thread
            self._tracer.code.start(*self._thread)

    def _part_of(self, batch: Any) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
        """What was found for a batch. Earlier batches that were not pickled are dropped.

        None for a message of a user's own queue, and for a batch that was never fetched.
        """
        parts = self._tracer.parts
        if parts and parts[0][0] == id(batch):
            return parts.popleft()
        is_stateful = type(batch) is tuple and len(batch) == 3  # noqa: PLR2004 - batch, worker, state
        keys = {id(batch), id(batch[0])} if is_stateful else {id(batch)}
        if type(batch[0] if is_stateful else batch).__name__ in FAILURES:
            keys = {0}
        for place, part in enumerate(parts):
            if part[0] in keys:
                for _ in range(place + 1):
                    parts.popleft()
                return part
        return None


class TimedPickler:
    """Stands in for the class that the queues of multiprocessing pickle with."""

    def __init__(self, pickler: Any, dumps: Callable[..., Any], loads: Callable[..., Any]) -> None:
        self._pickler = pickler
        self.dumps, self.loads = dumps, loads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pickler, name)


def _is_as_expected(function: Any, module: str, names: set[str]) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and function.__module__ == module and set(code.co_names) == names


def _unrolled(dataset: Any, index: Any) -> tuple[Any, Any]:
    """The dataset below Subsets and its indices, as torch finds them; None if it takes many."""
    whole = dataset
    while True:
        if type(dataset) is not Subset or not _IS_SUBSET_KNOWN or "__getitems__" in vars(dataset):
            return whole, None
        inside, indices = dataset.dataset, dataset.indices
        if not callable(getattr(inside, "__getitems__", None)):
            return inside, map(indices.__getitem__, index)
        dataset, index = inside, [indices[position] for position in index]


_IS_SUBSET_KNOWN = _is_as_expected(
    vars(Subset).get("__getitems__"),
    torch_dataset.__name__,
    {"callable", "getattr", "dataset", "__getitems__", "indices"},
)


def _length(index: Any) -> int:
    try:
        return len(index)
    except TypeError:
        return UNKNOWN


def _index(index: Any) -> int:
    """The index as a number that fits eight bytes; UNKNOWN if it is no such number."""
    try:
        number = operator.index(index)
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        return UNKNOWN
    return number if abs(number) < 1 << 63 else UNKNOWN
