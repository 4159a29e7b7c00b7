"""The real and the ideal arm: their times by pair, the gain between them, and throughputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np

from loadeval.analysis.stats import (
    Estimate,
    MeanTime,
    difference,
    over_pairs,
    over_runs,
    ratio,
)
from loadeval.analysis.summary import steady, steady_aggregates
from loadeval.runlog.model import ARMS, SECOND_NS, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from loadeval.analysis.stats import HalfWidth, Series
    from loadeval.runlog.model import Column, Run, Steps

    Rows = npt.NDArray[np.bool_]

USUAL_PART = 0.5
"""A pair counts when both its blocks have at least this part of the usual number of batches."""
LEAST_MISSED_SHARE = 0.05
"""Of the measured real time: a shorter missed stall would not move the result by much."""
RULE_OF_THREE = 3.0
"""What did not happen in n trials happens at most 3 times in n, with 95% confidence.

Hanley and Lippman-Hand, "If nothing goes wrong, is everything all right?", JAMA 249 (1983).
"""


@dataclass(frozen=True, slots=True, eq=False)
class ArmTimes:
    """The times of one arm: an entry for each pair, or for each batch of a run of its own.

    `samples` is None where they are not known of every batch, or are none at all.
    """

    wait_ns: Series
    step_ns: Series
    batches: Series
    samples: Series | None

    @property
    def count(self) -> int:
        """How many batches."""
        return int(self.batches.sum())

    def mean(self, total_ns: Series, by_sample: bool) -> MeanTime:
        """The mean of `total_ns`, an entry each, by sample where these are known, or by batch."""
        amount = self.samples if by_sample and self.samples is not None else self.batches
        return MeanTime(total_ns, amount)

    def iterations(self, by_sample: bool) -> MeanTime:
        """The mean iteration."""
        return self.mean(self.wait_ns + self.step_ns, by_sample)

    def each(self, change: Callable[[Series], Series]) -> ArmTimes:
        """These, with another series in the place of each."""
        samples = None if self.samples is None else change(self.samples)
        return ArmTimes(change(self.wait_ns), change(self.step_ns), change(self.batches), samples)


@final
@dataclass(frozen=True, slots=True)
class Gain:
    """What ideal loading gains; times are per batch of the real arm."""

    real_ns: float
    ideal_ns: float
    speedup: Estimate
    lost_share: Estimate
    lost_ns: Estimate
    waiting_ns: Estimate
    contention_ns: Estimate


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """The mean iterations of two arms, None where an arm has none; the gain where both have one.

    `samples_per_batch` is that of the real arm, None where the arms are compared by batch.
    """

    real_ns: float | None
    ideal_ns: float | None
    real_batches: int
    ideal_batches: int
    samples_per_batch: float | None
    gain: Gain | None


@dataclass(frozen=True, slots=True, eq=False)
class RunTimes:
    """What one run measured.

    An alternating run has both arms, with an entry for each of `pairs`; the others have `real`
    alone, with an entry for each batch. `counted` is the run, in which no batch counts of a pair
    that was not measured whole. `missed_ns` is by how much a stall beside the real blocks exceeds
    the longest within them; the intervals in `comparison` allow for such stalls.
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
    def half_width(self) -> HalfWidth:
        """What gives its intervals."""
        return over_runs if self.pairs is None else over_pairs

    @property
    def missed_share(self) -> float:
        """By how much real iterations may be longer than measured, for stalls beside them."""
        real_ns = float(self.real.wait_ns.sum() + self.real.step_ns.sum())
        return RULE_OF_THREE * self.missed_ns / real_ns if real_ns else 0.0

    def real_in(self, pairs: set[int]) -> ArmTimes:
        """The real arm in these pairs alone."""
        rows = np.isin(self.pairs or (), list(pairs))
        return self.real.each(lambda series: series[rows])


def run_times(run: Run) -> RunTimes:
    """The times of a run that alternated, or has one arm."""
    if run.header.mode != "alternate":
        return RunTimes(arm_times(run), run)
    pairs, real, ideal = paired(run)
    comparison = compare_arms(real, ideal, over_pairs)
    missed_ns = missed_stall_ns(run, comparison)
    if comparison.gain is not None:
        gain = allowing_for_missed(comparison.gain, missed_ns, comparison.real_batches)
        comparison = replace(comparison, gain=gain)
    pair = np.where(np.isin(run.steps.pair, pairs), run.steps.pair, UNKNOWN)
    counted = replace(run, steps=replace(run.steps, pair=pair))
    return RunTimes(real, counted, ideal, tuple(pairs), comparison, missed_ns)


