"""Whether a run is input-bound, or why that cannot be concluded, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from loadeval.analysis.remark import Remark

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.estimate.arms import Gain
    from loadeval.analysis.estimate.stats import Estimate

MODERATE_SHARE = 0.05
HIGH_SHARE = 0.20
"""Shares of the time lost from which a run is moderately or highly input-bound.

The bounds are those of TensorFlow's input-pipeline analyser (under 5% of the step time not
input-bound, 5% and over moderately, 20% and over highly). There the share is of time spent
waiting for input; here it is of all that loading costs.
"""
FEWEST_BATCHES = 20
"""With fewer measured batches in an arm nothing is concluded."""
FEWEST_PAIRS_OF_EPOCHS = 3
"""With fewer, where each epoch is a block, nothing is concluded."""
USUAL_BATCHES = 250
"""So many batches of an alternating run nearly always suffice."""
LEAST_MORE, MOST_MORE = 2.0, 10.0
"""Times the batches there are that are asked for, where they do not suffice."""
MORE_EPOCHS = 10
"""So many more epochs are asked for where those there are do not suffice."""
WIDEST_SHARE = 0.10
"""Nothing is concluded from a confidence interval of the lost share that is wider either way.

The exception is an interval all of which is input-bound, or none.
"""
ROUNDING = 1e-12


class InputBound(Enum):
    """How much loading limits training."""

    NOT = "not"
    MODERATELY = "moderately"
    HIGHLY = "highly"


class Objection(Enum):
    """Why nothing is concluded."""

    NOT_MEASURED = "not measured"
    TOO_FEW_BATCHES = "too few batches"
    TOO_FEW_EPOCHS = "too few epochs"
    WORKERS_BUSY = "workers busy in the ideal arm"
    DRIFT = "drift within a run"
    NO_INTERVAL = "no confidence interval"
    IDEAL_SLOWER = "ideal arm slower"
    MISSED_STALL = "stalls too rare"
    WIDE_INTERVAL = "wide confidence interval"


class Unmeasured(Enum):
    """Why a run, or an arm of it, has no iterations to compare."""

    NO_PAIR = "no whole pair"
    NO_PAIR_OF_EPOCHS = "no whole pair of epochs"
    NO_TIME = "zero elapsed time"
    NO_STEP = "no step measured"
    NO_STEADY_BATCH = "no steady batch"


class VerdictAdvice(Enum):
    """What to do about a verdict."""

    FASTER_LOADER = "make the loader faster"
    ABOUT_AS_FAST = "the loader is about as fast as the step"
    FAST_ENOUGH = "the loader is fast enough on its own"
    SMOOTHER_LOADING = "look for slow batches"
    LESS_CONTENTION = "let loading take less"
    MEASURE_EVERY_BATCH = "measure every batch"
    SEE_FINDINGS = "see the findings"
    LOAD_IN_BACKGROUND = "load in the background"
    SHORTER_EPOCH_START = "shorten epoch starts"
    LOOK_AT_STEP = "look at the step"
    MORE_PAIRS = "more pairs"
    BATCHES_FOR_PAIRS = "batches for pairs"
    MORE_EPOCHS = "more epochs"
    MORE_BATCHES = "more batches"
    LONGER_EPOCHS = "longer epochs"
    RESTING_WORKERS = "let workers rest"
    ALTERNATE = "alternate"
    STOP_OTHER_WORK = "stop other work"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The levels that the confidence interval of the lost share spans: `lowest` to `highest`.

    Both are None where there is an `objection`: the verdict is inconclusive. `unmeasured` says why
    which runs have nothing to compare. `workers_busy` is the CPU time of the loader's workers in
    the ideal blocks as a share of these, where that is too much. `drift_ns` is the larger of the
    two runs' drifts, a batch, beyond noise. `missed_ns` is by how much a stall beside the measured
    batches exceeds the longest of them.
    """

    lowest: InputBound | None = None
    highest: InputBound | None = None
    objection: Objection | None = None
    unmeasured: tuple[Remark, ...] = ()
    workers_busy: float | None = None
    drift_ns: float = 0.0
    missed_ns: float = 0.0

    def __str__(self) -> str:
        """Words such as "moderately to highly input-bound", or "inconclusive"."""
        if self.lowest is None or self.highest is None:
            return "inconclusive"
        levels = dict.fromkeys((self.lowest.value, self.highest.value))
        return f"{' to '.join(levels)} input-bound"


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a verdict goes by.

    `required` is None where the loader alone was not timed; `loads_ahead` is False where the loader
    is known to load nothing ahead of time. `batches` are all that an alternating run has. Where its
    epochs are blocks `more_epochs` is how many are missing for as many pairs as are needed. The
    others are as in Verdict.
    """

    gain: Gain
    fewest_batches: int
    alternating: bool
    required: Estimate | None = None
    loads_ahead: bool = True
    workers_busy: float | None = None
    drift_ns: float = 0.0
    missed_ns: float = 0.0
    batches: int = 0
    more_epochs: int | None = None

    @property
    def share(self) -> Estimate:
        """The share of the time lost."""
        return self.gain.lost_share

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval of that share; without one the share itself."""
        value, low, high = self.share.value, self.share.low, self.share.high
        return (value if low is None else low, value if high is None else high)


