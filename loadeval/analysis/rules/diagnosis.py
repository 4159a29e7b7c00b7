"""Every rule asked of a run, and what each finding costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from loadeval.analysis.intervals import FEWEST_PAIRS
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules import operators, resources, stages, starts, throughput, variability
from loadeval.analysis.rules.case import Case, severity_of
from loadeval.analysis.rules.finding import Advice, Caveat, Check, Diagnosis, Finding, Rule, Unknown
from loadeval.analysis.rules.fixes import FIXES
from loadeval.analysis.rules.gains import with_gains
from loadeval.analysis.rules.inside import LEAST_GAIN
from loadeval.analysis.rules.workers import in_trainers_words, no_cpu_left

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
    Rule.SLOW_TRANSFORM: stages.slow_transform,
    Rule.SLOW_FETCH: stages.slow_fetch,
    Rule.SLOW_COLLATE: stages.slow_collate,
    Rule.TRANSFER: stages.transfer,
    Rule.SLOW_SAMPLER: stages.slow_sampler,
    Rule.PINNING: stages.pinning,
    Rule.HEAD_OF_LINE: stages.head_of_line,
    Rule.SLOW_SAMPLES: stages.slow_samples,
    Rule.LOCK: stages.lock,
    Rule.DISK: stages.disk,
    Rule.STORAGE_LATENCY: stages.storage_latency,
    Rule.SLOW_WORKER: stages.slow_worker,
    Rule.FEW_SHARDS: stages.few_shards,
    Rule.SLOW_OPERATOR: operators.slow_operator,
    Rule.PYTHON_LOCK: operators.python_lock,
    Rule.CONTENTION: resources.contention,
    Rule.SHARED_MACHINE: resources.shared_machine,
    Rule.STALLS: variability.stalls,
    Rule.EPOCH_BOUNDARIES: starts.epoch_boundaries,
    Rule.WORKER_START: starts.worker_start,
    Rule.SHUFFLE_BUFFER: starts.shuffle_buffer,
    Rule.LOADER_RECREATED: starts.recreated,
    Rule.SLOW_FIRST_BATCH: starts.slow_first_batch,
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
OF_STARTS = {
    Rule.EPOCH_BOUNDARIES,
    Rule.WORKER_START,
    Rule.SHUFFLE_BUFFER,
}
"""At most one is found: it costs time outside of the steady state."""
GENERAL = {Rule.SLOW_TRANSFORM, Rule.SLOW_FETCH, Rule.SLOW_COLLATE, Rule.CAPACITY}
"""What nearly all of loading goes into, whatever makes it slow."""
MOST_OF_THE_WAITING = 0.5
SETTINGS = {Rule.SHALLOW_QUEUE}
NEARLY = 0.8
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
    advised = [in_trainers_words(case.loader, with_gains(case, one)) for one in findings]
    return Diagnosis(tuple(advised), tuple(_checked(*answer) for answer in answers))


def _as_sure(case: Case, finding: Finding) -> Finding:
    """The finding, which is only possible where a run too short shows what is lost."""
    of_loss = finding.rule in {*OF_WAITING, *FIXES, Rule.CONTENTION}
    if not case.no_interval or not of_loss or finding.cost_share is None:
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

    Waiting goes to stalls, and what is left of it to the findings that tell why training waits,
    see `_causes`; slower steps go to contention. Falling throughput, and then outliers, cost what
    none of these tells of. The first waits of epochs lie outside of the steady state that all
    others are shares of, which is scaled so that all are shares of whole epochs.
    """
    findings = _causes(case, findings)
    costs = {one.rule: one.cost_share for one in findings}
    raw = {rule: cost or 0.0 for rule, cost in costs.items()}
    of_both = {Rule.PYTHON_LOCK, Rule.OVERSUBSCRIPTION}
    of_waits = {Rule.STALLS, Rule.SLOW_OPERATOR, *OF_WAITING, *FIXES}
    waits_told = bool({*of_waits, *of_both} & costs.keys())
    steps_told = bool({Rule.CONTENTION, *of_both} & costs.keys())
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
    starts_share = case.epoch_starts_share
    if starts_share is None:
        starts_share = max((raw[rule] for rule in OF_STARTS & costs.keys()), default=0.0)
    outside = {*OF_STARTS, Rule.LOADER_RECREATED}
    return [
        _costing(one, costs[one.rule], 1.0 if one.rule in outside else 1 - starts_share)
        for one in findings
    ]


