"""The headroom of one alternating run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.cautions import Caution
from loadeval.analysis.estimate.headroom import Missing, headroom, headroom_of_two
from loadeval.analysis.estimate.intervals import MeanError
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.summary import summarise
from loadeval.analysis.estimate.verdict import (
    InputBound,
    Objection,
    Unmeasured,
    Verdict,
    VerdictAdvice,
)
from loadeval.analysis.remark import Remark
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import Arm, Block, EpochEnd, LoaderInfo, Prefetch, Window
from loadeval.errors import UsageError
from tests.analysis.numbers import bounds, codes, value
from tests.runs.given import MS, block, run_of
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.data.run import Run

IN_PROCESS = LoaderInfo("loader", workers=0, prefetch_depth=0)
HIGHLY = Verdict(InputBound.HIGHLY, InputBound.HIGHLY)
MISSED = Verdict(objection=Objection.MISSED_STALL, missed_ns=1_000 * MS)
QUEUED = LoaderInfo("loader", workers=2, prefetch_depth=4)


def served(
    arm: Arm,
    pair: int | None,
    count: int,
    wait: float,
    step: float,
    samples: int = 4,
    epoch: int = 0,
) -> Block:
    """A block of equal batches; times are in milliseconds."""
    sizes = {"samples": samples, "nbytes": 10}
    return block(arm, wait * MS, step * MS, count, epoch=epoch, pair=pair, **sizes)


def alternating(blocks: Sequence[Block], loader: LoaderInfo = IN_PROCESS, **more: Any) -> Run:
    return run_of(blocks, name="the run", loader=loader, **more)


def pairs(
    number: int = 6,
    wait: float = 30,
    real: float = 70,
    ideal: float = 50,
    noise: float = 0.0,
) -> list[Block]:
    """Pairs of blocks of 8 batches; `noise` is the standard deviation of real steps."""
    blocks = [served("real", None, 1, 500, 70)]
    noises = np.random.default_rng(0).normal(size=(number, 8))
    noises = noise * MS * (noises - noises.mean()) / noises.std()
    for pair in range(number):
        real_block = served("real", pair, 8, wait, real)
        blocks += [
            served("real", None, 1, 99, 9),
            replace(real_block, step_ns=real_block.step_ns + noises[pair].astype(np.int64)),
        ]
        blocks += [served("ideal", None, 1, 99, 9), served("ideal", pair, 8, 0, ideal)]
    return blocks


def windows(cpu_ms: float | None, number: int = 6, elapsed_ms: float = 400) -> tuple[Window, ...]:
    cpu_ns = None if cpu_ms is None else int(cpu_ms * MS)
    return tuple(Window(pair, 0, "ideal", int(elapsed_ms * MS), cpu_ns) for pair in range(number))


def prefetches(each_ms: float, samples: int | None = 32, timed: int = 8) -> tuple[Prefetch, ...]:
    return (Prefetch(0, 0, 10, timed, int(each_ms * timed * MS), samples),)


def prefetched(longest_ms: float) -> tuple[Prefetch, ...]:
    return (Prefetch(0, 0, 10, 8, 80 * MS, 32, [int(longest_ms * MS), *[0] * 9]),)


def test_only_what_counts_is_compared() -> None:
    """Wash-out and epoch start enter no figure."""
    result = headroom(alternating(pairs()))
    assert (result.real_ns, result.ideal_ns) == (100 * MS, 50 * MS)
    assert value(result.speedup) == pytest.approx(2.0)
    assert value(result.waiting_ns) == 30 * MS
    assert value(result.contention_ns) == 20 * MS
    assert value(result.lost_ns) == 50 * MS
    assert (result.pairs, result.real_batches, result.ideal_batches) == (6, 48, 48)
    assert (result.unit, result.samples_per_batch) == ("images", 4.0)


def test_no_noise_is_no_width() -> None:
    """Pairs that are all alike leave nothing unsure."""
    assert bounds(headroom(alternating(pairs())).speedup) == pytest.approx((2.0, 2.0))


def test_the_finding_in_one_line() -> None:
    """The speed-up with its interval, the verdict and the parts; with no interval, without."""
    parts = "50% of the time lost (waiting 30%, contention 20%)"
    assert [str(headroom(alternating(blocks))) for blocks in (pairs(), pairs(1), [])] == [
        f"2.00x [2.00x, 2.00x] if loading were free: highly input-bound, {parts}",
        f"2.00x if loading were free: inconclusive (too few batches), {parts}",
        "inconclusive (not measured)",
    ]
    whole = headroom(alternating(pairs(), replace(IN_PROCESS, length=47)))
    assert str(whole) == (
        "2.20x [2.20x, 2.20x] if loading were free: highly input-bound, "
        "55% of the time lost (waiting 27%, contention 18%, epoch starts 9%)"
    )


def test_a_pair_that_is_cut_short_is_left_out() -> None:
    """Under half of the usual batches is too few; with half it counts, as does the other arm's."""
    short = [*pairs(), served("real", 6, 8, 900, 9), served("ideal", 6, 3, 0, 900)]
    assert headroom(alternating(short)).pairs == 6
    assert value(headroom(alternating(short)).speedup) == pytest.approx(2.0)
    half = [*pairs(), served("real", 6, 8, 30, 70), served("ideal", 6, 4, 0, 50)]
    result = headroom(alternating(half))
    assert (result.pairs, result.real_batches, result.ideal_batches) == (7, 56, 52)
    assert value(result.speedup) == pytest.approx(2.0)


