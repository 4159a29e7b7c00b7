"""The headroom of two runs: the gain, where the time went, the verdict, and cautions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.arms import ArmComparison
from loadeval.analysis.estimate.cautions import Caution, drift_ns, more_faults
from loadeval.analysis.estimate.headroom import headroom_of_two
from loadeval.analysis.estimate.intervals import MeanTime
from loadeval.analysis.estimate.verdict import Objection, Unmeasured, VerdictAdvice
from loadeval.analysis.remark import Remark
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import EpochEnd, LoaderInfo, Readings
from loadeval.data.run import ARMS, NOT_RECORDED, Run
from loadeval.errors import UsageError
from tests.analysis.numbers import bounds, codes, value
from tests.runs.given import MS, block, make_run, run_of
from tests.runs.tables import replace

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.analysis.estimate.headroom import Headroom


def parts(headroom: Headroom) -> tuple[float, float]:
    return value(headroom.waiting_ns), value(headroom.contention_ns)


FEW = 19
ENOUGH = 20


def compared(real: tuple[int, int], ideal: tuple[int, int]) -> Headroom:
    """The headroom of two runs of just enough batches, each of one wait and one step."""
    runs = (
        make_run([wait] * ENOUGH, step, mode=mode)
        for (wait, step), mode in ((real, "log"), (ideal, "replay"))
    )
    return headroom_of_two(*runs)


def test_speedup_is_the_ratio_of_the_iterations() -> None:
    """An iteration of 100 against one of 40 is 2.5 times the pace; 60 of 100 is lost."""
    headroom = compared((30, 70), (0, 40))
    assert value(headroom.speedup) == pytest.approx(2.5)
    assert (headroom.real_ns, headroom.ideal_ns) == (100.0, 40.0)
    assert value(headroom.lost_ns) == 60.0
    assert value(headroom.lost_share) == pytest.approx(1 - 1 / 2.5)


def test_what_is_lost_is_waited_or_in_slower_steps() -> None:
    """Waiting is the difference of the waits, contention that of the steps: together, all."""
    headroom = compared((30, 70), (1, 40))
    assert parts(headroom) == pytest.approx((29.0, 30.0))
    assert value(headroom.lost_ns) == pytest.approx(59.0)


def test_the_parts_add_up_exactly() -> None:
    """They do where the means have no end in binary, and batches differ in size."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        waits, steps = rng.integers(0, 10**9, (2, 23)).tolist()
        others, samples = rng.integers(1, 10**7, (2, 31)).tolist()
        replay = make_run(others, others[::-1], mode="replay", samples=samples)
        headroom = headroom_of_two(make_run(waits, steps), replay)
        assert headroom.ideal_ns is not None
        assert headroom.real_ns is not None
        assert value(headroom.lost_ns) == sum(parts(headroom))
        assert headroom.real_ns - headroom.ideal_ns == pytest.approx(value(headroom.lost_ns))


def test_a_step_may_be_shorter_in_the_real_run() -> None:
    """A device that works on during the wait shortens the step: the parts still add up."""
    headroom = compared((60, 40), (0, 80))
    assert (*parts(headroom), value(headroom.lost_ns)) == (60.0, -40.0, 20.0)
    assert str(headroom.verdict) == "highly input-bound"


def test_batches_of_other_sizes_are_compared_by_sample() -> None:
    """Replayed batches twice as large have twice the time: the pace of the samples counts."""
    real = make_run([20] * ENOUGH, 80, samples=4)
    headroom = headroom_of_two(real, make_run([10] * ENOUGH, 150, mode="replay", samples=8))
    assert (headroom.real_ns, headroom.ideal_ns) == (100.0, 80.0)
    assert parts(headroom) == (15.0, 5.0)
    assert value(headroom.speedup) == pytest.approx(1.25)


def test_a_short_last_batch_does_not_tilt_the_comparison() -> None:
    """The real epoch ends in half a batch, the replayed one in a whole one: no difference."""
    real = make_run([0] * 40, [100] * 39 + [50], samples=[8] * 39 + [4])
    headroom = headroom_of_two(real, make_run([0] * 40, 100, mode="replay", samples=8))
    assert value(headroom.speedup) == pytest.approx(1.0)
    assert value(headroom.lost_share) == pytest.approx(0.0)


@pytest.mark.parametrize(("real", "ideal"), [(-1, 8), (4, -1), (-1, -1), (0, 8)])
def test_unknown_samples_are_compared_by_batch(real: int, ideal: int) -> None:
    """Where a side's samples are unknown, or none, batches count as equal."""
    replay = make_run([0] * ENOUGH, 80, mode="replay", samples=ideal)
    assert headroom_of_two(make_run([20] * ENOUGH, 80, samples=real), replay).ideal_ns == 80.0


