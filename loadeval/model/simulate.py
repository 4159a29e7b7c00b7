"""torch's DataLoader simulated: workers, the training process and other programs share CPUs.

Each process is a generator that reads as torch's code does. It yields whenever it waits: until it
has had so much of a CPU, until a moment, or until there is something in its queue.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, cycle
from typing import NamedTuple, TypeAlias

from loadeval.data.columns import Columns

Process: TypeAlias = Generator[None, None, None]

MOST_BATCHES = 400
"""So many batches are simulated: enough for a mean within a few percent."""
SETTLING = 3
"""The queue fills in the first of so many parts, which does not count."""
LEAST_CPU = 0.001
"""A step computes for this share of its time at least."""


class Simulated(NamedTuple):
    """The mean time of an iteration, in nanoseconds, and of its step, once the queue has settled.

    The CPU time of workers is `grown` times what it would be with one CPU in use.
    """

    iteration_ns: float
    step_ns: float
    grown: float = 1.0


class Batch(NamedTuple):
    """A batch, the worker that makes it, and what that takes."""

    number: int
    worker: int
    cpu_ns: float
    read_ns: float
    waits_ns: float
    receive_ns: float
    lock_ns: float
    pin_ns: float
    index_ns: float
    step_ns: float
    step_cpu_ns: float


@dataclass
class _Machine:
    """CPUs that are shared equally by who computes, and a clock.

    `progress_ns` is how far a worker got that computed all the time. Of all workers, `spent_ns` is
    the CPU time, and `alone_ns` what it would be with one CPU in use.
    """

    cpus: float
    worker_cpus: float
    others: float
    growth: float
    step_slowed: float
    now_ns: float = 0.0
    progress_ns: float = 0.0
    spent_ns: float = 0.0
    alone_ns: float = 0.0
    _order: Iterator[int] = field(default_factory=count)
    _computing: list[tuple[float, int, Process]] = field(default_factory=list)
    _waiting: list[tuple[float, int, Process]] = field(default_factory=list)
    _training: tuple[Process, int] | None = None
    _training_left_ns: float = 0.0

    def compute(self, worker: Process, cpu_ns: float) -> None:
        """Resume `worker` once it has computed for so long."""
        heappush(self._computing, (self.progress_ns + cpu_ns, next(self._order), worker))

    def train(self, training: Process, cpu_ns: float, threads: int = 1) -> None:
        """Resume the training process once its `threads`, which wait for each other, have."""
        self._training, self._training_left_ns = (training, threads), cpu_ns

    def wait(self, process: Process, until_ns: float) -> None:
        """Resume `process` at that moment."""
        heappush(self._waiting, (until_ns, next(self._order), process))

    def speeds(self, workers: int, threads: int) -> tuple[float, float, float]:
        """How fast workers and training compute, and by how much more time that takes of a CPU."""
        wanted = workers + threads + self.others
        longer = 1 + self.growth * max(min(wanted, self.cpus) - 1, 0.0)
        share = min(self.cpus / wanted, 1.0) if wanted else 1.0
        of_worker = min(share, self.worker_cpus / workers) if workers else share
        if threads > 1 and wanted > self.cpus:  # the slowest of them shares its CPU with most
            most, part = divmod(wanted, 1)
            queued = [math.ceil(each / self.cpus) for each in (most, most + 1)]
            slower = [each * (self.step_slowed if each > 1 else 1) for each in queued]
            share = 1 / (slower[0] + part * (slower[1] - slower[0]))
        return of_worker / longer, share / longer, longer

    def next(self) -> Process:
        """Let time pass until a process has what it waits for."""
        threads = 0 if self._training is None else self._training[1]
        workers = len(self._computing)
        of_worker, of_training, longer = self.speeds(workers, threads)
        times_ns = (
            (self._computing[0][0] - self.progress_ns) / of_worker if workers else math.inf,
            self._training_left_ns / of_training if threads else math.inf,
            self._waiting[0][0] - self.now_ns if self._waiting else math.inf,
        )
        passed_ns = max(min(times_ns), 0.0)
        self.now_ns += passed_ns
        done_ns = of_worker * passed_ns
        self.progress_ns += done_ns
        self.alone_ns += workers * done_ns
        self.spent_ns += workers * done_ns * longer
        self._training_left_ns -= of_training * passed_ns
        first = times_ns.index(min(times_ns))
        if first == 1 and self._training is not None:
            (process, _), self._training = self._training, None
            return process
        return heappop(self._computing if first == 0 else self._waiting)[2]


def simulate(  # noqa: C901, PLR0913, PLR0915 - the processes of a loader, which share its queues
    costs: Columns,
    *,
    num_workers: int,
    prefetch_factor: int = 2,
    in_order: bool = True,
    pins: bool = False,
    cpus: float | None = None,
    worker_cpus: float | None = None,
    others_cpus: float = 0.0,
    growth: float = 0.0,
    step_slowed: float = 1.0,
) -> Simulated:
    """What a DataLoader of these settings comes to whose batches take `costs`: see `costs_of`.

    `pins` tells that a thread of the training process receives and pins batches. Of the `cpus` that
    it shares with its workers, these may use `worker_cpus`, and other programs want `others_cpus`;
    None is as many as they like. What a CPU does takes longer by `growth`, a share, for each
    further CPU in use. A step of several threads, which wait for each other again and again, takes
    `step_slowed` times as long as its share of the CPUs says where they are too few for it.
    """
    machine = _Machine(cpus or math.inf, worker_cpus or math.inf, others_cpus, growth, step_slowed)
    if not num_workers:
        _, speed, _ = machine.speeds(0, 1)
        each_ns = costs.cpu_ns / speed + costs.run_queue_ns + costs.blocked_ns + costs.read_ns
        each_ns = each_ns + costs.index_ns + costs.pin_ns + costs.step_ns
        return Simulated(each_ns.mean(), costs.step_ns.mean())
    costs = costs.replace(waits_ns=costs.run_queue_ns + costs.blocked_ns + costs.pickle_ns)
    columns = [costs[name].tolist() for name in Batch._fields[2:]]
    rows = cycle(list(zip(*columns, strict=True)))
    step_threads = max(round(float(costs.step_cpu_ns.sum() / max(costs.step_ns.sum(), 1))), 1)
    depth = num_workers * prefetch_factor
    total = max(len(costs), min(8 * depth, max(4 * depth, MOST_BATCHES)))
    numbers, storage_free_ns = count(), 0.0
    asked = [deque[Batch]() for _ in range(num_workers)]
    done_at_ns = [0.0] * num_workers  # the progress at which each has computed what it is at
    to_pin, arrived = deque[Batch](), deque[Batch]()
    served_ns, stepped_ns = list[float](), [0.0]  # how long all steps took, up to each batch
    idle = set[Process]()

    def wake(process: Process) -> None:
        if process in idle:
            idle.remove(process)
            next(process)

    def ask(worker: int) -> None:
        asked[worker].append(Batch(next(numbers), worker, *next(rows)))
        wake(working[worker])

    def work(number: int) -> Process:
        """What a worker does; it pickles before it goes on, for that takes Python's lock too."""
        nonlocal storage_free_ns
        while True:
            while not asked[number]:
                idle.add(working[number])
                yield
            batch = asked[number].popleft()
            machine.compute(working[number], batch.cpu_ns)
            done_at_ns[number] = machine.progress_ns + batch.cpu_ns
            yield
            if batch.read_ns:  # the storage serves one after the other
                storage_free_ns = max(storage_free_ns, machine.now_ns) + batch.read_ns
                machine.wait(working[number], storage_free_ns)
                yield
            if batch.waits_ns:
                machine.wait(working[number], machine.now_ns + batch.waits_ns)
                yield
            (to_pin if pins else arrived).append(batch)
            wake(pinning if pins else training)

    def pin() -> Process:
        while True:
            while not to_pin:
                idle.add(pinning)
                yield
            machine.wait(pinning, machine.now_ns + to_pin[0].receive_ns + to_pin[0].pin_ns)
            yield
            arrived.append(to_pin.popleft())
            wake(training)

    def train() -> Process:
        """Wait for a batch, receiving all that comes meanwhile; ask for one more; train."""
        kept = dict[int, Batch]()
        for wanted in count():
            batch = kept.pop(wanted, None)
            while batch is None:
                while not arrived:
                    idle.add(training)
                    yield
                come = arrived.popleft()
                if not pins:  # until its worker lets go of Python's lock
                    left_ns = max(done_at_ns[come.worker] - machine.progress_ns, 0.0)
                    left_ns += sum(later.cpu_ns for later in asked[come.worker])
                    if come.receive_ns:
                        machine.train(training, come.receive_ns)
                        yield
                    if left_ns and come.lock_ns:
                        machine.wait(training, machine.now_ns + min(left_ns, come.lock_ns))
                        yield
                if in_order and come.number != wanted:
                    kept[come.number] = come
                else:
                    batch = come
            if batch.index_ns:
                machine.train(training, batch.index_ns)
                yield
            ask(batch.worker)
            served_ns.append(machine.now_ns)
            # It was measured beside other programs, so these alone do not make it longer.
            computes = max(batch.step_cpu_ns / max(batch.step_ns, 1), LEAST_CPU)
            cpu_ns = batch.step_ns * min(computes, 1)
            speed = machine.speeds(0, step_threads)[1]
            took_ns = min(cpu_ns / speed, batch.step_ns)
            machine.train(training, took_ns * speed, step_threads)
            yield
            if took_ns < batch.step_ns:  # it waits for something else
                machine.wait(training, machine.now_ns + batch.step_ns - took_ns)
                yield
            stepped_ns.append(stepped_ns[-1] + machine.now_ns - served_ns[-1])

    working = [work(number) for number in range(num_workers)]
    pinning, training = pin(), train()
    idle |= {*working, pinning}
    for number in range(depth):
        ask(number % num_workers)
    next(training)
    while len(served_ns) < total:
        next(machine.next())
    counted = total - total // SETTLING
    counted -= counted % num_workers  # whole rounds, for workers may all end at a time
    last, first = total - 1, total - 1 - counted
    return Simulated(
        (served_ns[last] - served_ns[first]) / counted,
        (stepped_ns[last] - stepped_ns[first]) / counted,
        machine.spent_ns / machine.alone_ns if machine.alone_ns else 1.0,
    )
