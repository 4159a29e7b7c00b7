"""The ranks of one job, told as one job: what its steps take, and who keeps the others waiting.

In synchronous training all ranks leave a step together, by an all-reduce. So they take equally long
for an iteration, and the rank that waits longest for its batch makes the others wait for it, inside
of their own step, where their logs do not show it. With the batches of all ranks aligned by number,
the job waits at each step as long as the rank that waits longest, and its iteration is that of its
ranks: their mean, since they differ by noise alone. That is a run like any other.

What a rank, or several, cost the job is what it would save if these had their batches when the
others have: the longest wait less the longest one without them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, final

import numpy as np

from loadeval.analysis.aligned_ranks import AlignedRanks, JobCaution, as_one_run, keys_of, rank_of
from loadeval.analysis.remark import Remark
from loadeval.analysis.summary import LEAST_WAIT_SHARE, steady
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import SECOND_NS, Run
from loadeval.runlog.remote import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from loadeval.runlog.columns import Column

    Matrix = npt.NDArray[np.int64]
    Sums = npt.NDArray[np.float64]

HALF = 0.5
FEWEST_STEPS = 20
"""With fewer no rank is said to be behind."""
LEAST_UNEVEN = 0.25
"""Of the job's wait: when the typical rank waits for so much less, ranks are not alike."""
MOST_STRAGGLERS = 16
FEWEST_EVENTS = 4
"""What fewer waits than these cost, were they equal, says nothing of who will wait next."""
NODE_ADDS = 0.1
"""By this part of what stragglers cost a node must be more than some of its ranks."""
APART_SHARE = 0.02
"""Of their time: ranks that differ by more do not end their steps together."""
CLOCK_SAMPLES = 1024
"""Steps by which clocks are compared."""
PER_MILLION = 1e6


class Straggling(Enum):
    """Who is behind the waits of a job."""

    NO_WAITS = "no waits"
    TOO_FEW = "too few batches"
    EVEN = "all ranks"
    RANKS = "some ranks"
    NODE = "one node"
    ONE_SAMPLE = "one sample"
    STALLS = "few stalls"
    SPREAD = "changing ranks"


@final
@dataclass(frozen=True, slots=True)
class RankResult:
    """One rank; times are in nanoseconds per batch, over the job's measured batches.

    `wait_ns` is its own wait, `wait_share` that as a share of the job's iteration, and
    `waited_for_ns` how long it waited inside of its step for ranks that waited longer for their
    batches. It was the last in `last_share` of the batches for which some rank waited; without its
    longer waits the job would save `cost_ns`. `skew_ns` is what its wall clock is ahead of the
    others', and `drift_ppm` how much faster it goes; None where its log does not tell. A rank that
    ended early has no figures.
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
    skew_ns: float | None = None
    drift_ppm: float | None = None


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Who is behind a job's waits; shares and times are of its measured batches.

    A batch of the job waits `uneven_ns` longer than on its typical rank, and `cost_ns` would be
    saved if `ranks`, all of a `host` if one node is behind it, waited no longer than the others;
    `cost_share` is that of the time. One of them was last in `last_share` of the batches for which
    some rank waited. `cause_share` of what they cost was for batches of one `worker`, of the rank
    `worker_rank`, or for those with the sample `sample_index` of the dataset; None for neither,
    or where stages were not recorded.
    """

    kind: Straggling
    uneven_ns: float
    cost_ns: float = 0.0
    cost_share: float = 0.0
    last_share: float = 0.0
    ranks: tuple[int, ...] = ()
    host: str | None = None
    worker: int | None = None
    worker_rank: int | None = None
    sample_index: int | None = None
    cause_share: float | None = None


@dataclass(frozen=True, slots=True)
class JobReport:
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
    nodes: int | None
    ranks: tuple[RankResult, ...]
    steps: int
    iteration_ns: float | None
    wait_ns: float | None
    stragglers: Stragglers
    cautions: tuple[Remark, ...]

    @property
    def wait_share(self) -> float | None:
        """The part of the job's time that it waits."""
        if self.wait_ns is None or not self.iteration_ns:
            return None
        return self.wait_ns / self.iteration_ns

    @property
    def skew_ns(self) -> float | None:
        """By how much the wall clocks of its ranks differ; None where that is not known."""
        skews_ns = [one.skew_ns for one in self.ranks if one.skew_ns is not None]
        return max(skews_ns) - min(skews_ns) if skews_ns else None

    @classmethod
    def of(
        cls,
        runs: Iterable[Run],
        full: Callable[[Run], Run] = lambda run: run,
        name: str | None = None,
    ) -> JobReport:
        """Of two ranks or more, as `are_ranks` tells.

        `runs` may lack all but their batches, prefetches, windows, events and ends: `full` gives
        one of them as a whole.
        """
        ranks = AlignedRanks.of(runs)
        waits = _Waits.of(ranks)
        found, behind = waits.stragglers(), waits.most_behind()
        shown = ranks.runs[behind[0]]
        job = as_one_run(ranks, full(shown), name)
        found = _with_cause(found, waits, behind, full)
        results = waits.results()
        return cls(
            job,
            rank_of(shown),
            ranks.world_size,
            len(set(ranks.hosts)) if None not in ranks.hosts else None,
            tuple(sorted([*results, *map(_result_of, ranks.ended_early)], key=_by_rank)),
            len(waits.iteration_ns),
            float(waits.iteration_ns.mean()) if len(waits.iteration_ns) else None,
            float(waits.longest_ns.mean()) if len(waits.iteration_ns) else None,
            found,
            (*ranks.cautions, *waits.cautions()),
        )


