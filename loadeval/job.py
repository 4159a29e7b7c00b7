"""The ranks of one training as one job: how long it waits for batches, and for which rank.

All ranks leave a step together, so a rank that waits longer for its batch than the others makes
them wait for it, inside their own step. Batches are aligned by number: no clock matters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from loadeval.data.columns import UNKNOWN, Column, Columns, Values
from loadeval.data.lines import Event, Prefetch
from loadeval.data.run import Run, keys_of
from loadeval.estimate.steady import Mask, closed_steps, steady
from loadeval.words import duration, share

Matrix = npt.NDArray[np.int64]
"""A row for each rank, and a column for each batch: of a thousand ranks it takes 80 MB."""

FEWEST_BATCHES = 20
LEAST_SHARE = 0.01
"""What takes a smaller share of the time is nothing: a wait, what a straggler costs."""
LEAST_UNEVEN = 0.25
"""Ranks wait about equally long where the typical one waits less by a smaller part of the wait."""
FEWEST_WAITS = 4
"""What fewer waits make up, were they equal, says nothing of who will wait next."""
MOST_NAMES, NAME_ADDS, NODE_ADDS = 16, 0.05, 0.1
"""Stragglers that are named, and how much more of the waiting another one explains, at least, or a
node in place of some of its ranks."""
PREFETCH_OF = attrgetter("pair", "epoch", "batches", "timed")
FURTHEST_APART = 1.02
"""Of ranks that train together one takes no more times as long for the same batches as another."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank; times are in nanoseconds per batch, over the job's measured batches.

    `wait_ns` is its own wait, `wait_share` that as a share of the job's iteration, and
    `waited_for_ns` how long it waited inside of its step for ranks that waited longer for their
    batches. It was the last in `last_share` of the batches for which some rank waited; without its
    longer waits the job would save `cost_ns`. A rank that ended early has no figures.
    """

    rank: int
    path: Path | None
    host: str | None
    batches: int
    wait_ns: float | None = None
    wait_share: float | None = None
    waited_for_ns: float | None = None
    last_share: float | None = None
    cost_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Who is behind a job's waits, and what `says` so; shares and times are of measured batches.

    Where some are, `cost_share` of the time would be saved if `ranks`, all of them on `host`,
    waited no longer than the others.
    """

    says: str
    ranks: tuple[int, ...] = ()
    host: str | None = None
    cost_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """The ranks of one job.

    `run` is the job as a run: of each batch that all ranks have the longest wait, the ranks' mean
    iteration, and the samples of all. What else is known, its loader's stages, its readings, is
    that of the rank `shown`, for which the others wait most. `ranks` are those with logs, in order.
    `steps` batches were measured on all; the job waits `wait_ns` for one, of `iteration_ns`, None
    where there are none.
    """

    run: Run
    shown: int
    ranks: tuple[Rank, ...]
    steps: int
    iteration_ns: float | None
    wait_ns: float | None
    stragglers: Stragglers
    cautions: tuple[str, ...]

    @property
    def headline(self) -> str:
        """How many ranks there are, and how long the job waited."""
        ranks = f"{len(self.ranks):,} ranks of one job"
        if not self.iteration_ns or self.wait_ns is None:
            return f"{ranks}: no batch was measured on all of them"
        return f"{ranks} waited for batches {share(self.wait_ns / self.iteration_ns)} of the time"


def are_ranks(runs: Sequence[Run]) -> bool:
    """Whether each is of another rank of one job: of a training with the same number of ranks."""
    places = [run.header.environment for run in runs]
    numbers = [(place.get("rank"), place.get("world_size")) for place in places]
    return (
        all(isinstance(number, int) for each in numbers for number in each)
        and 1 < len(runs) == len({rank for rank, _ in numbers})
        and len({size for _, size in numbers}) == 1
        and len({run.header.mode for run in runs}) == 1
    )


