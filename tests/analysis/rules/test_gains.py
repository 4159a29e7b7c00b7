"""What following advice is predicted to bring, and what brings too little to be advised."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule
from loadeval.analysis.rules.gains import (
    CHANGES_NOTHING,
    LEAST_SPEEDUP,
    OF_MORE_WORKERS,
    with_gains,
)
from loadeval.analysis.stats import Estimate
from loadeval.report.wording.advice import SHORT_CHANGES
from tests.analysis.rules.conftest import advised, diagnosed, finding, gains, numbers
from tests.analysis.rules.looked_into import COUNT, code, logged, looked_into

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.remark import Value
    from loadeval.runlog.model import Run
    from tests.analysis.rules.conftest import MakeRun

NUMBER = np.arange(COUNT)
TO_THREE: dict[str, Value] = {"setting": "num_workers", "present": 2, "proposed": 3}
DEEPER: dict[str, Value] = {"setting": "prefetch_factor", "present": 2, "proposed": 4}


@pytest.fixture
def run(alternating: MakeRun) -> Callable[..., Run]:
    """An alternating run that was looked into."""
    return partial(looked_into, alternating)


def told(run: Run, rule: Rule, *changes: Remark, cost: float | None = 0.3) -> Finding:
    """A finding of such changes, with what they bring."""
    problem = Remark(Problem.LOADER_TOO_SLOW, {"required": 1.5})
    return with_gains(Case.of(run), Finding(rule, "high", "measured", problem, changes, (), cost))


def test_more_workers(run: Callable[..., Run]) -> None:
    """What training gains with the number that is advised, and its range."""
    unread = Remark(Advice.CPU_USE_NOT_READ)
    found = told(run(fetch=60), Rule.CAPACITY, Remark(Advice.RAISE, TO_THREE), unread)
    assert advised(found) == [Advice.RAISE, Advice.CPU_USE_NOT_READ]
    low, value, high = (found.changes[0].values[name] for name in ("low", "speedup", "high"))
    assert value == pytest.approx(1.35, abs=0.02)
    assert float(str(low)) < float(str(value)) < float(str(high))


def test_a_run_that_nobody_looked_into(alternating: MakeRun) -> None:
    """Nothing is predicted."""
    given = alternating(wait=30, alone=40)
    assert told(given, Rule.CAPACITY, Remark(Advice.RAISE, TO_THREE)).changes == (
        Remark(Advice.RAISE, TO_THREE),
    )


def test_a_cost_that_is_not_known(run: Callable[..., Run]) -> None:
    """Nor is then what its end would bring."""
    change = Remark(Advice.RAISE, TO_THREE)
    assert told(run(fetch=60), Rule.CAPACITY, change, cost=None).changes == (change,)


def test_advice_of_which_nothing_is_predicted(run: Callable[..., Run]) -> None:
    """It stands as it is."""
    change = Remark(Advice.CUT_BYTES)
    assert told(run(fetch=60), Rule.CAPACITY, change).changes == (change,)


def test_workers_that_bring_nothing(run: Callable[..., Run]) -> None:
    """They are not advised, nor is said what more of them depend on."""
    changes = (Remark(Advice.RAISE, TO_THREE), Remark(Advice.CPU_USE_NOT_READ))
    found = told(run(fetch=60, environment={"cpus_usable": 1}), Rule.CAPACITY, *changes)
    assert advised(found) == [Advice.NO_MORE_WORKERS, Advice.CHEAPER_LOADING]


def test_workers_that_bring_nothing_beside_what_does(run: Callable[..., Run]) -> None:
    """Only the latter is left."""
    changes = (Remark(Advice.CHEAPER_NAMED, {"name": "blur"}), Remark(Advice.RAISE, TO_THREE))
    given = run(fetch=60, transforms={"blur": 0.8}, environment={"cpus_usable": 1})
    found = told(given, Rule.SLOW_TRANSFORM, *changes)
    assert advised(found) == [Advice.CHEAPER_NAMED, Advice.NO_MORE_WORKERS]


def test_a_deeper_queue(run: Callable[..., Run]) -> None:
    """Where batches now and then are slow."""
    fetch = np.where(NUMBER % 16 == 5, 200.0, 5.0)
    given = run(fetch=fetch, workers=4, prefetch=2)
    found = told(given, Rule.SHALLOW_QUEUE, Remark(Advice.RAISE, DEEPER))
    assert float(str(found.changes[0].values["speedup"])) > LEAST_SPEEDUP


def test_a_deeper_queue_that_brings_nothing(run: Callable[..., Run]) -> None:
    """What fills it slowly is to be found."""
    look = Remark(Advice.LOOK_AT, {"place": "a.py:1 f"})
    found = told(run(fetch=60), Rule.SHALLOW_QUEUE, Remark(Advice.RAISE, DEEPER), look)
    assert advised(found) == [Advice.LOOK_AT, Advice.FIND_SLOW_BATCHES]


def held_back(run: Callable[..., Run]) -> Run:
    """One batch in eight takes long, each time another worker's."""
    fetch = np.where((NUMBER % 8 == 5) & (NUMBER // 8 % 2 == 0), 280.0, 20.0)
    fetch[(NUMBER % 8 == 2) & (NUMBER // 8 % 2 == 1)] = 280.0
    return run(fetch=fetch, workers=4)


def test_out_of_order(run: Callable[..., Run]) -> None:
    """What training gains that takes batches as they come."""
    found = gains(finding(Rule.HEAD_OF_LINE, held_back(run)))[Advice.OUT_OF_ORDER]
    assert float(str(found["speedup"])) > 1.1


def test_tensors_that_nobody_waits_for(run: Callable[..., Run]) -> None:
    """Of workers that keep Python's lock, in a loader that serves batches as they come."""
    case = Case.of(run(fetch=12, receive=0.5, step=3, real=6, workers=3))
    recorded = case.recorded
    assert recorded is not None
    vars(case)["recorded"] = replace(
        recorded,
        costs=replace(recorded.costs, lock_ns=math.inf),
        setting=replace(recorded.setting, in_order=False),
    )
    transfer = replace(finding(Rule.TRANSFER, run(fetch=10, receive=30)), cost_share=0.5)
    share = Remark(Advice.SHARE_BY_FILE)
    found = gains(with_gains(case, replace(transfer, changes=(share,))))[Advice.SHARE_BY_FILE]
    assert float(str(found["speedup"])) > 1.2
    assert float(str(found["low"])) < float(str(found["speedup"])) < float(str(found["high"]))


def test_an_order_that_brings_nothing(run: Callable[..., Run]) -> None:
    """Slow batches remain to be found."""
    found = told(run(fetch=60), Rule.HEAD_OF_LINE, Remark(Advice.OUT_OF_ORDER))
    assert advised(found) == [Advice.FIND_SLOW_BATCHES]


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
def test_code_that_takes_half_the_time(
    run: Callable[..., Run], rule: Rule, change: Advice, given: dict[str, Any]
) -> None:
    """What that brings, of the part that the finding is about."""
    found = gains(finding(rule, run(**given)))[change]
    assert found["times"] == 2
    assert float(str(found["speedup"])) >= 1.2


def test_half_the_time_that_brings_nothing(run: Callable[..., Run]) -> None:
    """What all of it brings is told: of the sampler that is, beside workers that are as slow."""
    given = run(fetch=40, blocked=0.9, index=0.6, step=20)
    change = Remark(Advice.CHEAPER_SAMPLER)
    (found,) = told(given, Rule.SLOW_SAMPLER, change).changes
    assert list(found.values) == ["at_most"]
    assert LEAST_SPEEDUP <= float(str(found.values["at_most"])) < LEAST_SPEEDUP + 0.05


@pytest.mark.parametrize(
    ("rule", "change", "given"),
    [
        (Rule.LOCK, Advice.SHORTER_LOCK, {"blocked": 0.75, "seen": "futex_wait_queue"}),
        (Rule.DISK, Advice.READ_LESS, {"blocked": 0.75, "seen": "folio_wait_bit_common"}),
        (Rule.STORAGE_LATENCY, Advice.MORE_REQUESTS_AT_ONCE, {"blocked": 0.75}),
        (Rule.FEW_SHARDS, Advice.MORE_SHARDS, {"loader": {"workers": 4, "prefetch_depth": 8}}),
    ],
)
def test_what_goes_away(
    run: Callable[..., Run], rule: Rule, change: Advice, given: dict[str, Any]
) -> None:
    """What training gains at most, which is the time lost here, with CPUs that share caches."""
    if isinstance(given.get("seen"), str):
        given = given | {"seen": code({"a.py:1 f": 25}, {f"a.py:1 f > {given['seen']}": 75})}
    found = gains(finding(rule, run(fetch=60, **given)))[change]
    assert list(found) == ["at_most"]
    assert 1.3 < float(str(found["at_most"])) <= 1.5


def test_what_goes_away_and_brings_nothing(run: Callable[..., Run]) -> None:
    """It is not advised beside what brings more."""
    slow = Remark(Advice.FIX_SAMPLES, {"indices": "17"})
    found = told(held_back(run), Rule.SLOW_SAMPLES, Remark(Advice.OUT_OF_ORDER), slow)
    assert advised(found) == [Advice.OUT_OF_ORDER]


def test_the_last_advice_is_kept(run: Callable[..., Run]) -> None:
    """Without a figure, where it is not known what to change instead."""
    slow = Remark(Advice.FIX_SAMPLES, {"indices": "17"})
    assert told(run(fetch=60), Rule.SLOW_SAMPLES, slow).changes == (slow,)


def test_what_lies_outside_of_the_loader(run: Callable[..., Run]) -> None:
    """Of what is not simulated training gains the time that it costs, at most."""
    keep = Remark(Advice.KEEP_WORKERS, {"setting": "persistent_workers", "proposed": True})
    found = told(run(fetch=60), Rule.WORKER_START, keep, cost=0.2)
    assert gains(found) == {Advice.KEEP_WORKERS: {"at_most": pytest.approx(1.25)}}


def test_what_takes_nearly_all_the_time(run: Callable[..., Run]) -> None:
    """No more is predicted than a hundred times as fast."""
    found = told(run(fetch=60), Rule.LOADER_RECREATED, Remark(Advice.KEEP_ITERATOR), cost=1.0)
    assert gains(found) == {Advice.KEEP_ITERATOR: {"at_most": pytest.approx(100)}}


@pytest.mark.parametrize(("cost", "at_most"), [(0.1, 1.5), (0.5, 2.0)])
def test_cpus_that_workers_wait_for(run: Callable[..., Run], cost: float, at_most: float) -> None:
    """What it costs with slower steps, and no less than the waiting that others tell of too."""
    given = run(fetch=60, run_queue=0.4)
    found = told(given, Rule.OVERSUBSCRIPTION, Remark(Advice.FREE_CPUS), cost=cost)
    assert gains(found) == {Advice.FREE_CPUS: {"at_most": pytest.approx(at_most, abs=0.01)}}


def test_epoch_starts_remain(run: Callable[..., Run]) -> None:
    """Of whole epochs less is gained than of the steady state: here a quarter is neither."""
    case = Case.of(run(fetch=60))
    assert case.headroom is not None
    headroom = replace(case.headroom, epoch_starts_ns=Estimate(10e6, 10e6, 10e6))
    starts = replace(case, headroom=headroom)
    share = starts.epoch_starts_share or 0.0
    assert share == pytest.approx(0.25, abs=0.01)
    problem, change = Remark(Problem.LOADER_TOO_SLOW), Remark(Advice.RAISE, TO_THREE)
    found = Finding(Rule.CAPACITY, "high", "measured", problem, (change,), (), 0.3)
    steady, whole = (
        float(str(with_gains(one, found).changes[0].values["speedup"])) for one in (case, starts)
    )
    assert 1 - 1 / whole == pytest.approx((1 - 1 / steady) * (1 - share))


def test_a_log() -> None:
    """What it waits is gained, by its own steps."""
    found = gains(finding(Rule.SLOW_TRANSFORM, logged(fetch=60, transforms={"blur": 0.8})))
    assert float(str(found[Advice.CHEAPER_NAMED]["speedup"])) > 1.2


def test_a_transform_without_a_gain(run: Callable[..., Run]) -> None:
    """That one step takes all the time there is."""
    change = Remark(Advice.CHEAPER_NAMED, {"name": "blur"})
    found = told(run(fetch=10, transforms={"blur": 0.8}), Rule.SLOW_TRANSFORM, change)
    assert found.changes == (change,)


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
def test_every_finding_says_what_to_change(
    run: Callable[..., Run], given: dict[str, Any], cpus: int
) -> None:
    """Whatever is left out; and what is advised with a figure brings something."""
    findings = diagnosed(run(environment={"cpus_usable": cpus}, **given)).findings
    assert findings
    for found in findings:
        assert SHORT_CHANGES.keys() & numbers(found).keys()
        for gain in gains(found).values():
            brings = [gain[name] for name in ("speedup", "at_most") if name in gain]
            assert all(float(str(one)) >= LEAST_SPEEDUP for one in brings)


def test_what_changes_nothing() -> None:
    """It has no words for the screen, which shows a change for each finding."""
    assert not CHANGES_NOTHING & SHORT_CHANGES.keys()
    assert OF_MORE_WORKERS & SHORT_CHANGES.keys() == set()
