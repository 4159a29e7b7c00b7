"""Real against ideal: the gain, where the time went, and the verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.headroom import compare
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.stats import Estimate
    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]


def parts(headroom: Headroom) -> tuple[float, float]:
    return value(headroom.waiting_ns), value(headroom.contention_ns)


def value(estimate: Estimate | None) -> float:
    assert estimate is not None
    return estimate.value


FEW = 19
ENOUGH = 20


def test_speedup_is_the_ratio_of_the_iterations(make_run: MakeRun) -> None:
    """An iteration of 100 against one of 40 is 2.5 times the pace; 60 of 100 is lost."""
    headroom = compare(make_run([30] * ENOUGH, 70), make_run([0] * ENOUGH, 40, mode="replay"))
    assert value(headroom.speedup) == pytest.approx(2.5)
    assert (headroom.real_ns, headroom.ideal_ns) == (100.0, 40.0)
    assert value(headroom.lost_ns) == 60.0
    assert value(headroom.lost_share) == pytest.approx(1 - 1 / 2.5)


def test_what_is_lost_is_waited_or_in_slower_steps(make_run: MakeRun) -> None:
    """Waiting is the difference of the waits, contention that of the steps: together, all."""
    headroom = compare(make_run([30] * ENOUGH, 70), make_run([1] * ENOUGH, 40, mode="replay"))
    assert parts(headroom) == pytest.approx((29.0, 30.0))
    assert value(headroom.lost_ns) == pytest.approx(59.0)


def test_the_parts_add_up_exactly(make_run: MakeRun) -> None:
    """Also where the means have no end in binary, and batches differ in size."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        waits, steps = rng.integers(0, 10**9, (2, 23)).tolist()
        others, samples = rng.integers(1, 10**7, (2, 31)).tolist()
        replay = make_run(others, others[::-1], mode="replay", samples=samples)
        headroom = compare(make_run(waits, steps), replay)
        assert headroom.ideal_ns is not None
        assert headroom.real_ns is not None
        assert value(headroom.lost_ns) == sum(parts(headroom))
        assert headroom.real_ns - headroom.ideal_ns == pytest.approx(value(headroom.lost_ns))


def test_a_step_may_be_shorter_in_the_real_run(make_run: MakeRun) -> None:
    """A device that works on during the wait shortens the step: the parts still add up."""
    headroom = compare(make_run([60] * ENOUGH, 40), make_run([0] * ENOUGH, 80, mode="replay"))
    assert (*parts(headroom), value(headroom.lost_ns)) == (60.0, -40.0, 20.0)
    assert headroom.verdict == "highly input-bound"


def test_batches_of_other_sizes_are_compared_by_sample(make_run: MakeRun) -> None:
    """Replayed batches twice as large have twice the time: the pace of the samples counts."""
    real = make_run([20] * ENOUGH, 80, samples=4)
    headroom = compare(real, make_run([10] * ENOUGH, 150, mode="replay", samples=8))
    assert (headroom.real_ns, headroom.ideal_ns) == (100.0, 80.0)
    assert parts(headroom) == (15.0, 5.0)
    assert value(headroom.speedup) == pytest.approx(1.25)


def test_a_short_last_batch_does_not_tilt_the_comparison(make_run: MakeRun) -> None:
    """The real epoch ends in half a batch, the replayed one in a whole one: no difference."""
    real = make_run([0] * 40, [100] * 39 + [50], samples=[8] * 39 + [4])
    headroom = compare(real, make_run([0] * 40, 100, mode="replay", samples=8))
    assert value(headroom.speedup) == pytest.approx(1.0)
    assert value(headroom.lost_share) == pytest.approx(0.0)


@pytest.mark.parametrize(("real", "ideal"), [(-1, 8), (4, -1), (-1, -1), (0, 8)])
def test_unknown_samples_are_compared_by_batch(make_run: MakeRun, real: int, ideal: int) -> None:
    """Where a side's samples are unknown, or none, batches count as equal."""
    replay = make_run([0] * ENOUGH, 80, mode="replay", samples=ideal)
    assert compare(make_run([20] * ENOUGH, 80, samples=real), replay).ideal_ns == 80.0


