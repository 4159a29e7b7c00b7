"""Whether a run is input-bound, or why that cannot be concluded, and what makes it mean less.

The thresholds are those of TensorFlow's input-pipeline analyser: under 5% of the step time not
input-bound, 5% and over moderately, 20% and over highly. There the share is of time spent waiting
for input; here it is of all that loading costs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from loadeval.data.run import REAL, Run, batches_for, two_blocks_for
from loadeval.estimate.gap import Gap
from loadeval.estimate.metrics import quantities, workers_cpus
from loadeval.estimate.stats import Estimate
from loadeval.estimate.steady import (
    epoch_lengths,
    length_of_epochs,
    starts_of,
    steady,
    whole_epochs,
    whole_windows,
)
from loadeval.words import counted, duration, share, times

MODERATE_SHARE, HIGH_SHARE = 0.05, 0.20
FEWEST_BATCHES, PAIRS_NEEDED = 20, 3
"""With fewer measured batches in an arm nothing is concluded; the smallest blocks of fewer pairs
have no more."""
USUAL_BATCHES, MORE_EPOCHS = 250, 10
"""So many more batches nearly always suffice, or epochs where each is a block."""
LEAST_MORE, MOST_MORE = 2.0, 10.0
"""Times the batches there are that are asked for, where they do not suffice."""
WIDEST_SHARE = 0.10
"""Nothing is concluded from an interval of the lost share that is wider either way.

