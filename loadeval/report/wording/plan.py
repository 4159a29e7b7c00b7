"""What to do, in words: each action in a few, where, and what training gains until then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.predict.prediction import Limit
from loadeval.analysis.rules.finding import Advice
from loadeval.analysis.rules.gains import LEAST_SPEEDUP
from loadeval.report.formatting import code_place, share, speedup
from loadeval.report.wording.advice import in_short
from loadeval.report.wording.whatif import ranged

if TYPE_CHECKING:
    from loadeval.analysis.rules.actions import Action, Plan
    from loadeval.analysis.rules.finding import Diagnosis

TITLE = "What to do"
HEAD = ("what to do", "where", "predicted")
NOT_PREDICTED = "not predicted"
NOT_KNOWN = "-"
EACH_ON_TOP = (
    "Each is predicted on top of those before it, over whole epochs; brackets are the expected "
    "range."
)
BY_ITSELF = "Findings in short, each predicted by itself"
LIMITED_BY = {
    Limit.STEP: "the training step",
    Limit.WORKERS: "the workers",
    Limit.CPUS: "the CPUs",
    Limit.TRAINING_PROCESS: "the training process",
    Limit.STORAGE: "storage",
    Limit.LOCK: "a lock",
    Limit.PREFETCH: "the prefetched batches",
    Limit.EPOCH_STARTS: "the starts of epochs",
}


def action_in_short(action: Action) -> str:
    """What to do, in a few words: `num_workers=4`, `make shrink twice as fast`."""
    values, name = action.change.values, str(action.change.values.get("setting"))
    text = in_short(action.change)
    if "proposed" in values and name.isidentifier():
        text = f"{name}={values['proposed']}"
    is_doubtful = action.change.code is Advice.TRY_WORKERS
    if action.speedup is not None and action.target.value == "setting":
        is_doubtful = action.speedup.low < 1
    if is_doubtful and not text.startswith("try "):
        text = f"try {text}"
    return f"perhaps {text}" if action.possible else text


def place_in_short(action: Action) -> str:
    """The file, without its folders, and the line."""
    return NOT_KNOWN if action.place is None else code_place(action.place.rpartition("/")[2])


def gain_in_short(action: Action) -> str:
    """What training gains by it and all before it: 1.40x [1.31x, 1.49x]."""
    if action.speedup is not None:
        return ranged(action.speedup, speedup)
    return NOT_PREDICTED if action.at_most is None else _bounds(action)


def _bounds(action: Action) -> str:
    """1.31x to 1.49x, or at most 1.49x."""
    if action.at_least is None or action.at_least < LEAST_SPEEDUP:
        return f"at most {speedup(action.at_most)}"
    return f"{speedup(action.at_least)} to {speedup(action.at_most)}"


def action_in_words(action: Action) -> str:
    """The same in a line, with the findings that ask for it."""
    where = "" if action.place is None else f" at {code_place(action.place)}"
    rules = ", ".join(rule.value for rule in action.rules)
    why = f"{action.target.value}; {rules}" if rules else action.target.value
    return f"{action_in_short(action)}{where}: {gain_in_short(action)} ({why})"


def limit_in_words(plan: Plan) -> str:
    """What limits training then, and what there would be to gain; "" where that is not known."""
    last = plan.whole
    if plan.limit is None or last is None:
        return ""
    gained, most = _bounds(last), speedup(plan.most)
    if last.speedup is not None:
        gained, most = speedup(last.speedup.value), f"at most {most}"
    of_most = "" if plan.most is None else f" of {most}"
    return f"then {LIMITED_BY[plan.limit]}: {gained}{of_most}"


def plan_in_words(plan: Plan) -> str:
    """The plan in a paragraph, for a figure."""
    actions = [
        f"{number}. {action_in_short(action)} ({gain_in_short(action)})"
        for number, action in enumerate(plan.actions, 1)
    ]
    return f"{TITLE}: {'; '.join(filter(None, [*actions, limit_in_words(plan)]))}."


def findings_in_short(diagnosis: Diagnosis) -> str:
    """The findings in a line, each with the time that it costs where that is known."""
    return ", ".join(
        finding.rule.value
        if finding.cost_share is None
        else f"{finding.rule.value} {share(finding.cost_share)}"
        for finding in diagnosis.findings
    )
