"""What loadeval says of a program with a fault, and whether that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.judge import Said, compared
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.judge import Finding
    from bench.zoo.programs import Program, Training

ALSO_RIGHT = {
    "slow transform": {"slow fetch"},
    "slow fetch": {"slow transform"},
    "waiting": {"slow fetch", "slow transform"},
    "stalls": {"shallow queue", "slow fetch", "data format"},
    "slow samples": {"shallow queue"},
}
"""Other findings that name the same thing to change, as `Program.named` checks."""
MATTERS = 0.05
"""Of the time."""


def measured(program: Program, make: Callable[[Path], Training], folder: Path) -> Said:
    """What is said of an alternating run of a training of `program`'s.

    It keeps its files in `folder`.
    """
    stages = None if program.looks_inside else False
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "run.jsonl"
    training = make(folder)
    loader = LoaderEvaluator(training.loader, mode="alternate", seed=0, stages=stages, log_file=log)
    try:
        training.run(loader)
    finally:
        training.close()
        loader.close()
    return compared(log)


def is_named(program: Program, findings: Sequence[Finding]) -> bool:
    """Whether the first finding is the fault, and names it."""
    if not findings:
        return False
    rules = {program.cause, *ALSO_RIGHT.get(program.cause, ())}
    return findings[0].rule in rules and program.named.lower() in findings[0].text.lower()


def is_nothing_found(findings: Sequence[Finding]) -> bool:
    """Whether no finding tells to change the loader: none costs as much time as matters."""
    return not any((finding.cost or 0.0) >= MATTERS for finding in findings)
