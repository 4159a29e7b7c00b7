"""Causes inside the loader: which of them are told, and what each costs."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.finding import Advice, Caveat, Rule
from loadeval.analysis.rules.fixes import FIXES
from loadeval.analysis.rules.inside import LEAST_GAIN
from loadeval.analysis.rules.variability import outlying_shares
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import Steps
from tests.analysis.rules.conftest import MS, diagnosed, finding, outcome
from tests.analysis.rules.looked_into import COUNT, code, looked_into
from tests.analysis.rules.test_diagnosis import SEEDS, SLACK, costs
from tests.analysis.rules.test_operators import DECODE, SINK, SPDL, with_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run
    from tests.analysis.rules.conftest import MakeRun

INSIDE = FIXES.keys() - {
    Rule.CAPACITY,
    Rule.ZERO_WORKERS,
    Rule.SHALLOW_QUEUE,
    Rule.OVERSUBSCRIPTION,
}
SLOW_ONES = np.arange(COUNT) % 12 == 6
FEW_SLOW: dict[str, Any] = {
    "fetch": np.where(SLOW_ONES, 100.0, 8.0),
    "slowest": np.where(SLOW_ONES, 94.0, 2.5),
    "slowest_index": np.where(SLOW_ONES, 17, 3),
    "workers": 1,
}
"""A sample that takes five steps, in one batch of twelve; a deeper queue hides it."""


@pytest.fixture(name="inside")
def _inside(alternating: MakeRun) -> Callable[..., Run]:
    """An alternating run whose loader was looked into."""
    return partial(looked_into, alternating)


@pytest.fixture
def some_loader(inside: Callable[..., Run]) -> Callable[[int], Run]:
    """A run with a loader of anything, by a seed."""

    def make(seed: int) -> Run:
        rng = np.random.default_rng(seed)

        def pick(*choices: Any) -> Any:
            return choices[rng.integers(len(choices))]

        fetch = pick(5, 30, 60, 150) * rng.gamma(pick(1, 50), 1, COUNT)
        slow = rng.random(COUNT) < pick(0, 0.05, 0.15)
        fetch = fetch / max(fetch.mean() / 60, 1) + 300 * slow
        seen = code({"data.py:31 __getitem__": pick(1, 9), "data.py:50 padded": 4})
        blocked = code({}, {f"data.py:35 read > {pick('futex_wait', 'io_schedule', 'poll')}": 5})
        step = pick(10.0, 20.0, 60.0)
        return inside(
            fetch=fetch,
            slowest=np.where(slow, 290, 2),
            slowest_index=pick(17, np.arange(COUNT)),
            collate=pick(0, 0, 30),
            index=pick(0, 0, 15),
            receive=pick(0, 0, 15),
            pickle=pick(0, 0, 15),
            pickled_bytes=pick(1000, 10_000_000),
            blocked=pick(0, 0.2, 0.5),
            run_queue=pick(0, 0.1, 0.3),
            others=pick(0, 2),
            transforms=pick({}, {"blur": 0.5}),
            workers=pick(0, 1, 2, 5),
            prefetch=pick(1, 2),
            step=step,
            real=step * pick(1, 1, 1.3),
            pairs=pick(1, 10, 10),
            seen=pick((), seen, blocked, (*seen, *blocked)),
            environment={"cpus_usable": pick(None, 1, 4, 16)},
        )

    return make


@pytest.mark.parametrize("seed", SEEDS)
def test_causes_never_cost_more_than_is_lost(some_loader: Callable[[int], Run], seed: int) -> None:
    """Nor has one of them a cost below 0, or one that is next to nothing."""
    run = some_loader(seed)
    found, case = costs(run), Case.of(run)
    assert case.headroom is not None
    assert case.headroom.lost_share is not None
    allowed = max(case.headroom.lost_share.value, 0.0) + sum(outlying_shares(case))
    assert sum(found.values()) <= min(allowed, 1.0) + SLACK
    assert all(cost >= LEAST_GAIN for rule, cost in found.items() if rule in FIXES)


@pytest.mark.parametrize("seed", range(40))
def test_where_nothing_is_waited_for_nothing_in_the_loader_is_blamed(
    some_loader: Callable[[int], Run], seed: int
) -> None:
    """Whatever takes long in it."""
    run = some_loader(seed)
    run.steps.wait_ns[:] = 0
    run.steps.step_ns[:] = 20 * MS
    assert not {one.rule for one in diagnosed(run).findings} & INSIDE


@pytest.mark.parametrize("seed", range(40))
def test_a_loader_that_nobody_looked_into_has_no_cause_inside(
    some_loader: Callable[[int], Run], seed: int
) -> None:
    """And what it waits for is told as from outside."""
    found = costs(replace(some_loader(seed), stages=(), code=()))
    assert not found.keys() & INSIDE


def test_what_makes_loading_slow_replaces_that_it_is(inside: Callable[..., Run]) -> None:
    """All the waiting: more workers, advised there, would gain what CPU time does not grow."""
    found = costs(inside(fetch=60))
    assert found == pytest.approx({Rule.CAPACITY: 1 - 22.2 / 30}, abs=0.01)
    found = costs(inside(fetch=60, transforms={"blur": 0.8}))
    assert found == pytest.approx({Rule.SLOW_TRANSFORM: 1 / 3}, abs=0.01)


def test_what_is_special_comes_before_what_all_loading_goes_into(
    inside: Callable[..., Run],
) -> None:
    """Where both would gain as much, the worker that is slow has it."""
    run = inside(fetch=np.where(np.arange(COUNT) % 2, 100.0, 30.0), transforms={"blur": 0.8})
    answers = {check.rule for check in diagnosed(run).checks if check.outcome == "found"}
    assert {Rule.SLOW_TRANSFORM, Rule.SLOW_WORKER, Rule.CAPACITY} <= answers
    assert costs(run) == pytest.approx({Rule.SLOW_WORKER: 30 / 50}, abs=0.01)


def test_a_small_cause_comes_after_what_all_loading_goes_into(inside: Callable[..., Run]) -> None:
    """A sampler that takes 15 of 75 ms has what is left without the transform."""
    run = inside(fetch=60, index=15, workers=1, prefetch=1, transforms={"blur": 0.8})
    assert outcome(Rule.SLOW_SAMPLER, run) == "found"
    found = costs(run)
    assert list(found) == [Rule.SLOW_TRANSFORM, Rule.SLOW_SAMPLER]
    assert sum(found.values()) == pytest.approx(1 - 20 / 75, abs=0.01)
    assert found[Rule.SLOW_SAMPLER] == pytest.approx(15 / 75, abs=0.01)


def test_a_setting_comes_first(inside: Callable[..., Run]) -> None:
    """It is easier to change than the samples, and leaves them nothing."""
    run = inside(**FEW_SLOW, prefetch=1)
    assert outcome(Rule.SLOW_SAMPLES, run) == "found"
    assert list(costs(run)) == [Rule.SHALLOW_QUEUE]


def test_a_setting_that_gains_little_does_not(inside: Callable[..., Run]) -> None:
    """Where the loader is too slow for it to help, it is not told at all."""
    run = inside(**{**FEW_SLOW, "fetch": np.where(SLOW_ONES, 200.0, 8.0), "prefetch": 8})
    assert Rule.SHALLOW_QUEUE not in costs(run)


def test_stalls_are_told_by_their_samples(inside: Callable[..., Run]) -> None:
    """Not a second time."""
    slow = np.arange(COUNT) == 70
    run = inside(
        fetch=np.where(slow, 3000.0, 8.0),
        slowest=np.where(slow, 2990.0, 2.5),
        slowest_index=np.where(slow, 17, 3),
        workers=1,
        pairs=10,
    )
    times = run.stages[0]
    many = replace(run, steps=tiled(run, 3))
    assert times is many.stages[0]
    assert outcome(Rule.STALLS, many) == "found"
    found = costs(many)
    assert Rule.STALLS not in found
    assert found.keys() == {Rule.SLOW_SAMPLES}


def tiled(run: Run, times: int) -> Steps:
    """The steps of a run again and again, in further pairs."""
    steps, count = run.steps, len(run.steps)
    last_ns = int(steps.request_ns[-1] + steps.wait_ns[-1] + steps.step_ns[-1])
    columns: dict[str, Any] = {}
    for one in fields(Steps):
        column = getattr(steps, one.name)
        columns[one.name] = np.tile(column, times)
    again = np.repeat(np.arange(times), count)
    columns["pair"] = columns["pair"] + again * (int(steps.pair.max()) + 1)
    columns["request_ns"] = columns["request_ns"] + again * last_ns
    return Steps(**columns)


def test_what_no_cause_explains_is_told_from_outside(inside: Callable[..., Run]) -> None:
    """Once: what stalls have is no part of it."""
    run = inside(fetch=60, environment={"cpus_usable": 1}, workers=1, prefetch=1)
    many = replace(run, steps=tiled(run, 3))
    real = np.flatnonzero(many.steps.arm == 0)
    many.steps.wait_ns[real] = MS
    many.steps.wait_ns[real[::100]] = 1000 * MS
    case, found = Case.of(many), costs(many)
    assert found.keys() == {Rule.STALLS, Rule.CAPACITY}
    assert found[Rule.STALLS] > 0.3
    assert sum(found.values()) == pytest.approx(case.waiting_share)


def test_workers_that_may_be_too_many_leave_the_waiting_to_others(
    inside: Callable[..., Run],
) -> None:
    """They cost nothing that is known, and explain nothing."""
    run = inside(
        fetch=400, workers=9, cpu_ns=UNKNOWN, run_queue_ns=UNKNOWN, environment={"cpus_usable": 8}
    )
    assert outcome(Rule.OVERSUBSCRIPTION, run) == "found"
    found = costs(run)
    assert found.keys() == {Rule.CAPACITY}


def test_workers_that_wait_for_cpus_have_the_slower_steps(inside: Callable[..., Run]) -> None:
    """A loss of 16 of 36 ms, 10 of them waited, is for one reason."""
    run = inside(fetch=60, run_queue=0.4, others=2.0, real=26)
    assert outcome(Rule.CONTENTION, run) == "found"
    assert costs(run) == pytest.approx({Rule.OVERSUBSCRIPTION: 16 / 36}, abs=0.01)


def test_workers_that_wait_for_cpus_are_told_by_the_slower_steps_alone(
    inside: Callable[..., Run],
) -> None:
    """Though training hardly waits for them."""
    run = inside(fetch=10, run_queue=0.4, others=2.0, real=26)
    assert costs(run) == pytest.approx({Rule.OVERSUBSCRIPTION: 6 / 26}, abs=0.01)


def test_what_takes_the_cpus_has_the_slower_steps(
    inside: Callable[..., Run], with_cores: MakeRun
) -> None:
    """A transform that keeps all of them busy; not where some are free."""
    run = inside(
        fetch=120,
        workers=4,
        transforms={"blur": 0.8},
        real=26,
        environment={"cpus_usable": 4},
    )
    busy = with_cores(run, process=1.0, workers=(3.0, 0.0))
    assert costs(busy) == pytest.approx({Rule.SLOW_TRANSFORM: 16 / 36}, abs=0.01)
    free = with_cores(run, process=0.5, workers=(1.0, 0.0))
    assert costs(free) == pytest.approx(
        {Rule.SLOW_TRANSFORM: 10 / 36, Rule.CONTENTION: 6 / 36}, abs=0.01
    )


def test_crowded_workers_are_told_with_the_work_that_crowds_them(
    inside: Callable[..., Run],
) -> None:
    """Where nothing but that work is there to be less of, it has their cost."""
    run = inside(fetch=60, run_queue=0.2, real=26, transforms={"blur": 0.8})
    assert outcome(Rule.OVERSUBSCRIPTION, run) == "found"
    assert costs(run) == pytest.approx({Rule.SLOW_TRANSFORM: 16 / 36}, abs=0.01)


def test_of_one_pair_a_cause_is_only_possible(inside: Callable[..., Run]) -> None:
    """For what it costs is not sure."""
    found = finding(Rule.SLOW_TRANSFORM, inside(fetch=60, transforms={"blur": 0.8}, pairs=1))
    assert found.confidence == "possible"
    assert found.caveat is not None
    assert found.caveat.code is Caveat.TOO_FEW_PAIRS


def test_no_worker_more_leaves_cheaper_batches(inside: Callable[..., Run]) -> None:
    """A loader that is too slow on all CPUs."""
    found = finding(Rule.CAPACITY, inside(fetch=400, workers=8))
    assert [one.code for one in found.changes] == [Advice.NO_MORE_WORKERS, Advice.CHEAPER_OR_CPUS]


LOADING: dict[str, Any] = {"wait": 50, "alone": 100, "backend": SPDL, "workers": 4}


def test_a_slow_operator_replaces_a_slow_loader(alternating: MakeRun) -> None:
    """It is why the loader is too slow."""
    run = replace(alternating(**LOADING), operators=(DECODE, SINK))
    assert outcome(Rule.CAPACITY, run) == "found"
    assert costs(run) == pytest.approx({Rule.SLOW_OPERATOR: 0.5})


def test_pythons_lock_has_the_slower_steps_and_part_of_the_waiting(alternating: MakeRun) -> None:
    """An operator has the rest; all together no more than is lost, stalls or not."""
    decode = replace(DECODE, run_ns=19_000 * MS, cpu_ns=4_000 * MS)
    run = with_lock(alternating(**LOADING, real=60, pairs=40), 2, 0.07, decode, SINK)
    assert outcome(Rule.CONTENTION, run) == "found"
    found = costs(run)
    assert found.keys() == {Rule.PYTHON_LOCK, Rule.SLOW_OPERATOR}
    assert sum(found.values()) == pytest.approx(60 / 110)
    stalled = with_stalls(run)
    case, found = Case.of(stalled), costs(stalled)
    assert {Rule.STALLS, Rule.PYTHON_LOCK} <= found.keys()
    assert sum(found.values()) == pytest.approx(case.waiting_share + case.contention_share)


def with_stalls(run: Run) -> Run:
    """The same waiting, nearly all of it in four batches."""
    real = np.flatnonzero(run.steps.arm == 0)
    run.steps.wait_ns[real] = MS
    run.steps.wait_ns[real[40::80]] = 4000 * MS
    return run


def test_slow_batches_of_a_slow_operator_are_told_once(alternating: MakeRun) -> None:
    """Their waits are the operator's, and their steps those of Python's lock."""
    run = with_lock(alternating(**LOADING, real=60, pairs=40), 5, 0.07, DECODE, SINK)
    real = np.flatnonzero(run.steps.arm == 0)
    run.steps.wait_ns[real[::50]] = 300 * MS
    run.steps.step_ns[real[12::50]] = 300 * MS
    assert finding(Rule.OUTLIERS, run).cost_share is None
