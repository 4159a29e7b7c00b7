"""The real and the ideal arm: their times, the gain between them, and throughputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np

from loadeval.analysis.estimate.batch_size import Sizes, at_same_size, follow_size
from loadeval.analysis.estimate.epochs import EpochStarts, epoch_starts_of
from loadeval.analysis.estimate.intervals import (
    FEWEST_PAIRS,
    AllWaits,
    MeanError,
    MeanTime,
    around,
    difference,
    error_of_difference,
    ratio,
    ratio_interval,
    sum_of_errors,
)
from loadeval.analysis.estimate.stalls import rare_stalls
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.steady import closed_steps, steady
from loadeval.analysis.once import once_per_run
from loadeval.data.blocks import whole_epochs
from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import ARMS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.estimate.stats import Series
    from loadeval.data.columns import Column
    from loadeval.data.lines import LoaderInfo
    from loadeval.data.run import Run

    Rows = npt.NDArray[np.bool_]

FEWEST_IN_BLOCK = 4
"""A pair counts when both its blocks have as many batches, or half of what is usual for them."""
EXACT_SHARE = 0.02
"""What differs by less than this share of an iteration is taken for exact.

Loading a JPEG batch ahead took 1 to 2.5% less than between two steps.
"""
LEAST_MISSED_SHARE = 0.05
"""A missed stall of less than this share of the measured real time moves the result little."""
RULE_OF_THREE = 3.0
"""What did not happen in n trials happens at most 3 times in n, with 95% confidence.

