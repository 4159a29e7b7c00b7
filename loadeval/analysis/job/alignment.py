"""The batches that all ranks of a job have, aligned by number; and the job as one run.

Logs of ranks know nothing of each other. A batch is the same one on all ranks by its epoch and its
number in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace as changed

from loadeval.analysis.remark import Remark
from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import Run, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from loadeval.analysis.remark import Value
    from loadeval.data.lines import EpochEnd, Event, Prefetch, Window

    Matrix = npt.NDArray[np.int64]

PLACE = ("rank", "world_size")
EARLY = 0.5
"""A rank with less than this share of the usual batches would leave little of the others."""


class JobCaution(Enum):
    """What makes the figures of a job mean less than they seem to."""

    MISSING_RANKS = "missing ranks"
    ENDED_EARLY = "ranks that ended early"
    UNEQUAL_LENGTHS = "unequal lengths"
    DIFFERENT_ARMS = "different arms"
    NOT_TOGETHER = "steps do not end together"


def are_ranks(runs: Sequence[Run]) -> bool:
    """Whether each is of another rank of one job: of a training with the same number of ranks."""
    places = [tuple(run.header.environment.get(name) for name in PLACE) for run in runs]
    ranks, sizes = {rank for rank, _ in places}, {size for _, size in places}
    are_known = all(type(value) is int for place in places for value in place)
    alike = len(sizes) == 1 and len({run.header.mode for run in runs}) == 1
    return are_known and len(runs) == len(ranks) > 1 and alike


def rank_of(run: Run) -> int:
    """The rank that `run` is of."""
    return int(run.header.environment["rank"])


@dataclass(frozen=True, slots=True, eq=False)
class AlignedRanks:
    """The batches that all ranks have: in each matrix a row for each rank, a column for each batch.

    `runs` are in the order of their ranks, without those that `ended_early`. `steps` has the
    batches, with the samples and bytes of all ranks together.
    """

    runs: tuple[Run, ...]
    ended_early: tuple[Run, ...]
    steps: Columns
    request_ns: Matrix
    wait_ns: Matrix
    step_ns: Matrix
    world_size: int
    cautions: tuple[Remark, ...]

    @classmethod
    def of(cls, runs: Iterable[Run]) -> AlignedRanks:
        """A rank with fewer than half of the usual batches ended early, and is left out."""
        every = sorted(runs, key=rank_of)
        lengths = np.array([len(run.steps) for run in every])
        fewest = EARLY * float(np.median(lengths))
        kept = tuple(run for run in every if len(run.steps) >= fewest)
        left_out = tuple(run for run in every if len(run.steps) < fewest)
        rows, cautions = _common_rows(kept)
        size = int(every[0].header.environment["world_size"])
        request_ns, wait_ns, step_ns = (
            np.stack([getattr(run.steps, name)[at] for run, at in zip(kept, rows, strict=True)])
            for name in ("request_ns", "wait_ns", "step_ns")
        )
        return cls(
            runs=kept,
            ended_early=left_out,
            steps=_together(kept, rows),
            request_ns=request_ns,
            wait_ns=wait_ns,
            step_ns=step_ns,
            world_size=size,
            cautions=(*_missing(every, size), *_ended_early(left_out), *cautions),
        )

    @property
    def hosts(self) -> list[str | None]:
        """The host of each rank."""
        hosts = (run.header.environment.get("host") for run in self.runs)
        return [None if host is None else str(host) for host in hosts]


def _common_rows(runs: Sequence[Run]) -> tuple[list[npt.NDArray[np.intp]], list[Remark]]:
    """The rows in each rank of batches that all have in the same arm; and what differs."""
    keys = [keys_of(run.steps) for run in runs]
    common = keys[0]
    for other in keys[1:]:
        if not np.array_equal(common, other):
            common = np.intersect1d(common, other, assume_unique=True)
    rows = [np.flatnonzero(np.isin(own, common, assume_unique=True)) for own in keys]
    counts = sorted(map(len, keys))
    cautions = []
    if counts[-1] > len(common):
        values = {"fewest": counts[0], "most": counts[-1], "common": len(common)}
        cautions.append(Remark(JobCaution.UNEQUAL_LENGTHS, values))
    same = np.ones(len(common), dtype=np.bool_)
    for run, at in zip(runs, rows, strict=True):
        for name in ("arm", "pair"):
            same &= getattr(run.steps, name)[at] == getattr(runs[0].steps, name)[rows[0]]
    if not same.all():
        cautions.append(Remark(JobCaution.DIFFERENT_ARMS, {"batches": int((~same).sum())}))
    return [at[same] for at in rows], cautions


def _together(runs: Sequence[Run], rows: Sequence[npt.NDArray[np.intp]]) -> Columns:
    """The batches of the first rank, with the samples and bytes of all."""
    first = runs[0].steps
    totals = {}
    for name in ("samples", "nbytes"):
        total, known = np.zeros(len(rows[0]), np.int64), np.ones(len(rows[0]), np.bool_)
        for run, at in zip(runs, rows, strict=True):
            column = getattr(run.steps, name)[at]
            total += column
            known &= column != UNKNOWN
        totals[name] = np.where(known, total, UNKNOWN)
    return first.take(rows[0]).replace(**totals)


def _missing(runs: Sequence[Run], size: int) -> list[Remark]:
    missing = sorted(set(range(size)) - set(map(rank_of, runs)))
    if not missing:
        return []
    values: dict[str, Value] = {"count": len(missing), "size": size, "ranks": _listed(missing)}
    return [Remark(JobCaution.MISSING_RANKS, values)]


def _ended_early(runs: Sequence[Run]) -> list[Remark]:
    if not runs:
        return []
    most = max(run.batches for run in runs)
    values: dict[str, Value] = {
        "count": len(runs),
        "ranks": _listed(map(rank_of, runs)),
        "most": most,
    }
    return [Remark(JobCaution.ENDED_EARLY, values)]


def _listed(ranks: Iterable[int]) -> str:
    """The ranks as text, such as "1, 3-5, 9"."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    return ", ".join("-".join(map(str, span)) for span in spans)


