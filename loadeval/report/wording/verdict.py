"""Sentences about verdicts, backends, runs and the growth of their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.backends import (
    BackendCaution,
    MissingOfBackend,
    are_ranks,
    of_one_comparison,
    ranked,
)
from loadeval.analysis.headroom import Caution, Missing
from loadeval.analysis.memory import GrowthAdvice, GrowthReason
from loadeval.analysis.verdict import (
    FEWEST_BATCHES,
    HIGH_SHARE,
    MODERATE_SHARE,
    WIDEST_SHARE,
    GateOutcome,
    InputBound,
    Objection,
    Unmeasured,
    VerdictAdvice,
    mostly_waiting,
)
from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    duration,
    estimated,
    filled,
    interval,
    number,
    per_second,
    printable,
    share,
    short_name,
    speedup,
)
from loadeval.runlog.model import NOT_RECORDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from enum import Enum

    from loadeval.analysis.backends import BackendReport, BackendResult, Difference
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.memory import Growth
    from loadeval.analysis.remark import Remark
    from loadeval.analysis.report import Report, RunReport
    from loadeval.analysis.stats import Estimate
    from loadeval.runlog.model import Event, LoaderInfo, Run

NO_FASTER = 1.005
"""A speed-up under this reads 1.00x."""
THRESHOLDS = (
    f"not input-bound under {MODERATE_SHARE:.0%} of the time lost, moderately under "
    f"{HIGH_SHARE:.0%}, highly from {HIGH_SHARE:.0%}"
)
BRACKETS = "Brackets: 95% CI."
NO_STEADY_BATCH = "no steady-state batches"
NO_CUDA_DEVICE = "no CUDA device was in use"
LOADED_NOTHING = "this run replayed kept batches and loaded nothing"
TOO_FEW_FOR_CI = "too few measurements for a 95% CI"
TOO_SLOW = (
    "The loader is too slow even on its own: it must be {required:speedup} faster to keep up."
)
BY_BATCH = "batches are compared as if equally large"
SEPARATE = "The runs are separate: machine drift between them counts as"
COMPETES = "loading competes for CPU, memory bandwidth or the GPU"
HIDDEN = (
    "Of the {wait_ns:duration} that training waited per batch, the GPU was idle for "
    "{gpu_idle_ns:duration}: the rest was hidden by GPU work and cost nothing."
)


def report_headline(report: Report) -> str:
    """What the runs show, in one sentence."""
    if report.comparison is not None:
        return headline(report.comparison.headroom)
    if report.backends is not None:
        return backends_headline(report.backends)
    (one,) = report.runs
    (side,) = one.sides
    if side.summary.iteration_ns is None:
        return f"Not measured: {NO_STEADY_BATCH}"
    if side.arm == "ideal":
        return sentence(LOADED_NOTHING)
    waited = f"Training waited for batches {share(side.summary.wait_share)} of the time"
    if one.rate is None:
        return waited
    rate = per_second(one.rate.value, short_name(one.unit))
    return f"{waited}, at {rate}{_ci(one.rate, number)}"


def sentence(clause: str) -> str:
    """`clause` with a capital letter."""
    return f"{clause[:1].upper()}{clause[1:]}"


def headline(headroom: Headroom) -> str:
    """The verdict, and what ideal loading would gain with its interval, in one sentence."""
    verdict, found = str(headroom.verdict).capitalize(), headroom.speedup
    if found is None:
        return f"{verdict}: {_unmeasured_side(headroom)}"
    if headroom.verdict.objection is not None:
        return f"{verdict}: {reason(headroom)}"
    gain = "no faster" if found.value < NO_FASTER else f"{speedup(found.value)} as fast"
    return f"{verdict}: training would be {gain} if loading were free{_ci(found, speedup)}"


def _ci(estimate: Estimate, text: Callable[[float], str]) -> str:
    between = interval(estimate, text)
    return f" (95% CI {between})" if between else ""


def measured(headroom: Headroom) -> str:
    """How many batches of each arm were measured, and in how many pairs."""
    batches = f"{headroom.real_batches:,} real and {headroom.ideal_batches:,} ideal batches"
    if headroom.pairs is None:
        return f"{batches} in two separate runs"
    return f"{batches} in {counted(headroom.pairs, 'pair of blocks', 'pairs of blocks')}"


def lost_in_words(headroom: Headroom) -> str:
    """The time lost per batch and its two parts, with intervals, in one sentence."""
    return (
        f"Lost per batch: {lost_of_iteration(headroom)}: "
        f"{estimated(headroom.waiting_ns, duration)} waiting and "
        f"{estimated(headroom.contention_ns, duration)} contention."
    )


def lost_of_iteration(headroom: Headroom) -> str:
    """The time lost per batch, and the lost share."""
    lost = estimated(headroom.lost_ns, duration)
    if headroom.lost_ns is None:
        return lost
    return f"{lost} of {duration(headroom.real_ns)} ({estimated(headroom.lost_share, share)})"


def required_in_words(required: float | None) -> str:
    """How much faster the loader must be."""
    if required is None:
        return NOT_MEASURED
    if required > 1:
        return f"the loader must be {speedup(required)} faster to keep up"
    return f"{speedup(required)} of an ideal iteration: alone, the loader is fast enough"


def backends_headline(found: BackendReport) -> str:
    """Which backend trains fastest, by how much, with its interval, in one sentence.

    Of the ranks of one training, what all of them do together.
    """
    if are_ranks([one.run for one in found.backends]):
        return _ranks_headline(found)
    known = [one for one in ranked(found.backends) if one.real]
    if not known:
        return "No backend was measured"
    first = known[0]
    if len(known) == 1:
        return _only_backend(first, found.unit)
    ahead = [one for one in found.differences if one.one == first.name]
    if not ahead[0].shown:
        return _no_fastest(first, ahead)
    which = "" if len(ahead) == 1 else "the next, "
    ratio, other = estimated(ahead[0].ratio, speedup), short_name(ahead[0].other)
    return f"{short_name(first.name)} trains fastest: {ratio} as fast as {which}{other}"


def _ranks_headline(found: BackendReport) -> str:
    """Their throughput together, and the share lost on those that lose least and most."""
    rates = [one.real.value for one in found.backends if one.real is not None]
    together = f"{counted(len(found.backends), 'rank', 'ranks')} of one training"
    if len(rates) == len(found.backends):
        together += f", {number(sum(rates))} {short_name(found.unit)}/s together"
    lost = sorted(one.lost_share.value for one in found.backends if one.lost_share is not None)
    if not lost:
        return f"{together}; ideal loading was not measured"
    return f"{together}: each loses {share(lost[0])} to {share(lost[-1])} of its time to loading"


def _only_backend(one: BackendResult, unit: str) -> str:
    name = short_name(one.name)
    if one.speedup is None:
        return f"{name}: {estimated(one.real, number)} {short_name(unit)}/s"
    gain = estimated(one.speedup, speedup)
    return f"{name}: training would be {gain} as fast if loading were free"


def _no_fastest(first: BackendResult, ahead: Sequence[Difference]) -> str:
    if ahead[0].ratio.low is None:
        other, ratio = short_name(ahead[0].other), estimated(ahead[0].ratio, speedup)
        name = short_name(first.name)
        return f"{name} was {ratio} as fast as {other}, with {TOO_FEW_FOR_CI}"
    level = [short_name(one.other) for one in ahead if not one.shown]
    *others, last = short_name(first.name), *level
    fastest = "" if len(ahead) == len(level) else "the fastest, "
    return f"No difference shown between {fastest}{', '.join(others)} and {last}"


def measured_in_words(found: BackendReport) -> str:
    """How many backends, or ranks, how they were run, and how many batches were measured."""
    of_ranks = are_ranks([one.run for one in found.backends])
    each = "rank" if of_ranks else "backend"
    text = counted(len(found.backends), each, f"{each}s")
    if not of_ranks:
        text += " under one training step"
    known = [one for one in found.backends if one.real]
    if not known:
        return f"{text}."
    ideal = [one.ideal_batches for one in known if one.ideal]
    also = f" and {_span(ideal)} ideal" if ideal else ""
    real = _span(one.real_batches for one in known)
    runs = [one.run for one in known if one.run is not None]
    if of_one_comparison(runs):
        rounds = printable(runs[0].header.settings.get("rounds"))
        text += f", in turns, {rounds} rounds in random order"
    elif len(runs) > 1:
        text += ", in separate runs"
    return f"{text}; {real} real{also} batches measured per {each}."


def _span(counts: Iterable[int]) -> str:
    found = sorted(set(counts))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,}-{found[-1]:,}"


def failures(found: BackendReport) -> list[str]:
    """The backends whose loader raised, with the error, a sentence each."""
    return [f"{one.name} failed: {one.error}" for one in found.backends if one.error]


def run_notes(one: RunReport) -> list[str]:
    """What reading the run brought up, what happened while it ran, and what went wrong in it."""
    run, name = one.run, short_name(one.run.header.name)
    lines = [f"{name}: {note}" for note in run.notes]
    lines += [f"{name}, {event}" for event in _events(run)]
    lines += [
        f"{name}, epoch {end.epoch} failed: {end.error}"
        for end in run.ends
        if end.cause == "failed"
    ]
    lines += [
        f"{name}: memory of the {found.subject} grows: {growth_reason(found)}. "
        f"{growth_advice(found)}"
        for found in one.metrics.growths
        if found.grows
    ]
    return [printable(line) for line in lines]


def described_loader(run: Run) -> str:
    """What served the batches of `run`, in a few words: what is known, and nothing of the rest."""
    loader, cache = run.header.loader, run.header.cache
    if cache is not None:
        return f"{printable(cache.batches)} kept batches replayed"
    if loader.backend == NOT_RECORDED:
        return "loader not recorded"
    parts = [short_name(class_name(loader))]
    for name, value in (
        ("workers", loader.workers),
        ("prefetch depth", loader.prefetch_depth),
        ("batch size", loader.batch_size),
    ):
        parts += [] if value is None else [f"{name} {short_name(value)}"]
    return ", ".join(parts)


def class_name(loader: LoaderInfo) -> str:
    """The name of the loader's class, without the module that it is in."""
    return str(loader.backend).rsplit(".", maxsplit=1)[-1]


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
    Objection.WORKERS_BUSY: (
        "the loader's workers were busy in the ideal blocks ({workers_busy:.0%} of a CPU), so "
        "the ideal arm is too slow"
    ),
    Objection.DRIFT: (
        "iterations drifted by {drift:share} within a run, more than the {difference:share} "
        "between the two runs"
    ),
    Objection.NO_INTERVAL: "{lost}, but {too_few} for a 95% CI",
    Objection.IDEAL_SLOWER: (
        "the ideal arm was {slower:share} slower than the real one, which loading cannot explain"
    ),
    Objection.MISSED_STALL: (
        "{lost}, but a stall outside the measured batches was {missed_ns:duration} longer than any "
        "within them, and so few stalls do not show how often one comes"
    ),
    Objection.WIDE_INTERVAL: "{lost}, but the 95% CI is wider than +-{widest:.0f} points",
}
UNMEASURED: dict[Enum, str] = {
    Unmeasured.NO_PAIR: (
        "{run} is too short for a pair of a real and an ideal block: it has {batches:,} batches"
    ),
    Unmeasured.NO_TIME: "{run} has measured batches, but zero elapsed time",
    Unmeasured.NO_STEP: "{run} has no measured step; was its epoch interrupted?",
    Unmeasured.NO_STEADY_BATCH: (
        "{run} has no steady-state batches: it has {batches:,}, and the first {warmup:,} of each "
        "epoch are warm-up"
    ),
}
ADVICE: dict[Enum, str] = {
    VerdictAdvice.FASTER_LOADER: (
        f"{TOO_SLOW} "
        "Use cheaper decoding and transforms, or a faster loader; add workers only if CPUs are "
        "free. The findings say what this run supports."
    ),
    VerdictAdvice.FAST_ENOUGH: (
        "The loader is fast enough on its own: it loads a batch in {required:.2f} ideal iterations."
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
        "The loader does not work during a step, so loading adds to the step: load in background "
        "workers, if CPUs are free."
    ),
    VerdictAdvice.SHORTER_EPOCH_START: (
        "Over whole epochs of {batches:.0f} batches, training with ideal loading would be "
        "{speedup:speedup} as fast: epoch starts cost more than the steady state. Make epochs "
        "longer or their start faster: "
        "starting workers, opening files, filling a shuffle buffer."
    ),
    VerdictAdvice.LOOK_AT_STEP: "Loading keeps up: look at the training step instead.",
    VerdictAdvice.MORE_PAIRS: (
        "Measure more pairs: run more batches or epochs, and raise pairs= or batches= if they "
        "ended the run. A pair takes about 25 batches, more with a deep queue; start with ten "
        "pairs."
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
    Caution.HIDDEN_WAITS: HIDDEN,
    BackendCaution.UNEQUAL_WORK: "The backends do not do equal work: {differences}.",
    BackendCaution.UNEQUAL_EPOCHS: "The backends' epochs differ in {unit}: {sizes}.",
    BackendCaution.DIFFERENT_MACHINES: "The runs are from different machines: {fact} {values}.",
    BackendCaution.SEPARATE_RUNS: (
        f"{SEPARATE} a difference between backends, and no 95% CI covers it."
    ),
    BackendCaution.BY_BATCH: (
        "Samples are not known for every batch, or have different names: throughput is in batches."
    ),
    BackendCaution.MANY_DIFFERENCES: (
        "The 95% CIs of the {count} differences are not corrected for multiple comparisons."
    ),
}
MISSING: dict[Enum, str] = {
    Missing.INTERVAL: "No 95% CI: fewer than three whole pairs.",
    Missing.LOADER_ALONE: "The loader alone was not timed: no batches were prefetched.",
    Missing.LOADER_ALONE_READY: (
        "The loader alone was not timed: all prefetched batches were ready ahead of time."
    ),
    Missing.WORKERS_CPU: (
        "The workers' CPU time in the ideal blocks could not be read: they may not have been idle."
    ),
    Missing.SAMPLES: (f"Samples are not known for every batch: {BY_BATCH}."),
    Missing.PREFETCH_DEPTH: (
        "The loader's prefetch depth is not known: if it prefetches, real blocks begin with a "
        "queue that ideal blocks have filled, and more time is lost than reported."
    ),
    MissingOfBackend.IDEAL: (
        "No ideal throughput and no loader alone: the run does not alternate."
    ),
    MissingOfBackend.EPOCH_START: (
        "No epoch start: batches were ready whenever the backend's turn began."
    ),
    MissingOfBackend.THROUGHPUT: "No throughput: no measured batches, or zero elapsed time.",
}
GATE: dict[Enum, str] = {
    GateOutcome.ABOVE: "Above {bound}: {lost}; the whole 95% CI is above the limit",
    GateOutcome.NOT_ABOVE: "Not above {bound}: {lost}; the 95% CI ends at or below the limit",
    GateOutcome.SPANS: (
        "Undecided whether more than {bound} is lost: {lost}; the 95% CI spans the limit. Measure "
        "more batches or epochs for a narrower interval."
    ),
    GateOutcome.INCONCLUSIVE: "Undecided whether more than {bound} is lost: {reason}. {advice}",
}
PER_HOUR = "{bytes_per_hour:size} per hour, {share:share} of the {limit_bytes:size} available"
GROWTH: dict[Enum, str] = {
    GrowthReason.GROWS: f"it grows by {PER_HOUR}",
    GrowthReason.STARTED_ANEW: (
        f"it grows by {PER_HOUR}, but the workers restart before that matters"
    ),
    GrowthReason.LITTLE: f"it grows by only {PER_HOUR}",
    GrowthReason.BY_CHANCE: "any growth is within the noise",
    GrowthReason.NO_READINGS: "no memory readings of the {subject}",
    GrowthReason.PROBE_FAILED: "{reason}",
    GrowthReason.NO_LIMIT: "the machine's memory size is not known",
    GrowthReason.FEW_READINGS: (
        "too few memory readings for a trend ({count}); run for some minutes"
    ),
    GrowthAdvice.DROP_KEPT_TENSORS: (
        "Something is kept from step to step: look for losses or outputs kept as tensors with "
        "their autograd graph (keep loss.item() instead), and for unbounded lists and caches."
    ),
    GrowthAdvice.AVOID_COPY_ON_WRITE: (
        "The usual cause is copy-on-write: reading a Python object writes its reference count, so "
        "forked workers gradually copy the dataset's lists and dictionaries. Keep them in NumPy "
        "arrays, tensors or a memory-mapped file, or use fewer workers. Otherwise look for "
        "unbounded caches in the dataset."
    ),
    GrowthAdvice.BOUND_WORKER_CACHES: (
        "Each worker has its own dataset: look for unbounded caches in it, and for files that it "
        "never closes; or use fewer workers, or restart them each epoch."
    ),
}


def reason(headroom: Headroom) -> str:
    """Why the verdict is concluded: a clause without a full stop."""
    verdict, gain = headroom.verdict, headroom.lost_share
    if gain is None:
        return "; ".join(_sentences(UNMEASURED, verdict.unmeasured))
    if verdict.objection is None:
        return _lost(headroom, gain)
    two_runs = headroom.pairs is None
    values = {
        "real_batches": headroom.real_batches,
        "ideal_batches": headroom.ideal_batches,
        "fewest": FEWEST_BATCHES,
        "workers_busy": verdict.workers_busy,
        "drift": verdict.drift_ns / headroom.real_ns if headroom.real_ns else None,
        "difference": abs(gain.value),
        "lost": _lost_clause(gain),
        "too_few": "one run has too few aggregates" if two_runs else "fewer than three whole pairs",
        "slower": -gain.value,
        "missed_ns": verdict.missed_ns,
        "widest": 100 * WIDEST_SHARE,
    }
    return filled(OBJECTIONS[verdict.objection], values)


def _lost(headroom: Headroom, lost: Estimate) -> str:
    waiting_ns, contention_ns = headroom.waiting_ns, headroom.contention_ns
    limited = headroom.verdict.highest is not InputBound.NOT and lost.value > 0
    if not limited or waiting_ns is None or contention_ns is None:
        return _lost_clause(lost)
    place = "waiting" if mostly_waiting(waiting_ns, contention_ns) else "contention"
    return f"{_lost_clause(lost)}, most of it to {place}"


def _lost_clause(lost: Estimate) -> str:
    if lost.value < 0:
        return f"no time is lost to data loading ({estimated(lost, share)})"
    return f"{estimated(lost, share)} of the training time is lost to data loading"


def verdict_advice(headroom: Headroom) -> str:
    """What to do about it, in sentences."""
    return " ".join(_sentences(ADVICE, headroom.advice))


def cautions(headroom: Headroom) -> list[str]:
    """What makes the figures mean less than they seem to, a sentence each."""
    return _sentences(CAUTIONS, headroom.cautions)


def not_measured(headroom: Headroom) -> list[str]:
    """What was not measured and why, a sentence each."""
    return _sentences(MISSING, headroom.not_measured)


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


def backend_verdict(result: BackendResult) -> str:
    """The verdict in a few words; or failed, or not measured."""
    return result.state.value if result.headroom is None else str(result.headroom.verdict)


def backend_reason(result: BackendResult) -> str:
    """Why: a clause without a full stop; "" where nothing was concluded."""
    return result.error or ("" if result.headroom is None else reason(result.headroom))


def backend_cautions(report: BackendReport) -> list[str]:
    """What makes the figures mean less than they seem to, a sentence each.

    What concerns some backends alone is behind their names.
    """
    sizes = (
        f"{one.name} {' or '.join(f'{size:,}' for size in one.epoch_sizes)}"
        for one in report.backends
        if one.epoch_sizes
    )
    own = {
        one.name: [
            *_sentences(CAUTIONS, one.cautions),
            *(() if one.run is None else one.run.notes),
        ]
        for one in report.backends
    }
    values = {"sizes": ", ".join(sizes)}
    return [*_sentences(CAUTIONS, report.cautions, values), *_by_name(own)]


def missing_of(result: BackendResult) -> list[str]:
    """What was not measured of one backend and why, a sentence each."""
    return _sentences(MISSING, result.not_measured)


def backend_not_measured(report: BackendReport) -> list[str]:
    """What is missing of which backends, and why, a sentence each."""
    return _by_name({one.name: missing_of(one) for one in report.backends})


def _by_name(sentences: Mapping[str, Iterable[str]]) -> list[str]:
    """Each sentence once, behind the names of all that it concerns."""
    names: dict[str, list[str]] = {}
    for name, own in sentences.items():
        for one in own:
            names.setdefault(one, []).append(name)
    return [f"{', '.join(found)}: {one}" for one, found in names.items()]


def difference_sentence(difference: Difference) -> str:
    """How the throughputs of two backends compare: a clause without a full stop."""
    one, other, ratio = difference.one, difference.other, difference.ratio
    times = estimated(ratio, speedup)
    if ratio.low is None:
        return f"{one} {times} as fast as {other}, with {TOO_FEW_FOR_CI}"
    if difference.shown:
        return f"{one} {times} as fast as {other}"
    return f"no difference shown between {one} and {other}: {times}"


def growth_reason(growth: Growth) -> str:
    """How the memory of a subject grows, or why that is not known: a clause."""
    told = filled(GROWTH[growth.reason.code], growth.reason.values)
    return f"{NOT_MEASURED}: {told}" if growth.bytes_per_hour is None else told


def growth_advice(growth: Growth) -> str:
    """What to do about it; "" for nothing."""
    return "" if growth.advice is None else GROWTH[growth.advice]


def _sentences(
    templates: Mapping[Enum, str],
    remarks: Iterable[Remark],
    more: Mapping[str, object] | None = None,
) -> list[str]:
    return [filled(templates[one.code], {**(more or {}), **one.values}) for one in remarks]


def _events(run: Run) -> list[str]:
    """What happened and when; errors that were read on, and what happened again, are one line."""
    groups: dict[str, list[Event]] = {}
    for event in run.events:
        key = event.message if event.kind == "note" else event.kind
        groups.setdefault(key, []).append(event)
    lines = []
    for first, *again in groups.values():
        line = f"at {duration(first.time_ns)}: {first.message}"
        if again:
            last = duration(again[-1].time_ns)
            what = "times" if first.kind == "note" else "errors"
            line += f" ({len(again) + 1:,} {what}, the last at {last})"
        lines.append(line)
    return lines
