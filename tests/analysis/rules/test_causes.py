"""Causes inside the loader: which of them are told, and what each costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.finding import Advice, Caveat, Rule
from loadeval.analysis.rules.fixes import FIXES, gain_of
from loadeval.analysis.rules.inside import LEAST_GAIN
from loadeval.analysis.rules.variability import outlying_shares
from loadeval.data.columns import UNKNOWN, Columns
from tests.analysis.rules.conftest import diagnosed, finding_of, outcome
from tests.analysis.rules.test_diagnosis import SEEDS, SLACK, costs
from tests.analysis.rules.test_operators import DECODE, SINK, SPDL, with_lock
from tests.runs.given import MS, alternating, cores_read
from tests.runs.looked_into import COUNT, code, looked_into
from tests.runs.tables import altered, replace, with_steps

if TYPE_CHECKING:
    from loadeval.data.run import Run

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


def some_loader(seed: int) -> Run:
    """A run with a loader of anything, by a seed."""
    rng = np.random.default_rng(seed)

    def pick(*choices: Any) -> Any:
        return choices[rng.integers(len(choices))]

    fetch = pick(5, 30, 60, 150) * rng.gamma(pick(1, 50), 1, COUNT)
    slow = rng.random(COUNT) < pick(0, 0.05, 0.15)
    fetch = fetch / max(fetch.mean() / 60, 1) + 300 * slow
    seen = code({"data.py:31 __getitem__": pick(1, 9), "data.py:50 padded": 4})
    blocked = code({}, {f"data.py:35 read > {pick('futex_wait', 'io_schedule', 'poll')}": 5})
    step = pick(10.0, 20.0, 60.0)
    return looked_into(
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


@pytest.mark.parametrize("seed", SEEDS)
def test_causes_never_cost_more_than_is_lost(seed: int) -> None:
    """None of them has a cost below 0, or one that is next to nothing."""
    run = some_loader(seed)
    shares, case = costs(run), Case(run)
    assert case.headroom is not None
    assert case.headroom.lost_share is not None
    allowed = max(case.headroom.lost_share.value, 0.0) + sum(outlying_shares(case))
    assert sum(shares.values()) <= min(allowed, 1.0) + SLACK
    assert all(cost >= LEAST_GAIN for rule, cost in shares.items() if rule in FIXES)


@pytest.mark.parametrize("seed", SEEDS)
def test_where_nothing_is_waited_for_nothing_in_the_loader_is_blamed(seed: int) -> None:
    """What takes long in it does not matter."""
    run = with_steps(some_loader(seed), wait_ns=0, step_ns=20 * MS)
    assert not {finding.rule for finding in diagnosed(run).findings} & INSIDE


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loader_that_nobody_looked_into_has_no_cause_inside(seed: int) -> None:
    """What it waits for is told as from outside."""
    shares = costs(replace(some_loader(seed), stages=(), code=()))
    assert not shares.keys() & INSIDE


def test_what_makes_loading_slow_replaces_that_it_is() -> None:
    """All the waiting: more workers, advised there, would gain what CPU time does not grow."""
    shares = costs(looked_into(fetch=60))
    assert shares == pytest.approx({Rule.CAPACITY: 1 - 22.2 / 30}, abs=0.01)
    shares = costs(looked_into(fetch=60, transforms={"blur": 0.8}))
    assert shares == pytest.approx({Rule.SLOW_TRANSFORM: 1 / 3}, abs=0.01)


def test_what_is_special_comes_before_what_all_loading_goes_into() -> None:
    """Where both would gain as much, the worker that is slow has it."""
    run = looked_into(fetch=np.where(np.arange(COUNT) % 2, 100.0, 30.0), transforms={"blur": 0.8})
    for rule in (Rule.SLOW_TRANSFORM, Rule.SLOW_WORKER, Rule.CAPACITY):
        assert outcome(rule, run) == "found"
    assert costs(run) == pytest.approx({Rule.SLOW_WORKER: 30 / 50}, abs=0.01)


def test_a_finding_of_which_another_has_all_the_time_is_none() -> None:
    """Every rule is in one of the three lists."""
    run = looked_into(fetch=np.where(np.arange(COUNT) % 2, 100.0, 30.0), transforms={"blur": 0.8})
    diagnosis = diagnosed(run)
    found = [check.rule for check in diagnosis.checks if check.outcome == "found"]
    assert found == [finding.rule for finding in diagnosis.findings] == [Rule.SLOW_WORKER]


def test_a_small_cause_comes_after_what_all_loading_goes_into() -> None:
    """A sampler that takes 15 of 75 ms has what is left without the transform."""
    run = looked_into(fetch=60, index=15, workers=1, prefetch=1, transforms={"blur": 0.8})
    assert outcome(Rule.SLOW_SAMPLER, run) == "found"
    shares = costs(run)
    assert list(shares) == [Rule.SLOW_TRANSFORM, Rule.SLOW_SAMPLER]
    assert sum(shares.values()) == pytest.approx(1 - 20 / 75, abs=0.01)
    assert shares[Rule.SLOW_SAMPLER] == pytest.approx(15 / 75, abs=0.01)


@pytest.mark.parametrize(
    ("workers", "training", "is_finding"), [(1, 1.0, True), (2, 1.0, False), (1, 7.5, False)]
)
def test_one_worker_is_a_finding_of_its_own(
    workers: int, training: float, is_finding: bool
) -> None:
    """Where a CPU is free for a second one; both cost what is lost at most."""
    run = looked_into(fetch=75 * workers, workers=workers, transforms={"blur": 0.8})
    run = cores_read(run, process=training, workers=(0.9 * workers, 0.0))
    shares = costs(run)
    assert (Rule.CAPACITY in shares) is is_finding
    assert sum(shares.values()) <= 1 - 20 / 75 + 0.01


def test_a_setting_comes_first() -> None:
    """It is easier to change than the samples, and leaves them nothing."""
    run = looked_into(**FEW_SLOW, prefetch=1)
    assert outcome(Rule.SLOW_SAMPLES, run) == "found"
    assert list(costs(run)) == [Rule.SHALLOW_QUEUE]


def test_a_setting_names_the_samples_too() -> None:
    """With what training gains without what is slow in them."""
    run = looked_into(**FEW_SLOW, prefetch=1)
    deeper, samples = diagnosed(run).findings[0].changes
    assert [deeper.code, samples.code] == [Advice.RAISE, Advice.FIX_SAMPLES]
    assert samples.values["indices"] == "17"
    gain = gain_of(Case(run), Rule.SLOW_SAMPLES)
    assert samples.values["at_most"] == pytest.approx(1 / (1 - gain), rel=0.01)


def test_a_setting_that_gains_little_does_not() -> None:
    """Where the loader is too slow for it to help, it is not told at all."""
    run = looked_into(**{**FEW_SLOW, "fetch": np.where(SLOW_ONES, 200.0, 8.0), "prefetch": 8})
    assert Rule.SHALLOW_QUEUE not in costs(run)


def test_stalls_are_told_by_their_samples() -> None:
    """Not a second time."""
    slow = np.arange(COUNT) == 70
    run = looked_into(
        fetch=np.where(slow, 3000.0, 8.0),
        slowest=np.where(slow, 2990.0, 2.5),
        slowest_index=np.where(slow, 17, 3),
        workers=1,
        pairs=10,
    )
    many = replace(run, steps=tiled(run, 3))
    assert outcome(Rule.STALLS, many) == "found"
    shares = costs(many)
    assert Rule.STALLS not in shares
    assert shares.keys() == {Rule.SLOW_SAMPLES}


def tiled(run: Run, times: int) -> Columns:
    """The steps of a run again and again, in further pairs."""
    steps, count = run.steps, len(run.steps)
    last_ns = int(steps.request_ns[-1] + steps.wait_ns[-1] + steps.step_ns[-1])
    again = np.repeat(np.arange(times), count)
    tiles = steps.take(np.tile(np.arange(count), times))
    return tiles.replace(
        pair=tiles.pair + again * (int(steps.pair.max()) + 1),
        request_ns=tiles.request_ns + again * last_ns,
    )


def test_what_no_cause_explains_is_told_from_outside() -> None:
    """Once: what stalls have is no part of it."""
    run = looked_into(fetch=60, environment={"cpus_usable": 1}, workers=1, prefetch=1)
    many = replace(run, steps=tiled(run, 3))
    real = np.flatnonzero(many.steps.arm == 0)
    wait_ns = altered(many.steps.wait_ns, real, MS)
    many = with_steps(many, wait_ns=altered(wait_ns, real[::100], 1000 * MS))
    case, shares = Case(many), costs(many)
    assert shares.keys() == {Rule.STALLS, Rule.CAPACITY}
    assert shares[Rule.STALLS] > 0.3
    assert sum(shares.values()) == pytest.approx(case.waiting_share)


def test_workers_that_may_be_too_many_leave_the_waiting_to_others() -> None:
    """They cost nothing that is known, and explain nothing."""
    run = looked_into(
        fetch=400, workers=9, cpu_ns=UNKNOWN, run_queue_ns=UNKNOWN, environment={"cpus_usable": 8}
    )
    assert outcome(Rule.OVERSUBSCRIPTION, run) == "found"
    shares = costs(run)
    assert shares.keys() == {Rule.CAPACITY}


def test_workers_that_wait_for_cpus_have_the_slower_steps() -> None:
    """A loss of 16 of 36 ms, 10 of them waited, is for one reason."""
    run = looked_into(fetch=60, run_queue=0.4, others=2.0, real=26)
    assert outcome(Rule.CONTENTION, run) == "found"
    assert costs(run) == pytest.approx({Rule.OVERSUBSCRIPTION: 16 / 36}, abs=0.01)


def test_workers_that_wait_for_cpus_are_told_by_the_slower_steps_alone() -> None:
    """Though training hardly waits for them."""
    run = looked_into(fetch=10, run_queue=0.4, others=2.0, real=26)
    assert costs(run) == pytest.approx({Rule.OVERSUBSCRIPTION: 6 / 26}, abs=0.01)


def test_what_takes_the_cpus_has_the_slower_steps() -> None:
    """A transform that keeps all of them busy; not where some are free."""
    run = looked_into(
        fetch=120,
        workers=4,
        transforms={"blur": 0.8},
        real=26,
        environment={"cpus_usable": 4},
    )
    busy = cores_read(run, process=1.0, workers=(3.0, 0.0))
    assert costs(busy) == pytest.approx({Rule.SLOW_TRANSFORM: 16 / 36}, abs=0.01)
    free = cores_read(run, process=0.5, workers=(1.0, 0.0))
    assert costs(free) == pytest.approx(
        {Rule.SLOW_TRANSFORM: 10 / 36, Rule.CONTENTION: 6 / 36}, abs=0.01
    )


def test_a_thread_that_holds_pythons_lock_has_the_slower_steps() -> None:
    """The workers have the waiting alone."""
    run = with_lock(looked_into(fetch=10, real=26), 5, 0.07, rests=True)
    assert costs(run) == pytest.approx({Rule.PYTHON_LOCK: 6 / 26}, abs=0.01)


def test_crowded_workers_are_told_with_the_work_that_crowds_them() -> None:
    """Where nothing but that work is there to be less of, it has their cost."""
    run = looked_into(fetch=60, run_queue=0.2, real=26, transforms={"blur": 0.8})
    assert outcome(Rule.OVERSUBSCRIPTION, run) == "found"
    assert costs(run) == pytest.approx({Rule.SLOW_TRANSFORM: 16 / 36}, abs=0.01)


def test_of_one_pair_a_cause_is_only_possible() -> None:
    """For what it costs is not sure."""
    finding = finding_of(
        Rule.SLOW_TRANSFORM, looked_into(fetch=60, transforms={"blur": 0.8}, pairs=1)
    )
    assert finding.confidence == "possible"
    assert finding.caveat is not None
    assert finding.caveat.code is Caveat.TOO_FEW_PAIRS


def test_no_worker_more_leaves_cheaper_batches() -> None:
    """A loader that is too slow on all CPUs."""
    finding = finding_of(Rule.CAPACITY, looked_into(fetch=400, workers=8))
    assert [change.code for change in finding.changes] == [
        Advice.NO_MORE_WORKERS,
        Advice.CHEAPER_OR_CPUS,
    ]


LOADING: dict[str, Any] = {"wait": 50, "alone": 100, "backend": SPDL, "workers": 4}


def test_a_slow_operator_replaces_a_slow_loader() -> None:
    """It is why the loader is too slow."""
    run = replace(alternating(**LOADING), operators=(DECODE, SINK))
    assert outcome(Rule.CAPACITY, run) == "found"
    assert costs(run) == pytest.approx({Rule.SLOW_OPERATOR: 0.5})


def test_pythons_lock_has_the_slower_steps_and_part_of_the_waiting() -> None:
    """An operator has the rest; all together no more than is lost, stalls or not."""
    decode = replace(DECODE, run_ns=19_000 * MS, cpu_ns=4_000 * MS)
    run = with_lock(alternating(**LOADING, real=60, pairs=40), 2, 0.07, decode, SINK)
    assert outcome(Rule.CONTENTION, run) == "found"
    shares = costs(run)
    assert shares.keys() == {Rule.PYTHON_LOCK, Rule.SLOW_OPERATOR}
    assert sum(shares.values()) == pytest.approx(60 / 110)
    stalled = with_stalls(run)
    case, shares = Case(stalled), costs(stalled)
    assert {Rule.STALLS, Rule.PYTHON_LOCK} <= shares.keys()
    assert sum(shares.values()) == pytest.approx(case.waiting_share + case.contention_share)


def with_stalls(run: Run) -> Run:
    """The same waiting, nearly all of it in four batches."""
    real = np.flatnonzero(run.steps.arm == 0)
    wait_ns = altered(run.steps.wait_ns, real, MS)
    return with_steps(run, wait_ns=altered(wait_ns, real[40::80], 4000 * MS))


def test_slow_batches_of_a_slow_operator_are_told_once() -> None:
    """Their waits are the operator's, and their steps those of Python's lock."""
    run = with_lock(alternating(**LOADING, real=60, pairs=40), 5, 0.07, DECODE, SINK)
    real = np.flatnonzero(run.steps.arm == 0)
    run = with_steps(
        run,
        wait_ns=altered(run.steps.wait_ns, real[::50], 300 * MS),
        step_ns=altered(run.steps.step_ns, real[12::50], 300 * MS),
    )
    assert finding_of(Rule.OUTLIERS, run).cost_share is None
