"""Simulated loaders: next to ones that are modelled in another way, and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadeval.analysis.predict.costs import MOST_BATCHES, Costs, Receiving, costs_of
from loadeval.analysis.predict.scheduling import Affinity
from loadeval.analysis.predict.simulation import SETTLING, Setting, iteration_ns, replayed
from loadeval.data.columns import UNKNOWN
from tests.runs.given import MS
from tests.runs.loader_model import (
    LoaderModel,
    constant,
    iterations_ns,
    of_each,
    run_of,
)
from tests.runs.tables import Rows, replace, rows_of

SCALES = st.sampled_from([0, 10_000, MS, 20 * MS])


@st.composite
def models(draw: st.DrawFn) -> LoaderModel:
    """Loaders of any setting with workers, and some hundred batches."""
    workers, prefetch_factor = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = 300

    def column(scale: int) -> list[int]:
        spread = draw(st.sampled_from([0.1, 1.0, 4.0]))
        return of_each(scale * rng.gamma(1 / spread, spread, count))

    return LoaderModel(
        workers=workers,
        prefetch_factor=prefetch_factor,
        index_ns=column(draw(SCALES)),
        fetch_ns=column(draw(SCALES) + 1000),
        collate_ns=column(draw(SCALES)),
        pickle_ns=column(draw(SCALES)),
        receive_ns=column(draw(SCALES)),
        pin_ns=column(draw(SCALES)),
        step_ns=draw(SCALES),
        in_order=draw(st.booleans()),
        pins=draw(st.booleans()),
        pickles_apart=False,
    )


def setting_of(model: LoaderModel, **changed: Any) -> Setting:
    setting = Setting(model.workers, model.prefetch_factor, model.in_order, None, model.pins)
    return replace(setting, **changed)


def costs(count: int = 40, *, step_ns: float = 0.0, **taken: float) -> Costs:
    """The costs of batches that all take the same, in milliseconds; 0 by default."""
    names = ("cpu", "run_queue", "blocked", "pickle", "receive", "pin", "index", "slow")
    columns: dict[str, Any] = {
        f"{name}_ns": np.full(count, taken.pop(name, 0.0) * MS) for name in names
    }
    assert not taken
    return Costs(**columns, worker=np.zeros(count, dtype=np.int64), step_ns=step_ns * MS)


def simulated_ms(
    batch_costs: Costs, workers: int = 2, prefetch_factor: int = 2, **more: Any
) -> float:
    return iteration_ns(batch_costs, Setting(workers, prefetch_factor, **more)) / MS


@given(models())
def test_a_replay_takes_as_long_as_the_loader(model: LoaderModel) -> None:
    """This holds for any costs and setting with enough CPUs, once the queue has settled."""
    repeated = {
        name: getattr(model, name) * 2
        for name in ("index_ns", "fetch_ns", "collate_ns", "pickle_ns", "receive_ns", "pin_ns")
    }
    taken_ns = iterations_ns(replace(model, **repeated).times())
    counted = len(model) - len(model) // SETTLING
    counted -= counted % model.workers
    expected_ns = taken_ns[len(model) - 1 - counted : len(model) - 1].mean()
    assert iteration_ns(model.costs(), setting_of(model)) == pytest.approx(expected_ns, rel=1e-3)


@given(models())
def test_more_cpus_than_are_wanted_change_nothing(model: LoaderModel) -> None:
    """The same as if there were no limit."""
    unlimited = iteration_ns(model.costs(), setting_of(model))
    limited = iteration_ns(model.costs(), setting_of(model, cpus=model.workers + 1.0))
    assert limited == pytest.approx(unlimited)


@given(models(), st.floats(0.5, 4))
def test_fewer_cpus_are_never_overused(model: LoaderModel, cpus: float) -> None:
    """No iteration is shorter than its CPU time on as many."""
    batch_costs = model.costs()
    needed_ns = float((batch_costs.cpu_ns + batch_costs.index_ns).mean()) + batch_costs.step_ns
    means: dict[str, Any] = {
        name: np.full(300, getattr(batch_costs, name).mean()) for name in COSTS
    }
    assert (
        iteration_ns(replace(batch_costs, **means), setting_of(model, cpus=cpus))
        >= 0.95 * needed_ns / cpus
    )


COSTS = ("cpu_ns", "blocked_ns", "pickle_ns", "receive_ns", "pin_ns", "index_ns")


@given(models())
def test_a_recorded_loader_is_replayed(model: LoaderModel) -> None:
    """From what its stages take, in a run of a loader as it is."""
    run = run_of(model.times(), workers=model.workers, depth=model.depth)
    costs = costs_of(run, model.step_ns)
    assert costs is not None
    assert len(costs) == len(model) - model.workers
    taken_ns = iterations_ns(rows_of(run)[0])[len(model) // SETTLING :].mean()
    replayed_ns = iteration_ns(costs, setting_of(model))
    # In another order than that in which they were asked for, and beginning later.
    assert replayed_ns == pytest.approx(taken_ns, rel=0.25, abs=1)


@pytest.mark.parametrize(
    ("taken", "setting", "expected_ms"),
    [
        ({"cpu": 6, "blocked": 4}, {"workers": 0}, 10 + 3),
        ({"cpu": 6, "index": 2, "pin": 1, "receive": 9}, {"workers": 0}, 6 + 2 + 1 + 3),
        ({"cpu": 10}, {"workers": 1}, 10),
        ({"cpu": 10}, {"workers": 2}, 5),
        ({"cpu": 10}, {"workers": 8}, 3),  # the step
        ({"cpu": 6, "run_queue": 1, "blocked": 1, "pickle": 2}, {"workers": 2}, 5),
        ({"cpu": 10, "receive": 4, "index": 2}, {"workers": 8}, 3 + 4 + 2),
        # A thread receives and pins meanwhile.
        ({"cpu": 10, "receive": 4, "pin": 5, "index": 2}, {"workers": 8, "pins": True}, 9),
        # Nothing is outstanding while a batch is received.
        ({"cpu": 10, "receive": 4}, {"workers": 1, "prefetch_factor": 1}, 10 + 4),
    ],
)
def test_what_limits_a_loader(
    taken: dict[str, Any], setting: dict[str, Any], expected_ms: float
) -> None:
    """Its workers, what the training process does, or the step of 3 ms."""
    assert simulated_ms(costs(step_ns=3, **taken), **setting) == pytest.approx(expected_ms)


@pytest.mark.parametrize(
    ("taken", "step_ms", "cpus", "expected_ms"),
    [
        ({"cpu": 8}, 0, 2.0, 4),  # four workers share two CPUs
        ({"cpu": 8}, 0, 4.0, 2),
        ({"cpu": 8}, 4, 3.0, 4),  # and a step: 12 ms of a batch on three
        ({"cpu": 2, "blocked": 6}, 0, 4.0, 2),
        ({"cpu": 2, "blocked": 6}, 0, 1.0, (8 + 6) / 4),  # what is blocked needs none
    ],
)
def test_cpus_are_shared(
    taken: dict[str, Any], step_ms: float, cpus: float, expected_ms: float
) -> None:
    """Among those that compute, equally."""
    time_ms = simulated_ms(costs(400, step_ns=step_ms, **taken), workers=4, cpus=cpus)
    assert time_ms == pytest.approx(expected_ms, rel=0.05)


@pytest.mark.parametrize(
    ("affinity", "step_ms", "expected_ms"),
    [
        (Affinity(training=4, workers=1, shared=1), 0, 8),  # all on one CPU
        (Affinity(training=4, workers=2, shared=2), 0, 4),
        (Affinity(training=3, workers=1, shared=0), 4, 8),  # the step has CPUs of its own
        (Affinity(training=4, workers=1, shared=1), 4, 8),  # or moves to one that is free
        (Affinity(training=1, workers=1, shared=1), 4, 12),  # or has no other
        (Affinity(training=1, workers=4, shared=1), 8, 8),  # workers leave it to the step
        (Affinity(training=4, workers=4, shared=4), 4, 4),  # no restriction
    ],
)
def test_workers_and_training_may_use_other_cpus(
    affinity: Affinity, step_ms: float, expected_ms: float
) -> None:
    """Four workers of 8 ms a batch share those that they may use, whatever else is idle."""
    batch_costs = costs(400, step_ns=step_ms, cpu=8)
    time_ms = simulated_ms(batch_costs, 4, cpus=float(affinity.cpus), affinity=affinity)
    assert time_ms == pytest.approx(expected_ms, rel=0.06)


def test_other_programs_use_any_cpu() -> None:
    """They go where the fewest are: workers bound to one keep it for themselves."""
    affinity = Affinity(training=4, workers=1, shared=1)
    time_ms = simulated_ms(costs(400, cpu=8), 4, cpus=4.0, affinity=affinity, others_cpus=2.0)
    assert time_ms == pytest.approx(8, rel=0.06)


@pytest.mark.parametrize(
    ("taken", "setting", "expected_ms"),
    [
        ({"cpu": 8}, {"workers": 1}, 8),  # alone
        ({"cpu": 8}, {"workers": 4}, 8 * 1.3 / 4),
        ({"cpu": 8}, {"workers": 4, "cpus": 2.0}, 8 * 1.1 / 2),  # two are in use
        ({"cpu": 8}, {"workers": 1, "cpus": 0.5}, 8 / 0.5),
        ({"blocked": 8}, {"workers": 4}, 8 / 4),
        ({"cpu": 8}, {"workers": 1, "others_cpus": 1.0}, 8 * 1.1),
        ({"cpu": 8}, {"workers": 0}, 8),
    ],
)
def test_cpu_time_grows(taken: dict[str, Any], setting: dict[str, Any], expected_ms: float) -> None:
    """It grows by a tenth for each further CPU in use, whoever uses it; blocked time does not."""
    time_ms = simulated_ms(costs(400, **taken), **setting, growth=0.1)
    assert time_ms == pytest.approx(expected_ms, rel=0.01)


@pytest.mark.parametrize(
    ("taken", "workers", "grown"),
    [({"cpu": 8}, 4, 1.3), ({"cpu": 8}, 1, 1.0), ({"blocked": 8}, 4, 1.0), ({"cpu": 8}, 0, 1.0)],
)
def test_by_how_much_cpu_time_has_grown(taken: dict[str, Any], workers: int, grown: float) -> None:
    """The growth is over one CPU in use; there is none where no CPU is."""
    growth_seen = replayed(costs(400, **taken), Setting(workers, growth=0.1)).grown
    assert growth_seen == pytest.approx(grown, rel=0.01)


@pytest.mark.parametrize(
    ("workers", "others", "expected_ms"),
    [
        (2, 0.0, 4),
        (2, 2.0, 8),  # half of two CPUs for two workers
        (6, 2.0, 8 / 1.5),  # who are more get more
        (2, 0.5, 5),
    ],
)
def test_other_programs_share_the_cpus(workers: int, others: float, expected_ms: float) -> None:
    """All who compute have equal shares."""
    time_ms = simulated_ms(costs(400, cpu=8), workers=workers, cpus=2.0, others_cpus=others)
    assert time_ms == pytest.approx(expected_ms, rel=0.02)


@pytest.mark.parametrize(
    ("step_cpus", "cpus", "expected_ms"),
    [
        (1.0, 1.0, 10 + 10),  # one CPU does all
        (0.5, 1.0, 10 + 5),  # the step waits for half of its time
        (0.0, 1.0, 10),  # for all of it
        (1.0, 2.0, 10),
        (3.0, 2.0, 20),  # four threads on two CPUs, while the step lasts
        (3.0, 4.0, 10),
    ],
)
def test_cpus_of_the_step(step_cpus: float, cpus: float, expected_ms: float) -> None:
    """A step takes 10 ms, beside a worker that computes for as long."""
    batch_costs = replace(costs(400, cpu=10, step_ns=10), step_cpus=step_cpus)
    assert simulated_ms(batch_costs, workers=1, cpus=cpus) == pytest.approx(expected_ms, rel=0.03)


@pytest.mark.parametrize("step_cpus", [0.02, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("others", [0.5, 1.0, 1.5, 2.0])
def test_other_programs_alone_do_not_make_a_step_longer(step_cpus: float, others: float) -> None:
    """It took 10 ms beside them, and was waiting for them, or computing, or neither."""
    batch_costs = replace(costs(400, blocked=8, step_ns=10), step_cpus=step_cpus)
    time_ms = simulated_ms(batch_costs, workers=1, cpus=2.0, others_cpus=others)
    assert time_ms == pytest.approx(10, rel=0.01)


def test_a_step_that_waits_takes_its_time() -> None:
    """The number of CPUs does not matter."""
    for step_cpus in (0.0, 0.5, 1.0, 7.0):
        batch_costs = replace(costs(400, cpu=1, step_ns=10), step_cpus=step_cpus)
        assert simulated_ms(batch_costs, workers=2) == pytest.approx(10)


@given(
    st.floats(0, 20),
    st.floats(0.1, 20),
    st.integers(1, 12),
    st.floats(0.5, 8),
    st.floats(1, 3),
    st.floats(0, 0.3),
)
def test_more_cpus_are_never_slower(
    blocked: float, cpu: float, workers: int, cpus: float, times: float, growth: float
) -> None:
    """All batches take the same, beside a step of 5 ms."""
    batch_costs = costs(200, cpu=cpu, blocked=blocked, step_ns=5)
    few, more = (
        simulated_ms(batch_costs, workers=workers, cpus=available, growth=growth)
        for available in (cpus, cpus * times)
    )
    assert more <= 1.02 * few


@given(models(), st.floats(0, 0.3), st.floats(0, 4), st.floats(0, 4))
def test_no_iteration_is_shorter_than_its_step(
    model: LoaderModel, growth: float, others: float, step_cpus: float
) -> None:
    """What shares the CPUs with it does not matter."""
    setting = setting_of(model, growth=growth, cpus=4.0, others_cpus=others)
    batch_costs = replace(model.costs(), step_cpus=step_cpus)
    assert iteration_ns(batch_costs, setting) >= (1 - 1e-6) * model.step_ns


def test_out_of_order_a_slow_batch_is_waited_for_by_its_worker_alone() -> None:
    """In order the others have filled the queue long before it is done."""
    batch_costs = costs(400, cpu=2)
    batch_costs.blocked_ns[::20] = 40 * MS
    in_order = simulated_ms(batch_costs, workers=4, in_order=True)
    out_of_order = simulated_ms(batch_costs, workers=4, in_order=False)
    assert out_of_order == pytest.approx((2 + 40 / 20) / 4, rel=0.1)
    assert in_order > 1.8 * out_of_order


@pytest.mark.parametrize(
    ("lock_ms", "setting", "expected_ms"),
    [
        (math.inf, {"workers": 1}, 10 + 1),  # the worker is done, and has to wait for more
        (math.inf, {"workers": 1, "prefetch_factor": 1}, 10 + 1),  # it has nothing to do
        (0.0, {"workers": 1}, 10),
        (math.inf, {"workers": 8}, 3 + 1),  # all have filled the queue
    ],
)
def test_receiving_waits_for_the_lock_of_a_busy_worker(
    lock_ms: float, setting: dict[str, Any], expected_ms: float
) -> None:
    """The worker computes 10 ms, beside a step of 3 ms; receiving takes 1 ms."""
    batch_costs = replace(costs(400, cpu=10, receive=1, step_ns=3), lock_ns=lock_ms * MS)
    assert simulated_ms(batch_costs, **setting) == pytest.approx(expected_ms, rel=0.02)


def test_a_lock_holds_up_more_where_batches_come_in_any_order() -> None:
    """Batches of one worker lie one after the other for a part of the time."""
    batch_costs = costs(400, cpu=12, receive=0.5, step_ns=3)
    held_up = replace(batch_costs, lock_ns=math.inf)
    in_order = simulated_ms(held_up, workers=3)
    any_order = simulated_ms(held_up, workers=3, in_order=False)
    assert any_order > 1.3 * in_order
    assert simulated_ms(batch_costs, workers=3, in_order=False) == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize(("prefetch_factor", "expected_ms"), [(1, 10 + 2), (2, 10)])
def test_a_batch_is_on_its_way_for_a_while(prefetch_factor: int, expected_ms: float) -> None:
    """Its worker waits for that where it may not load ahead."""
    batch_costs = replace(costs(400, cpu=10, step_ns=3), arrive_ns=2 * MS)
    took_ms = simulated_ms(batch_costs, workers=1, prefetch_factor=prefetch_factor)
    assert took_ms == pytest.approx(expected_ms, rel=0.02)


def test_what_a_thread_receives_waits_for_no_lock() -> None:
    batch_costs = costs(400, cpu=12, receive=0.5, step_ns=3)
    setting: dict[str, Any] = {"workers": 3, "in_order": False, "pins": True}
    expected_ms = simulated_ms(batch_costs, **setting)
    assert simulated_ms(replace(batch_costs, lock_ns=math.inf), **setting) == expected_ms


def received(took_ms: list[float], idle: int = 0, after_ms: list[float] | None = None) -> Receiving:
    """Of one worker's batches, 1 ms after they were made; that of the first ones is idle then."""
    count = len(took_ms)
    start, took = np.arange(count) * 30 * MS, np.array(took_ms) * MS
    fetch = np.where(np.arange(count) < idle, 10, 30) * MS
    began = start + fetch + (MS if after_ms is None else np.array(after_ms) * MS)
    return Receiving.of(
        [
            Rows(
                worker=[0] * count,
                requested_ns=began,
                fetch_start_ns=start,
                fetch_ns=fetch,
                collate_ns=[0] * count,
                pickle_start_ns=start + fetch,
                pickle_ns=[0] * count,
                received_ns=began + took,
                receive_ns=took,
            )
        ]
    )


