"""Intervals of means, ratios and differences, against SciPy's and by hand."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # it ships no types

from loadeval.analysis.estimate.intervals import (
    FEWEST_TIMES,
    MOST_FREEDOM,
    UNLIKE,
    AllWaits,
    MeanError,
    MeanTime,
    around,
    difference,
    error_of_difference,
    error_of_mean,
    ratio,
    ratio_interval,
    ratio_of,
    student,
    sum_of_errors,
)
from loadeval.analysis.estimate.stats import (
    Estimate,
    Series,
)
from tests.analysis.numbers import bounds, in_pairs
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.data.columns import Column

Lengths = list[tuple[int, int]]
"""Of the real and the ideal block of each pair."""


VALUES = st.integers(-1000, 1000)


PARTS_OF_UNEQUAL_LENGTH = ([4, 12, 8], [10, 4, 6])


@given(st.floats(1, 10_000))
def test_student_is_scipys(freedom: float) -> None:
    """The quantile of 97.5%, to four digits; to three for less than two degrees of freedom."""
    expected = stats.t.ppf(0.975, freedom)
    assert student(freedom) == pytest.approx(expected, rel=1e-4 if freedom >= 2 else 1e-3)


def test_half_a_width_is_students() -> None:
    """It is as many standard errors as the degrees of freedom ask for."""
    assert MeanError(4.0, 6.0).half_width == pytest.approx(2 * stats.t.ppf(0.975, 6), rel=1e-4)


@given(st.lists(VALUES, min_size=3, max_size=30), st.lists(VALUES, min_size=3, max_size=30))
def test_errors_add_up_as_welchs_do(first: list[int], other: list[int]) -> None:
    """Variances add up, and the degrees of freedom are Satterthwaite's."""
    assume(np.var(first) > 0 < np.var(other))
    errors = (MeanError(float(np.var(x, ddof=1)) / len(x), len(x) - 1) for x in (first, other))
    error = sum_of_errors(*errors)
    welch = stats.ttest_ind(first, other, equal_var=False)
    assert error is not None
    assert error.freedom == pytest.approx(welch.df)
    low, high = welch.confidence_interval(0.95)
    assert error.half_width == pytest.approx((high - low) / 2, rel=5e-3)


def test_a_sum_has_an_error_where_all_have_one() -> None:
    """One that is not known makes the sum unknown."""
    assert sum_of_errors(MeanError(1.0, 6.0), None) is None


def test_degrees_of_freedom_have_bounds() -> None:
    """No error at all is known for sure, as far as that matters, and 1 is the least."""
    assert sum_of_errors(MeanError(0.0, 6.0)) == MeanError(0.0, MOST_FREEDOM)
    assert sum_of_errors(MeanError(1.0, 1e9)) == MeanError(1.0, MOST_FREEDOM)
    assert sum_of_errors(MeanError(1.0, 0.5)) == MeanError(1.0, 1.0)


def windowed(series: Series) -> MeanError:
    """Overlapping batch means, window by window."""
    length = max(1, round(len(series) / 7))
    means = [series[start : start + length].mean() for start in range(len(series) - length + 1)]
    squares = [(mean - series.mean()) ** 2 for mean in means]
    freedom = len(series) / length - 1
    return MeanError(sum(squares) / len(squares) / freedom, freedom)


def correlation(series: Series) -> float:
    """The correlation of each value with the next one."""
    deviations = series - series.mean()
    return float(sum(a * b for a, b in pairwise(deviations)) / (deviations**2).sum())


@given(st.lists(VALUES, min_size=FEWEST_TIMES, max_size=90))
def test_the_error_is_that_of_overlapping_windows(values: list[int]) -> None:
    """This holds where neighbours do not visibly depend on each other."""
    series = np.array(values, dtype=np.float64)
    assume(np.ptp(series) > 0 and correlation(series) < 2 / math.sqrt(len(series)))
    error, expected = error_of_mean(series), windowed(series)
    assert error is not None
    assert error.variance == pytest.approx(expected.variance, abs=1e-9)
    assert error.freedom == pytest.approx(expected.freedom)


