"""Sentences about real against ideal loading: the verdict, why, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.estimate.cautions import Caution
from loadeval.analysis.estimate.headroom import Missing
from loadeval.analysis.estimate.verdict import (
    FEWEST_BATCHES,
    HIGH_SHARE,
    MODERATE_SHARE,
    WIDEST_SHARE,
    GateOutcome,
    InputBound,
    Objection,
    Unmeasured,
    VerdictAdvice,
    keeps_up,
    most_lost_in,
)
from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    duration,
    estimated,
    filled,
    interval,
    share,
    speedup,
)
from loadeval.report.wording.lost import lost_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from enum import Enum

    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.remark import Remark
    from loadeval.report.wording.lost import LostPart

NO_FASTER = 1.005
"""A speed-up under this reads 1.00x."""
THRESHOLDS = (
    f"not input-bound under {MODERATE_SHARE:.0%} of the time lost, moderately under "
    f"{HIGH_SHARE:.0%}, highly from {HIGH_SHARE:.0%}"
)
STEADY = "steady state"
NO_STEADY_BATCH = "no steady-state batches"
NO_CUDA_DEVICE = "no CUDA device was in use"
LOADED_NOTHING = "this run replayed kept batches and loaded nothing"
TOO_FEW_FOR_CI = "too few measurements for a 95% CI"
BY_BATCH = "batches are compared as if equally large"
SEPARATE = "The runs are separate: machine drift between them counts as"
MOVES = "the next run may differ by more than the 95% CI"
COMPETES = "loading competes for CPU, memory bandwidth or the GPU"
HIDDEN = (
    "Of the {wait_ns:duration} that training waited per batch, the GPU was idle for "
    "{gpu_idle_ns:duration}: the rest was hidden by GPU work and cost nothing."
)


def capitalized(clause: str) -> str:
    """`clause` with a capital letter."""
    return f"{clause[:1].upper()}{clause[1:]}"


def headline(headroom: Headroom) -> str:
    """The verdict, and what ideal loading would gain with its interval, in one sentence."""
    verdict, estimate = str(headroom.verdict).capitalize(), headroom.speedup
    if estimate is None:
        return f"{verdict}: {_unmeasured_side(headroom)}"
    if headroom.verdict.objection is not None:
        return f"{verdict}: {reason(headroom)}"
    gain = "no faster" if estimate.value < NO_FASTER else f"{speedup(estimate.value)} as fast"
    return f"{verdict}: training would be {gain} if loading were free{with_ci(estimate, speedup)}"


def with_ci(estimate: Estimate, text: Callable[[float], str]) -> str:
    """The interval in brackets, to follow its value; nothing where there is none."""
    between = interval(estimate, text)
    return f" (95% CI {between})" if between else ""


def known(headroom: Headroom) -> list[str]:
    """What is known where real and ideal loading cannot be compared, a sentence for each run."""
    sentences = (known_in_words(remark.values) for remark in headroom.verdict.unmeasured)
    return [remark for remark in sentences if remark]


def known_in_words(values: Mapping[str, object]) -> str:
    """What was waited, and what steps took; "" where nothing is known."""
    return filled(KNOWN, values) if "loaded" in values else ""


def measured(headroom: Headroom) -> str:
    """How many batches of each arm were measured, and in how many pairs."""
    batches = f"{headroom.real_batches:,} real and {headroom.ideal_batches:,} ideal batches"
    if headroom.pairs is None:
        return f"{batches} in two separate runs"
    what = "epochs" if headroom.of_epochs else "blocks"
    return f"{batches} in {counted(headroom.pairs, f'pair of {what}', f'pairs of {what}')}"


def time_span(headroom: Headroom) -> str:
    """What the speed-up and the time lost are of; the steady state where starts are not known."""
    return STEADY if headroom.epoch_starts_ns is None else "whole epochs"


def lost_in_words(headroom: Headroom) -> str:
    """The time lost per batch and its parts, with intervals, in one sentence."""
    if headroom.lost_ns is None:
        return f"Lost per batch: {NOT_MEASURED}."
    *others, last = (
        f"{estimated(part.time_ns, duration)} {part.name}" for part in lost_parts(headroom)
    )
    return f"Lost per batch: {lost_of_whole(headroom)}: {', '.join(others)} and {last}."


def lost_of_whole(headroom: Headroom) -> str:
    """The time lost per batch, and the lost share."""
    lost = estimated(headroom.lost_ns, duration)
    if headroom.lost_ns is None:
        return lost
    whole = f"{duration(headroom.whole_ns)}, {time_span(headroom)}"
    return f"{lost} of {whole} ({estimated(headroom.lost_share, share)})"


def lost_part(part: LostPart) -> str:
    """A part of the time lost per batch, and its share of the time."""
    lost = estimated(part.time_ns, duration)
    return lost if part.share is None else f"{lost} ({share(part.share)})"


def epoch_start_in_words(headroom: Headroom) -> str:
    """How long the first batch of an epoch takes to come."""
    if headroom.epoch_start_ns is None:
        return NOT_MEASURED
    return f"{duration(headroom.epoch_start_ns)} until the first batch, on average"


def required_in_words(required: Estimate | None) -> str:
    """How much faster the loader must be."""
    if required is None:
        return NOT_MEASURED
    enough, times = keeps_up(required), estimated(required, speedup)
    if enough is None:
        return f"{times} of an ideal iteration: alone, the loader is about as fast as the step"
    if enough:
        return f"{times} of an ideal iteration: alone, the loader is fast enough"
    return f"the loader must be {times} faster to keep up"


def _unmeasured_side(headroom: Headroom) -> str:
    if headroom.pairs is not None:
        return reason(headroom)
    if headroom.real_ns is None and headroom.ideal_ns is None:
        side = "either"
    else:
        side = "the real" if headroom.real_ns is None else "the ideal"
    return f"no steady-state iteration was measured in {side} run"


OBJECTIONS: dict[Enum, str] = {
    Objection.TOO_FEW_BATCHES: (
        "too few batches: {real_batches:,} real and {ideal_batches:,} ideal, and each needs at "
        "least {fewest}"
    ),
    Objection.TOO_FEW_EPOCHS: (
        "{unknown}: too few pairs ({pairs}) of epochs so short that each is a block"
    ),
    Objection.WORKERS_BUSY: (
        "the loader's workers were busy in the ideal blocks ({workers_busy:.0%} of a CPU), so "
        "the ideal arm is too slow"
    ),
    Objection.DRIFT: (
        "iterations drifted by {drift:share} within a run, more than the {difference:share} "
        "between the two runs"
    ),
    Objection.NO_INTERVAL: "{unknown}: fewer than two whole pairs for a 95% CI",
    Objection.IDEAL_SLOWER: (
        "the ideal arm was {slower:share} slower than the real one, which loading cannot explain"
    ),
    Objection.MISSED_STALL: (
        "{unknown}: a stall outside the measured batches was {missed_ns:duration} longer than any "
        "within them, and so few stalls do not show how often one comes"
    ),
    Objection.WIDE_INTERVAL: "{unknown}: the 95% CI is wider than +-{widest:.0f} points",
}
UNMEASURED: dict[Enum, str] = {
    Unmeasured.NO_PAIR: (
        "{run} is too short for a pair of a real and an ideal block: it has {batches:,} batches"
    ),
    Unmeasured.NO_PAIR_OF_EPOCHS: (
        "{run} is too short for a pair of a real and an ideal epoch: it has {epochs:,}, of "
        "{batches:,} batches, and the first is warm-up"
    ),
    Unmeasured.NO_TIME: "{run} has measured batches, but no time passed between them",
    Unmeasured.NO_STEP: "{run} has no measured step; was its epoch interrupted?",
    Unmeasured.NO_STEADY_BATCH: (
        "{run} has no steady-state batches: it has {batches:,}, and the first {warmup:,} of each "
        "epoch are warm-up"
    ),
}
ADVICE: dict[Enum, str] = {
    VerdictAdvice.FASTER_LOADER: (
        "The loader is too slow even on its own: it must be {times} faster to keep up. Use cheaper "
        "decoding and transforms, or a faster loader; add workers only if CPUs are "
        "free. The findings say what this run supports."
    ),
    VerdictAdvice.ABOUT_AS_FAST: (
        "The loader alone is about as fast as the step: it loads a batch in {low:.2f} to "
        "{high:.2f} ideal iterations. Make it faster, so that it keeps up reliably: the findings "
        "say what this run supports."
    ),
    VerdictAdvice.FAST_ENOUGH: (
        "The loader is fast enough on its own: it loads a batch in {iterations} ideal iterations."
    ),
    VerdictAdvice.SMOOTHER_LOADING: (
        "Some batches take far longer than others, the queue is too shallow, or each batch costs "
        "time in the training process: the findings say what this run supports."
    ),
    VerdictAdvice.LESS_CONTENTION: (
        f"Steps are slower while the loader works: {COMPETES}. Try fewer workers or threads, or a "
        "loader that needs less."
    ),
    VerdictAdvice.MEASURE_EVERY_BATCH: (
        "If a step's time depends on its batch, measure with mode='alternate', which serves every "
        "batch once."
    ),
    VerdictAdvice.SEE_FINDINGS: (
        "Training waits for batches, and the loader alone was not timed. The cause may be decoding "
        "and transforms, a shallow queue, or too many or too few workers for the CPUs: the "
        "findings say what this run supports."
    ),
    VerdictAdvice.LOAD_IN_BACKGROUND: (
        "Without workers loading adds to the step, unless a thread loads ahead. The findings say "
        "whether workers would help."
    ),
    VerdictAdvice.SHORTER_EPOCH_START: (
        "Epoch starts take {starts_share:share} of the time: make epochs longer, or their starts "
        "faster. They start workers, open files and fill shuffle buffers."
    ),
    VerdictAdvice.LOOK_AT_STEP: "Loading keeps up: look at the training step instead.",
    VerdictAdvice.MORE_PAIRS: (
        "Measure more batches or epochs, {batches:,} batches at least; raise the number of pairs "
        "or batches if that ended the measurement."
    ),
    VerdictAdvice.BATCHES_FOR_PAIRS: (
        "A verdict takes about {batches:,} batches, which take {elapsed_ns:duration} at this pace."
    ),
    VerdictAdvice.MORE_EPOCHS: (
        "Measure {epochs:,} more epochs at least: they are so short that each is a block."
    ),
    VerdictAdvice.MORE_BATCHES: (
        "Measure more batches in both runs, or one run with mode='alternate'."
    ),
    VerdictAdvice.LONGER_EPOCHS: (
        "Run more batches per epoch or more epochs, or pass a smaller warmup=."
    ),
    VerdictAdvice.RESTING_WORKERS: (
        "Use a smaller prefetch so that workers rest once the queue is full, and stop this "
        "program's other worker processes; or compare a run with mode='log' to one with "
        "mode='replay', which stops the workers."
    ),
    VerdictAdvice.ALTERNATE: (
        "Measure one run with mode='alternate', which compares neighbouring blocks; or longer "
        "runs on an idle machine."
    ),
    VerdictAdvice.STOP_OTHER_WORK: (
        "Ideal loading cannot slow training down: look for other work on the machine, and for "
        "steps whose time depends on their batch, then measure again."
    ),
}
CAUTIONS: dict[Enum, str] = {
    Caution.DIFFERENT_MACHINES: (
        "The two runs are from different machines: {fact} {real} (real), {ideal} (ideal)."
    ),
    Caution.DIFFERENT_LOADERS: (
        "The two runs used different loaders: {fact} {real} (real), {ideal} (ideal)."
    ),
    Caution.DIFFERENT_UNITS: (f"The runs count {{real}} and {{ideal}}: {BY_BATCH}."),
    Caution.SAMPLES_UNKNOWN: (f"Samples are unknown in at least one of the runs: {BY_BATCH}."),
    Caution.STEP_VARIES: (
        "A step's time depends on {with}: the kept batches may not represent the epoch."
    ),
    Caution.TWO_RUNS: (f"{SEPARATE} a loading difference, and the 95% CI does not cover it."),
    Caution.WORKERS_BUSY: (
        "The loader's workers were busy in the ideal blocks ({cpu_share:.0%} of a CPU): if they "
        "slow the step down, more time is lost than reported."
    ),
    Caution.PAGE_FAULTS: (
        "A step had {ideal:,.0f} page faults per batch with ideal loading and {real:,.0f} with "
        "real loading, about 1 us each: the ideal arm could be faster. Set MALLOC_TRIM_THRESHOLD_ "
        "and MALLOC_MMAP_THRESHOLD_ to 2000000000 so that the C library keeps its memory."
    ),
    Caution.CPU_STOLEN: (
        "Other virtual machines took {share:share} of the CPU time that this one wanted (steal): "
        f"{MOVES}."
    ),
    Caution.CPU_LIMITED: (
        "The cgroup's CPU limit throttled the processes in {share:share} of its periods: the "
        "figures would differ with another limit."
    ),
    Caution.CPU_HOT: (
        f"Heat throttled the CPUs, {{per_s:number}} times a second: {MOVES}. Check the cooling."
    ),
    Caution.CPU_CLOCK: (
        "The clock of the CPUs was {share:share} lower in the {arm} arm: part of the difference "
        "between the arms comes from that."
    ),
    Caution.GPU_SLOWED: (
        "Heat or its hardware slowed a GPU down for {share:share} of the time: "
        f"{MOVES}. Check its cooling and power."
    ),
    Caution.HIDDEN_WAITS: HIDDEN,
    Caution.LOOKED_INTO: (
        "The stages of the loader were timed in the blocks that count, which takes time too: a "
        "batch of a few milliseconds seems to load slower than it does."
    ),
    Caution.STEPS_LEFT_OUT: (
        "Steps left out: {steps:,}, of {mean_ns:duration} on average, in which {what}."
    ),
    Caution.ONE_EPOCH: (
        "Only one epoch start was seen, {starts_share:share} of the time: the 95% CI leaves out "
        "how much epoch starts differ. Run two epochs or more."
    ),
}
MISSING: dict[Enum, str] = {
    Missing.INTERVAL: "No 95% CI: fewer than two whole pairs, or too few batches in them.",
    Missing.LOADER_ALONE: "The loader alone was not timed: no batches were prefetched.",
    Missing.LOADER_ALONE_READY: (
        "The loader alone was not timed: all prefetched batches were ready ahead of time."
    ),
    Missing.WORKERS_CPU: (
        "The workers' CPU time in the ideal blocks could not be read: they may not have been idle."
    ),
    Missing.SAMPLES: (f"Samples are not known for every batch: {BY_BATCH}."),
    Missing.EPOCH_STARTS: (
        "Epoch starts are not part of the result: none was seen, or the length of an epoch is not "
        "known."
    ),
    Missing.PREFETCH_DEPTH: (
        "The loader's prefetch depth is not known: if it prefetches, real blocks begin with a "
        "queue that ideal blocks have filled, and more time is lost than reported."
    ),
}
KNOWN = (
    "Batches so far: {loaded:,}. Training waited {waited_ns:duration} for them, {wait_share:share} "
    "of the time ({first_wait_ns:duration} for the first of each epoch), and its steps took "
    "{step_ns:duration}."
)
GATE: dict[Enum, str] = {
    GateOutcome.ABOVE: "Above {bound}: {lost}; the whole 95% CI is above the limit",
    GateOutcome.NOT_ABOVE: "Not above {bound}: {lost}; the 95% CI ends at or below the limit",
    GateOutcome.SPANS: (
        "Undecided whether more than {bound} is lost: {lost}; the 95% CI spans the limit. Measure "
        "more batches or epochs for a narrower interval."
    ),
    GateOutcome.INCONCLUSIVE: "Undecided whether more than {bound} is lost: {reason}. {advice}",
}


def reason(headroom: Headroom) -> str:
    """Why the verdict is concluded: a clause without a full stop."""
    verdict, gain = headroom.verdict, headroom.lost_share
    if gain is None:
        return "; ".join(remarks_in_words(UNMEASURED, verdict.unmeasured))
    if verdict.objection is None:
        return _lost(headroom, gain)
    values = {
        "real_batches": headroom.real_batches,
        "ideal_batches": headroom.ideal_batches,
        "fewest": FEWEST_BATCHES,
        "workers_busy": verdict.workers_busy,
        "drift": verdict.drift_ns / headroom.real_ns if headroom.real_ns else None,
        "difference": abs(gain.value),
        "unknown": f"how much time is lost to data loading is not known ({estimated(gain, share)})",
        "slower": -gain.value,
        "missed_ns": verdict.missed_ns,
        "pairs": headroom.pairs,
        "widest": 100 * WIDEST_SHARE,
    }
    return filled(OBJECTIONS[verdict.objection], values)


def _lost(headroom: Headroom, lost: Estimate) -> str:
    waiting_ns, contention_ns = headroom.waiting_ns, headroom.contention_ns
    limited = headroom.verdict.highest is not InputBound.NOT and lost.value > 0
    if not limited or waiting_ns is None or contention_ns is None:
        return _lost_clause(lost)
    place = most_lost_in(waiting_ns, contention_ns, headroom.epoch_starts_ns)
    return f"{_lost_clause(lost)}, most of it to {place.value}"


def _lost_clause(lost: Estimate) -> str:
    """How much is lost; where that is under 0 by chance alone, how much it may be."""
    value = estimated(lost, share)
    if lost.value >= 0:
        return f"{value} of the training time is lost to data loading"
    if lost.high is not None and lost.high >= MODERATE_SHARE:
        return (
            f"up to {share(lost.high)} of the training time may be lost to data loading ({value})"
        )
    return f"no time is lost to data loading ({value})"


def verdict_advice(headroom: Headroom) -> str:
    """What to do about it, in sentences."""
    needed = headroom.required
    values = {
        "times": estimated(needed, speedup),
        "iterations": estimated(needed, "{:.2f}".format),
    }
    return " ".join(remarks_in_words(ADVICE, headroom.advice, values))


def cautions(headroom: Headroom) -> list[str]:
    """What makes the figures mean less than they seem to, a sentence each."""
    return remarks_in_words(CAUTIONS, headroom.cautions)


def not_measured(headroom: Headroom) -> list[str]:
    """What was not measured and why, a sentence each."""
    return remarks_in_words(MISSING, headroom.not_measured)


def gate_sentence(outcome: GateOutcome, headroom: Headroom, bound: float) -> str:
    """Whether more is lost than the bound, and why."""
    lost = headroom.lost_share
    values = {
        "bound": f"{bound * 100:g}%",
        "lost": "" if lost is None else _lost_clause(lost),
        "reason": reason(headroom),
        "advice": verdict_advice(headroom),
    }
    return filled(GATE[outcome], values)


def remarks_in_words(
    templates: Mapping[Enum, str],
    remarks: Iterable[Remark],
    more: Mapping[str, object] | None = None,
) -> list[str]:
    """A sentence for each remark, from the template of its code; `more` values are for all."""
    return [filled(templates[remark.code], {**(more or {}), **remark.values}) for remark in remarks]
