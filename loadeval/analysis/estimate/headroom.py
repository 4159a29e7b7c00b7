"""Real against ideal: how much faster training would be if loading were free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.arms import compare_arms, run_times
from loadeval.analysis.estimate.cautions import (
    Caution,
    about_the_machine,
    about_two_runs,
    drift_ns,
    hidden_waits,
    left_out,
    looked_into,
    more_faults,
    one_epoch,
    same_unit,
)
from loadeval.analysis.estimate.epochs import epoch_starts_of, epochs_of
from loadeval.analysis.estimate.steady import (
    epoch_lengths,
    whole_windows,
)
from loadeval.analysis.estimate.summary import gpu_wait, spent
from loadeval.analysis.estimate.throughput import required
from loadeval.analysis.estimate.verdict import (
    FEWEST_PAIRS_OF_EPOCHS,
    USUAL_BATCHES,
    Evidence,
    Objection,
    Unmeasured,
    Verdict,
    VerdictAdvice,
    advise,
    judge,
)
from loadeval.analysis.once import once_per_run
from loadeval.analysis.remark import Remark
from loadeval.data.blocks import batches_for, epochs_for, two_blocks_for
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.estimate.arms import ArmComparison, Gain
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.data.lines import Arm
    from loadeval.data.run import Run

BUSIEST_SHARE = 0.05
"""CPU time of the workers in ideal blocks, as a share of these, from which they are not free."""
TICK_NS = 10_000_000
"""What CPU times are counted in."""
FEWEST_FOR_VERDICT = 3
"""Pairs of the smallest blocks: two have too few batches."""


class Missing(Enum):
    """What was not measured."""

    INTERVAL = "confidence interval"
    LOADER_ALONE = "loader alone: nothing prefetched"
    LOADER_ALONE_READY = "loader alone: prefetched batches were ready"
    WORKERS_CPU = "CPU time of the workers"
    SAMPLES = "samples of every batch"
    PREFETCH_DEPTH = "prefetch depth"
    EPOCH_STARTS = "epoch starts"


@dataclass(frozen=True, slots=True)
class Headroom:
    """What ideal loading gains; times are in nanoseconds per batch of the real arm.

    `speedup` is how many times as fast whole epochs would be, by sample (by batch where samples are
    unknown, or called differently), and `lost_share` = 1 - 1 / `speedup` gives the verdict. Per
    batch an epoch takes `real_ns`, the steady iteration, and `epoch_starts_ns`, what the
    starts and ends of epochs add to it. `lost_ns` = `real_ns` + `epoch_starts_ns` - `ideal_ns` is
    the sum of `waiting_ns`, the difference of the waits, `contention_ns`, the difference of the
    steps (what the loader's workers take from the training process), and `epoch_starts_ns`, which
    is None where no epoch's start was seen or its length is not known. Each may be negative; a step
    that ends by waiting for a device is shorter when the device had work during the wait, and the
    first batches may come faster than later ones. `steady_speedup` = `real_ns` / `ideal_ns`;
    `real_wait_ns` and `ideal_wait_ns` are the waits in these.

    `required` = `loader_only_ns` / `ideal_ns` is how many times as fast the loader alone would have
    to be; None for a loader that loads nothing while a step runs, whose time is added to the
    step's. `epoch_start_ns` is the mean first wait of an epoch, `gpu_idle_ns` how long the device
    had nothing to do in the wait for a real batch, by its own clock. `pairs` is None for two
    separate runs; `of_epochs` tells whether its blocks are whole epochs. What cannot be known is
    None, and `not_measured` says why.
    """

    speedup: Estimate | None
    steady_speedup: Estimate | None
    lost_share: Estimate | None
    real_ns: float | None
    ideal_ns: float | None
    real_wait_ns: float | None
    ideal_wait_ns: float | None
    loader_only_ns: float | None
    lost_ns: Estimate | None
    waiting_ns: Estimate | None
    contention_ns: Estimate | None
    epoch_starts_ns: Estimate | None
    required: Estimate | None
    epoch_start_ns: float | None
    gpu_idle_ns: float | None
    samples_per_batch: float | None
    unit: str
    pairs: int | None
    of_epochs: bool
    real_batches: int
    ideal_batches: int
    verdict: Verdict
    advice: tuple[Remark, ...]
    cautions: tuple[Remark, ...]
    not_measured: tuple[Remark, ...]

    def __str__(self) -> str:
        """The speed-up, the verdict and the parts of the time lost in one line."""
        verdict = str(self.verdict)
        if self.verdict.objection is not None:
            verdict = f"{verdict} ({self.verdict.objection.value})"
        whole_ns = self.whole_ns
        if self.speedup is None or self.lost_share is None or not whole_ns:
            return verdict
        low, high = self.speedup.low, self.speedup.high
        interval = "" if low is None or high is None else f" [{low:.2f}x, {high:.2f}x]"
        parts = {
            "waiting": self.waiting_ns,
            "contention": self.contention_ns,
            "epoch starts": self.epoch_starts_ns,
        }
        shares = (
            f"{name} {round(part.value / whole_ns, 2) + 0.0:.0%}"
            for name, part in parts.items()
            if part is not None
        )
        return (
            f"{self.speedup.value:.2f}x{interval} if loading were free: {verdict}, "
            f"{self.lost_share.value:.0%} of the time lost ({', '.join(shares)})"
        )

    @property
    def whole_ns(self) -> float | None:
        """What an epoch takes per batch, its start and end included."""
        starts_ns = 0.0 if self.epoch_starts_ns is None else self.epoch_starts_ns.value
        return None if self.real_ns is None else self.real_ns + starts_ns


@once_per_run
def headroom(run: Run) -> Headroom:
    """The headroom that one alternating run measured.

    Raises UsageError when the run is not an alternating one.
    """
    times = run_times(run)
    if times.comparison is None or times.pairs is None:
        raise UsageError(
            f"{_name(run)} was recorded with mode={run.header.mode!r}; expected "
            "a run with mode='alternate'. A run with mode='log' and one with mode='replay' are "
            "compared by plot_comparison(real_log, ideal_log), and by: loadeval compare REAL IDEAL"
        )
    comparison, pairs = times.comparison, times.pairs
    cpu_share, too_busy = _worker_cpu_share(run, pairs)
    loads_ahead = 0 not in (run.header.loader.workers, run.header.loader.prefetch_depth)
    alone_ns, needed = required(run)
    starts = epoch_starts_of(times.counted)
    first = 0 if starts is None else int(starts.first_batches.sum())
    are_whole = starts is not None and starts.pair is not None
    evidence = comparison.gain and Evidence(
        comparison.gain,
        min(comparison.real_batches + first, comparison.ideal_batches),
        alternating=True,
        batches=len(run.steps),
        more_epochs=missing_epochs(run, len(pairs)) if are_whole else None,
        required=needed if loads_ahead else None,
        loads_ahead=loads_ahead,
        workers_busy=cpu_share if too_busy else None,
        missed_ns=times.missed_ns,
    )
    cautions = [Remark(Caution.WORKERS_BUSY, {"cpu_share": cpu_share})] if too_busy else []
    return _headroom(
        times.counted,
        comparison,
        evidence,
        unmeasured=(_why_unmeasured(run, comparison.real_batches),),
        cautions=[
            *cautions,
            *more_faults(times.counted, comparison),
            *about_the_machine(times.counted),
            *looked_into(run),
        ],
        not_measured=_missing(run, comparison, pairs, cpu_share, of_epochs=are_whole),
        pairs=len(pairs),
        of_epochs=are_whole,
        loader_only_ns=alone_ns,
    )


@once_per_run
def headroom_of_two(real: Run, ideal: Run) -> Headroom:
    """The headroom between a run that loaded and one that replayed.

    Raises UsageError when a run is not of the arm that its place asks for.
    """
    _check_arm(real, "real")
    _check_arm(ideal, "ideal")
    of_real, other = run_times(real).real, run_times(ideal).real
    comparison = compare_arms(of_real, other, epoch_starts_of(real), same_unit(real, ideal))
    sides = ((real, of_real, comparison.real_ns), (ideal, other, comparison.ideal_ns))
    known, scale = comparison.samples_per_batch is not None, comparison.samples_per_batch or 1.0
    unknown = any(times.count and times.samples is None for times in (of_real, other))
    evidence = comparison.gain and Evidence(
        comparison.gain,
        min(comparison.real_batches, comparison.ideal_batches),
        alternating=False,
        drift_ns=max(drift_ns(times.iterations(known)) * scale for times in (of_real, other)),
    )
    return _headroom(
        real,
        comparison,
        evidence,
        unmeasured=tuple(
            _why_unmeasured(run, times.count) for run, times, mean in sides if mean is None
        ),
        cautions=[*about_two_runs(real, ideal, unknown), *about_the_machine(real, ideal)],
    )


def _check_arm(run: Run, arm: Arm) -> None:
    arms = [ARMS[code] for code in np.unique(run.steps.arm)]
    if run.header.mode == "replay" and "ideal" in arms:
        arms = ["ideal"]  # the real batches before it count nowhere
    if run.header.mode == "alternate" or (arms and arms != [arm]):
        wanted = {"real": "mode='log'", "ideal": "mode='replay'"}[arm]
        advice = "Are the two the other way round, or the same one?"
        if run.header.mode == "alternate":
            advice = "An alternating run has both: give it alone."
        raise UsageError(
            f"{_name(run)} was recorded with mode={run.header.mode!r}; expected "
            f"a run with {wanted} as the {arm} one. {advice}"
        )


def _headroom(  # noqa: PLR0913 - what one run and two runs tell differently
    run: Run,
    comparison: ArmComparison,
    evidence: Evidence | None,
    *,
    unmeasured: tuple[Remark, ...],
    cautions: Sequence[Remark],
    not_measured: Sequence[Remark] = (),
    pairs: int | None = None,
    of_epochs: bool = False,
    loader_only_ns: float | None = None,
) -> Headroom:
    if evidence is None:
        verdict = Verdict(objection=Objection.NOT_MEASURED, unmeasured=unmeasured)
        more = Remark(VerdictAdvice.LONGER_EPOCHS) if pairs is None else _more_for_pairs(run)
        advice: tuple[Remark, ...] = (more,)
        if any(reason.code is Unmeasured.NO_PAIR_OF_EPOCHS for reason in unmeasured):
            missing = {"epochs": missing_epochs(run, 0)}
            advice = (Remark(VerdictAdvice.MORE_EPOCHS, missing),)
    else:
        verdict = judge(evidence)
        advice = advise(evidence, verdict)
    gain, waited = comparison.gain, gpu_wait(run, "real")
    return Headroom(
        speedup=gain and gain.speedup,
        steady_speedup=gain and gain.steady_speedup,
        lost_share=gain and gain.lost_share,
        real_ns=comparison.real_ns,
        ideal_ns=comparison.ideal_ns,
        real_wait_ns=comparison.real_wait_ns,
        ideal_wait_ns=comparison.ideal_wait_ns,
        loader_only_ns=loader_only_ns,
        lost_ns=gain and gain.lost_ns,
        waiting_ns=gain and gain.waiting_ns,
        contention_ns=gain and gain.contention_ns,
        epoch_starts_ns=gain and gain.epoch_starts_ns,
        required=None if evidence is None else evidence.required,
        epoch_start_ns=epochs_of(run).epoch_start_ns,
        gpu_idle_ns=None if waited is None else waited.gpu_idle_ns,
        samples_per_batch=comparison.samples_per_batch,
        unit=run.header.unit,
        pairs=pairs,
        of_epochs=of_epochs,
        real_batches=comparison.real_batches,
        ideal_batches=comparison.ideal_batches,
        verdict=verdict,
        advice=advice,
        cautions=(*cautions, *hidden_waits(waited), *one_epoch(gain), *left_out(run)),
        not_measured=(*not_measured, *_no_epoch_starts(gain)),
    )


def _no_epoch_starts(gain: Gain | None) -> list[Remark]:
    return [Remark(Missing.EPOCH_STARTS)] * (gain is not None and gain.epoch_starts_ns is None)


def _name(run: Run) -> str:
    return str(run.path or run.header.name)


def _why_unmeasured(run: Run, batches: int) -> Remark:
    """Why a run in which so many `batches` count has no mean iteration."""
    name, known = {"run": _name(run)}, known_of(run)
    if batches:
        return Remark(Unmeasured.NO_TIME, name)
    if run.header.mode == "alternate":
        lengths = list(epoch_lengths(run).values())
        if lengths and _are_blocks(run, lengths):
            values = {"epochs": len(lengths), "batches": max(lengths)}
            return Remark(Unmeasured.NO_PAIR_OF_EPOCHS, {**name, **values, **known})
        return Remark(Unmeasured.NO_PAIR, {**name, "batches": len(run.steps), **known})
    if len(run.steps) and (run.steps.step_ns == UNKNOWN).all():
        return Remark(Unmeasured.NO_STEP, name)
    counts = {"batches": run.batches, "warmup": run.header.warmup}
    return Remark(Unmeasured.NO_STEADY_BATCH, {**name, **counts, **known})


def known_of(run: Run) -> dict[str, float]:
    """What is known of a run that has nothing to compare."""
    time = spent(run)
    waited_ns = time.wait_ns + time.first_wait_ns
    if not time.total_ns:
        return {}
    return {
        "loaded": time.batches,
        "waited_ns": waited_ns,
        "first_wait_ns": time.first_wait_ns,
        "step_ns": time.step_ns,
        "wait_share": waited_ns / time.total_ns,
    }


def _more_for_pairs(run: Run) -> Remark:
    """How many batches make pairs, and how long they take at the pace so far."""
    needed = batches_for(FEWEST_FOR_VERDICT, run.header.loader.prefetch_depth or 0)
    time = spent(run)
    if not time.batches or not time.total_ns:
        return Remark(VerdictAdvice.MORE_PAIRS, {"batches": USUAL_BATCHES})
    values = {"batches": needed, "elapsed_ns": needed * time.total_ns / time.batches}
    return Remark(VerdictAdvice.BATCHES_FOR_PAIRS, values)


def _are_blocks(run: Run, lengths: Sequence[int]) -> bool:
    """Whether the epochs of an alternating run, of these lengths, are too short for two blocks."""
    longest = two_blocks_for(run.header.loader.prefetch_depth or 0) - 1
    ended = any(end.cause == "exhausted" for end in run.ends)
    known = run.header.loader.length or (max(lengths) if ended else None)
    return known is not None and max(known, *lengths) <= longest


def missing_epochs(run: Run, pairs: int) -> int:
    """How many epochs more, where each is a block, make as many pairs as are needed."""
    if pairs >= FEWEST_PAIRS_OF_EPOCHS:
        return 0
    return max(epochs_for(FEWEST_PAIRS_OF_EPOCHS) - len(epoch_lengths(run)), 1)


def _missing(
    run: Run,
    comparison: ArmComparison,
    pairs: tuple[int, ...],
    cpu_share: float | None,
    *,
    of_epochs: bool,
) -> list[Remark]:
    """What an alternating run could not measure."""
    loader, codes = run.header.loader, []
    if comparison.gain is not None and comparison.gain.speedup.low is None:
        codes.append(Missing.INTERVAL)
    if not any(prefetch.timed for prefetch in run.prefetches) and not of_epochs:
        codes.append(Missing.LOADER_ALONE_READY if run.prefetches else Missing.LOADER_ALONE)
    if pairs and loader.workers != 0 and cpu_share is None:
        codes.append(Missing.WORKERS_CPU)
    if comparison.real_batches and comparison.samples_per_batch is None:
        codes.append(Missing.SAMPLES)
    if pairs and loader.prefetch_depth is None:
        codes.append(Missing.PREFETCH_DEPTH)
    return [Remark(code) for code in codes]


def _worker_cpu_share(run: Run, pairs: tuple[int, ...]) -> tuple[float | None, bool]:
    """How many CPUs the workers kept busy in the ideal blocks, and whether that is too much."""
    windows = [window for window in whole_windows(run, "ideal") if window.pair in set(pairs)]
    elapsed_ns = sum(window.elapsed_ns for window in windows)
    used = [window.workers_cpu_ns for window in windows if window.workers_cpu_ns is not None]
    if len(used) < len(windows) or not elapsed_ns:
        return None, False
    share = sum(used) / elapsed_ns
    # Each window is wrong by up to a tick, up or down, independently of the others.
    allowed = BUSIEST_SHARE + TICK_NS * math.sqrt(len(windows)) / elapsed_ns
    return share, share > allowed