The exception is an interval all of which is input-bound, or none.
"""
BUSIEST_SHARE, TICK_NS = 0.05, 10_000_000
"""Workers that compute for more than this share of the ideal blocks slow them down. Their CPU time
is counted in ticks."""
STALL_ITERATIONS, FEWEST_STALLS = 5, 3
"""A wait is a stall over so many real iterations, and over what the loader's queue can hide; fewer
stalls do not tell how often they come."""
TRUSTED = ("concluded", "stalls too rare", "wide confidence interval")
"""Verdicts whose interval is to be believed, however wide it is."""


class Verdict(NamedTuple):
    """What is concluded: `level` is "moderately to highly input-bound", say, or "inconclusive".

    `rule` names the row of the table that decided, and `remedy` is what would settle it, if
    something is open.
    """

    level: str
    rule: str
    headline: str
    reason: str
    remedy: str


def verdict(gap: Gap, run: Run, ideal: Run | None = None) -> Verdict:  # noqa: PLR0911 - one a rule
    """The verdict on the gap of a run, or of a real and an ideal one."""
    more = _more(gap, run)

    def inconclusive(rule: str, reason: str, remedy: str = more) -> Verdict:
        return Verdict("inconclusive", rule, f"Inconclusive: {reason}", reason, remedy)

    lost, speedup = gap.lost_share, gap.speedup
    if lost is None or speedup is None:
        return inconclusive("not measured", _unmeasured(gap, run, ideal))
    low, high = lost.bounds
    unknown = f"how much time is lost to data loading is not known ({lost:share})"
    starts = None if gap.pairs is None else starts_of(run)  # an epoch's first batches count too
    real = gap.real_batches + (0 if starts is None else int(starts.batches.sum()))
    if min(real, gap.ideal_batches) < FEWEST_BATCHES:
        return inconclusive(
            "too few batches",
            f"too few batches: {gap.real_batches:,} real and {gap.ideal_batches:,} ideal, and each "
            f"needs at least {FEWEST_BATCHES}",
        )
    cpus = busy_in_ideal(run)
    # Busy workers slow the ideal arm down: a share that is high all the same is higher.
    if cpus is not None and (lost.low is None or low < HIGH_SHARE):
        return inconclusive(
            "workers busy in the ideal arm",
            f"the loader's workers were busy in the ideal blocks ({cpus:.0%} of a CPU), so the "
            "ideal arm is too slow",
            "Use a smaller prefetch so that workers rest once the queue is full, and stop this "
            "program's other worker processes; or compare a run with mode='log' to one with "
            "mode='replay', which stops the workers.",
        )
    if lost.low is None:
        fewer = "fewer than two whole pairs for a 95% CI"
        return inconclusive("no confidence interval", f"{unknown}: {fewer}")
    if high <= -MODERATE_SHARE:
        return inconclusive(
            "ideal arm slower",
            f"the ideal arm was {share(-lost.value)} slower than the real one, which loading "
            "cannot explain",
            "Ideal loading cannot slow training down: look for other work on the machine, and for "
            "steps whose time depends on their batch, then measure again.",
        )
    if level_of(low) == "not" and (stalls := rare_stalls(gap, run)):
        return inconclusive("stalls too rare", f"{unknown}: {stalls}")
    if level_of(low) == "not" != level_of(high) and (high - low) / 2 > WIDEST_SHARE:
        wide = f"the 95% CI is wider than +-{100 * WIDEST_SHARE:.0f} points"
        return inconclusive("wide confidence interval", f"{unknown}: {wide}")
    levels = list(dict.fromkeys(map(level_of, (low, high))))
    level = f"{' to '.join(levels)} input-bound"
    least, most = map(times, speedup.bounds)
    headline = (
        f"{level.capitalize()}: training would be {times(speedup.value)} as fast if loading were "
        f"free (95% CI [{least}, {most}])"
    )
    reason = lost_in_words(lost)
    if levels[-1] != "not" and lost.value > 0:
        reason += f", most of it to {max(gap.parts(), key=lambda part: part[1].value)[0]}"
    return Verdict(level, "concluded", headline, reason, more if len(levels) > 1 else "")


def level_of(lost: float) -> str:
    """How input-bound a run is at this share of the time lost."""
    if lost >= HIGH_SHARE:
        return "highly"
    return "moderately" if lost >= MODERATE_SHARE else "not"


def lost_in_words(lost: Estimate) -> str:
    """How much is lost; where that is under 0 by chance alone, how much it may be."""
    if lost.value >= 0:
        return f"{lost:share} of the training time is lost to data loading"
    if lost.bounds[1] < MODERATE_SHARE:
        return f"no time is lost to data loading ({lost:share})"
    most = share(lost.bounds[1])
    return f"up to {most} of the training time may be lost to data loading ({lost:share})"


def _unmeasured(gap: Gap, run: Run, ideal: Run | None) -> str:
    """Why there is nothing to compare."""
    if ideal is not None:
        return "; ".join(
            f"{side.path or side.header.name} has no steady-state batches: it has "
            f"{side.batches:,}, and the warm-up of each epoch takes {side.header.warmup:,}"
            for side, iteration in ((run, gap.real), (ideal, gap.ideal))
            if iteration is None
        )
    if gap.pairs is None:
        return "ideal loading was not measured"
    batches, epochs = run.batches, len(epoch_lengths(run))
    return (
        f"{run.path or run.header.name} is too short for a pair of a real and an ideal block: "
        f"it has {counted(batches, 'batch', 'batches')} in {counted(epochs, 'epoch')}"
    )


def busy_in_ideal(run: Run) -> float | None:
    """How many CPUs the workers kept busy in the ideal blocks, if that is too much."""
    windows, used = whole_windows(run, "ideal"), workers_cpus(run, "ideal")
    if used is None:
        return None
    # Each window is wrong by up to a tick, up or down, independently of the others.
    elapsed_ns = sum(window.elapsed_ns for window in windows)
    is_much = used > BUSIEST_SHARE + TICK_NS * math.sqrt(len(windows)) / elapsed_ns
    return used if is_much else None


def rare_stalls(gap: Gap, run: Run) -> str:
    """The stalls that were seen, if they are too few to know how often one comes, in a clause.

    "" where one of them more or less moves the share of the time by under 5 points.
    """
    if gap.real is None:
        return ""
    steps, counts, bound_ns = run.steps, steady(run, "real"), STALL_ITERATIONS * gap.real.value
    waits_ns, beside_ns = steps.wait_ns[counts], list[np.ndarray]()
    if gap.pairs is not None and gap.ideal is not None:
        # Training would not feel what the queue hides of a wait while prefetching. The first one of
        # an epoch that is a block is its epoch start, and the first of a warm-up waits for the
        # prefetch too.
        whole, hidden_ns = whole_epochs(run), (run.loader.prefetch_depth or 0) * gap.ideal.value
        for each in run.prefetches:
            beside_ns.append(np.array(each.waits_ns[each.epoch in whole :]) - hidden_ns)
        uncounted = (steps.arm == REAL) & ~counts
        follows = np.append(False, uncounted[:-1] & (np.diff(steps.epoch) == 0))
        beside_ns.append(steps.wait_ns[uncounted & follows])
    seen_ns = np.concatenate([waits_ns, *beside_ns])
    stalls_ns, measured = seen_ns[seen_ns > bound_ns], int((waits_ns > bound_ns).sum())
    if not len(stalls_ns) or measured >= FEWEST_STALLS:
        return ""
    longest_ns = float(stalls_ns.max())
    missed_ns = longest_ns - (0.0 if measured else float(waits_ns.max(initial=0)))
    if missed_ns < MODERATE_SHARE * (gap.real.value * gap.real_batches + missed_ns):
        return ""
    stalls = f"{counted(len(stalls_ns), 'stall')} of up to {duration(longest_ns)}"
    return f"{stalls}, {measured} of them measured: too few to show how often one comes"


def _more(gap: Gap, run: Run) -> str:
    """What to measure more of."""
    if gap.pairs is None:
        if gap.ideal is None:
            return "Measure one run with mode='alternate', or one more with mode='replay'."
        return "Measure more batches in both runs, or one run with mode='alternate'."
    depth = run.loader.prefetch_depth or 0
    has_ended = any(end.cause == "exhausted" for end in run.ends)
    are_short = has_ended and (length_of_epochs(run) or math.inf) < two_blocks_for(depth)
    of_epochs = gap.starts is not None and "pair" in (starts_of(run) or ())
    if of_epochs or (are_short and not gap.real_batches):
        return f"Measure {MORE_EPOCHS} more epochs: they are so short that each is a block."
    if gap.lost_share is None:
        batches, loaded = batches_for(PAIRS_NEEDED, depth), run.steps.where(arm=REAL)
        pace_ns = float((loaded.wait_ns + loaded.step_ns.clip(0)).sum()) / max(len(loaded), 1)
        takes = f", which take {duration(batches * pace_ns)} at this pace" if pace_ns else ""
        return f"A verdict takes about {batches:,} batches{takes}."
    # The width of the interval falls with the square root of their number.
    low, high = gap.lost_share.bounds
    narrower = ((high - low) / 2 / WIDEST_SHARE) ** 2
    needed = int(run.batches * min(max(narrower, LEAST_MORE), MOST_MORE))
    batches = max(round(needed, 2 - len(str(needed))), USUAL_BATCHES)
    return (
        f"Measure more batches or epochs, {batches:,} batches at least; raise the number of pairs "
        "or batches if that ended the measurement."
    )


# Limits


def gate(
    part: Estimate | None, bound: float, what: str, says: str, objection: str = ""
) -> tuple[bool | None, str]:
    """Whether more than `bound`, between 0 and 1, "is lost", or whatever else `what` is; and why.

    `says` is what was measured. None, undecided, where the interval spans the bound, and where
    there is an `objection`, which then is the reason: without an interval there is one.
    """
    limit = f"{bound * 100:g}% {what}"
    low, high = (None, None) if part is None or objection else (part.low, part.high)
    if low is not None and low > bound:
        return True, f"More than {limit}: {says}; the whole 95% CI is above the limit"
    if high is not None and high <= bound:
        return False, f"Not more than {limit}: {says}; the 95% CI ends at or below the limit"
    wide = f"{says}; the 95% CI spans the limit. Measure more batches or epochs."
    return None, f"Undecided whether more than {limit}: {objection or wide}"


def gate_of(found: Verdict, lost: Estimate | None, bound: float) -> tuple[bool | None, str]:
    """Whether more than `bound` is lost, where `lost` had this verdict, and why.

    Undecided where the verdict is for another reason than the width of the interval.
    """
    objection = "" if found.rule in TRUSTED else f"{found.reason}. {found.remedy}"
    return gate(lost, bound, "is lost", "" if lost is None else lost_in_words(lost), objection)


# What makes a gap mean less

BY_BATCH = "batches are compared as if equally large"
LEAST_STARTS_SHARE = 0.02
"""Where an epoch's start and end add less than this share, it hardly matters that they vary."""
MOVES = "the next run may differ by more than the 95% CI"
LIMITED = (
    (
        "stolen_share",
        0.02,
        f"Other virtual machines took {{}} of the CPU time that this one wanted (steal): {MOVES}.",
    ),
    (
        "cgroup_throttled_share",
        0.05,
        (
            "The cgroup's CPU limit throttled the processes in {} of its periods: the figures "
            "would differ with another limit."
        ),
    ),
    (
        "thermal_slowdown_flag",
        0.05,
        f"Heat slowed a GPU down for {{}} of the time: {MOVES}. Check its cooling.",
    ),
    (
        "hardware_slowdown_flag",
        0.05,
        f"Its hardware slowed a GPU down for {{}} of the time: {MOVES}. Check its power.",
    ),
)
"""What the machine does that moves figures from one run to the next: a quantity, the mean of an arm
above which it does so, and the caution."""


