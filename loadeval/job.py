"""The ranks of one job, told as one run: what its steps take, and who keeps the others waiting.

In synchronous training all ranks leave a step together, by an all-reduce. So they take equally long
for an iteration, and the rank that waits longest for its batch makes the others wait for it, inside
of their own step, where their logs do not show it. With the batches of all ranks aligned by epoch
and number, the job waits at each step as long as the rank that waits longest, and its iteration is
that of its ranks: their mean, since they differ by noise alone. That is a run like any other.

What a rank, or several, cost the job is what it would save if these had their batches when the
others have: the longest wait less the longest one without them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace as changed

from loadeval.data.columns import UNKNOWN, Column
from loadeval.data.lines import EpochEnd, Event, Prefetch
from loadeval.data.run import Run, keys_of
from loadeval.estimate.steady import steady
from loadeval.words import counted, duration, share

EARLY = 0.5
"""A rank with less than this share of the usual batches would leave little of the others."""
LEAST_WAIT_SHARE = 0.01
"""Waiting for a smaller share of an iteration hardly matters."""
FEWEST_STEPS = 20
"""With fewer no rank is said to be behind."""
LEAST_UNEVEN = 0.25
"""Ranks differ where the typical one waits less than the job by this share of the job's wait."""
MOST_STRAGGLERS = 16
FEWEST_EVENTS = 4
"""What fewer waits than these cost, were they equal, says nothing of who will wait next."""
NODE_ADDS = 0.1
"""A node must cost more than some of its ranks, by this share of what stragglers cost."""
APART_SHARE = 0.02
"""Ranks whose times differ by more than this share do not end their steps together."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank; times are in nanoseconds per batch, over the job's measured batches.

    `wait_ns` is its own wait, `wait_share` that as a share of the job's iteration, and
    `waited_for_ns` how long it waited inside of its step for ranks that waited longer for their
    batches. It was the last in `last_share` of the batches for which some rank waited; without its
    longer waits the job would save `cost_ns`. A rank that ended early has no figures.
    """

    rank: int
    name: str
    path: str | None
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

    Where some are, `cost_ns` of a batch would be saved if `ranks`, all of them on `host`, waited no
    longer than the others; `cost_share` is that of the time.
    """

    says: str
    ranks: tuple[int, ...] = ()
    host: str | None = None
    cost_ns: float = 0.0
    cost_share: float = 0.0
    last_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """The ranks of one job.

    `run` is the job as a run: of each batch that all ranks have the longest wait, the ranks' mean
    iteration, and the samples of all. What else is known, its loader's stages, its readings, is
    that of the rank `shown`, which was last most often. `ranks` are those with logs, in order, of
    `world_size`. `steps` batches were measured on all; the job waits `wait_ns` for one, of
    `iteration_ns`, None where there are none.
    """

    run: Run
    shown: int
    world_size: int
    ranks: tuple[Rank, ...]
    steps: int
    iteration_ns: float | None
    wait_ns: float | None
    stragglers: Stragglers
    cautions: tuple[str, ...]

    @property
    def headline(self) -> str:
        """How many ranks there are, and how long the job waited."""
        ranks = counted(len(self.ranks), "rank")
        if self.wait_ns is None or not self.iteration_ns:
            return f"{ranks} of one job: no batch was measured on all of them"
        waited = share(self.wait_ns / self.iteration_ns)
        return f"{ranks} of one job waited for batches {waited} of the time"


def are_ranks(runs: Sequence[Run]) -> bool:
    """Whether each is of another rank of one job: of a training with the same number of ranks."""
    names = ("rank", "world_size")
    places = [tuple(run.header.environment.get(name) for name in names) for run in runs]
    ranks, sizes = {rank for rank, _ in places}, {size for _, size in places}
    are_known = all(type(value) is int for place in places for value in place)
    alike = len(sizes) == 1 and len({run.header.mode for run in runs}) == 1
    return are_known and len(runs) == len(ranks) > 1 and alike


def rank_of(run: Run) -> int:
    """The rank that `run` is of."""
    return int(run.header.environment["rank"])


def job_of(
    runs: Iterable[Run], full: Callable[[Run], Run] = lambda run: run, name: str | None = None
) -> Job:
    """Two ranks or more, as `are_ranks` tells, as one job.

    `runs` may lack all but their batches, prefetches, windows, events and ends: `full` gives one of
    them as a whole. A rank with fewer than half of the usual batches ended early, and is left out.
    """
    every = sorted(runs, key=rank_of)
    fewest = EARLY * float(np.median([run.batches for run in every]))
    kept = [run for run in every if run.batches >= fewest]
    early = [run for run in every if run.batches < fewest]
    size = int(every[0].header.environment["world_size"])
    cautions = []
    if missing := sorted(set(range(size)) - {rank_of(run) for run in every}):
        cautions.append(
            f"The logs of {len(missing)} of {size} ranks are missing ({_listed(missing)}): "
            "throughput is that of the others, and the job may lose more."
        )
    if early:
        most = max(run.batches for run in early)
        cautions.append(
            f"Ranks that ended early are left out: {_listed(map(rank_of, early))}, after "
            f"{most:,} batches at most."
        )
    waits = _Waits(kept, cautions)
    shown = full(kept[waits.behind[0]])
    ranks = [*waits.ranks(), *map(_rank, early)]
    steps = len(waits.iteration_ns)
    return Job(
        run=waits.as_one_run(shown, name),
        shown=rank_of(shown),
        world_size=size,
        ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
        steps=steps,
        iteration_ns=float(waits.iteration_ns.mean()) if steps else None,
        wait_ns=float(waits.longest_ns.mean()) if steps else None,
        stragglers=waits.stragglers(),
        cautions=tuple(cautions),
    )


def _host(run: Run) -> str | None:
    host = run.header.environment.get("host")
    return None if host is None else str(host)


def _rank(run: Run, *figures: float) -> Rank:
    path = None if run.path is None else str(run.path)
    return Rank(rank_of(run), run.header.name, path, _host(run), run.batches, *figures)


def _listed(ranks: Iterable[int]) -> str:
    """The ranks as text, such as "1, 3-5, 9"."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    return ", ".join("-".join(map(str, span)) for span in spans)