def remembering(series: Series) -> MeanError:
    """The error of an AR(1) process with the correlation of `series`, corrected for its bias."""
    count, correlated = len(series), correlation(series)
    correlated = min(correlated + (1 + 3 * correlated) / count, 0.99)
    memory = (1 + correlated) / (1 - correlated)
    variance = series.var(ddof=1) / count * memory / (1 - min(2 * memory / count, 0.5))
    return MeanError(float(variance), max(count / memory - 1, 1.5))


@pytest.mark.parametrize("memory", [0.2, 0.4, 0.8, 0.98])
@pytest.mark.parametrize("count", [12, 30, 90])
def test_visible_memory_widens_the_error_to_that_of_its_process(memory: float, count: int) -> None:
    """This holds where it is wider than the windows' own."""
    for seed in range(30):
        series = autoregressive(count, memory, seed)
        expected = windowed(series)
        if correlation(series) > 2 / math.sqrt(count):
            expected = max(
                expected, remembering(series), key=lambda candidate: candidate.half_width
            )
        error = error_of_mean(series)
        assert error is not None
        assert (error.variance, error.freedom) == pytest.approx(
            (expected.variance, expected.freedom)
        )


def test_independent_values_have_the_textbook_error() -> None:
    """On average it is their variance over their number."""
    random = np.random.default_rng(0)
    errors = [error_of_mean(random.normal(size=96)) for _ in range(300)]
    variances = [error.variance for error in errors if error is not None]
    assert np.mean(variances) * 96 == pytest.approx(1.0, abs=0.15)


def autoregressive(count: int, memory: float, seed: int = 0) -> Series:
    """Each value is `memory` times the last one and a normal number of variance 1."""
    random = np.random.default_rng(seed)
    series = np.zeros(count)
    value = random.normal() / math.sqrt(1 - memory**2)
    for place in range(count):
        series[place] = value = memory * value + random.normal()
    return series


def test_a_long_memory_is_in_the_error() -> None:
    """The mean of AR(1) has the variance 1 / (n (1 - memory)^2); too small would be no bound."""
    for memory in (0.5, 0.9):
        errors = [error_of_mean(autoregressive(400, memory, seed)) for seed in range(100)]
        truth = 1 / 400 / (1 - memory) ** 2
        mean = np.mean([error.variance for error in errors if error is not None])
        assert 0.9 * truth < mean < 2 * truth


def test_batches_that_go_together_are_less_sure() -> None:
    """The mean of a slow wave is less certain than that of the same values in any order."""
    wave = np.sin(np.arange(400) / 20)
    shuffled = np.random.default_rng(0).permutation(wave)
    slow, quick = error_of_mean(wave), error_of_mean(shuffled)
    assert slow is not None
    assert quick is not None
    assert slow.half_width > 3 * quick.half_width


def test_few_times_that_go_together_tell_their_memory_badly() -> None:
    """Half of them at one pace and half at another count as hardly two."""
    error = error_of_mean(np.repeat([1.0, 2.0], 8))
    assert error is not None
    assert error.freedom == 1.5


def test_what_does_not_follow_on_one_another_shows_no_memory() -> None:
    """The first of a part does not depend on the last of the one before."""
    series = autoregressive(60, 0.9)
    together, apart = error_of_mean(series), error_of_mean(series, np.arange(60))
    assert together is not None
    assert apart is not None
    assert apart.half_width < together.half_width
    assert apart.variance == pytest.approx(windowed(series).variance)


def test_values_that_are_all_alike_have_no_error() -> None:
    """Nothing is unsure."""
    assert error_of_mean(np.full(20, 3.0)) == MeanError(0.0, 20 / 3 - 1)


def test_a_short_series_has_no_error() -> None:
    """Short means under eight values."""
    assert error_of_mean(np.arange(FEWEST_TIMES - 1.0)) is None
    assert error_of_mean(np.arange(FEWEST_TIMES * 1.0)) is not None


def test_a_mean_is_a_ratio_of_sums() -> None:
    """The mean is by amount, of which entries may have more or less."""
    assert MeanTime(np.array([10.0, 20.0]), np.array([1.0, 5.0])).mean_ns == 5.0


