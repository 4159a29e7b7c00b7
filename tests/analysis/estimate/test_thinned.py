"""Figures of runs that keep one batch in N in detail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.backends import whole_epochs
from loadeval.analysis.estimate.arms import arm_times, run_times
from loadeval.analysis.estimate.epochs import epochs_of
from loadeval.analysis.estimate.headroom import headroom_of_two
from loadeval.analysis.estimate.metrics import quantities
from loadeval.analysis.estimate.steady import numbers_in_run, steady
from loadeval.analysis.estimate.summary import gpu_wait, spent, summarise
from loadeval.analysis.estimate.verdict import Objection
from loadeval.runlog.model import Readings
from tests.analysis.numbers import bounds, value
from tests.runs.given import MS, make_run
from tests.runs.measured import recorded

if TYPE_CHECKING:
    from loadeval.runlog.model import Run


def trained(every: int = 1, mode: str = "log", epochs: int = 3, **options: Any) -> Run:
    """A loader that stalls at every 20th batch, from number 7 on; steps of 10 ms."""
    waits_ns = [200 * MS if number % 20 == 7 else MS for number in range(1_000)]
    options = {"warmup": None, **options}
    return recorded(mode, waits_ns=waits_ns, epochs=epochs, every=every, **options)


def test_what_was_waited_is_of_all_batches() -> None:
    """Kept in detail or not."""
    assert spent(trained(every=20)) == spent(trained())


def test_a_comparison_goes_by_all_batches() -> None:
    """Stalls that fall between the kept batches are in the speed-up, to the last digit."""
    ideal = trained(mode="replay")
    whole, thinned = headroom_of_two(trained(), ideal), headroom_of_two(trained(every=20), ideal)
    assert value(thinned.speedup) == pytest.approx(value(whole.speedup), rel=1e-12)
    assert thinned.real_batches == whole.real_batches
    assert value(thinned.epoch_starts_ns) == pytest.approx(value(whole.epoch_starts_ns), rel=1e-12)
    assert value(thinned.steady_speedup) == pytest.approx(value(whole.steady_speedup), rel=1e-12)
    assert thinned.epoch_start_ns == whole.epoch_start_ns


def test_first_batches_that_are_steady_add_nothing() -> None:
    """Without a warm-up, whether all batches are kept or not."""
    ideal = trained(mode="replay")
    for every in (1, 20):
        result = headroom_of_two(trained(every=every, warmup=0), ideal)
        assert value(result.epoch_starts_ns) == 0.0


def test_an_interval_is_over_aggregates() -> None:
    """It is there where there are aggregates enough, and contains the speed-up."""
    speedup = headroom_of_two(trained(every=20, epochs=5), trained(mode="replay")).speedup
    low, high = bounds(speedup)
    assert low < value(speedup) < high


def test_too_few_aggregates_give_no_interval() -> None:
    """So nothing is concluded."""
    short = recorded(waits_ns=[MS // 10] * 100, step_ns=MS // 10, batch=0, every=20, warmup=None)
    result = headroom_of_two(short, trained(mode="replay", epochs=1))
    assert result.verdict.objection is Objection.NO_INTERVAL


def test_sides_have_an_entry_for_each_aggregate() -> None:
    """Samples are known where every aggregate knows them, and are not where one does not."""
    run = trained(every=20)
    side = arm_times(run)
    assert side.count == summarise(run).steady_batches == 2_997
    assert len(side.wait_ns) == sum(aggregate.first > 0 for aggregate in run.aggregates)
    assert side.samples is not None
    unknown = replace(
        run, aggregates=(*run.aggregates[:-1], replace(run.aggregates[-1], samples=None))
    )
    assert arm_times(unknown).samples is None
    assert summarise(unknown).samples_per_s is None
    assert run_times(run).real.count == 2_997


def test_bytes_are_of_all_batches_or_else_of_those_kept() -> None:
    """Where an aggregate does not know them, the mean is over the batches kept in detail."""
    run = trained(every=20)
    assert summarise(run).bytes_per_batch == 64.0
    aggregates = (replace(run.aggregates[-1], nbytes=None),)
    steps = replace(run.steps, nbytes=np.full(len(run.steps), 48))
    assert summarise(replace(run, aggregates=aggregates, steps=steps)).bytes_per_batch == 48.0


def test_epochs_have_all_their_batches() -> None:
    """They have more than those that were kept."""
    run = trained(every=20)
    assert epochs_of(run).batches == 1_000
    assert whole_epochs(run, "batches") == {1_000}
    assert whole_epochs(run, "samples") == {4_000}
    aggregates = tuple(replace(aggregate, samples=None) for aggregate in run.aggregates)
    assert whole_epochs(replace(run, aggregates=aggregates), "samples") == set()


def test_rows_are_numbered_in_the_run() -> None:
    """Epochs follow on one another with all their batches, and so they do where all are kept."""
    thinned, whole = trained(every=400), trained(epochs=1)
    expected = [0, 400, 800, 1_000, 1_400, 1_800, 2_000, 2_400, 2_800]
    assert numbers_in_run(thinned).tolist() == expected
    assert numbers_in_run(whole).tolist() == list(range(1_000))
    of_a_killed_run = replace(thinned, aggregates=())
    assert numbers_in_run(of_a_killed_run).tolist() == [0, 400, 800] * 3


def test_the_warm_up_goes_by_numbers() -> None:
    """A row is steady by its number in the epoch, not by its place among those kept."""
    run = trained(every=20, epochs=2, warmup=25)
    assert run.steps.batch[steady(run)].tolist() == [*range(40, 1_000, 20)] * 2


def test_starving_is_told_of_kept_batches() -> None:
    """The mean is over those of which it is known."""
    run = make_run([10, 10])
    steps = replace(run.steps, gpu_idle_ns=np.array([4, 8]), batch=np.array([0, 20]))
    starved = gpu_wait(replace(run, steps=steps), "real")
    assert starved is not None
    assert starved.gpu_idle_ns == 6.0


def test_readings_count_between_kept_batches() -> None:
    """Readings taken while steady batches were served count, kept in detail or not."""
    run = trained(every=500)
    time_ns = np.arange(0, run.aggregates[-1].end_ns, 100 * MS)
    reading = Readings("host", "process", time_ns, {"cpu_cores": np.ones(len(time_ns))})
    (quantity,) = quantities(replace(run, readings=(reading,)))
    assert quantity.real is not None
    assert quantity.real.count > 0.9 * len(time_ns)
    assert quantity.ideal is None
