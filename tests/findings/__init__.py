"""Findings: what is said of runs that a builder made, and of the recorded ones."""

from __future__ import annotations

from loadeval.data.run import Run
from loadeval.findings.engine import diagnose


def told(rule: str, run: Run, ideal: Run | None = None, **others: Run) -> tuple[str, ...]:
    """What a rule says of a run, and then what to do; or why it could not tell; or nothing."""
    diagnosis = diagnose(run, ideal, **others)
    if rule in diagnosis.skipped:
        return (diagnosis.skipped[rule],)
    found = (each for each in diagnosis.findings if each.rule == rule)
    return next(((each.says, *(do.says for do in each.do)) for each in found), ())
