"""Kept batches that do not stand for the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import NotMeasured
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.headroom import dependences

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case


def varying(case: Case) -> Answer:
    """A step's time depends on its batch, and only some batches were replayed."""
    if case.real.header.mode == "alternate":
        return None  # it serves every batch once
    if case.ideal is None:
        return NotMeasured("nothing was replayed")
    found = dependences(case.real, case.ideal)
    if not found:
        return None
    return Finding(
        rule="varying batches",
        severity="moderate",
        sentence=(
            f"A step's time depends on {' and '.join(what.value for what in found)}: the kept "
            "batches may not represent the epoch."
        ),
        evidence=tuple(
            Fact(f"rank correlation with {name.value}", rho, "rank correlation")
            for name, rho in found.items()
        ),
        advice="Measure with mode='alternate', which serves every batch of the loader once.",
        confidence="measured",
        source="rank correlation of the steps with the batches' size, and their place in the epoch",
    )
