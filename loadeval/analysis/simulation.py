"""What a loader would do under other settings: its batches replayed by the rules of torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.stages import SLOW_SAMPLE, typical_sample_ns
from loadeval.runlog.columns import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.analysis.stats import Series
    from loadeval.runlog.columns import Column
    from loadeval.runlog.model import Run

MOST_BATCHES = 400
"""Batches that are replayed: enough for a mean within a few percent."""
SETTLING = 3
"""The first part of this many, in which the queue fills, is not counted."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What each batch takes, in nanoseconds, in the order in which the loader was asked for them.

    In a worker: `cpu_ns` on a CPU, `run_queue_ns` runnable without one, `blocked_ns` neither, and
    `pickle_ns`. `receive_ns` in the training process, or its pin thread with `pin_ns`; `index_ns`
    in the training process. `slow_ns` is what a slow sample takes more than a typical one, of the
    first three. `worker` made it. `step_ns` is the training step with ideal loading.
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

    def __len__(self) -> int:
        return len(self.cpu_ns)

    @property
    def fetch_ns(self) -> Series:
        """What fetching and collating each takes."""
        found: Series = self.cpu_ns + self.run_queue_ns + self.blocked_ns
        return found

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
    and the training process may share; None is as many as they want. `pins` tells that a thread
    of the training process receives and pins batches.
    """

    workers: int
    prefetch_factor: int = 2
    in_order: bool = True
    cpus: float | None = None
    pins: bool = False


def costs_of(run: Run, step_ns: float) -> Costs | None:
    """The costs of the batches of `run`, without the first of each epoch; None without stages."""
    parts = [one.part(one.batch > 0) for one in run.stages]
    parts = [one.part(one.fetch_ns != UNKNOWN) for one in parts]
    if not sum(map(len, parts)):
        return None

    def joined(name: str) -> Series:
        column: Column = np.concatenate([getattr(one, name) for one in parts])
        known = column[column != UNKNOWN]
        typical = float(known.mean()) if len(known) else 0.0
        return np.where(column == UNKNOWN, typical, column)[:MOST_BATCHES].astype(np.float64)

    typical_ns = typical_sample_ns(parts) or math.inf
    slowest_ns = joined("slowest_ns")
    slow_ns = np.where(slowest_ns > SLOW_SAMPLE * typical_ns, slowest_ns - typical_ns, 0.0)
    fetch_ns = joined("fetch_ns") + joined("collate_ns")
    cpu_ns = np.minimum(joined("cpu_ns"), fetch_ns)
    if all((one.cpu_ns == UNKNOWN).all() for one in parts):
        cpu_ns = fetch_ns
    run_queue_ns = np.minimum(joined("run_queue_ns"), fetch_ns - cpu_ns)
    return Costs(
        cpu_ns=cpu_ns,
        run_queue_ns=run_queue_ns,
        blocked_ns=fetch_ns - cpu_ns - run_queue_ns,
        pickle_ns=joined("pickle_ns"),
        receive_ns=joined("receive_ns"),
        pin_ns=joined("pin_ns"),
        index_ns=joined("index_ns"),
        slow_ns=np.minimum(slow_ns, fetch_ns),
        worker=np.concatenate([one.worker for one in parts])[:MOST_BATCHES],
        step_ns=step_ns,
    )


def iteration_ns(costs: Costs, setting: Setting) -> float:
    """The mean time of an iteration, in nanoseconds, once the loader's queue has settled.

    The rules are those of torch's DataLoader: batches are handed to the workers in turn, as many
    as `workers` times `prefetch_factor` outstanding, and served in order or as they come. Those
    on a CPU share `cpus` equally, and so does the step. No more than MOST_BATCHES are replayed.
    """
    if not setting.workers:
        each = costs.fetch_ns + costs.index_ns + costs.pin_ns
        return float(each.mean()) + costs.step_ns
    return _Replay(costs, setting).iteration_ns()


class _Replay:
    """One event after the other: a worker or the training process is done with what it does."""

    def __init__(self, costs: Costs, setting: Setting) -> None:
        self._setting = setting
        self._batches = self._endless(costs)
        self._queues: list[list[int]] = [[] for _ in range(setting.workers)]
        self._work: dict[int, list[float]] = {}
        self._after: dict[int, tuple[float, float]] = {}
        self._doing: dict[int, int] = {}
        self._done: set[int] = set()
        self._sent = 0
        self._received: dict[int, float] = {}
        self._receiver_free_ns = 0.0
        self._step_ns = costs.step_ns
        self._count = max(len(costs), 8 * setting.workers * setting.prefetch_factor)

    def _endless(self, costs: Costs) -> Iterator[tuple[float, float, float, float]]:
        rows = zip(
            costs.cpu_ns.tolist(),
            (costs.run_queue_ns + costs.blocked_ns + costs.pickle_ns).tolist(),
            (costs.receive_ns + (costs.pin_ns if self._setting.pins else 0.0)).tolist(),
            costs.index_ns.tolist(),
            strict=True,
        )
        return cycle(list(rows))

    def iteration_ns(self) -> float:
        setting, now = self._setting, 0.0
        for _ in range(setting.workers * setting.prefetch_factor):
            self._send()
        busy_ns = 0.0  # what the training process has left to do of its step
        served: list[float] = []
        while len(served) < self._count:
            self._begin()
            rate = self._rate(busy_ns > 0)
            wait = busy_ns / rate if busy_ns > 0 else math.inf
            for batch in self._doing.values():
                cpu_ns, other_ns = self._work[batch]
                wait = min(wait, cpu_ns / rate if cpu_ns > 0 else other_ns)
            picked = None
            if busy_ns <= 0:
                picked, ready_ns = self._next(len(served), now)
                if picked is not None:
                    wait = min(wait, max(ready_ns - now, 0.0))
            now += wait
            self._advance(wait, rate, now)
            busy_ns = max(busy_ns - wait * rate, 0.0) if busy_ns > 0 else 0.0
            if busy_ns > _LEAST_NS:
                continue
            busy_ns = 0.0
            picked, ready_ns = self._next(len(served), now)
            if picked is not None and ready_ns <= now:
                served.append(now)
                busy_ns = self._take(picked)
        first = len(served) // SETTLING
        return (served[-1] - served[first]) / (len(served) - 1 - first)

    def _send(self) -> None:
        queue = self._queues[self._sent % self._setting.workers]
        if not self._setting.in_order:
            queue = min(self._queues, key=len)
        cpu_ns, other_ns, receive_ns, index_ns = next(self._batches)
        queue.append(self._sent)
        self._work[self._sent] = [cpu_ns, other_ns]
        self._after[self._sent] = receive_ns, index_ns
        self._sent += 1

    def _begin(self) -> None:
        for worker, queue in enumerate(self._queues):
            if queue and worker not in self._doing:
                self._doing[worker] = queue[0]

    def _rate(self, stepping: bool) -> float:
        if self._setting.cpus is None:
            return 1.0
        computing = sum(self._work[batch][0] > 0 for batch in self._doing.values()) + stepping
        return min(1.0, self._setting.cpus / computing) if computing else 1.0

    def _advance(self, wait: float, rate: float, now: float) -> None:
        for worker, batch in list(self._doing.items()):
            left = self._work[batch]
            if left[0] > 0:
                left[0] -= wait * rate
                left[0] = left[0] if left[0] > _LEAST_NS else 0.0
            else:
                left[1] -= wait
            if left[0] <= 0 and left[1] <= _LEAST_NS:
                del self._doing[worker], self._work[batch]
                self._queues[worker].pop(0)
                self._done.add(batch)
                if self._setting.pins:
                    receive_ns, _ = self._after[batch]
                    self._receiver_free_ns = max(self._receiver_free_ns, now) + receive_ns
                    self._received[batch] = self._receiver_free_ns

    def _next(self, served: int, now: float) -> tuple[int | None, float]:
        """The batch that is served next, and when it can be."""
        if self._setting.in_order:
            picked = served if served in self._done else None
        else:
            picked = min(
                self._done, key=lambda one: (self._received.get(one, 0.0), one), default=None
            )
        return picked, self._received.get(picked, now) if picked is not None else now

    def _take(self, batch: int) -> float:
        """What the training process does with it: receive, hand out indices, step."""
        self._done.remove(batch)
        self._received.pop(batch, None)
        receive_ns, index_ns = self._after.pop(batch)
        self._send()
        return (0.0 if self._setting.pins else receive_ns) + index_ns + self._step_ns


_LEAST_NS = 1e-3
"""Less than this is left by rounding."""