def test_a_pair_with_one_arm_is_left_out() -> None:
    """The run ended between the two blocks, or no step was closed."""
    assert headroom(alternating([*pairs(), served("ideal", 6, 8, 0, 900)])).pairs == 6
    opened = replace(served("ideal", 6, 8, 0, 1), step_ns=np.full(8, UNKNOWN))
    assert headroom(alternating([*pairs(), served("real", 6, 8, 9, 9), opened])).pairs == 6


def test_a_block_that_spans_two_epochs_is_one_block() -> None:
    """Its batches count together."""
    blocks = [*pairs(), served("real", 6, 8, 30, 70), served("ideal", 6, 5, 0, 50)]
    blocks += [served("real", None, 1, 400, 70, epoch=1), served("ideal", 6, 3, 0, 50, epoch=1)]
    assert headroom(alternating(blocks)).ideal_batches == 56


def test_arms_with_batches_of_other_sizes_are_compared_by_sample() -> None:
    """Half as many samples in half the time are no gain."""
    sizes: tuple[tuple[Arm, int], ...] = (("real", 2), ("ideal", 1))
    blocks = [
        served(arm, pair, 8, 0, 50 * size, 4 * size) for pair in range(4) for arm, size in sizes
    ]
    result = headroom(alternating(blocks))
    assert value(result.speedup) == pytest.approx(1.0)
    assert result.samples_per_batch == 8.0


def test_unknown_samples_are_told() -> None:
    """Batches are compared as they are, and that is said."""
    blocks = [*pairs(), served("real", 6, 8, 30, 70, -1), served("ideal", 6, 8, 0, 50)]
    result = headroom(alternating(blocks, prefetches=prefetches(40)))
    assert result.samples_per_batch is None
    assert codes(result.not_measured) == [Missing.SAMPLES, Missing.EPOCH_STARTS]
    assert result.loader_only_ns == 40 * MS


def test_the_loader_alone_is_per_batch_of_the_real_arm() -> None:
    """16 ms a sample are 64 ms a batch of four, and 1.28 ideal iterations."""
    result = headroom(alternating(pairs(), QUEUED, prefetches=prefetches(32, samples=16)))
    assert result.loader_only_ns == 64 * MS
    assert value(result.required) == pytest.approx(1.28)


def test_no_speed_is_required_of_a_loader_that_works_in_turn() -> None:
    """Without workers its time is added to the step's, however short it is."""
    result = headroom(alternating(pairs(), IN_PROCESS, prefetches=prefetches(32)))
    assert result.loader_only_ns == 32 * MS
    assert result.required is None


