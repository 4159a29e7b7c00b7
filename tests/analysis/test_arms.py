"""Throughputs and their ratios, from pairs whose every time is given."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.arms import (
    loader_alone,
    run_times,
    throughput_ratio,
    throughputs,
    times_of,
)
from loadeval.analysis.stats import Estimate, student
from loadeval.runlog.model import UNKNOWN, Block, Header, LoaderInfo, Prefetch, Run, Steps
from tests.analysis.numbers import bounds, value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.runlog.model import Arm

MS = 1_000_000
NOISE = (0.9, 1.05, 1.0, 1.1, 0.95)


def block(
    arm: Arm, number: int | None, iteration_ms: float, samples: int, wait_ms: float = 0
) -> Block:
    """Ten batches."""
    wait, step = (np.full(10, round(ms * MS)) for ms in (wait_ms, iteration_ms - wait_ms))
    unknown = np.full(10, UNKNOWN)
    return Block(0, arm, unknown, wait, step, np.full(10, samples), unknown, number)


def alternated(
    real_ms: Sequence[float],
    ideal_ms: float = 10,
    samples: int = 4,
    prefetches: Sequence[Prefetch] = (),
) -> Run:
    """A round for each of `real_ms`, what a batch of it takes."""
    blocks = chain.from_iterable(
        (block("real", number, ms, samples), block("ideal", number, ideal_ms, samples))
        for number, ms in enumerate(real_ms)
    )
    header = Header("id", "turns", "alternate", "", "images", 1, LoaderInfo("loader"))
    return Run(header, Steps.from_blocks(list(blocks), []), prefetches=tuple(prefetches))


def rate_of(run: Run, *, by_sample: bool = True) -> Estimate | None:
    return throughputs(run, run_times(run), by_sample)[0]


def test_throughput_is_the_ratio_of_sums() -> None:
    """Two rounds of 10 and of 30 ms a batch of 4 are 40 ms for 8."""
    found = rate_of(alternated([10, 30]))
    assert value(found) == pytest.approx(200)
    assert found == Estimate(value(found), None, None)


def test_throughput_can_be_in_batches() -> None:
    """Whatever is in them."""
    assert value(rate_of(alternated([10, 30]), by_sample=False)) == pytest.approx(50)


def test_the_interval_is_students_over_the_rounds() -> None:
    """A round's deviation from the common pace is one observation."""
    times = np.array(NOISE) * 20
    low, high = bounds(rate_of(alternated(times.tolist())))
    half = student(4) * times.std(ddof=1) / times.mean() / math.sqrt(5)
    assert math.log(high / low) / 2 == pytest.approx(half, rel=1e-6)
    assert low * high == pytest.approx(200**2, rel=1e-6)


def test_there_is_no_throughput_of_nothing() -> None:
    """No round counts, or none took any time."""
    assert rate_of(alternated([])) is None
    assert rate_of(alternated([0, 0, 0], ideal_ms=0)) is None


def test_a_log_run_counts_batch_by_batch(make_run: Callable[..., Run]) -> None:
    """It has no rounds, and no ideal; 4 samples take 100 ns."""
    run = make_run([10] * 100)
    times = run_times(run)
    assert (times.pairs, times.ideal, times.has_samples) == (None, None, True)
    assert value(rate_of(run)) == pytest.approx(4e7)


def test_samples_of_both_arms_have_to_be_known(make_run: Callable[..., Run]) -> None:
    """Else batches are compared."""
    assert run_times(alternated([10] * 3)).has_samples
    assert not run_times(alternated([10] * 3, samples=UNKNOWN)).has_samples
    assert not run_times(make_run([10] * 9, samples=UNKNOWN)).has_samples


def test_a_stall_beside_the_rounds_makes_real_slower() -> None:
    """The lower end allows for three of them; the value stays."""
    prefetches = [Prefetch(0, 0, 10, 10, 50 * MS, 40, longest_ns=800 * MS)]
    stalled, calm = alternated([20] * 5, prefetches=prefetches), alternated([20] * 5)
    assert run_times(calm).missed_share == 0
    missed = run_times(stalled).missed_share
    assert missed == pytest.approx(3 * 800 / (50 * 20))
    assert value(rate_of(stalled)) == pytest.approx(200)
    assert bounds(rate_of(stalled)) == pytest.approx((200 / (1 + missed), 200))


