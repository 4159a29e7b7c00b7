"""Streams that are divided among workers: too few shards, and shards of unequal size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.verdict import MODERATE_SHARE
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule, Unknown, facts
from loadeval.analysis.rules.inside import FEWEST_BATCHES
from loadeval.analysis.rules.stages import finding_inside, looks_inside
from loadeval.analysis.rules.workers import names_of
from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import ARMS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.inside import Inside

SHARDS = "num_shards"
SHARDS_MADE_BY = Remark(Advice.SHARDS_MADE_BY, {"setting": SHARDS})
LEAST_TAIL = 2
"""Batches for each worker: the last ones of workers that end together are fewer."""


@looks_inside
def few_shards(case: Case, inside: Inside) -> Answer:
    """Some workers have nothing to load."""
    idle = inside.workers - inside.setting.workers
    # Epochs of few batches leave workers without one, too.
    batches = max(len(part) for _, part in case.real.stages.by("epoch"))
    if idle <= 0 or batches < FEWEST_BATCHES * inside.workers:
        return None
    counts, shards = {"idle": idle, "workers": inside.workers}, case.loader.shards
    problem = Remark(Problem.WORKERS_HAVE_NO_SHARD, counts)
    if shards is not None and shards < inside.workers:
        problem = Remark(Problem.FEWER_SHARDS_THAN_WORKERS, {**counts, "shards": shards})
    return finding_inside(
        case,
        Rule.FEW_SHARDS,
        problem,
        (
            Remark(Advice.MORE_SHARDS, {**counts, "busy": inside.setting.workers}),
            *((SHARDS_MADE_BY,) if SHARDS in names_of(case.loader) else ()),
        ),
        facts(
            ("workers without a batch", idle, "workers"),
            ("shards of the dataset", shards, "shards"),
        ),
    )


@looks_inside
def uneven_shards(case: Case, inside: Inside) -> Answer:
    """Some workers are done long before the epoch is, whose tail the others load."""
    whole = {end.epoch for end in case.real.ends if end.cause == "exhausted"}
    epochs = [times for epoch, times in case.real.stages.by("epoch") if epoch in whole]
    if not epochs or not len(case.rows):
        return Remark(Unknown.EPOCH_LENGTH_UNKNOWN)
    tails = [_tail(times) for times in epochs]
    if sum(tail.any() for tail in tails) <= len(tails) / 2:
        return None
    served = [_waited_for(case, times) for times in epochs]
    waits_ns = np.concatenate([times.delivered_ns - times.requested_ns for times in epochs])
    tail, counts = np.concatenate(tails), np.concatenate(served)
    in_tail, before = waits_ns[tail & counts], waits_ns[~tail & counts]
    if min(len(in_tail), len(before)) < FEWEST_BATCHES:
        return case.too_few(len(case.rows) + FEWEST_BATCHES)
    tail_ns, before_ns = float(in_tail.mean()), float(before.mean())
    lost_ns = max(tail_ns - before_ns, 0.0) * float(tail.mean())
    # Blocks of an alternating run hold more or less of the tail than epochs do.
    cost = lost_ns / (inside.costs.step_ns + before_ns + lost_ns)
    if cost < MODERATE_SHARE:
        return None
    workers, shards = inside.workers, case.loader.shards
    left = min(len(np.unique(times.worker[-workers:])) for times in epochs)
    values = {"tail_share": float(tail.mean()), "left": left, "workers": workers}
    is_divided = shards is None or shards % workers == 0
    left_over = Remark(Advice.SHARDS_LEFT_OVER, {"workers": workers, "shards": shards})
    return Finding(
        Rule.UNEVEN_SHARDS,
        severity_of(cost),
        "measured",
        Remark(Problem.WORKERS_END_EARLY, {**values, "tail_ns": tail_ns, "before_ns": before_ns}),
        (
            Remark(Advice.EQUAL_SHARDS, {"workers": workers}),
            *(() if is_divided else (left_over,)),
        ),
        facts(
            ("batches after a worker's last", float(tail.mean()), "share"),
            ("their wait", tail_ns, "ns"),
            ("wait before", before_ns, "ns"),
            ("shards of the dataset", shards, "shards"),
        ),
        cost,
    )


def _tail(times: Columns) -> npt.NDArray[np.bool_]:
    """Which batches of an epoch came after the last one of some worker; none where few did."""
    workers = [worker for worker in np.unique(times.worker).tolist() if worker != UNKNOWN]
    places = np.arange(len(times))
    lasts = [int(places[times.worker == worker].max()) for worker in workers]
    tail: npt.NDArray[np.bool_] = places > min(lasts, default=len(times))
    return tail if tail.sum() >= LEAST_TAIL * len(workers) else np.zeros_like(tail)


def _waited_for(case: Case, times: Columns) -> npt.NDArray[np.bool_]:
    """Which of these batches training waited for in the steady state, when they were loaded."""
    steps = case.real.steps
    rows = np.union1d(case.rows, _looked_into(case))
    begin_ns = steps.request_ns[rows]
    order = np.argsort(begin_ns, kind="stable")
    begin_ns, end_ns = begin_ns[order], (begin_ns + steps.wait_ns[rows])[order]
    at = np.searchsorted(begin_ns, times.requested_ns, side="right") - 1
    is_within: npt.NDArray[np.bool_] = (
        (at >= 0) & (times.requested_ns <= end_ns[at]) & (times.delivered_ns != UNKNOWN)
    )
    return is_within


def _looked_into(case: Case) -> npt.NDArray[np.intp]:
    """The batches of real blocks for the instruments, once the loader has refilled its queue."""
    steps, place = case.real.steps, np.arange(len(case.real.steps))
    looked = steps.instrumented & (steps.arm == ARMS.index("real"))
    began = np.maximum.accumulate(np.where(looked, -1, place))
    return np.flatnonzero(looked & (place - began > case.run.header.warmup))