@pytest.mark.parametrize("samples", [None, 0])
def test_prefetches_without_samples_go_by_batch(samples: int | None) -> None:
    """Where a prefetch's samples are not known, or none, batches count as equal."""
    result = headroom(alternating(pairs(), prefetches=prefetches(32, samples)))
    assert result.loader_only_ns == 32 * MS


def test_a_loader_that_was_not_timed_alone_is_told() -> None:
    """Because nothing was prefetched, or all that was had been loaded before."""
    result = headroom(alternating(pairs()))
    assert (result.loader_only_ns, result.required) == (None, None)
    assert codes(result.not_measured) == [Missing.LOADER_ALONE, Missing.EPOCH_STARTS]
    ready = headroom(alternating(pairs(), prefetches=prefetches(0, None, 0)))
    assert codes(ready.not_measured) == [Missing.LOADER_ALONE_READY, Missing.EPOCH_STARTS]


def test_unreadable_workers_are_told() -> None:
    """Whether workers rested is not known, unless there are none."""
    more: dict[str, Any] = {"prefetches": prefetches(40)}
    for unread in ((), windows(None)):
        result = headroom(alternating(pairs(), QUEUED, windows=unread, **more))
        assert Missing.WORKERS_CPU in codes(result.not_measured)
    for loader, read in ((QUEUED, windows(0)), (IN_PROCESS, windows(None))):
        result = headroom(alternating(pairs(), loader, windows=read, **more))
        assert Missing.WORKERS_CPU not in codes(result.not_measured)


def test_busy_workers_leave_it_open() -> None:
    """Work in ideal blocks may hide a loss: unless it is found to be high all the same."""
    some = pairs(wait=5, real=50)
    result = headroom(alternating(some, QUEUED, windows=windows(80)))
    assert result.verdict == Verdict(objection=Objection.WORKERS_BUSY, workers_busy=0.2)
    assert codes(result.advice) == [VerdictAdvice.RESTING_WORKERS]
    high = headroom(alternating(pairs(), QUEUED, windows=windows(80)))
    assert high.verdict == HIGHLY
    assert high.cautions == (Remark(Caution.WORKERS_BUSY, {"cpu_share": 0.2}),)


def test_ticks_are_allowed_for() -> None:
    """A tick of 10 ms in a short window is no proof of work; other pairs and arms do not count."""
    some = pairs(wait=5, real=50)
    ticks = windows(5, elapsed_ms=80)
    other = (Window(99, 0, "ideal", MS, 900 * MS), Window(0, 0, "real", MS, 900 * MS))
    result = headroom(alternating(some, QUEUED, windows=(*ticks, *other)))
    assert result.verdict == Verdict(InputBound.MODERATELY, InputBound.MODERATELY)
    assert result.cautions == ()


def test_all_may_be_measured() -> None:
    """Nothing is missing then."""
    loader = replace(QUEUED, length=100)
    run = alternating(pairs(), loader, windows=windows(0), prefetches=prefetches(40))
    assert headroom(run).not_measured == ()


def test_few_batches_are_inconclusive() -> None:
    """There are under 20 in an arm."""
    result = headroom(alternating(pairs(2)))
    assert result.verdict.objection is Objection.TOO_FEW_BATCHES
    assert codes(result.advice) == [VerdictAdvice.MORE_PAIRS]


@pytest.mark.parametrize(("length", "objection"), [(20, None), (None, Objection.TOO_FEW_BATCHES)])
def test_the_first_batches_of_epochs_are_evidence(
    length: int | None, objection: Objection | None
) -> None:
    """Where whole epochs are told, they are part of what was measured: 2 beside 18."""
    blocks = []
    for epoch in range(2):
        blocks += [
            served("real", None, 1, 500, 70, epoch=epoch),
            served("real", epoch, 9, 30, 70, epoch=epoch),
            served("ideal", epoch, 10, 0, 50, epoch=epoch),
        ]
    result = headroom(alternating(blocks, replace(IN_PROCESS, length=length)))
    assert result.real_batches == 18
    assert result.verdict.objection is objection


