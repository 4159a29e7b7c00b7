"""Throughputs of the arms, and by how much the loader must become faster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.arms import RunTimes, loader_alone, run_times
from loadeval.analysis.estimate.epochs import epoch_starts_of
from loadeval.analysis.estimate.intervals import (
    MeanError,
    MeanTime,
    ratio,
    ratio_interval,
    sum_of_errors,
)
from loadeval.data.run import SECOND_NS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.estimate.stats import Estimate, Series
    from loadeval.data.columns import Column
    from loadeval.data.run import Run

    Rows = npt.NDArray[np.bool_]


def throughputs(
    run: Run, by_sample: bool
) -> tuple[Estimate | None, Estimate | None, Estimate | None]:
    """Samples, or batches, per second: real, ideal, and the loader alone; None: not measured."""
    times = run_times(run)
    real, ideal = times.real.iterations(by_sample), None
    if times.ideal is not None:
        ideal = times.ideal.iterations(by_sample).reweighted_to(real)
    alone = loader_alone(run, by_sample)
    return (
        _per_second(real, times.missed_share),
        None if ideal is None else _per_second(ideal),
        None if alone is None else _per_second(alone),
    )


def required(run: Run) -> tuple[float | None, Estimate | None]:
    """The time of the loader alone, in nanoseconds per batch, and that over the ideal iteration.

    None where it was not timed, and of the latter where there is no ideal iteration.
    """
    times = run_times(run)
    size = times.comparison.samples_per_batch if times.comparison else None
    alone = None if size is None else loader_alone(run, by_sample=True)
    by_sample = alone is not None
    alone = alone or loader_alone(run, by_sample=False)
    if alone is None:
        return None, None
    alone_ns = alone.mean_ns * ((size or 1.0) if by_sample else 1.0)
    ideal_ns = times.comparison.ideal_ns if times.comparison else None
    if times.ideal is None or not ideal_ns or not alone_ns:
        return alone_ns, None
    known = times.real.samples is not None
    ideal = times.ideal.iterations(known).reweighted_to(times.real.iterations(known))
    error = sum_of_errors(alone.error(1 / alone.mean_ns), ideal.error(1 / ideal.mean_ns))
    return alone_ns, ratio_interval(alone_ns / ideal_ns, error)


def throughput_ratio(
    times: RunTimes, baseline: RunTimes, by_sample: bool, together: bool
) -> Estimate:
    """The throughput of `times` over that of `baseline`, both of which have one.

    `together` tells that both took turns in the same rounds: they are then compared round by round,
    and drift slower than a round is gone.
    """
    shared = set(times.pairs or ()) & set(baseline.pairs or ())
    together = together and bool(shared)
    real = [
        (each.real_in(shared) if together else each.real).iterations(by_sample)
        for each in (times, baseline)
    ]
    # Places in two runs are not comparable, but their rounds are.
    iterations, of_baseline = (
        replace(each, place=_as_place(each.pair) if together else None) for each in real
    )
    throughput = ratio(of_baseline, iterations)
    return _widened(throughput, times.missed_share, baseline.missed_share)


def epoch_throughput(run: Run, by_sample: bool) -> Estimate | None:
    """Samples, or batches, per second over whole epochs, in the real arm; None: not measured.

    An epoch takes the time of its first batches and its end, as they were seen, and steady
    iterations for the rest. Without an interval where only one epoch was seen to start.
    """
    epoch = _epoch_time(run, by_sample)
    if epoch is None:
        return None
    throughput = ratio_interval(SECOND_NS / epoch[0], epoch[1])
    return _widened(throughput, run_times(run).missed_share)


def epoch_throughput_ratio(run: Run, baseline: Run, by_sample: bool) -> Estimate | None:
    """`epoch_throughput` of `run` over that of `baseline`; None where one has none."""
    epoch, of_baseline = _epoch_time(run, by_sample), _epoch_time(baseline, by_sample)
    if epoch is None or of_baseline is None:
        return None
    throughput = ratio_interval(of_baseline[0] / epoch[0], sum_of_errors(epoch[1], of_baseline[1]))
    return _widened(throughput, run_times(run).missed_share, run_times(baseline).missed_share)


def _epoch_time(run: Run, by_sample: bool) -> tuple[float, MeanError | None] | None:
    """What a sample, or a batch, takes over whole epochs, and the error of its logarithm."""
    times = run_times(run)
    starts, iterations = epoch_starts_of(times.counted), times.real.iterations(by_sample)
    if starts is None or not iterations.total_ns.any():
        return None
    size = float(iterations.amount.sum()) / times.real.count
    real_ns = size * iterations.mean_ns
    epoch_ns = real_ns + starts.added_ns(real_ns)
    spread = starts.error(real_ns)
    of_starts = spread and MeanError(spread.variance / epoch_ns**2, spread.freedom)
    of_steady = iterations.error(size * starts.steady_part / epoch_ns)
    return epoch_ns / size, sum_of_errors(of_steady, of_starts)


def _as_place(pair: Column | None) -> Series | None:
    return None if pair is None else pair.astype(np.float64)


def _per_second(time: MeanTime, missed: float = 0.0) -> Estimate | None:
    if not time.total_ns.any():
        return None
    mean_ns = time.mean_ns
    return _widened(ratio_interval(SECOND_NS / mean_ns, time.error(1 / mean_ns)), missed)


def _widened(estimate: Estimate, slower: float, faster: float = 0.0) -> Estimate:
    if estimate.low is None or estimate.high is None:
        return estimate
    return replace(estimate, low=estimate.low / (1 + slower), high=estimate.high * (1 + faster))