def judge(evidence: Evidence) -> Verdict:
    """The verdict on what was found: the first objection there is, or the levels."""
    for objection, holds in CRITERIA.items():
        if holds(evidence):
            return Verdict(
                objection=objection,
                workers_busy=evidence.workers_busy,
                drift_ns=evidence.drift_ns,
                missed_ns=evidence.missed_ns,
            )
    low, high = evidence.bounds
    return Verdict(level(low), level(high))


def level(share: float) -> InputBound:
    """How input-bound a run is at this share of the time lost."""
    return list(InputBound)[
        sum(share >= limit - ROUNDING for limit in (MODERATE_SHARE, HIGH_SHARE))
    ]


def _workers_were_busy(evidence: Evidence) -> bool:
    # Workers that are busy slow the ideal arm down: a share that is high all the same is higher.
    low = evidence.share.low
    return evidence.workers_busy is not None and (low is None or low < HIGH_SHARE)


def _drifted(evidence: Evidence) -> bool:
    lost_ns = abs(evidence.gain.lost_ns.value)
    return (
        evidence.drift_ns > lost_ns and evidence.drift_ns >= MODERATE_SHARE * evidence.gain.real_ns
    )


def _wide(evidence: Evidence) -> bool:
    low, high = evidence.bounds
    # However wide: all of it says the same, or at least that the run is input-bound.
    open_ended = level(low) is InputBound.NOT and level(low) != level(high)
    return (high - low) / 2 > WIDEST_SHARE + ROUNDING and open_ended


CRITERIA: dict[Objection, Callable[[Evidence], bool]] = {
    Objection.TOO_FEW_BATCHES: lambda evidence: (
        evidence.more_epochs is None and evidence.fewest_batches < FEWEST_BATCHES
    ),
    Objection.TOO_FEW_EPOCHS: lambda evidence: bool(evidence.more_epochs),
    Objection.WORKERS_BUSY: _workers_were_busy,
    Objection.DRIFT: _drifted,
    Objection.NO_INTERVAL: lambda evidence: evidence.share.low is None,
    Objection.IDEAL_SLOWER: lambda evidence: evidence.bounds[1] <= -MODERATE_SHARE,
    Objection.MISSED_STALL: lambda evidence: bool(evidence.missed_ns) and _wide(evidence),
    Objection.WIDE_INTERVAL: _wide,
}
"""Objections are raised in this order."""

REMEDIES = {
    Objection.WORKERS_BUSY: VerdictAdvice.RESTING_WORKERS,
    Objection.DRIFT: VerdictAdvice.ALTERNATE,
    Objection.IDEAL_SLOWER: VerdictAdvice.STOP_OTHER_WORK,
}
"""What settles an objection that more batches do not settle."""


def advise(evidence: Evidence, verdict: Verdict) -> tuple[Remark, ...]:
    """What to do about `verdict`."""
    more = Remark(VerdictAdvice.MORE_BATCHES)
    if evidence.alternating:
        more = Remark(VerdictAdvice.MORE_PAIRS, {"batches": _batches_needed(evidence)})
    if evidence.more_epochs is not None:
        more = Remark(VerdictAdvice.MORE_EPOCHS, {"epochs": evidence.more_epochs or MORE_EPOCHS})
    if verdict.objection in REMEDIES:
        return (Remark(REMEDIES[verdict.objection]),)
    if verdict.objection is Objection.TOO_FEW_BATCHES and not evidence.alternating:
        return (Remark(VerdictAdvice.LONGER_EPOCHS),)
    if verdict.objection is not None:
        return (more,)
    if verdict.highest is InputBound.NOT:
        return (Remark(VerdictAdvice.LOOK_AT_STEP),)
    if evidence.share.value <= 0:
        return (more,)
    where = _where_to_look(evidence)
    return where if verdict.lowest is verdict.highest else (*where, more)


