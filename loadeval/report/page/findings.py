"""The findings with evidence and advice, and below them what was checked and found fine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.facts import findings_table
from loadeval.report.formatting import share
from loadeval.report.page.blocks import Advised, Heading, Section, Text
from loadeval.report.tables import Table
from loadeval.report.terminal.findings import UNKNOWN_COST
from loadeval.report.wording import findings as wording
from loadeval.report.wording.advice import finding_advice
from loadeval.report.wording.page import FINE, NO_FINDING, NO_RULES, NOT_OF_REPLAY, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.report import Report
    from loadeval.analysis.rules.finding import Check, Diagnosis, Finding
    from loadeval.report.page.blocks import Block


def findings(report: Report) -> Section:
    """The findings of each run, the costliest first."""
    blocks: list[Block] = []
    for name, diagnosis in report.diagnoses:
        if name:
            blocks.append(Heading(name))
        blocks += _of(diagnosis, level=4 if name else 3)
    if not report.diagnoses:
        blocks.append(Text((NOT_OF_REPLAY,)))
    return Section("findings", "Findings", tuple(blocks))


def _of(diagnosis: Diagnosis, level: int) -> list[Block]:
    blocks: list[Block] = [advised(finding, level) for finding in diagnosis.findings]
    if len(blocks) > 1:
        blocks.insert(0, findings_table(diagnosis))
    if not blocks:
        blocks.append(Text((NO_FINDING if diagnosis.checks else NO_RULES,)))
    fine = [check for check in diagnosis.checks if check.outcome == "nothing found"]
    unknown = [check for check in diagnosis.checks if check.outcome == "not measured"]
    if fine:
        blocks.append(_checks(FINE, fine))
    if unknown:
        blocks.append(_checks(UNKNOWN, unknown))
    return blocks


def _checks(title: str, checks: Sequence[Check]) -> Table:
    rows = tuple(
        (wording.WORDS[check.rule].question, check.outcome, wording.why_not_checked(check))
        for check in checks
    )
    caption = f"{title} ({len(checks)})"
    return Table(caption, ("question", "answer", "why"), rows, folded=True)


def advised(finding: Finding, level: int) -> Advised:
    """A finding as a block, whose heading has that level."""
    cost = finding.cost_share
    costs = UNKNOWN_COST if cost is None else f"costs {share(cost)} of the training time"
    rows = tuple((fact.name, wording.value_in_words(fact)) for fact in finding.evidence)
    evidence = Table(f"Evidence: {finding.rule.value}", ("figure", "value"), rows) if rows else None
    return Advised(
        sentence=wording.finding_sentence(finding),
        tags=(f"{finding.severity} severity", finding.confidence, costs, finding.rule.value),
        severity=finding.severity,
        evidence=evidence,
        places=tuple(wording.places_in_words(finding.places)),
        advice=finding_advice(finding),
        source=wording.source_in_words(finding),
        level=level,
    )
