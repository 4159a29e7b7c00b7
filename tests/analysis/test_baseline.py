"""A run against its baseline: what is concluded, how often wrongly, and what changed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.baseline import (
    BaselineCaution,
    BaselineReport,
    ChangedFinding,
    ChangedIn,
    Examined,
    Pace,
    Period,
    pace_of,
)
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.verdict import GateOutcome, Objection
from loadeval.analysis.report import Report
from loadeval.analysis.rules.finding import Diagnosis, Rule
from loadeval.data.lines import EpochEnd, LoaderInfo
from loadeval.errors import UsageError
from tests.analysis.numbers import bounds, codes, value
from tests.runs.given import MS, block, make_header, make_run, randomised, run_of
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from loadeval.data.run import Run

    Steps = Callable[[np.random.Generator, int], npt.NDArray[np.float64]]

PAIRS = 20
BATCHES = 300
NONE = Diagnosis((), ())


def independent(spread: float) -> Steps:
    return lambda random, count: random.normal(1.0, spread, count)


def dependent(memory: float, spread: float) -> Steps:
    """Log-normal times whose logarithms remember the last one."""

    def draw(random: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        noise = random.normal(0.0, 1.0, count)
        for k in range(1, count):
            noise[k] = memory * noise[k - 1] + np.sqrt(1 - memory**2) * noise[k]
        return np.exp(spread * noise)

    return draw


def trained(
    seed: int,
    steps: Steps,
    *,
    slower: float = 0.0,
    epochs: int = 3,
    batches: int = BATCHES,
    first_ms: float = 100.0,
    **header: Any,
) -> Run:
    """A run with steps of 20 ms and waits of 1 ms, whose throughput is `slower`, a share."""
    random = np.random.default_rng(seed)
    step_ns = 20 * MS * steps(random, batches)
    wait_ns = MS * random.gamma(2.0, 0.5, batches)
    wait_ns[:: batches // epochs] = first_ms * MS * random.normal(1.0, 0.1, epochs)
    lengths = [batches // epochs] * epochs
    times = (np.round(each / (1 - slower)).astype(int).tolist() for each in (wait_ns, step_ns))
    return make_run(*times, epochs=lengths, warmup=3, **header)


def against(now: Run | list[Run], before: Run | list[Run]) -> BaselineReport:
    reports = [Report.of(run if isinstance(run, list) else [run]) for run in (now, before)]
    baseline = reports[0].against(reports[1]).baseline
    assert baseline is not None
    return baseline


def pair(seed: int, steps: Steps, slower: float = 0.0, **options: Any) -> BaselineReport:
    """A run that is `slower` against one before it, without their findings."""
    now, before = (
        Examined(trained(2 * seed + number, steps, slower=share, **options), None, NONE)
        for number, share in ((1, slower), (0, 0.0))
    )
    return BaselineReport.of(now, before)


def paces(steps: Steps, slower: float = 0.0, **options: Any) -> Counter[Pace]:
    """What is said of pairs of runs with seeds of their own, the second `slower`."""
    return Counter(pair(seed, steps, slower, **options).pace for seed in range(PAIRS))


def with_throughput(low: float | None, high: float | None, **changes: Any) -> BaselineReport:
    """A baseline report in which the throughput is within these bounds of the baseline's."""
    steps = independent(0.05)
    ratio = Estimate(1.0 if low is None or high is None else (low + high) / 2, low, high)
    baseline = against(trained(1, steps), trained(0, steps))
    return replace(baseline, epochs=replace(baseline.epochs, ratio=ratio), **changes)


@pytest.mark.parametrize("steps", [independent(0.05), independent(0.1), dependent(0.8, 0.05)])
def test_equal_runs_are_equal_and_a_tenth_is_found(steps: Steps) -> None:
    """In each of 20 pairs of 300 batches, also where neighbouring batches are alike."""
    assert paces(steps) == {Pace.EQUAL: PAIRS}
    assert paces(steps, 0.1) == {Pace.SLOWER: PAIRS}


def test_equal_runs_are_not_said_to_differ_where_the_interval_is_wide() -> None:
    """Batches that differ much and remember long leave most pairs undecided; 1 in 20 differs."""
    said = paces(dependent(0.8, 0.2))
    assert said[Pace.UNDECIDED] > PAIRS / 2
    assert said[Pace.SLOWER] + said[Pace.FASTER] <= 1