def test_an_entry_deviates_by_what_it_has_beyond_the_mean() -> None:
    """The error of a mean is that of a ratio: twice the time of twice the amount is no error."""
    amount = np.array([1.0, 2.0, 3.0] * 4)
    error = MeanTime(5 * amount, amount).error()
    assert error is not None
    assert error.variance == pytest.approx(0.0, abs=1e-12)


def test_a_scaled_mean_has_a_scaled_error() -> None:
    """The variance grows by the square of the scale."""
    time = MeanTime(autoregressive(40, 0.0), np.ones(40))
    error, tenfold = time.error(), time.error(10.0)
    assert error is not None
    assert tenfold is not None
    assert tenfold.variance == pytest.approx(100 * error.variance)


def by_pair(pairs: int, block: int) -> tuple[Column, Series]:
    """The pairs of blocks of one length, and their numbers as places."""
    pair = np.repeat(np.arange(pairs), block)
    return pair, pair.astype(np.float64)


def some_waits(all_ns: Series) -> MeanTime:
    """Steps of 10 with waits of 2, where `all_ns` are those of all batches."""
    waits = AllWaits(np.full(8, 2.0), all_ns, np.ones(len(all_ns)))
    return MeanTime(np.full(8, 12.0), np.ones(8), *by_pair(2, 4), waits)


def test_waits_of_all_batches_take_the_place_of_those_measured() -> None:
    """A stall beside them is in the mean."""
    assert some_waits(np.array([2.0] * 18 + [22.0] * 2)).mean_ns == pytest.approx(10 + 4)


def test_the_error_of_all_waits_is_in_that_of_the_mean() -> None:
    """It is in that of a difference too; nothing else varies here."""
    all_ns = autoregressive(100, 0.0) + 10
    time, alone = some_waits(all_ns), error_of_mean(all_ns)
    ideal = MeanTime(np.full(8, 9.0), np.ones(8), *by_pair(2, 4))
    assert alone is not None
    for error in (time.error(3.0), error_of_difference(time, ideal, 3.0, 1.0)):
        assert error is not None
        assert error.half_width == pytest.approx(3 * alone.half_width, rel=1e-6)


def test_drift_of_all_waits_is_no_error() -> None:
    """The waits follow the ideal iterations at their places."""
    level = np.linspace(0.5, 1.5, 100)
    waits = AllWaits(np.full(8, 2.0), 2 * level, level)
    time = MeanTime(np.full(8, 12.0), np.ones(8), *by_pair(2, 4), waits)
    error = time.error()
    assert error is not None
    assert error.variance == pytest.approx(0.0, abs=1e-12)


def test_the_waits_of_a_run_by_itself_have_no_level() -> None:
    """Their error is that of their mean, drift included."""
    waits_ns = np.linspace(1.0, 3.0, 40)
    error = MeanTime(waits_ns, np.ones(40), all_waits=AllWaits.of_run(waits_ns)).error()
    alone = error_of_mean(waits_ns)
    assert error is not None
    assert alone is not None
    assert error.half_width == pytest.approx(alone.half_width)


def pace(levels: list[float], lengths: list[int]) -> MeanTime:
    """A block at each level, of as many batches as it is long."""
    return in_pairs([np.full(count, level) for level, count in zip(levels, lengths, strict=True)])


def test_what_moves_both_arms_alike_is_no_uncertainty() -> None:
    """A pair at half the pace is as good as any other."""
    estimate = ratio(pace([2, 4, 8], [4, 4, 4]), pace([1, 2, 4], [4, 4, 4]))
    assert (estimate.value, *bounds(estimate)) == pytest.approx((2.0, 2.0, 2.0))


def test_drift_does_not_tilt_blocks_of_unequal_length() -> None:
    """Each ideal block counts for as much as the real one of its pair; sums alone are tilted."""
    real, ideal = (
        pace([factor * level for level in (1, 2, 4)], lengths)
        for factor, lengths in zip((2, 1), PARTS_OF_UNEQUAL_LENGTH, strict=True)
    )
    estimate = ratio(real, ideal)
    assert (estimate.value, *bounds(estimate)) == pytest.approx((2.0, 2.0, 2.0))
    assert abs(real.mean_ns / ideal.mean_ns - 2) > 0.1