def test_first_batches_are_no_evidence_of_the_ideal_arm() -> None:
    """It has none."""
    blocks = [served("real", None, 1, 500, 70)]
    for pair, ideal in enumerate((9, 10)):
        blocks += [served("real", pair, 20, 0, 50), served("ideal", pair, ideal, 0, 50)]
    result = headroom(alternating(blocks, replace(IN_PROCESS, length=60)))
    assert result.verdict.objection is Objection.TOO_FEW_BATCHES


def test_one_pair_is_inconclusive() -> None:
    """There is no interval to go by; two pairs have one."""
    blocks = [served(arm, pair, 24, 1, 9) for pair in (0, 1) for arm in ("real", "ideal")]
    of_one_pair, two = (headroom(alternating(some)) for some in (blocks[:2], blocks))
    assert of_one_pair.verdict.objection is Objection.NO_INTERVAL
    assert Missing.INTERVAL in codes(of_one_pair.not_measured)
    assert two.verdict.objection is None
    assert Missing.INTERVAL not in codes(two.not_measured)


def test_a_wide_interval_that_says_one_thing_is_no_obstacle() -> None:
    """All of it above 20% is high, however wide."""
    result = headroom(alternating(pairs(noise=40)))
    assert result.verdict == HIGHLY
    assert bounds(result.lost_share)[0] > 0.2


def test_a_wide_interval_is_inconclusive() -> None:
    """Wider than ten points of the share lost either way."""
    result = headroom(alternating(pairs(wait=0, real=60, noise=20)))
    assert result.verdict.objection is Objection.WIDE_INTERVAL
    assert codes(result.advice) == [VerdictAdvice.MORE_PAIRS]


@pytest.mark.parametrize(
    ("wait", "noise", "verdict"),
    [
        (0.5, 0.5, "not input-bound"),
        (2.5, 2, "not to moderately input-bound"),
        (6, 2, "moderately input-bound"),
        (12.5, 3, "moderately to highly input-bound"),
        (7, 12, "not to highly input-bound"),
        (30, 3, "highly input-bound"),
    ],
)
def test_an_interval_may_span_a_threshold(wait: float, noise: float, verdict: str) -> None:
    """Then both are said, and that more pairs would settle it."""
    result = headroom(alternating(pairs(wait=wait, real=50, noise=noise)))
    assert str(result.verdict) == verdict
    assert (VerdictAdvice.MORE_PAIRS in codes(result.advice)) is (" to " in verdict)


def test_no_loss_has_no_place() -> None:
    """Where free loading was no faster there is nothing of which most could be in waiting."""
    result = headroom(alternating(pairs(wait=0, real=49.8, noise=6)))
    assert result.verdict == Verdict(InputBound.NOT, InputBound.MODERATELY)
    assert value(result.lost_share) < 0
    assert codes(result.advice) == [VerdictAdvice.MORE_PAIRS]


@pytest.mark.parametrize(
    ("loader", "alone", "wait", "real", "advice"),
    [
        (QUEUED, 100, 50, 50, [VerdictAdvice.FASTER_LOADER]),
        (QUEUED, 100, 10, 90, [VerdictAdvice.FASTER_LOADER, VerdictAdvice.LESS_CONTENTION]),
        (QUEUED, 25, 50, 50, [VerdictAdvice.FAST_ENOUGH, VerdictAdvice.SMOOTHER_LOADING]),
        (QUEUED, 25, 10, 90, [VerdictAdvice.FAST_ENOUGH, VerdictAdvice.LESS_CONTENTION]),
        (IN_PROCESS, 25, 50, 50, [VerdictAdvice.LOAD_IN_BACKGROUND]),
        (IN_PROCESS, 100, 50, 50, [VerdictAdvice.LOAD_IN_BACKGROUND]),
    ],
)
def test_advice_goes_by_capacity(
    loader: LoaderInfo, alone: float, wait: float, real: float, advice: list[VerdictAdvice]
) -> None:
    """A loader too slow on its own, or fast enough and late all the same, or in the way."""
    result = headroom(
        alternating(pairs(wait=wait, real=real), loader, prefetches=prefetches(alone))
    )
    assert codes(result.advice) == advice
    if loader is QUEUED:
        assert result.advice[0].values == {"required": alone / 50}


