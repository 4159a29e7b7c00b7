"""What a loader would do under other settings: its batches replayed by the rules of torch."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping  # noqa: TC003 - dataclass fields
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from loadeval.analysis.scheduling import Cpus
from loadeval.analysis.stages import slow_from_ns, split_of, typical_sample_ns
from loadeval.analysis.timeline import or_0
from loadeval.runlog.columns import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from loadeval.analysis.stats import Series
    from loadeval.runlog.columns import Column
    from loadeval.runlog.model import Run
    from loadeval.runlog.stages import StageTimes

MOST_BATCHES = 400
"""Batches that are replayed: enough for a mean within a few percent."""
LEAST_CPU = 0.001
"""Of a CPU, that every step uses."""
SETTLING = 3
"""The first part of this many, in which the queue fills, is not counted."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What each batch takes, in nanoseconds, in the order in which the loader was asked for them.

    In a worker: `cpu_ns` on a CPU, `run_queue_ns` runnable without one, `blocked_ns` neither, and
    `pickle_ns`. `receive_ns` in the training process, or its pin thread with `pin_ns`; `index_ns`
    in the training process. `slow_ns` is what a slow sample takes more than a typical one, of the
    first three. `worker` made it. `step_ns` is the training step with ideal loading, which uses
    `step_cpus` CPUs. `named_ns` is what each transform, and collating, takes of the first three.

    `arrive_ns` passes until a batch that is waited for can be received. Receiving needs Python's
    lock in the worker too: while that is busy it takes `lock_ns` more, or until it has nothing to
    do.
    """

    cpu_ns: Series
    run_queue_ns: Series
    blocked_ns: Series
    pickle_ns: Series
    receive_ns: Series
    pin_ns: Series
    index_ns: Series
    slow_ns: Series
    worker: Column
    step_ns: float
    step_cpus: float = 1.0
    arrive_ns: float = 0.0
    lock_ns: float = 0.0
    named_ns: Mapping[str, Series] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.cpu_ns)

    @property
    def fetch_ns(self) -> Series:
        """What fetching and collating each takes."""
        found: Series = self.cpu_ns + self.run_queue_ns + self.blocked_ns
        return found

    @property
    def handed_ns(self) -> float:
        """What the training process does for a batch beside its step, on average."""
        return float((self.receive_ns + self.pin_ns + self.index_ns).mean())

    def fetched_in(self, share: float | Series) -> Costs:
        """The same, fetched and collated in that share of the time."""
        return replace(
            self,
            cpu_ns=self.cpu_ns * share,
            run_queue_ns=self.run_queue_ns * share,
            blocked_ns=self.blocked_ns * share,
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """How a DataLoader loads: `workers` 0 is in the training process.

    `prefetch_factor` batches are outstanding for each worker. `cpus` are those that the workers
    and the training process share with other programs, which want `others_cpus` of them; None is as
    many as they want. What a CPU does takes longer by `growth`, a share, for each further CPU that
    is in use. `pins` tells that a thread of the
    training process receives and pins batches.
    """

    workers: int
    prefetch_factor: int = 2
    in_order: bool = True
    cpus: float | None = None
    pins: bool = False
    growth: float = 0.0
    others_cpus: float = 0.0


def costs_of(run: Run, step_ns: float, step_cpus: float = 1.0) -> Costs | None:
    """The costs of a run's batches, without each worker's first of an epoch; None without any."""
    workers = run.header.loader.workers or 1
    parts = [one.part(one.batch >= workers) for one in run.stages]
    parts = [one.part(one.fetch_ns != UNKNOWN) for one in parts]
    if not sum(map(len, parts)):
        return None

    def column_of(name: str) -> Column:
        found: Column = np.concatenate([getattr(one, name) for one in parts])
        return found

    def joined(name: str) -> Series:
        column = column_of(name)
        known = column[column != UNKNOWN]
        typical = float(known.mean()) if len(known) else 0.0
        return np.where(column == UNKNOWN, typical, column)[:MOST_BATCHES].astype(np.float64)

    def known_or(name: str, other: Series) -> Series:
        column = column_of(name)[:MOST_BATCHES]
        return np.where(column == UNKNOWN, other, column)

    typical_ns = typical_sample_ns(parts) or math.inf
    slowest_ns = column_of("slowest_ns")[:MOST_BATCHES]  # UNKNOWN is not slow
    is_slow = slowest_ns > slow_from_ns(typical_ns)
    fetch_ns = joined("fetch_ns") + joined("collate_ns")
    cpu_ns, run_queue_ns = fetch_ns, np.zeros(len(fetch_ns))
    split, receiving = split_of(parts), Receiving.of(parts)
    if split is not None:
        cpu_ns = np.minimum(known_or("cpu_ns", split[0] * fetch_ns), fetch_ns)
        run_queue_ns = np.minimum(known_or("run_queue_ns", split[1] * fetch_ns), fetch_ns - cpu_ns)
    return Costs(
        cpu_ns=cpu_ns,
        run_queue_ns=run_queue_ns,
        blocked_ns=fetch_ns - cpu_ns - run_queue_ns,
        pickle_ns=joined("pickle_ns"),
        receive_ns=receiving.receive_ns[:MOST_BATCHES],
        pin_ns=joined("pin_ns"),
        index_ns=joined("index_ns"),
        slow_ns=np.where(is_slow, np.minimum(slowest_ns - typical_ns, fetch_ns), 0.0),
        worker=column_of("worker")[:MOST_BATCHES],
        step_ns=step_ns,
        step_cpus=step_cpus,
        arrive_ns=receiving.arrive_ns,
        lock_ns=receiving.lock_ns,
        named_ns={"collate": joined("collate_ns"), **_transforms(parts)},
    )


class Receiving(NamedTuple):
    """What receiving each batch takes by itself, and what may come on top: see Costs."""

    receive_ns: Series
    arrive_ns: float
    lock_ns: float

    @classmethod
    def of(cls, parts: Sequence[StageTimes]) -> Receiving:
        """Of batches whose worker was busy or idle meanwhile, and that were waited for or not."""
        took_ns, waited, left_ns = np.concatenate([_received(one) for one in parts]).T
        is_known = took_ns != UNKNOWN
        if not is_known.any():
            return cls(np.zeros(len(took_ns)), 0.0, 0.0)
        is_busy = is_known & (left_ns > 0)
        idle_ns = took_ns[is_known & (waited == 0) & ~is_busy]
        typical_ns = float(np.median(idle_ns)) if len(idle_ns) >= FEWEST_RECEIVED else None
        lock_ns = _lock_ns(took_ns[is_busy], left_ns[is_busy], typical_ns)
        if typical_ns is None:
            own_ns = np.maximum(took_ns - left_ns, 0) if lock_ns else took_ns
            typical_ns = float(np.median(own_ns[is_known]))
        shows_own = is_known & ~is_busy if lock_ns else is_known
        own_ns = np.where(shows_own, took_ns, typical_ns)
        arrive_ns = _more(own_ns[is_known & (waited > 0)], typical_ns)
        own_ns = np.maximum(own_ns - arrive_ns * (waited > 0), 0)
        return cls(own_ns, arrive_ns, lock_ns)


def _lock_ns(took_ns: Series, left_ns: Series, typical_ns: float | None) -> float:
    """How long receiving waits for the lock of a busy worker; infinite if until it is done.

    It took `took_ns` while a worker had `left_ns` to do, and takes `typical_ns` with an idle one,
    if known. It waits for the lock where it mostly takes as long as the worker is busy, or
    more than twice as long as with an idle one. It waits so long that, cut off when a worker is
    done, the mean is what was seen.
    """
    own_ns = typical_ns or 0.0
    is_long = left_ns > 2 * own_ns
    more_ns, left_ns = took_ns[is_long] - own_ns, left_ns[is_long]
    if len(left_ns) < FEWEST_RECEIVED or float(np.median(more_ns)) < LEAST_LOCK_NS:
        return 0.0
    if typical_ns is None:
        varies = np.ptp(left_ns) > 0 < np.ptp(more_ns)
        waits = varies and np.corrcoef(more_ns, left_ns)[0, 1] > CORRELATED
    else:
        is_as_long = (more_ns >= NEARLY * left_ns) & (more_ns <= left_ns / NEARLY)
        waits = np.median(more_ns) > typical_ns or is_as_long.mean() >= MOSTLY
    if not waits:
        return 0.0
    seen_ns = float(more_ns.mean())
    if seen_ns >= NEARLY * float(left_ns.mean()):
        return math.inf
    limits_ns = np.array([0.0, *np.sort(left_ns)])
    means_ns = [float(np.minimum(left_ns, limit_ns).mean()) for limit_ns in limits_ns]
    return float(np.interp(seen_ns, means_ns, limits_ns))


def _more(took_ns: Series, typical_ns: float) -> float:
    """By how much these typically exceed what is typical; 0 where that may be chance."""
    more_ns = float(np.median(took_ns)) - typical_ns if len(took_ns) >= FEWEST_RECEIVED else 0.0
    return more_ns if more_ns >= max(LEAST_MORE * typical_ns, LEAST_MORE_NS) else 0.0


LEAST_MORE = 0.3
LEAST_MORE_NS = 100_000
FEWEST_RECEIVED = 4
"""Batches of a kind, of which a median says something."""
NEARLY = 0.9
"""Of the time until a worker is done: who waits as long waits until then."""
MOSTLY = CORRELATED = 0.5
LEAST_LOCK_NS = 1_000_000
"""Of waiting for Python's lock, which a thread gets after 5 ms unless it is given up before."""
LAY_READY_NS = 200_000


