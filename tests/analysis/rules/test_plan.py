"""What to do about findings: the order, what each action brings on top of others, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.predict.prediction import Limit
from loadeval.analysis.remark import Remark
from loadeval.analysis.report import Report
from loadeval.analysis.rules.actions import EXPLAINS, TARGETS, Plan, Target
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import diagnosis_of
from loadeval.analysis.rules.finding import Advice, Diagnosis, Fact, Finding, Problem, Rule
from loadeval.analysis.rules.plan import plan_for
from loadeval.report.wording.advice import ADVICE
from loadeval.report.wording.plan import (
    action_in_short,
    action_in_words,
    gain_in_short,
    limit_in_words,
    plan_in_words,
)
from tests.runs.looked_into import code, logged, looked_into
from tests.runs.staged import staged
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.rules.actions import Action
    from loadeval.data.run import Run

ONE_WORKER: dict[str, Any] = {
    "workers": 1,
    "fetch": 40.0,
    "step": 20.0,
    "transforms": {"decode": 0.8},
    "environment": {"cpus_usable": 2},
}
"""JPEGs: one worker, two CPUs, and a step that leaves the CPUs alone."""
TORCH = {"persistent_workers": False, "made_at": "train.py:48"}


def plan(run: Run, *findings: Finding) -> Plan:
    """The plan for a run; about these findings in place of its own, if there are some."""
    case = Case(run)
    diagnosis = Diagnosis(findings, ()) if findings else diagnosis_of(case)
    made = plan_for(case, diagnosis)
    for action in made.actions:
        assert action_in_words(action)
    return made


def shorts(actions: Sequence[Action]) -> list[str]:
    return [action_in_short(action) for action in actions]


def found(
    rule: Rule,
    *changes: Remark,
    cost: float | None = 0.2,
    problem: dict[str, Any] | None = None,
    evidence: tuple[Fact, ...] = (),
    **more: Any,
) -> Finding:
    """A finding that asks for some changes."""
    remark = Remark(Problem.CODE_SLOW, problem or {})
    return replace(Finding(rule, "high", "measured", remark, changes, evidence, cost), **more)


def to(setting: str, present: Any, proposed: Any, code: Advice = Advice.RAISE) -> Remark:
    return Remark(code, {"setting": setting, "present": present, "proposed": proposed})


def test_a_setting_comes_before_code() -> None:
    """Of one worker that decodes on two CPUs the number of workers, then the transform."""
    made = plan(looked_into(**ONE_WORKER, loader=TORCH))
    assert shorts(made.actions)[:1] == ["num_workers=2"]
    first = made.actions[0]
    assert (first.target, first.place) == (Target.SETTING, "train.py:48")
    assert first.speedup is not None
    assert first.speedup.low <= first.speedup.value <= first.speedup.high
    assert Rule.SLOW_TRANSFORM in first.rules


def test_each_action_adds_to_those_before() -> None:
    """By 2% at least; and in all to no more than ideal loading brings."""
    slower = {**ONE_WORKER, "fetch": 120.0}
    made = plan(looked_into(**slower, loader=TORCH))
    assert shorts(made.actions) == ["num_workers=2", "make decode twice as fast"]
    gains = [action.predicted or 0.0 for action in made.actions]
    assert gains[1] >= 1.02 * gains[0]
    assert made.most is not None
    assert gains[1] <= made.most
    assert made.whole is made.actions[1]
    assert limit_in_words(made).startswith("then the ")
    assert " of at most " in limit_in_words(made)


def test_a_report_has_the_plan_of_each_run_that_has_one() -> None:
    """Of an alternating run that of its comparison, without a name."""
    alternating = Report.of([looked_into(fetch=80)])
    assert alternating.comparison is not None
    assert alternating.plans == [("", alternating.comparison.plan)]
    (examined,) = Report.of([logged()]).runs
    assert Report.of([logged()]).plans == [(examined.name, examined.plan)]


def test_nothing_found_is_nothing_to_do() -> None:
    made = plan(looked_into(fetch=1.0, step=20.0))
    assert (made.actions, made.limit, made.whole, limit_in_words(made)) == ((), None, None, "")


def test_a_log_does_not_know_the_most() -> None:
    """What limits is said without it."""
    made = plan(logged(fetch=60, workers=1, transforms={"decode": 0.9}))
    assert made.most is None
    assert made.actions
    assert " of " not in limit_in_words(made)


def test_the_same_setting_is_changed_once() -> None:
    """Though several findings ask for it; all of them are named."""
    raising = to("num_workers", 1, 2)
    made = plan(
        looked_into(**ONE_WORKER, loader=TORCH),
        found(Rule.CAPACITY, raising),
        found(Rule.SLOW_FETCH, to("num_workers", 1, 2)),
    )
    (action,) = made.actions
    assert action.rules == (Rule.CAPACITY, Rule.SLOW_FETCH)
    assert not action.possible


def test_without_a_model_the_first_advice_on_a_setting_holds() -> None:
    """No other contradicts it; nothing is predicted, and no limit told."""
    run = looked_into(workers=2, fetch=60.0)
    bare = replace(run, stages=(), code=())
    made = plan(
        bare,
        found(Rule.CAPACITY, to("num_workers", 2, 4), confidence="possible"),
        found(Rule.OVERSUBSCRIPTION, to("num_workers", 2, 1, Advice.LOWER)),
    )
    assert shorts(made.actions) == ["num_workers=4"]
    assert made.actions[0].predicted is None
    assert made.limit is None
    assert gain_in_short(made.actions[0]) == "not predicted"


def test_what_only_possible_findings_ask_for_is_perhaps() -> None:
    run = replace(looked_into(workers=2, fetch=60.0), stages=(), code=())
    made = plan(run, found(Rule.CAPACITY, to("num_workers", 2, 4), confidence="possible"))
    assert shorts(made.actions) == ["perhaps num_workers=4"]


def test_without_a_model_starts_are_bounded() -> None:
    """By what they cost; what follows is bounded too."""
    run = replace(looked_into(workers=2, fetch=60.0), stages=(), code=())
    keep = to("persistent_workers", False, True, Advice.KEEP_WORKERS)
    bounded = replace(keep, values={**keep.values, "at_most": 1.25})
    lighter = Remark(Advice.LESS_IN_THREADS, {"threads": "main", "at_most": 1.25})
    made = plan(run, found(Rule.WORKER_START, bounded), found(Rule.PYTHON_LOCK, lighter))
    assert made.actions[0].at_most == pytest.approx(1.25)
    assert made.actions[1].at_most == made.most == pytest.approx(1.5)  # and not 1 / 0.6
    assert gain_in_short(made.actions[1]) == "at most 1.50x"
    assert plan_in_words(made).startswith("What to do: 1. persistent_workers=True (at most 1.25x)")


STARTS = (Fact("epoch start, later epochs", 100.0, "ns"), Fact("starting workers", 80.0, "ns"))


@pytest.mark.parametrize(("evidence", "is_bound"), [(STARTS, False), ((), True)])
def test_workers_that_live_on(evidence: tuple[Fact, ...], is_bound: bool) -> None:
    """The likely gain is what starting takes of an epoch's start; without that it is bounded."""
    keep = to("persistent_workers", False, True, Advice.KEEP_WORKERS)
    smaller = Remark(Advice.SMALLER_DATASET)
    start = found(Rule.WORKER_START, keep, smaller, cost=0.1, evidence=evidence)
    made = plan(looked_into(workers=2, fetch=60.0, loader=TORCH), start)
    last = made.actions[-1]
    assert shorts(made.actions)[-1] in {"persistent_workers=True", "try persistent_workers=True"}
    assert (last.speedup is None) is is_bound
    if last.speedup is not None:
        assert last.speedup.low < last.speedup.value <= last.speedup.high