@pytest.mark.parametrize(
    ("took_ms", "lock_ms"),
    [
        ([29.0] * 8, math.inf),  # until the worker is done
        ([28.5] * 6 + [5.5] * 2, 22.25),
        ([6.5] * 8, 6),  # far longer than from an idle worker
        ([0.9] * 8, 0),
        ([0.5] * 5 + [29.0] * 3, 0),  # seldom
        ([29.0] * 3, 0),  # too few
        ([UNKNOWN / MS] * 8, 0),
    ],
)
def test_how_long_receiving_waits_for_a_lock(took_ms: list[float], lock_ms: float) -> None:
    """Of a worker that is busy for 29 ms more, and from whom it takes half of one when idle."""
    batch_costs = received([*[0.5] * 5, *took_ms, 0.5], idle=5)
    assert batch_costs.lock_ns / MS == pytest.approx(lock_ms, rel=0.01)
    assert np.median(batch_costs.receive_ns) / MS == pytest.approx(0.5 if lock_ms else 0.9, abs=0.4)


def test_receiving_that_always_takes_long_waits_for_no_lock() -> None:
    """Whether the worker is busy or not, or if that does not matter."""
    assert received([*[5.0] * 5, *[6.5] * 8, 0.5], idle=5).lock_ns == 0
    constant = received([6.5] * 8)
    assert constant.lock_ns == 0
    assert constant.receive_ns.tolist() == [6.5 * MS] * 8


