"""Every rule asked of a run, what each finding costs, and what to do about them, in order.

A rule is a function from a Context to a Finding, None, or `Skip`, under `@rule`. The engine names
none of them: it asks all, sorts what was found by the time that undoing it gains, gives each only
the time that those before it left, and predicts what is to be done, each thing on top of those
before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from loadeval.data.columns import UNKNOWN
from loadeval.data.run import Run, batches_for
from loadeval.errors import UsageError
from loadeval.estimate.gap import gap
from loadeval.estimate.metrics import cpus
from loadeval.estimate.stats import Estimate
from loadeval.estimate.steady import once_per_run, steady
from loadeval.findings import ACCOUNTED, FEWEST_LOGGED, LARGE, MATTERS, WORTH
from loadeval.inside.stages import Stage, Stages, stages
from loadeval.model.costs import Change, computed_ns
from loadeval.model.model import Model

DIAGNOSE = "measure with `loadeval diagnose -- COMMAND`"
IN_PYTHON = "or with mode='alternate' in Python"
NO_IDEAL = f"ideal loading was not measured: {DIAGNOSE}, {IN_PYTHON}"

Part: TypeAlias = Literal["waiting", "contention", "epoch starts"]
Turn: TypeAlias = Literal["first", "by gain", "last"]
Ask: TypeAlias = "Callable[[Context], Finding | None]"
Undo: TypeAlias = "Callable[[Context], Change]"


class Skip(Exception):  # noqa: N818 - it is none
    """Why a rule could not tell, and what would measure it.

    Where the run was too short, about so many `more_batches` would; 0 where that is not the reason.
    """

    def __init__(self, why: str, more_batches: float = 0) -> None:
        super().__init__(why)
        self.more_batches = math.ceil(max(more_batches, 0))


@dataclass(frozen=True)
class Do:
    """One thing to do; `where` is a line of the program, and `because` says more about it.

    `change` is what the model makes of it, if that can be predicted. A `setting`, by the user's
    name of it, changes from `present` to `proposed`; or a part becomes so many `times` as fast.
    """

    says: str
    because: str = ""
    where: str | None = None
    change: Change | None = None
    times: float | None = None
    setting: str | None = None
    present: Any = None
    proposed: Any = None


def Set(  # noqa: N802 - what to do, as Do is
    setting: str, present: Any, proposed: Any, because: str = "", change: Change | None = None
) -> Do:
    """To change a setting, by the user's name of it."""
    says = f"{setting} {present} -> {proposed}"
    return Do(says, because, None, change, None, setting, present, proposed)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: what it is, what to do, and the facts that show it.

    `facts` are numbers whose names end in their unit, None where it was not measured. `sure` is
    False where other causes would look the same. `cost` is the share of the training time, over
    whole epochs, that it takes and no finding before it; None where that is not known. What is
    `ahead` comes before the time lost to loading: it ends training soon, or is done for nothing, or
    costs more than each part of that. `rule` and `source` are those of the rule that found it.
    """

    says: str
    do: Sequence[Do] = ()
    facts: Mapping[str, float | None] = field(default_factory=dict)
    sure: bool = True
    cost: float | None = None
    ahead: bool = False
    rule: str = ""
    source: str = ""


@dataclass(frozen=True)
class Action(Do):
    """One thing to do, and what training gains by it and all actions before it.

    `speedup` is None where nothing is predicted. `findings` are the rules that ask for it.
    """

    speedup: Estimate | None = None
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, the costliest first, and what to do; every other rule, and why.

    `nothing` are the rules that found nothing, `skipped` those that could not tell, and why.
    `limit` is what holds training up once the predicted actions are done; "" where none is.
    `more_batches` are how many more would do for each rule that could not tell in a run so short.
    """

    findings: tuple[Finding, ...]
    actions: tuple[Action, ...]
    nothing: tuple[str, ...]
    skipped: Mapping[str, str]
    limit: str = ""
    more_batches: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class rule:  # noqa: N801 - it decorates functions
    """A rule, by its name; `undo` is the change that takes away what it finds.

    What that costs is `of` these parts of the time lost. Findings of which the `turn` is first are
    undone before others, those by gain in its order, and the last ones have what is left. One of
    no part finds what is beside it: its cost is a share of the run.
    """

    name: str
    _: KW_ONLY
    source: str
    undo: Undo | None = None
    of: tuple[Part, ...] = ("waiting",)
    turn: Turn = "by gain"

    def __call__(self, ask: Ask) -> Ask:
        """Register the function that is asked."""
        RULES[ask] = self
        return ask


