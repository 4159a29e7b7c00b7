"""What a loader would be like without what a rule finds, and with other settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.inside.worker_memory import copies_of
from loadeval.analysis.predict.allowed_cpus import SetBy
from loadeval.analysis.predict.change import Change
from loadeval.analysis.predict.scheduling import Affinity
from loadeval.analysis.predict.whatif import spread
from loadeval.analysis.rules.finding import Rule
from loadeval.analysis.rules.inside import LEAST_GAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.estimate.stats import Series
    from loadeval.analysis.rules.case import Case
    from loadeval.analysis.rules.inside import Inside

MOST_DOUBLED = 4
"""A prefetch factor is doubled no more often: each batch in the queue takes memory."""
ENOUGH = 0.98
"""As many workers as reach this share of the best throughput are enough."""


def _faster(share: Callable[[Inside], float | Series]) -> Callable[[Case, Inside], Change]:
    """Batches are fetched and collated in that share of the time."""
    return lambda _case, inside: Change(costs=lambda costs: costs.fetched_in(share(inside)))


def _without(*names: str) -> Callable[[Case, Inside], Change]:
    """A change that leaves nothing of these costs."""
    return lambda _case, _inside: Change(
        costs=lambda costs: replace(costs, **dict.fromkeys(names, np.zeros(len(costs))))  # type: ignore[arg-type]
    )


WITHOUT_LOCK = Change(costs=lambda costs: replace(costs, lock_ns=0.0))
"""Receiving does not wait for Python's lock in workers."""


def blocked_shorter(times: float) -> Change:
    """Workers are blocked for a fraction of the time, as by so many requests at once."""
    return Change(costs=lambda costs: replace(costs, blocked_ns=costs.blocked_ns / times))


def _with_best_workers(case: Case, inside: Inside) -> Change:
    """There are as many workers as bring the most."""
    workers = best_workers(case, inside)
    return Change() if workers is None else Change({"workers": workers}, more_workers=True)


def _share_of_fetching(inside: Inside) -> float:
    stages = inside.stages
    return stages.fetch_ns / (stages.fetch_ns + stages.collate_ns)


def _share_with_balanced_workers(inside: Inside) -> Series:
    slow = inside.slow_worker
    if slow is None:
        return np.ones(len(inside.costs))
    worker, others_ns = slow
    return np.where(inside.costs.worker == worker.worker, others_ns / worker.typical_ns, 1.0)


def _with_own_cpus(_case: Case, inside: Inside) -> Change:
    """Batches take what was seen of them but for waiting for a CPU, and nobody waits for one."""
    scale = inside.model.present.scale
    return Change(
        {"cpus": None, "others_cpus": 0.0},
        lambda costs: costs.off_the_run_queue().fetched_in(1 / scale),
    )


def _with_all_cpus(case: Case, inside: Inside) -> Change:
    """Workers may use all CPUs, and training too, unless only workers were kept from them."""
    use = case.cpu_use
    if use.allowed is None:
        return Change()
    if use.allowed.differ and inside.waiting_worker is not None:
        return _faster(_share_with_balanced_workers)(case, inside)
    every, training = use.allowed.every, use.allowed.affinity.training
    affinity = Affinity(training, every, training)
    by_workers = use.allowed.set_by is SetBy.WORKERS and not affinity.is_even
    settings = {"cpus": float(every), "others_cpus": use.competing_for(every)}
    return Change({**settings, "affinity": affinity if by_workers else None}, more_workers=True)


def _without_copies(case: Case, _inside: Inside) -> Change:
    """Workers copy no pages."""
    copies = copies_of(case.real)
    left = 1.0 if copies is None else 1 - copies.share
    return Change(
        costs=lambda costs: replace(
            costs, cpu_ns=costs.cpu_ns * left, run_queue_ns=costs.run_queue_ns * left
        )
    )


def _share_without_slow_samples(inside: Inside) -> Series:
    share: Series = 1 - inside.costs.slow_ns / np.maximum(inside.costs.fetch_ns, 1.0)
    return share


@dataclass(frozen=True)
class RuleRecord:
    """What a rule's findings are, for what they cost and what changing them brings.

    `removed` is what a loader would be like without what was found, as far as that is simulated,
    and `part` what it is called there, where it has no name. Of those that say why training waits,
    whatever stalls leave of the waiting, and that are guessed from outside (`of_waiting`), a run
    has one at most; so it has of those that cost time at the starts of epochs alone (`of_starts`),
    which no simulation tells. `is_general` is what nearly all of loading goes into, whatever makes
    it slow.
    """

    removed: Callable[[Case, Inside], Change] | None = None
    part: str | None = None
    of_waiting: bool = False
    of_starts: bool = False
    is_general: bool = False