def _received(times: StageTimes) -> npt.NDArray[np.float64]:
    """Of each batch how long receiving took, if it was waited for, and what its worker had left.

    The latter is of the batches that the worker was at meanwhile.
    """
    began_ns = times.received_ns - times.receive_ns
    done_ns = times.fetch_start_ns + or_0(times.fetch_ns) + or_0(times.collate_ns)
    ready_ns = np.maximum(times.pickle_start_ns + or_0(times.pickle_ns), done_ns)
    left = np.zeros(len(times))
    for worker in np.unique(times.worker):
        rows = np.flatnonzero(times.worker == worker)
        rows = rows[np.argsort(times.fetch_start_ns[rows])]
        started_ns, ended_ns = times.fetch_start_ns[rows], done_ns[rows]
        first = np.searchsorted(ended_ns, began_ns[rows], side="right")
        last = np.searchsorted(started_ns, times.received_ns[rows], side="left") - 1
        left[rows] = np.where(last >= first, ended_ns[last] - began_ns[rows], 0)
    waited = times.requested_ns <= ready_ns + LAY_READY_NS
    return np.stack([times.receive_ns, waited, left], axis=1)


def _transforms(parts: Sequence[StageTimes]) -> dict[str, Series]:
    """What each transform takes of a batch, in nanoseconds; 0 where that is not known."""
    names = dict.fromkeys(name for one in parts for name in one.transform_ns)
    found = {}
    for name in names:
        columns = [one.transform_ns.get(name, np.zeros(len(one))) for one in parts]
        found[name] = np.nan_to_num(np.concatenate(columns)[:MOST_BATCHES])
    return found


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay came to: the mean time of an iteration, in nanoseconds, once it has settled.

    `grown` is by how much the CPU time of a batch exceeds what it would be with one CPU in use.
    Where a loader changes between two rates, `spread` is how far off the mean they are, a share.
    """

    iteration_ns: float
    grown: float = 1.0
    spread: float = 0.0


def iteration_ns(costs: Costs, setting: Setting) -> float:
    """The mean time of an iteration, in nanoseconds, see `replayed`."""
    return replayed(costs, setting).iteration_ns


def replayed(costs: Costs, setting: Setting) -> Replayed:
    """What a loader of `setting` comes to whose batches take `costs`.

    The rules are those of torch's DataLoader: batches are handed to the workers in turn, as many
    as `workers` times `prefetch_factor` outstanding, and served in order or as they come; then a
    further one goes to the worker that made it. Training receives whatever comes while it waits.
    A worker pickles before it goes on, for fetching and pickling share Python's lock. Those on a
    CPU share `cpus` equally, and so does the step. No more than MOST_BATCHES are replayed.

    Where receiving waits for the lock of the worker, and batches are served as they come, those of
    one worker may come to lie one after the other. To receive the second then waits for a batch
    that this worker has just begun, and while it waits the same happens to the others. Loaders
    change between that and an even order, so this is the mean of both.
    """
    if not setting.workers:
        each = costs.fetch_ns + costs.index_ns + costs.pin_ns
        return Replayed(float(each.mean()) + costs.step_ns)
    found = _Replay(costs, setting).result()
    if setting.in_order or setting.pins or not costs.lock_ns:
        return found
    paired = _Replay(costs, setting, in_pairs=True).result()
    mean_ns = (found.iteration_ns + paired.iteration_ns) / 2
    spread = abs(paired.iteration_ns - found.iteration_ns) / 2 / mean_ns
    return Replayed(mean_ns, (found.grown + paired.grown) / 2, spread)


TRAINING, PINNING, ARRIVING = -1, -2, -3
"""Who is busy, beside workers, which count from 0; and a batch on its way."""


class _Work(NamedTuple):
    """What the training process does: first on a CPU, then elsewhere."""

    cpu_ns: float
    other_ns: float = 0.0
    threads: int = 1


class _Batch(NamedTuple):
    """A batch that a worker was asked for, and what it takes."""

    number: int
    worker: int
    cpu_ns: float
    other_ns: float
    receive_ns: float
    index_ns: float


class _Replay:
    """One event after the other.

    With `in_pairs` it begins when all is made, what one worker made one after the other, and ends
    before that changes.
    """

    def __init__(self, costs: Costs, setting: Setting, *, in_pairs: bool = False) -> None:
        self._setting, self._in_pairs = setting, in_pairs
        self._costs = self._endless(costs)
        step_cpu_ns = costs.step_ns * min(max(costs.step_cpus, LEAST_CPU), 1.0)
        threads = max(round(costs.step_cpus), 1)
        self._step = _Work(step_cpu_ns, costs.step_ns - step_cpu_ns, threads)
        self._after_ns = 0.0  # of what training does, once it has computed
        self._arrive_ns, self._lock_ns = costs.arrive_ns, costs.lock_ns
        self._cpus = Cpus(setting.cpus, setting.others_cpus, setting.growth)
        depth = setting.workers * setting.prefetch_factor
        rounds = min(8 * depth, max(4 * depth, MOST_BATCHES))
        self._count = rounds if in_pairs else max(len(costs), rounds)
        self._now_ns = 0.0
        self._elsewhere: list[tuple[float, int]] = []  # until when, and who
        self._queues: list[deque[_Batch]] = [deque() for _ in range(setting.workers)]
        self._to_pin: deque[_Batch] = deque()
        self._on_the_way: deque[_Batch] = deque()
        self._arrived: deque[_Batch] = deque()
        self._sent = 0
        self._served_ns: list[float] = []

    def _endless(self, costs: Costs) -> Iterator[tuple[float, float, float, float]]:
        rows = zip(
            costs.cpu_ns.tolist(),
            (costs.run_queue_ns + costs.blocked_ns + costs.pickle_ns).tolist(),
            (costs.receive_ns + (costs.pin_ns if self._setting.pins else 0.0)).tolist(),
            costs.index_ns.tolist(),
            strict=True,
        )
        return cycle(list(rows))

    def result(self) -> Replayed:
        setting = self._setting
        for number in range(setting.workers * setting.prefetch_factor):
            if self._in_pairs:
                self._arrived.append(self._next_batch(number // setting.prefetch_factor))
            else:
                self._send(number % setting.workers)
        training = self._training()
        is_waiting = not self._go_on(training)
        while len(self._served_ns) < self._count:
            who = self._next_event()
            if who == PINNING:
                self._arrived.append(self._to_pin.popleft())
                self._pin_next()
            elif who == ARRIVING:
                self._came(self._on_the_way.popleft())
            elif who >= 0:
                self._made(who)
            if who == TRAINING or (is_waiting and self._arrived):
                is_waiting = not self._go_on(training)
        counted = self._count - (1 if self._in_pairs else self._count // SETTLING)
        counted -= counted % setting.workers  # whole rounds, for workers may all end at a time
        found_ns = (self._served_ns[-1] - self._served_ns[-1 - counted]) / counted
        cpus = self._cpus
        grown = cpus.spent_ns / cpus.alone_ns if cpus.alone_ns else 1.0
        return Replayed(found_ns, grown)

    def _next_event(self) -> int:
        """Wait until someone has done what it does, and tell who; a worker may compute first."""
        while True:
            until_ns = self._elsewhere[0][0] if self._elsewhere else math.inf
            passed_ns, who = self._cpus.run(until_ns - self._now_ns)
            if who is None:
                self._now_ns, done = heappop(self._elsewhere)
                return done
            self._now_ns += passed_ns
            self._cpus.end(who)
            if who == TRAINING:
                if not self._after_ns:
                    return who
                other_ns, self._after_ns = self._after_ns, 0.0
            else:
                other_ns = self._queues[who][0].other_ns
            heappush(self._elsewhere, (self._now_ns + other_ns, who))

    def _training(self) -> Generator[_Work | None, None, None]:
        """What the training process does; None is to wait for a batch."""
        in_order, pins = self._setting.in_order, self._setting.pins
        kept: dict[int, _Batch] = {}
        while True:
            wanted = len(self._served_ns)
            batch = kept.pop(wanted, None)
            while batch is None:
                while not self._arrived:
                    yield None
                come = self._arrived.popleft()
                if not pins:
                    yield _Work(come.receive_ns, self._lock_wait_ns(come.worker))
                if in_order and come.number != wanted:
                    kept[come.number] = come
                else:
                    batch = come
            yield _Work(batch.index_ns)
            self._send(batch.worker)
            self._served_ns.append(self._now_ns)
            yield self._step

    def _lock_wait_ns(self, worker: int) -> float:
        """Until the worker of a batch that is received lets go of Python's lock."""
        left_ns = self._cpus.left_ns(worker)
        for batch in islice(self._queues[worker], 1, None) if left_ns else ():
            left_ns += batch.cpu_ns
        return min(left_ns, self._lock_ns)

    def _go_on(self, training: Generator[_Work | None, None, None]) -> bool:
        """Whether it is busy; else it waits for a batch."""
        while (work := next(training)) is not None:
            if work.cpu_ns > 0:
                self._after_ns = work.other_ns
                self._cpus.begin(TRAINING, work.cpu_ns, work.threads)
                return True
        return False

    def _send(self, worker: int) -> None:
        """Ask for the next batch: the worker whose turn it is, for that of the last one is over."""
        self._queues[worker].append(self._next_batch(worker))
        if len(self._queues[worker]) == 1:
            self._begin(worker)

    def _next_batch(self, worker: int) -> _Batch:
        self._sent += 1
        return _Batch(self._sent - 1, worker, *next(self._costs))

    def _begin(self, worker: int) -> None:
        self._cpus.begin(worker, self._queues[worker][0].cpu_ns)

    def _made(self, worker: int) -> None:
        batch = self._queues[worker].popleft()
        if self._queues[worker]:
            self._begin(worker)
        if self._arrive_ns:
            self._on_the_way.append(batch)
            heappush(self._elsewhere, (self._now_ns + self._arrive_ns, ARRIVING))
        else:
            self._came(batch)

    def _came(self, batch: _Batch) -> None:
        if not self._setting.pins:
            self._arrived.append(batch)
            return
        self._to_pin.append(batch)
        if len(self._to_pin) == 1:
            self._pin_next()

    def _pin_next(self) -> None:
        if self._to_pin:
            until_ns = self._now_ns + self._to_pin[0].receive_ns
            heappush(self._elsewhere, (until_ns, PINNING))
