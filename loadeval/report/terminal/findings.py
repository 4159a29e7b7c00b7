"""Findings for the terminal, in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from loadeval.report.formatting import printable, share
from loadeval.report.tables import Paragraph
from loadeval.report.wording import findings as wording
from loadeval.report.wording.advice import finding_advice

if TYPE_CHECKING:
    from rich.console import RenderableType

    from loadeval.analysis.rules.finding import Diagnosis, Finding

INDENT = 2
UNKNOWN_COST = "cost not known"


def diagnosis_report(diagnosis: Diagnosis) -> RenderableType:
    """The findings, with all that belongs to them; then the checks."""
    heading = f"Findings{'' if diagnosis.findings else ': none'}"
    parts: list[RenderableType] = [Text(heading, style="bold")]
    for number, finding in enumerate(diagnosis.findings, 1):
        lost = finding.cost_share
        cost = UNKNOWN_COST if lost is None else f"{share(lost)} lost"
        tags = f"{finding.severity}, {cost}, {finding.confidence}"
        parts.append(Text(f"{number}. {finding.rule.value}: {tags}"))
        parts += map(_indented, _lines(finding))
    return Group(
        *parts, *(Paragraph(printable(line)) for line in wording.checked_in_words(diagnosis))
    )


def _lines(finding: Finding) -> list[str]:
    lines = [wording.finding_sentence(finding), f"Advice: {finding_advice(finding)}"]
    if finding.evidence:
        facts = (f"{fact.name} {wording.value_in_words(fact)}" for fact in finding.evidence)
        lines.append(f"Evidence: {'; '.join(facts)}.")
    if finding.places:
        lines.append(f"Where: {'; '.join(wording.places_in_words(finding.places))}.")
    return [*lines, f"Source: {wording.source_in_words(finding)}."]


def _indented(line: str) -> RenderableType:
    return Padding(Paragraph(printable(line)), (0, 0, 0, INDENT))