def test_whole_epochs_have_their_starts_and_ends() -> None:
    """Per batch an epoch takes the steady iteration, and what its first batch and end add."""
    result = headroom(alternating(pairs(), ends=(EpochEnd(0, "exhausted", 0, 130 * MS),)))
    # 109 batches, of which the first takes 500 and 70; 109 x 50 would do.
    assert result.epoch_start_ns == 500 * MS
    assert value(result.epoch_starts_ns) == pytest.approx((570 - 100 + 130) / 109 * MS)
    assert result.whole_ns == pytest.approx((570 + 108 * 100 + 130) / 109 * MS)
    assert value(result.speedup) == pytest.approx((570 + 108 * 100 + 130) / (109 * 50))
    assert value(result.lost_share) == pytest.approx(1 - 109 * 50 / 11500)
    assert value(result.steady_speedup) == pytest.approx(2)


def test_the_parts_of_whole_epochs_add_up_to_the_last_bit() -> None:
    """Waiting, contention, and the starts and ends of epochs."""
    for seed in range(20):
        blocks = pairs(wait=7 + seed, real=61, ideal=53, noise=5)
        result = headroom(alternating(blocks, replace(IN_PROCESS, length=17 + seed)))
        parts = (result.waiting_ns, result.contention_ns, result.epoch_starts_ns)
        assert value(result.lost_ns) == sum(map(value, parts))
        assert result.whole_ns is not None
        assert result.ideal_ns is not None
        assert value(result.lost_ns) == pytest.approx(result.whole_ns - result.ideal_ns)


def test_of_an_epoch_of_unknown_length_the_steady_state_is_told() -> None:
    """Broken off, it tells neither its length nor its end; that is said."""
    result = headroom(alternating(pairs(), ends=(EpochEnd(0, "broken off"),)))
    assert result.speedup == result.steady_speedup
    assert result.epoch_starts_ns is None
    assert result.whole_ns == result.real_ns
    assert Missing.EPOCH_STARTS in codes(result.not_measured)


def test_the_length_that_the_loader_tells_will_do() -> None:
    """Where no epoch was served to its end; how long the end takes is left out."""
    ends = (EpochEnd(0, "broken off"),)
    result = headroom(alternating(pairs(), replace(IN_PROCESS, length=10), ends=ends))
    assert value(result.speedup) == pytest.approx((570 + 900) / 500)


def test_one_epoch_start_does_not_tell_how_they_vary() -> None:
    """This is said where it matters: from 2% of an epoch on."""
    short, long = (
        headroom(alternating(pairs(), replace(IN_PROCESS, length=length)))
        for length in (47, 47_000)
    )
    assert short.epoch_starts_ns == Estimate(10 * MS)
    assert short.cautions == (Remark(Caution.ONE_EPOCH, {"starts_share": 10 / 110}),)
    assert long.cautions == ()


def epochs(*starts: float, length: int = 109, noise: float = 0.0) -> Run:
    """An epoch of a real pace of 100 ms for each of these first waits; an ideal one takes 50."""
    blocks = []
    for epoch, start in enumerate(starts):
        blocks.append(served("real", None, 1, start, 70, epoch=epoch))
        for part in pairs(noise=noise)[1:]:
            pair = None if part.pair is None else part.pair + 6 * epoch
            blocks.append(replace(part, epoch=epoch, pair=pair))
    return alternating(blocks, replace(IN_PROCESS, length=length))