def test_samples_of_different_kinds_are_compared_by_batch() -> None:
    """Images are not scaled to videos: that would be a ratio of nothing."""
    replay = make_run([0] * ENOUGH, 80, mode="replay", samples=8, unit="videos")
    headroom = headroom_of_two(make_run([20] * ENOUGH, 80, samples=4), replay)
    assert headroom.ideal_ns == 80.0
    (caution, _) = headroom.cautions
    assert caution == Remark(Caution.DIFFERENT_UNITS, {"real": "images", "ideal": "videos"})


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
def test_thresholds_are_exact(lost: int, verdict: str) -> None:
    """From 5% of the time on moderately, from 20% on highly input-bound: lost of 10,000."""
    real = make_run([lost] * ENOUGH, 10_000 - lost)
    result = headroom_of_two(real, make_run([0] * ENOUGH, 10_000 - lost, mode="replay"))
    assert str(result.verdict) == verdict


def test_no_step_at_all_is_all_lost() -> None:
    """Where the training does next to nothing, nearly all the time is lost."""
    headroom = compared((999, 1), (0, 1))
    assert value(headroom.speedup) == pytest.approx(1_000)
    assert bounds(headroom.lost_share) == pytest.approx((0.999, 0.999))


@pytest.mark.parametrize(
    ("real", "ideal", "verdict", "advice"),
    [
        ((50, 60), (0, 50), "highly input-bound", [VerdictAdvice.SEE_FINDINGS]),
        (
            (10, 100),
            (0, 50),
            "highly input-bound",
            [VerdictAdvice.LESS_CONTENTION, VerdictAdvice.MEASURE_EVERY_BATCH],
        ),
        ((2, 98), (0, 98), "not input-bound", [VerdictAdvice.LOOK_AT_STEP]),
        # Within what two runs differ by: nothing negative is lost.
        ((0, 98), (0, 100), "not input-bound", [VerdictAdvice.LOOK_AT_STEP]),
        # Loading cannot be free and cost time: something else differed between the runs.
        ((0, 100), (0, 130), "inconclusive", [VerdictAdvice.STOP_OTHER_WORK]),
    ],
)
def test_advice_goes_where_the_time_went(
    real: tuple[int, int], ideal: tuple[int, int], verdict: str, advice: list[VerdictAdvice]
) -> None:
    """Waiting asks for a faster loader, slower steps for a lighter one, no loss for the step."""
    result = compared(real, ideal)
    assert (str(result.verdict), codes(result.advice)) == (verdict, advice)
    slower = verdict == "inconclusive"
    assert result.verdict.objection is (Objection.IDEAL_SLOWER if slower else None)


def test_advice_compares_the_parts_by_sample() -> None:
    """Larger replayed batches have longer steps, which is no gain of the real run."""
    real = make_run([10] * ENOUGH, 100, samples=4)
    replay = make_run([0] * ENOUGH, 150, mode="replay", samples=8)
    headroom = headroom_of_two(real, replay)
    assert parts(headroom) == (10.0, 25.0)
    assert VerdictAdvice.LESS_CONTENTION in codes(headroom.advice)


@pytest.mark.parametrize(("real", "ideal"), [(FEW, ENOUGH), (ENOUGH, FEW), (3, 4)])
def test_few_batches_are_inconclusive(real: int, ideal: int) -> None:
    """With under 20 steady batches on a side there are figures, and no verdict but this."""
    headroom = headroom_of_two(make_run([50] * real, 50), make_run([0] * ideal, 50, mode="replay"))
    assert headroom.verdict.objection is Objection.TOO_FEW_BATCHES
    assert value(headroom.speedup) == pytest.approx(2.0)
    assert codes(headroom.advice) == [VerdictAdvice.LONGER_EPOCHS]


def test_no_steady_batch_is_unmeasured() -> None:
    """Where all of a side is warm-up there are no figures, but the other side's pace."""
    headroom = headroom_of_two(
        make_run([50] * 3, 50, warmup=3), make_run([0] * 30, 50, mode="replay")
    )
    assert headroom.verdict.objection is Objection.NOT_MEASURED
    assert (headroom.speedup, headroom.lost_share, headroom.lost_ns) == (None, None, None)
    assert (headroom.waiting_ns, headroom.contention_ns) == (None, None)
    assert (headroom.real_ns, headroom.ideal_ns) == (None, 50.0)
    (cause,) = headroom.verdict.unmeasured
    assert cause.code is Unmeasured.NO_STEADY_BATCH
    assert cause.values == {
        "run": "the real run",
        "batches": 3,
        "warmup": 3,
        "loaded": 3,
        "waited_ns": 150,
        "first_wait_ns": 50,
        "step_ns": 150,
        "wait_share": 0.5,
    }