@pytest.mark.check
@pytest.mark.parametrize("epochs", [1, 2, 3, 6])
@pytest.mark.parametrize("steps", [independent(0.05), independent(0.2), dependent(0.8, 0.1)])
def test_false_alarms_are_rare(steps: Steps, epochs: int) -> None:
    """Of 200 equal pairs at most 2 are said to differ, and 1 is in 92% of the intervals."""
    alarms = covered = 0
    for seed in range(200):
        baseline = pair(seed, steps, epochs=epochs)
        low, high = bounds(baseline.judged)
        alarms += baseline.pace in (Pace.SLOWER, Pace.FASTER)
        covered += low <= 1 <= high
    assert alarms <= 2
    assert covered >= 184


def test_throughputs_are_of_whole_epochs_and_of_the_steady_state() -> None:
    """An epoch of 10 batches takes 9 times 25 ms and one of 75 ms, or of 325 ms."""
    now, before = (
        make_run(([first, *[5 * MS] * 9]) * 4, 20 * MS, epochs=[10] * 4, warmup=1)
        for first in (305 * MS, 55 * MS)
    )
    baseline = against(now, before)
    assert value(baseline.epochs.now) == pytest.approx(4 * 10 / 0.55)
    assert value(baseline.epochs.before) == pytest.approx(4 * 10 / 0.3)
    assert value(baseline.epochs.ratio) == pytest.approx(30 / 55)
    assert value(baseline.steady.now) == value(baseline.steady.before) == pytest.approx(160)
    assert value(baseline.steady.ratio) == pytest.approx(1.0)
    assert (baseline.period, baseline.pace) == (Period.WHOLE_EPOCHS, Pace.SLOWER)
    assert (baseline.unit, baseline.batches, baseline.before_batches) == ("images", 36, 36)


def test_epoch_starts_that_differ_widen_the_interval() -> None:
    """Steady iterations are exact, and starts of 100 to 300 ms are not."""
    waits = [number * MS for start in (100, 300, 200) for number in (start, *[5] * 19)]
    run = make_run(waits, 20 * MS, epochs=[20] * 3, warmup=1)
    baseline = against(run, run)
    low, high = bounds(baseline.epochs.ratio)
    assert (low < 0.8, high > 1.2) == (True, True)
    assert bounds(baseline.steady.ratio) == pytest.approx((1.0, 1.0))
    assert (baseline.pace, baseline.objection) == (Pace.UNDECIDED, Objection.WIDE_INTERVAL)


def test_a_slower_steady_state_is_enough_where_epoch_starts_differ() -> None:
    """A tenth is told, though starts of 100 to 300 ms hide it in whole epochs; equality is not."""
    waits = [number * MS for start in (100, 300, 200) for number in (start, *[5] * 19)]
    now, before = (make_run(waits, step_ms * MS, epochs=[20] * 3, warmup=1) for step_ms in (23, 20))
    baseline = against(now, before)
    assert pace_of(baseline.epochs.ratio or Estimate(1.0)) is Pace.UNDECIDED
    assert (baseline.period, baseline.pace) == (Period.STEADY, Pace.SLOWER)
    assert BaselineCaution.STARTS_NOT_JUDGED in codes(baseline.cautions)


def test_one_epoch_is_judged_by_its_steady_state() -> None:
    """What epoch starts differ by is not known, and a caution says so."""
    steps = independent(0.05)
    baseline = against(trained(1, steps, epochs=1), trained(0, steps))
    assert baseline.epochs.ratio is not None
    assert baseline.epochs.ratio.low is None
    assert (baseline.period, baseline.judged) == (Period.STEADY, baseline.steady.ratio)
    expected = [BaselineCaution.STARTS_NOT_JUDGED, BaselineCaution.SEPARATE_RUNS]
    assert codes(baseline.cautions) == expected


