"""Why training waits: loaders that are too slow, too shallow, or load nothing ahead."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.verdict import MODERATE_SHARE, keeps_up
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules import fixes, stages
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.finding import Advice, Fact, Finding, Problem, Rule, Unknown, facts
from loadeval.analysis.rules.inside import DOMINATES
from loadeval.analysis.rules.workers import (
    WorkerAdvice,
    deeper_prefetch,
    first_workers,
    more_workers,
    receiving_ns,
)

if TYPE_CHECKING:
    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.finding import Place

TIMES_MEDIAN = 2.0
"""A wait over so many times the median is a stall by what it exceeds that."""
MOST_IN_STALLS = 0.2
"""Where stalls hold a larger share of the waiting, waits for batches are not about equal.

It is a share of the time, and no percentile: one batch in 25 is beyond the 95th, and
may hold it all.
"""


def capacity(case: Case) -> Answer:
    """The loader cannot keep up, even on its own."""
    gain, lost = case.headroom, case.lost
    if case.loss_unknown:
        return case.loss_unknown
    if gain is None or lost is None or case.loads_synchronously:
        return None
    if gain.required is None:
        return Remark(Unknown.LOADER_ALONE_NOT_TIMED)
    enough = keeps_up(gain.required)
    if gain.required.value <= 1 or not case.waiting_share:
        return None
    inside = case.inside
    advice = more_workers(case, gain, gain.required.value)
    if inside is not None:
        changes = stages.or_workers(case, inside)
        if all(change.code != Advice.RAISE for change in changes):
            changes = (*changes, Remark(Advice.CHEAPER_OR_CPUS))
        advice = WorkerAdvice(changes, "measured")
    return Finding(
        Rule.CAPACITY,
        severity_of(case.waiting_share),
        advice.confidence if enough is False else "possible",
        Remark(Problem.LOADER_TOO_SLOW, {"required": gain.required.value}),
        advice.changes,
        (
            Fact("steady time lost", lost.value, "share", lost.low, lost.high),
            Fact("spent waiting", case.waiting_share, "share"),
            *case.times,
            *facts(
                ("CPUs used by the workers", case.cpu_use.computing, "CPUs"),
                ("CPUs left for workers", case.cpu_use.left, "CPUs"),
                ("CPU time to receive a batch", receiving_ns(case, gain) or None, "ns"),
            ),
            *stages.largest_parts(inside),
        ),
        case.waiting_share,
    )


def zero_workers(case: Case) -> Answer:
    """The loader works only while training waits for it."""
    alone_ns = None if case.headroom is None else case.headroom.loader_only_ns
    if case.loader.workers is None and alone_ns is None:
        return Remark(Unknown.WORKERS_UNKNOWN)
    if case.headroom is not None and case.loss_unknown:
        return case.loss_unknown
    summary = case.summary
    if summary.wait_share is None or summary.wait_ns is None or summary.step_ns is None:
        return Remark(Unknown.NO_STEADY_BATCH)
    lost = summary.wait_share
    if case.headroom is not None:
        lost = 0.0 if case.lost is None else case.lost.value
    if not case.loads_synchronously or lost < MODERATE_SHARE:
        return None
    if case.is_read_in_thread:
        return Remark(Unknown.READ_IN_THREAD)
    changes = () if case.inside is None else stages.as_many_workers(case, case.inside)
    needed = max(math.ceil(summary.wait_ns / summary.step_ns), 1) if summary.step_ns else 1
    return Finding(
        Rule.ZERO_WORKERS,
        severity_of(case.waiting_share),
        "likely" if case.headroom is None else "measured",
        Remark(Problem.NOTHING_LOADED_AHEAD, {"wait_share": summary.wait_share}),
        changes or first_workers(case, needed),
        (
            Fact("wait, mean", summary.wait_ns, "ns"),
            Fact("step, mean", summary.step_ns, "ns"),
            *stages.largest_parts(case.inside),
        ),
        case.waiting_share,
    )


def shallow_queue(case: Case) -> Answer:
    """Training waits now and then for a loader that is fast enough alone."""
    gain, depth, share = case.headroom, case.loader.prefetch_depth, _share_waited(case)
    if not isinstance(share, float):
        return share
    stalled = _share_in_stalls(case)
    if stalled <= MOST_IN_STALLS:
        return None
    if depth is None or gain is None:
        return Remark(Unknown.PREFETCH_UNKNOWN)
    wait_ns, ideal_ns, alone_ns = (
        time_ns or 0.0 for time_ns in (case.summary.wait_ns, gain.ideal_ns, gain.loader_only_ns)
    )
    cost = share
    changes: tuple[Remark, ...] = (deeper_prefetch(case.loader),)
    if case.inside is not None:
        cost = fixes.gain_of(case, Rule.SHALLOW_QUEUE)
        deeper = deeper_prefetch(case.loader, fixes.best_prefetch(case.inside))
        slow = stages.slow_samples(case)
        changes = (deeper, *(slow.changes if isinstance(slow, Finding) else ()))
    return Finding(
        Rule.SHALLOW_QUEUE,
        severity_of(cost),
        # What is longer than making a batch takes is no empty queue alone.
        "possible" if wait_ns > alone_ns or not _keeps_up(case) else "likely",
        Remark(Problem.QUEUE_RUNS_EMPTY, {"required": alone_ns / ideal_ns, "wait_share": share}),
        (*changes, *_where(case, depth * ideal_ns)),
        (
            Fact("waiting", share, "share"),
            Fact("of it in stalls", stalled, "share"),
            *case.times,
            Fact("prefetch depth", depth, "batches"),
        ),
        cost,
        _stalls(case),
    )


def per_batch_cost(case: Case) -> Answer:
    """Training waits about equally long for every batch of a loader that is fast enough alone."""
    waits, share = case.summary.waits, _share_waited(case)
    if not isinstance(share, float):
        return share
    if case.inside is not None:  # where such costs are measured
        return None
    stalled = _share_in_stalls(case)
    if stalled > MOST_IN_STALLS or waits is None:
        return None
    nbytes = case.summary.bytes_per_batch
    copies = nbytes is not None and nbytes >= stages.SLOWEST_COPY_BYTES_PER_NS * waits.p50_ns / 2
    changes: tuple[Remark, ...] = (Remark(Advice.CUT_BYTES if copies else Advice.FEWER_TENSORS),)
    if not copies and case.loader.pinned is not False:
        changes = (*changes, Remark(Advice.MAYBE_PINNING))
    return Finding(
        Rule.PER_BATCH_COST,
        severity_of(share),
        "likely" if copies else "possible",
        Remark(Problem.SAME_WAIT_FOR_EVERY_BATCH, {"p50_wait_ns": waits.p50_ns}),
        changes,
        (
            Fact("waiting", share, "share"),
            Fact("of it in stalls", stalled, "share"),
            Fact("wait, p50", waits.p50_ns, "ns"),
            Fact("wait, p95", waits.p95_ns, "ns"),
            *facts(("size of a batch", nbytes, "bytes")),
        ),
        share,
    )


def waiting(case: Case) -> Answer:
    """Time goes into loading, and the loader alone was not timed."""
    gain = case.headroom
    if case.loader.workers == 0 or (gain is not None and gain.required is not None):
        return None
    if gain is not None:
        return case.loss_unknown or _lost_in_waiting(case)
    share = case.summary.wait_share
    if share is None:
        return Remark(Unknown.NO_STEADY_BATCH)
    if share < MODERATE_SHARE:
        return None
    return Finding(
        Rule.WAITING,
        severity_of(share),
        "possible",
        Remark(Problem.WAIT_UNEXPLAINED, {"wait_share": share}),
        (Remark(Advice.ALTERNATE),),
        (Fact("share waited", share, "share"),),
        share,
    )


def _lost_in_waiting(case: Case) -> Finding | None:
    lost, share = case.lost, case.waiting_share
    if lost is None or not share:
        return None
    return Finding(
        Rule.WAITING,
        severity_of(share),
        "measured",
        Remark(Problem.LOSS_UNEXPLAINED, {"lost_share": lost.value, "wait_share": share}),
        (Remark(Advice.ALTERNATE if case.ideal is not None else Advice.FIND_SLOW_BATCHES),),
        (
            Fact("steady time lost", lost.value, "share", lost.low, lost.high),
            Fact("spent waiting", share, "share"),
        ),
        share,
    )


def _where(case: Case, hidden_ns: float) -> tuple[Remark, ...]:
    """The code of the slowest batches; where nobody looked, how much of a stall is hidden."""
    inside = case.inside
    if inside is None:
        return (_hides(case, hidden_ns),)
    line = inside.line
    if line is None or line.share < DOMINATES:
        return ()
    return (Remark(Advice.LOOK_AT, {"place": line.name}),)


def _share_waited(case: Case) -> float | Remark | None:
    """The share waited, where the loader alone is fast enough and that matters."""
    if case.loss_unknown:
        return case.loss_unknown
    gain = case.headroom
    if gain is None or case.lost is None or case.loads_synchronously:
        return None
    if gain.required is None:
        return Remark(Unknown.LOADER_ALONE_NOT_TIMED)
    share = case.waiting_share
    return share if gain.required.value <= 1 and share >= MODERATE_SHARE else None


def _keeps_up(case: Case) -> bool:
    """Whether the whole interval says that the loader alone is fast enough."""
    required = None if case.headroom is None else case.headroom.required
    return required is not None and bool(keeps_up(required))


def _share_in_stalls(case: Case) -> float:
    """The share of the waiting that is above twice the median wait."""
    beyond_ns = case.wait_ns - TIMES_MEDIAN * np.median(case.wait_ns)
    return float(beyond_ns[beyond_ns > 0].sum() / case.wait_ns.sum())


def _stalls(case: Case) -> tuple[Place, ...]:
    stalls = np.flatnonzero(case.wait_ns > TIMES_MEDIAN * np.median(case.wait_ns))
    return case.places(case.rows[stalls], case.wait_ns[stalls].astype(np.float64))


def _hides(case: Case, hidden_ns: float) -> Remark:
    """What a queue twice as deep hides of a stall, all or not."""
    longest_ns = float(case.wait_ns.max())
    code = Advice.HIDES_STALL if hidden_ns >= longest_ns else Advice.HIDES_PART_OF_STALL
    return Remark(code, {"hidden_ns": hidden_ns, "longest_wait_ns": longest_ns})