def _by_rank(result: RankResult) -> int:
    return result.rank


def _result_of(run: Run) -> RankResult:
    """A rank without figures."""
    host = run.header.environment.get("host")
    path = None if run.path is None else text_of(run.path)
    return RankResult(
        rank_of(run), run.header.name, path, None if host is None else str(host), run.batches
    )


# Who waits


@dataclass(frozen=True, slots=True, eq=False)
class _Waits:
    """The measured batches of the job: who waits how long, `last` by its row.

    `typical_ns` is the wait of the rank in the middle, and `second_ns` the longest but one.
    """

    ranks: AlignedRanks
    rows: npt.NDArray[np.intp]
    wait_ns: Matrix
    iteration_ns: Sums
    longest_ns: Column
    typical_ns: Column
    second_ns: Column
    last: npt.NDArray[np.intp]

    @classmethod
    def of(cls, ranks: AlignedRanks) -> _Waits:
        run = replace(
            ranks.runs[0], steps=ranks.steps, header=replace(ranks.runs[0].header, every=1)
        )
        known = (ranks.step_ns != UNKNOWN).all(axis=0)
        rows = np.flatnonzero(steady(run) & known)
        wait_ns = ranks.wait_ns[:, rows]
        iteration_ns = wait_ns.mean(axis=0) + ranks.step_ns[:, rows].mean(axis=0)
        count = len(wait_ns)
        ordered = np.partition(wait_ns, sorted({(count - 1) // 2, count - 2}), axis=0)
        return cls(
            ranks,
            rows,
            wait_ns,
            iteration_ns,
            wait_ns.max(axis=0),
            ordered[(count - 1) // 2],
            ordered[count - 2],
            wait_ns.argmax(axis=0),
        )

    @property
    def waited(self) -> npt.NDArray[np.bool_]:
        """The batches for which some rank waits long enough to matter."""
        found: npt.NDArray[np.bool_] = self.longest_ns > LEAST_WAIT_SHARE * self.iteration_ns
        return found

    @property
    def excess_ns(self) -> Column:
        """How much longer the last rank waits than the typical one; 0 where it hardly waits."""
        found: Column = np.where(self.waited, self.longest_ns - self.typical_ns, 0)
        return found

    def lasts(self) -> Column:
        """How often each rank is the last."""
        found: Column = np.bincount(self.last[self.waited], minlength=len(self.wait_ns))
        return found

    def most_behind(self) -> list[int]:
        """The rows of the ranks, those first that are last by most."""
        late_ns = np.bincount(self.last, self.excess_ns, len(self.wait_ns))
        order: list[int] = np.argsort(-late_ns, kind="stable").tolist()
        return order

    def without_ns(self, rows: Sequence[int]) -> float:
        """What the job would save in all if the ranks in `rows` waited no longer than others."""
        others = np.setdiff1d(np.arange(len(self.wait_ns)), rows)
        at = np.flatnonzero(np.isin(self.last, rows))  # elsewhere it would save nothing
        without_ns = self.wait_ns[np.ix_(others, at)].max(axis=0)
        return float((self.longest_ns[at] - without_ns).sum())

    def results(self) -> list[RankResult]:
        """A result for each rank."""
        found = [_result_of(run) for run in self.ranks.runs]
        clocks = _clocks(self.ranks) if self.together else [(None, None)] * len(found)
        if len(self.rows):
            count, total_ns = len(self.rows), float(self.iteration_ns.sum())
            own_ns = self.wait_ns.sum(axis=1)
            all_ns = int(self.longest_ns.sum())
            lasts, waited = self.lasts(), max(int(self.waited.sum()), 1)
            saved_ns = np.bincount(
                self.last, self.longest_ns - self.second_ns, minlength=len(self.wait_ns)
            )
            found = [
                replace(
                    one,
                    wait_ns=float(own_ns[row]) / count,
                    wait_share=float(own_ns[row]) / total_ns if total_ns else None,
                    waited_for_ns=float(all_ns - own_ns[row]) / count,
                    last_share=float(lasts[row]) / waited,
                    cost_ns=float(saved_ns[row]) / count,
                )
                for row, one in enumerate(found)
            ]
        return [
            replace(one, skew_ns=skew_ns, drift_ppm=drift_ppm)
            for one, (skew_ns, drift_ppm) in zip(found, clocks, strict=True)
        ]

    def stragglers(self) -> Stragglers:
        """Who is behind the waits."""
        count, total_ns = len(self.rows), float(self.iteration_ns.sum())
        if count < FEWEST_STEPS:
            return Stragglers(Straggling.TOO_FEW, 0.0)
        waits_ns, excess_ns = float(self.longest_ns.sum()), self.excess_ns.astype(np.float64)
        uneven_ns = float(excess_ns.sum())
        if waits_ns <= LEAST_WAIT_SHARE * total_ns:
            return Stragglers(Straggling.NO_WAITS, uneven_ns / count)
        if uneven_ns < max(LEAST_UNEVEN * waits_ns, LEAST_WAIT_SHARE * total_ns):
            return Stragglers(Straggling.EVEN, uneven_ns / count)
        if uneven_ns**2 / float((excess_ns**2).sum()) < FEWEST_EVENTS:
            return Stragglers(Straggling.STALLS, uneven_ns / count)
        kind, rows = self._behind(uneven_ns)
        if kind is Straggling.SPREAD:
            return Stragglers(kind, uneven_ns / count)
        cost_ns = self.without_ns(rows)
        hosts = {self.ranks.hosts[row] for row in rows}
        lasts = int(self.lasts()[rows].sum())
        return Stragglers(
            kind,
            uneven_ns / count,
            cost_ns / count,
            cost_ns / total_ns,
            lasts / max(int(self.waited.sum()), 1),
            tuple(rank_of(self.ranks.runs[row]) for row in rows),
            hosts.pop() if kind is Straggling.NODE or len(hosts) == 1 else None,
        )

    def _behind(self, uneven_ns: float) -> tuple[Straggling, list[int]]:
        """The fewest ranks, or the node, that are behind more of it than by chance."""
        count = len(self.wait_ns)
        order = self.most_behind()
        most = min(max(count // 4, 1), MOST_STRAGGLERS)
        ranks, share = next(
            (
                (order[:size], share)
                for size in range(1, most + 1)
                if (share := self.without_ns(order[:size]) / uneven_ns) >= self._by_chance(size)
            ),
            ([], 0.0),
        )
        nodes: dict[str | None, list[int]] = {}
        for row, host in enumerate(self.ranks.hosts):
            nodes.setdefault(host, []).append(row)
        for host, rows in nodes.items():
            if host is None or not 1 < len(rows) < count:
                continue
            of_node = self.without_ns(rows) / uneven_ns
            whole = of_node >= self._by_chance(len(rows)) and set(ranks) <= set(rows)
            if whole and of_node >= share + NODE_ADDS and self._even_within(rows):
                return Straggling.NODE, rows
        return (Straggling.RANKS if ranks else Straggling.SPREAD), sorted(ranks)

    def _by_chance(self, size: int) -> float:
        """The part of what stragglers cost from which `size` ranks are said to be behind it."""
        return HALF + HALF * size / len(self.wait_ns)

    def _even_within(self, rows: Sequence[int]) -> bool:
        """Whether more than half of the ranks of a node are the last at times."""
        return int((self.lasts()[list(rows)] > 0).sum()) > HALF * len(rows)

    @property
    def spans_ns(self) -> tuple[float, float]:
        """What all batches took on the rank that they took least on, and on the one with most."""
        took_ns = self.wait_ns.sum(axis=1) + self.ranks.step_ns[:, self.rows].sum(axis=1)
        return float(took_ns.min()), float(took_ns.max())

    @property
    def together(self) -> bool:
        """Whether the ranks end their steps together, as far as that can be told."""
        shortest_ns, longest_ns = self.spans_ns
        few = len(self.rows) < FEWEST_STEPS
        return few or longest_ns - shortest_ns <= APART_SHARE * longest_ns

    def cautions(self) -> list[Remark]:
        """That this is no synchronous training, where it is not."""
        if self.together:
            return []
        shortest_ns, longest_ns = self.spans_ns
        values = {"shortest_ns": shortest_ns, "longest_ns": longest_ns}
        return [Remark(JobCaution.NOT_TOGETHER, values)]


def _clocks(ranks: AlignedRanks) -> list[tuple[float | None, float | None]]:
    """How far each rank's wall clock is ahead, and by how many parts in a million it is faster.

    All ranks ask for a batch at the same time, as they leave the step before it together.
    """
    created = [_created_ns(run) for run in ranks.runs]
    at = np.unique(np.linspace(0, ranks.request_ns.shape[1] - 1, CLOCK_SAMPLES).astype(np.intp))
    requests_ns = ranks.request_ns[:, at] if ranks.request_ns.shape[1] else ranks.request_ns
    if None in created or not requests_ns.size or (requests_ns == UNKNOWN).any():
        return [(None, None)] * len(created)
    earliest_ns = min(ns for ns in created if ns is not None)
    since_ns = np.array([(ns or 0) - earliest_ns for ns in created], dtype=np.int64)
    times_ns = (requests_ns + since_ns[:, None]).astype(np.float64)
    middle_ns = np.median(times_ns, axis=0)
    ahead_ns = times_ns - middle_ns
    half = len(middle_ns) // 2
    skews_ns = np.median(ahead_ns, axis=1).tolist()
    if not half:
        return [(skew_ns, None) for skew_ns in skews_ns]
    span_ns = float(np.median(middle_ns[half:]) - np.median(middle_ns[:half]))
    drifts_ns = np.median(ahead_ns[:, half:], axis=1) - np.median(ahead_ns[:, :half], axis=1)
    drifts = [drift / span_ns * PER_MILLION if span_ns else None for drift in drifts_ns.tolist()]
    return list(zip(skews_ns, drifts, strict=True))


def _created_ns(run: Run) -> int | None:
    try:
        return round(datetime.fromisoformat(run.header.created).timestamp() * SECOND_NS)
    except ValueError:
        return None


# What is behind a straggler


def _with_cause(
    found: Stragglers, waits: _Waits, behind: Sequence[int], full: Callable[[Run], Run]
) -> Stragglers:
    """`found` with the worker, or the sample, that most of it is for."""
    if found.kind not in (Straggling.RANKS, Straggling.NODE, Straggling.SPREAD):
        return found
    ranks = set(found.ranks)
    rows = [row for row in behind if not ranks or rank_of(waits.ranks.runs[row]) in ranks]
    late = [
        late
        for row in rows[:MOST_STRAGGLERS]
        if (late := _late_batches(waits, row, full(waits.ranks.runs[row]))) is not None
    ]
    if not late:
        return found
    all_ns = float(waits.excess_ns.sum())
    cost_ns = np.concatenate([one.cost_ns for one in late])
    index = np.concatenate([one.sample_index for one in late])
    known_ns = float(cost_ns.sum()) if found.kind is not Straggling.SPREAD else all_ns
    worst, share, times = _largest(index, cost_ns, known_ns)
    if worst is not None and share >= HALF and times > 1:
        kind = Straggling.ONE_SAMPLE if found.kind is Straggling.SPREAD else found.kind
        return replace(found, kind=kind, sample_index=worst, cause_share=share)
    for one in late:
        workers = len(np.unique(one.all_workers))
        worst, share, times = _largest(one.worker, one.cost_ns, known_ns)
        if worst is not None and workers > 1 and share >= HALF + HALF / workers and times > 1:
            return replace(found, worker=worst, worker_rank=one.rank, cause_share=share)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _LateBatches:
    """The batches for which one rank was the last: what each cost, and what loaded it."""

    rank: int
    cost_ns: Sums
    worker: Column
    sample_index: Column
    all_workers: Column


def _late_batches(waits: _Waits, row: int, run: Run) -> _LateBatches | None:
    """None where its loader's stages were not recorded; batches are then numbered as in the log."""
    if not run.stages or run.header.mode == "alternate":
        return None
    keys = np.concatenate([(one.epoch << 32) | one.batch for one in run.stages])
    worker = np.concatenate([one.worker for one in run.stages])
    index = np.concatenate([one.slowest_index for one in run.stages])
    excess_ns = waits.excess_ns
    late = (waits.last == row) & (excess_ns > 0)
    wanted = keys_of(waits.ranks.steps)[waits.rows[late]]
    order = np.argsort(keys)
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    at = order[at]
    there = keys[at] == wanted
    workers = worker[worker != UNKNOWN]
    return _LateBatches(
        rank_of(run),
        excess_ns[late][there].astype(np.float64),
        worker[at][there],
        index[at][there],
        workers,
    )


def _largest(values: Column, cost_ns: Sums, all_ns: float) -> tuple[int | None, float, int]:
    """Which of `values` most of the cost is for, its share of `all_ns`, and how often it comes."""
    known = values != UNKNOWN
    numbers, which = np.unique(values[known], return_inverse=True)
    if not len(numbers) or not all_ns:
        return None, 0.0, 0
    sums = np.bincount(which, cost_ns[known])
    worst = int(sums.argmax())
    return int(numbers[worst]), float(sums[worst]) / all_ns, int((which == worst).sum())