def test_alternating_epochs_that_are_blocks() -> None:
    """Each real epoch is timed whole: 4 batches of 30 ms, the first of which takes 10 ms more."""
    blocks, ends = [], []
    for epoch in range(13):
        pair = None if epoch == 0 else (epoch - 1) // 2
        is_real = epoch % 2 == 0
        wait_ns = [20 * MS, 10 * MS, 10 * MS, 10 * MS] if is_real else [0] * 4
        arm: Any = "real" if is_real else "ideal"
        blocks.append(block(arm, wait_ns, 20 * MS, epoch=epoch, pair=pair, samples=8))
        ends.append(EpochEnd(epoch, "exhausted", None, 0))
    run = run_of(blocks, ends=tuple(ends))
    baseline = against(run, run)
    assert value(baseline.epochs.now) == pytest.approx(4 * 8 / 0.13)
    assert bounds(baseline.epochs.ratio) == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize(
    ("low", "high", "pace"),
    [
        (0.90, 0.97, Pace.SLOWER),
        (0.93, 0.99, Pace.EQUAL),
        (0.91, 1.09, Pace.EQUAL),
        (0.88, 0.99, Pace.UNDECIDED),
        (1.01, 1.20, Pace.UNDECIDED),
        (1.03, 1.20, Pace.FASTER),
    ],
)
def test_the_whole_interval_decides(low: float, high: float, pace: Pace) -> None:
    """They differ if all of it is beyond 2%, and are equal if all of it is within 10%.

    Without one nothing is decided.
    """
    assert pace_of(Estimate((low + high) / 2, low, high)) is pace
    assert pace_of(Estimate((low + high) / 2)) is Pace.UNDECIDED


def test_nothing_is_concluded_without_a_steady_batch() -> None:
    """Throughput was not measured, and the gate cannot tell."""
    steps = independent(0.05)
    empty = make_run([], warmup=3)
    for runs in ((trained(1, steps), empty), (empty, trained(1, steps)), (empty, empty)):
        baseline = against(*runs)
        assert (baseline.pace, baseline.objection) == (Pace.UNDECIDED, Objection.NOT_MEASURED)
        assert baseline.wait.ratio is baseline.step.ratio is baseline.steady.ratio is None
        assert baseline.gate(0.05) is GateOutcome.INCONCLUSIVE


def test_nothing_is_concluded_from_few_batches() -> None:
    """Each run needs 20."""
    short = make_run([5 * MS] * 12, 20 * MS)
    baseline = against(short, trained(0, independent(0.05)))
    assert (baseline.pace, baseline.objection) == (Pace.UNDECIDED, Objection.TOO_FEW_BATCHES)
    assert baseline.gate(0.05) is GateOutcome.INCONCLUSIVE


def test_nothing_is_concluded_where_a_run_drifted_by_more() -> None:
    """A machine that became 20% slower within a run may have become 5% slower between two."""
    waits, steps = [0] * 300, np.repeat([20 * MS, 24 * MS], 150)
    drifted, now = make_run(waits, steps.tolist()), make_run(waits, round(20.9 * MS))
    baseline = against(now, drifted)
    assert baseline.drift_share == pytest.approx(4 / 22)
    assert (baseline.pace, baseline.objection) == (Pace.UNDECIDED, Objection.DRIFT)
    assert baseline.gate(0.05) is GateOutcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.80, 0.94, GateOutcome.ABOVE),
        (0.90, 0.96, GateOutcome.SPANS),
        (0.95, 0.99, GateOutcome.NOT_ABOVE),
        (1.00, 1.20, GateOutcome.NOT_ABOVE),
    ],
)
def test_the_gate_goes_by_the_whole_interval(low: float, high: float, outcome: GateOutcome) -> None:
    """More than 5% slower from its upper end on, and not from its lower end on."""
    assert with_throughput(low, high).gate(0.05) is outcome
    wide = with_throughput(low, high, objection=Objection.WIDE_INTERVAL)
    assert wide.gate(0.05) is outcome


def test_the_time_lost_and_its_ratio() -> None:
    """Waits of 20 ms instead of 10 in an alternating run, by sample if batches are larger."""
    before = randomised(pairs=20)
    now = randomised(pairs=20, iterations_ns=(50 * MS, 25 * MS), waits_ns=(20 * MS, 0))
    baseline = against(now, before)
    assert value(baseline.lost.ratio) == pytest.approx(
        value(baseline.lost.now) / value(baseline.lost.before)
    )
    low, high = bounds(baseline.lost.ratio)
    assert 1.3 < low < value(baseline.lost.ratio) < high < 1.7
    assert value(baseline.wait.ratio) == pytest.approx(2.0, rel=0.05)
    larger = randomised(pairs=20, samples=64)
    lost = against(larger, before).lost
    assert value(lost.ratio) == pytest.approx(0.5)
    assert value(lost.now) == pytest.approx(value(against(before, before).lost.now))
    by_batch = against(replace_unit(larger), before)
    assert value(by_batch.lost.ratio) == pytest.approx(1.0)
    assert BaselineCaution.BY_BATCH in codes(by_batch.cautions)


