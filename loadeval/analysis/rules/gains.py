"""What following each piece of advice would bring; advice that brings nothing is dropped.

Of a setting it is what training gains with the new value. Of code that is to be made cheaper it is
what twice as fast brings, and of what should go away (a lock, slow samples, epoch starts) what
training gains at most, when all of it is gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import Advice, Rule
from loadeval.analysis.rules.fixes import FIXES, gain_of, without_lock

if TYPE_CHECKING:
    from enum import Enum

    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Case
    from loadeval.analysis.rules.finding import Finding
    from loadeval.analysis.whatif import LoaderModel, Prediction

LEAST_SPEEDUP = 1.02
"""Of training: advice that brings less is not given."""
TWICE = 2.0
MOST_GONE = 0.99
"""Of the time: more is not predicted."""
MORE_WORKERS = {Advice.RAISE, Advice.TRY_WORKERS}
OTHER_WORKERS = {Advice.RAISE, Advice.LOAD_IN_TRAINING}
PREDICTED = ("num_workers", "prefetch_factor")
CHEAPER = {
    Advice.CHEAPER_NAMED,
    Advice.CHEAPER_COLLATE,
    Advice.CHEAPER_SAMPLER,
    Advice.SEND_FEWER,
    Advice.SEND_LESS_OFTEN,
}
"""Advice that makes code take less time."""
PARTS = {
    Rule.SLOW_COLLATE: "collate",
    Rule.SLOW_SAMPLER: "indices",
    Rule.TRANSFER: "hand-over",
    Rule.PINNING: "pin",
}
"""What that is where it is not named."""
REMOVED = {
    Advice.SEND_TENSORS,
    Advice.FIX_SAMPLES,
    Advice.SHORTER_LOCK,
    Advice.READ_LESS,
    Advice.MORE_REQUESTS_AT_ONCE,
    Advice.ONE_THREAD_EACH,
    Advice.FREE_CPUS,
    Advice.BALANCE_WORKERS,
    Advice.MORE_SHARDS,
    Advice.KEEP_WORKERS,
    Advice.TRY_PERSISTENT_WORKERS,
    Advice.KEEP_ITERATOR,
    Advice.SMALLER_DATASET,
    Advice.SMALLER_BUFFER,
}
"""Advice that makes what was found go away."""
OF_MORE_WORKERS = {
    Advice.CPU_USE_NOT_READ,
    Advice.NO_CPU_FOR_WORKER,
    Advice.WORKERS_NEEDED,
    Advice.CHEAPER_ALSO,
}
"""What only says more about raising the number of workers."""
WITH_MORE_WORKERS = {*OF_MORE_WORKERS, Advice.KEEP_WORKERS}
AT_EPOCH_STARTS = {Rule.WORKER_START, Rule.SHUFFLE_BUFFER, Rule.EPOCH_BOUNDARIES}
"""What costs time at the starts of epochs alone, which no simulation tells."""
CHANGES_NOTHING = {
    Advice.NO_MORE_WORKERS,
    Advice.NO_WORKERS_HELP,
    Advice.LOADING_EVICTS_CACHES,
    Advice.LOOK_AT,
    Advice.MOSTLY_IN,
}
"""What only says more about any change."""
INSTEAD: dict[Value | Enum, Advice] = {
    "num_workers": Advice.CHEAPER_LOADING,
    "prefetch_factor": Advice.FIND_SLOW_BATCHES,
    Advice.OUT_OF_ORDER: Advice.FIND_SLOW_BATCHES,
}
"""By setting or advice that brings nothing, what to change where nothing else is advised."""


def with_gains(case: Case, finding: Finding) -> Finding:
    """`finding`, whose changes tell what they bring; those that bring too little are left out.

    One at least is left: what to do instead, or if that is not known, what would have been
    advised, without a figure. What brings most by a setting comes first.
    """
    model = case.model
    of_starts = model is None and finding.rule in AT_EPOCH_STARTS
    if of_starts or (case.spinning is not None and finding.rule == Rule.OVERSUBSCRIPTION):
        return replace(finding, changes=tuple(_of_all(finding)))
    if model is None or finding.cost_share is None:
        known = [one for one in finding.changes if one.code != Advice.LOAD_IN_TRAINING]
        return replace(finding, changes=tuple(known))
    gains = [(change, _gain_of(case, model, finding, change)) for change in finding.changes]
    useless = [change for change, gain in gains if gain is None]
    told = [Remark(one.code, {**one.values, **gain}) for one, gain in gains if gain is not None]
    if any(one.code in MORE_WORKERS and _is_of_workers(one) for one in useless):
        told = [one for one in told if one.code not in WITH_MORE_WORKERS]
        first = any(one.code == Advice.TRY_WORKERS for one in useless)
        told.append(Remark(Advice.NO_WORKERS_HELP if first else Advice.NO_MORE_WORKERS))
    told = [_promised(one) for one in told]
    useless = [one for one in useless if one.code != Advice.LOAD_IN_TRAINING]
    if all(one.code in CHANGES_NOTHING for one in told):
        told += map(_instead, useless)
    return replace(finding, changes=tuple(_workers_first(told)))


def _is_of_workers(change: Remark) -> bool:
    return change.values.get("setting") == "num_workers"


def _promised(change: Remark) -> Remark:
    """First workers are no more to be tried where they are surely no slower."""
    if change.code != Advice.TRY_WORKERS or float(change.values.get("low") or 0.0) < 1:
        return change
    return Remark(Advice.RAISE, change.values)


def _of_all(finding: Finding) -> list[Remark]:
    """Its changes, with what is gained at most: all that it costs."""
    at_most = {"at_most": 1 / (1 - min(finding.cost_share or 0.0, MOST_GONE))}
    is_start = finding.rule in AT_EPOCH_STARTS
    return [
        Remark(one.code, {**one.values, **(at_most if one.code in REMOVED or not is_start else {})})
        for one in finding.changes
    ]


def _workers_first(changes: list[Remark]) -> list[Remark]:
    """More workers, or none, before cheaper code, where they bring as much.

    A setting is soon changed.
    """
    first = next((one.code for one in changes if one.code in OTHER_WORKERS), None)
    # Code that would be gone altogether is none that is soon changed, beside more workers.
    names = ("speedup",) if first == Advice.RAISE else ("speedup", "at_most")
    most = {one.code: max(float(one.values.get(name) or 0.0) for name in names) for one in changes}
    if first is None or most[first] < max(most.values()):
        return changes
    return sorted(changes, key=lambda one: one.code not in {first, *WITH_MORE_WORKERS})


def _instead(change: Remark) -> Remark:
    code = INSTEAD.get(change.values.get("setting", change.code))
    return change if code is None else Remark(code)


def _gain_of(
    case: Case, model: LoaderModel, finding: Finding, change: Remark
) -> dict[str, Value] | None:
    """What a change brings; None is too little, and nothing that it is not predicted."""
    code = change.code
    are_first = code == Advice.KEEP_WORKERS and finding.rule not in AT_EPOCH_STARTS
    if are_first or (code == Advice.TRY_WORKERS and not model.is_passing_known):
        return {}
    found = _predicted(model, change)
    if found is not None:
        return _gain(case, model, found)
    if code in CHEAPER:
        part = PARTS.get(finding.rule) or str(change.values["name"])
        gain = _gain(case, model, model.predict(faster={part: TWICE}))
        return _at_most(case, model, finding) if gain is None else {"times": TWICE, **gain}
    return _at_most(case, model, finding) if code in REMOVED else {}


def _predicted(model: LoaderModel, change: Remark) -> Prediction | None:
    """With a setting changed; None where the change is no setting, or one of another loader."""
    setting = change.values.get("setting")
    if change.code in {*MORE_WORKERS, *OTHER_WORKERS} and setting in PREDICTED:
        proposed = int(change.values["proposed"] or 0)
        if setting == "num_workers":
            return model.predict(num_workers=proposed)
        return model.predict(prefetch_factor=proposed)
    if change.code == Advice.OUT_OF_ORDER:
        return model.predict(in_order=False)
    return model.without(without_lock) if change.code == Advice.SHARE_BY_FILE else None


def _gain(case: Case, model: LoaderModel, found: Prediction) -> dict[str, Value] | None:
    """What whole epochs gain; None is too little."""
    present_ns = found.iteration_ns.value * found.speedup.value
    value, low, high = (
        1 / (1 - _of_epochs(case, 1 - one_ns / present_ns))
        for one_ns in (
            model.with_starts(iteration_ns, found.num_workers, case.length)
            for iteration_ns in (
                found.iteration_ns.value,
                found.iteration_ns.high,
                found.iteration_ns.low,
            )
        )
    )
    return {"speedup": value, "low": low, "high": high} if value >= LEAST_SPEEDUP else None


def _at_most(case: Case, model: LoaderModel, finding: Finding) -> dict[str, Value] | None:
    """What is gained when all that was found is gone; None is too little."""
    share, rule = finding.cost_share or 0.0, finding.rule
    if rule == Rule.OVERSUBSCRIPTION:  # of which others may have told a part
        share = max(share, _of_epochs(case, gain_of(case, rule)))
    elif rule in FIXES and case.inside is not None:
        share = 1 - 1 / model.without(FIXES[rule](case, case.inside)).speedup.value
        share = _of_epochs(case, share)
    speedup = 1 / (1 - min(share, MOST_GONE))
    return {"at_most": speedup} if speedup >= LEAST_SPEEDUP else None


def _of_epochs(case: Case, share: float) -> float:
    """A share of the steady state as one of whole epochs."""
    return share * (1 - (case.epoch_starts_share or 0.0))