# The job as a run


def as_one_run(ranks: AlignedRanks, shown: Run, name: str | None) -> Run:
    """The job as a run, on the clock of the rank `shown`."""
    row = next(row for row, run in enumerate(ranks.runs) if rank_of(run) == rank_of(shown))
    wait_ns = ranks.wait_ns.max(axis=0)
    known = (ranks.step_ns != UNKNOWN).all(axis=0)
    iteration_ns = ranks.wait_ns.mean(axis=0) + ranks.step_ns.mean(axis=0)
    step_ns = np.maximum(np.rint(iteration_ns).astype(np.int64) - wait_ns, 0)
    environments = [run.header.environment for run in ranks.runs]
    first = environments[0]
    shared = {
        key: value
        for key, value in first.items()
        if key != "rank" and all(other.get(key) == value for other in environments)
    }
    header = changed(shown.header, name=name or f"{len(ranks.runs)} ranks", environment=shared)
    at = np.searchsorted(keys_of(shown.steps), keys_of(ranks.steps))
    return replace(
        shown,
        header=header,
        steps=ranks.steps.replace(
            request_ns=ranks.request_ns[row],
            wait_ns=wait_ns,
            step_ns=np.where(known, step_ns, UNKNOWN),
            gpu_idle_ns=shown.steps.gpu_idle_ns[at],
        ),
        ends=_ends(ranks.runs, shown),
        prefetches=_prefetches(ranks.runs, shown),
        windows=_windows(ranks.runs, shown),
        events=_events(ranks.runs),
        notes=_by_ranks((rank_of(run), note) for run in ranks.runs for note in run.notes),
        closed=all(run.closed for run in ranks.runs),
        path=None if shown.path is None else shown.path.parent,
    )


def _ends(runs: Sequence[Run], shown: Run) -> tuple[EpochEnd, ...]:
    """The ends of the rank shown; an epoch takes as long to end as on the slowest rank."""
    waits_ns: dict[int, int] = {}
    for run in runs:
        for end in run.ends:
            if end.wait_ns is not None:
                waits_ns[end.epoch] = max(end.wait_ns, waits_ns.get(end.epoch, 0))
    return tuple(
        end if end.wait_ns is None else changed(end, wait_ns=waits_ns[end.epoch])
        for end in shown.ends
    )


def _prefetches(runs: Sequence[Run], shown: Run) -> tuple[Prefetch, ...]:
    """The prefetches that all ranks made: the job has a batch when the slowest rank has it."""

    def place(prefetch: Prefetch) -> tuple[int, int, int, int]:
        return prefetch.pair, prefetch.epoch, prefetch.batches, prefetch.timed

    prefetches = []
    for own, *all_of_them in zip(shown.prefetches, *(run.prefetches for run in runs), strict=False):
        if any(place(prefetch) != place(own) for prefetch in all_of_them):
            break
        samples = [prefetch.samples for prefetch in all_of_them if prefetch.samples is not None]
        ends_ns = [prefetch.end_ns for prefetch in all_of_them if prefetch.end_ns is not None]
        waits_ns = [prefetch.waits_ns for prefetch in all_of_them]
        prefetches.append(
            changed(
                own,
                elapsed_ns=max(prefetch.elapsed_ns for prefetch in all_of_them),
                samples=sum(samples) if len(samples) == len(all_of_them) else None,
                waits_ns=list(map(max, zip(*waits_ns, strict=False))),
                end_ns=max(ends_ns, default=None),
            )
        )
    return tuple(prefetches)


def _windows(runs: Sequence[Run], shown: Run) -> tuple[Window, ...]:
    """The windows of the rank shown, with the CPU time of workers on the busiest rank."""
    cpu_ns: dict[tuple[int, int, str], list[int | None]] = {}
    for run in runs:
        for window in run.windows:
            cpu_ns.setdefault((window.pair, window.epoch, window.arm), []).append(
                window.workers_cpu_ns
            )
    windows = []
    for window in shown.windows:
        all_ns = cpu_ns[window.pair, window.epoch, window.arm]
        known_ns = [ns for ns in all_ns if ns is not None]
        busiest_ns = max(known_ns) if len(known_ns) == len(all_ns) else None
        windows.append(changed(window, workers_cpu_ns=busiest_ns))
    return tuple(windows)


def _events(runs: Sequence[Run]) -> tuple[Event, ...]:
    """What happened on any rank, once, at the time of the first of them."""
    groups: dict[tuple[str, str], list[tuple[int, Event]]] = {}
    for run in runs:
        for event in run.events:
            groups.setdefault((event.kind, event.message), []).append((rank_of(run), event))
    return tuple(
        changed(
            min((event for _, event in group), key=lambda event: event.time_ns),
            message=f"{_named(rank for rank, _ in group)}: {message}",
        )
        for (_, message), group in groups.items()
    )


def _by_ranks(notes: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    """Each of the notes once, behind the ranks that it is of."""
    groups: dict[str, list[int]] = {}
    for rank, note in notes:
        groups.setdefault(note, []).append(rank)
    return tuple(f"{_named(ranks)}: {note}" for note, ranks in groups.items())


def _named(ranks: Iterable[int]) -> str:
    numbers = sorted(set(ranks))
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {_listed(numbers)}"