def job_of(
    runs: Iterable[Run], full: Callable[[Run], Run] = lambda run: run, name: str | None = None
) -> Job:
    """Two ranks or more, as `are_ranks` tells, as one job.

    `runs` may lack all but their batches, events and ends: `full` gives one of them as a whole. A
    rank with fewer than half of the usual batches ended early, and is left out.
    """
    every = sorted(runs, key=_rank)
    usual = np.median([run.batches for run in every])
    kept = [run for run in every if 2 * run.batches >= usual]
    shared_by = partial(np.intersect1d, assume_unique=True)
    common = reduce(shared_by, (keys_of(rank.steps) for rank in kept))
    ranks = [_aligned(rank, common) for rank in kept]

    def each(column: str) -> Matrix:
        return np.stack([rank.steps[column] for rank in ranks])

    first = ranks[0].steps
    columns = dict[str, Column]()
    samples = each("samples")
    columns["samples"] = np.where((samples != UNKNOWN).all(0), samples.sum(0), UNKNOWN)
    del samples
    is_same, did_else = np.ones(len(common), np.bool_), np.zeros(len(common), np.bool_)
    for rank in ranks:
        is_same &= (rank.steps.pair == first.pair) & (rank.steps.arm == first.arm)
        did_else |= ~closed_steps(rank) & (rank.steps.step_ns != UNKNOWN)
    columns["pair"] = np.where(is_same, first.pair, UNKNOWN)

    def add(wait: str, step: str) -> tuple[Matrix, Matrix]:
        """Add the longest wait of each batch, and the step that the mean iteration leaves."""
        waits_ns, steps_ns = each(wait), each(step)
        columns[wait] = waits_ns.max(0)
        rest_ns = (waits_ns.sum(0) + steps_ns.sum(0)) // len(ranks) - columns[wait]
        is_known = ~did_else & (steps_ns != UNKNOWN).all(0)
        columns[step] = np.where(is_known, np.maximum(rest_ns, 0), UNKNOWN)
        return waits_ns, steps_ns

    add("gpu_idle_ns", "gpu_step_ns")
    waits_ns, steps_ns = add("wait_ns", "step_ns")
    counts = steady(Run(ranks[0].header, first.replace(**columns), ranks[0].ends))
    took_ns = (waits_ns @ counts + steps_ns @ counts).tolist()
    del steps_ns
    waits_ns = waits_ns[:, counts]

    longest_ns, last = waits_ns.max(0), waits_ns.argmax(0)
    count = max(len(last), 1)
    wait_ns = float(longest_ns.sum() / count)
    iteration_ns = wait_ns + float(columns["step_ns"][counts].sum() / count)
    times_last = np.bincount(last, longest_ns > LEAST_SHARE * iteration_ns, len(ranks))
    of_others_ns = np.where(np.arange(len(ranks))[:, None] == last, 0, waits_ns).max(0)
    costs_ns = np.bincount(last, longest_ns - of_others_ns, len(ranks))
    own_ns, last_shares = waits_ns.sum(1) / count, times_last / max(times_last.sum(), 1)
    shares = own_ns / (iteration_ns or 1.0), wait_ns - own_ns, last_shares, costs_ns / count
    of_ranks = np.stack([own_ns, *shares], 1).tolist() if len(last) else ()
    figures = dict(zip(map(_rank, ranks), of_ranks, strict=False))

    middle = (len(ranks) - 1) // 2
    beyond_ns: Values = longest_ns - np.partition(waits_ns, middle, axis=0)[middle] * 1.0
    behind = np.bincount(last, beyond_ns, len(ranks)).argmax()
    shown = _aligned(full(kept[behind]), common)
    return Job(
        run=_as_one(shown, every, shown.steps.replace(**columns), name),
        shown=_rank(shown),
        ranks=tuple(
            Rank(
                _rank(each),
                each.path,
                each.header.environment.get("host"),
                each.batches,
                *figures.get(_rank(each), ()),
            )
            for each in every
        ),
        steps=len(last),
        iteration_ns=iteration_ns if len(last) else None,
        wait_ns=wait_ns if len(last) else None,
        stragglers=_stragglers(ranks, waits_ns, beyond_ns, times_last, iteration_ns),
        cautions=tuple(
            _cautions(every, kept, is_same, took_ns if count >= FEWEST_BATCHES else [0])
        ),
    )


