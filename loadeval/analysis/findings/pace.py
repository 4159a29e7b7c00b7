"""A pace that changes while a run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.findings.case import NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.headroom import drift_ns
from loadeval.analysis.stats import MeanTime, slope
from loadeval.analysis.verdict import MODERATE_SHARE, percent

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case
    from loadeval.analysis.stats import Estimate, Series

FEWEST = 40
"""Steady batches, under which nothing is said of a change."""
PARTS = 20
"""Stretches of as many batches each, by whose medians a trend is found."""

FASTER_LATER = (
    "A page cache that fills makes reading faster: run an epoch before the one that is measured. "
    "Or other work on the machine ended meanwhile."
)
SLOWER_LATER = (
    "Look for other work on the machine, for CPUs that became too hot, and for memory that grows."
)


def falling(case: Case) -> Answer:
    """Throughput falls all the time."""
    if len(case.rows) < FEWEST:
        return _too_few(case)
    medians = np.array([np.median(part) for part in np.array_split(case.iteration_ns, PARTS)])
    found, middle_ns = _trend(medians), float(np.median(medians))
    if found is None or not _goes_on(medians):
        return None
    rise = found.value * (PARTS - 1) / middle_ns
    if rise < 2 * MODERATE_SHARE:
        return None
    cost = min(rise / 2, _share_of_what_grows(case))
    return Finding(
        rule="falling throughput",
        severity=severity_of(cost),
        sentence=(
            f"Training becomes slower and slower: a batch takes {percent(rise)} longer at the end "
            "of the run than at its beginning."
        ),
        evidence=(
            Fact("iteration at the beginning", float(medians[: PARTS // 4].mean()), "ns"),
            Fact("iteration at the end", float(medians[-PARTS // 4 :].mean()), "ns"),
            Fact("rise over the run", rise, "share"),
        ),
        advice=_against_falling(case),
        confidence="likely",
        source="Theil's and Sen's slope of the medians of twenty stretches of the run",
        cost_share=cost,
    )


def drift(case: Case) -> Answer:
    """One half of the run was slower than the other."""
    if len(case.rows) < FEWEST:
        return _too_few(case)
    iteration_ns = case.iteration_ns.astype(np.float64)
    change_ns = drift_ns(MeanTime(iteration_ns, np.ones(len(iteration_ns))))
    share = change_ns / float(iteration_ns.mean()) if change_ns else 0.0
    if share < MODERATE_SHARE or isinstance(falling(case), Finding):
        return None
    first_ns, second_ns = (float(half.mean()) for half in np.array_split(iteration_ns, 2))
    slower = "slower" if second_ns > first_ns else "faster"
    return Finding(
        rule="drift",
        severity="low",
        sentence=(
            f"The second half of the run was {percent(share)} {slower} than the first: figures of "
            "the whole run are means of two paces."
        ),
        evidence=(
            Fact("iteration, first half", first_ns, "ns"),
            Fact("iteration, second half", second_ns, "ns"),
        ),
        advice=FASTER_LATER if second_ns < first_ns else SLOWER_LATER,
        confidence="measured",
        source="difference of the halves' mean iterations, beyond their 95% interval",
    )


def _too_few(case: Case) -> NotMeasured:
    return NotMeasured(f"too few steady batches, {len(case.rows)}: {FEWEST} are needed")


def _goes_on(medians: Series) -> bool:
    """Whether both halves of the run become slower: one step, wherever it is, cannot do that."""
    halves = (_trend(half) for half in np.array_split(medians, 2))
    return all(half is not None and half.low is not None and half.low > 0 for half in halves)


def _trend(medians: Series) -> Estimate | None:
    return slope([(np.arange(len(medians), dtype=np.float64), medians)])


def waits_grow(case: Case) -> bool:
    """Whether more of the change between the halves of the run is in the waits."""
    waits = [float(part.mean()) for part in np.array_split(case.wait_ns, 2)]
    iterations = [float(part.mean()) for part in np.array_split(case.iteration_ns, 2)]
    return waits[1] - waits[0] > (iterations[1] - iterations[0]) / 2


def _share_of_what_grows(case: Case) -> float:
    waited = float(case.wait_ns.sum() / case.iteration_ns.sum())
    return waited if waits_grow(case) else 1 - waited


def _against_falling(case: Case) -> str:
    if waits_grow(case):
        return (
            "The waits grow: look for a loader that does more from batch to batch (a list or a "
            "cache that is searched, files that are never closed), and for a disk or a network "
            "that is slower once a cache or a burst allowance is used up."
        )
    return (
        "The steps grow: look for losses or outputs that are kept with all that they were "
        "computed from, for a metric over all batches so far, and for a CPU or GPU that becomes "
        "too hot."
    )
