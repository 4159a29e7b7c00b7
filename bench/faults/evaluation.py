"""What loadeval says of a program with a fault, and whether that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval import LoaderEvaluator, describe, diagnose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.zoo.programs import Program, Training
    from loadeval import Finding

ALSO_RIGHT = {
    "slow transform": {"slow fetch"},
    "slow fetch": {"slow transform"},
    "capacity": {"slow fetch", "slow transform"},
    "stalls": {"shallow queue", "slow fetch"},
    "slow samples": {"shallow queue"},
}
"""Other findings that name the same thing to change, as `Program.named` checks."""


def measured(
    program: Program, make: Callable[[Path], Training], folder: Path
) -> tuple[Finding, ...]:
    """What is found in an alternating run of a training of `program`'s.

    It keeps its files in `folder`.
    """
    stages = None if program.looks_inside else False
    folder.mkdir(parents=True, exist_ok=True)
    training = make(folder)
    loader = LoaderEvaluator(training.loader, mode="alternate", seed=0, stages=stages)
    try:
        training.run(loader)
        return diagnose(loader.recorded()).findings
    finally:
        training.close()
        loader.close()


def is_named(program: Program, findings: Sequence[Finding]) -> bool:
    """Whether the first finding is the fault, and names it."""
    if not findings:
        return False
    rules = {program.cause, *ALSO_RIGHT.get(program.cause, ())}
    said = f"{describe(findings[0])} {findings[0].evidence}"
    return findings[0].rule.value in rules and program.named.lower() in said.lower()


def is_nothing_found(findings: Sequence[Finding]) -> bool:
    """Whether no finding tells to change the loader: none that matters, and costs time."""
    return not any(finding.severity != "low" and finding.cost_share for finding in findings)
