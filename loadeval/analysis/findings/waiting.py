"""Time that goes into loading, where the loader alone was not timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import NO_BATCH, THRESHOLDS_OF, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.verdict import MODERATE_SHARE, percent

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case
    from loadeval.analysis.stats import Estimate

ALTERNATE = "Measure with mode='alternate', which times the loader alone and tells why"


def unexplained(case: Case) -> Answer:
    """Time goes into loading, and the loader alone was not timed."""
    found = case.headroom
    if case.loader.workers == 0 or (found is not None and found.required is not None):
        return None
    if found is not None and case.unknown_loss:
        return case.unknown_loss
    if found is not None:
        lost, waiting = case.lost, case.waiting_share
        return None if lost is None or not waiting else _lost_somehow(lost, waiting)
    share = case.summary.wait_share
    if share is None:
        return NO_BATCH
    return None if share < MODERATE_SHARE else _waited(share)


def _lost_somehow(lost: Estimate, waiting: float) -> Finding:
    return Finding(
        rule="waiting",
        severity=severity_of(waiting),
        sentence=(
            f"{percent(lost.value)} of the training time is lost to loading, {percent(waiting)} in "
            "waiting. Whether the loader is too slow, or has too shallow a queue, is not measured."
        ),
        evidence=(
            Fact("time lost", lost.value, "share", lost.low, lost.high),
            Fact("of it in waiting", waiting, "share"),
        ),
        advice=f"{ALTERNATE}.",
        confidence="measured",
        source=THRESHOLDS_OF,
        cost_share=waiting,
    )


def _waited(share: float) -> Finding:
    return Finding(
        rule="waiting",
        severity=severity_of(share),
        sentence=(
            f"Training waits for batches for {percent(share)} of its time. How much faster it "
            "would be without is not measured: it may be less, and it may be more."
        ),
        evidence=(Fact("share waited", share, "share"),),
        advice=f"{ALTERNATE}, and what free loading would gain.",
        confidence="possible",
        source=THRESHOLDS_OF,
        cost_share=share,
    )