def test_first_workers_whose_batches_nobody_knows() -> None:
    """It is not known what passing their tensors takes: measure whether they help."""
    made = plan(looked_into(workers=0, fetch=40.0, step=20.0, loader=TORCH))
    first = made.actions[0]
    assert action_in_short(first).startswith("try num_workers=")
    assert first.predicted is None


def test_first_workers_may_pay_only_if_they_live_on() -> None:
    """Two actions: what they bring if they start anew in each epoch, and if they do not."""
    run = looked_into(
        workers=0,
        fetch=40.0,
        step=20.0,
        tensors=2,
        loader={**TORCH, "length": 20},
        environment={"cpus_usable": 4},
    )
    first, *_ = plan(run).actions
    assert first.change.values["setting"] == "num_workers"
    assert first.predicted is not None


def test_what_is_bounded_comes_after_what_is_predicted() -> None:
    """Of the same target; what is advised but not predicted comes last."""
    run = looked_into(workers=2, fetch=120.0, transforms={"decode": 0.5}, loader=TORCH)
    made = plan(
        run,
        found(Rule.LOCK, Remark(Advice.SHORTER_LOCK)),
        found(Rule.SLOW_TRANSFORM, Remark(Advice.CHEAPER_NAMED, {"name": "decode"})),
        found(Rule.UNPINNED_MEMORY, to("pin_memory", False, True, Advice.PIN_MEMORY), cost=None),
        found(Rule.SHARED_MACHINE, Remark(Advice.MEASURE_QUIET), cost=None),
    )
    code_actions = [action for action in made.actions if action.target is Target.CODE]
    assert code_actions[0].change.values.get("times") == 2
    assert shorts(made.actions)[-2:] == ["pin_memory=True", "measure on a quiet machine"]
    assert made.actions[-1].predicted is None


