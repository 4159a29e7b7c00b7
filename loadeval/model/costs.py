"""What a recorded loader takes, which a simulation is fed with, and what may be changed of it.

`costs_of` has what each batch takes, in nanoseconds, in the order in which the loader was asked for
them:

    index_ns                    handing out indices, in the training process
    cpu_ns, run_queue_ns        fetching and collating, in a worker: on a CPU, runnable without one,
    blocked_ns, read_ns         and neither: each worker by itself, or one after the other, as by a
                                storage that serves no more in total
    pickle_ns                   pickling, in a worker
    receive_ns, lock_ns         receiving, in the training process, or its pin thread; and how long
                                at most that waits for Python's lock in a worker that is busy
    pin_ns                      copying to pinned memory
    step_ns, step_cpu_ns        the training step with ideal loading, and CPU time of it
    "part NAME"                 the share of fetching and collating that a transform, a function,
                                collating, or "slow samples" beyond what is typical take
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from loadeval.data.columns import UNKNOWN, Column, Columns, Values, mean_known
from loadeval.data.run import Run, host_values
from loadeval.errors import UsageError
from loadeval.estimate.steady import once_per_run
from loadeval.inside.code import looks
from loadeval.inside.stages import (
    Stages,
    computing_threads,
    first_batches_ns,
    loaded,
    slow_rows,
    split_of,
    typical_sample_ns,
)
from loadeval.model.simulate import MOST_BATCHES

WORK = ("cpu_ns", "run_queue_ns", "blocked_ns", "read_ns")
"""What fetching and collating consist of."""
PART = "part "
STAGES: Mapping[str, tuple[str, ...]] = {
    "indices": ("index_ns",),
    "transfer": ("pickle_ns", "receive_ns"),
    "pin": ("pin_ns",),
    "step": ("step_ns", "step_cpu_ns"),
}
"""What else than fetching and collating can become faster, and its columns."""

FEWEST_RECEIVED, NEARLY, MOSTLY, TWICE = 4, 0.9, 0.5, 2.0
"""How many batches, and which shares of them and of their times, show a wait for Python's lock."""
TINY = 1e-9
"""It stands for nothing where something is divided by it."""

# Where the run had no workers to show it, see docs/how-it-measures.md:
HAND_OVER_NS = 200_000
"""Pickling a batch takes so long, and receiving it."""
PICKLE_TENSOR_NS, RECEIVE_TENSOR_NS, MOST_TENSOR_NS = 50_000, 500_000, 900_000
"""What each tensor adds to that, for the worker is asked for a file descriptor; and at most."""
TENSOR_BYTES = 200
"""A tensor in shared memory is pickled to so many bytes: a name, and its shape."""
PIPE_NS_PER_BYTE = (1.0, 2.0)
"""What each byte of a batch without tensors adds to it: it goes through a pipe."""
SHARED_NS_PER_BYTE = 0.7
"""Collating into shared memory, not into a process's own, takes so much more for each byte."""
FORK_NS, SPAWN_NS, RESUME_NS = 40_000_000.0, 2_000_000_000.0, 1_000_000
"""Starting a worker, and ending it, takes so long by fork, and by forkserver or spawn; and so long
each one at the start of an epoch that lives on."""
FORK_NS_PER_BYTE = 0.025
"""A fork copies the page tables of the training process, which takes so long for each byte."""
NO_FORK_SINCE = (3, 14)
"""From this version on Python starts processes by forkserver, unless told otherwise."""


