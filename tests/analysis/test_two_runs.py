"""What two separate runs tell beyond their paces: intervals, drift, and unlike batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.arms import side_of
from loadeval.analysis.headroom import drift_ns
from loadeval.analysis.stats import mean_ranks, spearman
from loadeval.analysis.headroom import compare
from loadeval.analysis.intervals import Pace
from loadeval.runlog.model import UNKNOWN, EpochEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]

NOISE = np.random.default_rng(3)


def noisy(mean: float, count: int = 100) -> list[int]:
    return [int(time_ns) for time_ns in NOISE.gamma(20.0, mean / 20.0, count)]


def test_two_runs_have_an_interval(make_run: MakeRun) -> None:
    """Around the value, and the drift between the runs is said not to be in it."""
    real = make_run(noisy(10_000), noisy(10_000))
    found = compare(real, make_run([0] * 100, noisy(10_000), mode="replay"))
    assert found.speedup is not None
    assert found.speedup.low is not None
    assert found.speedup.high is not None
    assert 1.7 < found.speedup.low < found.speedup.value < found.speedup.high < 2.3
    assert found.pairs is None
    assert found.caution.endswith("is not in the interval.")


def test_a_wide_interval_asks_for_one_alternating_run(make_run: MakeRun) -> None:
    """Bursts in few batches leave the share open."""
    bursts = [0] * 24 + [3_000] * 2 + [0] * 4
    found = compare(make_run(bursts, 100), make_run([0] * 30, 100, mode="replay"))
    assert found.verdict == "inconclusive"
    assert "wider than 10 points" in found.reason
    assert "mode='alternate'" in found.advice


def test_a_drift_within_a_run_leaves_it_open(make_run: MakeRun) -> None:
    """A pace that changes more within a run than between the runs says nothing of loading."""
    drifting = [90] * 50 + [120] * 50
    found = compare(make_run([5] * 100, drifting), make_run([0] * 100, 100, mode="replay"))
    assert found.verdict == "inconclusive"
    assert found.reason == (
        "the pace changed more within a run, by 27.3% of the real iteration, than it differs between "
        "the runs, by 9.1%"
    )
    assert "mode='alternate'" in found.advice


def test_a_drift_too_small_to_matter_does_no_harm(make_run: MakeRun) -> None:
    """It could not change the verdict."""
    drifting = [990] * 50 + [1010] * 50
    found = compare(make_run([1] * 100, drifting), make_run([0] * 100, 1000, mode="replay"))
    assert found.verdict == "not input-bound"


def test_drift_is_the_difference_of_the_halves() -> None:
    """Beyond noise; and 0.0 where a half has too few batches, or no sample."""
    assert drift_ns(Pace(np.array([1.0] * 9 + [3.0] * 9), np.ones(18))) == 2.0
    assert drift_ns(Pace(np.array([1.0, 3.0] * 9), np.ones(18))) == 0.0
    assert drift_ns(Pace(np.array([1.0, 1.0, 3.0, 3.0]), np.ones(4))) == 0.0
    assert drift_ns(Pace(np.array([1.0] * 3 + [3.0] * 3), np.ones(6))) == 0.0
    assert drift_ns(Pace(np.ones(18), np.array([0.0] * 9 + [1.0] * 9))) == 0.0
    assert drift_ns(Pace(np.ones(18), np.array([1.0] * 9 + [0.0] * 9))) == 0.0


def test_steps_that_grow_over_the_epoch_are_told(make_run: MakeRun) -> None:
    """The first batches do not stand for those to come."""
    real = make_run([0] * 80, list(range(5_000, 15_000, 250)) * 2, epochs=[40, 40])
    found = compare(real, make_run([0] * 80, 10_000, mode="replay"))
    assert found.caution.startswith(
        "A step's time depends on the batch, on its place in the epoch: the kept batches may not "
        "stand for the epoch."
    )


@pytest.mark.parametrize("side", ["real", "ideal"])
def test_steps_that_go_by_size_are_told(make_run: MakeRun, side: str) -> None:
    """In either run; sizes that are not known tell nothing."""
    sizes = np.random.default_rng(1).permutation(60) + 1
    steps = (sizes * 100).tolist()
    runs = {"real": make_run([0] * 60, 3_000), "ideal": make_run([0] * 60, 3_000, mode="replay")}
    mode = "log" if side == "real" else "replay"
    run = make_run([0] * 60, steps, mode=mode)
    runs[side] = replace(run, steps=replace(run.steps, nbytes=sizes))
    assert "on its size in bytes" in compare(runs["real"], runs["ideal"]).caution
    runs[side] = replace(run, steps=replace(run.steps, nbytes=np.full(60, UNKNOWN)))
    assert "bytes" not in compare(runs["real"], runs["ideal"]).caution


def test_rank_correlation() -> None:
    """1 for whatever grows together, -1 against each other, 0 for what does not change."""
    grows = np.array([1, 2, 5, 9])
    assert spearman(grows, grows**3) == pytest.approx(1.0)
    assert spearman(grows, -grows) == pytest.approx(-1.0)
    assert spearman(grows, np.ones(4, dtype=np.int64)) == 0.0
    assert spearman(grows[:0], grows[:0]) == 0.0
    assert mean_ranks(np.array([7, 3, 7, 9])).tolist() == [1.5, 0.0, 1.5, 3.0]


def test_whole_epochs_of_two_runs(make_run: MakeRun) -> None:
    """The real run's epoch start and end, and the steady iterations of both."""
    run = make_run([500] + [30] * 30, 70, warmup=1)
    real = replace(run, ends=(EpochEnd(0, "exhausted", 0, 50),))
    found = compare(real, make_run([0] * 30, 50, mode="replay"))
    assert found.epoch_start_ns == 500.0
    assert found.epoch_speedup == pytest.approx((500 + 31 * 100 + 50) / (31 * 50))


def test_samples_of_zero_are_no_samples(make_run: MakeRun) -> None:
    """Nothing can be divided by them."""
    run = make_run([1] * 3, samples=0)
    assert side_of(run.steps, np.full(3, True)).samples is None
