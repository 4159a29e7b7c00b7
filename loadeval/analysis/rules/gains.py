"""What following each piece of advice would bring; advice that brings nothing is dropped.

Of a setting it is what training gains with the new value. Of code that is to be made cheaper it is
what twice as fast brings, and of what should go away (a lock, slow samples, epoch starts) what
training gains at most, when all of it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from loadeval.analysis.predict.change import Change
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import Advice, Rule
from loadeval.analysis.rules.fixes import (
    FIXES,
    OF_STARTS,
    RECORDS,
    WITHOUT_LOCK,
    blocked_shorter,
    gain_of,
)

if TYPE_CHECKING:
    from loadeval.analysis.predict.prediction import Prediction
    from loadeval.analysis.predict.whatif import LoaderModel
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Case
    from loadeval.analysis.rules.finding import Finding

LEAST_SPEEDUP = 1.02
"""Advice that brings training less is not given."""
TWICE = 2.0
MOST_GONE = 0.99
"""No more of the time is predicted to be gone."""


class Kind(Enum):
    """What kind of change an advice is."""

    SETTING = "other settings, with which training is predicted"
    CHEAPER = "code that takes less time"
    UNDONE = "what was found is undone, with which training is predicted"
    REMOVED = "what was found goes away"
    UNPREDICTED = "something of which nothing is predicted"
    COMMENT = "no change, but more about any"


@dataclass(frozen=True)
class AdviceRecord:
    """What following an advice changes.

    `change` is what that does to any loader, where it says no value. What is said only
    `with_workers` is left out where these bring nothing. `instead` is what to change where it
    brings nothing, and nothing else is advised.
    """

    kind: Kind
    change: Change | None = None
    with_workers: bool = False
    instead: Advice | None = None


ADVICE: dict[Enum, AdviceRecord] = {
    Advice.ALLOW_IN_WORKERS: AdviceRecord(Kind.UNDONE),
    Advice.ALLOW_AFTER_IMPORTS: AdviceRecord(Kind.UNDONE),
    Advice.RAISE: AdviceRecord(Kind.SETTING),
    Advice.TRY_WORKERS: AdviceRecord(Kind.SETTING),
    Advice.LOAD_IN_TRAINING: AdviceRecord(Kind.SETTING),
    Advice.OUT_OF_ORDER: AdviceRecord(
        Kind.SETTING, Change({"in_order": False}), instead=Advice.FIND_SLOW_BATCHES
    ),
    Advice.SHARE_BY_FILE: AdviceRecord(Kind.SETTING, WITHOUT_LOCK),
    Advice.CALL_AFTER: AdviceRecord(Kind.CHEAPER),
    Advice.PACK_DATASET: AdviceRecord(Kind.UNDONE),
    Advice.CHEAPER_NAMED: AdviceRecord(Kind.CHEAPER),
    Advice.CHEAPER_COLLATE: AdviceRecord(Kind.CHEAPER),
    Advice.CHEAPER_SAMPLER: AdviceRecord(Kind.CHEAPER),
    Advice.SEND_FEWER: AdviceRecord(Kind.CHEAPER),
    Advice.SEND_LESS_OFTEN: AdviceRecord(Kind.CHEAPER),
    **dict.fromkeys(
        (
            Advice.STORE_UNCOMPRESSED,
            Advice.COLUMNS_AS_ARRAYS,
            Advice.KEEP_ARRAYS,
            Advice.PARSE_ONCE,
            Advice.SMALLER_ROW_GROUPS,
            Advice.CHUNK_BY_SAMPLE,
            Advice.OPEN_ONCE,
            Advice.READ_WHAT_IS_USED,
        ),
        AdviceRecord(Kind.UNDONE),
    ),
    Advice.SEND_TENSORS: AdviceRecord(Kind.REMOVED),
    Advice.TOKENISE_ONCE: AdviceRecord(Kind.REMOVED),
    Advice.FIX_SAMPLES: AdviceRecord(Kind.REMOVED),
    Advice.SHORTER_LOCK: AdviceRecord(Kind.REMOVED),
    Advice.READ_LESS: AdviceRecord(Kind.REMOVED),
    Advice.MORE_REQUESTS_AT_ONCE: AdviceRecord(Kind.REMOVED),
    Advice.REQUESTS_AT_ONCE: AdviceRecord(Kind.SETTING),
    Advice.KEEP_CONNECTION: AdviceRecord(Kind.SETTING),
    Advice.CACHE_LOCALLY: AdviceRecord(Kind.REMOVED),
    Advice.FETCH_LESS: AdviceRecord(Kind.REMOVED),
    Advice.ONE_THREAD_EACH: AdviceRecord(Kind.REMOVED),
    Advice.FREE_CPUS: AdviceRecord(Kind.REMOVED),
    Advice.BALANCE_WORKERS: AdviceRecord(Kind.REMOVED),
    Advice.MORE_SHARDS: AdviceRecord(Kind.UNDONE),
    Advice.EQUAL_SHARDS: AdviceRecord(Kind.REMOVED),
    Advice.KEEP_WORKERS: AdviceRecord(Kind.REMOVED, with_workers=True),
    Advice.TRY_PERSISTENT_WORKERS: AdviceRecord(Kind.REMOVED),
    Advice.KEEP_ITERATOR: AdviceRecord(Kind.REMOVED),
    Advice.SMALLER_DATASET: AdviceRecord(Kind.REMOVED),
    Advice.SMALLER_BUFFER: AdviceRecord(Kind.REMOVED),
    Advice.DRAW_IN_PARTS: AdviceRecord(Kind.REMOVED),
    Advice.DRAW_WEIGHTED_IN_PARTS: AdviceRecord(Kind.REMOVED),
    Advice.LIGHTER_SAMPLER: AdviceRecord(Kind.REMOVED),
    Advice.CPU_USE_NOT_READ: AdviceRecord(Kind.UNPREDICTED, with_workers=True),
    Advice.NO_CPU_FOR_WORKER: AdviceRecord(Kind.UNPREDICTED, with_workers=True),
    Advice.WORKERS_NEEDED: AdviceRecord(Kind.UNPREDICTED, with_workers=True),
    Advice.CHEAPER_ALSO: AdviceRecord(Kind.UNPREDICTED, with_workers=True),
    Advice.LOOK_AT_INIT: AdviceRecord(Kind.COMMENT),
    Advice.UNSET_BINDING: AdviceRecord(Kind.COMMENT),
    Advice.NO_MORE_WORKERS: AdviceRecord(Kind.COMMENT),
    Advice.NO_WORKERS_HELP: AdviceRecord(Kind.COMMENT),
    Advice.LOADING_EVICTS_CACHES: AdviceRecord(Kind.COMMENT),
    Advice.LOOK_AT: AdviceRecord(Kind.COMMENT),
    Advice.WORKER_START_PARTS: AdviceRecord(Kind.COMMENT),
    Advice.WORKERS_START_IN_TURN: AdviceRecord(Kind.COMMENT),
    Advice.MOSTLY_IN: AdviceRecord(Kind.COMMENT),
    Advice.SHARDS_MADE_BY: AdviceRecord(Kind.COMMENT),
    Advice.SHARDS_LEFT_OVER: AdviceRecord(Kind.COMMENT),
}
"""Advice that is not here changes something of which nothing is predicted."""
UNPREDICTED = AdviceRecord(Kind.UNPREDICTED)


class PredictedSetting(NamedTuple):
    """A setting of a loader that is simulated, and what to change instead where it is no use."""

    name: str
    instead: Advice


SETTINGS: dict[Value, PredictedSetting] = {
    "num_workers": PredictedSetting("workers", Advice.CHEAPER_LOADING),
    "prefetch_factor": PredictedSetting("prefetch_factor", Advice.FIND_SLOW_BATCHES),
}


def with_gains(case: Case, finding: Finding) -> Finding:
    """`finding`, whose changes tell what they bring; those that bring too little are left out.

    One at least is left: what to do instead, or if that is not known, what would have been
    advised, without a figure. What brings most by a setting comes first.
    """
    model = case.model
    of_starts = model is None and case.headroom is not None and finding.rule in OF_STARTS
    of_spinning = case.spinning is not None and finding.rule == Rule.OVERSUBSCRIPTION
    if of_starts or of_spinning or finding.rule == Rule.PYTHON_LOCK:
        return replace(finding, changes=tuple(_of_all(finding)))
    if model is None or finding.cost_share is None:
        known = [change for change in finding.changes if change.code != Advice.LOAD_IN_TRAINING]
        return replace(finding, changes=tuple(known))
    gains = [(change, _gain_of(case, model, finding, change)) for change in finding.changes]
    useless = [change for change, gain in gains if gain is None]
    kept = [
        Remark(change.code, {**change.values, **gain}) for change, gain in gains if gain is not None
    ]
    if any(_raises_workers(change) for change in useless):
        kept = [change for change in kept if not record_of(change).with_workers]
        first = any(change.code == Advice.TRY_WORKERS for change in useless)
        kept.append(Remark(Advice.NO_WORKERS_HELP if first else Advice.NO_MORE_WORKERS))
    kept = [_promised(change) for change in kept]
    if all(record_of(change).kind is Kind.COMMENT for change in kept):
        kept += [_instead(change) for change in useless if change.code != Advice.LOAD_IN_TRAINING]
    return replace(finding, changes=tuple(_workers_first(kept)))


def record_of(change: Remark) -> AdviceRecord:
    """What following an advice changes."""
    return ADVICE.get(change.code, UNPREDICTED)


def _raises_workers(change: Remark) -> bool:
    raises = change.code in {Advice.RAISE, Advice.TRY_WORKERS}
    return raises and change.values.get("setting") == "num_workers"


def _promised(change: Remark) -> Remark:
    """First workers are no more to be tried where they are surely no slower."""
    if change.code != Advice.TRY_WORKERS or float(change.values.get("low") or 0.0) < 1:
        return change
    return Remark(Advice.RAISE, change.values)


def _of_all(finding: Finding) -> list[Remark]:
    """The changes of `finding`, with what is gained at most: all that it costs."""
    is_start, changes = finding.rule in OF_STARTS, []
    for change in finding.changes:
        if is_start and record_of(change).kind is not Kind.REMOVED:
            changes.append(change)
            continue
        at_most = _speedup_without(part_of_cost(finding, change))
        changes.append(Remark(change.code, {**change.values, "at_most": at_most}))
    return changes


def part_of_cost(finding: Finding, change: Remark) -> float:
    """The share of the time that `change` saves: all that `finding` costs, or less."""
    cost, sooner_ns = finding.cost_share or 0.0, change.values.get("sooner_ns")
    cost = min(cost, float(change.values.get("most_share") or 1.0))
    if sooner_ns is None:
        return cost
    start_ns = float(finding.problem.values["epoch_start_ns"] or 0.0)
    return cost * float(sooner_ns) / max(start_ns, float(sooner_ns))


def _speedup_without(share: float) -> float:
    """The speed-up when this share of the time is gone."""
    return 1 / (1 - min(share, MOST_GONE))


def _workers_first(changes: list[Remark]) -> list[Remark]:
    """Put more workers, or none, before cheaper code where they bring as much.

    A setting is soon changed.
    """
    others = (Advice.RAISE, Advice.LOAD_IN_TRAINING)
    first = next((change.code for change in changes if change.code in others), None)
    # Code that would be gone altogether is none that is soon changed, beside more workers.
    names = ("speedup",) if first == Advice.RAISE else ("speedup", "at_most")
    most = {
        change.code: max(float(change.values.get(name) or 0.0) for name in names)
        for change in changes
    }
    if first is None or most[first] < max(most.values()):
        return changes
    return sorted(
        changes, key=lambda change: change.code != first and not record_of(change).with_workers
    )


def _instead(change: Remark) -> Remark:
    setting = SETTINGS.get(change.values.get("setting"))
    code = record_of(change).instead if setting is None else setting.instead
    return change if code is None else Remark(code)


def _gain_of(
    case: Case, model: LoaderModel, finding: Finding, change: Remark
) -> dict[str, Value] | None:
    """What a change brings; None is too little, and nothing that it is not predicted."""
    code, kind = change.code, record_of(change).kind
    are_first = code == Advice.KEEP_WORKERS and finding.rule not in OF_STARTS
    if are_first or (code == Advice.TRY_WORKERS and not model.is_passing_known):
        return {}
    followed = followed_by(change)
    if kind is Kind.UNDONE and case.inside is not None:
        followed = FIXES[finding.rule](case, case.inside)
    if followed is not None:
        return _gain(case, model, model.with_change(followed))
    if kind is Kind.CHEAPER:
        record = RECORDS.get(finding.rule)
        part = (record and record.part) or str(change.values["name"])
        if change.code is Advice.CALL_AFTER:  # its time is in proportion to what it handles
            ratio = float(change.values["ratio"] or TWICE)
            return _gain(case, model, model.predict(faster={part: ratio}))
        gain = _gain(case, model, model.predict(faster={part: TWICE}))
        return _at_most(case, model, finding, change) if gain is None else {"times": TWICE, **gain}
    return _at_most(case, model, finding, change) if kind is Kind.REMOVED else {}


def followed_by(change: Remark) -> Change | None:
    """What following a change of settings does; None where it is another, or of another loader."""
    if change.code is Advice.REQUESTS_AT_ONCE:
        return blocked_shorter(float(change.values["requests"] or 1))
    if change.code is Advice.KEEP_CONNECTION:
        return blocked_shorter(float(change.values["round_trips"] or 1))
    record, setting = record_of(change), SETTINGS.get(change.values.get("setting"))
    if record.kind is not Kind.SETTING or setting is None:
        return record.change
    return Change({setting.name: int(change.values["proposed"] or 0)})


def _gain(case: Case, model: LoaderModel, prediction: Prediction) -> dict[str, Value] | None:
    """What whole epochs gain; None is too little."""
    present_ns = prediction.iteration_ns.value * prediction.speedup.value
    value, low, high = (
        1 / (1 - of_epochs(case, 1 - with_starts_ns / present_ns))
        for with_starts_ns in (
            model.with_starts(iteration_ns, prediction.num_workers, case.length)
            for iteration_ns in (
                prediction.iteration_ns.value,
                prediction.iteration_ns.high,
                prediction.iteration_ns.low,
            )
        )
    )
    return {"speedup": value, "low": low, "high": high} if value >= LEAST_SPEEDUP else None


def _at_most(
    case: Case, model: LoaderModel, finding: Finding, change: Remark
) -> dict[str, Value] | None:
    """What is gained when all that was found is gone; None is too little."""
    share, rule = part_of_cost(finding, change), finding.rule
    if change.code is Advice.FIX_SAMPLES:  # whatever it was that they show in
        rule = Rule.SLOW_SAMPLES
    if rule == Rule.OVERSUBSCRIPTION:  # of which others may have told a part
        share = max(share, of_epochs(case, gain_of(case, rule)))
    elif rule in FIXES and case.inside is not None:
        share = of_epochs(case, 1 - model.share_left(FIXES[rule](case, case.inside)))
    speedup = _speedup_without(share)
    return {"at_most": speedup} if speedup >= LEAST_SPEEDUP else None


def of_epochs(case: Case, share: float) -> float:
    """A share of the steady state as one of whole epochs."""
    return share * (1 - (case.epoch_starts_share or 0.0))