def costs_of(run: Run, stages: Stages, step_ns: float, step_cpus: float) -> Columns | None:
    """What the batches of `run` take, without each worker's first of an epoch; None without any."""
    batches = loaded(run)
    fetched = batches.fetch_ns != UNKNOWN
    batches = batches.take(fetched & (batches.batch >= (run.loader.workers or 1)))
    if not len(batches):
        return None
    constant, collate_ns = np.ones(len(batches)), _known(batches.collate_ns)
    work_ns = _known(batches.fetch_ns) + collate_ns
    cpu_ns, run_queue_ns = work_ns, 0 * constant
    if (split := split_of(batches)) is not None:
        cpu_ns = np.minimum(_known(batches.cpu_ns, split[0] * work_ns), work_ns)
        run_queue_ns = _known(batches.run_queue_ns, split[1] * work_ns)
        run_queue_ns = np.minimum(run_queue_ns, work_ns - cpu_ns)
    blocked_ns = work_ns - cpu_ns - run_queue_ns
    computed_ns = computing_threads(stages) * blocked_ns  # by other threads of the worker
    shares = defaultdict[str, float](float)
    for kind, _, called, share in looks(run, stages.fetch_ns, stages.collate_ns):
        if kind == "running" and called:
            shares[called] += share
    shares |= {line.function: line.share for line in reversed(stages.code)}
    typical_ns = typical_sample_ns(batches) or math.inf
    is_slow = slow_rows(run, batches, typical_ns)
    slow_ns = np.where(is_slow, batches.slowest_ns - typical_ns, 0.0)
    parts = {name: share * constant for name, share in shares.items()}
    for name, taken_ns in (("collate", collate_ns), ("slow samples", slow_ns)):
        parts[name] = np.minimum(taken_ns / np.maximum(work_ns, 1.0), 1.0)
    parts |= {each.name: min(each.share, 1.0) * constant for each in stages.transforms}
    receive_ns, lock_ns = _receiving(batches)
    return Columns(
        {
            **{name: _known(batches[name]) for name in ("index_ns", "pickle_ns", "pin_ns")},
            "receive_ns": receive_ns,
            "lock_ns": lock_ns * constant,
            "cpu_ns": cpu_ns + computed_ns,
            "run_queue_ns": run_queue_ns,
            "blocked_ns": blocked_ns - computed_ns,
            "read_ns": 0 * constant,
            "step_ns": step_ns * constant,
            "step_cpu_ns": step_ns * step_cpus * constant,
            "worker": batches.worker,
            **{f"{PART}{name}": share for name, share in parts.items()},
        }
    ).take(slice(MOST_BATCHES))


def _receiving(batches: Columns) -> tuple[Values, float]:
    """What receiving each batch takes by itself, and how long at most it waits for a lock.

    For each tensor torch asks a thread of the worker, which has to wait for Python's lock (the GIL)
    while the worker computes in Python. Receiving does so where it mostly lasts until the worker is
    done, or is more than twice as long as from an idle one. It waits so long that, cut off when the
    worker is done, the mean is what was seen; math.inf is until then.
    """
    took_ns, left_ns = _known(batches.receive_ns), np.zeros(len(batches))
    began_ns, is_idle = batches.received_ns - took_ns, np.zeros(len(batches), dtype=np.bool_)
    workers = np.unique(batches.worker)
    for worker in workers:
        rows = np.flatnonzero(batches.worker == worker)
        started_ns, ended_ns = batches.fetch_start_ns[rows], batches.collated_ns[rows]
        first = np.searchsorted(ended_ns, began_ns[rows], side="right")
        last = np.searchsorted(started_ns, batches.received_ns[rows], side="left") - 1
        left_ns[rows] = np.where(last >= first, ended_ns[last] - began_ns[rows], 0)
        to_next = np.diff(batches.batch[rows], append=np.iinfo(np.int64).max)[last]
        is_idle[rows] = (last < first) & (to_next > 0) & (to_next <= len(workers))
    is_busy = left_ns > 0
    tensors = (mean_known(batches.pickled_bytes) or 0) / TENSOR_BYTES
    idle_ns = HAND_OVER_NS + tensors * RECEIVE_TENSOR_NS
    most_ns = HAND_OVER_NS + tensors * MOST_TENSOR_NS
    if is_idle.sum() >= FEWEST_RECEIVED:
        idle_ns = most_ns = np.median(took_ns[is_idle])
    is_long = left_ns > TWICE * idle_ns
    more_ns, busy_ns = took_ns[is_long] - idle_ns, left_ns[is_long]
    if len(more_ns) < FEWEST_RECEIVED or (more_ns <= busy_ns / NEARLY).mean() < MOSTLY:
        return took_ns, 0.0
    if (more_ns >= NEARLY * busy_ns).mean() < MOSTLY and np.median(more_ns) <= most_ns:
        return took_ns, 0.0
    own_ns, seen_ns = np.where(is_busy, np.minimum(took_ns, idle_ns), took_ns), more_ns.mean()
    if seen_ns >= NEARLY * busy_ns.mean():
        return own_ns, math.inf
    limits_ns = np.array([0.0, *np.sort(busy_ns)])
    means_ns = [np.minimum(busy_ns, limit_ns).mean() for limit_ns in limits_ns]
    return own_ns, float(np.interp(seen_ns, means_ns, limits_ns))