def test_what_epoch_starts_differ_by_is_in_the_intervals() -> None:
    """They use the t of one degree of freedom less than epochs were seen."""
    result = headroom(epochs(500, 800, 1400))
    added_ms = (np.array([500, 800, 1400]) - 30) / 109
    error = MeanError(added_ms.var(ddof=1) / 3, 2.0)
    half, whole = error.half_width, 100 + added_ms.mean()
    assert bounds(result.epoch_starts_ns) == pytest.approx(
        ((added_ms.mean() - half) * MS, (added_ms.mean() + half) * MS)
    )
    low, high = bounds(result.lost_ns)
    assert (high - low) / 2 == pytest.approx(half * MS)
    low, high = bounds(result.speedup)
    assert math.log(high / low) / 2 == pytest.approx(half / whole)
    assert bounds(result.steady_speedup) == pytest.approx((2, 2))


def test_noise_of_the_steady_part_and_of_epoch_starts_add_up() -> None:
    """First batches are no part of the steady one, whose error counts for the others alone."""
    noisy, alike = headroom(epochs(500, 1400, noise=9)), headroom(epochs(950, 950, noise=9))
    steady_half, half = (
        (high - low) / 2 for low, high in (bounds(result.lost_ns) for result in (alike, noisy))
    )
    low, high = bounds(alike.steady_speedup)
    # Nearly all of the error is the real arm's, here as there.
    of_ratio_ns = math.log(high / low) / 2 * 100 * MS
    assert steady_half == pytest.approx(of_ratio_ns * 108 / 109, rel=1e-3)
    assert half > steady_half


def test_cautions_are_for_one_epoch_alone() -> None:
    """Two epochs show what they differ by."""
    assert headroom(epochs(500, 800)).cautions == ()


def test_an_epoch_that_starts_from_memory_tells_no_epoch_start() -> None:
    """A batch that was prefetched came without its wait."""
    assert headroom(alternating(pairs()[3:])).epoch_start_ns is None


def starting(wait: float, length: int) -> Headroom:
    """The steady part waits for so long, and an epoch's first batch for 500 ms."""
    loader = replace(IN_PROCESS, length=length)
    return headroom(alternating(pairs(wait=wait, real=50), loader))


def test_slow_epoch_starts_are_advised_on() -> None:
    """The steady part loses little, and short epochs begin slowly."""
    result = starting(wait=1, length=20)
    assert result.verdict == HIGHLY
    assert codes(result.advice) == [VerdictAdvice.SHORTER_EPOCH_START]
    starts_share = (570 - 51) / 20 / (51 + (570 - 51) / 20)
    assert result.advice[0].values == {"starts_share": pytest.approx(starts_share)}


def test_epoch_starts_are_advised_on_beside_what_costs_more() -> None:
    """This begins at 5% of an epoch."""
    assert codes(starting(wait=60, length=50).advice) == [
        VerdictAdvice.LOAD_IN_BACKGROUND,
        VerdictAdvice.SHORTER_EPOCH_START,
    ]
    assert codes(starting(wait=60, length=500).advice) == [VerdictAdvice.LOAD_IN_BACKGROUND]


def test_waits_that_the_device_did_not_feel_are_told() -> None:
    """It was idle for less than half of them."""
    run = alternating(pairs())
    for idle_ms, expected in ((10, [Caution.HIDDEN_WAITS]), (20, [])):
        idle_ns = np.full(len(run.steps), idle_ms * MS)
        result = headroom(replace(run, steps=replace(run.steps, gpu_idle_ns=idle_ns)))
        assert result.gpu_idle_ns == idle_ms * MS
        assert codes(result.cautions) == expected


def test_without_a_pair_nothing_is_known() -> None:
    """With pairs of no time nothing is known either. Each case says so."""
    result = headroom(alternating(pairs()[:3]))
    assert (result.speedup, result.lost_share, result.real_ns, result.required) == (None,) * 4
    (cause,) = result.verdict.unmeasured
    assert (cause.code, cause.values["batches"]) == (Unmeasured.NO_PAIR, 10)
    assert result.verdict == Verdict(objection=Objection.NOT_MEASURED, unmeasured=(cause,))
    assert result.pairs == 0
    no_time = headroom(alternating(pairs(wait=0, real=0)))
    assert codes(no_time.verdict.unmeasured) == [Unmeasured.NO_TIME]


