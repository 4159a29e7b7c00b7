"""Times that vary: stalls, outliers, a run that slows down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.estimate.summary import iterations_of
from loadeval.analysis.report import Report
from loadeval.analysis.rules.diagnosis import diagnose
from loadeval.analysis.rules.finding import Advice, Problem, Rule, Unknown
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import LoaderInfo
from tests.analysis.rules.conftest import NOTHING, advised, finding_of, numbers, outcome
from tests.runs.given import alternating, make_run
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.data.run import Run

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


def test_most_of_the_waiting_is_for_few_batches() -> None:
    """Their share, their number, and which they were are told, the longest first."""
    waits = stalling(100)
    waits[199] = 3000
    finding = finding_of(Rule.STALLS, make_run(waits, 99, loader=WORKERS))
    shares = {
        "wait_share": pytest.approx(0.958, abs=1e-3),
        "time_share": pytest.approx(0.1842, abs=1e-3),
    }
    assert finding.problem.values == {"stalls": 4, "batches": 400, **shares}
    assert [place.batch for place in finding.places] == [199, 99, 299, 399]
    assert advised(finding) == [
        Advice.FIND_SLOW_BATCHES,
        Advice.RAISE,
        Advice.HIDES_QUEUE_LENGTH,
    ]
    assert finding.severity == "moderate"
    # A loader that loads nothing ahead has no queue.
    alone = finding_of(Rule.STALLS, make_run(stalling(100), 99, loader=NO_WORKERS))
    assert advised(alone) == [Advice.FIND_SLOW_BATCHES]


@pytest.mark.parametrize(
    ("waits", "step"),
    [
        ([30 if number % 10 else 60 for number in range(400)], 90),  # spread evenly
        ([0] * 400, 90),
        (stalling(100, stall=400), 99),  # waiting under 5% of the time
    ],
)
def test_waiting_that_is_no_stall(waits: list[int], step: int) -> None:
    """Half of it in a hundredth of the batches is the least."""
    assert outcome(Rule.STALLS, make_run(waits, step)) == NOTHING


@pytest.mark.parametrize(
    ("every", "code", "values"),
    [
        (100, Advice.FIND_SLOW_WORKER, {"period": 100, "workers": 2}),
        (101, Advice.FIND_PERIOD, {"period": 101}),
    ],
)
def test_stalls_come_regularly(every: int, code: Advice, values: dict[str, int]) -> None:
    """The period is told, and what it points to."""
    run = make_run(stalling(every, every * 8, 5000), 99, loader=WORKERS)
    finding = finding_of(Rule.STALLS, run)
    assert finding.evidence[-1].value == every
    assert numbers(finding)[code] == values


def test_stalls_without_a_period(long_alternating: Run) -> None:
    """Gaps of all lengths; and an alternating run, whose batches that count have gaps."""
    waits = np.ones(1000, np.int64)
    waits[[10, 30, 90, 300, 420, 700, 720, 800, 990, 999]] = 5000
    for run in (make_run(waits.tolist(), 99), long_alternating):
        assert advised(finding_of(Rule.STALLS, run))[0] is Advice.FIND_SLOW_BATCHES


def test_outliers() -> None:
    """Batches over twice the median are told, with where they are and what took the time."""
    waits, steps = [10] * 100, [90] * 100
    waits[40], steps[70] = 400, 600
    finding = finding_of(Rule.OUTLIERS, make_run(waits, steps, epochs=[50, 50]))
    cost = pytest.approx(890 / (98 * 100 + 490 + 610), abs=0.01)
    counts = {"outliers": 2, "batches": 100, "waiting": 1, "stepping": 1}
    assert finding.problem.values == {**counts, "time_share": cost}
    assert advised(finding) == [Advice.FIND_SLOW_BATCHES, Advice.FIND_SLOW_STEPS]
    assert [(place.epoch, place.batch, place.wait_ns) for place in finding.places] == [
        (1, 20, 10),
        (0, 40, 400),
    ]
    assert (finding.places[0].start_ns, finding.places[0].end_ns) == (None, None)


def test_outliers_are_of_whole_pairs(long_alternating: Run) -> None:
    """It is as on the page: of the third stall's pair only the real block was measured."""
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
            (finding,) = (finding for finding in findings if finding.rule is Rule.OUTLIERS)
            counts = [finding.problem.values[name] for name in ("outliers", "batches")]
            assert (counts, len(finding.places)) == ([outliers, batches], outliers)


