"""What data loading costs, by the times of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import EpochEnd, Event, Prefetch
from loadeval.estimate.gap import gap, throughput
from tests.builder import ALTERNATELY, MS, alternating, logged, run_of, steps


def ms(estimate: Any) -> Any:
    return estimate.value / MS


def interval(estimate: Any) -> Any:
    return estimate.low, estimate.high


def times(estimate: Any) -> Any:
    return estimate.value


def test_an_optimizer_that_steps_before_any_batch_came_is_no_warning() -> None:
    run = logged([10], [20])
    stepped = tuple(Event(time_ns, "", "optimizer") for time_ns in (0, 1))
    none_yet = replace(run, steps=run.steps.take(slice(0)), events=stepped)
    assert gap(none_yet).real is None


def test_lost_time_is_waiting_contention_and_epoch_starts() -> None:
    """Of epochs of 33 batches, of which the first is waited for 100 ms longer."""
    result = gap(alternating(wait=5, step=12, first=105))
    assert [(name, ms(part)) for name, part in result.parts()] == [
        ("waiting", pytest.approx(5)),
        ("contention", pytest.approx(2)),
        ("epoch starts", pytest.approx(100 / 33)),
    ]
    assert ms(result.real) == pytest.approx(17)
    assert ms(result.ideal) == 10
    assert ms(result.lost) == pytest.approx(7 + 100 / 33)
    assert times(result.speedup) == pytest.approx((17 + 100 / 33) / 10)
    assert times(result.steady_speedup) == pytest.approx(1.7)
    assert result.share("lost") == pytest.approx(1 - 1 / times(result.speedup))
    assert result.share("waiting") == pytest.approx(5 / (17 + 100 / 33))


def test_one_epoch_start_is_part_of_it_as_it_was_seen() -> None:
    """It is in the value and not in the interval, which does not know by how much starts differ."""
    run = alternating(spread=0.05)
    result: Any = gap(run_of([steps("real", 200, 10, 1), run.steps]))
    assert result.epochs == 1
    assert ms(result.starts) == pytest.approx(200 / 265, rel=0.01)
    assert result.starts.low is None
    low, high = interval(result.speedup)
    assert low < 1 + 200 / 265 / 10 < high


def test_what_the_loader_must_become() -> None:
    """It takes 15 ms a batch alone, where an ideal iteration takes 10."""
    assert times(gap(alternating(alone=15)).required) == pytest.approx(1.5)
    without_workers = gap(alternating(alone=15, workers=0, prefetch_depth=0))
    assert without_workers.required is None
    assert ms(without_workers.loader_only) == 15


def test_instrumented_blocks_do_not_count() -> None:
    run = alternating(wait=5)
    slow = steps("real", 50, 10, 24, pair=8, instrumented=True)
    more = run_of([run.steps, slow, steps("ideal", 0, 10, 8, pair=8, instrumented=True)])
    assert gap(more).real == gap(run).real
    assert gap(more).pairs == 8


def test_a_pair_that_was_not_measured_whole_does_not_count() -> None:
    run = alternating(wait=5)
    cut = run_of([run.steps, steps("real", 50, 10, 24, pair=8), steps("ideal", 0, 10, 3, pair=8)])
    assert gap(cut).pairs == 8
    assert ms(gap(cut).real) == 15


def test_drift_slows_both_arms_and_cancels() -> None:
    """The machine becomes half as fast while the run lasts."""
    run = alternating(wait=4, step=10, ideal=10)
    slower = np.linspace(1.0, 2.0, len(run.steps))
    drifted = run.steps.replace(
        wait_ns=(run.steps.wait_ns * slower).astype(int),
        step_ns=(run.steps.step_ns * slower).astype(int),
    )
    result = gap(run_of([drifted]))
    low, high = interval(result.steady_speedup)
    assert low < 1.4 < high
    assert times(result.steady_speedup) == pytest.approx(1.4, rel=0.02)


def test_a_short_last_batch_has_its_proper_weight() -> None:
    """Ratios are of sums, by sample: half a batch that takes half as long changes nothing."""
    half = {"samples": [4] * 7 + [2]}
    blocks = []
    for pair in range(6):
        for arm in ALTERNATELY[pair % 2]:
            step = [20.0] * 7 + [10.0] if arm == "real" else [10.0] * 7 + [5.0]
            blocks.append(steps(arm, 0, step, pair=pair, **half))
    result = gap(run_of(blocks))
    assert result.samples_per_batch == 3.75
    assert times(result.steady_speedup) == pytest.approx(2.0)


def test_times_are_those_of_the_device_where_its_clock_told_them() -> None:
    """The host waits for 5 ms, of which the device is without work for one."""
    blocks = []
    for pair in range(6):
        for arm in ALTERNATELY[pair % 2]:
            idle = 1 if arm == "real" else 0
            blocks.append(steps(arm, 5 * idle, 2, 24, pair=pair, gpu_idle_ms=idle, gpu_step_ms=9))
    result = gap(run_of(blocks))
    assert ms(result.waiting) == pytest.approx(1)
    assert ms(result.ideal) == 9
    assert result.gpu_idle == MS


def test_epochs_too_short_for_two_blocks_are_blocks() -> None:
    """Five batches each, of which the first is waited for 400 ms, and 30 ms at the end."""
    blocks, ends = [steps("real", 5_000, 22, 5)], [EpochEnd(0, "exhausted", None, 30 * MS)]
    for epoch in range(1, 9, 2):
        pair = epoch // 2
        blocks += [
            *(steps("real", 400, 22, 1, epoch=epoch), steps("ideal", 0, 20, 1, epoch=epoch + 1)),
            steps("real", 2, 22, 4, epoch=epoch, pair=pair),
            steps("ideal", 0, 20, 4, epoch=epoch + 1, pair=pair),
        ]
        ends += [EpochEnd(epoch + at, "exhausted", None, 30 * MS) for at in (0, 1)]
    result = gap(run_of(blocks, ends=tuple(ends), prefetch_depth=16, length=5))
    assert result.pairs == 4
    assert times(result.speedup) == pytest.approx((400 + 4 * 2 + 5 * 22 + 30) / 5 / 20)


def test_a_log_alone_has_no_ideal() -> None:
    result = gap(logged([100.0] + [5.0] * 59))
    assert result.ideal is result.lost is result.speedup is result.contention is None
    assert ms(result.real) == 15
    assert ms(result.waiting) == 5
    assert ms(result.starts) == pytest.approx(95 / 60)
    assert result.share("waiting") == pytest.approx(5 / (15 + 95 / 60))


def test_a_log_beside_a_replay() -> None:
    noise = np.random.default_rng(0)
    real = logged(noise.normal(5, 0.2, 60), noise.normal(12, 0.2, 60))
    result = gap(real, logged([0.0] * 60, noise.normal(10, 0.2, 60), mode="replay"))
    low, high = interval(result.speedup)
    assert low < 1.7 < high
    assert result.pairs is None
    assert ms(result.waiting) == pytest.approx(5, abs=0.1)
    assert ms(result.contention) == pytest.approx(2, abs=0.1)


def test_real_batches_before_a_replay_are_no_ideal_ones() -> None:
    """Compared with a real run, they count on neither side."""
    replay = run_of([steps("real", 50, 50, 30), steps("ideal", 0, 50, 60)], mode="replay")
    assert times(gap(logged([50.0] * 60, 50.0), replay).speedup) == pytest.approx(2)


def test_throughputs_of_the_arms_and_of_whole_epochs() -> None:
    """Of 4 images each 15 ms, in epochs of 33 that begin 100 ms later."""
    run = alternating(wait=5, alone=20, first=105)
    rates = {name: rate.value for name, rate in throughput(gap(run)).items()}
    assert rates == pytest.approx(
        {"real": 4 / 0.015, "ideal": 400, "whole": 4 / (0.015 + 0.1 / 33), "loader_only": 200}
    )
    by_batch = throughput(gap(run), by_sample=False)
    assert by_batch["real"].value == pytest.approx(1 / 0.015)


def test_the_loader_alone_is_timed_with_what_copying_takes() -> None:
    """Waits of 5 ms in 10 ms altogether, four batches each; instruments would take time too."""
    prefetches = [Prefetch(n, 0, 4, 4, 40 * MS, 16, [5 * MS] * 4) for n in range(6)]
    looked_into = Prefetch(6, 0, 4, 4, 400 * MS, 16, [5 * MS] * 4, instrumented=True)
    run = alternating(prefetches=(*prefetches, looked_into))
    assert ms(gap(run).loader_only) == 10


def test_a_window_of_a_run_is_computed_anew() -> None:
    """In the second half waits are twice as long."""
    early, late = alternating(wait=5, pairs=8), alternating(wait=10, pairs=8)
    shifted = late.steps.replace(pair=np.where(late.steps.pair < 0, UNKNOWN, late.steps.pair + 8))
    both = run_of([early.steps, shifted])
    half_s = float(both.steps.request_ns[len(early.steps)]) / 1e9
    assert ms(gap(both.between(0, half_s)).waiting) == 5
    assert ms(gap(both.between(half_s, 1e6)).waiting) == 10