RULES: dict[Ask, rule] = {}


class Context:
    """A run, its figures, and what rules ask of both. `ideal` is the run that replayed, if any.

    `others` are runs of other loaders of the same training, by their role. `gap` is real loading
    against ideal; of a log by itself, `is_log`, what it waited. Of the steady state `waiting` is
    the share that is lost in waiting, but for what a GPU had work in, and of a log all that it
    waited; `contention` is the rest of what is lost, in slower steps. `model` predicts what other
    settings or costs would bring; None where nothing can be predicted. `rows` are the steady real
    batches among the run's steps, and `batches` these steps. A rank `is_rank` of several: its steps
    wait for those of others.
    """

    def __init__(self, run: Run, ideal: Run | None, others: Mapping[str, Run]) -> None:
        self.run, self.ideal, self.others = run, ideal, others
        self.loader, self.cpus, self.gap = run.loader, cpus(run), gap(run, ideal)
        self.rows = np.flatnonzero(steady(run, "real"))
        self.batches = run.steps.take(self.rows)
        self.waiting = self.contention = 0.0
        real, free, waited = self.gap.real, self.gap.ideal, self.gap.waiting
        self.is_log = free is None
        if real is not None and waited is not None and real.value:
            most_ns = real.value if self.gap.gpu_idle is None else self.gap.gpu_idle
            if free is not None:  # where steps are faster than ideal ones, waiting exceeds it
                most_ns = real.value - free.value
            self.waiting = max(min(waited.value, most_ns), 0.0) / real.value
        if self.gap.steady_speedup is not None:
            self.contention = max(1 - 1 / self.gap.steady_speedup.value - self.waiting, 0.0)
        self.is_rank = int(run.header.environment.get("world_size") or 1) > 1
        self._stages = stages(run)
        self.model: Model | None = None
        with suppress(UsageError):
            self.model = Model(run, self.gap, self._stages)
        # What a worker does for a batch, fetch and collate; the share of it in which it collates,
        # and that in which it is neither on a CPU nor waiting for one.
        self.work_ns, self.collating, self.blocked = 1.0, 0.0, 0.0
        if (inside := self._stages) is not None:
            self.work_ns = max(inside.fetch_ns + inside.collate_ns, 1.0)
            self.collating = inside.collate_ns / self.work_ns
            self.blocked = (inside.blocked_ns or 0.0) / self.work_ns
        if self.model is not None:
            self.blocked = self.model.blocked

    @once_per_run
    def answer(self, ask: Ask) -> Finding | Skip | None:
        """What a rule says."""
        try:
            return ask(self)
        except Skip as why:
            return why

    def found(self, ask: Ask) -> Finding | None:
        """What another rule found; None where it found nothing, or could not tell."""
        answer = self.answer(ask)
        return answer if isinstance(answer, Finding) else None

    @property
    def explains_waiting(self) -> bool:
        """Whether a rule found what training waits for, and undoing that gains what matters."""
        for ask, each in RULES.items():
            if each.undo is None or "waiting" not in each.of:
                continue
            found = self.found(ask)
            if found is None or found.cost == 0:
                continue
            is_known = self.model is None or found.cost is not None
            if is_known or self.gained(each.undo(self)) >= MATTERS:
                return True
        return False

    @property
    def stages(self) -> Stages:
        """Inside the loader. Raises Skip where nobody looked."""
        if self._stages is None:
            how = f"{DIAGNOSE}, or with stages=True in Python"
            raise Skip(f"the loader was not looked into: {how}")
        return self._stages

    def gained(self, change: Change) -> float:
        """The share of the time that is gone with a change; 0 where nothing can be predicted."""
        if self.model is None:
            return 0.0
        return max(1 - 1 / self.model.simulate(change, in_range=False).value, 0.0)

    @property
    def loses(self) -> bool:
        """Whether the steady state surely loses time that matters; of a log: waits for it.

        Raises Skip where that was not measured.
        """
        if self.is_log:
            if self.run.header.mode != "log" or self.ideal is not None:
                if self.gap.pairs is None:
                    raise Skip(NO_IDEAL)
                needed = batches_for(1, self.loader.prefetch_depth or 0)
                raise Skip("no pair of blocks is whole yet", needed - self.run.batches)
            self.needs(FEWEST_LOGGED)
            return self.waiting >= MATTERS
        speedup = self.gap.steady_speedup
        if speedup is None:
            raise Skip("an arm has no batch that counts")
        return speedup.bounds[0] > 1 and 1 - 1 / speedup.value >= MATTERS

    def needs(self, batches: int) -> None:
        """Raises Skip where fewer are steady, with how many more of all batches would do."""
        if (known := len(self.rows)) < batches:
            more = (batches - known) * self.run.batches / max(known, 1)
            raise Skip(f"{known} steady batches, of {batches} needed", more)

    @property
    def loads_on_request(self) -> bool:
        """Whether the loader works only while training waits for it.

        It does without workers, unless a thread reads it ahead, so that the mean real wait is by
        far shorter than loading takes. Where workers are not known, by that wait alone: for such a
        loader it is all of its own time, for one that loads ahead what exceeds the step's.
        """
        if self.loader.workers or self.loader.prefetch_depth:
            return False
        alone, ideal, wait = self.gap.loader_only, self.gap.ideal, self.gap.real_wait
        if alone is None or ideal is None or wait is None:
            return self.loader.workers == 0
        if self.loader.workers == 0:
            return not 0 < wait.value < alone.value / 4
        return wait.value >= alone.value - min(alone.value, ideal.value) / 2

    def charged(self, *of: Stage) -> float:
        """The share of the loader's time that these stages were waited for."""
        stages = self.stages
        charged_ns = sum(each.charged_ns for each in stages.stages if each.stage in of)
        return stages.share(charged_ns) or 0.0

    @property
    def opens_no_file(self) -> bool:
        """Whether it was seen that loading opens no file."""
        known = self.run.stages.opened_files[self.run.stages.opened_files != UNKNOWN]
        return len(known) > 0 and not known.any()

    def setting(self, name: str) -> str | None:
        """What the user calls a setting of the loader; None where it has none of the kind."""
        names = self.loader.setting_names
        if names is None:  # an older log
            return name if self.loader.backend.startswith("torch.") else None
        return names.get(name)