def test_receiving_that_lasts_until_a_worker_is_done_waits_for_its_lock() -> None:
    """Even if the worker was never idle."""
    batch_costs = received([29.0, 19.0, 9.0, 29.0, 19.0, 9.0], after_ms=[1, 11, 21, 1, 11, 21])
    assert batch_costs.lock_ns == math.inf


def test_more_is_outstanding_with_more_prefetching() -> None:
    """A slow batch now and then is then not waited for."""
    batch_costs = costs(400, cpu=2, step_ns=2)
    batch_costs.blocked_ns[::40] = 20 * MS
    shallow, deep = (simulated_ms(batch_costs, prefetch_factor=factor) for factor in (1, 16))
    assert deep == pytest.approx(2, rel=0.01)
    assert shallow > 1.1 * deep


def test_batches_that_cost_nothing() -> None:
    """Take no time."""
    assert simulated_ms(costs(3)) == 0
    assert simulated_ms(costs(3), workers=0) == 0


def test_workers_that_end_at_a_time() -> None:
    """Whole rounds count, so that it does not matter when the last one began."""
    assert simulated_ms(costs(1, cpu=2), pins=True, in_order=False) == pytest.approx(1)
    assert simulated_ms(costs(400, cpu=9), workers=90) == pytest.approx(0.1)


