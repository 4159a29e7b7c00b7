"""What following advice is predicted to bring, and what brings too little to be advised."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule
from loadeval.analysis.rules.gains import (
    ADVICE,
    LEAST_SPEEDUP,
    Kind,
    with_gains,
)
from loadeval.analysis.rules.inside import Inside
from loadeval.report.wording import advice as advice_words
from tests.analysis.rules.conftest import advised, diagnosed, finding_of, gains, numbers
from tests.runs.given import alternating
from tests.runs.looked_into import COUNT, code, logged, looked_into
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.analysis.remark import Value
    from loadeval.data.run import Run

NUMBER = np.arange(COUNT)
WITH_SHORT_FORM = {code for code, words in advice_words.ADVICE.items() if words.short}
TO_THREE: dict[str, Value] = {"setting": "num_workers", "present": 2, "proposed": 3}
DEEPER: dict[str, Value] = {"setting": "prefetch_factor", "present": 2, "proposed": 4}


def finding_with(run: Run, rule: Rule, *changes: Remark, cost: float | None = 0.3) -> Finding:
    """A finding of such changes, with what they bring."""
    problem = Remark(Problem.LOADER_TOO_SLOW, {"required": 1.5})
    return with_gains(Case(run), Finding(rule, "high", "measured", problem, changes, (), cost))


def test_more_workers() -> None:
    """What training gains with the number that is advised, and its range."""
    unread = Remark(Advice.CPU_USE_NOT_READ)
    finding = finding_with(
        looked_into(fetch=60), Rule.CAPACITY, Remark(Advice.RAISE, TO_THREE), unread
    )
    assert advised(finding) == [Advice.RAISE, Advice.CPU_USE_NOT_READ]
    low, value, high = (finding.changes[0].values[name] for name in ("low", "speedup", "high"))
    assert value == pytest.approx(1.35, abs=0.02)
    assert float(str(low)) < float(str(value)) < float(str(high))


def test_a_run_that_nobody_looked_into() -> None:
    """Nothing is predicted."""
    given = alternating(wait=30, alone=40)
    assert finding_with(given, Rule.CAPACITY, Remark(Advice.RAISE, TO_THREE)).changes == (
        Remark(Advice.RAISE, TO_THREE),
    )


def test_a_cost_that_is_not_known() -> None:
    """What its end would bring is then not known either."""
    change = Remark(Advice.RAISE, TO_THREE)
    assert finding_with(looked_into(fetch=60), Rule.CAPACITY, change, cost=None).changes == (
        change,
    )


def test_advice_of_which_nothing_is_predicted() -> None:
    """It stands as it is."""
    change = Remark(Advice.CUT_BYTES)
    assert finding_with(looked_into(fetch=60), Rule.CAPACITY, change).changes == (change,)


def test_workers_that_bring_nothing() -> None:
    """They are not advised, nor is said what more of them depend on."""
    changes = (Remark(Advice.RAISE, TO_THREE), Remark(Advice.CPU_USE_NOT_READ))
    finding = finding_with(
        looked_into(fetch=60, environment={"cpus_usable": 1}), Rule.CAPACITY, *changes
    )
    assert advised(finding) == [Advice.NO_MORE_WORKERS, Advice.CHEAPER_LOADING]


def test_workers_that_bring_nothing_beside_what_does() -> None:
    """Only the latter is left."""
    changes = (Remark(Advice.CHEAPER_NAMED, {"name": "blur"}), Remark(Advice.RAISE, TO_THREE))
    given = looked_into(fetch=60, transforms={"blur": 0.8}, environment={"cpus_usable": 1})
    finding = finding_with(given, Rule.SLOW_TRANSFORM, *changes)
    assert advised(finding) == [Advice.CHEAPER_NAMED, Advice.NO_MORE_WORKERS]


def test_a_deeper_queue() -> None:
    """Where batches now and then are slow."""
    fetch = np.where(NUMBER % 16 == 5, 200.0, 5.0)
    given = looked_into(fetch=fetch, workers=4, prefetch=2)
    finding = finding_with(given, Rule.SHALLOW_QUEUE, Remark(Advice.RAISE, DEEPER))
    assert float(str(finding.changes[0].values["speedup"])) > LEAST_SPEEDUP


def test_a_deeper_queue_that_brings_nothing() -> None:
    """What fills it slowly is to be found."""
    look = Remark(Advice.LOOK_AT, {"place": "a.py:1 f"})
    finding = finding_with(
        looked_into(fetch=60), Rule.SHALLOW_QUEUE, Remark(Advice.RAISE, DEEPER), look
    )
    assert advised(finding) == [Advice.LOOK_AT, Advice.FIND_SLOW_BATCHES]


def held_back() -> Run:
    """One batch in eight takes long, each time another worker's."""
    fetch = np.where((NUMBER % 8 == 5) & (NUMBER // 8 % 2 == 0), 280.0, 20.0)
    fetch[(NUMBER % 8 == 2) & (NUMBER // 8 % 2 == 1)] = 280.0
    return looked_into(fetch=fetch, workers=4)


def test_out_of_order() -> None:
    """What training gains that takes batches as they come."""
    gain = gains(finding_of(Rule.HEAD_OF_LINE, held_back()))[Advice.OUT_OF_ORDER]
    assert float(str(gain["speedup"])) > 1.1


def test_tensors_that_nobody_waits_for() -> None:
    """The workers keep Python's lock, in a loader that serves batches as they come."""
    case = Case(looked_into(fetch=12, receive=0.5, step=3, real=6, workers=3))
    recorded = case.recorded
    assert recorded is not None
    costs = replace(recorded.costs, lock_ns=math.inf)
    setting = replace(recorded.setting, in_order=False)
    vars(case)["inside"] = Inside(replace(recorded, costs=costs, setting=setting))
    transfer = replace(finding_of(Rule.TRANSFER, looked_into(fetch=10, receive=30)), cost_share=0.5)
    share = Remark(Advice.SHARE_BY_FILE)
    gain = gains(with_gains(case, replace(transfer, changes=(share,))))[Advice.SHARE_BY_FILE]
    assert float(str(gain["speedup"])) > 1.2
    assert float(str(gain["low"])) < float(str(gain["speedup"])) < float(str(gain["high"]))


def test_an_order_that_brings_nothing() -> None:
    """Slow batches remain to be found."""
    finding = finding_with(looked_into(fetch=60), Rule.HEAD_OF_LINE, Remark(Advice.OUT_OF_ORDER))
    assert advised(finding) == [Advice.FIND_SLOW_BATCHES]


@pytest.mark.parametrize(
    ("rule", "change", "given"),
    [
        (Rule.SLOW_TRANSFORM, Advice.CHEAPER_NAMED, {"fetch": 60, "transforms": {"blur": 0.8}}),
        (Rule.SLOW_FETCH, Advice.CHEAPER_NAMED, {"fetch": 60, "seen": code({"a.py:1 f": 9})}),
        (Rule.SLOW_COLLATE, Advice.CHEAPER_COLLATE, {"fetch": 10, "collate": 60}),
        (Rule.SLOW_SAMPLER, Advice.CHEAPER_SAMPLER, {"fetch": 10, "index": 20}),
        (Rule.TRANSFER, Advice.SEND_FEWER, {"fetch": 10, "receive": 30, "pickled_bytes": 5000}),
        (Rule.TRANSFER, Advice.SEND_LESS_OFTEN, {"fetch": 10, "receive": 30, "pickled_bytes": 99}),
        (Rule.PINNING, Advice.SEND_FEWER, {"fetch": 10, "pin": 60}),
    ],
)
def test_code_that_takes_half_the_time(rule: Rule, change: Advice, given: dict[str, Any]) -> None:
    """What that brings, of the part that the finding is about."""
    gain = gains(finding_of(rule, looked_into(**given)))[change]
    assert gain["times"] == 2
    assert float(str(gain["speedup"])) >= 1.2


def test_half_the_time_that_brings_nothing() -> None:
    """What all of it brings is told: of the sampler that is, beside workers that are as slow."""
    given = looked_into(fetch=40, blocked=0.9, index=0.6, step=20)
    change = Remark(Advice.CHEAPER_SAMPLER)
    (remark,) = finding_with(given, Rule.SLOW_SAMPLER, change).changes
    assert list(remark.values) == ["at_most"]
    assert LEAST_SPEEDUP <= float(str(remark.values["at_most"])) < LEAST_SPEEDUP + 0.05


@pytest.mark.parametrize(
    ("rule", "change", "given"),
    [
        (Rule.LOCK, Advice.SHORTER_LOCK, {"blocked": 0.75, "seen": "futex_wait_queue"}),
        (Rule.DISK, Advice.READ_LESS, {"blocked": 0.75, "seen": "folio_wait_bit_common"}),
        (Rule.STORAGE_LATENCY, Advice.MORE_REQUESTS_AT_ONCE, {"blocked": 0.75}),
    ],
)
def test_what_goes_away(rule: Rule, change: Advice, given: dict[str, Any]) -> None:
    """What training gains at most, which is the time lost here, with CPUs that share caches."""
    if isinstance(given.get("seen"), str):
        given = given | {"seen": code({"a.py:1 f": 25}, {f"a.py:1 f > {given['seen']}": 75})}
    gain = gains(finding_of(rule, looked_into(fetch=60, **given)))[change]
    assert list(gain) == ["at_most"]
    assert 1.3 < float(str(gain["at_most"])) <= 1.5


def test_what_goes_away_and_brings_nothing() -> None:
    """It is not advised beside what brings more."""
    slow = Remark(Advice.FIX_SAMPLES, {"indices": "17"})
    finding = finding_with(held_back(), Rule.SLOW_SAMPLES, Remark(Advice.OUT_OF_ORDER), slow)
    assert advised(finding) == [Advice.OUT_OF_ORDER]


def test_the_last_advice_is_kept() -> None:
    """Without a figure, where it is not known what to change instead."""
    slow = Remark(Advice.FIX_SAMPLES, {"indices": "17"})
    assert finding_with(looked_into(fetch=60), Rule.SLOW_SAMPLES, slow).changes == (slow,)


def test_what_lies_outside_of_the_loader() -> None:
    """From what is not simulated training gains the time that it costs, at most."""
    keep = Remark(Advice.KEEP_WORKERS, {"setting": "persistent_workers", "proposed": True})
    finding = finding_with(looked_into(fetch=60), Rule.WORKER_START, keep, cost=0.2)
    assert gains(finding) == {Advice.KEEP_WORKERS: {"at_most": pytest.approx(1.25)}}


def test_what_takes_nearly_all_the_time() -> None:
    """No more is predicted than a hundred times as fast."""
    finding = finding_with(
        looked_into(fetch=60), Rule.LOADER_RECREATED, Remark(Advice.KEEP_ITERATOR), cost=1.0
    )
    assert gains(finding) == {Advice.KEEP_ITERATOR: {"at_most": pytest.approx(100)}}


@pytest.mark.parametrize(("cost", "at_most"), [(0.1, 1.5), (0.5, 2.0)])
def test_cpus_that_workers_wait_for(cost: float, at_most: float) -> None:
    """What it costs with slower steps, and no less than the waiting that others tell of too."""
    given = looked_into(fetch=60, run_queue=0.4)
    finding = finding_with(given, Rule.OVERSUBSCRIPTION, Remark(Advice.FREE_CPUS), cost=cost)
    assert gains(finding) == {Advice.FREE_CPUS: {"at_most": pytest.approx(at_most, abs=0.01)}}


def test_epoch_starts_remain() -> None:
    """Less is gained in whole epochs than in the steady state: here a quarter is neither."""
    case = Case(looked_into(fetch=60))
    assert case.headroom is not None
    headroom = replace(case.headroom, epoch_starts_ns=Estimate(10e6, 10e6, 10e6))
    starts = replace(case)
    vars(starts)["headroom"] = headroom
    share = starts.epoch_starts_share or 0.0
    assert share == pytest.approx(0.25, abs=0.01)
    problem, change = Remark(Problem.LOADER_TOO_SLOW), Remark(Advice.RAISE, TO_THREE)
    finding = Finding(Rule.CAPACITY, "high", "measured", problem, (change,), (), 0.3)
    steady, whole = (
        float(str(with_gains(of_case, finding).changes[0].values["speedup"]))
        for of_case in (case, starts)
    )
    assert 1 - 1 / whole == pytest.approx((1 - 1 / steady) * (1 - share))


def test_of_a_log_nothing_is_predicted() -> None:
    """What its steps take without loading was not measured."""
    by_advice = gains(finding_of(Rule.SLOW_TRANSFORM, logged(fetch=60, transforms={"blur": 0.8})))
    assert by_advice == {Advice.CHEAPER_NAMED: {}}


def test_a_transform_without_a_gain() -> None:
    """That one step takes all the time there is."""
    change = Remark(Advice.CHEAPER_NAMED, {"name": "blur"})
    finding = finding_with(
        looked_into(fetch=10, transforms={"blur": 0.8}), Rule.SLOW_TRANSFORM, change
    )
    assert finding.changes == (change,)


@pytest.mark.parametrize("cpus", [1, 2, 8])
@pytest.mark.parametrize(
    "given",
    [
        {"fetch": 60},
        {"fetch": 60, "workers": 0},
        {"fetch": 60, "transforms": {"blur": 0.8}},
        {"fetch": 60, "blocked": 0.75},
        {"fetch": 60, "run_queue": 0.4},
        {"fetch": 10, "collate": 60},
        {"fetch": 10, "index": 30},
        {"fetch": 10, "receive": 30},
        {"fetch": 10, "pin": 60},
        {"fetch": np.where(NUMBER % 16 == 5, 200.0, 5.0), "prefetch": 1},
        {"fetch": np.where(NUMBER % 2, 100.0, 30.0)},
    ],
)
def test_every_finding_says_what_to_change(given: dict[str, Any], cpus: int) -> None:
    """Whatever is left out; and what is advised with a figure brings something."""
    findings = diagnosed(looked_into(environment={"cpus_usable": cpus}, **given)).findings
    assert findings
    for finding in findings:
        assert WITH_SHORT_FORM & numbers(finding).keys()
        for gain in gains(finding).values():
            brings = [gain[name] for name in ("speedup", "at_most") if name in gain]
            assert all(float(str(value)) >= LEAST_SPEEDUP for value in brings)


def test_what_changes_nothing() -> None:
    """It has no words for the screen, which shows a change for each finding."""
    without = (Kind.COMMENT, Kind.UNPREDICTED)
    codes = {code for code, record in ADVICE.items() if record.kind in without}
    assert not codes & WITH_SHORT_FORM