def test_both_sides_unmeasured_are_both_told() -> None:
    """A run without a batch, and one whose steps nobody knows, are told each with its cause."""
    headroom = headroom_of_two(make_run([]), make_run([1, 1], -1, mode="replay"))
    assert (headroom.real_ns, headroom.ideal_ns) == (None, None)
    causes = codes(headroom.verdict.unmeasured)
    assert causes == [Unmeasured.NO_STEADY_BATCH, Unmeasured.NO_STEP]


@pytest.mark.parametrize(("real", "ideal"), [(0, 50), (50, 0), (0, 0)])
def test_a_pace_of_no_time_is_unmeasured(real: int, ideal: int) -> None:
    """Batches that took no time by their clock give no ratio, and no division by zero."""
    headroom = compared((0, real), (0, ideal))
    assert headroom.speedup is None
    assert headroom.real_ns == (real or None)
    assert set(codes(headroom.verdict.unmeasured)) == {Unmeasured.NO_TIME}


def test_runs_the_wrong_way_round_are_an_error() -> None:
    """A replay is no real run, and a log no ideal one: the error says which was expected."""
    real, ideal = make_run([1] * ENOUGH), make_run([1] * ENOUGH, mode="replay")
    with pytest.raises(
        UsageError,
        match=r"ideal run was recorded with mode='replay'; expected .*"
        r"mode='log' as the real one. Are the two the other way round, or the same one\?",
    ):
        headroom_of_two(ideal, real)
    with pytest.raises(UsageError, match="mode='replay' as the ideal one"):
        headroom_of_two(real, real)


def test_a_run_with_both_arms_is_no_real_run() -> None:
    """No side may be mixed."""
    run = make_run([1, 1])
    both = replace(run.steps, arm=np.array([0, 1]))
    with pytest.raises(UsageError, match="as the real one"):
        headroom_of_two(replace(run, steps=both), run)


def test_a_run_read_from_a_file_is_named_by_it(tmp_path: Path) -> None:
    """Errors and reasons name the file where there is one."""
    replay = replace(make_run([1], mode="replay"), path=tmp_path / "replay.jsonl")
    with pytest.raises(UsageError, match=r"replay\.jsonl was recorded"):
        headroom_of_two(replay, replay)


def test_the_first_wait_counts_as_start_up_only() -> None:
    """Workers that take long to start do not make a loader slow."""
    real = make_run([10**9] + [0] * ENOUGH, 100, warmup=1)
    result = headroom_of_two(real, make_run([0] * ENOUGH, 100, mode="replay"))
    assert value(result.steady_speedup) == pytest.approx(1.0)


NOISE = np.random.default_rng(3)


def noisy(mean: float, count: int = 100) -> list[int]:
    return [int(time_ns) for time_ns in NOISE.gamma(20.0, mean / 20.0, count)]


def test_two_runs_have_an_interval() -> None:
    """It lies around the value. The drift between the runs is said not to be in it."""
    real = make_run(noisy(10_000), noisy(10_000))
    result = headroom_of_two(real, make_run([0] * 100, noisy(10_000), mode="replay"))
    low, high = bounds(result.speedup)
    assert 1.7 < low < value(result.speedup) < high < 2.3
    assert result.pairs is None
    assert codes(result.cautions) == [Caution.TWO_RUNS]


def test_a_wide_interval_asks_for_one_alternating_run() -> None:
    """Bursts in few batches leave the share open."""
    bursts = [0] * 24 + [3_000] * 2 + [0] * 4
    result = headroom_of_two(make_run(bursts, 100), make_run([0] * 30, 100, mode="replay"))
    assert result.verdict.objection is Objection.WIDE_INTERVAL
    assert codes(result.advice) == [VerdictAdvice.MORE_BATCHES]


def test_a_drift_within_a_run_leaves_it_open() -> None:
    """A pace that changes more within a run than between the runs says nothing of loading."""
    drifting = [90] * 50 + [120] * 50
    result = headroom_of_two(make_run([5] * 100, drifting), make_run([0] * 100, 100, mode="replay"))
    assert result.verdict.objection is Objection.DRIFT
    assert result.verdict.drift_ns == 30.0
    assert codes(result.advice) == [VerdictAdvice.ALTERNATE]


