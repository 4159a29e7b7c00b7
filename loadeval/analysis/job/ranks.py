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
from enum import Enum
from typing import TYPE_CHECKING, final

import numpy as np

from loadeval.analysis.estimate.steady import steady
from loadeval.analysis.estimate.summary import LEAST_WAIT_SHARE
from loadeval.analysis.job.alignment import AlignedRanks, JobCaution, as_one_run, rank_of
from loadeval.analysis.job.clocks import clocks_of
from loadeval.analysis.remark import Remark
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import keys_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from loadeval.data.columns import Column
    from loadeval.data.run import Run

    Matrix = npt.NDArray[np.int64]
    Sums = npt.NDArray[np.float64]

HALF = 0.5
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
        """How much the wall clocks of its ranks differ; None where that is not known."""
        skews_ns = [rank.skew_ns for rank in self.ranks if rank.skew_ns is not None]
        return max(skews_ns) - min(skews_ns) if skews_ns else None

    @classmethod
    def of(
        cls,
        runs: Iterable[Run],
        full: Callable[[Run], Run] = lambda run: run,
        name: str | None = None,
    ) -> JobReport:
        """Report on two ranks or more, as `are_ranks` tells.

        `runs` may lack all but their batches, prefetches, windows, events and ends: `full` gives
        one of them as a whole.
        """
        ranks = AlignedRanks.of(runs)
        waits = _Waits.of(ranks)
        behind = waits.most_behind()
        shown = ranks.runs[behind[0]]
        results = [*waits.results(), *map(_result_of, ranks.ended_early)]
        steps = len(waits.rows)
        return cls(
            run=as_one_run(ranks, full(shown), name),
            shown=rank_of(shown),
            world_size=ranks.world_size,
            nodes=None if None in ranks.hosts else len(set(ranks.hosts)),
            ranks=tuple(sorted(results, key=lambda result: result.rank)),
            steps=steps,
            iteration_ns=float(waits.iteration_ns.mean()) if steps else None,
            wait_ns=float(waits.longest_ns.mean()) if steps else None,
            stragglers=_with_cause(waits.stragglers(), waits, behind, full),
            cautions=(*ranks.cautions, *waits.cautions()),
        )


