"""Findings for the terminal, their figures in words, and the same as JSON-ready values."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from loadeval.report.formatting import (
    LONGEST_NAME,
    counted,
    duration,
    number,
    printable,
    share,
    shortened,
    size,
    speedup,
)
from loadeval.report.tables import Paragraph
from loadeval.report.wording_findings import (
    QUESTIONS,
    change_in_short,
    finding_advice,
    finding_sentence,
    finding_source,
    why_not_checked,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from loadeval.analysis.remark import Remark
    from loadeval.analysis.rules.finding import Check, Diagnosis, Fact, Finding, Place

INDENT = 2
IN_SHORT = ("finding", "lost", "evidence", "what to change")
LONGEST_CHANGE = 44
MOST_PLACES = 5
IN_WORDS: dict[str, Callable[[float], str]] = {
    "ns": duration,
    "bytes": size,
    "share": share,
    "x": speedup,
}
"""How a figure is told, by its unit; of other units it is the number of what is counted."""


def diagnosis_report(diagnosis: Diagnosis, name: str = "") -> RenderableType:
    """The findings in the run of that `name`, with all that belongs to them, and what was asked."""
    findings = [
        part
        for number, finding in enumerate(diagnosis.findings, 1)
        for part in _finding(number, finding)
    ]
    where = f" in {printable(shortened(name, LONGEST_NAME))}" if name else ""
    heading = f"Findings{where}" if findings else f"Findings{where}: none"
    return Group(
        Text(heading, style="bold"), *findings, *map(_indented, checked_in_words(diagnosis))
    )


def findings_in_short(diagnosis: Diagnosis) -> list[tuple[str, ...]]:
    """For each finding its rule, what it costs, how sure it is and what to change."""
    return [
        (
            one.rule.value,
            "unknown" if one.cost_share is None else share(one.cost_share),
            one.confidence,
            shortened(change_in_short(one), LONGEST_CHANGE),
        )
        for one in diagnosis.findings
    ]


def checked_in_words(diagnosis: Diagnosis) -> list[str]:
    """What was checked without a finding, and what could not be and why, in a line each."""
    clear = [check.rule.value for check in diagnosis.checks if check.outcome == "nothing found"]
    reasons: dict[str, list[str]] = {}
    for check in diagnosis.checks:
        if check.outcome == "not measured":
            reasons.setdefault(why_not_checked(check), []).append(check.rule.value)
    lines = [f"Nothing found: {', '.join(clear)}."] if clear else []
    unknown = "; ".join(f"{', '.join(rules)} ({reason})" for reason, rules in reasons.items())
    return [*lines, f"Not measured: {unknown}."] if unknown else lines


def heading_of(finding: Finding) -> str:
    """The rule's name, how severe it is, what it costs, and how sure that is."""
    cost = "cost not known" if finding.cost_share is None else f"{share(finding.cost_share)} lost"
    return f"{finding.rule.value}: {finding.severity}, {cost}, {finding.confidence}"


def fact_in_words(fact: Fact) -> str:
    """A figure with its name and unit, and its interval where it has one."""
    return f"{fact.name} {value_in_words(fact)}"


def value_in_words(fact: Fact) -> str:
    """The figure alone, with its interval where it has one."""
    told = IN_WORDS.get(fact.unit, _plain)
    unit = "" if fact.unit in IN_WORDS or fact.unit in fact.name else f" {fact.unit}"
    if fact.low is None or fact.high is None:
        return f"{told(fact.value)}{unit}"
    return f"{told(fact.value)} [{told(fact.low)}, {told(fact.high)}]{unit}"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else number(value)


def place_in_words(place: Place) -> str:
    """A batch: its epoch and number, when it was asked for, how long it took and was waited for."""
    when = "" if place.start_ns is None else f" at {duration(place.start_ns)}"
    took = ""
    if place.start_ns is not None and place.end_ns is not None:
        took = f"took {duration(place.end_ns - place.start_ns)}, "
    return (
        f"epoch {place.epoch}, batch {place.batch:,}{when}: {took}waited {duration(place.wait_ns)}"
    )


def diagnosis_as_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """The findings and checks with their codes, numbers and sentences."""
    return {
        "findings": [finding_as_dict(finding) for finding in diagnosis.findings],
        "checks": [_check_as_dict(check) for check in diagnosis.checks],
    }


def finding_as_dict(finding: Finding) -> dict[str, Any]:
    """A finding with its codes, numbers and sentences."""
    return {
        "rule": finding.rule.value,
        "severity": finding.severity,
        "confidence": finding.confidence,
        **_remark_as_dict(finding.problem),
        "caveat": None if finding.caveat is None else _remark_as_dict(finding.caveat),
        "sentence": finding_sentence(finding),
        "evidence": [dataclasses.asdict(fact) for fact in finding.evidence],
        "changes": [_remark_as_dict(change) for change in finding.changes],
        "advice": finding_advice(finding),
        "source": finding_source(finding),
        "cost_share": finding.cost_share,
        "places": [dataclasses.asdict(place) for place in finding.places],
    }


def _check_as_dict(check: Check) -> dict[str, Any]:
    return {
        "rule": check.rule.value,
        "question": QUESTIONS[check.rule],
        "outcome": check.outcome,
        "code": None if check.reason is None else check.reason.code.value,
        "values": {} if check.reason is None else dict(check.reason.values),
        "reason": why_not_checked(check),
    }


def _remark_as_dict(remark: Remark) -> dict[str, Any]:
    return {"code": remark.code.value, "values": dict(remark.values)}


def _finding(number: int, finding: Finding) -> list[RenderableType]:
    lines = [finding_sentence(finding), f"Advice: {finding_advice(finding)}"]
    if finding.evidence:
        lines.append(f"Evidence: {'; '.join(map(fact_in_words, finding.evidence))}.")
    if finding.places:
        lines.append(f"Where: {'; '.join(map(place_in_words, finding.places[:MOST_PLACES]))}")
        more = len(finding.places) - MOST_PLACES
        if more > 0:
            lines[-1] += f"; and {counted(more, 'batch', 'batches')} more."
    lines.append(f"Source: {finding_source(finding)}.")
    return [Text(f"{number}. {heading_of(finding)}"), *map(_indented, lines)]


def _indented(line: str) -> RenderableType:
    return Padding(Paragraph(printable(line)), (0, 0, 0, INDENT))