def test_a_drift_too_small_to_matter_does_no_harm() -> None:
    """It could not change the verdict."""
    drifting = [998] * 50 + [1002] * 50
    result = headroom_of_two(
        make_run([1] * 100, drifting), make_run([0] * 100, 1000, mode="replay")
    )
    assert str(result.verdict) == "not input-bound"


def test_drift_is_the_difference_of_the_halves() -> None:
    """It counts beyond noise, and is 0.0 where a half has too few batches, or no sample."""
    ones = [1.0] * 18
    for times, amounts, drift in (
        ([1.0] * 9 + [3.0] * 9, ones, 2.0),
        ([1.0, 3.0] * 9, ones, 0.0),
        ([1.0, 1.0, 3.0, 3.0], ones[:4], 0.0),
        ([1.0] * 3 + [3.0] * 3, ones[:6], 0.0),
        (ones, [0.0] * 9 + [1.0] * 9, 0.0),
        (ones, [1.0] * 9 + [0.0] * 9, 0.0),
    ):
        assert drift_ns(MeanTime(np.array(times), np.array(amounts))) == drift


def test_steps_that_grow_over_the_epoch_are_told() -> None:
    """The first batches do not stand for those to come."""
    real = make_run([0] * 80, list(range(5_000, 15_000, 250)) * 2, epochs=[40, 40])
    result = headroom_of_two(real, make_run([0] * 80, 10_000, mode="replay"))
    (caution, _) = result.cautions
    assert caution.code is Caution.STEP_VARIES
    assert caution.values == {"with": "its place in the epoch", "rank_correlation": 1.0}


@pytest.mark.parametrize("side", ["real", "ideal"])
def test_steps_that_go_by_size_are_told(side: str) -> None:
    """They are told in either run; sizes that are not known tell nothing."""
    sizes = np.random.default_rng(1).permutation(60) + 1
    steps = (sizes * 100).tolist()
    runs = {"real": make_run([0] * 60, 3_000), "ideal": make_run([0] * 60, 3_000, mode="replay")}
    mode = "log" if side == "real" else "replay"
    run = make_run([0] * 60, steps, mode=mode)
    runs[side] = replace(run, steps=replace(run.steps, nbytes=sizes))
    (caution, _) = headroom_of_two(runs["real"], runs["ideal"]).cautions
    assert caution.values["with"] == "its size in bytes"
    runs[side] = replace(run, steps=replace(run.steps, nbytes=np.full(60, UNKNOWN)))
    assert codes(headroom_of_two(runs["real"], runs["ideal"]).cautions) == [Caution.TWO_RUNS]


def test_whole_epochs_of_two_runs() -> None:
    """The real run's epoch start and end, and the steady iterations of both."""
    run = make_run([500] + [30] * 30, 70, warmup=1)
    real = replace(run, ends=(EpochEnd(0, "exhausted", 0, 50),))
    result = headroom_of_two(real, make_run([0] * 30, 50, mode="replay"))
    assert result.epoch_start_ns == 500.0
    assert value(result.epoch_starts_ns) == pytest.approx((570 + 50 - 100) / 31)
    assert value(result.speedup) == pytest.approx((570 + 30 * 100 + 50) / (31 * 50))
    assert value(result.steady_speedup) == pytest.approx(2.0)


def test_a_first_wait_that_is_steady_counts_once() -> None:
    """Without a warm-up the mean iteration has it."""
    real = make_run([500] + [0] * 39, 100)
    result = headroom_of_two(real, make_run([0] * 40, 100, mode="replay"))
    assert value(result.epoch_starts_ns) == 0.0
    assert value(result.speedup) == pytest.approx(4500 / 4000)


def cautions(real: dict[str, Any], ideal: dict[str, Any]) -> list[Remark]:
    """The cautions about two runs with these headers, but for the one that is always there."""
    result = headroom_of_two(make_run([1] * 20, **real), make_run([1] * 20, mode="replay", **ideal))
    *others, last = result.cautions
    assert last == Remark(Caution.TWO_RUNS)
    return others


def test_runs_that_are_alike_may_still_drift() -> None:
    """Nothing else speaks against them."""
    assert cautions({}, {}) == []


def test_unknown_samples() -> None:
    """Runs one of which does not know its samples are compared by batch."""
    assert codes(cautions({"samples": -1}, {})) == [Caution.SAMPLES_UNKNOWN]


