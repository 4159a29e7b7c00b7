"""What a loader would be like without what a rule finds, and with other settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.analysis.rules.finding import Rule
from loadeval.analysis.rules.inside import LEAST_GAIN
from loadeval.analysis.simulation import Costs, Setting, iteration_ns, replayed
from loadeval.analysis.whatif import GROWTH, handed_over, spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.rules.case import Case
    from loadeval.analysis.rules.inside import Fix, Inside
    from loadeval.analysis.stats import Series

MOST_DOUBLED = 4
"""Times that a prefetch factor is doubled: each batch in the queue takes memory."""
ENOUGH = 0.98
"""Of the best throughput: as many workers as reach that are enough."""


def _faster(share: Callable[[Inside], float | Series]) -> Callable[[Case, Inside], Fix]:
    """Batches are fetched and collated in that share of the time."""
    return lambda _case, inside: (
        lambda costs, setting: (
            costs.fetched_in(share(inside)),
            setting,
        )
    )


def _without(*names: str) -> Callable[[Case, Inside], Fix]:
    """Nothing of these costs is left."""

    def fix(costs: Costs, setting: Setting) -> tuple[Costs, Setting]:
        gone: dict[str, Any] = dict.fromkeys(names, np.zeros(len(costs)))
        return replace(costs, **gone), setting

    return lambda _case, _inside: fix


def without_lock(costs: Costs, setting: Setting) -> tuple[Costs, Setting]:
    """Receiving does not wait for Python's lock in workers."""
    return replace(costs, lock_ns=0.0), setting


def _without_transfer(case: Case, inside: Inside) -> Fix:
    handed_over = _without("pickle_ns", "receive_ns")(case, inside)
    return lambda costs, setting: handed_over(*without_lock(costs, setting))


def _in(**changed: Any) -> Callable[[Case, Inside], Fix]:
    """With these settings."""
    return lambda _case, _inside: lambda costs, setting: (costs, replace(setting, **changed))


def _with_best_workers(case: Case, inside: Inside) -> Fix:
    """With as many workers as bring the most, on the CPUs that they share as in predictions."""
    workers, recorded = best_workers(case, inside), case.recorded
    if workers is None or recorded is None:
        return lambda costs, setting: (costs, setting)

    def fix(costs: Costs, setting: Setting) -> tuple[Costs, Setting]:
        costs = replace(costs, step_cpus=recorded.costs.step_cpus)
        shared = replace(
            setting,
            cpus=recorded.setting.cpus,
            others_cpus=recorded.setting.others_cpus,
            growth=GROWTH[1],
        )
        costs = replace(costs, cpu_ns=costs.cpu_ns / replayed(costs, shared).grown)
        if not setting.workers:
            costs = handed_over(recorded, costs)
        return costs, replace(shared, workers=workers)

    return fix


def _with_balanced_workers(inside: Inside) -> Series:
    found = inside.slow_worker
    if found is None:
        return np.ones(len(inside.costs))
    worker, others_ns = found
    return np.where(inside.costs.worker == worker.worker, others_ns / worker.typical_ns, 1.0)


FIXES: dict[Rule, Callable[[Case, Inside], Fix]] = {
    Rule.SLOW_TRANSFORM: _faster(lambda one: 1 - min(one.stages.transforms[0].share, 1.0)),
    Rule.SLOW_FETCH: _faster(lambda one: 1 - (one.line.share if one.line else 0.0)),
    Rule.SLOW_COLLATE: _faster(
        lambda one: one.stages.fetch_ns / (one.stages.fetch_ns + one.stages.collate_ns)
    ),
    Rule.TRANSFER: _without_transfer,
    Rule.SLOW_SAMPLER: _without("index_ns"),
    Rule.PINNING: _without("pin_ns"),
    Rule.HEAD_OF_LINE: _in(in_order=False),
    Rule.SLOW_SAMPLES: _faster(
        lambda one: 1 - one.costs.slow_ns / np.maximum(one.costs.fetch_ns, 1.0)
    ),
    Rule.LOCK: _without("blocked_ns"),
    Rule.DISK: _without("blocked_ns"),
    Rule.STORAGE_LATENCY: _without("blocked_ns"),
    Rule.OVERSUBSCRIPTION: _without("run_queue_ns"),
    Rule.SLOW_WORKER: _faster(_with_balanced_workers),
    Rule.FEW_SHARDS: lambda _case, inside: (
        lambda costs, setting: (costs, replace(setting, workers=inside.workers))
    ),
    Rule.CAPACITY: _with_best_workers,
    Rule.ZERO_WORKERS: _with_best_workers,
    Rule.SHALLOW_QUEUE: lambda _case, inside: (
        lambda costs, setting: (
            costs,
            replace(setting, prefetch_factor=best_prefetch(inside)),
        )
    ),
}
"""What a loader would be like without what each rule finds, as far as that is simulated."""


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
    most = max(math.floor((case.cpus or now) / max(1 - inside.blocked, 0.1)), now + 1)
    speedups = {workers: model.speedup(workers, case.length) for workers in spread(now + 1, most)}
    best = max(speedups.values())
    if best * (1 - LEAST_GAIN) < 1:
        return None
    return next(workers for workers, speedup in speedups.items() if speedup >= ENOUGH * best)


def fewer_workers_do(inside: Inside) -> bool:
    """Whether one worker fewer loads as fast."""
    fewer = replace(inside.setting, workers=max(inside.setting.workers - 1, 1))
    return iteration_ns(inside.costs, fewer) * ENOUGH <= inside.base_ns


def best_prefetch(inside: Inside) -> int:
    """The least prefetch factor, of twice the present one and so on, that comes near the best."""
    times = {}
    for doubled in range(1, MOST_DOUBLED + 1):
        factor = inside.setting.prefetch_factor << doubled
        times[factor] = iteration_ns(inside.costs, replace(inside.setting, prefetch_factor=factor))
    best_ns = min(times.values())
    return next(factor for factor, ns in times.items() if ns * ENOUGH <= best_ns)