def test_samples_of_different_kinds_are_compared_by_batch(make_run: MakeRun) -> None:
    """Images are not scaled to videos: that would be a ratio of nothing."""
    replay = make_run([0] * ENOUGH, 80, mode="replay", samples=8, unit="videos")
    headroom = compare(make_run([20] * ENOUGH, 80, samples=4), replay)
    assert headroom.ideal_ns == 80.0
    assert "The runs count images and videos" in headroom.caution


@pytest.mark.parametrize(
    ("lost", "verdict"),
    [
        (0, "not input-bound"),
        (499, "not input-bound"),
        (500, "moderately input-bound"),
        (1_999, "moderately input-bound"),
        (2_000, "highly input-bound"),
        (9_999, "highly input-bound"),
    ],
)
def test_thresholds_are_exact(make_run: MakeRun, lost: int, verdict: str) -> None:
    """From 5% of the time on moderately, from 20% on highly input-bound: lost of 10,000."""
    real = make_run([lost] * ENOUGH, 10_000 - lost)
    assert compare(real, make_run([0] * ENOUGH, 10_000 - lost, mode="replay")).verdict == verdict


def test_no_step_at_all_is_all_lost(make_run: MakeRun) -> None:
    """Where the training does next to nothing, nearly all the time is lost."""
    headroom = compare(make_run([999] * ENOUGH, 1), make_run([0] * ENOUGH, 1, mode="replay"))
    assert value(headroom.speedup) == pytest.approx(1_000)
    assert headroom.reason.startswith(
        "99.9% [99.9%, 99.9%] of the training time is lost to loading"
    )


def test_advice_goes_where_the_time_went(make_run: MakeRun) -> None:
    """Waiting asks for a faster loader, slower steps for one that takes less."""
    waiting = compare(make_run([50] * ENOUGH, 60), make_run([0] * ENOUGH, 50, mode="replay"))
    assert waiting.reason == (
        "54.5% [54.5%, 54.5%] of the training time is lost to loading, most of it in waiting for "
        "batches"
    )
    assert "more workers" in waiting.advice
    slower = compare(make_run([10] * ENOUGH, 100), make_run([0] * ENOUGH, 50, mode="replay"))
    assert slower.reason.endswith("most of it in slower steps")
    assert "fewer workers" in slower.advice


def test_advice_compares_the_parts_by_sample(make_run: MakeRun) -> None:
    """Larger replayed batches have longer steps, which is no gain of the real run."""
    real = make_run([10] * ENOUGH, 100, samples=4)
    replay = make_run([0] * ENOUGH, 150, mode="replay", samples=8)
    headroom = compare(real, replay)
    assert parts(headroom) == (10.0, 25.0)
    assert headroom.reason.endswith("most of it in slower steps")


def test_little_lost_points_to_the_step(make_run: MakeRun) -> None:
    """Where loading keeps up, the training step is what to look at."""
    headroom = compare(make_run([2] * ENOUGH, 98), make_run([0] * ENOUGH, 98, mode="replay"))
    assert headroom.reason == "2.0% [2.0%, 2.0%] of the training time is lost to loading"
    assert headroom.advice == "Look at the training step instead: loading keeps up with it."


def test_replay_a_little_slower_is_not_input_bound(make_run: MakeRun) -> None:
    """A speed-up just under 1 is within what two runs differ by: nothing negative is lost."""
    headroom = compare(make_run([0] * ENOUGH, 98), make_run([0] * ENOUGH, 100, mode="replay"))
    assert value(headroom.speedup) == pytest.approx(0.98)
    assert headroom.verdict == "not input-bound"
    assert headroom.reason == "free loading was no faster than the real one [-2.0%, -2.0%]"
    assert "keeps up" in headroom.advice


def test_replay_much_slower_asks_for_the_runs_again(make_run: MakeRun) -> None:
    """Loading cannot be free and cost time: something else differed between the runs."""
    headroom = compare(make_run([0] * ENOUGH, 100), make_run([0] * ENOUGH, 130, mode="replay"))
    assert headroom.verdict == "inconclusive"
    assert headroom.reason == (
        "free loading was slower than the real one, by 30.0% of its time, which loading cannot "
        "explain"
    )
    assert headroom.advice.endswith("then measure again.")


