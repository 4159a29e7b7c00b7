"""What to do about findings, in order: each action is predicted on top of those before it.

Settings come first, and are chosen together, by the simulation that findings are predicted by too.
Of each further kind, in the order of Target, that action comes first which then gains most; and
what then gains too little is left out, whatever it would gain by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from loadeval.analysis.estimate.verdict import MODERATE_SHARE
from loadeval.analysis.predict.change import Change
from loadeval.analysis.predict.faster import full_name, sped_up
from loadeval.analysis.predict.prediction import Limit, Prediction, Range
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.actions import Action, Plan, Target, target_of
from loadeval.analysis.rules.finding import Advice, Rule
from loadeval.analysis.rules.fixes import (
    ENOUGH,
    FIXES,
    MOST_DOUBLED,
    OF_STARTS,
    RECORDS,
    best_workers,
)
from loadeval.analysis.rules.gains import (
    LEAST_SPEEDUP,
    MOST_GONE,
    TWICE,
    Kind,
    followed_by,
    of_epochs,
    part_of_cost,
    record_of,
)
from loadeval.analysis.rules.workers import names_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loadeval.analysis.predict.whatif import LoaderModel
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Case
    from loadeval.analysis.rules.finding import Diagnosis, Finding
    from loadeval.analysis.rules.inside import Inside

SIMULATED = {"num_workers": "workers", "prefetch_factor": "prefetch_factor", "in_order": "in_order"}
"""Settings that are chosen together, and what Setting calls them."""
PERSISTENT = "persistent_workers"
GAINS = {"speedup", "low", "high", "at_most", "times"}
"""What a change of a finding says of its gain by itself."""
STARTING = ("starting workers", "worker_init_fn")
"""Facts on what workers do only once that live on, in findings on the starts of epochs."""
LINE = re.compile(r"\S.*?:\d+(?= |$)")
NOTHING = Change()
NONE_SAVED = (0.0, 0.0, 0.0)


def plan_for(case: Case, diagnosis: Diagnosis) -> Plan:
    """What to do about the findings of a run."""
    headroom = case.headroom
    most = None if headroom is None or headroom.speedup is None else headroom.speedup.value
    if not diagnosis.findings:
        return Plan(most=most)
    planner = _Planner(case, _asked(case, diagnosis.findings), most)
    if case.inside is not None and case.model is not None:
        planner.choose_settings(case.inside, case.model)
    for target in Target:
        planner.choose(target)
    return planner.plan()


@dataclass(frozen=True)
class _Asked:
    """A change that findings ask for; `finding` is the costliest of them.

    Settings have loadeval's names. `is_predicted` tells whether the finding says what it brings by
    itself, and `at_most` what that is at most, if so.
    """

    target: Target
    finding: Finding
    change: Remark
    place: str | None
    rules: tuple[Rule, ...]
    possible: bool
    is_predicted: bool
    at_most: float | None

    @property
    def setting(self) -> str | None:
        """The setting that it changes; None where it changes something else."""
        in_order = self.change.code is Advice.OUT_OF_ORDER
        setting = "in_order" if in_order else self.change.values.get("setting")
        return None if setting is None else str(setting)

    @property
    def key(self) -> tuple[Value, ...]:
        """What is the same of the same change: a setting, of one operator, is changed once."""
        name = self.change.values.get("name") or self.change.values.get("indices")
        return (self.setting or str(self.change.code.value), name)


def _asked(case: Case, findings: Sequence[Finding]) -> list[_Asked]:
    """What findings ask for, each change once, those of the costliest finding first."""
    ours = {name: setting for setting, name in names_of(case.loader).items()}
    merged: dict[tuple[Value, ...], _Asked] = {}
    for finding in findings:
        for change in finding.changes:
            target, setting = target_of(change), change.values.get("setting")
            if target is None:
                continue
            values = {**change.values}
            if change.code is Advice.CHEAPER_OR_CPUS:
                values |= finding.problem.values  # by how much the loader must become faster
            if setting is not None:
                values["setting"] = ours.get(str(setting), setting)
            asked = _Asked(
                target,
                finding,
                Remark(change.code, {name: values[name] for name in values if name not in GAINS}),
                _place(case, finding, change),
                (finding.rule,),
                finding.confidence == "possible",
                bool({"speedup", "at_most"} & change.values.keys()),
                None if "at_most" not in change.values else float(change.values["at_most"] or 1.0),
            )
            first = merged.setdefault(asked.key, asked)
            if finding.rule not in first.rules:
                rules = (*first.rules, finding.rule)
                possible = first.possible and asked.possible
                merged[asked.key] = replace(first, rules=rules, possible=possible)
    return list(merged.values())


def _place(case: Case, finding: Finding, change: Remark) -> str | None:
    """Where `change` is to be made: where the loader was made, or the line of a function."""
    stages, name = case.inside and case.inside.stages, change.values.get("name")
    is_of_loader = "setting" in change.values and name is None  # and not of one operator
    if is_of_loader or change.code is Advice.OUT_OF_ORDER:
        return case.loader.made_at
    if change.code is Advice.CHEAPER_COLLATE:
        name = finding.problem.values.get("name")
    of_name = [line.place for line in stages.code if line.function == name] if stages else []
    told = [remark.values.get("place") for remark in (*finding.changes, finding.problem)]
    found = (LINE.match(str(place)) for place in (*of_name, *told) if place is not None)
    return next((line[0] for line in found if line is not None), None)


class _Effect(NamedTuple):
    """What an action does: to the loader, or else to the time of whole epochs.

    `saved` is the share of that which is gone: as is likely, at least, and at most. It is
    `at_most` that where all is taken to be gone; code becomes so many `times` as fast.
    """

    change: Change = NOTHING
    saved: tuple[float, float, float] = NONE_SAVED
    at_most: bool = False
    times: float | None = None


@dataclass(frozen=True)
class _Done:
    """What training is like once some actions are done; workers `live_on` between epochs or not.

    `surely` is the same without the actions whose effect is only bounded; None where all are
    predicted.
    """

    change: Change = field(default_factory=lambda: Change(more_workers=True))
    saved: tuple[float, float, float] = NONE_SAVED
    live_on: bool = True
    surely: _Done | None = None

    def then(self, effect: _Effect) -> _Done:
        """The same with one action more."""
        likely, least, most = (sum(both) for both in zip(self.saved, effect.saved, strict=True))
        surely = self.surely
        if effect.at_most:
            surely = surely or self
        elif surely is not None:
            surely = surely.then(effect)
        return _Done(self.change + effect.change, (likely, least, most), self.live_on, surely)


class _Planner:
    """Chooses the actions of one run, one after the other."""

    def __init__(self, case: Case, asked: list[_Asked], most: float | None) -> None:
        self._case, self._model, self._most = case, case.model, most
        self._names = names_of(case.loader)
        self._asked = asked
        self._considered: set[Rule] = set()
        """The rules of findings of which some advice is predicted."""
        self._actions: list[Action] = []
        self._done, self._keeps_workers = _Done(), False
        self._prediction: Prediction | None = None

    def plan(self) -> Plan:
        """The actions that were chosen, and behind them those of which nothing is predicted.

        Of a finding that is only the first one, and none where other advice is predicted.
        """
        unpredicted: dict[Rule, _Asked] = {}
        for asked in self._asked:
            if not self._considered & set(asked.rules):
                unpredicted.setdefault(asked.finding.rule, asked)
        targets = list(Target)
        others = sorted(unpredicted.values(), key=lambda asked: targets.index(asked.target))
        actions = (*self._actions, *map(self._action, others))
        return Plan(actions, self._limit() if actions else None, self._most)

    def choose_settings(self, inside: Inside, model: LoaderModel) -> None:
        """Settle the settings that are simulated, together, and whether workers live on."""
        now, loader = inside.setting, self._case.loader
        present = {
            "num_workers": now.workers,
            "prefetch_factor": now.prefetch_factor,
            "in_order": now.in_order,
        }
        chosen = self._joint(inside, model, present)
        can_live_on = loader.persistent_workers is False
        can_live_on = can_live_on and PERSISTENT in (loader.setting_names or {PERSISTENT})
        self._done = replace(self._done, live_on=bool(now.workers) or not can_live_on)
        for name, value in chosen.items():
            done = self._done.then(_Effect(Change({SIMULATED[name]: value})))
            self._do(self._setting(name, present[name], value), done)
        if can_live_on and chosen.get("num_workers", now.workers):
            self._keep_workers()
        settled = {str(action.change.values["setting"]) for action in self._actions}
        for asked in [asked for asked in self._asked if asked.setting in {*SIMULATED, PERSISTENT}]:
            if asked.is_predicted or self._names.get(str(asked.setting), asked.setting) in settled:
                self._considered |= set(asked.rules)
                self._asked.remove(asked)

    def _joint(
        self, inside: Inside, model: LoaderModel, present: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The cheapest settings that come near the best, but for those that stay as they are.

        Batches in another order cost most, then workers, then batches in the queue.
        """
        before = tuple(present.values())
        now, factor, in_order = before
        counts, orders = {now}, [in_order]
        if model.is_passing_known:
            best = best_workers(self._case, inside)
            counts |= set() if best is None else {best}
            counts |= {
                int(change.values["proposed"] or 0)
                for asked in self._asked
                for change in asked.finding.changes
                if change.code in {Advice.LOAD_IN_TRAINING, Advice.LOWER}
            }
        if any(asked.setting == "in_order" for asked in self._asked):
            orders.append(False)

        def share(*option: Any) -> float:
            settings = dict(zip(SIMULATED.values(), option, strict=True))
            return self._share_left(self._done.then(_Effect(Change(settings))))

        left: dict[tuple[Any, ...], float] = {}
        for count, ordered in product(sorted(counts), orders):
            factors = [factor << doubled for doubled in range(MOST_DOUBLED + 1)]
            deepens = count and "prefetch_factor" in self._names
            # Each batch more in the queue hides as much of a stall, so the deepest one tells.
            if not deepens or share(count, factors[-1], ordered) > ENOUGH * share(
                count, factor, ordered
            ):
                factors = [factor]
            left |= {(count, each, ordered): share(count, each, ordered) for each in factors}

        def price(option: tuple[Any, ...]) -> tuple[Any, ...]:
            changed = sum(one != other for one, other in zip(option, before, strict=True))
            workers, prefetched, ordered = option
            return changed, ordered != in_order, workers, prefetched

        least = min(left.values())
        cheapest = min((option for option in left if left[option] * ENOUGH <= least), key=price)
        return {
            name: value
            for (name, old), value in zip(present.items(), cheapest, strict=True)
            if value != old
        }

    def _keep_workers(self) -> None:
        """Let workers live on between epochs, where that pays."""
        effect = _Effect()
        asked = next((asked for asked in self._asked if asked.setting == PERSISTENT), None)
        if asked is not None and asked.finding.rule in OF_STARTS:
            cost, starting = asked.finding.cost_share or 0.0, _part_of_start(asked.finding)
            likely = cost * (1.0 if starting is None else starting)
            effect = _Effect(saved=(likely, 0.0, cost), at_most=starting is None)
        done = replace(self._done.then(effect), live_on=True)
        if self._pays(done):
            self._keeps_workers = True
            self._do(self._setting(PERSISTENT, present=False, proposed=True), done)

    def _setting(self, name: str, present: Any, proposed: Any) -> Action:
        """The action that changes a setting."""
        code = Advice.RAISE
        if proposed is False:
            code = Advice.OUT_OF_ORDER
        elif proposed is True:
            code = Advice.KEEP_WORKERS
        elif proposed < present:
            code = Advice.LOWER if proposed else Advice.LOAD_IN_TRAINING
        asking = [asked for asked in self._asked if asked.setting == name]
        values = {"setting": self._names.get(name, name), "present": present, "proposed": proposed}
        return Action(
            Target.SETTING,
            Remark(code, values),
            self._case.loader.made_at,
            rules=tuple(dict.fromkeys(rule for asked in asking for rule in asked.rules)),
            possible=bool(asking) and all(asked.possible for asked in asking),
        )

    def choose(self, target: Target) -> None:
        """Do what is asked for of that kind, first what gains most, as long as it pays."""
        left = [
            (asked, effects)
            for asked in self._asked
            if asked.target is target and (effects := _effects(self._case, asked))
        ]
        for asked, _ in left:
            self._considered |= set(asked.rules)
        if self._keeps_workers:  # which then start once
            left = [each for each in left if each[0].finding.rule is not Rule.WORKER_START]
        while left:
            # What is only bounded comes last: what follows is only bounded then too.
            tried = [
                (effect.at_most, self._share_left(done), place, done, effect)
                for place, (_, effects) in enumerate(left)
                for effect in effects
                if self._pays(done := self._done.then(effect))
            ]
            if not tried:
                return
            *_, place, done, effect = min(tried, key=lambda each: each[:3])
            asked, _ = left.pop(place)
            action = self._action(asked)
            if effect.times is not None:
                values = {**action.change.values, "times": effect.times}
                action = replace(action, change=Remark(action.change.code, values))
            self._do(action, done)

    def _action(self, asked: _Asked) -> Action:
        values, setting = asked.change.values, asked.setting
        if "setting" in values:
            values = {**values, "setting": self._names.get(str(setting), setting)}
        change = Remark(asked.change.code, values)
        return Action(asked.target, change, asked.place, rules=asked.rules, possible=asked.possible)

    def _do(self, action: Action, done: _Done) -> None:
        """Take an action on, with what all of them bring by then."""
        self._done, model = done, self._model
        self._prediction = None if model is None else model.with_change(done.change)
        if model is None or self._prediction is None or done.surely is not None:
            at_least = 1 / self._share_left(done.surely or _Done())
            at_most = 1 / self._share_left(done)
            self._actions.append(replace(action, at_least=at_least, at_most=at_most))
            return
        iteration = self._prediction.iteration_ns
        value, low, high = (
            1 / self._of_epochs(model, done, iteration_ns, saved)
            for iteration_ns, saved in zip(
                (iteration.value, iteration.high, iteration.low), done.saved, strict=True
            )
        )
        self._actions.append(replace(action, speedup=Range(value, low, high)))

    def _pays(self, done: _Done) -> bool:
        """Whether that is worth an action more."""
        return self._share_left(self._done) >= LEAST_SPEEDUP * self._share_left(done)

    def _share_left(self, done: _Done) -> float:
        """What is left of the time of whole epochs."""
        model, saved = self._model, done.saved[0]
        if model is None:
            return max(1 - saved, self._least)
        return self._of_epochs(model, done, model.share_left(done.change) * self._now_ns, saved)

    def _of_epochs(
        self, model: LoaderModel, done: _Done, iteration_ns: float, saved: float
    ) -> float:
        """The same, for an iteration of the steady state and what is `saved` besides."""
        length = self._case.length if done.live_on else self._case.length._replace(epochs=1)
        workers = done.change.settings.get("workers", model.num_workers)
        with_starts_ns = model.with_starts(iteration_ns, workers, length)
        left = 1 - of_epochs(self._case, 1 - with_starts_ns / self._now_ns) - saved
        return max(left, self._least)

    @property
    def _now_ns(self) -> float:
        """An iteration of the steady state, as measured."""
        recorded = self._case.recorded
        return 1.0 if recorded is None else recorded.measured_ns

    @property
    def _least(self) -> float:
        """No less is left of the time: that with ideal loading."""
        return 1 - MOST_GONE if self._most is None else 1 / max(self._most, 1.0)

    def _limit(self) -> Limit | None:
        """What holds training up then."""
        if self._model is None:
            return None
        prediction = self._prediction or self._model.with_change(self._done.change)
        steady = 1 - (self._case.epoch_starts_share or 0.0)
        steady *= prediction.iteration_ns.value / self._now_ns
        left = self._share_left(self._done)
        is_start = prediction.limit is Limit.STEP and left - steady >= MODERATE_SHARE * left
        return Limit.EPOCH_STARTS if is_start else prediction.limit