def test_outliers_have_times(timed_run: Run) -> None:
    """When the batch was asked for, and when its step ended."""
    finding = finding_of(Rule.OUTLIERS, timed_run)
    (place,) = finding.places
    assert (place.start_ns, place.end_ns, place.wait_ns) == (3000, 3990, 900)
    assert advised(finding) == [Advice.FIND_SLOW_BATCHES]


@pytest.mark.parametrize(
    "steps",
    [
        [180, *[90] * 99],  # just twice the median is not over it
        [900 if number % 10 == 0 else 90 for number in range(100)],  # too many for outliers
    ],
)
def test_what_is_no_outlier(steps: list[int]) -> None:
    """It is not out of the ordinary."""
    assert outcome(Rule.OUTLIERS, make_run([0] * 100, steps)) == NOTHING


@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        (Rule.STALLS, 200),
        (Rule.OUTLIERS, 20),
        (Rule.FALLING_THROUGHPUT, 40),
        (Rule.DRIFT, 40),
    ],
)
def test_too_few_batches(rule: Rule, needed: int) -> None:
    """How many are needed."""
    assert outcome(rule, make_run([0] * (needed - 1), 90)) is Unknown.TOO_FEW_BATCHES
    assert outcome(rule, make_run([0] * needed, 90)) == NOTHING


def test_throughput_that_falls() -> None:
    """The amount is told; a drift is then not told as well."""
    run = make_run([0] * 400, noisy(np.linspace(100_000, 150_000, 400)))
    finding = finding_of(Rule.FALLING_THROUGHPUT, run)
    assert finding.problem.values == {"rise": pytest.approx(0.4, abs=0.05)}
    assert finding.evidence[-1].value == finding.problem.values["rise"]
    assert finding.cost_share == pytest.approx(0.2, abs=0.03)
    assert advised(finding) == [Advice.FIND_STEP_GROWTH]
    assert outcome(Rule.DRIFT, run) == NOTHING
    waits = make_run(noisy(np.linspace(1000, 60_000, 400)), noisy([STEADY] * 400))
    assert advised(finding_of(Rule.FALLING_THROUGHPUT, waits)) == [Advice.FIND_LOADER_GROWTH]


@pytest.mark.parametrize("end", [100_000, 108_000, 60_000])
def test_throughput_that_does_not_fall(end: int) -> None:
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
def test_one_change_is_a_drift(first: float, second: float, problem: Problem, code: Advice) -> None:
    """It is no trend."""
    run = make_run([0] * 400, noisy([first * STEADY] * 200 + [second * STEADY] * 200))
    assert outcome(Rule.FALLING_THROUGHPUT, run) == NOTHING
    finding = finding_of(Rule.DRIFT, run)
    assert (finding.problem.code, advised(finding)) == (problem, [code])
    expected = [first * STEADY, second * STEADY]
    assert [fact.value for fact in finding.evidence] == pytest.approx(expected, rel=0.01)


def test_what_is_no_drift() -> None:
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
    samples: list[int], steps: list[int], names: list[str]
) -> None:
    """They depend on its size, or its place in the epoch, and only some were replayed."""
    real = make_run([0] * 70, steps, samples=samples)
    finding = finding_of(Rule.NOT_REPRESENTATIVE, real, make_run([0] * 70, 100, mode="replay"))
    assert advised(finding) == [Advice.ALTERNATE]
    assert [fact.name.split()[3] for fact in finding.evidence] == names
    assert {fact.unit for fact in finding.evidence} == {"rank correlation"}
    assert min(fact.value for fact in finding.evidence) > 0.9


def test_batches_that_are_representative() -> None:
    """Replayed ones that are as good as any; an alternating run, by design; a log tells nothing."""
    real, replayed = make_run([0] * 70), make_run([0] * 70, mode="replay")
    assert outcome(Rule.NOT_REPRESENTATIVE, real, replayed) == NOTHING
    assert outcome(Rule.NOT_REPRESENTATIVE, alternating()) == NOTHING
    assert outcome(Rule.NOT_REPRESENTATIVE, real) is Unknown.NOT_REPLAYED
