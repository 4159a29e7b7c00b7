"""Time that few batches take: bursts of waiting, and outliers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.findings.case import NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.setting import deeper_prefetch
from loadeval.analysis.summary import FEWEST_FOR_OUTLIERS, OUTLIER_TIMES_MEDIAN
from loadeval.analysis.verdict import MODERATE_SHARE, percent

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.findings.case import Answer, Case

FEWEST_FOR_BURSTS = 200
"""Batches of which the slowest hundredth is at least two."""
TOP = 0.01
MOST_OF_THE_WAITING = 0.5
FEWEST_GAPS = 4
REGULAR = 0.8
"""Of the gaps between bursts: as many must be about as long for there to be a period."""
MOST_OUTLIERS = 0.05
"""Of the batches: when there are more, they are not out of the ordinary."""
WORTH_SAYING = 0.01
"""Of the time."""


def bursts(case: Case) -> Answer:
    """Most of the waiting is for a hundredth of the batches."""
    if case.thinned:
        return case.thinned
    wait_ns, count = case.wait_ns, len(case.rows)
    if count < FEWEST_FOR_BURSTS:
        return NotMeasured(f"too few steady batches, {count}: {FEWEST_FOR_BURSTS} are needed")
    total_ns, waited_ns = int(case.iteration_ns.sum()), int(wait_ns.sum())
    top = np.sort(np.argsort(wait_ns, kind="stable")[-math.ceil(TOP * count) :])
    burst_ns = int(wait_ns[top].sum())
    share = burst_ns / waited_ns if waited_ns else 0.0
    if waited_ns < MODERATE_SHARE * total_ns or share < MOST_OF_THE_WAITING:
        return None
    period = _period(case, top)
    cost = min(burst_ns / total_ns, case.waiting_share)
    facts = [
        Fact("of all waiting", share, "share"),
        Fact("batches", len(top), "batches"),
        Fact("their mean wait", burst_ns / len(top), "ns"),
        Fact("median wait of all", float(np.median(wait_ns)), "ns"),
    ]
    regular = ""
    if period is not None:
        facts.append(Fact("period", period, "batches"))
        regular = f" They come every {period} batches."
    return Finding(
        rule="bursts",
        severity=severity_of(cost),
        sentence=(
            f"{percent(share)} of the waiting is for {len(top)} of the {count:,} batches, "
            f"{percent(burst_ns / total_ns)} of the training time.{regular}"
        ),
        evidence=tuple(facts),
        advice=_against_bursts(case, period),
        confidence="measured",
        source="share of the waiting in the slowest hundredth of the batches",
        cost_share=cost,
        places=case.places(case.rows[top], wait_ns[top].astype(np.float64)),
    )


def outliers(case: Case) -> Answer:
    """A few batches take more than twice the median."""
    if case.thinned:
        return case.thinned
    iteration_ns, count = case.iteration_ns, len(case.rows)
    if count < FEWEST_FOR_OUTLIERS:
        return NotMeasured(f"too few steady batches, {count}: {FEWEST_FOR_OUTLIERS} are needed")
    median_ns = float(np.median(iteration_ns))
    found = np.flatnonzero(iteration_ns > OUTLIER_TIMES_MEDIAN * median_ns)
    cost = sum(outlying_shares(case))
    if cost < WORTH_SAYING or len(found) > MOST_OUTLIERS * count:
        return None
    waiting = int((case.wait_ns[found] > iteration_ns[found] / 2).sum())
    return Finding(
        rule="outliers",
        severity=severity_of(cost),
        sentence=(
            f"{len(found)} of the {count:,} batches take more than twice the median iteration, beyond "
            f"it {percent(cost)} of the training time; {waiting} of them mostly by waiting, "
            f"{len(found) - waiting} by their step."
        ),
        evidence=(
            Fact("median iteration", median_ns, "ns"),
            Fact("longest iteration", float(iteration_ns.max()), "ns"),
            Fact("batches over twice the median", len(found), "batches"),
            Fact("batches mostly waiting", waiting, "batches"),
        ),
        advice=(
            "Look at what happens at these times: larger files, the edge of a shard, a "
            "checkpoint or a validation, Python's garbage collection, another program."
        ),
        confidence="measured",
        source="twice the median, as Amazon SageMaker's PT_dataloader_analysis has it",
        cost_share=cost,
        places=case.places(case.rows[found], (iteration_ns[found] - median_ns).astype(np.float64)),
    )


def outlying_shares(case: Case) -> tuple[float, float]:
    """What outliers take beyond the median iteration: the share of all time in waits, and in steps."""
    iteration_ns = case.iteration_ns
    median_ns = np.median(iteration_ns)
    found = iteration_ns > OUTLIER_TIMES_MEDIAN * median_ns
    excess_ns = float((iteration_ns[found] - median_ns).sum())
    waits_ns = (case.wait_ns[found] - np.median(case.wait_ns)).clip(min=0)
    waited_ns = float(np.minimum(waits_ns, iteration_ns[found] - median_ns).sum())
    total_ns = max(float(iteration_ns.sum()), 1.0)
    return waited_ns / total_ns, (excess_ns - waited_ns) / total_ns


def _period(case: Case, top: npt.NDArray[np.intp]) -> int | None:
    """After how many batches the next burst comes, where that is regular; None where it is not."""
    if case.real.header.mode == "alternate":  # of which the batches that count have gaps
        return None
    rows = case.rows[top]
    gaps = np.diff(rows)[np.diff(case.real.steps.epoch[rows]) == 0]
    if len(gaps) < FEWEST_GAPS:
        return None
    period = int(np.median(gaps))
    close = np.abs(gaps - period) <= max(1.0, 0.05 * period)
    return period if period > 1 and close.mean() >= REGULAR else None


def _against_bursts(case: Case, period: int | None) -> str:
    workers = case.loader.workers
    if period is not None and workers and period % workers == 0:
        look = (
            f"The period is a multiple of the {workers} workers: look for what one of them does "
            "that the others do not."
        )
    elif period is not None:
        look = f"Look for what the loader does every {period} batches, such as opening a shard."
    else:
        look = "Look for what makes these batches slow: large files, a cold cache, retries."
    if workers == 0:
        return look
    deeper = deeper_prefetch(case.loader)
    return (
        f"{look} If the loader is fast enough otherwise, {deeper} and measure: that hides a stall "
        "as long as the batches that are ready last."
    )
