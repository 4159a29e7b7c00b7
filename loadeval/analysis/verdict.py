"""Whether a run is input-bound, why that is concluded, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis import advice

if TYPE_CHECKING:
    from loadeval.analysis.figures import Figures, Gain
    from loadeval.analysis.intervals import Estimate

MODERATE_SHARE = 0.05
HIGH_SHARE = 0.20
"""Shares of the time lost from which a run is moderately or highly input-bound.

The bounds are those of TensorFlow's input-pipeline analyser (under 5% of the step time not
input-bound, 5% and over moderately, 20% and over highly). There the share is of time spent
waiting for input; here it is of all that loading costs.
"""
FEWEST_BATCHES = 20
"""Counted batches in each arm under which nothing is concluded."""
WIDEST_SHARE = 0.10
"""Half the width of the interval of the share lost, over which nothing is concluded."""
INCONCLUSIVE = "inconclusive"
TOO_RARE = "too rarely for so few to tell how often"
TOO_WIDE = f"an interval wider than {WIDEST_SHARE * 100:.0f} points either way"
"""How the reasons end that object to the width of an interval, and not to what it covers."""
LEVELS = ("not", "moderately", "highly")
FEW_AGGREGATES = "of one of the runs there are totals of a few stretches alone"
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict with its reason, and advice."""

    verdict: str
    reason: str
    advice: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a verdict goes by.

    `required` is None where the loader alone was not timed. `workers_busy` is the CPU time of
    the loader's workers in the ideal blocks as a share of these, where that is too much.
    `drift_ns` is the larger of the two runs' drifts, a batch, beyond noise. `missed_ns` is a
    stall of the loader that fell beside the counted batches. `ahead` is False
    where the loader is known to load nothing ahead of time.
    """

    figures: Figures
    gain: Gain
    alternating: bool
    required: float | None = None
    workers_busy: float | None = None
    drift_ns: float = 0.0
    missed_ns: float = 0.0
    ahead: bool = True

    @property
    def share(self) -> Estimate:
        """The share of the time lost."""
        return self.gain.lost_share

    @property
    def settled_by_more(self) -> str:
        """What would give a narrower interval."""
        return advice.MORE_PAIRS if self.alternating else advice.MORE_BATCHES


def judge(found: Evidence) -> Verdict:
    """The verdict on what was found: the first objection there is, or the level."""
    return (
        _too_few(found)
        or _contaminated(found)
        or _drifted(found)
        or _no_interval(found)
        or _impossible(found)
        or _too_rare(found)
        or _too_wide(found)
        or _level(found)
    )


def _too_few(found: Evidence) -> Verdict | None:
    what, where = ("counted", "arm") if found.alternating else ("steady", "run")
    sides = (("real", found.figures.real_batches), ("ideal", found.figures.ideal_batches))
    short = [f"{count} {what} in the {side} {where}" for side, count in sides if _few(count)]
    if not short:
        return None
    reason = f"too few batches, {' and '.join(short)}, where {FEWEST_BATCHES} are needed"
    more = advice.MORE_PAIRS if found.alternating else advice.TOO_FEW
    return Verdict(INCONCLUSIVE, reason, more)


def _few(count: int) -> bool:
    return count < FEWEST_BATCHES


def _contaminated(found: Evidence) -> Verdict | None:
    # Workers that are busy slow the ideal arm down: a share that is high all the same is higher.
    low = found.share.low
    if found.workers_busy is None or (low is not None and low >= HIGH_SHARE):
        return None
    reason = (
        f"the loader's workers were still at work in the ideal blocks, for "
        f"{found.workers_busy:.0%} of a CPU, so that free loading was not quite free"
    )
    return Verdict(INCONCLUSIVE, reason, advice.CONTAMINATED)


def _drifted(found: Evidence) -> Verdict | None:
    real_ns, lost_ns = found.gain.real_ns, abs(found.gain.lost_ns.value)
    if found.drift_ns <= lost_ns or found.drift_ns < MODERATE_SHARE * real_ns:
        return None
    reason = (
        f"the pace changed more within a run, by {percent(found.drift_ns / real_ns)} of the real "
        f"iteration, than it differs between the runs, by {percent(lost_ns / real_ns)}"
    )
    return Verdict(INCONCLUSIVE, reason, advice.PACE_DRIFTED)


def _no_interval(found: Evidence) -> Verdict | None:
    if found.share.low is not None:
        return None
    few = "fewer than three pairs are whole" if found.alternating else FEW_AGGREGATES
    reason = f"{_lost(found)}, and {few}, too few for an interval"
    return Verdict(INCONCLUSIVE, reason, found.settled_by_more)


def _too_rare(found: Evidence) -> Verdict | None:
    if not found.missed_ns or not _wide(found):
        return None
    reason = (
        f"{_lost(found)}: the loader stalled for {found.missed_ns / 1e6:,.0f} ms longer beside the "
        f"counted batches than for any of them, {TOO_RARE}"
    )
    return Verdict(INCONCLUSIVE, reason, found.settled_by_more)


def _wide(found: Evidence) -> bool:
    low, high = _bounds(found)
    # However wide: all of it says the same.
    return (high - low) / 2 > WIDEST_SHARE + ROUNDING and level(low) != level(high)


def _too_wide(found: Evidence) -> Verdict | None:
    if not _wide(found):
        return None
    reason = f"{_lost(found)}: {TOO_WIDE}"
    return Verdict(INCONCLUSIVE, reason, found.settled_by_more)


def _impossible(found: Evidence) -> Verdict | None:
    _, high = _bounds(found)
    if high > -MODERATE_SHARE:
        return None
    slower = f"free loading was slower than the real one, by {-found.share.value:.1%} of its time"
    return Verdict(INCONCLUSIVE, f"{slower}, which loading cannot explain", advice.SLOWER_WHEN_FREE)


def _level(found: Evidence) -> Verdict:
    low, high = _bounds(found)
    lowest, highest = level(low), level(high)
    if lowest == highest:
        verdict = f"{LEVELS[lowest]} input-bound"
    else:
        verdict = f"{LEVELS[lowest]} to {LEVELS[highest]} input-bound"
    if highest == 0:
        return Verdict(verdict, _little(found), advice.KEEPS_UP)
    waits = found.gain.waiting_ns.value >= found.gain.contention_ns.value
    place = "waiting for batches" if waits else "slower steps"
    more = "" if lowest == highest else f" {found.settled_by_more}"
    if found.share.value <= 0:
        return Verdict(verdict, _lost(found), found.settled_by_more)
    where = advice.where_to_look(found.required, waits, found.ahead)
    return Verdict(verdict, f"{_lost(found)}, most of it in {place}", f"{where}{more}")


def level(share: float) -> int:
    """0, 1 or 2: not, moderately or highly input-bound at this share of the time lost."""
    return sum(share >= bound - ROUNDING for bound in (MODERATE_SHARE, HIGH_SHARE))


def _little(found: Evidence) -> str:
    if found.share.value < -ROUNDING:
        return f"free loading was no faster than the real one{_interval(found)}"
    return _lost(found)


def _bounds(found: Evidence) -> tuple[float, float]:
    low, high = found.share.low, found.share.high
    return (found.share.value if low is None else low, found.share.value if high is None else high)


def _lost(found: Evidence) -> str:
    lost = f"{percent(found.share.value)}{_interval(found)} of the training time"
    return f"no loss is seen, {lost}" if found.share.value < 0 else f"{lost} is lost to loading"


def _interval(found: Evidence) -> str:
    low, high = found.share.low, found.share.high
    return "" if low is None or high is None else f" [{percent(low)}, {percent(high)}]"


def percent(share: float) -> str:
    """With one decimal, and never a negative zero."""
    return f"{round(share * 100, 1) + 0.0:.1f}%"
