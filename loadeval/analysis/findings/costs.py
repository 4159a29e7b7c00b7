"""What each finding costs of the time, so that no time is counted in two of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import severity_of
from loadeval.analysis.findings.pace import waits_grow
from loadeval.analysis.findings.uneven import WORTH_SAYING, outlying_shares

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Case
    from loadeval.analysis.findings.finding import Finding

OF_WAITING = ("capacity", "zero workers", "shallow queue", "hand-over", "waiting")
"""At most one is found in a run: why training waits, whatever bursts leave of the waiting."""
START = "epoch boundaries"


def without_overlap(case: Case, findings: list[Finding]) -> list[Finding]:
    """`findings` with costs of which no two contain the same time.

    Waiting goes to bursts, and what is left of it to the finding that tells why training waits;
    slower steps go to contention. Falling throughput, and then outliers, cost what none of these
    tells of. The first waits of epochs lie outside of the steady time that all others are shares
    of, which is scaled so that all are shares of whole epochs.
    """
    costs = {one.rule: one.cost_share for one in findings}
    raw = {rule: cost or 0.0 for rule, cost in costs.items()}
    for rule in set(OF_WAITING) & costs.keys():
        costs[rule] = max(raw[rule] - raw.get("bursts", 0.0), 0.0)
    waits_told = bool({"bursts", *OF_WAITING} & costs.keys())
    steps_told = "contention" in costs
    if "falling throughput" in costs:
        told = waits_told if waits_grow(case) else steps_told
        costs["falling throughput"] = None if told else raw["falling throughput"]
        waits_told, steps_told = waits_told or waits_grow(case), steps_told or not waits_grow(case)
    if "outliers" in costs:
        told_of = (waits_told, steps_told)
        parts = zip(outlying_shares(case), told_of, strict=True)
        left = sum(part for part, told in parts if not told)
        costs["outliers"] = left if left >= WORTH_SAYING else None
    steady = 1 - raw.get(START, 0.0)
    return [
        _costing(one, costs[one.rule], 1.0 if one.rule == START else steady) for one in findings
    ]


def _costing(finding: Finding, cost: float | None, scale: float) -> Finding:
    if cost is None or finding.cost_share is None:
        return replace(finding, cost_share=None)
    return replace(finding, cost_share=cost * scale, severity=severity_of(cost * scale))