def diagnose(real: Run, ideal: Run | None = None, **others: Run) -> Diagnosis:
    """What `real` says is wrong: an alternating run, or one that logged, with `ideal` replayed.

    `others` are runs of other loaders of the same training, such as `validation`. Raises UsageError
    when the two runs cannot be compared.
    """
    if ideal is None and real.header.mode == "replay":
        why = "the run replayed, and loaded nothing"
        return Diagnosis((), (), (), {each.name: why for each in RULES.values()})
    c = Context(real, ideal, others)
    answers = [(each, c.answer(ask)) for ask, each in RULES.items()]
    skips = {each.name: why for each, why in answers if isinstance(why, Skip)}
    skipped = {name: str(why) for name, why in skips.items()}
    short = {name: why.more_batches for name, why in skips.items() if why.more_batches}
    found = [
        (each, replace(finding, rule=each.name, source=each.source))
        for each, finding in answers
        if isinstance(finding, Finding)
    ]
    first = {each.name for each in RULES.values() if each.turn == "first"}
    findings = _costs(c, found, first)
    names = {finding.rule for finding in findings}
    nothing = [each.name for each, answer in answers if answer is None]
    nothing += [each.name for each, _ in found if each.name not in names]
    actions, limit = _actions(c, findings, first)
    return Diagnosis(tuple(findings), tuple(actions), tuple(nothing), skipped, limit, short)