def cautions(gap: Gap, run: Run, ideal: Run | None = None) -> Iterator[str]:
    """What makes the figures mean less than they seem to, the weightiest first.

    That two runs are separate, or differ, is said by `about_two_runs` of before_after.py.
    """
    cpus = busy_in_ideal(run)
    if cpus is not None:
        yield (
            f"The loader's workers were busy in the ideal blocks ({cpus:.0%} of a CPU): if they "
            "slow the step down, more time is lost than reported."
        )
    levels = defaultdict[str, list[float]](list)
    read = {(each.subject, each.name): each.means for each in quantities(run, ideal)}
    for (_, name), means in read.items():
        levels[name] += [mean for mean in means.values() if mean is not None]
    for arm, cores in read.get(("machine", "stolen_cores"), {}).items():
        if cores and (in_use := read.get(("machine", "cpu_cores"), {}).get(arm)):
            levels["stolen_share"].append(cores / (cores + in_use))
    for name, least, sentence in LIMITED:
        if (most := max(levels[name], default=0.0)) > least:
            yield sentence.format(share(most))
    if len(run.stages) and gap.pairs is not None and not run.steps.instrumented.any():
        yield (
            "The stages of the loader were timed in the blocks that count, which takes time too: a "
            "batch of a few milliseconds seems to load slower than it does."
        )
    if stalls := rare_stalls(gap, run):
        yield f"Stalls were too rare to be estimated: {stalls}."
    starts_share = abs(gap.share("epoch starts"))
    if gap.speedup and gap.epochs == 1 and starts_share >= LEAST_STARTS_SHARE:
        yield (
            f"Only one epoch start was seen, {share(starts_share)} of the time: the 95% CI leaves "
            "out how much epoch starts differ. Run two epochs or more."
        )


def not_measured(gap: Gap, run: Run) -> Iterator[str]:
    """What was not measured, and why."""
    if gap.pairs and gap.samples_per_batch is None:
        yield f"Samples are not known for every batch: {BY_BATCH}."
    if gap.pairs and run.loader.prefetch_depth is None:
        yield (
            "The loader's prefetch depth is not known: if it prefetches, real blocks begin with a "
            "queue that ideal blocks have filled, and more time is lost than reported."
        )
    if gap.speedup is not None and gap.starts is None:
        yield (
            "Epoch starts are not part of the result: none was seen, or the length of an epoch is "
            "not known."
        )
