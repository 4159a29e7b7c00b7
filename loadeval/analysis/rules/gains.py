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
from loadeval.analysis.rules.fixes import FIXES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Case
    from loadeval.analysis.rules.finding import Finding
    from loadeval.analysis.whatif import LoaderModel, Prediction

LEAST_SPEEDUP = 1.02
"""Of training: advice that brings less is not given."""
TWICE = 2.0
PARTS = {
    Advice.CHEAPER_COLLATE: "collate",
    Advice.CHEAPER_SAMPLER: "indices",
    Advice.SEND_FEWER: "hand-over",
    Advice.SEND_LESS_OFTEN: "hand-over",
}
"""What advice makes cheaper that does not name it."""
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
INSTEAD = {
    "num_workers": (Remark(Advice.NO_MORE_WORKERS), Remark(Advice.CHEAPER_LOADING)),
    "prefetch_factor": (Remark(Advice.FIND_SLOW_BATCHES),),
}
"""Where raising a setting brings nothing."""


def with_gains(case: Case, finding: Finding) -> Finding:
    """`finding`, whose changes tell what they bring; `cost_share` is what it costs by itself."""
    if case.model is None or finding.cost_share is None:
        return finding
    return replace(finding, changes=tuple(_with_gains(case, case.model, finding)))


def _with_gains(case: Case, model: LoaderModel, finding: Finding) -> Iterator[Remark]:
    for change in finding.changes:
        setting = change.values.get("setting")
        if change.code == Advice.RAISE and isinstance(setting, str) and setting in INSTEAD:
            gain = _gain(case, _raised(model, setting, int(change.values["proposed"] or 0)))
            yield from [_and(change, gain)] if gain else INSTEAD[setting]
        elif change.code == Advice.OUT_OF_ORDER:
            gain = _gain(case, model.predict(in_order=False))
            if gain:
                yield _and(change, gain)
        elif change.code in PARTS or change.code == Advice.CHEAPER_NAMED:
            part = PARTS.get(change.code) or str(change.values["name"])
            gain = _gain(case, model.predict(faster={part: TWICE}))
            yield _and(change, {"times": TWICE, **gain} if gain else _at_most(case, model, finding))
        elif change.code in REMOVED:
            yield _and(change, _at_most(case, model, finding))
        else:
            yield change


def _raised(model: LoaderModel, setting: str, proposed: int) -> Prediction:
    if setting == "num_workers":
        return model.predict(num_workers=proposed)
    return model.predict(prefetch_factor=proposed)


def _gain(case: Case, found: Prediction) -> dict[str, Value]:
    """What whole epochs gain; nothing where that is too little."""
    outside = case.epoch_starts_share or 0.0
    value, low, high = (
        1 / (outside + (1 - outside) / one)
        for one in (found.speedup.value, found.speedup.low, found.speedup.high)
    )
    return {"speedup": value, "low": low, "high": high} if value >= LEAST_SPEEDUP else {}


def _at_most(case: Case, model: LoaderModel, finding: Finding) -> dict[str, Value]:
    """What is gained when all that was found is gone."""
    if finding.rule in FIXES and finding.rule != Rule.OVERSUBSCRIPTION and case.inside is not None:
        gain = _gain(case, model.without(FIXES[finding.rule](case, case.inside)))
        return {"at_most": gain["speedup"]} if gain else {}
    return {"at_most": 1 / (1 - min(finding.cost_share or 0.0, 0.99))}


def _and(change: Remark, more: dict[str, Value]) -> Remark:
    return Remark(change.code, {**change.values, **more})