def test_fetched_in_a_share_of_the_time() -> None:
    """All that fetching is, and nothing else; of all batches alike, or of each."""
    batch_costs = costs(2, cpu=4, run_queue=2, blocked=2, pickle=1)
    assert batch_costs.fetched_in(0.5).fetch_ns.tolist() == [4 * MS, 4 * MS]
    assert batch_costs.fetched_in(0.5).pickle_ns.tolist() == [MS, MS]
    assert batch_costs.fetched_in(np.array([1.0, 0.25])).cpu_ns.tolist() == [4 * MS, MS]


def rows(count: int, **columns: Any) -> Any:
    given: dict[str, Any] = {
        "worker": np.arange(count) % 2,
        "samples": np.full(count, 4),
        "requested_ns": np.arange(count) * 10,
        "delivered_ns": np.arange(count) * 10 + 5,
        "fetch_start_ns": np.arange(count) * 10,
        "fetch_ns": np.full(count, 80),
        "collate_ns": np.full(count, 20),
    }
    return Rows(**{**given, **columns})


def recorded(*parts: Any, workers: int = 1) -> Costs:
    batch_costs = costs_of(run_of(*parts, workers=workers), 7.0)
    assert batch_costs is not None
    return batch_costs


def test_costs_of_a_run() -> None:
    """Without each worker's first of an epoch: on a CPU, waiting for one, and blocked."""
    first = rows(3, cpu_ns=[90, 50, 120], run_queue_ns=[5, 10, 30], pickle_ns=[1, 2, 3])
    other = replace(rows(2, cpu_ns=[90, 40], run_queue_ns=[5, 80], pickle_ns=[1, 4]), epoch=1)
    batch_costs = recorded(first, other)
    assert batch_costs.cpu_ns.tolist() == [50, 100, 40]  # no more than fetching and collating took
    assert batch_costs.run_queue_ns.tolist() == [10, 0, 60]
    assert batch_costs.blocked_ns.tolist() == [40, 0, 0]
    assert batch_costs.pickle_ns.tolist() == [2, 3, 4]
    assert batch_costs.receive_ns.tolist() == [0, 0, 0]
    assert batch_costs.worker.tolist() == [1, 0, 1]
    assert (len(batch_costs), batch_costs.step_ns) == (3, 7.0)
    assert recorded(first, other, workers=2).cpu_ns.tolist() == [100]
    assert recorded(first, other, workers=0).cpu_ns.tolist() == [50, 100, 40]