def replace_unit(run: Run) -> Run:
    return replace(run, header=replace(run.header, unit="tokens"))


def test_time_lost_needs_an_ideal_arm() -> None:
    """Of a log its throughput is compared all the same."""
    alternated, log = randomised(pairs=20), trained(0, independent(0.05))
    for runs, known in (((log, alternated), "before"), ((alternated, log), "now")):
        baseline = against(*runs)
        assert baseline.lost.ratio is None
        assert getattr(baseline.lost, known) is not None
        assert baseline.steady.ratio is not None


def test_a_baseline_that_lost_nothing_has_no_ratio() -> None:
    """Nothing can be divided by it."""
    nothing = randomised(
        pairs=20, iterations_ns=(24 * MS, 25 * MS), waits_ns=(0, 0), prefetches=False
    )
    baseline = against(randomised(pairs=20), without_starts(nothing))
    assert value(baseline.lost.before) < 0
    assert baseline.lost.ratio is None


def without_starts(run: Run) -> Run:
    """The run with epochs that begin as they go on."""
    wait_ns = np.where(run.steps.batch == 0, 0, run.steps.wait_ns)
    return replace(run, steps=replace(run.steps, wait_ns=wait_ns))


def test_what_changed_is_told_if_both_runs_know_it() -> None:
    """Of loader, versions, machine and measurement, but nothing of what one does not know."""
    before = make_header(
        loader=LoaderInfo("a.Loader", workers=2, prefetch_depth=4, pinned=True),
        environment={
            "host": "a",
            "cpus_usable": 8,
            "pid": 1,
            "python": "3.11.4",
            "packages": {"torch": "2.1", "numpy": "2.0"},
        },
    )
    now = make_header(
        loader=LoaderInfo("a.Loader", workers=1, prefetch_depth=4),
        settings={"num_cached_batches": 30},
        environment={
            "host": "b",
            "cpus_usable": 8,
            "pid": 2,
            "python": "3.11.4",
            "packages": {"torch": "2.2", "pillow": "11"},
        },
        warmup=2,
    )
    runs = [replace(make_run([MS] * 60, MS), header=header) for header in (now, before)]
    baseline = against(*runs)
    assert [(c.where, c.name, c.before, c.now) for c in baseline.changes] == [
        (ChangedIn.LOADER, "workers", 2, 1),
        (ChangedIn.VERSIONS, "torch", "2.1", "2.2"),
        (ChangedIn.MACHINE, "host", "a", "b"),
        (ChangedIn.MEASUREMENT, "warmup", 1, 2),
        (ChangedIn.MEASUREMENT, "num_cached_batches", 20, 30),
    ]
    assert BaselineCaution.OTHER_MACHINE in codes(baseline.cautions)


def test_findings_that_are_new_or_gone() -> None:
    """By their rules; and whether the rule could tell in the other run."""
    clear = make_run([0] * 200, 20 * MS, epochs=[100, 100], warmup=1)
    slow = make_run([400 * MS, *[0] * 99] * 2, 20 * MS, epochs=[100, 100], warmup=1)
    new = against(slow, clear)
    assert [changed.finding.rule for changed in new.new_findings] == [Rule.EPOCH_BOUNDARIES]
    assert new.gone_findings == ()
    gone = against(clear, slow)
    assert [changed.finding.rule for changed in gone.gone_findings] == [Rule.EPOCH_BOUNDARIES]
    assert all(changed.checked for changed in (*new.new_findings, *gone.gone_findings))
    same = against(slow, slow)
    assert same.new_findings == same.gone_findings == ()
    once = make_run([0] * 100, 20 * MS, warmup=1)
    (unchecked,) = against(slow, once).new_findings
    assert unchecked == ChangedFinding(unchecked.finding, checked=False)


def test_what_has_no_baseline() -> None:
    """Several backends, and a run that replayed."""
    log = make_run([MS] * 60, MS)
    replayed = make_run([0] * 60, MS, mode="replay")
    with pytest.raises(UsageError, match="several backends"):
        against([log, log], log)
    with pytest.raises(UsageError, match="mode='replay', so it loaded nothing"):
        against(log, replayed)