def _costs(  # noqa: C901 - one sum
    c: Context, found: list[tuple[rule, Finding]], first: set[str]
) -> list[Finding]:
    """The findings, the costliest first, each with the time that those before it left.

    Those whose time others have are gone. Those without a cost come after the others. Rules that
    are `first` are undone before others.
    """
    of_starts = c.gap.share("epoch starts")
    lost: dict[Part, float] = {
        "waiting": c.waiting * (1 - of_starts),
        "contention": c.contention * (1 - of_starts),
        "epoch starts": max(of_starts, 0.0),
    }
    if c.gap.real is None:
        lost = dict.fromkeys(lost, 1.0)  # nobody knows how much at most
    elif c.gap.lost_share is not None:  # where some part gains time, the others lose less in all
        most = max(c.gap.lost_share.value, 0.0) / max(sum(lost.values()), MATTERS)
        lost = {part: share * min(most, 1.0) for part, share in lost.items()}
    left, by_turn = dict(lost), []
    for each, finding in found:
        if not each.of:
            continue
        cost = finding.cost  # by itself; None where nobody knows
        if cost is not None:  # of the steady state, but for starts
            cost = cost * (1 if "epoch starts" in each.of else 1 - of_starts) or None
        elif each.undo is not None:
            cost = c.waiting or None if c.model is None else c.gained(each.undo(c))
        # Of two that are alike, what a setting mends comes first.
        by_setting = bool(finding.do) and finding.do[0].setting is not None
        turn = ("first", "by gain", "last").index(each.turn)
        by_turn.append(((turn, -(cost or 0.0) * (1 + LARGE * by_setting)), each, finding, cost))
    findings, undone, reached = list[Finding](), Change(), 0.0
    for _, each, finding, by_itself in sorted(by_turn, key=lambda known: known[0]):
        if by_itself is None:
            findings.append(replace(finding, cost=None))
            continue
        is_last = each.turn == "last"
        if by_itself < MATTERS and not is_last and not c.is_log:
            continue
        both = undone + each.undo(c) if each.undo and c.model else undone
        gained = c.gained(both)
        is_simulated = finding.cost is None and c.model is not None
        within = _within(c, each, lost["contention"], left, both)
        cost = min(max(gained - reached, 0.0) if is_simulated else by_itself, sum(within.values()))
        is_told = sum(each.cost or 0.0 for each in findings) >= ACCOUNTED * sum(lost.values())
        if cost < (MATTERS if is_last and is_told else WORTH):
            if c.is_log:  # nothing tells which of them it is that costs
                findings.append(replace(finding, cost=None))
            continue
        undone, reached, rest = both, gained, cost
        for part, most in within.items():
            taken = min(rest, most)
            left[part], rest = left[part] - taken, rest - taken
        findings.append(replace(finding, cost=cost))
    most = max((each.cost or 0.0 for each in findings), default=0.0)
    findings += [
        replace(finding, ahead=finding.ahead or (finding.cost or 0.0) > most)
        for each, finding in found
        if not each.of
    ]
    return sorted(
        findings,
        key=lambda f: (not f.ahead, f.cost is None, f.rule not in first, -(f.cost or 0.0)),
    )