def test_drift_does_not_tilt_a_difference() -> None:
    """Each pair loses as much."""
    levels, (long, short) = [1.0, 2.0, 4.0], PARTS_OF_UNEQUAL_LENGTH
    estimate = difference(
        pace([level + 3 for level in levels], long), pace(levels, short), scale=2.0
    )
    assert (estimate.value, *bounds(estimate)) == pytest.approx((6.0, 6.0, 6.0))


def test_blocks_weigh_by_their_amount() -> None:
    """A pair of large batches counts for more of them, whatever their number is."""
    pair, place = by_pair(2, 4)
    real = MeanTime(np.ones(8), np.where(pair == 0, 3.0, 1.0), pair, place)
    ideal = MeanTime(np.where(pair == 0, 1.0, 2.0), np.ones(8), pair, place)
    assert ideal.reweighted_to(real).mean_ns == pytest.approx((3 * 1 + 1 * 2) / 4)


def test_batches_of_unequal_amount_are_no_uncertainty() -> None:
    """The level of their pair does not matter."""
    (pair, place), amount = by_pair(2, 6), np.array([1.0, 2.0, 3.0] * 4)
    level = np.where(pair == 0, 1.0, 4.0)
    real = MeanTime(2 * level * amount, amount, pair, place)
    ideal = MeanTime(level, np.ones(12), pair, place)
    estimate = ratio(real, ideal)
    assert (estimate.value, *bounds(estimate)) == pytest.approx((2.0, 2.0, 2.0))


IN_TURN = MeanTime(
    total_ns=np.array([1.0, 2.0, 3.0, 10.0, 10.0, 40.0]),
    amount=np.array([1.0, 1.0, 1.0, 1.0, 1.0, 2.0]),
    pair=np.array([0, 0, 0, 1, 1, 2]),
    place=np.array([0.0, 1.0, 2.0, 10.0, 12.0, 31.0]),
)
"""Blocks with means of 2, 10 and 20 by amount, centred at places 1, 11 and 31."""


@pytest.mark.parametrize(
    ("place", "level"),
    [(1, 2), (11, 10), (31, 20), (6, 6), (3.5, 4), (16, 12.5), (21, 15), (0, 2), (-9, 2), (99, 20)],
)
def test_ideal_iterations_are_interpolated(place: float, level: float) -> None:
    """This is between the centres of blocks; beyond these they are as in the outermost block."""
    assert IN_TURN.at(np.array([place])) == pytest.approx([level])


def test_a_single_ideal_block_is_as_good_everywhere() -> None:
    """There is nothing to interpolate."""
    ideal = MeanTime(np.array([1.0, 3.0]), np.ones(2), np.zeros(2, np.int64), np.array([4.0, 5.0]))
    assert ideal.at(np.array([0.0, 4.5, 9.0])).tolist() == [2, 2, 2]
    real = MeanTime(np.ones(3), np.ones(3), np.zeros(3, np.int64), np.array([0.0, 1.0, 9.0]))
    weighted = ideal.reweighted_to(real)
    assert weighted.mean_ns == pytest.approx(2)
    assert weighted.amount.sum() == pytest.approx(3)


def test_only_blocks_of_an_alternating_run_are_interpolated() -> None:
    """Another run has none."""
    with pytest.raises(TypeError, match="alternating"):
        MeanTime(np.ones(8), np.ones(8)).at(np.zeros(1))


@given(st.lists(st.floats(-10, 50), min_size=1), st.data())
def test_weights_sum_to_the_real_amount(places: list[float], data: st.DataObject) -> None:
    """The weighted mean is that of the ideal iterations at the places of real samples."""
    sizes = st.lists(st.integers(1, 9), min_size=len(places), max_size=len(places))
    amount, place = np.array(data.draw(sizes), dtype=np.float64), np.array(places)
    real = MeanTime(np.ones(len(place)), amount, np.zeros(len(place), np.int64), place)
    weighted = IN_TURN.reweighted_to(real)
    assert weighted.amount.sum() == pytest.approx(amount.sum())
    assert weighted.mean_ns == pytest.approx(np.average(IN_TURN.at(place), weights=amount))


def test_a_block_that_no_real_time_is_near_has_next_to_no_weight() -> None:
    """What it took does not matter."""
    weighted = IN_TURN.reweighted_to(
        MeanTime(np.ones(2), np.ones(2), np.array([0, 0]), np.array([1, 6]))
    )
    assert weighted.amount[-1] < 1e-6