Hanley and Lippman-Hand, "If nothing goes wrong, is everything all right?", JAMA 249 (1983).
"""


@dataclass(frozen=True, slots=True, eq=False)
class ArmTimes:
    """The times of one arm, an entry for each batch.

    `samples` is None where they are not known of every batch, or are none at all, and `nbytes`
    where they are not. `pair` is the pair of each, and `place` where it comes in the run, in an
    alternating one.
    """

    wait_ns: Series
    step_ns: Series
    samples: Series | None = None
    pair: Column | None = None
    place: Series | None = None
    all_waits: AllWaits | None = None
    nbytes: Series | None = None

    @property
    def count(self) -> int:
        """How many batches."""
        return len(self.wait_ns)

    def amount(self, by_sample: bool) -> Series:
        """Samples, where these are known, or batches."""
        return self.samples if by_sample and self.samples is not None else np.ones(self.count)

    def waits(self, by_sample: bool) -> MeanTime:
        """The mean wait by sample, where these are known, or by batch."""
        amount = self.amount(by_sample)
        return MeanTime(self.wait_ns, amount, self.pair, self.place, self.all_waits)

    def steps(self, by_sample: bool) -> MeanTime:
        """The mean step."""
        return MeanTime(self.step_ns, self.amount(by_sample), self.pair, self.place)

    def iterations(self, by_sample: bool) -> MeanTime:
        """The mean iteration."""
        return replace(self.waits(by_sample), total_ns=self.wait_ns + self.step_ns)

    def only(self, rows: Rows) -> ArmTimes:
        """These entries alone."""
        waits = self.all_waits
        return ArmTimes(
            self.wait_ns[rows],
            self.step_ns[rows],
            None if self.samples is None else self.samples[rows],
            None if self.pair is None else self.pair[rows],
            None if self.place is None else self.place[rows],
            None if waits is None else replace(waits, within_ns=waits.within_ns[rows]),
            None if self.nbytes is None else self.nbytes[rows],
        )


@final
@dataclass(frozen=True, slots=True)
class Gain:
    """What ideal loading gains; times are per batch of the real arm.

    `speedup`, `lost_share` and `lost_ns` are of whole epochs; `epoch_starts_ns` is the part of the
    latter that is lost at the start and the end of epochs, None where that is not known.
    """

    real_ns: float
    ideal_ns: float
    speedup: Estimate
    steady_speedup: Estimate
    lost_share: Estimate
    lost_ns: Estimate
    waiting_ns: Estimate
    contention_ns: Estimate
    epoch_starts_ns: Estimate | None


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """The mean iterations of two arms, None where an arm has none; the gain where both have one.

    Times are per batch of the real arm; `real_wait_ns` and `ideal_wait_ns` are the waits in the
    iterations. `samples_per_batch` is that of the real arm, None where the arms are compared by
    batch.
    """

    real_ns: float | None
    ideal_ns: float | None
    real_wait_ns: float | None
    ideal_wait_ns: float | None
    real_batches: int
    ideal_batches: int
    samples_per_batch: float | None
    gain: Gain | None


@dataclass(frozen=True, slots=True, eq=False)
class RunTimes:
    """What one run measured.

    An alternating run has both arms, in `pairs`; the others have `real` alone. `counted` is the
    run, in which no batch counts of a pair that was not measured whole. `missed_ns` is by how much
    a stall beside the real blocks exceeds the longest within them; the intervals in `comparison`
    allow for such stalls.
    """

    real: ArmTimes
    counted: Run
    ideal: ArmTimes | None = None
    pairs: tuple[int, ...] | None = None
    comparison: ArmComparison | None = None
    missed_ns: float = 0.0

    @property
    def has_samples(self) -> bool:
        """Whether the samples of all batches are known."""
        known = self.real.samples is not None
        return known and (self.ideal is None or self.ideal.samples is not None)

    @property
    def missed_share(self) -> float:
        """The share that real iterations may be longer than measured, for stalls beside them."""
        real_ns = float(self.real.wait_ns.sum() + self.real.step_ns.sum())
        return RULE_OF_THREE * self.missed_ns / real_ns if real_ns else 0.0

    def real_in(self, pairs: set[int]) -> ArmTimes:
        """The real arm in these pairs alone."""
        pair = np.full(self.real.count, UNKNOWN) if self.real.pair is None else self.real.pair
        return self.real.only(np.isin(pair, list(pairs)))


@once_per_run
def run_times(run: Run) -> RunTimes:
    """The times of a run that alternated, or has one arm."""
    if run.header.mode != "alternate":
        return RunTimes(arm_times(run), run)
    pairs, real, ideal = paired(run)
    pair = np.where(np.isin(run.steps.pair, pairs), run.steps.pair, UNKNOWN)
    counted = replace(run, steps=run.steps.replace(pair=pair))
    comparison = compare_arms(real, ideal, epoch_starts_of(counted))
    missed_ns = 0.0 if real.all_waits is not None else missed_stall_ns(run, comparison)
    if comparison.gain is not None:
        gain = allowing_for_missed(comparison.gain, missed_ns, comparison.real_batches)
        comparison = replace(comparison, gain=gain)
    return RunTimes(real, counted, ideal, tuple(pairs), comparison, missed_ns)


def arm_times(run: Run) -> ArmTimes:
    """The steady batches of a run in one arm."""
    times = times_of(run.steps, steady(run))
    # Its waits and steps have nothing to do with each other, and are judged apart.
    apart = loads_on_request(run.header.loader, 0.0, None, None) and times.count
    return replace(times, all_waits=AllWaits.of_run(times.wait_ns) if apart else None)


def times_of(steps: Columns, rows: Rows) -> ArmTimes:
    """The batches of `rows`, an entry each."""
    chosen, nbytes = steps.samples[rows], steps.nbytes[rows]
    known = len(chosen) > 0 and bool((chosen != UNKNOWN).all()) and bool(chosen.sum() > 0)
    return ArmTimes(
        wait_ns=steps.wait_ns[rows].astype(np.float64),
        step_ns=steps.step_ns[rows].astype(np.float64),
        samples=chosen.astype(np.float64) if known else None,
        nbytes=None if (nbytes == UNKNOWN).any() else nbytes.astype(np.float64),
    )


def paired(run: Run) -> tuple[list[int], ArmTimes, ArmTimes]:
    """The pairs of an alternating run that count, and the times of the real and the ideal arm.

    Where a device's clock told them, times are those of the device: it has no work in a wait, and
    then does what the step has queued. The host queues ahead of it, and its own times say little.

    A run often ends within a pair. A pair counts when each of its blocks has at least
    FEWEST_IN_BLOCK batches, or half of the median block of its arm where that is fewer. Where some
    blocks are whole epochs, and others are not, only those of the kind count that has more.
    """
    steps = run.steps
    whole = list(whole_epochs(run).values())
    is_whole = np.isin(steps.pair, whole)
    if 2 * len(set(whole)) < len(np.unique(steps.pair[steps.pair != UNKNOWN])):
        is_whole = ~is_whole
    counted = (steps.pair != UNKNOWN) & closed_steps(run) & is_whole
    timed_by_device = counted & (steps.gpu_step_ns != UNKNOWN)
    if timed_by_device.any():
        counted = timed_by_device
        steps = steps.replace(wait_ns=steps.gpu_idle_ns, step_ns=steps.gpu_step_ns)
    numbers, index = np.unique(steps.pair[counted], return_inverse=True)
    counts_by_arm = np.zeros((len(ARMS), len(numbers)))
    np.add.at(counts_by_arm, (steps.arm[counted], index), 1.0)
    usual = [
        float(np.median(counts[counts > 0])) if counts.any() else 0.0 for counts in counts_by_arm
    ]
    least = [max(min(FEWEST_IN_BLOCK, median / 2), 1.0) for median in usual]
    pairs = numbers[(counts_by_arm >= np.array(least)[:, None]).all(axis=0)]
    kept = counted & np.isin(steps.pair, pairs)
    real, ideal = (
        _in_pairs(times_of(steps, rows), steps.pair[rows], np.flatnonzero(rows))
        for rows in (kept & (steps.arm == code) for code in range(len(ARMS)))
    )
    rows = kept & (steps.arm == ARMS.index("real"))
    if timed_by_device.any() and not _waits_for_device(run.steps, rows):
        return pairs.tolist(), real, ideal
    waits = all_waits_of(run, real, ideal, rows)
    if waits is None and real.count and ideal.count:
        means_ns = (arm.iterations(by_sample=False).mean_ns for arm in (real, ideal))
        waits = rare_stalls(run, rows, *means_ns)
    return pairs.tolist(), replace(real, all_waits=waits), ideal


def _waits_for_device(steps: Columns, rows: Rows) -> bool:
    """Whether the device is idle in each wait, for the step before has waited for it."""
    idle_ns, wait_ns = float(steps.gpu_idle_ns[rows].sum()), float(steps.wait_ns[rows].sum())
    return idle_ns >= (1 - EXACT_SHARE) * wait_ns


def _in_pairs(times: ArmTimes, pair: Column, place: Column) -> ArmTimes:
    """`times` by pair; by batch, where all batches of a pair are empty."""
    _, index = np.unique(pair, return_inverse=True)
    known = times.samples is not None and np.bincount(index, times.samples).all()
    samples = times.samples if known else None
    return replace(times, samples=samples, pair=pair, place=place.astype(np.float64))


SURELY_AHEAD = 0.25
"""A batch that is waited for less than this share of what loading it takes was loaded before."""


def loads_on_request(
    loader: LoaderInfo, wait_ns: float, alone_ns: float | None, ideal_ns: float | None
) -> bool:
    """Whether a loader works only while training waits for it.

    It does without workers, unless a thread reads it ahead, so that the mean real wait is by far
    shorter than loading takes. Where workers are not known, by that wait alone: for such a loader
    it is all of its own time, for one that loads ahead what exceeds the step's.
    """
    if loader.workers or loader.prefetch_depth:
        return False
    if not alone_ns or not ideal_ns:
        return loader.workers == 0
    if loader.workers == 0:
        return not 0 < wait_ns < SURELY_AHEAD * alone_ns
    return wait_ns >= alone_ns - min(alone_ns, ideal_ns) / 2


def all_waits_of(run: Run, real: ArmTimes, ideal: ArmTimes, rows: Rows) -> AllWaits | None:
    """The loading times of all batches, where they tell more than the waits in `rows` alone.

    A loader without workers takes about as long for a batch whether it loads for a real block or
    ahead of an ideal one, where CPU caches are a little warmer. So its stalls, which are rare, are
    counted over all batches, but for the first of each epoch. None for other loaders, where the
    real blocks alone are exact enough, and where waits of prefetched batches were not recorded.
    """
    alone = loader_alone(run, by_sample=False)
    if alone is None or not real.count:
        return None
    waits = real.waits(by_sample=False)
    error, steps_ns = waits.error(), ideal.iterations(by_sample=False).mean_ns
    if error is None:
        return None
    longest_ns = waits.mean_ns + error.half_width
    if not loads_on_request(run.header.loader, longest_ns, alone.mean_ns, steps_ns):
        return None
    total_ns = float((real.wait_ns + real.step_ns).sum())
    if error.half_width * real.count < EXACT_SHARE * total_ns:
        return None
    loading_ns, looked_at = _loading_ns(run)
    if loading_ns is None:
        return None
    # Each wait, too, is seen beside the ideal iteration at its place.
    later = np.flatnonzero((run.steps.batch > 0) & ~looked_at)
    iterations = ideal.iterations(by_sample=False)
    within, level = (iterations.at(np.asarray(at, np.float64)) for at in (real.place, later))
    all_ns = loading_ns[later] * (within.mean() / level.mean())
    return AllWaits(loading_ns[rows], all_ns, level / level.mean())


def _loading_ns(run: Run) -> tuple[Series | None, Rows]:
    """How long each batch took to load: its wait, or the one while it was prefetched.

    And which were looked at meanwhile, for which they took longer.
    """
    steps = run.steps
    loading_ns, looked_at = steps.wait_ns.astype(np.float64), steps.instrumented.copy()
    ideal = steps.arm == ARMS.index("ideal")
    for epoch in np.unique(steps.epoch[ideal]).tolist():
        # Nothing else is prefetched: they are served in this order.
        prefetched = [prefetch for prefetch in run.prefetches if prefetch.epoch == epoch]
        waits = [(wait, each.instrumented) for each in prefetched for wait in each.waits_ns]
        (served,) = np.nonzero(ideal & (steps.epoch == epoch))
        if len(waits) < len(served):
            return None, looked_at
        if waits:
            waits_ns, marks = np.array(waits[: len(served)]).T
            loading_ns[served], looked_at[served] = waits_ns, marks > 0
    return loading_ns, looked_at


def compare_arms(
    real: ArmTimes,
    ideal: ArmTimes,
    starts: EpochStarts | None = None,
    same_unit: bool = True,
) -> ArmComparison:
    """The arms, compared by sample where both know theirs in the same unit.

    In pairs where both have them; and at the same size of batch where steps follow it, unless
    blocks are whole epochs, which have the same batches. `starts` are those of the real arm's
    epochs; without them the gain is that of the steady state.
    """
    known = real.samples is not None and ideal.samples is not None and same_unit
    size = float(real.samples.sum()) / real.count if known and real.samples is not None else None
    scale = size or 1.0
    iterations = real.iterations(known), ideal.iterations(known)
    waits = real.waits(known), ideal.waits(known)
    steps = real.steps(known), ideal.steps(known)
    sizes = None if starts is not None and starts.pair is not None else _sizes(real, ideal)
    if sizes is not None and follow_size(*steps, sizes):
        iterations, waits, steps = (
            at_same_size(*arms, sizes) for arms in (iterations, waits, steps)
        )
    means = [
        mean.mean_ns * scale if times.count else None
        for of_real, of_ideal in (iterations, waits)
        for times, mean in ((real, of_real), (ideal, of_ideal.reweighted_to(of_real)))
    ]
    real_ns, ideal_ns, real_wait_ns, ideal_wait_ns = means[0] or None, means[1] or None, *means[2:]
    gain = None
    if real_ns is not None and ideal_ns is not None:
        waiting_ns = difference(*waits, scale)
        contention_ns = difference(*steps, scale)
        gain = _gain(iterations, scale, waiting_ns, contention_ns, starts)
    return ArmComparison(
        real_ns, ideal_ns, real_wait_ns, ideal_wait_ns, real.count, ideal.count, size, gain
    )


def _sizes(real: ArmTimes, ideal: ArmTimes) -> Sizes | None:
    """The bytes of the batches of an alternating run; None where they are not known."""
    if real.place is None or real.nbytes is None or ideal.nbytes is None:
        return None
    return Sizes(real.nbytes, ideal.nbytes)


def _gain(
    iterations: tuple[MeanTime, MeanTime],
    scale: float,
    waiting_ns: Estimate,
    contention_ns: Estimate,
    starts: EpochStarts | None,
) -> Gain:
    """The gain over whole epochs: the steady iterations, and what their starts and ends add.

    An epoch takes the time of its first batches and its end, as they were seen, and steady
    iterations for the rest. Its error is that of the two means, and what epochs differ by.
    """
    real, ideal = iterations[0], iterations[1].reweighted_to(iterations[0])
    real_ns, ideal_ns = real.mean_ns * scale, ideal.mean_ns * scale
    added_ns, steady_part, spread = 0.0, 1.0, None
    if starts is not None:
        added_ns, steady_part = starts.added_ns(real_ns), starts.steady_part
        spread = starts.error(real_ns)
    whole_ns = real_ns + added_ns

    def error(real_scale: float, ideal_scale: float) -> MeanError | None:
        if starts is not None and starts.pair is not None:
            return _error_of_epochs(starts, iterations[1], real_scale, ideal_scale * scale)
        of_means = error_of_difference(
            real, ideal, real_scale * scale * steady_part, ideal_scale * scale
        )
        if spread is None:
            return of_means
        return sum_of_errors(of_means, MeanError(spread.variance * real_scale**2, spread.freedom))

    speedup = ratio_interval(whole_ns / ideal_ns, error(1 / whole_ns, 1 / ideal_ns))
    # The parts then add up to the last bit.
    lost_ns = waiting_ns.value + contention_ns.value + added_ns
    return Gain(
        real_ns,
        ideal_ns,
        speedup,
        ratio(*iterations),
        lost_share(speedup),
        around(lost_ns, error(1.0, 1.0)),
        waiting_ns,
        contention_ns,
        None if starts is None else around(added_ns, spread),
    )


def _error_of_epochs(
    starts: EpochStarts, ideal: MeanTime, real_scale: float, ideal_scale: float
) -> MeanError | None:
    """The error of `real_scale` times an epoch's mean less `ideal_scale` times the ideal one.

    By Student's t over pairs of epochs; None where there are too few.
    """
    if starts.pair is None or ideal.pair is None or len(np.unique(ideal.pair)) < FEWEST_PAIRS:
        return None
    pairs, of_ideal = np.unique(ideal.pair, return_inverse=True)
    of_real = np.searchsorted(pairs, starts.pair)
    real_ns = np.bincount(of_real, starts.first_ns) / np.bincount(of_real, starts.first_batches)
    ideal_ns = np.bincount(of_ideal, ideal.total_ns) / np.bincount(of_ideal, ideal.amount)
    differences = real_scale * real_ns - ideal_scale * ideal_ns
    return MeanError(float(differences.var(ddof=1)) / len(pairs), len(pairs) - 1)


def lost_share(speedup: Estimate) -> Estimate:
    """The share of the real arm's time that is lost: 1 - 1 / `speedup`."""
    low, high = (None if bound is None else 1 - 1 / bound for bound in (speedup.low, speedup.high))
    return Estimate(1 - 1 / speedup.value, low, high)