def test_what_follows_a_bound_has_two_ends() -> None:
    """What it brings if none of what is bounded goes away, and if all does."""
    two_cpus = {"cpus_usable": 2}
    run = looked_into(
        workers=2, fetch=60.0, transforms={"decode": 0.5}, loader=TORCH, environment=two_cpus
    )
    keep = to("persistent_workers", False, True, Advice.KEEP_WORKERS)
    made = plan(
        run,
        found(Rule.WORKER_START, keep, cost=0.1),
        found(Rule.SLOW_TRANSFORM, Remark(Advice.CHEAPER_NAMED, {"name": "decode"})),
    )
    kept, faster = made.actions[-2:]
    assert gain_in_short(kept).startswith("at most ")
    assert faster.at_least is not None
    assert faster.at_most is not None
    assert 1.02 < faster.at_least < faster.at_most
    ends = f"{faster.at_least:.2f}x to {faster.at_most:.2f}x"
    assert gain_in_short(faster) == ends
    assert limit_in_words(made).split(": ")[1].startswith(ends)


UNEVEN = [30.0] * 9 + [400.0]


def test_batches_out_of_order_only_if_asked_for() -> None:
    """They change training."""
    names = {"num_workers": "num_workers"}
    run = looked_into(workers=4, fetch=UNEVEN * 10, step=20.0, loader={"setting_names": names})
    asked = plan(run, found(Rule.HEAD_OF_LINE, Remark(Advice.OUT_OF_ORDER)))
    assert "in_order=False" in [short.removeprefix("try ") for short in shorts(asked.actions)]
    others = plan(run, found(Rule.CAPACITY, Remark(Advice.NO_MORE_WORKERS)))
    assert not any("in_order" in short for short in shorts(others.actions))


def test_a_queue_is_as_deep_as_pays() -> None:
    """Each time twice as deep, as long as that brings more."""
    run = looked_into(workers=1, prefetch=1, fetch=[2.0] * 99 + [3000.0], loader=TORCH)
    made = plan(run, found(Rule.SHALLOW_QUEUE, to("prefetch_factor", 1, 2)))
    (deeper,) = (
        action for action in made.actions if action.change.values["setting"] == "prefetch_factor"
    )
    assert int(deeper.change.values["proposed"] or 0) > 2


def test_fewer_workers_only_if_asked_for() -> None:
    """None at all where passing batches takes longer than loading them."""
    run = looked_into(workers=1, fetch=5.0, receive=60.0, step=20.0, loader=TORCH)
    none = to("num_workers", 1, 0, Advice.LOAD_IN_TRAINING)
    (action,) = plan(run, found(Rule.TRANSFER, none)).actions
    assert (action.change.code, action_in_short(action)) == (
        Advice.LOAD_IN_TRAINING,
        "num_workers=0",
    )


def test_what_brings_nothing_is_left_out() -> None:
    """A form of the data that takes no time."""
    run = looked_into(workers=2, fetch=60.0, loader=TORCH)
    made = plan(run, found(Rule.DATA_FORMAT, Remark(Advice.PARSE_ONCE)))
    assert Target.DATA not in {action.target for action in made.actions}


def test_functions_have_their_line() -> None:
    """Where workers were seen most; of a collate function too."""
    run = looked_into(
        workers=2,
        fetch=100.0,
        collate=60.0,
        seen=code({"data.py:31 Rows.__getitem__": 60, "data.py:50 padded": 40}),
        loader=TORCH,
    )
    fetch = found(Rule.SLOW_FETCH, Remark(Advice.CHEAPER_NAMED, {"name": "Rows.__getitem__"}))
    collate = found(Rule.SLOW_COLLATE, Remark(Advice.CHEAPER_COLLATE), problem={"name": "padded"})
    places = {action.place for action in plan(run, fetch, collate).actions}
    assert {"data.py:31", "data.py:50"} <= places


def test_a_loader_that_must_become_faster_says_by_how_much() -> None:
    run = replace(looked_into(workers=2, fetch=60.0), stages=(), code=())
    cheaper = Remark(Advice.CHEAPER_OR_CPUS)
    made = plan(run, found(Rule.CAPACITY, cheaper, problem={"required": 1.6}))
    assert shorts(made.actions) == ["make the loader 1.60x faster"]


def test_cpus_that_others_use_are_the_machines() -> None:
    run = replace(looked_into(workers=2, fetch=60.0), stages=(), code=())
    free = Remark(Advice.FREE_CPUS, {"others_cpus": 1.2})
    (action,) = plan(run, found(Rule.OVERSUBSCRIPTION, free)).actions
    assert action.target is Target.MACHINE


def test_starts_of_epochs_may_be_what_limits() -> None:
    """Where the loader keeps up within them."""
    assert limit_in_words(replace(plan(staged()), limit=Limit.EPOCH_STARTS)).startswith(
        "then the starts of epochs: "
    )


def test_every_advice_is_an_action_or_explains_one() -> None:
    """What has words of its own on the screen is one, but for leaving the loader as it is."""
    explains = {code for code, words in ADVICE.items() if not words.short}
    assert explains | {Advice.KEEP_LOADER} == EXPLAINS
    assert not EXPLAINS & TARGETS.keys()