def arm_times(run: Run) -> ArmTimes:
    """The steady batches of a run in one arm: an entry for each, or for each aggregate of them.

    The aggregates have all batches. Those that were kept in detail, one in N, may be unlike the
    others: what happens at every 20th may happen at every one of them, or at none.
    """
    if run.header.every == 1:
        return times_of(run.steps, steady(run))
    aggregates = steady_aggregates(run)
    counts = [aggregate.samples for aggregate in aggregates if aggregate.samples is not None]
    known = len(counts) == len(aggregates) and sum(counts) > 0
    return ArmTimes(
        wait_ns=np.array([aggregate.wait_ns for aggregate in aggregates], dtype=np.float64),
        step_ns=np.array([aggregate.step_ns for aggregate in aggregates], dtype=np.float64),
        batches=np.array([aggregate.batches for aggregate in aggregates], dtype=np.float64),
        samples=np.array(counts, dtype=np.float64) if known else None,
    )


def times_of(steps: Steps, rows: Rows) -> ArmTimes:
    """The batches of `rows`, an entry each."""
    chosen = steps.samples[rows]
    known = len(chosen) > 0 and bool((chosen != UNKNOWN).all()) and bool(chosen.sum() > 0)
    return ArmTimes(
        wait_ns=steps.wait_ns[rows].astype(np.float64),
        step_ns=steps.step_ns[rows].astype(np.float64),
        batches=np.ones(len(chosen)),
        samples=chosen.astype(np.float64) if known else None,
    )


def paired(run: Run) -> tuple[list[int], ArmTimes, ArmTimes]:
    """The pairs of an alternating run that count, and their sums in the real and the ideal arm.

    A run often ends within a pair. A pair counts when each of its blocks has at least half of
    the batches that a block of this run usually (in the median) has; times are scaled to equal
    numbers of samples, so that a block that is a little short does not tilt the comparison.
    """
    steps = run.steps
    counted = (steps.pair != UNKNOWN) & (steps.step_ns != UNKNOWN)
    numbers, index = np.unique(steps.pair[counted], return_inverse=True)
    found = np.zeros((len(ARMS), len(numbers)))
    np.add.at(found, (steps.arm[counted], index), 1.0)
    usual = float(np.median(found[found > 0])) if len(numbers) else 0.0
    whole = (found >= max(USUAL_PART * usual, 1.0)).all(axis=0)
    pairs = numbers[whole]
    kept = counted & np.isin(steps.pair, pairs)
    arms = (kept & (steps.arm == code) for code in range(len(ARMS)))
    real, ideal = (_by_pair(steps, rows, pairs) for rows in arms)
    return pairs.tolist(), real, ideal


def _by_pair(steps: Steps, rows: Rows, pairs: Column) -> ArmTimes:
    index = np.searchsorted(pairs, steps.pair[rows])
    return times_of(steps, rows).each(
        lambda series: np.bincount(index, series, len(pairs)).astype(np.float64)
    )


def compare_arms(
    real: ArmTimes, ideal: ArmTimes, half_width: HalfWidth, same_unit: bool = True
) -> ArmComparison:
    """The arms, compared by sample where both know theirs in the same unit."""
    known = real.samples is not None and ideal.samples is not None and same_unit
    size = float(real.samples.sum()) / real.count if known and real.samples is not None else None
    scale = size or 1.0
    iterations = real.iterations(known), ideal.iterations(known)
    real_ns, ideal_ns = (
        mean.mean_ns * scale or None if times.count else None
        for times, mean in zip((real, ideal), iterations, strict=True)
    )
    gain = None
    if real_ns is not None and ideal_ns is not None:
        waits = real.mean(real.wait_ns, known), ideal.mean(ideal.wait_ns, known)
        steps = real.mean(real.step_ns, known), ideal.mean(ideal.step_ns, known)
        speedup = ratio(*iterations, half_width)
        waiting_ns, contention_ns, lost_ns = (
            difference(*means, half_width, scale) for means in (waits, steps, iterations)
        )
        # So that the parts add up to the last bit.
        lost_ns = replace(lost_ns, value=waiting_ns.value + contention_ns.value)
        gain = Gain(
            real_ns, ideal_ns, speedup, lost_share(speedup), lost_ns, waiting_ns, contention_ns
        )
    return ArmComparison(real_ns, ideal_ns, real.count, ideal.count, size, gain)


def lost_share(speedup: Estimate) -> Estimate:
    """The share of the real arm's time that is lost: 1 - 1 / `speedup`."""
    low, high = (None if bound is None else 1 - 1 / bound for bound in (speedup.low, speedup.high))
    return Estimate(1 - 1 / speedup.value, low, high)


def missed_stall_ns(run: Run, found: ArmComparison) -> float:
    """By how much the longest wait beside the real blocks exceeds the longest within them.

    Such a stall is too rare to be in the interval. 0.0 where that matters little. What the loader's
    queue can hide does not count: as many ideal iterations as it is deep.
    """
    hidden_ns = (run.header.loader.prefetch_depth or 0) * (found.ideal_ns or 0.0)
    real = run.steps.arm == ARMS.index("real")
    counted = run.steps.pair != UNKNOWN
    within_ns = int(run.steps.wait_ns[real & counted].max(initial=0))
    beside_ns = _longest_beside_ns(run, real & ~counted)
    missed_ns = max(beside_ns - max(within_ns, hidden_ns), 0.0)
    counted_ns = (found.real_ns or 0.0) * found.real_batches
    return missed_ns if missed_ns > LEAST_MISSED_SHARE * (counted_ns + missed_ns) else 0.0


