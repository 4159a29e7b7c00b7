"""What a loader would do under other settings: its batches replayed by the rules of torch."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

from loadeval.analysis.predict.costs import MOST_BATCHES, Costs
from loadeval.analysis.predict.scheduling import Affinity, Cpus

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


LEAST_CPU = 0.001
"""Every step uses this share of a CPU at least."""
MOST_KEPT = 256
"""So many replays are kept: findings, what they bring and predictions ask for the same ones."""
SETTLING = 3
"""The queue fills in the first of so many parts, which is not counted."""


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
    affinity: Affinity | None = None


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


@lru_cache(maxsize=MOST_KEPT)
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
    evenly = _Replay(costs, setting).result()
    if setting.in_order or setting.pins or not costs.lock_ns:
        return evenly
    paired = _Replay(costs, setting, in_pairs=True).result()
    mean_ns = (evenly.iteration_ns + paired.iteration_ns) / 2
    spread = abs(paired.iteration_ns - evenly.iteration_ns) / 2 / mean_ns
    return Replayed(mean_ns, (evenly.grown + paired.grown) / 2, spread)


TRAINING, PINNING, ARRIVING = -1, -2, -3
"""Who is busy, beside workers, which count from 0; and a batch on its way."""


class _Work(NamedTuple):
    """What the training process does: first on a CPU, then elsewhere."""

    cpu_ns: float
    other_ns: float = 0.0
    threads: int = 1


def _step_of(costs: Costs, setting: Setting) -> _Work:
    """The training step.

    It was measured beside other programs, so that these alone do not make it longer: what it waits
    for them is taken from what it does elsewhere, and then from what it computes.
    """
    cpu_ns = costs.step_ns * min(max(costs.step_cpus, LEAST_CPU), 1.0)
    threads = max(round(costs.step_cpus), 1)

    def taken_ns(others_cpus: float) -> float:
        cpus = Cpus(setting.cpus, others_cpus, setting.growth, setting.affinity)
        cpus.begin(TRAINING, cpu_ns, threads)
        return cpus.run(math.inf)[0]

    other_ns = costs.step_ns - cpu_ns
    if not setting.others_cpus or not cpu_ns:
        return _Work(cpu_ns, other_ns, threads)
    beside_ns = taken_ns(setting.others_cpus)
    left_ns = taken_ns(0.0) + other_ns - beside_ns
    shorter = 1 + min(left_ns, 0.0) / beside_ns
    return _Work(cpu_ns * shorter, max(left_ns, 0.0), threads)


class _Batch(NamedTuple):
    """A batch that a worker was asked for, and what it takes."""

    number: int
    worker: int
    cpu_ns: float
    read_ns: float
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
        self._step = _step_of(costs, setting)
        self._after_ns = 0.0  # of what training does, once it has computed
        self._arrive_ns, self._lock_ns = costs.arrive_ns, costs.lock_ns
        self._cpus = Cpus(setting.cpus, setting.others_cpus, setting.growth, setting.affinity)
        self._read_until_ns = 0.0  # all that was asked of the storage
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

    def _endless(self, costs: Costs) -> Iterator[tuple[float, float, float, float, float]]:
        read_ns = costs.blocked_ns * costs.in_turn
        rows = zip(
            costs.cpu_ns.tolist(),
            read_ns.tolist(),
            (costs.run_queue_ns + costs.blocked_ns - read_ns + costs.pickle_ns).tolist(),
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
        iteration_ns = (self._served_ns[-1] - self._served_ns[-1 - counted]) / counted
        cpus = self._cpus
        grown = cpus.spent_ns / cpus.alone_ns if cpus.alone_ns else 1.0
        return Replayed(iteration_ns, grown)

    def _next_event(self) -> int:
        """Wait until someone has done what it does, and tell who; a worker may compute first."""
        while True:
            until_ns = self._elsewhere[0][0] if self._elsewhere else math.inf
            passed_ns, who = self._cpus.run(until_ns - self._now_ns)
            if who is None:
                self._now_ns = until_ns
                return heappop(self._elsewhere)[1]
            self._now_ns += passed_ns
            self._cpus.end(who)
            if who == TRAINING:
                if not self._after_ns:
                    return who
                other_ns, self._after_ns = self._after_ns, 0.0
                heappush(self._elsewhere, (self._now_ns + other_ns, who))
            else:
                batch, until_ns = self._queues[who][0], self._now_ns
                if batch.read_ns:
                    until_ns = max(self._read_until_ns, self._now_ns) + batch.read_ns
                    self._read_until_ns = until_ns
                heappush(self._elsewhere, (until_ns + batch.other_ns, who))

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
        """How long it is until the worker of a batch that is received lets go of Python's lock."""
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
