"""Every rule asked of a run, and what each finding costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from loadeval.analysis.estimate.intervals import FEWEST_PAIRS
from loadeval.analysis.estimate.verdict import MODERATE_SHARE
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules import (
    blocked,
    cpus,
    fetching,
    operators,
    padding,
    resources,
    shards,
    stages,
    starts,
    throughput,
    variability,
)
from loadeval.analysis.rules.case import Case, severity_of
from loadeval.analysis.rules.finding import Advice, Caveat, Check, Diagnosis, Finding, Rule, Unknown
from loadeval.analysis.rules.fixes import FIXES, GENERAL, OF_STARTS, OF_WAITING, gain_of
from loadeval.analysis.rules.gains import with_gains
from loadeval.analysis.rules.inside import LEAST_GAIN
from loadeval.analysis.rules.workers import MUCH, in_users_words, no_cpu_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.rules.case import Answer
    from loadeval.analysis.rules.inside import Inside
    from loadeval.data.run import Run

RULES: dict[Rule, Callable[[Case], Answer]] = {
    Rule.CONFINED: cpus.confined,
    Rule.CAPACITY: throughput.capacity,
    Rule.ZERO_WORKERS: throughput.zero_workers,
    Rule.SHALLOW_QUEUE: throughput.shallow_queue,
    Rule.PER_BATCH_COST: throughput.per_batch_cost,
    Rule.WAITING: throughput.waiting,
    Rule.SLOW_TRANSFORM: fetching.slow_transform,
    Rule.COPIED_PAGES: fetching.copied_pages,
    Rule.DATA_FORMAT: fetching.data_format,
    Rule.SLOW_FETCH: fetching.slow_fetch,
    Rule.SLOW_COLLATE: fetching.slow_collate,
    Rule.TOKENISING: fetching.tokenising,
    Rule.TRANSFER: stages.transfer,
    Rule.SLOW_SAMPLER: stages.slow_sampler,
    Rule.PINNING: stages.pinning,
    Rule.HEAD_OF_LINE: stages.head_of_line,
    Rule.SLOW_SAMPLES: stages.slow_samples,
    Rule.LOCK: blocked.lock,
    Rule.DISK: blocked.disk,
    Rule.STORAGE_LATENCY: blocked.storage_latency,
    Rule.SLOW_WORKER: stages.slow_worker,
    Rule.FEW_SHARDS: shards.few_shards,
    Rule.UNEVEN_SHARDS: shards.uneven_shards,
    Rule.SLOW_OPERATOR: operators.slow_operator,
    Rule.PYTHON_LOCK: operators.python_lock,
    Rule.CONTENTION: cpus.contention,
    Rule.OVERSUBSCRIPTION: cpus.oversubscription,
    Rule.SHARED_MACHINE: cpus.shared_machine,
    Rule.STALLS: variability.stalls,
    Rule.EPOCH_BOUNDARIES: starts.epoch_boundaries,
    Rule.WORKER_START: starts.worker_start,
    Rule.SHUFFLE_BUFFER: starts.shuffle_buffer,
    Rule.SAMPLER_START: starts.sampler_start,
    Rule.LOADER_RECREATED: starts.recreated,
    Rule.SLOW_FIRST_BATCH: starts.slow_first_batch,
    Rule.FALLING_THROUGHPUT: variability.falling_throughput,
    Rule.DRIFT: variability.drift,
    Rule.OUTLIERS: variability.outliers,
    Rule.PROCESS_MEMORY: resources.process_memory,
    Rule.WORKER_MEMORY: resources.worker_memory,
    Rule.UNPINNED_MEMORY: resources.unpinned_memory,
    Rule.HIDDEN_WAITS: resources.waits_hidden,
    Rule.IDLE_GPU: resources.idle_gpu,
    Rule.NOT_REPRESENTATIVE: variability.not_representative,
    Rule.PADDING: padding.padding,
}
"""Findings come in this order where they cost the same, or their cost is not known."""
MOST_OF_THE_WAITING = 0.5
NEARLY = 0.8
EASILY_CHANGED = {Rule.SHALLOW_QUEUE, Rule.FEW_SHARDS}
"""A setting, or how data is divided, is easier to change than what workers do with it."""
BLOCKED = set(blocked.OF_BLOCKAGE.values())
"""What workers wait for that have something to load."""
SEVERITIES = ("high", "moderate", "low")


def diagnose(real: Run, ideal: Run | None = None) -> Diagnosis:
    """What `real` says is wrong: an alternating run, or one that logged, with `ideal` replayed.

    The findings come in the order of the time that they cost; those of which that is not known
    follow, the severest first. Raises UsageError when the two runs cannot be compared.
    """
    if ideal is None and real.header.mode == "replay":
        loaded_nothing = Remark(Unknown.LOADED_NOTHING)
        return Diagnosis((), tuple(Check(rule, "not measured", loaded_nothing) for rule in RULES))
    return diagnosis_of(Case(real, ideal))


def diagnosis_of(case: Case) -> Diagnosis:
    """The same of a case whose headroom is known."""
    answers = [(rule, ask(case)) for rule, ask in RULES.items()]
    sure = [_as_sure(case, answer) for _, answer in answers if isinstance(answer, Finding)]
    findings = sorted(_without_overlap(case, sure), key=_rank)
    advised = [in_users_words(case.loader, with_gains(case, finding)) for finding in findings]
    rules = {finding.rule for finding in findings}
    return Diagnosis(tuple(advised), tuple(_checked(*answer, rules) for answer in answers))


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


def _rank(finding: Finding) -> tuple[bool, float, int]:
    cost = finding.cost_share or 0.0
    return not (_is_confined(finding) and cost), -cost, SEVERITIES.index(finding.severity)


def _checked(rule: Rule, answer: Answer, found: set[Rule]) -> Check:
    """What came of a rule; a finding of which others have all the time is none."""
    if isinstance(answer, Remark):
        return Check(rule, "not measured", answer)
    return Check(rule, "found" if rule in found else "nothing found")


def _without_overlap(case: Case, findings: list[Finding]) -> list[Finding]:
    """`findings` with costs of which no two contain the same time.

    Waiting goes to stalls, and what is left of it to the findings that tell why training waits,
    see `_causes`; slower steps go to contention. Falling throughput, and then outliers, cost what
    none of these tells of. The first waits of epochs lie outside of the steady state that all
    others are shares of, which is scaled so that all are shares of whole epochs.
    """
    findings = _causes(case, findings)
    costs = {finding.rule: finding.cost_share for finding in findings}
    raw = {rule: cost or 0.0 for rule, cost in costs.items()}
    of_both = {Rule.PYTHON_LOCK, Rule.OVERSUBSCRIPTION, Rule.CONFINED}
    of_waits = {Rule.STALLS, Rule.UNEVEN_SHARDS, Rule.SLOW_OPERATOR, *OF_WAITING, *FIXES}
    waits_explained = bool({*of_waits, *of_both} & costs.keys())
    steps_explained = bool({Rule.CONTENTION, *of_both} & costs.keys())
    falling, outliers = Rule.FALLING_THROUGHPUT, Rule.OUTLIERS
    if falling in costs:
        in_waits = variability.waits_grow(case)
        is_explained = waits_explained if in_waits else steps_explained
        costs[falling] = None if is_explained else raw[falling]
        waits_explained = waits_explained or in_waits
        steps_explained = steps_explained or not in_waits
    if outliers in costs:
        explained = (waits_explained, steps_explained)
        parts = zip(variability.outlying_shares(case), explained, strict=True)
        left = sum(part for part, is_explained in parts if not is_explained)
        costs[outliers] = left if left >= variability.WORTH_SAYING else None
    starts_share = case.epoch_starts_share
    if starts_share is None:
        starts_share = max((raw[rule] for rule in OF_STARTS & costs.keys()), default=0.0)
    outside = {*OF_STARTS, Rule.LOADER_RECREATED}
    return [
        _costing(finding, costs[finding.rule], 1.0 if finding.rule in outside else 1 - starts_share)
        for finding in findings
    ]


EXPLAINED_BY = {
    Rule.PYTHON_LOCK: (Rule.CONTENTION,),
    Rule.HEAD_OF_LINE: (Rule.STALLS,),
    Rule.SLOW_SAMPLES: (Rule.STALLS,),
    Rule.UNEVEN_SHARDS: (Rule.STALLS, Rule.DRIFT),
}
"""What is not told beside a cause inside the loader that makes it."""


def _causes(case: Case, findings: list[Finding]) -> list[Finding]:
    """`findings`, those that tell why training waits with what each gains after those before it.

    Stalls come first, unless slow samples or batches that are waited for in order are found to
    make them. Where the loader was looked into, the findings that gain most follow, and what is
    guessed from outside comes last; of those that then gain next to nothing none is left. Workers
    that are kept from CPUs come before all others, and are why they wait for one.
    """
    if any(map(_is_confined, findings)):
        findings = [finding for finding in findings if finding.rule != Rule.OVERSUBSCRIPTION]
    inside, rules = case.inside, {finding.rule for finding in findings}
    stalled = next(
        (finding.cost_share or 0.0 for finding in findings if finding.rule == Rule.STALLS), 0.0
    )
    if inside is None:
        return _causes_outside(case, findings, stalled)
    explained = {rule for cause in rules for rule in EXPLAINED_BY.get(cause, ())}
    findings = [finding for finding in findings if finding.rule not in explained]
    waiting = max(case.waiting_share - (0.0 if Rule.STALLS in explained else stalled), 0.0)
    tail = next((finding for finding in findings if finding.rule == Rule.UNEVEN_SHARDS), None)
    if tail is not None:
        before_ns = float(tail.problem.values["before_ns"] or 0.0)
        waiting = min(waiting, before_ns / (inside.costs.step_ns + before_ns))
    causes = [
        finding for finding in findings if finding.rule in FIXES and finding.cost_share is not None
    ]
    if case.headroom is None and Rule.ZERO_WORKERS in rules:
        # Of a log nothing is predicted: all waiting is for what is loaded while it is waited for.
        of_zero = {Rule.ZERO_WORKERS: waiting}
        return [
            replace(finding, cost_share=of_zero.get(finding.rule)) if finding in causes else finding
            for finding in findings
        ]
    causes = _in_precedence(case, inside, causes)
    left = [
        finding for finding in findings if finding not in causes and finding.rule not in OF_WAITING
    ]
    fixes, gained = [], 0.0
    for finding in causes:
        fixes.append(FIXES[finding.rule](case, inside))
        before, gained = gained, max(inside.gain(fixes), gained)
        cost = (gained - before) * waiting
        if cost >= LEAST_GAIN or finding.rule == Rule.OVERSUBSCRIPTION:
            left.append(replace(finding, cost_share=cost))
    left = _with_contention(case, left, waiting)
    if any(finding.rule in FIXES and finding.cost_share is not None for finding in left):
        return left
    is_left = tail is None or waiting >= MODERATE_SHARE
    unexplained = [finding for finding in findings if finding.rule in OF_WAITING and is_left]
    return [*left, *(replace(finding, cost_share=waiting) for finding in unexplained)]


def _in_precedence(case: Case, inside: Inside, causes: list[Finding]) -> list[Finding]:
    """`causes`, the one that is to be changed first in front.

    It does not say that the loader is too slow where something says why.
    """
    is_too_few = _is_one_worker_too_few(case, inside)
    says_why = any(finding.rule in GENERAL - {Rule.CAPACITY} for finding in causes)
    if says_why and not is_too_few:  # which say how many workers help
        causes = [finding for finding in causes if finding.rule != Rule.CAPACITY]
    special = [finding for finding in causes if finding.rule not in GENERAL]

    def precedence(finding: Finding) -> tuple[bool | float, ...]:
        cost = _cost_of(finding)
        # A worker without a shard waits for nothing: what the others wait for comes after it.
        after = BLOCKED if finding.rule == Rule.FEW_SHARDS else set[Rule]()
        most = max((_cost_of(rival) for rival in special if rival.rule not in after), default=0.0)
        is_easy = finding.rule in EASILY_CHANGED and cost >= NEARLY * most
        return (
            finding.rule != Rule.CONFINED,
            not is_easy,
            _is_general(case, finding),
            _crowds_itself(case, finding),
            is_too_few and finding.rule != Rule.CAPACITY,
            -cost,
        )

    return sorted(causes, key=precedence)


def _causes_outside(case: Case, findings: list[Finding], stalled: float) -> list[Finding]:
    """`findings` of a loader whose batches nobody looked into.

    Threads that hold Python's lock make the steps slower, and have their part of the waiting. An
    operator that holds up the others is why the loader is too slow.
    """
    rules = {finding.rule for finding in findings}
    gone: set[Rule] = set()
    if rules & {Rule.SLOW_OPERATOR, Rule.CONFINED}:
        gone |= OF_WAITING
    explained = stalled
    lock = next((finding for finding in findings if finding.rule == Rule.PYTHON_LOCK), None)
    if lock is not None:
        gone.add(Rule.CONTENTION)
        waits = operators.waiting_for_lock(lock)
        in_stalls = max(stalled + waits - case.waiting_share, 0.0)
        less = replace(lock, cost_share=max(_cost_of(lock) - in_stalls, 0.0))
        findings = [less if finding is lock else finding for finding in findings]
        explained += waits
    return [
        replace(finding, cost_share=max(_cost_of(finding) - explained, 0.0))
        if finding.rule in {*OF_WAITING, Rule.SLOW_OPERATOR, Rule.CONFINED}
        else finding
        for finding in findings
        if finding.rule not in gone
    ]


def _with_contention(case: Case, findings: list[Finding], waiting: float) -> list[Finding]:
    """`findings`, of which the one that takes the CPUs has the cost of slower steps too.

    That is the work that most of the waiting is for, where it leaves no CPU free; else more
    threads than CPUs.
    """
    contention = next((finding for finding in findings if finding.rule == Rule.CONTENTION), None)
    crowded = next((finding for finding in findings if finding.rule == Rule.OVERSUBSCRIPTION), None)
    confined = next(filter(_is_confined, findings), None)
    heaviest = max(
        (finding for finding in findings if finding.rule in GENERAL), key=_cost_of, default=crowded
    )
    if crowded is not None and not _is_general(case, crowded):
        heaviest = crowded
    is_why = heaviest is not None and _cost_of(heaviest) >= MOST_OF_THE_WAITING * waiting
    taker = heaviest if is_why and (crowded or no_cpu_left(case)) else crowded
    allowed = case.cpu_use.allowed
    if confined is not None:  # a CPU of its own is what training then lacks, or not
        is_shared = allowed is not None and allowed.affinity.is_even and not allowed.differ
        taker = confined if is_shared else None
    if contention is not None and taker is not None:
        more = replace(taker, cost_share=_cost_of(taker) + _cost_of(contention))
        findings = [
            more if finding is taker else finding
            for finding in findings
            if finding is not contention
        ]
    # Where the cost is not known, nobody knows that it is small.
    return [
        finding
        for finding in findings
        if finding is not crowded or finding.cost_share is None or finding.cost_share >= LEAST_GAIN
    ]


def _is_confined(finding: Finding) -> bool:
    """Whether it is surely a fault that workers are kept from CPUs."""
    return finding.rule == Rule.CONFINED and finding.cost_share is not None


def _cost_of(finding: Finding) -> float:
    return finding.cost_share or 0.0


def _is_general(case: Case, finding: Finding) -> bool:
    """Whether others tell why as much is lost: a few samples rather than the code for all."""
    if finding.rule == Rule.OVERSUBSCRIPTION:
        is_small = _cost_of(finding) < NEARLY * case.waiting_share
        frees_cpus = finding.changes[0].code == Advice.FREE_CPUS
        are_others = case.inside is not None and case.inside.crowded_out
        is_small = is_small and not are_others
        return _crowds_itself(case, finding) or (frees_cpus and is_small)
    is_small = _cost_of(finding) < MOST_OF_THE_WAITING * case.waiting_share
    return finding.rule in GENERAL or is_small


def _is_one_worker_too_few(case: Case, inside: Inside) -> bool:
    """Whether a second worker has a CPU and pays: that is easier to change than code."""
    is_cpu_free = case.cpu_use.left is not None and not no_cpu_left(case)
    return inside.workers == 1 and is_cpu_free and gain_of(case, Rule.CAPACITY) >= MODERATE_SHARE


def _crowds_itself(case: Case, finding: Finding) -> bool:
    """Whether the work of loading and of the steps is too much for all CPUs, which others name."""
    change, inside, cpus = finding.changes[0], case.inside, case.cpus
    if finding.rule != Rule.OVERSUBSCRIPTION or change.code != Advice.FREE_CPUS:
        return False
    if case.cpu_use.others is not None:
        return "others_cpus" not in change.values or (inside is not None and not inside.keeps_up)
    # Others, which were not read, used at most what training and its workers left.
    own = max(0.0 if inside is None else inside.computing_cpus, case.cpu_use.own or 0.0)
    return cpus is not None and cpus - own < MUCH


def _costing(finding: Finding, cost: float | None, scale: float) -> Finding:
    if cost is None or finding.cost_share is None:
        return replace(finding, cost_share=None)
    return replace(finding, cost_share=cost * scale, severity=severity_of(cost * scale))