def alternated(lengths: Lengths) -> tuple[MeanTime, MeanTime]:
    """A real and an ideal block of these lengths in each pair; times are 50 and their place.

    The ideal block comes first in the first of two pairs, and last in the second, so no real time
    lies beyond the centres of the ideal blocks.
    """
    arms, pairs = [], []
    for number, (first, second) in enumerate(lengths):
        pair = [*["real"] * first, *["ideal"] * second]
        arms += pair if number % 2 else pair[::-1]
        pairs += [number] * len(pair)
    place = np.arange(len(arms), dtype=np.float64)
    real, ideal = (
        MeanTime(50 + place[rows], np.ones(rows.sum()), np.array(pairs)[rows], place[rows])
        for rows in (np.array(arms) == arm for arm in ("real", "ideal"))
    )
    return real, ideal


def flat(time: MeanTime) -> MeanTime:
    """Each block at the mean pace of its batches."""
    assert time.pair is not None
    means_ns = np.bincount(time.pair, time.total_ns) / np.bincount(time.pair)
    return replace(time, total_ns=means_ns[time.pair])


LENGTHS = st.tuples(st.integers(4, 40), st.integers(1, 40))


PAIRS = st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=4).map(
    lambda twos: [pair for two in twos for pair in two]
)


@given(PAIRS)
def test_linear_drift_does_not_tilt_a_ratio(lengths: Lengths) -> None:
    """The lengths of blocks do not matter."""
    real, ideal = alternated(lengths)
    assert ratio(replace(real, total_ns=2 * real.total_ns), ideal).value == pytest.approx(2)


@given(PAIRS)
def test_linear_drift_is_no_uncertainty_of_a_ratio(lengths: Lengths) -> None:
    """It must not look like noise within an ideal block."""
    real, ideal = alternated(lengths)
    estimate = ratio(replace(real, total_ns=2 * real.total_ns), flat(ideal))
    assert (estimate.value, *bounds(estimate)) == pytest.approx((2, 2, 2))


@given(PAIRS)
def test_linear_drift_is_no_uncertainty_of_a_difference(lengths: Lengths) -> None:
    """Each real time loses as much."""
    real, ideal = alternated(lengths)
    estimate = difference(replace(real, total_ns=real.total_ns + 3), flat(ideal), scale=2.0)
    assert (estimate.value, *bounds(estimate)) == pytest.approx((6, 6, 6))


def test_drift_within_ideal_blocks_counts_as_their_noise() -> None:
    """So the interval is a little wide."""
    real, ideal = alternated([(40, 20)] * 4)
    low, high = bounds(ratio(real, ideal))
    assert 0.9 < low < 1 < high < 1.1


def test_without_pairs_there_is_no_weight() -> None:
    """Separate runs are compared as they are."""
    real, ideal = pace([1, 2], [4, 4]), MeanTime(np.ones(8), np.ones(8))
    assert ideal.reweighted_to(real) is ideal
    assert real.reweighted_to(ideal) is real


def test_separate_runs_add_up_their_errors() -> None:
    """They add up as independent errors do."""
    real, other = (MeanTime(autoregressive(50, 0.0, seed) + 10, np.ones(50)) for seed in (1, 2))
    expected = sum_of_errors(real.error(2.0), other.error(3.0))
    assert error_of_difference(real, other, 2.0, 3.0) == expected


@pytest.mark.parametrize(("pairs", "batches"), [(1, 40), (2, 3)])
def test_with_too_little_there_is_no_interval(pairs: int, batches: int) -> None:
    """One pair does not show what pairs differ by; a value there is all the same."""
    lengths = [batches] * pairs
    estimate = ratio(pace([3.0] * pairs, lengths), pace([2.0] * pairs, lengths))
    assert estimate == Estimate(1.5, None, None)
    estimate = difference(pace([3.0] * pairs, lengths), pace([2.0] * pairs, lengths))
    assert estimate == Estimate(1.0, None, None)


