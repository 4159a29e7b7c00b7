"""Memory that grows while training goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import NotMeasured
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.memory import growth

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case

HOURS_OF_A_DAY = 24


def process_grows(case: Case) -> Answer:
    """The training process keeps more and more."""
    return _grows(case, "process", "The training process'")


def workers_grow(case: Case) -> Answer:
    """The loader's workers keep more and more."""
    return _grows(case, "workers", "The workers'")


def _grows(case: Case, subject: str, whose: str) -> Answer:
    found = growth(case.real, subject)
    pace = found.bytes_per_hour
    if pace is None or found.limit_bytes is None:
        return NotMeasured(f"memory: {found.reason.code.value}")
    if not found.grows:
        return None
    fills_in_a_day = pace.value * HOURS_OF_A_DAY >= found.limit_bytes
    return Finding(
        rule=f"memory of the {subject}",
        severity="high" if fills_in_a_day else "moderate",
        sentence=f"{whose} memory grows.",
        evidence=(
            Fact("growth in an hour", pace.value, "bytes", pace.low, pace.high),
            Fact("memory there is", found.limit_bytes, "bytes"),
        ),
        advice=found.advice.value if found.advice else "",
        confidence="measured",
        source="Theil's and Sen's slope of the memory that was read",
    )