def test_other_runs_are_no_alternating_ones() -> None:
    """The reverse is refused too. Each error says what was expected."""
    run = alternating(pairs())
    logged = replace(run, header=replace(run.header, mode="log"))
    with pytest.raises(UsageError, match="mode='log'; expected a run with mode='alternate'"):
        headroom(logged)
    with pytest.raises(UsageError, match="mode='alternate'; expected a run with mode='log'"):
        headroom_of_two(run, run)


def test_the_summary_is_of_one_arm() -> None:
    """The default is what counts of the real arm; waits at epoch starts are the loader's own."""
    run = alternating(pairs())
    assert summarise(run).iteration_ns == 100 * MS
    assert summarise(run, "ideal").iteration_ns == 50 * MS
    assert summarise(run, "ideal").steady_batches == 48
    assert summarise(run).epoch_start_ns == (500 * MS,)
    assert summarise(alternating([served("ideal", 0, 3, 0, 50)])).iteration_ns == 50 * MS
    assert summarise(alternating([])).steady_batches == 0


def test_the_arm_of_another_run_may_be_asked_for() -> None:
    """A logged run has a real arm and no ideal one."""
    run = alternating(pairs()[:1])
    logged = replace(run, header=replace(run.header, mode="log", warmup=0))
    assert summarise(logged, "real").steady_batches == 1
    assert summarise(logged, "ideal").steady_batches == 0


def stalled(longest_ms: float, blocks: list[Block] | None = None, depth: int = 0) -> Any:
    """Six pairs that agree, 5% lost, and a wait of `longest_ms` in a prefetch."""
    run = alternating(pairs(wait=5, real=100, ideal=100) if blocks is None else blocks)
    loader = replace(run.header.loader, prefetch_depth=depth)
    return headroom(
        replace(run, header=replace(run.header, loader=loader), prefetches=prefetched(longest_ms))
    )


def test_a_stall_beside_the_counted_batches_widens_the_interval() -> None:
    """It adds three such stalls to the counted ones; 48 batches of 105 ms, 1 s in a prefetch."""
    result, more_ms = stalled(1005), 3 * 1000 / 48
    for ratio in (result.speedup, result.steady_speedup):
        assert bounds(ratio) == pytest.approx((1.05, 1.05 + more_ms / 100))
    for lost in (result.lost_ns, result.waiting_ns):
        assert bounds(lost) == pytest.approx((5 * MS, (5 + more_ms) * MS))
    assert bounds(result.contention_ns) == (0, 0)
    assert bounds(result.lost_share)[1] == pytest.approx(1 - 100 / (105 + more_ms))


def test_stalls_too_rare_to_count_are_inconclusive() -> None:
    """It is told by how much the stall was longer, and the advice asks for more."""
    result = stalled(1005)
    assert result.verdict == MISSED
    assert codes(result.advice) == [VerdictAdvice.MORE_PAIRS]


def test_a_stall_that_could_not_matter_is_let_pass() -> None:
    """One that is small beside the counted time, that the queue hides, or that was counted too."""
    assert stalled(200).verdict.objection is None
    assert stalled(1005, depth=10).verdict.objection is None
    counted = pairs(wait=5, real=100, ideal=100)
    counted += [served("real", 6, 1, 1005, 100), served("real", 6, 7, 5, 100)]
    counted += [served("ideal", 6, 8, 0, 100)]
    assert stalled(1005, counted).verdict.missed_ns == 0


def test_a_stall_in_a_warm_up_is_seen() -> None:
    """The first wait of one, which includes the prefetch, and epoch starts are no stalls."""
    first = [served("real", None, 1, 9000, 100), *pairs(wait=5, real=100, ideal=100)[1:]]
    assert stalled(0, first).verdict.objection is None
    later = [*first, served("real", None, 1, 9000, 100), served("real", None, 1, 1005, 100)]
    assert stalled(0, later).verdict == MISSED
