"""Sentences about a run against its baseline: whether it is slower, and what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.baseline import (
    EQUAL_WITHIN,
    LEAST_CHANGE,
    BaselineCaution,
    Pace,
    Period,
)
from loadeval.analysis.estimate.verdict import FEWEST_BATCHES, GateOutcome, Objection
from loadeval.report.formatting import estimated, filled, share, speedup
from loadeval.report.wording.verdict import BY_BATCH, TOO_FEW_FOR_CI, remarks_in_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import Enum

    from loadeval.analysis.baseline import BaselineReport, ChangedFinding

PACES: dict[Enum, str] = {
    Pace.SLOWER: "Slower than the baseline: {throughput}",
    Pace.FASTER: "Faster than the baseline: {throughput}",
    Pace.EQUAL: f"As fast as the baseline, within {EQUAL_WITHIN:.0%}: {{throughput}}",
    Pace.UNDECIDED: "Undecided against the baseline: {reason}",
}
PERIODS = {Period.WHOLE_EPOCHS: "over whole epochs", Period.STEADY: "in the steady state"}
OBJECTIONS: dict[Enum, str] = {
    Objection.NOT_MEASURED: "one of the runs has no steady-state batches",
    Objection.TOO_FEW_BATCHES: (
        "too few batches: {batches:,} now and {before_batches:,} before, and each needs at least "
        f"{FEWEST_BATCHES}"
    ),
    Objection.DRIFT: (
        "iterations drifted by {drift_share:share} within a run, more than the {difference:share} "
        "between the two"
    ),
    Objection.NO_INTERVAL: f"{{throughput}}, {TOO_FEW_FOR_CI}",
    Objection.WIDE_INTERVAL: (
        f"{{throughput}}; the 95% CI is neither beyond {LEAST_CHANGE:.0%} nor within "
        f"{EQUAL_WITHIN:.0%}"
    ),
}
CAUTIONS: dict[Enum, str] = {
    BaselineCaution.OTHER_MACHINE: (
        "The runs are from different machines, whose difference counts as one of the runs."
    ),
    BaselineCaution.BY_BATCH: f"Samples are not known in both runs: {BY_BATCH}.",
    BaselineCaution.STARTS_NOT_JUDGED: (
        "Epoch starts are not judged: that takes two epochs or more in each run, whose starts "
        "differ little."
    ),
    BaselineCaution.SEPARATE_RUNS: (
        "Two runs one after the other also differ by what the machine did meanwhile, and the 95% "
        "CI does not cover that: repeat both to be sure."
    ),
}
GATE: dict[Enum, str] = {
    GateOutcome.ABOVE: (
        "More than {bound} slower: {throughput}; the whole 95% CI is beyond the limit"
    ),
    GateOutcome.NOT_ABOVE: (
        "Not more than {bound} slower: {throughput}; the 95% CI ends at or before the limit"
    ),
    GateOutcome.SPANS: (
        "Undecided whether more than {bound} slower: {throughput}; the 95% CI spans the limit. "
        "Measure more batches or epochs for a narrower interval."
    ),
    GateOutcome.INCONCLUSIVE: (
        "Undecided whether more than {bound} slower: {reason}. Measure more batches or epochs, on "
        "a machine that does nothing else."
    ),
}
NOTHING_CHANGED = "Changed: nothing that the logs tell of loader, versions, machine and measurement"
SAME_FINDINGS = "Findings: none new, none gone"
NOT_CHECKED_BEFORE = "not checked in the baseline"
NOT_CHECKED_NOW = "not checked now"


def baseline_headline(baseline: BaselineReport) -> str:
    """Whether the run is slower than its baseline, in one sentence."""
    values = {"throughput": _throughput(baseline), "reason": _reason(baseline)}
    return filled(PACES[baseline.pace], values)


def slower_sentence(outcome: GateOutcome, baseline: BaselineReport, bound: float) -> str:
    """Whether the run is slower by more than the bound, and why."""
    values = {
        "bound": f"{bound * 100:g}%",
        "throughput": _throughput(baseline),
        "reason": _reason(baseline),
    }
    return filled(GATE[outcome], values)


def baseline_cautions(baseline: BaselineReport) -> list[str]:
    """What makes the comparison mean less than it seems to, a sentence each."""
    return remarks_in_words(CAUTIONS, baseline.cautions)


def finding_changes(baseline: BaselineReport) -> list[str]:
    """The findings that are new, and those that are gone, a line each."""
    lines = [
        *_listed("New finding", baseline.new_findings, NOT_CHECKED_BEFORE),
        *_listed("Gone finding", baseline.gone_findings, NOT_CHECKED_NOW),
    ]
    return lines or [SAME_FINDINGS]


def _listed(label: str, findings: Sequence[ChangedFinding], unchecked: str) -> list[str]:
    lines = []
    for changed in findings:
        cost = changed.finding.cost_share
        remarks = [] if cost is None else [f"{share(cost)} lost"]
        remarks += [] if changed.checked else [unchecked]
        more = f" ({', '.join(remarks)})" if remarks else ""
        lines.append(f"{label}: {changed.finding.rule.value}{more}")
    return lines


def _throughput(baseline: BaselineReport) -> str:
    ratio = estimated(baseline.judged, speedup)
    return f"{ratio} of its throughput, {PERIODS[baseline.period]}"


def _reason(baseline: BaselineReport) -> str:
    """Why nothing is concluded, as a clause; "" where something is."""
    if baseline.objection is None:
        return ""
    judged = baseline.judged
    values = {
        "throughput": _throughput(baseline),
        "batches": baseline.batches,
        "before_batches": baseline.before_batches,
        "drift_share": baseline.drift_share,
        "difference": None if judged is None else abs(judged.value - 1),
    }
    return filled(OBJECTIONS[baseline.objection], values)