def test_two_pairs_of_four_batches_have_an_interval() -> None:
    """This is the least that has one."""
    assert bounds(ratio(pace([3, 3], [4, 4]), pace([2, 2], [4, 4]))) == pytest.approx((1.5, 1.5))


@pytest.mark.parametrize(("pairs", "block"), [(2, 40), (12, 4), (4, 30)])
def test_noise_of_ideal_blocks_is_in_the_error(pairs: int, block: int) -> None:
    """So it is where windows are shorter than a block, and see little of its mean's error."""
    random, variances = np.random.default_rng(5), []
    count = pairs * block
    for _ in range(200):
        real, ideal = (in_pairs(list(100 + random.normal(size=(pairs, block)))) for _ in range(2))
        error = error_of_difference(real, ideal, 1.0, 1.0)
        assert error is not None
        variances.append(error.variance)
    assert 0.9 * 2 / count < np.mean(variances) < 1.5 * 2 / count


def seen(window: int, block: int) -> float:
    """The share of the variance of independent blocks that the means over windows have."""
    starts = np.linspace(0, block, 2001)[:, None]
    edges = np.arange(window // block + 3) * block
    overlaps = np.minimum(edges[1:], starts + window) - np.maximum(edges[:-1], starts)
    parts = np.maximum(overlaps, 0) / window
    return float((parts**2).sum(axis=1).mean()) * window / block


@pytest.mark.parametrize("rest", [1.0, 0.75])
@pytest.mark.parametrize(("pairs", "block"), [(2, 40), (7, 8), (12, 4)])
def test_what_windows_do_not_see_of_ideal_noise_is_added(
    pairs: int, block: int, rest: float
) -> None:
    """Waits of all batches, which are not in the series, are seen beside the same noise."""
    count, columns = pairs * block, by_pair(pairs, block)
    noise = np.tile([1.0, -1.0], count // 2)
    waits = AllWaits.of_run(np.full(count, 100 * (1 - rest)))
    real = MeanTime(np.full(count, 100.0), np.ones(count), *columns, waits)
    error = error_of_difference(real, MeanTime(50 + noise, np.ones(count), *columns), 1.0, 1.0)
    missed = 1 - seen(round(count / 7), block)
    of_mean = block / (block - 1) / count
    assert error is not None
    expected = of_mean * (missed * rest**2 + 2 * rest * (1 - rest))
    assert error.variance == pytest.approx(expected, rel=1e-3)


def real_alone(series: Series, pairs: int) -> MeanError:
    """The error of real times in blocks of one length, beside ideal ones that do not vary."""
    columns = by_pair(pairs, len(series) // pairs)
    real, ideal = (MeanTime(times, np.ones(len(times)), *columns) for times in (series, 0 * series))
    error = error_of_difference(real, ideal, 1.0, 1.0)
    assert error is not None
    return error


def over_pairs(series: Series, pairs: int) -> MeanError:
    """The error of the mean of the means of `pairs` blocks of one length."""
    means = series.reshape(pairs, -1).mean(axis=1)
    return MeanError(means.var(ddof=1) / pairs, pairs - 1)


def by_memory(series: Series, pairs: int) -> MeanError:
    """The wider one of the errors by windows and by memory within pairs."""
    error = error_of_mean(series, by_pair(pairs, len(series) // pairs)[0])
    assert error is not None
    return error


def widths(*errors: MeanError) -> list[float]:
    return [error.half_width for error in errors]


@pytest.mark.parametrize("pairs", [2, 4, 6])
def test_pairs_that_differ_are_the_observations(pairs: int) -> None:
    """The mean of each is one, and there is a degree of freedom less than pairs.

    Even where neighbours are unlike.
    """
    series = np.repeat(np.arange(pairs) % 2, 40) + 5.0 * np.tile([1, -1], 20 * pairs)
    assert correlation(series) < 0
    error, expected = real_alone(series, pairs), over_pairs(series, pairs)
    assert error.freedom == pairs - 1
    assert error.variance == pytest.approx(expected.variance)


def test_pairs_of_unequal_length_that_differ_weigh_by_their_batches() -> None:
    """What one adds to the error of the mean is the sum of its deviations."""
    blocks = [np.full(count, level) for count, level in ((30, 1.0), (50, 9.0), (40, 1.0))]
    series = np.concatenate(blocks)
    ideal = [np.zeros(len(block)) for block in blocks]
    error = error_of_difference(in_pairs(blocks), in_pairs(ideal), 1.0, 1.0)
    sums = [(block - series.mean()).sum() for block in blocks]
    assert error is not None
    assert error.variance == pytest.approx(np.square(sums).sum() / 120**2 * 3 / 2)
    assert error.freedom == 2


def test_pairs_that_are_alike_leave_the_error_to_windows() -> None:
    """Their means tell nothing then."""
    for seed in range(30):
        series = np.random.default_rng(seed).normal(size=(4, 40))
        alike = (series - series.mean(axis=1, keepdims=True)).ravel()
        error, expected = real_alone(alike, 4), windowed(alike)
        assert error.variance == pytest.approx(expected.variance)
        assert error.freedom == pytest.approx(expected.freedom)


def test_strong_memory_falls_back_to_pairs_where_these_are_narrower() -> None:
    """They tell more than a memory that is known from few neighbours."""
    series = autoregressive(240, 0.95, seed=47)
    error, by_pairs = real_alone(series, 12), over_pairs(series, 12)
    assert by_pairs.variance < UNLIKE * windowed(series).variance
    assert windowed(series).half_width < by_pairs.half_width < by_memory(series, 12).half_width
    assert error.half_width == pytest.approx(by_pairs.half_width)


def test_strong_memory_counts_where_pairs_are_wider() -> None:
    """Few pairs have wide intervals."""
    series = autoregressive(240, 0.8, seed=0)
    error, memory = real_alone(series, 4), by_memory(series, 4)
    assert windowed(series).half_width < memory.half_width < over_pairs(series, 4).half_width
    assert error.half_width == pytest.approx(memory.half_width)


def test_no_error_is_narrower_than_that_of_windows() -> None:
    """It is not where pairs agree by chance, however strong the memory is."""
    narrower = 0
    for seed in range(60):
        series = autoregressive(240, 0.9, seed)
        width, windows, pairs = widths(
            real_alone(series, 12), windowed(series), over_pairs(series, 12)
        )
        assert width >= windows * (1 - 1e-9)
        narrower += pairs < windows
    assert narrower


def test_hopeless_noise_does_not_overflow() -> None:
    """The interval is as good as without bounds."""
    wild = MeanTime(np.array([1e9, 1.0] * 4), np.ones(8), *by_pair(2, 4))
    assert math.isfinite(bounds(ratio(wild, wild))[1])
    assert math.isfinite(bounds(ratio_interval(1.0, MeanError(1e9, 1.0)))[1])


def test_the_interval_of_a_ratio_is_that_of_its_logarithm() -> None:
    """The interval of a difference lies around it."""
    error = MeanError(0.01, 6.0)
    factor = math.exp(error.half_width)
    assert bounds(ratio_interval(2.0, error)) == pytest.approx((2 / factor, 2 * factor))
    assert bounds(around(2.0, error)) == pytest.approx((2 - error.half_width, 2 + error.half_width))
    assert ratio_interval(2.0, None) == around(2.0, None) == Estimate(2.0)


def test_a_ratio_of_two_estimates_is_that_of_fieller() -> None:
    """Its bounds r are where the difference of one and r times the other just may be 0."""
    one, other = Estimate(12.0, 10.0, 14.0), Estimate(4.0, 3.0, 5.0)
    quotient = ratio_of(one, other)
    assert quotient.value == 3.0
    for bound in bounds(quotient):
        half_width = math.hypot(2.0, bound * 1.0)
        assert abs(one.value - bound * other.value) == pytest.approx(half_width)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Estimate(12.0), Estimate(4.0, 3.0, 5.0)),
        (Estimate(12.0, 10.0, 14.0), Estimate(4.0)),
        (Estimate(12.0, 10.0, 14.0), Estimate(4.0, -1.0, 9.0)),
        (Estimate(12.0, 10.0, 14.0), Estimate(4.0, 1.0, 9.0)),
    ],
)
def test_a_ratio_to_what_may_be_0_has_no_interval(one: Estimate, other: Estimate) -> None:
    """Nor has one of an estimate that has none."""
    assert ratio_of(one, other) == Estimate(3.0)