def _causes(case: Case, findings: list[Finding]) -> list[Finding]:
    """`findings`, those that tell why training waits with what each gains after those before it.

    Stalls come first, unless slow samples or batches that are waited for in order are found to
    make them. Where the loader was looked into, the findings that gain most follow, and what is
    guessed from outside comes last; of those that then gain next to nothing none is left.
    """
    inside, rules = case.inside, {one.rule for one in findings}
    stalled = next((one.cost_share or 0.0 for one in findings if one.rule == Rule.STALLS), 0.0)
    if inside is None:
        return _causes_outside(case, findings, stalled)
    if rules & {Rule.HEAD_OF_LINE, Rule.SLOW_SAMPLES}:
        findings, stalled = [one for one in findings if one.rule != Rule.STALLS], 0.0
    waiting = max(case.waiting_share - stalled, 0.0)
    told = [one for one in findings if one.rule in FIXES and one.cost_share is not None]
    if rules & (GENERAL - {Rule.CAPACITY}):  # which also say how many workers help
        told = [one for one in told if one.rule != Rule.CAPACITY]
    told.sort(key=lambda one: (_is_general(case, one), -_cost_of(one)))
    # A setting is easier to change than data.
    most = max((one.cost_share or 0.0 for one in told if one.rule not in GENERAL), default=0.0)
    told.sort(key=lambda one: one.rule not in SETTINGS or _cost_of(one) < NEARLY * most)
    found = [one for one in findings if one not in told and one.rule not in OF_WAITING]
    fixes, gained = [], 0.0
    for one in told:
        fixes.append(FIXES[one.rule](case, inside))
        before, gained = gained, max(inside.gain(fixes), gained)
        cost = (gained - before) * waiting
        if cost >= LEAST_GAIN or one.rule == Rule.OVERSUBSCRIPTION:
            found.append(replace(one, cost_share=cost))
    found = _with_contention(case, found, waiting)
    if any(one.rule in FIXES and one.cost_share is not None for one in found):
        return found
    unexplained = [one for one in findings if one.rule in OF_WAITING]
    return [*found, *(replace(one, cost_share=waiting) for one in unexplained)]


def _causes_outside(case: Case, findings: list[Finding], stalled: float) -> list[Finding]:
    """`findings` of a loader whose batches nobody looked into.

    Threads that hold Python's lock make the steps slower, and have their part of the waiting. An
    operator that holds up the others is why the loader is too slow.
    """
    rules = {one.rule for one in findings}
    gone: set[Rule] = set()
    if Rule.SLOW_OPERATOR in rules:
        gone |= OF_WAITING
    told = stalled
    lock = next((one for one in findings if one.rule == Rule.PYTHON_LOCK), None)
    if lock is not None:
        gone.add(Rule.CONTENTION)
        waits = operators.waiting_for_lock(lock)
        in_stalls = max(stalled + waits - case.waiting_share, 0.0)
        less = replace(lock, cost_share=max(_cost_of(lock) - in_stalls, 0.0))
        findings = [less if one is lock else one for one in findings]
        told += waits
    return [
        replace(one, cost_share=max(_cost_of(one) - told, 0.0))
        if one.rule in {*OF_WAITING, Rule.SLOW_OPERATOR}
        else one
        for one in findings
        if one.rule not in gone
    ]


def _with_contention(case: Case, findings: list[Finding], waiting: float) -> list[Finding]:
    """`findings`, of which the one that takes the CPUs has the cost of slower steps too.

    That is the work that most of the waiting is for, where it leaves no CPU free; else more
    threads than CPUs.
    """
    contention = next((one for one in findings if one.rule == Rule.CONTENTION), None)
    crowded = next((one for one in findings if one.rule == Rule.OVERSUBSCRIPTION), None)
    heaviest = max((one for one in findings if one.rule in GENERAL), key=_cost_of, default=crowded)
    if crowded is not None and not _is_general(case, crowded):
        heaviest = crowded
    is_why = heaviest is not None and _cost_of(heaviest) >= MOST_OF_THE_WAITING * waiting
    taker = heaviest if is_why and (crowded or no_cpu_left(case)) else crowded
    if contention is not None and taker is not None:
        more = replace(taker, cost_share=_cost_of(taker) + _cost_of(contention))
        findings = [more if one is taker else one for one in findings if one is not contention]
    # Of one whose cost is not known, it is not known that it is small either.
    return [
        one
        for one in findings
        if one is not crowded or one.cost_share is None or one.cost_share >= LEAST_GAIN
    ]


def _cost_of(finding: Finding) -> float:
    return finding.cost_share or 0.0


def _is_general(case: Case, finding: Finding) -> bool:
    """Whether others tell why as much is lost: a few samples rather than the code for all."""
    if finding.rule == Rule.OVERSUBSCRIPTION:
        by_others = finding.changes[0].code == Advice.FREE_CPUS
        return by_others and _cost_of(finding) < NEARLY * case.waiting_share
    is_small = _cost_of(finding) < MOST_OF_THE_WAITING * case.waiting_share
    return finding.rule in GENERAL or is_small


def _costing(finding: Finding, cost: float | None, scale: float) -> Finding:
    if cost is None or finding.cost_share is None:
        return replace(finding, cost_share=None)
    return replace(finding, cost_share=cost * scale, severity=severity_of(cost * scale))