def _within(
    c: Context, each: rule, slower: float, left: Mapping[Part, float], undone: Change
) -> dict[Part, float]:
    """How much of each part of the time a finding may have at most.

    Steps are slower beside what is loaded, by `slower` in all: less so, as less is.
    """
    within, unloaded = {part: left[part] for part in each.of}, 0.0
    if c.model is not None and not c.is_rank:
        then_ns = computed_ns(undone.applied(c.model.costs))
        unloaded = max(1 - then_ns / max(computed_ns(c.model.costs), 1.0), 0.0)
    if each.turn == "last":
        is_all = "contention" in each.of or (c.cpus.are_busy and not c.is_rank)
        within["contention"] = min(left["contention"], slower * (1 - unloaded)) * is_all
    elif "contention" not in each.of:
        due = max(slower * unloaded - (slower - left["contention"]), 0.0)
        within["contention"] = min(due, left["contention"])
    return within


def _actions(  # noqa: C901
    c: Context, findings: list[Finding], first: set[str]
) -> tuple[list[Action], str]:
    """What to do, the largest gain first; what is not predicted comes last. And what limits then.

    Each is simulated on top of those before it, what mends the first findings before all others.
    What then gains too little, or may as well lose, is left out, and so is what comes after a
    finding's predicted advice without a prediction. A setting has one value.
    """
    asked: dict[str, tuple[Do, list[str]]] = {}
    for finding in findings:
        for do in finding.do:
            asked.setdefault(do.says, (do, []))[1].append(finding.rule)
    model, most_gain = c.model, c.gap.speedup
    beside = {each.name for each in RULES.values() if not each.of}
    actions, done, reached = list[Action](), Change(), 1.0
    left = [(do, rules, do.change) for do, rules in asked.values() if do.change is not None]
    while left and model is not None:
        tried = [
            (model.simulate(then := done + change, in_range=False).value, do, rules, then)
            for do, rules, change in left
        ]
        most = max(value for value, *_ in tried)
        least = most - LARGE * abs(most - reached)  # of what gains alike a setting comes first
        _, do, rules, then = min(
            tried,
            key=lambda each: (
                not first & set(each[2]),
                each[0] < least,
                each[1].setting is None,
            ),
        )
        left, speedup = [each for each in left if each[0] is not do], model.simulate(then)
        if speedup.value < reached * (1 + WORTH) or round(speedup.bounds[0], 2) <= 1:
            if first & set(rules):
                continue
            break
        if most_gain is not None and beside.issuperset(rules):  # free loading leaves that
            most_gain *= speedup / reached
        done, reached = then, speedup.value
        if most_gain is not None:  # nothing gains more than free loading would
            value, high = min(speedup.value, most_gain.value), most_gain.bounds[1]
            low, most = speedup.bounds
            speedup = Estimate(value, min(low, value), max(min(most, high), value))
        actions.append(_action(c, do, rules, speedup))
        if do.setting:
            left = [each for each in left if each[0].setting != do.setting]
    told = {name for action in actions for name in action.findings}
    for do, rules in asked.values():
        settings = {action.setting for action in actions if action.setting}
        if told & set(rules) or do.setting in settings:
            continue
        if model is not None and do.change is not None:
            further = model.simulate(done + do.change)
            # It may lose as much as it is likely to gain.
            loses = further.value * further.bounds[0] < reached**2
            if further.value < reached * (1 + MATTERS) or loses:
                continue
        told |= set(rules)
        actions.append(_action(c, do, rules, None))
    ahead = {finding.rule for finding in findings if finding.ahead}
    actions.sort(key=lambda action: ahead.isdisjoint(action.findings))
    return actions, model.limit(done) if model is not None and reached > 1 else ""


def _action(c: Context, do: Do, rules: list[str], speedup: Estimate | None) -> Action:
    told = vars(do) | {"where": c.loader.made_at if do.setting else do.where}
    return Action(**told, speedup=speedup, findings=tuple(rules))