def missed_stall_ns(run: Run, comparison: ArmComparison) -> float:
    """How much longer the longest wait beside the real blocks is than the longest within them.

    Such a stall is too rare to be in the interval. 0.0 where that matters little. What the loader's
    queue can hide does not count: as many ideal iterations as it is deep.
    """
    hidden_ns = (run.header.loader.prefetch_depth or 0) * (comparison.ideal_ns or 0.0)
    real = run.steps.arm == ARMS.index("real")
    counted = run.steps.pair != UNKNOWN
    within_ns = int(run.steps.wait_ns[real & counted].max(initial=0))
    beside_ns = _longest_beside_ns(run, real & ~counted)
    missed_ns = max(beside_ns - max(within_ns, hidden_ns), 0.0)
    counted_ns = (comparison.real_ns or 0.0) * comparison.real_batches
    return missed_ns if missed_ns > LEAST_MISSED_SHARE * (counted_ns + missed_ns) else 0.0


def _longest_beside_ns(run: Run, uncounted: Rows) -> int:
    # The first batch of a warm-up has waited for the prefetch too, and an epoch's first one is its
    # epoch start.
    follows = np.zeros(len(run.steps), dtype=np.bool_)
    follows[1:] = uncounted[:-1] & (np.diff(run.steps.epoch) == 0)
    warming_up = run.steps.wait_ns[uncounted & follows]
    whole = whole_epochs(run)
    prefetched = [
        max(prefetch.waits_ns[prefetch.epoch in whole :], default=0) for prefetch in run.prefetches
    ]
    return max([*prefetched, int(warming_up.max(initial=0))])