def work_of(costs: Columns) -> Values:
    """What fetching and collating each batch takes."""
    return np.asarray(sum(costs[name] for name in WORK))


def computed_ns(costs: Columns) -> float:
    """What loading all batches takes of CPUs, in workers and in the training process."""
    own = ("cpu_ns", "pickle_ns", "receive_ns", "index_ns", "pin_ns")
    return float(sum(costs[name].mean() for name in own))


def scaled(costs: Columns, share: float | Values) -> Columns:
    """Fetched and collated in that share of the time, and each part of it too."""
    return costs.replace(**{name: costs[name] * share for name in WORK})


def in_share(costs: Columns, share: float | Values) -> Columns:
    """Fetched and collated in that share of the time, for something of it is gone.

    That is nothing of what parts they have, which become larger shares.
    """
    left = np.maximum(share, TINY)
    parts = {name: np.minimum(costs[name] / left, 1) for name in costs.names if PART in name}
    return scaled(costs, share).replace(**parts)


def read_in_turn(costs: Columns, iteration_ns: float) -> Columns:
    """With a storage that serves all it has to one worker after the other.

    It was busy for no more than all of each iteration: what workers were blocked for beyond that,
    they waited for each other.
    """
    share = min(iteration_ns / max(costs.blocked_ns.mean(), 1.0), 1.0)
    return costs.replace(read_ns=costs.blocked_ns * share, blocked_ns=np.zeros(len(costs)))


def handed_over(costs: Columns, tensors: float | None, batch_bytes: float) -> Columns:
    """As if workers handed over what the training process loaded: batches of so many `tensors`."""
    count, shared_ns = tensors or 0.0, SHARED_NS_PER_BYTE * batch_bytes
    pickle_ns, receive_ns = count * PICKLE_TENSOR_NS, count * RECEIVE_TENSOR_NS
    if tensors == 0:
        pickle_ns, receive_ns = (batch_bytes * each for each in PIPE_NS_PER_BYTE)
        shared_ns = 0.0
    return costs.replace(
        cpu_ns=costs.cpu_ns + shared_ns,
        pickle_ns=np.full(len(costs), HAND_OVER_NS + pickle_ns),
        receive_ns=np.full(len(costs), HAND_OVER_NS + receive_ns),
    )


