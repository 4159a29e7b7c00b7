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
AT_EPOCH_STARTS = {Rule.WORKER_START, Rule.SHUFFLE_BUFFER, Rule.EPOCH_BOUNDARIES}
"""What costs time at the starts of epochs alone, which no simulation tells."""
CHANGES_NOTHING = {Advice.NO_MORE_WORKERS, Advice.LOOK_AT, Advice.MOSTLY_IN}
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
        return finding
    gains = [(change, _gain_of(case, model, finding, change)) for change in finding.changes]
    useless = [change for change, gain in gains if gain is None]
    told = [Remark(one.code, {**one.values, **gain}) for one, gain in gains if gain is not None]
    if any(one.values.get("setting") == "num_workers" for one in useless):
        told = [one for one in told if one.code not in OF_MORE_WORKERS]
        told.append(Remark(Advice.NO_MORE_WORKERS))
    if all(one.code in CHANGES_NOTHING for one in told):
        told += map(_instead, useless)
    return replace(finding, changes=tuple(_workers_first(told)))


def _of_all(finding: Finding) -> list[Remark]:
    """Its changes, with what is gained at most: all that it costs."""
    at_most = {"at_most": 1 / (1 - min(finding.cost_share or 0.0, MOST_GONE))}
    is_start = finding.rule in AT_EPOCH_STARTS
    return [
        Remark(one.code, {**one.values, **(at_most if one.code in REMOVED or not is_start else {})})
        for one in finding.changes
    ]


def _workers_first(changes: list[Remark]) -> list[Remark]:
    """More workers before cheaper code, where they bring as much: a setting is soon changed."""
    gains = {one.code: float(one.values.get("speedup") or 0.0) for one in changes}
    if gains.get(Advice.RAISE, 0.0) < max(gains.values()) or Advice.RAISE not in gains:
        return changes
    return sorted(changes, key=lambda one: one.code not in {Advice.RAISE, *OF_MORE_WORKERS})


def _instead(change: Remark) -> Remark:
    code = INSTEAD.get(change.values.get("setting", change.code))
    return change if code is None else Remark(code)


def _gain_of(
    case: Case, model: LoaderModel, finding: Finding, change: Remark
) -> dict[str, Value] | None:
    """What a change brings; None is too little, and nothing that it is not predicted."""
    code, setting = change.code, change.values.get("setting")
    if code == Advice.RAISE and setting == "num_workers":
        return _gain(case, model.predict(num_workers=_proposed(change)))
    if code == Advice.RAISE and setting == "prefetch_factor":
        return _gain(case, model.predict(prefetch_factor=_proposed(change)))
    if code == Advice.OUT_OF_ORDER:
        return _gain(case, model.predict(in_order=False))
    if code == Advice.SHARE_BY_FILE:
        return _gain(case, model.without(without_lock))
    if code in CHEAPER:
        part = PARTS.get(finding.rule) or str(change.values["name"])
        gain = _gain(case, model.predict(faster={part: TWICE}))
        return _at_most(case, model, finding) if gain is None else {"times": TWICE, **gain}
    return _at_most(case, model, finding) if code in REMOVED else {}


def _proposed(change: Remark) -> int:
    return int(change.values["proposed"] or 0)


def _gain(case: Case, found: Prediction) -> dict[str, Value] | None:
    """What whole epochs gain; None is too little."""
    value, low, high = (
        1 / (1 - _of_epochs(case, 1 - 1 / one))
        for one in (found.speedup.value, found.speedup.low, found.speedup.high)
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