def _longest_beside_ns(run: Run, uncounted: Rows) -> int:
    # The first batch of a warm-up has waited for the prefetch too, and an epoch's first one is its
    # epoch start.
    follows = np.zeros(len(run.steps), dtype=np.bool_)
    follows[1:] = uncounted[:-1] & (np.diff(run.steps.epoch) == 0)
    warming_up = run.steps.wait_ns[uncounted & follows]
    prefetched = [one.longest_ns for one in run.prefetches if one.longest_ns is not None]
    return max([*prefetched, int(warming_up.max(initial=0))])


def allowing_for_missed(gain: Gain, missed_ns: float, batches: int) -> Gain:
    """`gain` with intervals that allow for missed stalls among its real `batches`."""
    more_ns = RULE_OF_THREE * missed_ns / batches
    speedup = _higher(gain.speedup, more_ns / gain.ideal_ns)
    return replace(
        gain,
        speedup=speedup,
        lost_share=lost_share(speedup),
        lost_ns=_higher(gain.lost_ns, more_ns),
        waiting_ns=_higher(gain.waiting_ns, more_ns),
    )


def _higher(estimate: Estimate, more: float) -> Estimate:
    high = estimate.high
    return replace(estimate, high=None if high is None else high + more)


def throughputs(
    run: Run, times: RunTimes, by_sample: bool
) -> tuple[Estimate | None, Estimate | None, Estimate | None]:
    """Samples, or batches, per second: real, ideal, and the loader alone; None: not measured."""
    half_width, ideal = times.half_width, times.ideal
    return (
        _per_second(times.real.iterations(by_sample), half_width, times.missed_share),
        None if ideal is None else _per_second(ideal.iterations(by_sample), half_width),
        loader_alone(run, by_sample),
    )


def loader_alone(run: Run, by_sample: bool) -> Estimate | None:
    """The throughput of the loader with nobody training; None where it was not timed.

    None too where its samples are not known, and are asked for.
    """
    prefetches = [prefetch for prefetch in run.prefetches if prefetch.timed]
    if by_sample and not all(prefetch.samples for prefetch in prefetches):
        return None
    _, index = np.unique([prefetch.pair for prefetch in prefetches], return_inverse=True)
    amounts = [float((by_sample and prefetch.samples) or prefetch.timed) for prefetch in prefetches]
    elapsed_ns = [float(prefetch.elapsed_ns) for prefetch in prefetches]
    summed = (np.bincount(index, values).astype(np.float64) for values in (elapsed_ns, amounts))
    return _per_second(MeanTime(*summed), over_pairs)


def loader_only_ns(run: Run, samples_per_batch: float | None) -> float | None:
    """The time of the loader alone, in nanoseconds per batch; None: not timed.

    Where all samples are known it is per sample, times `samples_per_batch`.
    """
    elapsed_ns = sum(prefetch.elapsed_ns for prefetch in run.prefetches)
    timed = sum(prefetch.timed for prefetch in run.prefetches)
    samples = [prefetch.samples for prefetch in run.prefetches if prefetch.timed]
    known = [count for count in samples if count]
    if not timed:
        return None
    if samples_per_batch is None or len(known) < len(samples):
        return elapsed_ns / timed
    return elapsed_ns / sum(known) * samples_per_batch


def throughput_ratio(one: RunTimes, other: RunTimes, by_sample: bool, together: bool) -> Estimate:
    """The throughput of `one` over that of `other`, both of which have one.

    `together` tells that both took turns in the same rounds: their ratio in each is then one
    observation, in which drift slower than a round is gone.
    """
    shared = set(one.pairs or ()) & set(other.pairs or ())
    if together and shared:
        half_width: HalfWidth = over_pairs
        times, beside = one.real_in(shared), other.real_in(shared)
    else:
        half_width = _independent(other.half_width, one.half_width)
        times, beside = one.real, other.real
    found = ratio(beside.iterations(by_sample), times.iterations(by_sample), half_width)
    return _widened(found, one.missed_share, other.missed_share)


def _per_second(time: MeanTime, half_width: HalfWidth, missed: float = 0.0) -> Estimate | None:
    if not time.total_ns.sum():
        return None
    ones = np.ones(len(time.total_ns))
    return _widened(ratio(MeanTime(SECOND_NS * ones, ones), time, half_width), missed)


def _widened(found: Estimate, slower: float, faster: float = 0.0) -> Estimate:
    if found.low is None or found.high is None:
        return found
    return replace(found, low=found.low / (1 + slower), high=found.high * (1 + faster))


def _independent(of_first: HalfWidth, of_second: HalfWidth) -> HalfWidth:
    """The HalfWidth of two series that have nothing to do with each other, each with its own."""

    def half_width(first: Series, second: Series) -> float | None:
        one = of_first(first, np.zeros(len(first)))
        other = of_second(second, np.zeros(len(second)))
        return None if one is None or other is None else math.hypot(one, other)

    return half_width