def _result_of(run: Run) -> RankResult:
    """A rank without figures."""
    host = run.header.environment.get("host")
    path = None if run.path is None else str(run.path)
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
        run = replace(ranks.runs[0], steps=ranks.steps)
        known = (ranks.step_ns != UNKNOWN).all(axis=0)
        rows = np.flatnonzero(steady(run) & known)
        wait_ns = ranks.wait_ns[:, rows]
        count = len(wait_ns)
        ordered = np.partition(wait_ns, sorted({(count - 1) // 2, count - 2}), axis=0)
        return cls(
            ranks=ranks,
            rows=rows,
            wait_ns=wait_ns,
            iteration_ns=wait_ns.mean(axis=0) + ranks.step_ns[:, rows].mean(axis=0),
            longest_ns=wait_ns.max(axis=0),
            typical_ns=ordered[(count - 1) // 2],
            second_ns=ordered[count - 2],
            last=wait_ns.argmax(axis=0),
        )

    @property
    def waited(self) -> npt.NDArray[np.bool_]:
        """The batches for which some rank waits long enough to matter."""
        waited: npt.NDArray[np.bool_] = self.longest_ns > LEAST_WAIT_SHARE * self.iteration_ns
        return waited

    @property
    def excess_ns(self) -> Column:
        """How much longer the last rank waits than the typical one; 0 where it hardly waits."""
        excess_ns: Column = np.where(self.waited, self.longest_ns - self.typical_ns, 0)
        return excess_ns

    def lasts(self) -> Column:
        """How often each rank is the last."""
        lasts: Column = np.bincount(self.last[self.waited], minlength=len(self.wait_ns))
        return lasts

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
        results = [_result_of(run) for run in self.ranks.runs]
        if self.together:
            results = [
                replace(result, skew_ns=skew_ns, drift_ppm=drift_ppm)
                for result, (skew_ns, drift_ppm) in zip(results, clocks_of(self.ranks), strict=True)
            ]
        if not len(self.rows):
            return results
        count, total_ns = len(self.rows), float(self.iteration_ns.sum())
        own_ns = self.wait_ns.sum(axis=1).tolist()
        all_ns = int(self.longest_ns.sum())
        lasts, waited = self.lasts().tolist(), max(int(self.waited.sum()), 1)
        saves_ns = self.longest_ns - self.second_ns
        saved_ns = np.bincount(self.last, saves_ns, minlength=len(results)).tolist()
        return [
            replace(
                result,
                wait_ns=own_ns[row] / count,
                wait_share=own_ns[row] / total_ns if total_ns else None,
                waited_for_ns=(all_ns - own_ns[row]) / count,
                last_share=lasts[row] / waited,
                cost_ns=saved_ns[row] / count,
            )
            for row, result in enumerate(results)
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
            cost_ns=cost_ns / count,
            cost_share=cost_ns / total_ns,
            last_share=lasts / max(int(self.waited.sum()), 1),
            ranks=tuple(rank_of(self.ranks.runs[row]) for row in rows),
            host=hosts.pop() if len(hosts) == 1 else None,
        )

    def _behind(self, uneven_ns: float) -> tuple[Straggling, list[int]]:
        """The fewest ranks, or the node, that are behind more of it than by chance."""
        order, ranks, share = self.most_behind(), [], 0.0
        most = min(max(len(order) // 4, 1), MOST_STRAGGLERS)
        for size in range(1, most + 1):
            of_ranks = self.without_ns(order[:size]) / uneven_ns
            if of_ranks >= self._by_chance(size):
                ranks, share = order[:size], of_ranks
                break
        for rows in self._nodes():
            of_node = self.without_ns(rows) / uneven_ns
            enough = max(self._by_chance(len(rows)), share + NODE_ADDS)
            if of_node >= enough and set(ranks) <= set(rows) and self._even_within(rows):
                return Straggling.NODE, rows
        return (Straggling.RANKS if ranks else Straggling.SPREAD), sorted(ranks)

    def _nodes(self) -> list[list[int]]:
        """The rows of each node with several ranks, but not all of them."""
        nodes: dict[str, list[int]] = {}
        for row, host in enumerate(self.ranks.hosts):
            if host is not None:
                nodes.setdefault(host, []).append(row)
        return [rows for rows in nodes.values() if 1 < len(rows) < len(self.wait_ns)]

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
        """A remark if this is no synchronous training."""
        if self.together:
            return []
        shortest_ns, longest_ns = self.spans_ns
        values = {"shortest_ns": shortest_ns, "longest_ns": longest_ns}
        return [Remark(JobCaution.NOT_TOGETHER, values)]


# What is behind a straggler


def _with_cause(
    stragglers: Stragglers, waits: _Waits, behind: Sequence[int], full: Callable[[Run], Run]
) -> Stragglers:
    """`stragglers` with the worker, or the sample, that most of their cost is for."""
    if stragglers.kind not in (Straggling.RANKS, Straggling.NODE, Straggling.SPREAD):
        return stragglers
    ranks = set(stragglers.ranks)
    rows = [row for row in behind if not ranks or rank_of(waits.ranks.runs[row]) in ranks]
    late = [
        late
        for row in rows[:MOST_STRAGGLERS]
        if (late := _late_batches(waits, row, full(waits.ranks.runs[row]))) is not None
    ]
    if not late:
        return stragglers
    all_ns = float(waits.excess_ns.sum())
    cost_ns = np.concatenate([batches.cost_ns for batches in late])
    index = np.concatenate([batches.sample_index for batches in late])
    known_ns = float(cost_ns.sum()) if stragglers.kind is not Straggling.SPREAD else all_ns
    worst, share, times = _largest(index, cost_ns, known_ns)
    if worst is not None and share >= HALF and times > 1:
        kind = Straggling.ONE_SAMPLE if stragglers.kind is Straggling.SPREAD else stragglers.kind
        return replace(stragglers, kind=kind, sample_index=worst, cause_share=share)
    for batches in late:
        workers = len(np.unique(batches.all_workers))
        worst, share, times = _largest(batches.worker, batches.cost_ns, known_ns)
        if worst is not None and workers > 1 and share >= HALF + HALF / workers and times > 1:
            return replace(stragglers, worker=worst, worker_rank=batches.rank, cause_share=share)
    return stragglers


@dataclass(frozen=True, slots=True, eq=False)
class _LateBatches:
    """The batches for which one rank was the last: what each cost, and what loaded it."""

    rank: int
    cost_ns: Sums
    worker: Column
    sample_index: Column
    all_workers: Column


def _late_batches(waits: _Waits, row: int, run: Run) -> _LateBatches | None:
    """The late batches of a rank; None where its loader's stages were not recorded.

    If they were, batches are numbered as in the log.
    """
    if not run.stages or run.header.mode == "alternate":
        return None
    keys = keys_of(run.stages)
    worker, index = run.stages.worker, run.stages.slowest_index
    excess_ns = waits.excess_ns
    late = (waits.last == row) & (excess_ns > 0)
    wanted = keys_of(waits.ranks.steps)[waits.rows[late]]
    order = np.argsort(keys)
    at = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
    there = keys[at] == wanted
    return _LateBatches(
        rank=rank_of(run),
        cost_ns=excess_ns[late][there].astype(np.float64),
        worker=worker[at][there],
        sample_index=index[at][there],
        all_workers=worker[worker != UNKNOWN],
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
