"""Every rule asked of a run, and what each finding costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from loadeval.analysis.intervals import FEWEST_PAIRS
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules import resources, throughput, variability
from loadeval.analysis.rules.case import Case, severity_of
from loadeval.analysis.rules.finding import Caveat, Check, Diagnosis, Finding, Rule, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.rules.case import Answer
    from loadeval.runlog.model import Run

RULES: dict[Rule, Callable[[Case], Answer]] = {
    Rule.CAPACITY: throughput.capacity,
    Rule.ZERO_WORKERS: throughput.zero_workers,
    Rule.SHALLOW_QUEUE: throughput.shallow_queue,
    Rule.PER_BATCH_COST: throughput.per_batch_cost,
    Rule.WAITING: throughput.waiting,
    Rule.CONTENTION: resources.contention,
    Rule.SHARED_MACHINE: resources.shared_machine,
    Rule.STALLS: variability.stalls,
    Rule.EPOCH_BOUNDARIES: variability.epoch_boundaries,
    Rule.SLOW_FIRST_BATCH: variability.slow_first_batch,
    Rule.FALLING_THROUGHPUT: variability.falling_throughput,
    Rule.DRIFT: variability.drift,
    Rule.OUTLIERS: variability.outliers,
    Rule.PROCESS_MEMORY: resources.process_memory,
    Rule.WORKER_MEMORY: resources.worker_memory,
    Rule.OVERSUBSCRIPTION: resources.oversubscription,
    Rule.UNPINNED_MEMORY: resources.unpinned_memory,
    Rule.HIDDEN_WAITS: resources.waits_hidden,
    Rule.IDLE_GPU: resources.idle_gpu,
    Rule.NOT_REPRESENTATIVE: variability.not_representative,
}
"""In this order where they cost the same, or what they cost is not known."""
OF_WAITING = {
    Rule.CAPACITY,
    Rule.ZERO_WORKERS,
    Rule.SHALLOW_QUEUE,
    Rule.PER_BATCH_COST,
    Rule.WAITING,
}
"""At most one is found in a run: why training waits, whatever stalls leave of the waiting."""
SEVERITIES = ("high", "moderate", "low")


def diagnose(real: Run, ideal: Run | None = None) -> Diagnosis:
    """What `real` says is wrong: an alternating run, or one that logged, with `ideal` replayed.

    The findings come in the order of the time that they cost; those of which that is not known
    follow, the severest first. Raises UsageError when the two runs cannot be compared.
    """
    if ideal is None and real.header.mode == "replay":
        loaded_nothing = Remark(Unknown.LOADED_NOTHING)
        return Diagnosis((), tuple(Check(rule, "not measured", loaded_nothing) for rule in RULES))
    return diagnosis_of(Case.of(real, ideal))


def diagnosis_of(case: Case) -> Diagnosis:
    """The same of a case whose headroom is known."""
    answers = [(rule, ask(case)) for rule, ask in RULES.items()]
    found = [_as_sure(case, answer) for _, answer in answers if isinstance(answer, Finding)]
    findings = sorted(_without_overlap(case, found), key=_rank)
    return Diagnosis(tuple(findings), tuple(_checked(*answer) for answer in answers))


def _as_sure(case: Case, finding: Finding) -> Finding:
    """The finding, which is only possible where a run too short shows what is lost."""
    if not case.no_interval or finding.rule not in {*OF_WAITING, Rule.CONTENTION}:
        return finding
    caveat, pairs = Remark(Caveat.RUNS_TOO_SHORT), case.headroom and case.headroom.pairs
    if pairs:
        missing = math.ceil((FEWEST_PAIRS - pairs) * len(case.real.steps) / pairs)
        values = {"pairs": pairs, "needed": FEWEST_PAIRS, "more_batches": missing}
        caveat = Remark(Caveat.TOO_FEW_PAIRS, values)
    return replace(finding, confidence="possible", caveat=caveat)


def _rank(finding: Finding) -> tuple[float, int]:
    return -(finding.cost_share or 0.0), SEVERITIES.index(finding.severity)


def _checked(rule: Rule, answer: Answer) -> Check:
    if isinstance(answer, Remark):
        return Check(rule, "not measured", answer)
    return Check(rule, "nothing found" if answer is None else "found")


def _without_overlap(case: Case, findings: list[Finding]) -> list[Finding]:
    """`findings` with costs of which no two contain the same time.

    Waiting goes to stalls, and what is left of it to the finding that tells why training waits;
    slower steps go to contention. Falling throughput, and then outliers, cost what none of these
    tells of. The first waits of epochs lie outside of the steady state that all others are shares
    of, which is scaled so that all are shares of whole epochs.
    """
    costs = {one.rule: one.cost_share for one in findings}
    raw = {rule: cost or 0.0 for rule, cost in costs.items()}
    for rule in OF_WAITING & costs.keys():
        costs[rule] = max(raw[rule] - raw.get(Rule.STALLS, 0.0), 0.0)
    waits_told = bool({Rule.STALLS, *OF_WAITING} & costs.keys())
    steps_told = Rule.CONTENTION in costs
    falling, outliers = Rule.FALLING_THROUGHPUT, Rule.OUTLIERS
    if falling in costs:
        in_waits = variability.waits_grow(case)
        told = waits_told if in_waits else steps_told
        costs[falling] = None if told else raw[falling]
        waits_told, steps_told = waits_told or in_waits, steps_told or not in_waits
    if outliers in costs:
        told_of = (waits_told, steps_told)
        parts = zip(variability.outlying_shares(case), told_of, strict=True)
        left = sum(part for part, told in parts if not told)
        costs[outliers] = left if left >= variability.WORTH_SAYING else None
    start = Rule.EPOCH_BOUNDARIES
    starts_share = case.epoch_starts_share
    steady = 1 - (raw.get(start, 0.0) if starts_share is None else starts_share)
    return [
        _costing(one, costs[one.rule], 1.0 if one.rule == start else steady) for one in findings
    ]


def _costing(finding: Finding, cost: float | None, scale: float) -> Finding:
    if cost is None or finding.cost_share is None:
        return replace(finding, cost_share=None)
    return replace(finding, cost_share=cost * scale, severity=severity_of(cost * scale))
