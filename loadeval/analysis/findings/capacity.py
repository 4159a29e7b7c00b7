"""Loaders that are too slow, even on their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings import cpus
from loadeval.analysis.findings.case import NO_IDEAL, NOT_ALONE, THRESHOLDS_OF, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.more_workers import more_workers

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case

MEASURED_PACES = f"loadeval's three paces; {THRESHOLDS_OF}"


def too_slow(case: Case) -> Answer:
    """The loader cannot keep up, even on its own."""
    found = case.headroom
    if found is None:
        return NO_IDEAL
    if case.unknown_loss:
        return case.unknown_loss
    lost = case.lost
    if case.in_turn or lost is None:
        return None
    if found.required is None:
        return NOT_ALONE
    if found.required <= 1 or not case.waiting_share:
        return None
    advice = more_workers(case, found, found.required)
    figures = (
        ("CPUs that the workers compute on", cpus.by_workers(case), "CPUs"),
        ("CPUs left for workers", cpus.left_for_workers(case), "CPUs"),
        (
            "CPU time of training to take a batch",
            cpus.to_take_a_batch_ns(case, found) or None,
            "ns",
        ),
    )
    return Finding(
        rule="capacity",
        severity=severity_of(case.waiting_share),
        sentence=(
            f"The loader is too slow even on its own: it must become {found.required:.2f} times "
            "as fast before training stops waiting for it."
        ),
        evidence=(
            Fact("time lost", lost.value, "share", lost.low, lost.high),
            Fact("of it in waiting", case.waiting_share, "share"),
            *case.paces,
            *(Fact(name, value, unit) for name, value, unit in figures if value is not None),
        ),
        advice=advice.text,
        confidence=advice.confidence,
        source=MEASURED_PACES,
        cost_share=case.waiting_share,
    )
