"""What each batch of a recorded loader takes, by stage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from loadeval.analysis.inside.stages import slow_from_ns, split_of, typical_sample_ns
from loadeval.analysis.inside.timeline import or_0
from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import keys_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.estimate.stats import Series
    from loadeval.data.columns import Column
    from loadeval.data.run import Run

MOST_BATCHES = 400
"""So many batches are replayed: enough for a mean within a few percent."""


@dataclass(frozen=True, eq=False)
class Costs:
    """What each batch takes, in nanoseconds, in the order in which the loader was asked for them.

    In a worker: `cpu_ns` on a CPU, `run_queue_ns` runnable without one, `blocked_ns` neither, and
    `pickle_ns`. `receive_ns` in the training process, or its pin thread with `pin_ns`; `index_ns`
    in the training process. `slow_ns` is what a slow sample takes more than a typical one, of the
    first three. `worker` made it. `step_ns` is the training step with ideal loading, which uses
    `step_cpus` CPUs. `named_ns` is what each transform, and collating, takes of the first three.

    Workers are blocked each by itself, or with `in_turn` one after the other: as by storage whose
    bandwidth they share, so that more of them read no faster in sum.

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
    in_turn: bool = False
    named_ns: Mapping[str, Series] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.cpu_ns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Costs) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    @cached_property
    def _digest(self) -> bytes:
        """The same for the same costs, so that these are replayed once."""
        digest = blake2b(repr(list(self.named_ns)).encode())
        for each in fields(self):
            value = getattr(self, each.name)
            columns = value.values() if isinstance(value, Mapping) else [np.asarray(value)]
            for column in columns:
                digest.update(column.tobytes())
        return digest.digest()

    @property
    def fetch_ns(self) -> Series:
        """What fetching and collating each takes."""
        fetch_ns: Series = self.cpu_ns + self.run_queue_ns + self.blocked_ns
        return fetch_ns

    @property
    def handed_ns(self) -> float:
        """What the training process does for a batch beside its step, on average."""
        return float((self.receive_ns + self.pin_ns + self.index_ns).mean())

    def fetched_in(self, share: float | Series) -> Costs:
        """The same, fetched and collated in that share of the time, for a part of it is gone."""
        return replace(
            self,
            cpu_ns=self.cpu_ns * share,
            run_queue_ns=self.run_queue_ns * share,
            blocked_ns=self.blocked_ns * share,
        )

    def scaled(self, share: float) -> Costs:
        """The same, fetched and collated in that share of the time, and each part of it."""
        return self.with_parts_in(share).fetched_in(share)

    def off_the_run_queue(self) -> Costs:
        """The same with workers that always have a CPU, in which each part takes less time too."""
        share = 1 - self.run_queue_ns / np.maximum(self.fetch_ns, 1.0)
        return replace(self.with_parts_in(share), run_queue_ns=np.zeros(len(self)))

    def read_in_turn(self, iteration_ns: float) -> Costs:
        """The same where storage serves all it has, one fetch after the other.

        It was busy for no more than all of each iteration: what workers were blocked for beyond
        that, they waited for each other.
        """
        share = min(iteration_ns / max(float(self.blocked_ns.mean()), 1.0), 1.0)
        served = replace(self, blocked_ns=self.blocked_ns * share, in_turn=True)
        return served.with_parts_in(served.fetch_ns / np.maximum(self.fetch_ns, 1.0))

    def computed_while_blocked(self, share: float) -> Costs:
        """The same with that share of the blocked time on a CPU, where other threads compute."""
        computed_ns = share * self.blocked_ns
        return replace(
            self, cpu_ns=self.cpu_ns + computed_ns, blocked_ns=self.blocked_ns - computed_ns
        )

    def with_parts_in(self, share: float | Series) -> Costs:
        """The same, with transforms and slow samples that take that share of their time."""
        named_ns = {name: part_ns * share for name, part_ns in self.named_ns.items()}
        return replace(self, slow_ns=self.slow_ns * share, named_ns=named_ns)


def costs_of(run: Run, step_ns: float, step_cpus: float = 1.0) -> Costs | None:
    """The costs of a run's batches, without each worker's first of an epoch; None without any."""
    workers = run.header.loader.workers or 1
    times = run.stages.take(run.stages.batch >= workers)
    times = times.take(times.fetch_ns != UNKNOWN)
    if not len(times):
        return None
    parts = [part for _, part in times.by("epoch")]

    def joined(name: str) -> Series:
        column = times[name]
        known = column[column != UNKNOWN]
        typical = float(known.mean()) if len(known) else 0.0
        return np.where(column == UNKNOWN, typical, column)[:MOST_BATCHES].astype(np.float64)

    def known_or(name: str, other: Series) -> Series:
        column = times[name][:MOST_BATCHES]
        return np.where(column == UNKNOWN, other, column)

    typical_ns = typical_sample_ns(parts) or math.inf
    slowest_ns = times.slowest_ns[:MOST_BATCHES]  # UNKNOWN is not slow
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
        worker=times.worker[:MOST_BATCHES],
        step_ns=step_ns,
        step_cpus=step_cpus,
        arrive_ns=receiving.arrive_ns,
        lock_ns=receiving.lock_ns,
        named_ns={"collate": joined("collate_ns"), **_transforms(run, times)},
    )


class Receiving(NamedTuple):
    """What receiving each batch takes by itself, and what may come on top: see Costs."""

    receive_ns: Series
    arrive_ns: float
    lock_ns: float

    @classmethod
    def of(cls, parts: Sequence[Columns]) -> Receiving:
        """What receiving takes: with the worker busy or idle meanwhile, waited for or not."""
        took_ns, waited, left_ns = np.concatenate([_received(part) for part in parts]).T
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
    """How much longer these typically took than is typical; 0 where that may be chance."""
    more_ns = float(np.median(took_ns)) - typical_ns if len(took_ns) >= FEWEST_RECEIVED else 0.0
    return more_ns if more_ns >= max(LEAST_MORE * typical_ns, LEAST_MORE_NS) else 0.0


LEAST_MORE = 0.3
LEAST_MORE_NS = 100_000
FEWEST_RECEIVED = 4
"""The median of so many batches of a kind says something."""
NEARLY = 0.9
"""Who waits for this share of the time until a worker is done waits until then."""
MOSTLY = CORRELATED = 0.5
LEAST_LOCK_NS = 1_000_000
"""A shorter wait is none for Python's lock, which a thread gets after 5 ms, if not before."""
LAY_READY_NS = 200_000


def _received(times: Columns) -> npt.NDArray[np.float64]:
    """How long receiving each batch took, if it was waited for, and what its worker had left.

    What is left is of the batches that the worker was at meanwhile.
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


def _transforms(run: Run, times: Columns) -> dict[str, Series]:
    """What each transform takes of a batch, in nanoseconds; 0 where that is not known."""
    keys, transforms = keys_of(times), {}
    for name, table in run.transforms.items():
        own = keys_of(table)
        order = np.argsort(own)
        at = order[np.minimum(np.searchsorted(own[order], keys), len(own) - 1)]
        transforms[name] = np.where(own[at] == keys, table.ns[at], 0.0)[:MOST_BATCHES]
    return transforms
