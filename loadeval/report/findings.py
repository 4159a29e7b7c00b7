"""Findings for the terminal: in full, and a row each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from loadeval.report.formatting import printable, share, short_name
from loadeval.report.tables import GAP, NO_LIMIT, Paragraph, wrapped
from loadeval.report.wording.advice import change_in_short, finding_advice, predicted_in_short
from loadeval.report.wording.findings import (
    checked_in_words,
    finding_sentence,
    places_in_words,
    source_in_words,
    value_in_words,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from loadeval.analysis.rules.finding import Diagnosis, Finding

INDENT = 2
UNKNOWN_COST = "cost not known"
SHORT_HEADING = ("finding", "lost", "what to change", "predicted")
"""What is found, the time lost, what to change, and what training would gain by that."""
CHANGE = SHORT_HEADING.index("what to change")
SHORTEST_CHANGE = 26


def diagnosis_report(diagnosis: Diagnosis, name: str = "") -> RenderableType:
    """The findings in the run of that `name`, with all that belongs to them; then the checks."""
    where = f" in {short_name(name)}" if name else ""
    heading = f"Findings{where}{'' if diagnosis.findings else ': none'}"
    parts: list[RenderableType] = [Text(heading, style="bold")]
    for number, finding in enumerate(diagnosis.findings, 1):
        lost = finding.cost_share
        cost = UNKNOWN_COST if lost is None else f"{share(lost)} lost"
        tags = f"{finding.severity}, {cost}, {finding.confidence}"
        parts.append(Text(f"{number}. {finding.rule.value}: {tags}"))
        parts += map(_indented, _lines(finding))
    return Group(*parts, *(Paragraph(printable(line)) for line in checked_in_words(diagnosis)))


def findings_in_short(diagnosis: Diagnosis, width: int = NO_LIMIT) -> list[tuple[str, ...]]:
    """Rows for the findings in `width` columns, under SHORT_HEADING.

    A change that is too long goes on in further rows, whose other cells are empty.
    """
    rows = [
        (
            one.rule.value,
            "unknown" if one.cost_share is None else share(one.cost_share),
            change_in_short(one),
            predicted_in_short(one),
        )
        for one in diagnosis.findings
    ]
    widest = [max(map(len, column)) + GAP for column in zip(SHORT_HEADING, *rows, strict=True)]
    longest = max(width - sum(widest) + widest[CHANGE], SHORTEST_CHANGE)
    found: list[tuple[str, ...]] = []
    for row in rows:
        first, *rest = wrapped(row[CHANGE], longest)
        found += [(*row[:CHANGE], first, *row[CHANGE + 1 :]), *map(_further, rest)]
    return found


def _further(line: str) -> tuple[str, ...]:
    return tuple(line if column == CHANGE else "" for column in range(len(SHORT_HEADING)))


def _lines(finding: Finding) -> list[str]:
    lines = [finding_sentence(finding), f"Advice: {finding_advice(finding)}"]
    if finding.evidence:
        facts = (f"{fact.name} {value_in_words(fact)}" for fact in finding.evidence)
        lines.append(f"Evidence: {'; '.join(facts)}.")
    if finding.places:
        lines.append(f"Where: {'; '.join(places_in_words(finding.places))}.")
    return [*lines, f"Source: {source_in_words(finding)}."]


def _indented(line: str) -> RenderableType:
    return Padding(Paragraph(printable(line)), (0, 0, 0, INDENT))