@pytest.mark.parametrize(
    ("one", "other", "differences"),
    [
        (LoaderInfo("a.L"), LoaderInfo("b.L"), [("backend", "a.L", "b.L")]),
        (
            LoaderInfo("l", batch_size=8),
            LoaderInfo("l", batch_size=16),
            [("batch size", "8", "16")],
        ),
        (LoaderInfo("l", device="cpu"), LoaderInfo("l", device="gpu"), [("device", "cpu", "gpu")]),
        (
            LoaderInfo("l", pinned=True, length=9),
            LoaderInfo("l", pinned=False, length=5),
            [("pinned", "True", "False"), ("length", "9", "5")],
        ),
    ],
)
def test_a_replay_of_another_loader(
    one: LoaderInfo, other: LoaderInfo, differences: list[tuple[str, str, str]]
) -> None:
    """A loader that differs in what replay keeps is told with each difference."""
    caution_codes = cautions({"loader": one}, {"loader": other})
    assert set(codes(caution_codes)) == {Caution.DIFFERENT_LOADERS}
    assert [tuple(remark.values.values()) for remark in caution_codes] == differences


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LoaderInfo("l", workers=0), LoaderInfo("l", workers=8)),
        (LoaderInfo("l", batch_size=8), LoaderInfo("l")),
        (LoaderInfo("l"), LoaderInfo("l", length=3)),
        (LoaderInfo("l"), LoaderInfo(NOT_RECORDED)),
    ],
)
def test_a_loader_that_may_be_the_same(one: LoaderInfo, other: LoaderInfo) -> None:
    """Workers do not matter to a replay, and what one side does not know is no difference."""
    assert cautions({"loader": one}, {"loader": other}) == []


def test_another_machine() -> None:
    """Runs of different machines, or with other CPUs, compare the machines too."""
    here = {"environment": {"host": "a", "cpus_usable": 8, "pid": 3}}
    there = {"environment": {"host": "b", "cpus_usable": 2, "pid": 4}}
    assert cautions(here, there) == [
        Remark(Caution.DIFFERENT_MACHINES, {"fact": "host", "real": "a", "ideal": "b"}),
        Remark(Caution.DIFFERENT_MACHINES, {"fact": "cpus usable", "real": "8", "ideal": "2"}),
    ]
    (odd,) = cautions(here, {"environment": {"host": ["odd"]}})
    assert odd.values["ideal"] == "['odd']"
    assert cautions(here, {}) == []


ARMS_ALIKE = ArmComparison(100.0 * MS, 100.0 * MS, 20.0 * MS, 20.0 * MS, 10, 10, None, None)


def faulting(**values: Any) -> Run:
    """A real block of a second, and an ideal one, with a reading at the edges of each."""
    times = np.array([0, 1000, 2000, 3000]) * MS
    columns = {name: np.array(column, np.float64) for name, column in values.items()}
    blocks = (
        block(arm, 20 * MS, 80 * MS, 10, request_ns=begin_ns, pair=0)
        for arm, begin_ns in zip(ARMS, (0, 2000 * MS), strict=True)
    )
    return run_of(blocks, readings=(Readings("host", "process", times, columns),))


def test_far_more_faults_are_told() -> None:
    """The caution says how many more a batch."""
    (caution,) = more_faults(faulting(minor_faults_per_s=[0, 1_900, 0, 53_000]), ARMS_ALIKE)
    assert caution == Remark(Caution.PAGE_FAULTS, {"real": 190.0, "ideal": 5_300.0})


@pytest.mark.parametrize("ideal", [1_900, 11_000, 0])
def test_few_more_are_not(ideal: float) -> None:
    """Nothing is said under a thousand more a batch, or of fewer."""
    assert not more_faults(faulting(minor_faults_per_s=[0, 1_900, 0, ideal]), ARMS_ALIKE)


def test_many_in_both_arms_are_not() -> None:
    """The step itself takes memory then, wherever its batches come from."""
    assert not more_faults(faulting(minor_faults_per_s=[0, 30_000, 0, 50_000]), ARMS_ALIKE)


def test_what_was_not_read_is_not_told() -> None:
    """It takes readings of both arms, and a pace."""
    run = faulting(minor_faults_per_s=[0, 1_900, 0, 53_000])
    assert not more_faults(faulting(cpu_cores=[0, 1, 0, 1]), ARMS_ALIKE)
    assert not more_faults(faulting(minor_faults_per_s=[0, np.nan, 0, 9e9]), ARMS_ALIKE)
    assert not more_faults(run, replace(ARMS_ALIKE, ideal_ns=None))
