"""Times that vary: stalls, outliers, a run that slows down."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.cautions import BatchProperty, dependences, drift_ns
from loadeval.analysis.estimate.intervals import MeanTime
from loadeval.analysis.estimate.stats import slope
from loadeval.analysis.estimate.summary import FEWEST_FOR_OUTLIERS
from loadeval.analysis.estimate.verdict import MODERATE_SHARE
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.finding import Advice, Fact, Finding, Problem, Rule, Unknown, facts
from loadeval.analysis.rules.workers import deeper_prefetch

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.estimate.stats import Estimate, Series
    from loadeval.analysis.rules.case import Answer, Case

FEWEST_FOR_STALLS = 200
"""Batches of which the slowest hundredth is at least two."""
TOP = 0.01
MOST_OF_THE_WAITING = 0.5
FEWEST_GAPS = 4
REGULAR = 0.8
"""This share of the gaps between stalls must be about equal for there to be a period."""
MOST_OUTLIERS = 0.05
"""If they are a larger share of the batches, they are not out of the ordinary."""
WORTH_SAYING = 0.01
"""A smaller share of the time is not worth saying."""
FEWEST_FOR_CHANGE = 40
"""Steady-state batches, under which nothing is said of a change."""
PARTS = 20
"""Stretches of as many batches each, by whose medians a trend is found."""


def stalls(case: Case) -> Answer:
    """Most of the waiting is for a hundredth of the batches."""
    unknown = case.too_few(FEWEST_FOR_STALLS)
    if unknown:
        return unknown
    wait_ns, count = case.wait_ns, len(case.rows)
    total_ns, waited_ns = int(case.iteration_ns.sum()), int(wait_ns.sum())
    top = np.sort(np.argsort(wait_ns, kind="stable")[-math.ceil(TOP * count) :])
    stalled_ns = int(wait_ns[top].sum())
    share = stalled_ns / waited_ns if waited_ns else 0.0
    if waited_ns < MODERATE_SHARE * total_ns or share < MOST_OF_THE_WAITING:
        return None
    period = _period(case, top)
    cost = min(stalled_ns / total_ns, case.waiting_share)
    counts = {"stalls": len(top), "batches": count}
    shares = {"wait_share": share, "time_share": stalled_ns / total_ns}
    return Finding(
        Rule.STALLS,
        severity_of(cost),
        "measured",
        Remark(Problem.FEW_BATCHES_STALL, {**counts, **shares}),
        _against_stalls(case, period),
        facts(
            ("of all waiting", share, "share"),
            ("batches", len(top), "batches"),
            ("their mean wait", stalled_ns / len(top), "ns"),
            ("median wait of all", float(np.median(wait_ns)), "ns"),
            ("period", period, "batches"),
        ),
        cost,
        case.places(case.rows[top], wait_ns[top].astype(np.float64)),
    )


def outliers(case: Case) -> Answer:
    """A few batches take more than twice the median."""
    unknown = case.too_few(FEWEST_FOR_OUTLIERS)
    if unknown:
        return unknown
    iteration_ns, slow, count = case.iteration_ns, case.outliers, len(case.rows)
    median_ns = float(np.median(iteration_ns))
    cost = sum(outlying_shares(case))
    if cost < WORTH_SAYING or len(slow) > MOST_OUTLIERS * count:
        return None
    waiting = int((case.wait_ns[slow] > iteration_ns[slow] / 2).sum())
    stepping = len(slow) - waiting
    counts = {"outliers": len(slow), "batches": count, "waiting": waiting, "stepping": stepping}
    changes = ((waiting, Advice.FIND_SLOW_BATCHES), (stepping, Advice.FIND_SLOW_STEPS))
    commonest = sorted(changes, key=lambda change: -change[0])
    return Finding(
        Rule.OUTLIERS,
        severity_of(cost),
        "measured",
        Remark(Problem.FEW_BATCHES_SLOW, {**counts, "time_share": cost}),
        tuple(Remark(advice) for batches, advice in commonest if batches),
        (
            Fact("median iteration", median_ns, "ns"),
            Fact("longest iteration", float(iteration_ns.max()), "ns"),
            Fact("batches over twice the median", len(slow), "batches"),
            Fact("batches mostly waiting", waiting, "batches"),
        ),
        cost,
        case.places(case.rows[slow], (iteration_ns[slow] - median_ns).astype(np.float64)),
    )


def outlying_shares(case: Case) -> tuple[float, float]:
    """What outliers take beyond the median iteration: shares of all time, in waits and in steps."""
    iteration_ns, slow = case.iteration_ns, case.outliers
    beyond_ns = iteration_ns[slow] - np.median(iteration_ns)
    waits_ns = (case.wait_ns[slow] - np.median(case.wait_ns)).clip(min=0)
    waited_ns = float(np.minimum(waits_ns, beyond_ns).sum())
    total_ns = max(float(iteration_ns.sum()), 1.0)
    return waited_ns / total_ns, (float(beyond_ns.sum()) - waited_ns) / total_ns


def falling_throughput(case: Case) -> Answer:
    """Throughput falls all the time."""
    unknown = case.too_few(FEWEST_FOR_CHANGE)
    if unknown:
        return unknown
    medians = np.array([np.median(part) for part in np.array_split(case.iteration_ns, PARTS)])
    trend = _trend(medians)
    # Both halves must become slower: one step, wherever it is, cannot do that.
    halves = [_trend(half) for half in np.array_split(medians, 2)]
    if trend is None or not all(half and half.low and half.low > 0 for half in halves):
        return None
    rise = trend.value * (PARTS - 1) / float(np.median(medians))
    if rise < 2 * MODERATE_SHARE:
        return None
    grows_in_waits = waits_grow(case)
    waited = float(case.wait_ns.sum() / case.iteration_ns.sum())
    cost = min(rise / 2, waited if grows_in_waits else 1 - waited)
    return Finding(
        Rule.FALLING_THROUGHPUT,
        severity_of(cost),
        "likely",
        Remark(Problem.ITERATIONS_LENGTHEN, {"rise": rise}),
        (Remark(Advice.FIND_LOADER_GROWTH if grows_in_waits else Advice.FIND_STEP_GROWTH),),
        (
            Fact("iteration at the beginning", float(medians[: PARTS // 4].mean()), "ns"),
            Fact("iteration at the end", float(medians[-PARTS // 4 :].mean()), "ns"),
            Fact("rise over the run", rise, "share"),
        ),
        cost,
    )


def drift(case: Case) -> Answer:
    """One half of the run was slower than the other."""
    unknown = case.too_few(FEWEST_FOR_CHANGE)
    if unknown:
        return unknown
    iteration_ns = case.iteration_ns.astype(np.float64)
    change_ns = drift_ns(MeanTime(iteration_ns, np.ones(len(iteration_ns))))
    share = change_ns / float(iteration_ns.mean()) if change_ns else 0.0
    if share < MODERATE_SHARE or isinstance(falling_throughput(case), Finding):
        return None
    first_ns, second_ns = (float(half.mean()) for half in np.array_split(iteration_ns, 2))
    slower = second_ns > first_ns
    problem = Problem.SECOND_HALF_SLOWER if slower else Problem.SECOND_HALF_FASTER
    return Finding(
        Rule.DRIFT,
        "low",
        "measured",
        Remark(problem, {"change": share}),
        (Remark(Advice.FIND_SLOWDOWN if slower else Advice.WARM_UP_CACHE),),
        (
            Fact("iteration, first half", first_ns, "ns"),
            Fact("iteration, second half", second_ns, "ns"),
        ),
    )


def not_representative(case: Case) -> Answer:
    """A step's time depends on its batch, and only some batches were replayed."""
    if case.real.header.mode == "alternate":
        return None  # it serves every batch once
    if case.ideal is None:
        return Remark(Unknown.NOT_REPLAYED)
    correlations = dependences(case.real, case.ideal)
    if not correlations:
        return None
    by_place, by_size = correlations.get(BatchProperty.PLACE), correlations.get(BatchProperty.SIZE)
    return Finding(
        Rule.NOT_REPRESENTATIVE,
        "moderate",
        "measured",
        Remark(Problem.STEP_DEPENDS_ON_BATCH),
        (Remark(Advice.ALTERNATE),),
        facts(
            ("rank correlation with place in the epoch", by_place, "rank correlation"),
            ("rank correlation with size in bytes", by_size, "rank correlation"),
        ),
    )