def _named(ranks: Iterable[int]) -> str:
    numbers = sorted(set(ranks))
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {_listed(numbers)}"


class _Waits:
    """The batches that all ranks have in the same arm, and of those that count who waits how long.

    `steps` has these batches, with the samples and bytes of all ranks, and `wait_ns` and `step_ns`
    have a row for each rank. Of those that count `counted_ns` has the waits, and `last` the row of
    the rank that waits longest; `excess_ns` is how much longer that waits than the rank in
    the middle, where it waits long enough to matter. `behind` are the rows of the ranks, those
    first that are last by most. What is wrong with the logs is added to `cautions`.
    """

    def __init__(self, runs: Sequence[Run], cautions: list[str]) -> None:
        self.runs = runs
        keys = [keys_of(run.steps) for run in runs]
        common = keys[0]
        for other in keys[1:]:
            if not np.array_equal(common, other):
                common = np.intersect1d(common, other, assume_unique=True)
        counts = sorted(map(len, keys))
        if counts[-1] > len(common):
            cautions.append(
                f"Ranks have {counts[0]:,} to {counts[-1]:,} batches: the {len(common):,} that all "
                "of them have are compared."
            )
        rows = [np.flatnonzero(np.isin(own, common, assume_unique=True)) for own in keys]

        def of_all(name: str) -> npt.NDArray[np.int64]:
            return np.stack([run.steps[name][at] for run, at in zip(runs, rows, strict=True)])

        same = np.logical_and.reduce(
            [(each == each[0]).all(axis=0) for each in map(of_all, ("arm", "pair"))]
        )
        if not same.all():
            cautions.append(
                f"For {int((~same).sum()):,} batches the ranks were in different arms: these are "
                "left out. Pass the same seed, pairs and batches on all ranks."
            )
            rows = [at[same] for at in rows]
        self.wait_ns, self.step_ns = of_all("wait_ns"), of_all("step_ns")
        is_known = (self.step_ns != UNKNOWN).all(axis=0)
        iteration_ns = self.wait_ns.mean(axis=0) + self.step_ns.mean(axis=0)
        totals = {}
        for name in ("samples", "nbytes"):
            column = of_all(name)
            totals[name] = np.where((column != UNKNOWN).all(axis=0), column.sum(axis=0), UNKNOWN)
        self.steps = runs[0].steps.take(rows[0]).replace(**totals)

        counts = steady(replace(runs[0], steps=self.steps)) & is_known
        self.counted_ns, step_ns = self.wait_ns[:, counts], self.step_ns[:, counts]
        self.iteration_ns = iteration_ns[counts]
        count = len(runs)
        ordered = np.partition(self.counted_ns, sorted({(count - 1) // 2, count - 2}), axis=0)
        self.longest_ns: Column = self.counted_ns.max(axis=0)
        self.second_ns: Column = ordered[count - 2]
        self.last = self.counted_ns.argmax(axis=0)
        self.is_waited = self.longest_ns > LEAST_WAIT_SHARE * self.iteration_ns
        longer_ns = self.longest_ns - ordered[(count - 1) // 2]
        self.excess_ns: Column = np.where(self.is_waited, longer_ns, 0)
        self.lasts: Column = np.bincount(self.last[self.is_waited], minlength=count)
        late_ns = np.bincount(self.last, self.excess_ns, count)
        self.behind: list[int] = np.argsort(-late_ns, kind="stable").tolist()

        took_ns = (self.counted_ns + step_ns).sum(axis=1)
        shortest_ns, longest_ns = float(took_ns.min()), float(took_ns.max())
        is_apart = longest_ns - shortest_ns > APART_SHARE * longest_ns
        if len(self.iteration_ns) >= FEWEST_STEPS and is_apart:
            cautions.append(
                "The ranks do not end their steps together: the same batches took "
                f"{duration(shortest_ns)} on one and {duration(longest_ns)} on another. They may "
                "not train one model, and then these figures mean nothing."
            )

    def without_ns(self, rows: Sequence[int]) -> float:
        """What the job would save in all if the ranks in `rows` waited no longer than others."""
        others = np.setdiff1d(np.arange(len(self.runs)), rows)
        at = np.flatnonzero(np.isin(self.last, rows))  # elsewhere it would save nothing
        without_ns = self.counted_ns[np.ix_(others, at)].max(axis=0)
        return float((self.longest_ns[at] - without_ns).sum())

    def ranks(self) -> list[Rank]:
        """A rank for each run."""
        if not len(self.iteration_ns):
            return list(map(_rank, self.runs))
        own_ns, count = self.counted_ns.mean(axis=1), len(self.iteration_ns)
        saved_ns = np.bincount(self.last, self.longest_ns - self.second_ns, len(self.runs))
        figures = (
            own_ns,
            own_ns / max(float(self.iteration_ns.mean()), 1.0),
            self.longest_ns.mean() - own_ns,
            self.lasts / max(int(self.is_waited.sum()), 1),
            saved_ns / count,
        )
        rows = np.stack(figures, axis=1).tolist()
        return [_rank(run, *row) for run, row in zip(self.runs, rows, strict=True)]

    def stragglers(self) -> Stragglers:  # noqa: C901 - the question in its order
        """Who is behind the waits."""
        count, total_ns = len(self.iteration_ns), float(self.iteration_ns.sum())
        if count < FEWEST_STEPS:
            few = f"not known; fewer than {FEWEST_STEPS} batches were measured on all ranks"
            return Stragglers(few)
        waits_ns, excess_ns = float(self.longest_ns.sum()), self.excess_ns.astype(np.float64)
        uneven_ns = float(excess_ns.sum())
        if waits_ns <= LEAST_WAIT_SHARE * total_ns:
            return Stragglers("none; no rank waits for its batches")
        if uneven_ns < max(LEAST_UNEVEN * waits_ns, LEAST_WAIT_SHARE * total_ns):
            return Stragglers("none; all ranks wait about equally long")
        if uneven_ns**2 / float((excess_ns**2).sum()) < FEWEST_EVENTS:
            few = "none; a few long waits make up most of it, too few to show a pattern"
            return Stragglers(few)

        def by_chance(size: int) -> float:
            """The part of what stragglers cost from which so many ranks are said to be behind."""
            return (1 + size / len(self.runs)) / 2

        # The fewest ranks, or the node, that are behind more of it than by chance.
        chosen, part, node = list[int](), 0.0, ""
        for size in range(1, min(max(len(self.behind) // 4, 1), MOST_STRAGGLERS) + 1):
            behind = self.without_ns(self.behind[:size]) / uneven_ns
            if behind >= by_chance(size):
                chosen, part = sorted(self.behind[:size]), behind + NODE_ADDS
                break
        nodes = defaultdict[str | None, list[int]](list)
        for row, run in enumerate(self.runs):
            nodes[_host(run)].append(row)
        for host, rows in nodes.items():
            if not host or not 1 < len(rows) < len(self.runs) or not set(chosen) <= set(rows):
                continue
            are_even = int((self.lasts[rows] > 0).sum()) > len(rows) / 2
            enough = max(by_chance(len(rows)), part)
            if are_even and self.without_ns(rows) / uneven_ns >= enough:
                node, chosen = host, rows
                break
        if not chosen:
            return Stragglers(
                f"none; the last rank changes, and waits {duration(uneven_ns / count)} per batch "
                "longer than the typical rank"
            )
        cost_ns = self.without_ns(chosen)
        last_share = int(self.lasts[chosen].sum()) / max(int(self.is_waited.sum()), 1)
        ranks = tuple(rank_of(self.runs[row]) for row in chosen)
        hosts = {_host(self.runs[row]) for row in chosen}
        common = hosts.pop() if len(hosts) == 1 else None
        one_of = "one of them " if not node and len(ranks) > 1 else ""
        who = f"node {node} ({_named(ranks)})" if node else _named(ranks)
        if common is not None and not node:
            who += f" on {common}"
        says = (
            f"{who}, {one_of}last in {share(last_share)} of the "
            f"batches that some rank waits for; that costs the job {share(cost_ns / total_ns)} of "
            f"its time ({duration(cost_ns / count)} per batch)"
        )
        return Stragglers(says, ranks, common, cost_ns / count, cost_ns / total_ns, last_share)

    def as_one_run(self, shown: Run, name: str | None) -> Run:
        """The job as a run, on the clock of the rank `shown`, which is first of `behind`."""
        wait_ns = self.wait_ns.max(axis=0)
        iteration_ns = self.wait_ns.mean(axis=0) + self.step_ns.mean(axis=0)
        step_ns = np.maximum(np.rint(iteration_ns).astype(np.int64) - wait_ns, 0)
        is_known = (self.step_ns != UNKNOWN).all(axis=0)
        environments = [run.header.environment for run in self.runs]
        shared = {
            key: value
            for key, value in environments[0].items()
            if key != "rank" and all(other.get(key) == value for other in environments)
        }
        at = np.searchsorted(keys_of(shown.steps), keys_of(self.steps))
        notes = defaultdict[str, list[int]](list)
        for run in self.runs:
            for note in run.notes:
                notes[note].append(rank_of(run))
        name = name or f"{len(self.runs)} ranks"
        return replace(
            shown,
            header=changed(shown.header, name=name, environment=shared),
            steps=self.steps.replace(
                request_ns=shown.steps.request_ns[at],
                wait_ns=wait_ns,
                step_ns=np.where(is_known, step_ns, UNKNOWN),
                gpu_idle_ns=shown.steps.gpu_idle_ns[at],
            ),
            ends=tuple(_ends(self.runs, shown)),
            prefetches=tuple(_prefetches(self.runs, shown)),
            events=tuple(_events(self.runs)),
            notes=tuple(f"{_named(ranks)}: {note}" for note, ranks in notes.items()),
            closed=all(run.closed for run in self.runs),
            path=None if shown.path is None else shown.path.parent,
        )


def _ends(runs: Sequence[Run], shown: Run) -> Iterator[EpochEnd]:
    """The ends of the rank shown; an epoch takes as long to end as on the slowest rank."""
    waits_ns = defaultdict[int, int](int)
    for run in runs:
        for end in run.ends:
            waits_ns[end.epoch] = max(end.wait_ns or 0, waits_ns[end.epoch])
    for end in shown.ends:
        yield end if end.wait_ns is None else changed(end, wait_ns=waits_ns[end.epoch])


def _prefetches(runs: Sequence[Run], shown: Run) -> Iterator[Prefetch]:
    """The prefetches that all ranks made: the job has a batch when the slowest rank has it."""

    def place(prefetch: Prefetch) -> tuple[int, ...]:
        return prefetch.pair, prefetch.epoch, prefetch.batches, prefetch.timed

    for own, *every in zip(shown.prefetches, *(run.prefetches for run in runs), strict=False):
        if any(place(each) != place(own) for each in every):
            return
        samples = [each.samples for each in every if each.samples is not None]
        yield changed(
            own,
            elapsed_ns=max(each.elapsed_ns for each in every),
            samples=sum(samples) if len(samples) == len(every) else None,
            waits_ns=list(map(max, zip(*(each.waits_ns for each in every), strict=False))),
            end_ns=max((each.end_ns for each in every if each.end_ns is not None), default=None),
        )


def _events(runs: Sequence[Run]) -> Iterator[Event]:
    """What happened on any rank, once, at the time of the first of them."""
    groups = defaultdict[tuple[str, str], list[tuple[int, Event]]](list)
    for run in runs:
        for event in run.events:
            groups[event.kind, event.message].append((rank_of(run), event))
    for (_, message), group in groups.items():
        first = min((event for _, event in group), key=lambda event: event.time_ns)
        yield changed(first, message=f"{_named(rank for rank, _ in group)}: {message}")