def _rank(run: Run) -> int:
    rank: int = run.header.environment["rank"]
    return rank


def _aligned(run: Run, common: Column) -> Run:
    """The run with those of its batches that all ranks have; most have no others."""
    rows = np.isin(keys_of(run.steps), common, assume_unique=True)
    return run if rows.all() else replace(run, steps=run.steps.take(rows))


def _as_one(shown: Run, every: Sequence[Run], steps: Columns, name: str | None) -> Run:
    """The rank `shown` with the job's steps, and with what happened on any rank, told once."""
    place, longest = shown.header.environment, dict[int, int]()
    events = defaultdict[tuple[Any, str], list[tuple[int, int]]](list)
    notes = defaultdict[str, list[int]](list)
    # All prefetch at the same batch, and go on together once the slowest has its batches.
    prefetched = defaultdict[Any, list[Prefetch]](list)
    for rank in every:
        for each in rank.prefetches:
            prefetched[PREFETCH_OF(each)].append(each)
        ends = [(end.epoch, end.wait_ns) for end in rank.ends]
        for epoch, end_ns in ends + [(each.epoch, each.end_ns) for each in rank.prefetches]:
            longest[epoch] = max(longest.get(epoch, 0), end_ns or 0)
        for event in rank.events:
            if event.kind != "within a step":  # such a step of any rank is left out
                events[event.kind, event.message].append((event.time_ns, _rank(rank)))
        for note in rank.notes:
            notes[note].append(_rank(rank))
    change = msgspec.structs.replace
    return replace(
        shown,
        header=change(
            shown.header,
            name=name or f"{len(every)} ranks",
            environment={key: place[key] for key in place if key not in {"rank", "host"}},
        ),
        steps=steps,
        ends=tuple(change(end, wait_ns=end.wait_ns and longest[end.epoch]) for end in shown.ends),
        prefetches=tuple(
            change(
                each,
                elapsed_ns=max(rank.elapsed_ns for rank in same),
                samples=None,
                waits_ns=list(map(max, zip(*(rank.waits_ns for rank in same), strict=False))),
                end_ns=each.end_ns and longest[each.epoch],
            )
            for each in shown.prefetches
            for same in [prefetched[PREFETCH_OF(each)]]
        ),
        events=tuple(
            Event(min(each)[0], f"{_named(rank for _, rank in each)}: {message}", kind)
            for (kind, message), each in events.items()
        ),
        notes=tuple(f"{_named(of)}: {note}" for note, of in notes.items()),
        closed=all(rank.closed for rank in every),
        path=shown.path and shown.path.parent,
    )


def _stragglers(
    ranks: Sequence[Run],
    waits_ns: Matrix,
    beyond_ns: Values,
    times_last: Column,
    iteration_ns: float,
) -> Stragglers:
    """Who is behind the waits, or why nobody is named.

    `waits_ns` has a row for each rank, `beyond_ns` how much longer than the typical rank the last
    one waits, and `times_last` in how many of the batches that some rank waits for it waits
    longest.
    """
    longest_ns = waits_ns.max(0)
    if len(longest_ns) < FEWEST_BATCHES:
        few = f"fewer than {FEWEST_BATCHES} batches were measured on all ranks"
        return Stragglers(f"not known; {few}")
    if longest_ns.mean() < LEAST_SHARE * iteration_ns:
        return Stragglers("none; no rank waits for its batches")
    uneven_ns = float(beyond_ns.mean())
    if uneven_ns < max(LEAST_SHARE * iteration_ns, LEAST_UNEVEN * longest_ns.mean()):
        return Stragglers("none; all ranks wait about equally long")
    if beyond_ns.sum() ** 2 < FEWEST_WAITS * (beyond_ns**2).sum():
        few = "a few long waits make up most of it, too few to show a pattern"
        return Stragglers(f"none; {few}")

    hosts = [rank.header.environment.get("host") for rank in ranks]
    late, cost_ns = _late(waits_ns, beyond_ns, hosts)
    if not late:
        beyond = f"{duration(uneven_ns)} per batch longer than the typical rank"
        return Stragglers(f"none; the last rank changes, and waits {beyond}")
    numbers = tuple(_rank(ranks[at]) for at in late)
    who, cost_share = _named(numbers), cost_ns / iteration_ns
    last_share = times_last[late].sum() / times_last.sum()
    host = hosts[late[0]] if len({hosts[at] for at in late}) == 1 else None
    is_node = host is not None and 1 < len(late) == hosts.count(host)
    who = f"node {host} ({who})" if is_node else f"{who} on {host}" if host else who
    one_of = "one of them " * (len(late) > 1 and not is_node)
    return Stragglers(
        f"{who}, {one_of}last in {share(last_share)} of the batches that some rank waits for; "
        f"that costs the job {share(cost_share)} of its time ({duration(cost_ns)} per batch)",
        numbers,
        host,
        cost_share,
    )