def waits_grow(case: Case) -> bool:
    """Whether more of the change between the halves of the run is in the waits."""
    waits = [float(part.mean()) for part in np.array_split(case.wait_ns, 2)]
    iterations = [float(part.mean()) for part in np.array_split(case.iteration_ns, 2)]
    return waits[1] - waits[0] > (iterations[1] - iterations[0]) / 2


def _period(case: Case, top: npt.NDArray[np.intp]) -> int | None:
    """The number of batches from one stall to the next; None where that is not regular."""
    if case.real.header.mode == "alternate":  # of which the batches that count have gaps
        return None
    rows = case.rows[top]
    gaps = np.diff(rows)[np.diff(case.real.steps.epoch[rows]) == 0]
    if len(gaps) < FEWEST_GAPS:
        return None
    period = int(np.median(gaps))
    close = np.abs(gaps - period) <= max(1.0, 0.05 * period)
    return period if period > 1 and close.mean() >= REGULAR else None


def _against_stalls(case: Case, period: int | None) -> tuple[Remark, ...]:
    workers = case.loader.workers
    if period is None:
        look = Remark(Advice.FIND_SLOW_BATCHES)
    elif workers and period % workers == 0:
        look = Remark(Advice.FIND_SLOW_WORKER, {"period": period, "workers": workers})
    else:
        look = Remark(Advice.FIND_PERIOD, {"period": period})
    if workers == 0:
        return (look,)
    return look, deeper_prefetch(case.loader), Remark(Advice.HIDES_QUEUE_LENGTH)


def _trend(medians: Series) -> Estimate | None:
    return slope([(np.arange(len(medians), dtype=np.float64), medians)])