def _effects(case: Case, asked: _Asked) -> list[_Effect]:
    """What following an advice may do, what is better known first; none where it is not predicted.

    As `gains.py` predicts it by itself.
    """
    finding, change, model, inside = asked.finding, asked.change, case.model, case.inside
    if model is None or inside is None:
        saved = 0.0 if asked.at_most is None else 1 - 1 / asked.at_most
        return [_Effect(saved=(saved, 0.0, saved), at_most=True)] if saved else []
    if finding.cost_share is None or asked.setting in {*SIMULATED, PERSISTENT}:
        return []
    rule = Rule.SLOW_SAMPLES if change.code is Advice.FIX_SAMPLES else finding.rule
    fix, kind, followed = FIXES.get(rule), record_of(change).kind, followed_by(change)
    cost = part_of_cost(finding, change)
    gone = _Effect(saved=(cost, 0.0, cost), at_most=True)
    # Without anyone who waits for a CPU, nothing that follows would be limited by CPUs.
    if fix is not None and rule is not Rule.OVERSUBSCRIPTION:
        gone = _Effect(fix(case, inside), at_most=True)
    if kind is Kind.UNDONE:
        followed = gone.change
    effects = [] if followed is None else [_Effect(followed)]
    if kind is Kind.CHEAPER:
        record = RECORDS.get(rule)
        name = (record and record.part) or str(change.values["name"])
        name = full_name(name, inside.costs.named_ns, inside.recorded.nameable)
        ratio = change.values.get("ratio")  # its time is in proportion to what it handles
        times = TWICE if ratio is None else float(ratio)
        faster = Change(costs=partial(sped_up, name=name, factor=times))
        effects = [_Effect(faster, times=TWICE if ratio is None else None)]
        effects += [gone] if ratio is None else []
    return [gone] if kind is Kind.REMOVED else effects


def _part_of_start(finding: Finding) -> float | None:
    """The share of an epoch's start that is saved by workers that live on; None: not known."""
    facts = {fact.name: fact.value for fact in finding.evidence}
    starting = next((facts[name] for name in STARTING if name in facts), None)
    start_ns = facts.get("epoch start, later epochs")
    return None if starting is None or not start_ns else min(starting / start_ns, 1.0)
