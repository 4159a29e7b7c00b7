"""Times that vary: stalls, outliers, a run that slows down."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.report import Report
from loadeval.analysis.rules.diagnosis import diagnose
from loadeval.analysis.rules.finding import Advice, Problem, Rule, Unknown
from loadeval.analysis.summary import iterations_of
from loadeval.evaluator import LoaderEvaluator
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import LoaderInfo
from loadeval.testing import FakeClock, ScriptedLoader
from tests.analysis.rules.conftest import NOTHING, advised, finding, numbers, outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.runlog.model import Run
    from tests.analysis.rules.conftest import MakeRun

WORKERS = LoaderInfo("torch.utils.data.DataLoader", workers=2, prefetch_depth=4)
NO_WORKERS = LoaderInfo("torch.utils.data.DataLoader", workers=0)
STEADY = 100_000.0


def stalling(every: int, count: int = 400, stall: int = 2000) -> list[int]:
    """Waits with a stall in every so manieth, beginning with the last of the first so many."""
    return [stall if number % every == every - 1 else 1 for number in range(count)]


def noisy(level: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[int]:
    """Values about `level`, of which each is up to 2% off."""
    spread = np.random.default_rng(0).uniform(0.98, 1.02, len(level))
    return [int(value) for value in np.asarray(level) * spread]


def test_most_of_the_waiting_is_for_few_batches(make_run: MakeRun) -> None:
    """Their share, their number, and which they were are told, the longest first."""
    waits = stalling(100)
    waits[199] = 3000
    found = finding(Rule.STALLS, make_run(waits, 99, loader=WORKERS))
    shares = {
        "wait_share": pytest.approx(0.958, abs=1e-3),
        "time_share": pytest.approx(0.1842, abs=1e-3),
    }
    assert found.problem.values == {"stalls": 4, "batches": 400, **shares}
    assert [place.batch for place in found.places] == [199, 99, 299, 399]
    assert advised(found) == [
        Advice.FIND_SLOW_BATCHES,
        Advice.RAISE,
        Advice.HIDES_QUEUE_LENGTH,
    ]
    assert found.severity == "moderate"
    # A loader that loads nothing ahead has no queue.
    alone = finding(Rule.STALLS, make_run(stalling(100), 99, loader=NO_WORKERS))
    assert advised(alone) == [Advice.FIND_SLOW_BATCHES]


@pytest.mark.parametrize(
    ("waits", "step"),
    [
        ([30 if number % 10 else 60 for number in range(400)], 90),  # spread evenly
        ([0] * 400, 90),
        (stalling(100, stall=400), 99),  # waiting under 5% of the time
    ],
)
def test_waiting_that_is_no_stall(make_run: MakeRun, waits: list[int], step: int) -> None:
    """Half of it in a hundredth of the batches is the least."""
    assert outcome(Rule.STALLS, make_run(waits, step)) == NOTHING


@pytest.mark.parametrize(
    ("every", "code", "values"),
    [
        (100, Advice.FIND_SLOW_WORKER, {"period": 100, "workers": 2}),
        (101, Advice.FIND_PERIOD, {"period": 101}),
    ],
)
def test_stalls_come_regularly(
    make_run: MakeRun, every: int, code: Advice, values: dict[str, int]
) -> None:
    """The period is told, and what it points to."""
    run = make_run(stalling(every, every * 8, 5000), 99, loader=WORKERS)
    found = finding(Rule.STALLS, run)
    assert found.evidence[-1].value == every
    assert numbers(found)[code] == values


def test_stalls_without_a_period(make_run: MakeRun, long_alternating: Run) -> None:
    """Gaps of all lengths; and an alternating run, whose batches that count have gaps."""
    waits = np.ones(1000, np.int64)
    waits[[10, 30, 90, 300, 420, 700, 720, 800, 990, 999]] = 5000
    for run in (make_run(waits.tolist(), 99), long_alternating):
        assert advised(finding(Rule.STALLS, run))[0] is Advice.FIND_SLOW_BATCHES


def test_outliers(make_run: MakeRun) -> None:
    """Batches over twice the median are told, with where they are and what took the time."""
    waits, steps = [10] * 100, [90] * 100
    waits[40], steps[70] = 400, 600
    found = finding(Rule.OUTLIERS, make_run(waits, steps, epochs=[50, 50]))
    cost = pytest.approx(890 / (98 * 100 + 490 + 610), abs=0.01)
    counts = {"outliers": 2, "batches": 100, "waiting": 1, "stepping": 1}
    assert found.problem.values == {**counts, "time_share": cost}
    assert advised(found) == [Advice.FIND_SLOW_BATCHES, Advice.FIND_SLOW_STEPS]
    assert [(place.epoch, place.batch, place.wait_ns) for place in found.places] == [
        (1, 20, 10),
        (0, 40, 400),
    ]
    assert (found.places[0].start_ns, found.places[0].end_ns) == (None, None)


def test_outliers_are_of_whole_pairs(long_alternating: Run) -> None:
    """As on the page: the third stall is in a pair of which only the real block was measured."""
    steps = long_alternating.steps
    cut_off = (steps.pair == steps.pair.max()) & (steps.arm == 1)
    pair = np.where(cut_off, UNKNOWN, steps.pair)
    cut = replace(long_alternating, steps=replace(steps, pair=pair))
    for run, outliers, batches in ((long_alternating, 3, 240), (cut, 2, 232)):
        (report,) = Report.of([run]).runs
        real, _ = iterations_of(report.counted)
        assert (len(real.outliers), len(real.rows)) == (outliers, batches)
        assert report.diagnosis is not None
        for findings in (report.diagnosis.findings, diagnose(run).findings):
            (found,) = (one for one in findings if one.rule is Rule.OUTLIERS)
            counts = [found.problem.values[name] for name in ("outliers", "batches")]
            assert (counts, len(found.places)) == ([outliers, batches], outliers)


def test_outliers_have_times(timed_run: Run) -> None:
    """When the batch was asked for, and when its step ended."""
    found = finding(Rule.OUTLIERS, timed_run)
    (place,) = found.places
    assert (place.start_ns, place.end_ns, place.wait_ns) == (3000, 3990, 900)
    assert advised(found) == [Advice.FIND_SLOW_BATCHES]


@pytest.mark.parametrize(
    "steps",
    [
        [180, *[90] * 99],  # just twice the median is not over it
        [900 if number % 10 == 0 else 90 for number in range(100)],  # too many for outliers
    ],
)
def test_what_is_no_outlier(make_run: MakeRun, steps: list[int]) -> None:
    """It is not out of the ordinary."""
    assert outcome(Rule.OUTLIERS, make_run([0] * 100, steps)) == NOTHING


@pytest.mark.parametrize("rule", [Rule.STALLS, Rule.OUTLIERS])
def test_a_log_of_every_tenth_batch(rule: Rule) -> None:
    """What others took is not known of each, though their totals are."""
    clock = FakeClock()
    loader = ScriptedLoader(range(400), [10] * 400, clock)
    evaluator = LoaderEvaluator(loader, every=10, clock=clock)
    for _ in evaluator:
        clock.advance(90)
    assert outcome(rule, evaluator.recorded()) is Unknown.BATCHES_LEFT_OUT


@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        (Rule.STALLS, 200),
        (Rule.OUTLIERS, 20),
        (Rule.FALLING_THROUGHPUT, 40),
        (Rule.DRIFT, 40),
    ],
)
def test_too_few_batches(make_run: MakeRun, rule: Rule, needed: int) -> None:
    """How many are needed."""
    assert outcome(rule, make_run([0] * (needed - 1), 90)) is Unknown.TOO_FEW_BATCHES
    assert outcome(rule, make_run([0] * needed, 90)) == NOTHING


def test_throughput_that_falls(make_run: MakeRun) -> None:
    """By how much is told; a drift is then not told as well."""
    run = make_run([0] * 400, noisy(np.linspace(100_000, 150_000, 400)))
    found = finding(Rule.FALLING_THROUGHPUT, run)
    assert found.problem.values == {"rise": pytest.approx(0.4, abs=0.05)}
    assert found.evidence[-1].value == found.problem.values["rise"]
    assert found.cost_share == pytest.approx(0.2, abs=0.03)
    assert advised(found) == [Advice.FIND_STEP_GROWTH]
    assert outcome(Rule.DRIFT, run) == NOTHING
    waits = make_run(noisy(np.linspace(1000, 60_000, 400)), noisy([STEADY] * 400))
    assert advised(finding(Rule.FALLING_THROUGHPUT, waits)) == [Advice.FIND_LOADER_GROWTH]


@pytest.mark.parametrize("end", [100_000, 108_000, 60_000])
def test_throughput_that_does_not_fall(make_run: MakeRun, end: int) -> None:
    """It stays, falls by less than a tenth, or rises."""
    run = make_run([0] * 400, noisy(np.linspace(100_000, end, 400)))
    assert outcome(Rule.FALLING_THROUGHPUT, run) == NOTHING


@pytest.mark.parametrize(
    ("first", "second", "problem", "code"),
    [
        (1.0, 1.3, Problem.SECOND_HALF_SLOWER, Advice.FIND_SLOWDOWN),
        (1.3, 1.0, Problem.SECOND_HALF_FASTER, Advice.WARM_UP_CACHE),
    ],
)
def test_one_change_is_a_drift(
    make_run: MakeRun, first: float, second: float, problem: Problem, code: Advice
) -> None:
    """And no trend."""
    run = make_run([0] * 400, noisy([first * STEADY] * 200 + [second * STEADY] * 200))
    assert outcome(Rule.FALLING_THROUGHPUT, run) == NOTHING
    found = finding(Rule.DRIFT, run)
    assert (found.problem.code, advised(found)) == (problem, [code])
    expected = [first * STEADY, second * STEADY]
    assert [fact.value for fact in found.evidence] == pytest.approx(expected, rel=0.01)


def test_what_is_no_drift(make_run: MakeRun) -> None:
    """Under 5% of the iteration; and steps that take no time, which are not divided by."""
    small = make_run([0] * 400, noisy([STEADY] * 200 + [1.04 * STEADY] * 200))
    nothing = make_run([0] * 100, 0)
    assert outcome(Rule.DRIFT, small) == outcome(Rule.DRIFT, nothing) == NOTHING
    assert outcome(Rule.FALLING_THROUGHPUT, nothing) == NOTHING


@pytest.mark.parametrize(
    ("samples", "steps", "names"),
    [
        ([1 + n % 7 for n in range(70)], [100 * (1 + n % 7) for n in range(70)], ["size"]),
        ([4] * 70, [100 * (1 + n) for n in range(70)], ["place"]),
        ([1 + n for n in range(70)], [100 * (1 + n) for n in range(70)], ["place", "size"]),
    ],
)
def test_steps_that_depend_on_their_batch(
    make_run: MakeRun, samples: list[int], steps: list[int], names: list[str]
) -> None:
    """On its size, or its place in the epoch, and only some were replayed."""
    real = make_run([0] * 70, steps, samples=samples)
    found = finding(Rule.NOT_REPRESENTATIVE, real, make_run([0] * 70, 100, mode="replay"))
    assert advised(found) == [Advice.ALTERNATE]
    assert [fact.name.split()[3] for fact in found.evidence] == names
    assert {fact.unit for fact in found.evidence} == {"rank correlation"}
    assert min(fact.value for fact in found.evidence) > 0.9


def test_batches_that_are_representative(make_run: MakeRun, alternating: MakeRun) -> None:
    """Replayed ones that are as good as any; an alternating run, by design; a log tells nothing."""
    real, replayed = make_run([0] * 70), make_run([0] * 70, mode="replay")
    assert outcome(Rule.NOT_REPRESENTATIVE, real, replayed) == NOTHING
    assert outcome(Rule.NOT_REPRESENTATIVE, alternating()) == NOTHING
    assert outcome(Rule.NOT_REPRESENTATIVE, real) is Unknown.NOT_REPLAYED