RECORDS: dict[Rule, RuleRecord] = {
    Rule.CONFINED: RuleRecord(_with_all_cpus),
    Rule.CAPACITY: RuleRecord(_with_best_workers, of_waiting=True, is_general=True),
    Rule.ZERO_WORKERS: RuleRecord(_with_best_workers, of_waiting=True),
    Rule.SHALLOW_QUEUE: RuleRecord(
        lambda _case, inside: Change({"prefetch_factor": best_prefetch(inside)}), of_waiting=True
    ),
    Rule.PER_BATCH_COST: RuleRecord(of_waiting=True),
    Rule.WAITING: RuleRecord(of_waiting=True),
    Rule.SLOW_TRANSFORM: RuleRecord(
        _faster(lambda inside: 1 - (min(inside.part.share, 1.0) if inside.part else 0.0)),
        is_general=True,
    ),
    Rule.COPIED_PAGES: RuleRecord(_without_copies),
    Rule.DATA_FORMAT: RuleRecord(
        _faster(lambda inside: 1 - (inside.slow_format.share if inside.slow_format else 0.0)),
        is_general=True,
    ),
    Rule.SLOW_FETCH: RuleRecord(
        _faster(lambda inside: 1 - (inside.line.share if inside.line else 0.0)), is_general=True
    ),
    Rule.TOKENISING: RuleRecord(_faster(lambda inside: 1 - inside.tokenising), is_general=True),
    Rule.SLOW_COLLATE: RuleRecord(_faster(_share_of_fetching), "collate", is_general=True),
    Rule.TRANSFER: RuleRecord(
        lambda case, inside: WITHOUT_LOCK + _without("pickle_ns", "receive_ns")(case, inside),
        "hand-over",
    ),
    Rule.SLOW_SAMPLER: RuleRecord(_without("index_ns"), "indices"),
    Rule.PINNING: RuleRecord(_without("pin_ns"), "pin"),
    Rule.HEAD_OF_LINE: RuleRecord(lambda _case, _inside: Change({"in_order": False})),
    Rule.SLOW_SAMPLES: RuleRecord(_faster(_share_without_slow_samples)),
    Rule.LOCK: RuleRecord(_without("blocked_ns")),
    Rule.DISK: RuleRecord(_without("blocked_ns")),
    Rule.STORAGE_LATENCY: RuleRecord(_without("blocked_ns")),
    Rule.OVERSUBSCRIPTION: RuleRecord(_with_own_cpus),
    Rule.SLOW_WORKER: RuleRecord(_faster(_share_with_balanced_workers)),
    Rule.FEW_SHARDS: RuleRecord(lambda _case, inside: Change({"workers": inside.workers})),
    Rule.WORKER_START: RuleRecord(of_starts=True),
    Rule.SHUFFLE_BUFFER: RuleRecord(of_starts=True),
    Rule.SAMPLER_START: RuleRecord(of_starts=True),
    Rule.EPOCH_BOUNDARIES: RuleRecord(of_starts=True),
}
"""Rules that are not here have nothing of it."""
FIXES = {rule: record.removed for rule, record in RECORDS.items() if record.removed is not None}
OF_WAITING = {rule for rule, record in RECORDS.items() if record.of_waiting}
OF_STARTS = {rule for rule, record in RECORDS.items() if record.of_starts}
GENERAL = {rule for rule, record in RECORDS.items() if record.is_general}


def gain_of(case: Case, rule: Rule) -> float:
    """The share of the steady state that is gained without what `rule` finds, by itself."""
    inside = case.inside
    return 0.0 if inside is None else inside.gain([FIXES[rule](case, inside)]) * case.waiting_share


def best_workers(case: Case, inside: Inside) -> int | None:
    """The fewest workers that come near the best; None where more than now gain next to nothing.

    As many as there are CPUs at most, and more where workers are blocked.
    """
    now, model = inside.setting.workers, case.model
    if now < inside.workers or model is None:  # some have nothing to do already
        return None
    most = max(math.floor((case.cpus or now) / max(1 - inside.recorded.blocked, 0.1)), now + 1)
    speedups = {workers: model.speedup(workers, case.length) for workers in spread(now + 1, most)}
    best = max(speedups.values())
    if best * (1 - LEAST_GAIN) < 1:
        return None
    return next(workers for workers, speedup in speedups.items() if speedup >= ENOUGH * best)


def one_fewer_does(inside: Inside) -> bool:
    """Whether one worker fewer loads as fast."""
    return workers_do(inside, max(inside.setting.workers - 1, 1))


def workers_do(inside: Inside, workers: int) -> bool:
    """Whether so many workers load as fast as those that there are."""
    return inside.model.share_left(Change({"workers": workers})) * ENOUGH <= 1


def best_prefetch(inside: Inside) -> int:
    """The least prefetch factor, of twice the present one and so on, that comes near the best."""
    factors = [inside.setting.prefetch_factor << doubled for doubled in range(1, MOST_DOUBLED + 1)]
    left = {
        factor: inside.model.share_left(Change({"prefetch_factor": factor})) for factor in factors
    }
    least = min(left.values())
    return next(factor for factor, share in left.items() if share * ENOUGH <= least)
