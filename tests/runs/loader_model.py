"""A DataLoader by recurrences: each moment of a batch follows from those of batches before it.

Nothing is shared with `loadeval.model.simulate`, which goes from event to event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from loadeval.data.columns import UNKNOWN, Column, Values
from loadeval.data.lines import StageTimes
from tests.runs.tables import Rows


class Task(NamedTuple):
    """A batch that a worker has or had to do, and when it does."""

    number: int
    worker: int
    fetch_start_ns: int
    pickle_start_ns: int
    ready_ns: int


@dataclass
class LoaderModel:
    """A DataLoader whose batches take as long as told: columns in the order of asking for them.

    `index_ns` is paid in the request of that batch. With `pickles_apart` a worker goes on while its
    other thread pickles, as with torch where neither needs Python's lock for long.
    """

    workers: int
    prefetch_factor: int
    index_ns: Sequence[int] = field(repr=False)
    fetch_ns: Sequence[int] = field(repr=False)
    collate_ns: Sequence[int] = field(repr=False)
    pickle_ns: Sequence[int] = field(repr=False)
    receive_ns: Sequence[int] = field(repr=False)
    pin_ns: Sequence[int] = field(repr=False)
    step_ns: int
    in_order: bool = True
    pins: bool = False
    pickles_apart: bool = True
    head_of_line_ns: list[int] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.fetch_ns)

    @property
    def depth(self) -> int:
        """How many batches are outstanding."""
        return self.workers * self.prefetch_factor

    def times(self, epoch: int = 0, start_ns: int = 0) -> Rows:
        """All batches of an epoch, as they are delivered."""
        rows = self._with_workers(start_ns) if self.workers else self._without(start_ns)
        columns: dict[str, Any] = {
            name: [row.get(name, UNKNOWN) for row in rows] for name in StageTimes.COLUMNS
        }
        return Rows(epoch, **columns)

    def _row(self, number: int, place: int) -> dict[str, int]:
        fetch_ns, collate_ns = self.fetch_ns[number], self.collate_ns[number]
        return {
            "batch": place,
            "samples": 4,
            "fetch_ns": fetch_ns,
            "collate_ns": collate_ns,
            "cpu_ns": fetch_ns // 2 + collate_ns,
            "run_queue_ns": 0,
            "index_ns": self.index_ns[number],
        } | ({"pin_ns": self.pin_ns[number]} if self.pins else {})

    def _without(self, now: int) -> list[dict[str, int]]:
        rows = []
        for number in range(len(self)):
            row = self._row(number, number) | {"requested_ns": now}
            now += row["index_ns"]
            row["fetch_start_ns"] = now
            now += row["fetch_ns"] + row["collate_ns"] + row.get("pin_ns", 0)
            row["delivered_ns"] = now
            now += self.step_ns
            rows.append(row)
        return rows

    def _with_workers(self, now: int) -> list[dict[str, int]]:
        worker_free, feeder_free = [now] * self.workers, [now] * self.workers
        pin_free, sent = now, 0
        tasks: dict[int, Task] = {}  # which are not received
        received: dict[int, tuple[int, int]] = {}  # when, and when they can be taken
        rows: list[dict[str, int]] = []
        done: dict[int, Task] = {}

        def send(worker: int, now: int) -> None:
            nonlocal sent
            if sent >= len(self):
                return
            start = max(now, worker_free[worker])
            collated = start + self.fetch_ns[sent] + self.collate_ns[sent]
            pickle_start = max(collated, feeder_free[worker])
            ready = pickle_start + self.pickle_ns[sent]
            feeder_free[worker] = ready
            worker_free[worker] = collated if self.pickles_apart else ready
            tasks[sent] = done[sent] = Task(sent, worker, start, pickle_start, ready)
            sent += 1

        def receive(now: int) -> int:
            """Receive what is ready first, from `now` on; until when."""
            nonlocal pin_free
            first = min(tasks.values(), key=lambda task: (task.ready_ns, task.number))
            del tasks[first.number]
            number = first.number
            if not self.pins:
                until = max(now, first.ready_ns) + self.receive_ns[number]
                received[number] = until, until
                return until
            got = max(pin_free, first.ready_ns) + self.receive_ns[number]
            pin_free = got + self.pin_ns[number]
            received[number] = got, pin_free
            return now

        for number in range(self.depth):
            send(number % self.workers, now)
        for place in range(len(self)):
            requested, outstanding = now, dict(tasks)
            kept = {number: done[number].ready_ns for number in received}
            while place not in received if self.in_order else not received:
                now = receive(now)
            number = place if self.in_order else min(received, key=lambda key: received[key][1])
            got, can_be_taken = received.pop(number)
            now = max(now, can_be_taken)
            row = self._row(number, place)
            now += row["index_ns"]
            task = done[number]
            send(task.worker, now)
            others = [
                waiting.ready_ns for waiting in outstanding.values() if waiting.number != number
            ]
            others += [ready for other, ready in kept.items() if other != number]
            waited = task.ready_ns - max(requested, min(others, default=task.ready_ns))
            self.head_of_line_ns.append(max(waited, 0))
            rows.append(
                row
                | {
                    "worker": task.worker,
                    "requested_ns": requested,
                    "delivered_ns": now,
                    "fetch_start_ns": task.fetch_start_ns,
                    "pickle_start_ns": task.pickle_start_ns,
                    "pickle_ns": self.pickle_ns[number],
                    "pickled_bytes": 1000,
                    "received_ns": got,
                    "receive_ns": self.receive_ns[number],
                }
            )
            now += self.step_ns
        return rows


def iterations_ns(times: Rows) -> Column:
    """The time from each delivered batch to the next."""
    return np.diff(times.delivered_ns)


def of_each(values: Values) -> list[int]:
    """Whole nanoseconds."""
    return [int(value) for value in values.tolist()]