def test_costs_that_are_not_known() -> None:
    """Of some batches: the share of the others. Of none: fetching is on the CPU."""
    kernel = {"cpu_ns": [-1, 40, -1, 60], "run_queue_ns": [-1, 10, -1, 10]}
    some = recorded(rows(4, **kernel))
    assert some.cpu_ns.tolist() == [40, 50, 60]
    assert some.blocked_ns.tolist() == [50, 40, 30]
    for none in (recorded(rows(4)), recorded(rows(4, cpu_ns=[-1, -1, -1, 60], pin_ns=[4] * 4))):
        assert none.cpu_ns.tolist() == [100, 100, 100]
        assert none.blocked_ns.tolist() == [0, 0, 0]


def test_what_a_slow_sample_adds() -> None:
    """To one of 20 us: over three times as long, 100 us at least, and where it is known."""
    slowest = np.array([20, 20, -1000, 99, 120, 60, 20]) * 1000
    fetch = np.array([80, 80, 80, 159, 180, 120, 80]) * 1000
    batch_costs = recorded(rows(7, fetch_ns=fetch, slowest_ns=np.maximum(slowest, -1)))
    assert batch_costs.slow_ns.tolist() == [0, 0, 0, 100_000, 0, 0]


def test_one_slow_sample_and_others_that_are_not_known() -> None:
    """What is not known is not slow."""
    fetch = np.array([80, 80, 80, 380]) * 1000
    batch_costs = recorded(rows(4, fetch_ns=fetch, slowest_ns=[-1, -1, -1, 320_000]))
    assert batch_costs.slow_ns.tolist() == [0, 0, 300_000]


def test_some_hundred_batches_are_replayed() -> None:
    """A long run has its first ones replayed."""
    assert len(recorded(rows(2 * MOST_BATCHES))) == MOST_BATCHES


@pytest.mark.parametrize("parts", [(), (rows(1),), (rows(4, fetch_ns=[-1] * 4),)])
def test_runs_without_costs(parts: tuple[Any, ...]) -> None:
    """That were not looked into, or of an epoch's first batch alone."""
    assert costs_of(run_of(*parts), 7.0) is None


def test_a_model_without_workers() -> None:
    """Everything follows one another in the training process."""
    model = LoaderModel(
        workers=0, prefetch_factor=0, step_ns=3, **constant(9, index_ns=1, fetch_ns=5)
    )
    assert set(iterations_ns(model.times()).tolist()) == {9}
    assert iteration_ns(model.costs(), Setting(0)) == 9