def _batches_needed(evidence: Evidence) -> int:
    """How many batches make the interval narrow enough: its width falls with their square root."""
    low, high = evidence.bounds
    times = ((high - low) / 2 / WIDEST_SHARE) ** 2
    needed = int(evidence.batches * min(max(times, LEAST_MORE), MOST_MORE))
    return max(round(needed, 2 - len(str(needed))), USUAL_BATCHES)


def _where_to_look(evidence: Evidence) -> tuple[Remark, ...]:
    """Advice by where most is lost, and by whether the loader alone is fast enough."""
    gain = evidence.gain
    starts: tuple[Remark, ...] = ()
    place = most_lost_in(gain.waiting_ns, gain.contention_ns, gain.epoch_starts_ns)
    if gain.epoch_starts_ns is not None:
        starts_share = gain.epoch_starts_ns.value / gain.ideal_ns * (1 - evidence.share.value)
        if place is Part.EPOCH_STARTS or starts_share >= MODERATE_SHARE:
            starts = (Remark(VerdictAdvice.SHORTER_EPOCH_START, {"starts_share": starts_share}),)
    if place is Part.EPOCH_STARTS:
        return starts
    return (*_in_steady_state(evidence, place is Part.WAITING), *starts)


def _in_steady_state(evidence: Evidence, waits: bool) -> tuple[Remark, ...]:
    if waits and not evidence.loads_ahead:
        return (Remark(VerdictAdvice.LOAD_IN_BACKGROUND),)
    contention = () if waits else (Remark(VerdictAdvice.LESS_CONTENTION),)
    if evidence.required is None:
        return (
            *contention,
            Remark(VerdictAdvice.SEE_FINDINGS if waits else VerdictAdvice.MEASURE_EVERY_BATCH),
        )
    enough, capacity = keeps_up(evidence.required), {"required": evidence.required.value}
    if enough is None:
        bounds = {"low": evidence.required.low, "high": evidence.required.high}
        return (Remark(VerdictAdvice.ABOUT_AS_FAST, bounds), *contention)
    if not enough:
        return (Remark(VerdictAdvice.FASTER_LOADER, capacity), *contention)
    rest = contention or (Remark(VerdictAdvice.SMOOTHER_LOADING),)
    return (Remark(VerdictAdvice.FAST_ENOUGH, capacity), *rest)


def keeps_up(required: Estimate) -> bool | None:
    """Whether a loader that is `required` times too slow alone is fast enough.

    None where its interval spans 1.
    """
    if required.low is None or required.high is None:
        return required.value <= 1
    return None if required.low <= 1 < required.high else required.high <= 1


class Part(Enum):
    """What the time that is lost consists of."""

    WAITING = "waiting"
    CONTENTION = "contention"
    EPOCH_STARTS = "epoch starts"


def most_lost_in(
    waiting_ns: Estimate, contention_ns: Estimate, epoch_starts_ns: Estimate | None
) -> Part:
    """The largest part."""
    parts = {Part.WAITING: waiting_ns.value, Part.CONTENTION: contention_ns.value}
    if epoch_starts_ns is not None:
        parts[Part.EPOCH_STARTS] = epoch_starts_ns.value
    return max(parts, key=parts.__getitem__)


class GateOutcome(Enum):
    """Where the 95% interval of the lost share lies."""

    ABOVE = "above"
    NOT_ABOVE = "not above"
    SPANS = "spans the bound"
    INCONCLUSIVE = "inconclusive"


def gate(verdict: Verdict, share: Estimate | None, bound: float) -> GateOutcome:
    """Whether more than `bound`, between 0 and 1, is lost, where the lost `share` had `verdict`.

    ABOVE where the whole interval is, NOT_ABOVE where it ends at the bound or under it.
    INCONCLUSIVE without an interval, and where the verdict is inconclusive for another reason than
    the width of the interval.
    """
    # However wide an interval is, it is to be believed.
    is_trusted = verdict.objection in (None, Objection.MISSED_STALL, Objection.WIDE_INTERVAL)
    if share is None or share.low is None or share.high is None or not is_trusted:
        return GateOutcome.INCONCLUSIVE
    if share.low > bound + ROUNDING:
        return GateOutcome.ABOVE
    return GateOutcome.NOT_ABOVE if share.high <= bound + ROUNDING else GateOutcome.SPANS
