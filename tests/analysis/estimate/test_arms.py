"""Throughputs and their ratios, from pairs whose every time is given."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.arms import loader_alone, run_times, times_of
from loadeval.analysis.estimate.intervals import MeanTime, error_of_mean, sum_of_errors
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.throughput import required, throughput_ratio, throughputs
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import Block, LoaderInfo, Prefetch
from tests.analysis.numbers import bounds, value
from tests.runs.given import MS, block, make_run, run_of
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.estimate.stats import Series
    from loadeval.data.lines import Arm
    from loadeval.data.run import Run

NOISE = (0.9, 1.05, 1.0, 1.1, 0.95)


def ten(
    arm: Arm, number: int | None, iteration_ms: float, samples: int, wait_ms: float = 0
) -> Block:
    """A block of ten batches."""
    wait_ns, step_ns = (round(ms * MS) for ms in (wait_ms, iteration_ms - wait_ms))
    return block(arm, wait_ns, step_ns, 10, pair=number, samples=samples)


def alternated(
    real_ms: Sequence[float],
    ideal_ms: float = 10,
    samples: int = 4,
    prefetches: Sequence[Prefetch] = (),
) -> Run:
    """A round for each of `real_ms`, what a batch of it takes."""
    blocks = chain.from_iterable(
        (ten("real", number, ms, samples), ten("ideal", number, ideal_ms, samples))
        for number, ms in enumerate(real_ms)
    )
    return run_of(blocks, prefetches=tuple(prefetches))


def rate_of(run: Run, *, by_sample: bool = True) -> Estimate | None:
    return throughputs(run, by_sample)[0]


def half(estimate: Estimate | None) -> float:
    """Half the width of the interval of the logarithm."""
    low, high = bounds(estimate)
    return math.log(high / low) / 2


def test_throughput_is_the_ratio_of_sums() -> None:
    """Two rounds of 10 and of 30 ms a batch of 4 are 40 ms for 8."""
    assert value(rate_of(alternated([10, 30]))) == pytest.approx(200)


def test_throughput_can_be_in_batches() -> None:
    """What is in a batch does not matter."""
    assert value(rate_of(alternated([10, 30]), by_sample=False)) == pytest.approx(50)


def test_the_interval_is_that_of_the_mean_iteration() -> None:
    """Batches are in order; those of different rounds do not follow on one another."""
    times = np.repeat(np.array(NOISE) * 20, 10)
    error = error_of_mean(times / times.mean(), np.repeat(range(5), 10))
    rate = rate_of(alternated((np.array(NOISE) * 20).tolist()))
    assert error is not None
    assert half(rate) == pytest.approx(error.half_width)
    assert math.prod(bounds(rate)) == pytest.approx(200**2)


def test_a_few_batches_have_no_interval() -> None:
    """A throughput they have."""
    rate = rate_of(make_run([10] * 7))
    assert rate == Estimate(value(rate))
    assert value(rate) == pytest.approx(4e7)


def test_there_is_no_throughput_of_nothing() -> None:
    """No round counts, or none took any time."""
    assert rate_of(alternated([])) is None
    assert rate_of(alternated([0, 0, 0], ideal_ms=0)) is None


def test_a_log_run_counts_batch_by_batch() -> None:
    """It has no rounds, and no ideal; 4 samples take 100 ns."""
    run = make_run([10] * 100)
    times = run_times(run)
    assert (times.pairs, times.ideal, times.has_samples) == (None, None, True)
    assert value(rate_of(run)) == pytest.approx(4e7)


def test_samples_of_both_arms_have_to_be_known() -> None:
    """Else batches are compared."""
    assert run_times(alternated([10] * 3)).has_samples
    assert not run_times(alternated([10] * 3, samples=UNKNOWN)).has_samples
    assert not run_times(make_run([10] * 9, samples=UNKNOWN)).has_samples


def test_a_stall_beside_the_rounds_makes_real_slower() -> None:
    """The lower end allows for three of them; the value stays."""
    prefetches = [Prefetch(0, 0, 10, 10, 50 * MS, 40, [800 * MS, *[0] * 9])]
    stalled, calm = alternated([20] * 5, prefetches=prefetches), alternated([20] * 5)
    assert run_times(calm).missed_share == 0
    missed = run_times(stalled).missed_share
    assert missed == pytest.approx(3 * 800 / (50 * 20))
    assert value(rate_of(stalled)) == pytest.approx(200)
    assert bounds(rate_of(stalled)) == pytest.approx((200 / (1 + missed), 200))


def test_drift_is_gone_from_a_ratio_of_one_comparison() -> None:
    """Rounds that slow both backends alike say the same of their ratio."""
    drift = [10, 20, 30, 40, 50]
    fast, slow = (run_times(alternated([ms * factor for factor in drift])) for ms in (1, 2))
    together = throughput_ratio(fast, slow, by_sample=True, together=True)
    assert bounds(together) == pytest.approx((2, 2))
    low, high = bounds(throughput_ratio(fast, slow, by_sample=True, together=False))
    assert low < 1
    assert high > 4


def test_the_ratio_is_of_throughputs() -> None:
    """Above 1 where the first one is the faster."""
    fast, slow = run_times(alternated([10] * 3)), run_times(alternated([40] * 3))
    for together in (True, False):
        assert throughput_ratio(fast, slow, True, together).value == pytest.approx(4)
        assert throughput_ratio(slow, fast, True, together).value == pytest.approx(0.25)


def test_only_rounds_of_both_are_compared() -> None:
    """One that a backend has no whole part of is left out, as far as rounds are paired."""
    faster, other = run_times(alternated([10, 10, 10])), run_times(alternated([20, 20, 20, 90]))
    assert throughput_ratio(faster, other, True, together=True).value == pytest.approx(2)
    assert throughput_ratio(faster, other, True, together=False).value > 3
    unknown = run_times(alternated([20, 20, 20, 90], samples=UNKNOWN)).real_in({0, 1})
    assert (unknown.samples, unknown.count) == (None, 20)


def test_separate_runs_add_up_their_errors() -> None:
    """They add up as independent errors do."""
    random = np.random.default_rng(0)
    runs = [run_times(make_run(random.integers(10, 99, 60).tolist())) for _ in range(2)]
    times = [run.real.iterations(by_sample=True) for run in runs]
    error = sum_of_errors(*(time.error(1 / time.mean_ns) for time in times))
    assert error is not None
    estimate = throughput_ratio(runs[0], runs[1], True, together=False)
    assert half(estimate) == pytest.approx(error.half_width)


def test_without_an_interval_of_one_there_is_none_of_the_ratio() -> None:
    """Seven batches give none."""
    short, other = run_times(make_run([10] * 7)), run_times(make_run([20] * 50))
    for first, second in ((short, other), (other, short)):
        estimate = throughput_ratio(first, second, True, together=False)
        assert estimate.low is estimate.high is None


def test_a_missed_stall_widens_the_ratio_on_its_side() -> None:
    """The one that may be slower may be less fast than it seems."""
    prefetches = [Prefetch(0, 0, 10, 10, 50 * MS, 40, [800 * MS, *[0] * 9])]
    stalled, calm = (
        run_times(alternated([20] * 5, prefetches=prefetches)),
        run_times(alternated([20] * 5)),
    )
    factor = 1 + stalled.missed_share
    ratio = throughput_ratio(stalled, calm, True, together=True)
    assert bounds(ratio) == pytest.approx((1 / factor, 1))
    ratio = throughput_ratio(calm, stalled, True, together=True)
    assert bounds(ratio) == pytest.approx((1, factor))


def drifting(prefetches: Sequence[Prefetch] = ()) -> Run:
    """Two rounds of unequal length, which slow steadily from 15 to 75 ms a batch; nothing is lost.

    A fifth of the time is waited. An ideal block has the pace of its middle.
    """
    rounds: list[tuple[Arm, int, Series]] = [
        ("ideal", 0, np.full(30, 15.0)),
        ("real", 0, np.linspace(30.5, 39.5, 10)),
        ("real", 1, np.linspace(40.5, 69.5, 30)),
        ("ideal", 1, np.full(10, 75.0)),
    ]
    blocks = [
        block(arm, 0.2 * ms * MS, 0.8 * ms * MS, pair=number, samples=4)
        for arm, number, ms in rounds
    ]
    return run_of(blocks, prefetches=tuple(prefetches))


def test_a_time_has_the_place_of_its_batch_in_the_run() -> None:
    """Rows are counted through both arms."""
    times = run_times(drifting())
    assert times.ideal is not None
    assert times.real.place is not None
    assert times.ideal.place is not None
    assert times.real.place.tolist() == [*range(30, 70)]
    assert times.ideal.place.tolist() == [*range(30), *range(70, 80)]


def test_the_ideal_throughput_weighs_rounds_as_the_real_one_does() -> None:
    """Where rounds are of unequal length, drift slows neither more than the other."""
    run = drifting()
    real_rate, ideal_rate, _ = throughputs(run, by_sample=True)
    assert value(real_rate) == pytest.approx(value(ideal_rate))


def test_the_arms_of_unequal_rounds_are_compared_round_by_round() -> None:
    """All their means and differences."""
    comparison = run_times(drifting()).comparison
    assert comparison is not None
    assert comparison.gain is not None
    assert comparison.ideal_ns == pytest.approx(comparison.real_ns)
    assert comparison.ideal_wait_ns == pytest.approx(comparison.real_wait_ns)
    assert comparison.gain.ideal_ns == pytest.approx(comparison.gain.real_ns)
    for gain in (comparison.gain.speedup, comparison.gain.steady_speedup):
        assert (gain.value, *bounds(gain)) == pytest.approx((1, 1, 1))
    for lost in (
        comparison.gain.lost_ns,
        comparison.gain.waiting_ns,
        comparison.gain.contention_ns,
    ):
        assert (lost.value, *bounds(lost)) == pytest.approx((0, 0, 0), abs=1e-3)


def prefetched(
    pair: int, timed: int, elapsed_ms: float, samples: int | None, waits_ms: Sequence[float] = ()
) -> Prefetch:
    """Two batches that were ready, and so many that were timed."""
    waits_ns = [round(ms * MS) for ms in waits_ms]
    return Prefetch(pair, 0, timed + 2, timed, round(elapsed_ms * MS), samples, waits_ns)


def alone(*prefetches: Prefetch, by_sample: bool = False) -> Any:
    return loader_alone(alternated([10] * 4, prefetches=prefetches), by_sample)


def test_the_loader_alone_takes_what_its_prefetches_took() -> None:
    """All together; those that timed nothing are left out."""
    prefetches = [prefetched(number, 4, 20 + number, 16) for number in range(3)]
    prefetches.append(prefetched(3, 0, 0, None))
    assert alone(*prefetches).mean_ns == pytest.approx(63 / 12 * MS)
    assert alone(*prefetches, by_sample=True).mean_ns == pytest.approx(63 / 48 * MS)


def test_waits_of_the_loader_alone_are_stretched_to_what_they_took() -> None:
    """Copying is in it; batches that were ready before are not."""
    mean_time = alone(prefetched(0, 2, 80, 8, [0, 0, 10, 30]), by_sample=True)
    assert mean_time.total_ns.tolist() == [20 * MS, 60 * MS]
    assert mean_time.amount.tolist() == [4, 4]


@pytest.mark.parametrize("waits_ms", [(), (0, 0, 0, 0)])
def test_a_prefetch_whose_waits_are_not_known_is_one_entry(waits_ms: Sequence[float]) -> None:
    """It was not recorded, or took no time by its clock."""
    mean_time = alone(prefetched(0, 2, 80, 8, waits_ms), prefetched(1, 2, 40, 8, [0, 0, 10, 30]))
    assert mean_time.total_ns.tolist() == [80 * MS, 10 * MS, 30 * MS]
    assert mean_time.amount.tolist() == [2, 1, 1]
    assert mean_time.pair.tolist() == [0, 1, 1]


def test_the_loader_alone_is_not_told_without_prefetches_or_samples() -> None:
    """A throughput in samples needs all of them."""
    assert loader_alone(alternated([10] * 3), by_sample=False) is None
    prefetches = [prefetched(0, 4, 20, 16), prefetched(1, 4, 20, None)]
    assert loader_alone(alternated([10] * 3, prefetches=prefetches), by_sample=True) is None


def test_samples_of_zero_are_no_samples() -> None:
    """Nothing can be divided by them."""
    run = make_run([1] * 3, samples=0)
    assert times_of(run.steps, np.full(3, True)).samples is None


def required_of(ideal_ms: Sequence[float], prefetches: Sequence[Prefetch]) -> Any:
    """The time of the loader alone a batch, and that over the ideal iteration, by round.

    An ideal block comes first, and the order is reversed in every second round.
    """
    blocks = []
    for number, ms in enumerate(ideal_ms):
        both = [ten("real", number, 100, 4), ten("ideal", number, ms, 4)]
        blocks += both if number % 2 else both[::-1]
    return required(run_of(blocks, prefetches=tuple(prefetches)))


def test_what_is_required_has_the_error_of_both_its_times() -> None:
    """One is the error of the loader alone, the other that of the ideal iteration."""
    waits_ms = [0, 0, 10, 30, 20, 25, 15, 20, 30, 10]
    ideal_ms = [8.0, 12.0]
    prefetches = [prefetched(number, 8, 160, 32, waits_ms) for number in range(2)]
    alone_ns, estimate = required_of(ideal_ms, prefetches)
    times = np.array(waits_ms[2:] * 2) / 20, np.repeat(ideal_ms, 10) / 10
    errors = [error_of_mean(series, np.repeat(range(2), len(series) // 2)) for series in times]
    both = sum_of_errors(*errors)
    assert both is not None
    assert (alone_ns, estimate.value) == (20 * MS, pytest.approx(2))
    assert half(estimate) == pytest.approx(both.half_width)


def test_what_is_required_has_the_error_of_rounds_as_they_weigh() -> None:
    """The ideal rounds count there, too, for as much as the real batches near them."""
    run = drifting([prefetched(0, 8, 160, 32, [20] * 10)])
    times = run_times(run)
    _, estimate = required(run)
    assert times.ideal is not None
    part = (np.arange(30, 70) + 0.5 - 15) / 60
    weight = np.where(times.ideal.pair == 0, (1 - part).sum() / 30, part.sum() / 10)
    total_ns = (times.ideal.wait_ns + times.ideal.step_ns) * weight
    error = MeanTime(total_ns, weight, times.ideal.pair).error(weight.sum() / total_ns.sum())
    assert error is not None
    assert half(estimate) == pytest.approx(error.half_width)


def test_without_an_interval_of_the_loader_alone_what_is_required_has_none() -> None:
    """A few prefetches in which no single batch was timed are too few."""
    _, estimate = required_of([10.0] * 3, [prefetched(0, 8, 160, 32)] * 3)
    assert estimate == Estimate(2.0)


def test_a_loader_that_takes_no_time_is_not_required_anything() -> None:
    """The same holds for one that was not timed, or has no ideal iteration beside it."""
    assert required_of([10.0] * 3, [prefetched(0, 8, 0, 32)]) == (0.0, None)
    assert required_of([10.0] * 3, []) == (None, None)
    assert required_of([], [prefetched(0, 8, 160, 32)]) == (20 * MS, None)


IN_PROCESS = LoaderInfo("loader", workers=0)
REAL_WAITS = ([2, 2, 2, 50, 2, 2, 2, 2], [2, 4, 2, 2, 2, 2, 2, 2])
IDEAL_WAITS = ([2, 2, 2, 2, 2, 90, 2, 2], [2, 2, 2, 6, 2, 2, 2, 2])


def waits_of(arm: Arm, pair: int | None, waits: Sequence[int], epoch: int = 0) -> Block:
    """Steps of 10 after these waits."""
    return block(arm, waits, 10, epoch=epoch, pair=pair, samples=4)


def in_process(loader: LoaderInfo = IN_PROCESS, calm: bool = False, known: int = 8) -> Run:
    """Two epochs of a pair each; the first batch of each takes 900, and one that is not counted 8.

    Of each ideal block so many waits are `known`.
    """
    blocks, prefetches = [], []
    for epoch in range(2):
        real, ideal = ([2] * 8, [2] * 8) if calm else (REAL_WAITS[epoch], IDEAL_WAITS[epoch])
        blocks += [
            waits_of("real", None, [900, 8], epoch),
            waits_of("real", epoch, real, epoch),
            waits_of("ideal", epoch, [0] * 8, epoch),
        ]
        prefetches.append(Prefetch(epoch, epoch, 8, 8, sum(ideal), 32, ideal[:known]))
    return run_of(blocks, loader=loader, prefetches=tuple(prefetches))


ALL_WAITS = [8, 8, *REAL_WAITS[0], *REAL_WAITS[1], *IDEAL_WAITS[0], *IDEAL_WAITS[1]]


def test_without_workers_the_waits_of_all_batches_count() -> None:
    """Waits of ideal batches are known from their prefetch; first ones of epochs do not count."""
    comparison = run_times(in_process()).comparison
    assert comparison is not None
    assert comparison.real_wait_ns == pytest.approx(sum(ALL_WAITS) / len(ALL_WAITS))
    assert comparison.real_ns == pytest.approx(10 + sum(ALL_WAITS) / len(ALL_WAITS))


def test_the_interval_is_then_that_of_all_waits() -> None:
    """Steps do not differ here; in the order in which batches were served."""
    times = run_times(in_process())
    in_order = [
        wait
        for real, ideal in zip(REAL_WAITS, IDEAL_WAITS, strict=True)
        for wait in (8, *real, *ideal)
    ]
    error = error_of_mean(np.array(in_order, dtype=np.float64))
    assert times.comparison is not None
    assert times.comparison.gain is not None
    assert error is not None
    low, high = bounds(times.comparison.gain.waiting_ns)
    assert (high - low) / 2 == pytest.approx(error.half_width)


def test_all_waits_are_seen_beside_the_ideal_iterations() -> None:
    """Where loading slows as the ideal iterations do, nothing is unsure."""
    load_ns = np.interp(np.arange(41), [12.5, 20.5], [1 * MS, 3 * MS]).astype(np.int64)
    rounds: list[tuple[Arm, int, slice]] = [
        ("real", 0, slice(1, 9)),
        ("ideal", 0, slice(9, 17)),
        ("ideal", 1, slice(17, 25)),
        ("real", 1, slice(25, 41)),
    ]
    blocks, prefetches = [waits_of("real", None, [900])], []
    for arm, pair, rows in rounds:
        waits = load_ns[rows].tolist()
        if arm == "ideal":
            prefetches.append(Prefetch(pair, 0, 8, 8, sum(waits), 32, waits))
            waits = [0] * 8
        steps_ns = [(2 * MS, 6 * MS)[pair]] * len(waits)
        blocks.append(replace(waits_of(arm, pair, waits), step_ns=steps_ns))
    run = run_of(blocks, loader=IN_PROCESS, prefetches=tuple(prefetches))
    times = run_times(run)
    assert times.real.all_waits is not None
    assert times.comparison is not None
    assert times.comparison.gain is not None
    waiting_ns, speedup = times.comparison.gain.waiting_ns, times.comparison.gain.speedup
    level_ns = (8 * 1 + 16 * 3) / 24 * MS
    assert (waiting_ns.value, *bounds(waiting_ns)) == pytest.approx([level_ns] * 3)
    assert (speedup.value, *bounds(speedup)) == pytest.approx([1.5] * 3)


def test_a_few_waits_have_no_error_and_are_compared_as_they_are() -> None:
    """A few means under eight."""
    blocks = [waits_of("real", 0, [2, 9, 2, 9]), waits_of("ideal", 0, [0] * 4)]
    run = replace(in_process(), steps=run_of(blocks).steps)
    assert run_times(run).real.all_waits is None


def test_a_stall_among_all_waits_was_not_missed() -> None:
    """It is in the interval."""
    assert run_times(in_process()).missed_ns == 0


def test_a_loader_of_unknown_kind_is_taken_to_load_on_request() -> None:
    """Unless its waits are shorter than that, beyond their error."""
    assert run_times(in_process(LoaderInfo("loader"))).real.all_waits is not None


def test_short_waits_tell_that_a_loader_works_ahead() -> None:
    """Its own time is hidden behind the step."""
    run = in_process(LoaderInfo("loader"))
    longer = tuple(
        replace(
            prefetch,
            waits_ns=[20 * wait for wait in prefetch.waits_ns],
            elapsed_ns=20 * prefetch.elapsed_ns,
        )
        for prefetch in run.prefetches
    )
    assert run_times(replace(run, prefetches=longer)).real.all_waits is None


@pytest.mark.parametrize(
    "run",
    [
        in_process(LoaderInfo("loader", workers=2)),
        in_process(replace(IN_PROCESS, prefetch_depth=2)),
        in_process(calm=True),
        in_process(known=0),
    ],
    ids=["workers", "loads ahead", "exact enough", "unknown"],
)
def test_else_the_waits_of_real_blocks_count(run: Run) -> None:
    """So for other loaders, where they are exact enough, and where waits were not recorded."""
    times = run_times(run)
    assert times.comparison is not None
    assert times.real.all_waits is None
    assert times.comparison.real_wait_ns == pytest.approx(times.real.wait_ns.mean())


def test_all_waits_count_in_some_rounds_too() -> None:
    """They say what those rounds' waits would be."""
    times = run_times(in_process())
    iterations = times.real_in({0}).iterations(by_sample=False)
    assert iterations.mean_ns == pytest.approx(10 + sum(ALL_WAITS) / len(ALL_WAITS))