def _late(
    waits_ns: Matrix, beyond_ns: Values, hosts: Sequence[str | None]
) -> tuple[list[int], float]:
    """The ranks, or the node, that explain what some rank waits beyond the typical one.

    And what the job would save per batch if these waited no longer than the others. They explain
    more than half of it, and than their number does.
    """
    size, longest_ns, last = len(hosts), waits_ns.max(0), waits_ns.argmax(0)
    worst_first = np.argsort(-np.bincount(last, beyond_ns, size)).tolist()
    most_names = max(min(size // 4, MOST_NAMES), 1)
    parts = [(worst_first[: more + 1], NAME_ADDS * more) for more in range(most_names)]
    nodes = [[at for at in range(size) if hosts[at] == host] for host in set(hosts) - {None}]
    found = []
    for part, adds in [*parts, *((node, NODE_ADDS) for node in nodes)]:
        is_last = np.isin(last, part)
        others_ns = np.delete(waits_ns[:, is_last], part, axis=0).max(0, initial=0)
        saved_ns = float((longest_ns[is_last] - others_ns).sum())
        margin = min(saved_ns / float(beyond_ns.sum()), 1.0) - (1 + len(part) / size) / 2
        if margin > 0:
            found.append((margin - adds, sorted(part), saved_ns / len(last)))
    _, late, cost_ns = max(found, default=(0.0, [], 0.0))
    return late, cost_ns


def _cautions(
    every: Sequence[Run], ranks: Sequence[Run], is_same: Mask, took_ns: Sequence[int]
) -> Iterator[str]:
    """What makes the figures of a job mean less."""
    size = every[0].header.environment["world_size"]
    if missing := set(range(size)).difference(map(_rank, every)):
        yield (
            f"The logs of {len(missing)} of {size} ranks are missing ({_ranges(missing)}): "
            "throughput is that of the others, and the job may lose more."
        )
    if early := {_rank(run): run.batches for run in every if run not in ranks}:
        yield (
            f"Ranks that ended early are left out: {_ranges(early)}, after "
            f"{max(early.values()):,} batches at most."
        )
    batches = [run.batches for run in ranks]
    if min(batches) < max(batches):
        yield (
            f"Ranks have {min(batches):,} to {max(batches):,} batches: those that all have are "
            "compared."
        )
    if not is_same.all():
        yield (
            f"For {(~is_same).sum():,} batches the ranks were in different arms: these are left "
            "out. Pass the same seed, pairs and batches on all ranks, with as many in each epoch."
        )
    if max(took_ns) > FURTHEST_APART * min(took_ns):
        yield (
            "The ranks do not end their steps together: the same batches took "
            f"{duration(min(took_ns))} on one and {duration(max(took_ns))} on another. They may "
            "not train one model, and then these figures mean nothing."
        )


def _named(ranks: Iterable[int]) -> str:
    """These ranks: rank 3, ranks 0-1."""
    numbers = set(ranks)
    return f"rank{'s' * (len(numbers) > 1)} {_ranges(numbers)}"


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers in order, with those that follow each other as a range: 1, 3-5."""
    in_order = enumerate(sorted(numbers))
    ranges = [[n for _, n in each] for _, each in groupby(in_order, lambda at: at[1] - at[0])]
    return ", ".join("-".join(map(str, sorted({each[0], each[-1]}))) for each in ranges)