@pytest.mark.parametrize(
    ("real", "ideal", "said"),
    [
        (FEW, ENOUGH, "19 steady in the real run,"),
        (ENOUGH, FEW, "19 steady in the ideal run,"),
        (3, 4, "3 steady in the real run and 4 steady in the ideal run,"),
    ],
)
def test_few_batches_are_inconclusive(make_run: MakeRun, real: int, ideal: int, said: str) -> None:
    """Under 20 steady batches on a side there are figures, and no verdict but this."""
    headroom = compare(make_run([50] * real, 50), make_run([0] * ideal, 50, mode="replay"))
    assert headroom.verdict == "inconclusive"
    assert headroom.reason == f"too few batches, {said} where 20 are needed"
    assert value(headroom.speedup) == pytest.approx(2.0)
    assert "smaller warmup=" in headroom.advice


def test_no_steady_batch_is_unmeasured(make_run: MakeRun) -> None:
    """Where all of a side is warm-up there are no figures, but the other side's pace."""
    headroom = compare(make_run([50] * 3, 50, warmup=3), make_run([0] * 30, 50, mode="replay"))
    assert headroom.verdict == "inconclusive"
    assert (headroom.speedup, headroom.lost_share, headroom.lost_ns) == (None, None, None)
    assert (headroom.waiting_ns, headroom.contention_ns) == (None, None)
    assert (headroom.real_ns, headroom.ideal_ns) == (None, 50.0)
    assert headroom.reason == (
        "the real run has no steady batch: it has 3 in all, and the first 3 of each epoch are "
        "left out"
    )


def test_both_sides_unmeasured_are_both_told(make_run: MakeRun) -> None:
    """A run without a batch, and one whose steps nobody knows, are told each with its cause."""
    headroom = compare(make_run([]), make_run([1, 1], -1, mode="replay"))
    assert (headroom.real_ns, headroom.ideal_ns) == (None, None)
    assert headroom.reason == (
        "the real run has no steady batch: it has 0 in all, and the first 0 of each epoch are "
        "left out; the ideal run has no batch whose step was measured: was its epoch broken off?"
    )


@pytest.mark.parametrize(("real", "ideal"), [(0, 50), (50, 0), (0, 0)])
def test_a_pace_of_no_time_is_unmeasured(make_run: MakeRun, real: int, ideal: int) -> None:
    """Batches that took no time by their clock give no ratio, and no division by zero."""
    headroom = compare(make_run([0] * ENOUGH, real), make_run([0] * ENOUGH, ideal, mode="replay"))
    assert headroom.speedup is None
    assert headroom.real_ns == (real or None)
    assert "run has steady batches that took no time by its clock" in headroom.reason


def test_runs_the_wrong_way_round_are_an_error(make_run: MakeRun) -> None:
    """A replay is no real run, and a log no ideal one: the error says which was expected."""
    real, ideal = make_run([1] * ENOUGH), make_run([1] * ENOUGH, mode="replay")
    with pytest.raises(
        UsageError,
        match=r"ideal run was recorded with mode='replay'; expected .*"
        r"mode='log' as the real one. Are the two the other way round, or the same one\?",
    ):
        compare(ideal, real)
    with pytest.raises(UsageError, match="mode='replay' as the ideal one"):
        compare(real, real)


def test_a_run_with_both_arms_is_no_real_run(make_run: MakeRun) -> None:
    """Neither side may be mixed."""
    run = make_run([1, 1])
    both = replace(run.steps, arm=np.array([0, 1]))
    with pytest.raises(UsageError, match="as the real one"):
        compare(replace(run, steps=both), run)


def test_a_run_read_from_a_file_is_named_by_it(make_run: MakeRun, tmp_path: Path) -> None:
    """Errors and reasons name the file where there is one."""
    replay = replace(make_run([1], mode="replay"), path=tmp_path / "replay.jsonl")
    with pytest.raises(UsageError, match=r"replay\.jsonl was recorded"):
        compare(replay, replay)


def test_the_first_wait_counts_as_start_up_only(make_run: MakeRun) -> None:
    """Workers that take long to start do not make a loader slow."""
    real = make_run([10**9] + [0] * ENOUGH, 100, warmup=1)
    assert value(
        compare(real, make_run([0] * ENOUGH, 100, mode="replay")).speedup
    ) == pytest.approx(1.0)
