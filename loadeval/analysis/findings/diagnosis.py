"""Every rule asked of a run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from loadeval.analysis.findings import (
    capacity,
    contention,
    device,
    epoch_start,
    likeness,
    memory,
    pace,
    queue,
    uneven,
    waiting,
    workers,
)
from loadeval.analysis.findings.case import Case, NotMeasured
from loadeval.analysis.findings.costs import OF_WAITING, without_overlap
from loadeval.analysis.findings.finding import Check, Diagnosis, Finding
from loadeval.analysis.stats import FEWEST_PAIRS

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.findings.case import Answer
    from loadeval.runlog.model import Run


class Rule(NamedTuple):
    """A rule, by the name that its finding has, and what it asks."""

    name: str
    question: str
    ask: Callable[[Case], Answer]


RULES = (
    Rule("capacity", "Is the loader too slow even on its own?", capacity.too_slow),
    Rule("zero workers", "Is nothing loaded ahead?", workers.nothing_ahead),
    Rule("shallow queue", "Does its queue run empty?", queue.too_shallow),
    Rule("hand-over", "Is the wait about the same for every batch?", queue.hand_over),
    Rule("waiting", "Is time lost, and the loader alone not timed?", waiting.unexplained),
    Rule("contention", "Are steps slower while batches are loaded?", contention.contention),
    Rule("other programs", "Did other programs use the CPUs?", contention.other_programs),
    Rule("bursts", "Is most of the waiting for a few batches?", uneven.bursts),
    Rule("epoch boundaries", "Does every epoch begin with a wait?", epoch_start.epoch_boundaries),
    Rule("slow epoch start", "Is the first batch long in coming?", epoch_start.slow_start),
    Rule("falling throughput", "Does training become slower and slower?", pace.falling),
    Rule("drift", "Was one half of the run slower?", pace.drift),
    Rule("outliers", "Do single batches take twice the median?", uneven.outliers),
    Rule("memory of the process", "Does the training process' memory grow?", memory.process_grows),
    Rule("memory of the workers", "Does the workers' memory grow?", memory.workers_grow),
    Rule("too many workers", "Are there more workers than CPUs?", workers.too_many),
    Rule("unpinned memory", "Do batches go to the device unpinned?", device.unpinned),
    Rule("hidden wait", "Are there waits that cost nothing?", device.waits_unfelt),
    Rule("look at the step", "Is the device idle with free loading?", device.idle_device),
    Rule("varying batches", "Do the replayed batches stand for all?", likeness.varying),
)
"""In this order where they cost the same, or what they cost is not known."""
SEVERITIES = ("high", "moderate", "low")
REPLAYED = NotMeasured("this run replayed kept batches, and loaded nothing")


def diagnose(real: Run, ideal: Run | None = None) -> Diagnosis:
    """What `real` says is wrong: an alternating run, or one that logged, with `ideal` replayed.

    The findings come in the order of the time that they cost; those of which that is not known
    follow, the severest first. Raises UsageError when the two runs cannot be compared.
    """
    if ideal is None and real.header.mode == "replay":
        return Diagnosis((), tuple(_checked(rule, REPLAYED) for rule in RULES))
    return diagnosis_of(Case.of(real, ideal))


def diagnosis_of(case: Case) -> Diagnosis:
    """The same of a case whose headroom is known."""
    answers = [(rule, rule.ask(case)) for rule in RULES]
    found = [_as_sure(case, answer) for _, answer in answers if isinstance(answer, Finding)]
    findings = sorted(without_overlap(case, found), key=_rank)
    return Diagnosis(tuple(findings), tuple(_checked(*answer) for answer in answers))


def _as_sure(case: Case, finding: Finding) -> Finding:
    """The finding, which is but possible where a run too short shows what is lost."""
    if not case.too_short or finding.rule not in (*OF_WAITING, "contention"):
        return finding
    pairs = case.headroom and case.headroom.pairs
    few = "Two runs this short have no interval: more batches in both give one."
    if pairs:
        missing = math.ceil((FEWEST_PAIRS - pairs) * len(case.real.steps) / pairs)
        few = (
            f"Fewer than {FEWEST_PAIRS} pairs were measured, so there is no interval: about "
            f"{missing} more batches give one."
        )
    return replace(finding, confidence="possible", sentence=f"{finding.sentence} {few}")


def _rank(finding: Finding) -> tuple[float, int]:
    return -(finding.cost_share or 0.0), SEVERITIES.index(finding.severity)


def _checked(rule: Rule, answer: Answer) -> Check:
    if isinstance(answer, NotMeasured):
        return Check(rule.name, rule.question, "not measured", answer.reason)
    return Check(rule.name, rule.question, "nothing found" if answer is None else "found")