def resized(costs: Columns, batches: float) -> Columns:
    """Of batches that hold the samples of so many of these, one after the other of a worker."""
    own = [costs.take(costs.worker == worker) for worker in np.unique(costs.worker)]
    bounds = np.arange(max(int(max(map(len, own)) / batches), 1) + 1) * batches

    def of_all(values: Values) -> Values:
        """What is between bounds, of values that begin again at their end."""
        total, count = np.concatenate([[0.0], np.cumsum(values)]), len(values)
        until = np.interp(bounds % count, np.arange(count + 1), total)
        return np.diff(bounds // count * total[-1] + until)

    columns = {}
    for name in (name for name in costs.names if name.endswith("_ns")):
        columns[name] = np.stack([of_all(each[name]) for each in own], axis=1).ravel()
        if name in {"pickle_ns", "receive_ns", "lock_ns"}:
            columns[name] = np.full(len(columns[name]), costs[name].mean())
    return Columns(columns).take(slice(MOST_BATCHES))


def faster(costs: Columns, name: str, times: float) -> Columns:
    """With the part of that full name so many times as fast."""
    if name in STAGES:
        return costs.replace(**{column: costs[column] / times for column in STAGES[name]})
    part = f"{PART}{name}"
    share = 1 - costs[f"{PART}collate"] if name == "fetch" else costs[part]
    left = in_share(costs, 1 - share * (1 - 1 / times))
    return left if name == "fetch" else left.replace(**{part: left[part] / times})


def full_name(costs: Columns, name: str) -> str:
    """The part that `name` means: the whole of its name, or the end of one after a dot.

    Raises UsageError where that is none, or several.
    """
    parts = [each.removeprefix(PART) for each in costs.names if each.startswith(PART)]
    parts += ["fetch", *STAGES]
    if name in parts:
        return name
    ending = [part for part in parts if part.endswith(f".{name}")]
    if len(ending) == 1:
        return ending[0]
    expected = ", ".join(map(repr, parts))
    raise UsageError(f"faster has {name!r}, which names no part, or several; expected {expected}")


def _known(column: Column, otherwise: Values | None = None) -> Values:
    """The column, with something else in place of what is not known: by default the mean."""
    instead = (mean_known(column) or 0.0) if otherwise is None else otherwise
    return np.where(column == UNKNOWN, instead, column).astype(np.float64)


@once_per_run
def start_ns(run: Run, cpus: float) -> tuple[float, float]:
    """What starting takes of the training process for each worker, and of workers all at once.

    The latter is to start, to be initialised, and to do what is done for a first batch, with a CPU
    for each. Both are measured, or those of a process like the run's. What a stream does first it
    does in each epoch, whether its worker has just started or not.
    """
    first = {} if run.loader.sampler is None else first_batches_ns(run)
    looked_into = {epoch for epoch, _ in first}
    taken_ns, starting_ns = defaultdict[int, list[float]](list), dict[int, int]()
    for start in run.worker_starts:
        if start.epoch in looked_into or not first:
            longer_ns = first.get((start.epoch, start.worker), 0.0)
            ready_ns = start.ready_ns - start.start_ns + start.init_ns + longer_ns
            taken_ns[start.epoch].append(ready_ns)
            starting_ns[start.epoch] = start.starting_ns
    if taken_ns:
        own_ns = np.median(list(starting_ns.values()))
        slowest_ns = np.median([max(of_epoch) for of_epoch in taken_ns.values()])
        workers = run.loader.workers or 1
        return own_ns / workers, max(float(slowest_ns) - own_ns, 0.0) / max(workers / cpus, 1)
    environment, method = run.header.environment, run.loader.start_method
    if method is None:  # the default of that Python
        version = tuple(map(int, re.findall(r"\d+", str(environment.get("python")))[:2]))
        method = "fork" if version < NO_FORK_SINCE else "spawn"
    if method != "fork":
        return 0.0, SPAWN_NS
    used = [host_values(run, "process", name) for name in ("anonymous_bytes", "pss_bytes")]
    used_bytes = float((used[0] if len(used[0]) else used[1]).max(initial=0.0))
    return FORK_NS + FORK_NS_PER_BYTE * used_bytes, 0.0


def worker_bytes(run: Run) -> float | None:
    """What one more worker takes; None where it was not read.

    The PSS of a worker falls with the processes that share what it was forked from, such as the
    workers of other loaders. So that is left out: what is anonymous counts what is shared in full,
    and PSS a part of it for each of the workers and their parent. Mapped files are shared by all.
    """
    table = run.readings.get(("host", "workers"), Columns({}))
    if not {"alive_workers", "pss_bytes", "pss_file_bytes", "anonymous_bytes"} <= {*table.names}:
        return None
    alive = table.alive_workers
    own = (alive + 1) * (table.pss_bytes - table.pss_file_bytes) - table.anonymous_bytes
    known = own[alive > 0] / alive[alive > 0] ** 2
    known = known[np.isfinite(known)].clip(0.0)
    return np.median(known) if len(known) else None


# Changes


Costs: TypeAlias = Callable[[Columns], Columns] | Mapping[str, float]


@dataclass(frozen=True)
class Change:
    """What is changed: changes add up with `+`.

    `settings` are those of the loader, `num_workers`, `prefetch_factor`, `in_order`, `batch_size`
    and `persistent_workers`, the share that is left of what epochs take to start and end, `starts`,
    and the `cpus` that training and its workers share; these are then used by no others, unless
    `others_cpus` says how many. `costs` makes other columns of what batches take, see `costs.py`,
    or tells of parts by their names how many times as fast they become.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    costs: Costs = field(default_factory=dict)

    def __add__(self, other: Change) -> Change:
        return Change(
            {**self.settings, **other.settings}, lambda costs: other.applied(self.applied(costs))
        )

    def applied(self, costs: Columns) -> Columns:
        """What batches take then."""
        if callable(self.costs):
            return self.costs(costs)
        for name, times in self.costs.items():
            costs = faster(costs, name, times)
        return costs
