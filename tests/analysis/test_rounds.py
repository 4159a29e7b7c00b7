"""Throughputs and their ratios, from rounds whose every time is given."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.stats import student
from loadeval.analysis.rounds import Counted, counted_of
from loadeval.analysis.arms import loader_alone, throughput_ratio
from loadeval.report.formatting import throughput
from loadeval.runlog.model import UNKNOWN, Block, Header, LoaderInfo, Prefetch, Run, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.analysis.stats import Estimate
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


def rate_of(counted: Counted, *, by_sample: bool = True) -> Estimate:
    found = throughput(counted.real, counted.spread, by_sample, counted.missed)
    assert found is not None
    return found


def bounds(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


def test_throughput_is_the_ratio_of_sums() -> None:
    """Two rounds of 10 and of 30 ms a batch of 4 are 40 ms for 8."""
    found = rate_of(counted_of(alternated([10, 30])))
    assert found.value == pytest.approx(200)
    assert found.low is found.high is None


def test_throughput_can_be_in_batches() -> None:
    """Whatever is in them."""
    counted = counted_of(alternated([10, 30]))
    assert rate_of(counted, by_sample=False).value == pytest.approx(50)


def test_the_interval_is_students_over_the_rounds() -> None:
    """A round's deviation from the common pace is one observation."""
    times = np.array(NOISE) * 20
    low, high = bounds(rate_of(counted_of(alternated(times.tolist()))))
    half = student(4) * times.std(ddof=1) / times.mean() / math.sqrt(5)
    assert math.log(high / low) / 2 == pytest.approx(half, rel=1e-6)
    assert low * high == pytest.approx(200**2, rel=1e-6)


def test_there_is_no_throughput_of_nothing() -> None:
    """No round counts, or none took any time."""
    assert throughput(counted_of(alternated([])).real, counted_of(alternated([])).spread, True) is (
        None
    )
    run = alternated([0, 0, 0], ideal_ms=0)
    assert throughput(counted_of(run).real, counted_of(run).spread, True) is None


def test_a_log_run_counts_batch_by_batch(make_run: Callable[..., Run]) -> None:
    """It has no rounds, and no ideal; 4 samples take 100 ns."""
    counted = counted_of(make_run([10] * 100))
    assert (counted.rounds, counted.ideal, counted.has_samples) == (None, None, True)
    assert rate_of(counted).value == pytest.approx(4e7)


def test_samples_of_both_arms_have_to_be_known(make_run: Callable[..., Run]) -> None:
    """Else batches are compared."""
    assert counted_of(alternated([10] * 3)).has_samples
    assert not counted_of(alternated([10] * 3, samples=UNKNOWN)).has_samples
    assert not counted_of(make_run([10] * 9, samples=UNKNOWN)).has_samples


def test_a_stall_beside_the_rounds_makes_real_slower() -> None:
    """The lower end allows for three of them; the value stays."""
    prefetches = [Prefetch(0, 0, 10, 10, 50 * MS, 40, longest_ns=800 * MS)]
    stalled, calm = (
        counted_of(alternated([20] * 5, prefetches=prefetches)),
        counted_of(alternated([20] * 5)),
    )
    assert calm.missed == 0
    assert stalled.missed == pytest.approx(3 * 800 / (50 * 20))
    found = rate_of(stalled)
    assert found.value == pytest.approx(200)
    assert bounds(found) == pytest.approx((200 / (1 + stalled.missed), 200))


def test_drift_is_gone_from_a_ratio_of_one_comparison() -> None:
    """Rounds that slow both backends alike say the same of their ratio."""
    drift = [10, 20, 30, 40, 50]
    fast, slow = (counted_of(alternated([ms * one for one in drift])) for ms in (1, 2))
    together = throughput_ratio(fast, slow, by_sample=True, together=True)
    assert bounds(together) == pytest.approx((2, 2))
    low, high = bounds(throughput_ratio(fast, slow, by_sample=True, together=False))
    assert low < 1
    assert high > 4


def test_the_ratio_is_of_throughputs() -> None:
    """Above 1 where the first one is the faster."""
    fast, slow = counted_of(alternated([10] * 3)), counted_of(alternated([40] * 3))
    for together in (True, False):
        assert throughput_ratio(fast, slow, True, together).value == pytest.approx(4)
        assert throughput_ratio(slow, fast, True, together).value == pytest.approx(0.25)


def test_only_rounds_of_both_are_compared() -> None:
    """One that a backend has no whole part of is left out, as far as rounds are paired."""
    one, other = counted_of(alternated([10, 10, 10])), counted_of(alternated([20, 20, 20, 90]))
    assert throughput_ratio(one, other, True, together=True).value == pytest.approx(2)
    assert throughput_ratio(one, other, True, together=False).value > 3
    unknown = counted_of(alternated([20, 20, 20, 90], samples=UNKNOWN)).only({0, 1})
    assert (unknown.rounds, unknown.real.samples, unknown.real.count) == ((0, 1), None, 20)


def test_separate_runs_add_up_their_spreads() -> None:
    """As independent errors do: by their squares."""
    one, other = (counted_of(alternated([ms * noise for noise in NOISE])) for ms in (10, 20))

    def half(estimate: Estimate) -> float:
        low, high = bounds(estimate)
        return math.log(high / low) / 2

    ratio = throughput_ratio(one, other, True, together=False)
    assert half(ratio) == pytest.approx(math.hypot(half(rate_of(one)), half(rate_of(other))))


def test_without_an_interval_of_one_there_is_none_of_the_ratio() -> None:
    """Two rounds give none."""
    one, other = counted_of(alternated([10] * 2)), counted_of(alternated([20] * 5))
    for first, second in ((one, other), (other, one)):
        found = throughput_ratio(first, second, True, together=False)
        assert found.low is found.high is None


def test_a_missed_stall_widens_the_ratio_on_its_side() -> None:
    """The one that may be slower may be less fast than it seems."""
    prefetches = [Prefetch(0, 0, 10, 10, 50 * MS, 40, longest_ns=800 * MS)]
    stalled, calm = (
        counted_of(alternated([20] * 5, prefetches=prefetches)),
        counted_of(alternated([20] * 5)),
    )
    factor = 1 + stalled.missed
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
    assert found is not None
    assert found.value == pytest.approx(800)
    assert bounds(found) == pytest.approx((800, 800))
    by_batch: Any = loader_alone(alternated([10] * 4, prefetches=prefetches), by_sample=False)
    assert by_batch.value == pytest.approx(200)


def test_the_loader_alone_is_not_told_without_prefetches_or_samples() -> None:
    """A throughput in samples needs all of them."""
    assert loader_alone(alternated([10] * 3), by_sample=False) is None
    prefetches = [prefetched(0, 4, 20, 16), prefetched(1, 4, 20, None)]
    assert loader_alone(alternated([10] * 3, prefetches=prefetches), by_sample=True) is None