def test_drift_is_gone_from_a_ratio_of_one_comparison() -> None:
    """Rounds that slow both backends alike say the same of their ratio."""
    drift = [10, 20, 30, 40, 50]
    fast, slow = (run_times(alternated([ms * one for one in drift])) for ms in (1, 2))
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
    one, other = run_times(alternated([10, 10, 10])), run_times(alternated([20, 20, 20, 90]))
    assert throughput_ratio(one, other, True, together=True).value == pytest.approx(2)
    assert throughput_ratio(one, other, True, together=False).value > 3
    unknown = run_times(alternated([20, 20, 20, 90], samples=UNKNOWN)).real_in({0, 1})
    assert (unknown.samples, unknown.count) == (None, 20)


def test_separate_runs_add_up_their_spreads() -> None:
    """As independent errors do: by their squares."""
    one, other = (alternated([ms * noise for noise in NOISE]) for ms in (10, 20))

    def half(estimate: Estimate | None) -> float:
        low, high = bounds(estimate)
        return math.log(high / low) / 2

    ratio = throughput_ratio(run_times(one), run_times(other), True, together=False)
    assert half(ratio) == pytest.approx(math.hypot(half(rate_of(one)), half(rate_of(other))))


def test_without_an_interval_of_one_there_is_none_of_the_ratio() -> None:
    """Two rounds give none."""
    one, other = run_times(alternated([10] * 2)), run_times(alternated([20] * 5))
    for first, second in ((one, other), (other, one)):
        found = throughput_ratio(first, second, True, together=False)
        assert found.low is found.high is None


def test_a_missed_stall_widens_the_ratio_on_its_side() -> None:
    """The one that may be slower may be less fast than it seems."""
    prefetches = [Prefetch(0, 0, 10, 10, 50 * MS, 40, longest_ns=800 * MS)]
    stalled, calm = (
        run_times(alternated([20] * 5, prefetches=prefetches)),
        run_times(alternated([20] * 5)),
    )
    factor = 1 + stalled.missed_share
    ratio = throughput_ratio(stalled, calm, True, together=True)
    assert bounds(ratio) == pytest.approx((1 / factor, 1))
    ratio = throughput_ratio(calm, stalled, True, together=True)
    assert bounds(ratio) == pytest.approx((1, factor))


def prefetched(pair: int, timed: int, elapsed_ms: float, samples: int | None) -> Prefetch:
    return Prefetch(pair, 0, timed + 2, timed, round(elapsed_ms * MS), samples)


def test_the_loader_alone_is_told_over_rounds() -> None:
    """Prefetches of one round are one observation; those that timed nothing are none."""
    prefetches = [prefetched(number, 4, 20, 16) for number in (0, 0, 1, 2)] + [
        prefetched(3, 0, 0, None)
    ]
    found = loader_alone(alternated([10] * 4, prefetches=prefetches), by_sample=True)
    assert value(found) == pytest.approx(800)
    assert bounds(found) == pytest.approx((800, 800))
    by_batch = loader_alone(alternated([10] * 4, prefetches=prefetches), by_sample=False)
    assert value(by_batch) == pytest.approx(200)


def test_the_loader_alone_is_not_told_without_prefetches_or_samples() -> None:
    """A throughput in samples needs all of them."""
    assert loader_alone(alternated([10] * 3), by_sample=False) is None
    prefetches = [prefetched(0, 4, 20, 16), prefetched(1, 4, 20, None)]
    assert loader_alone(alternated([10] * 3, prefetches=prefetches), by_sample=True) is None


def test_samples_of_zero_are_no_samples(make_run: Callable[..., Run]) -> None:
    """Nothing can be divided by them."""
    run = make_run([1] * 3, samples=0)
    assert times_of(run.steps, np.full(3, True)).samples is None
