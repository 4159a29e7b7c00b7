"""Why a comparison has no figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.advice import MORE_PAIRS, NO_STEADY
from loadeval.analysis.verdict import INCONCLUSIVE, Verdict
from loadeval.runlog.model import UNKNOWN

if TYPE_CHECKING:
    from loadeval.analysis.figures import Figures
    from loadeval.runlog.model import Run


def no_pair(run: Run, found: Figures) -> Verdict:
    """Of an alternating run."""
    name = run.path or run.header.name
    if found.real_batches:
        reason = f"{name} has pairs that took no time by its clock"
    else:
        reason = (
            f"{name} is too short for a pair of blocks, one of real loading and one of ideal: it "
            f"has {len(run.steps)} batches in all"
        )
    return Verdict(INCONCLUSIVE, reason, MORE_PAIRS)


def no_pace(sides: list[tuple[Run, int, float | None]]) -> Verdict:
    """Of two runs, each with its number of steady batches and its pace."""
    why = [_why(run, steady) for run, steady, pace_ns in sides if pace_ns is None]
    return Verdict(INCONCLUSIVE, "; ".join(why), NO_STEADY)


def _why(run: Run, steady: int) -> str:
    name = run.path or run.header.name
    if steady:
        return f"{name} has steady batches that took no time by its clock"
    if len(run.steps) and (run.steps.step_ns == UNKNOWN).all():
        return f"{name} has no batch whose step was measured: was its epoch broken off?"
    return (
        f"{name} has no steady batch: it has {run.batches} in all, and the first "
        f"{run.header.warmup} of each epoch are left out"
    )