def allowing_for_missed(gain: Gain, missed_ns: float, batches: int) -> Gain:
    """`gain` with intervals that allow for missed stalls among its real `batches`."""
    more_ns = RULE_OF_THREE * missed_ns / batches
    speedup = _higher(gain.speedup, more_ns / gain.ideal_ns)
    return replace(
        gain,
        speedup=speedup,
        steady_speedup=_higher(gain.steady_speedup, more_ns / gain.ideal_ns),
        lost_share=lost_share(speedup),
        lost_ns=_higher(gain.lost_ns, more_ns),
        waiting_ns=_higher(gain.waiting_ns, more_ns),
    )


def _higher(estimate: Estimate, more: float) -> Estimate:
    high = estimate.high
    return replace(estimate, high=None if high is None else high + more)


def loader_alone(run: Run, by_sample: bool) -> MeanTime | None:
    """The time that the loader takes with nobody training; None where that was not timed.

    None too where its samples are not known, and are asked for. Copying a batch is part of the time
    where workers load meanwhile, so waits are stretched to what all of them took together.
    """
    timed = [each for each in run.prefetches if each.timed and not each.instrumented]
    if not timed or (by_sample and not all(prefetch.samples for prefetch in timed)):
        return None
    total_ns, amount, part = [], [], []
    for number, prefetch in enumerate(timed):
        waits_ns = np.array(prefetch.waits_ns[-prefetch.timed :], dtype=np.float64)
        if len(waits_ns) < prefetch.timed or not waits_ns.any():
            waits_ns = np.ones(1)
        size = float((by_sample and prefetch.samples) or prefetch.timed)
        total_ns.append(waits_ns * (prefetch.elapsed_ns / waits_ns.sum()))
        amount.append(np.full(len(waits_ns), size / len(waits_ns)))
        part.append(np.full(len(waits_ns), number))
    return MeanTime(np.concatenate(total_ns), np.concatenate(amount), np.concatenate(part))
