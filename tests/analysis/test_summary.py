"""What a run's batches add up to."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.summary import Summary, epoch_start_waits, steady, summarise
from loadeval.runlog.model import Block, Header, LoaderInfo, Run, Steps, rank_in_epoch

if TYPE_CHECKING:
    from collections.abc import Callable


def test_means_are_over_the_steady_batches(make_run: Callable[..., Run]) -> None:
    """An iteration is a wait and a step; the share of the waits is of the whole."""
    summary = summarise(make_run([10, 30], [90, 70]))
    assert (summary.wait_ns, summary.step_ns, summary.iteration_ns) == (20.0, 80.0, 100.0)
    assert summary.wait_share == pytest.approx(0.2)
    assert (summary.batches, summary.steady_batches, summary.epochs) == (2, 2, 1)


def test_rates_are_sums_over_sums(make_run: Callable[..., Run]) -> None:
    """A short last batch counts for what it is: the mean of the batches' rates is another."""
    waits, steps, samples = [0, 0, 0], [100, 100, 10], [8, 8, 2]
    summary = summarise(make_run(waits, steps, samples=samples))
    assert summary.samples_per_s == pytest.approx(18 / 210e-9)
    assert summary.batches_per_s == pytest.approx(3 / 210e-9)
    mean_of_rates = sum(n / (ns * 1e-9) for n, ns in zip(samples, steps, strict=True)) / 3
    assert mean_of_rates == pytest.approx(1.4 * 18 / 210e-9, rel=0.01)


def test_sizes_are_means(make_run: Callable[..., Run]) -> None:
    """Samples and bytes are told for the mean batch."""
    summary = summarise(make_run([1, 1], samples=[4, 2]))
    assert (summary.samples_per_batch, summary.bytes_per_batch) == (3.0, 9.0)


def test_the_warm_up_of_each_epoch_is_left_out(make_run: Callable[..., Run]) -> None:
    """Every epoch begins anew: its first batches are not steady, however many epochs there are."""
    run = make_run([900, 800, 10, 10, 700, 600, 10], epochs=[4, 3], warmup=2)
    assert steady(run).tolist() == [False, False, True, True, False, False, True]
    assert summarise(run).wait_ns == 10.0
    assert summarise(run).steady_batches == 3


def test_start_up_is_the_first_wait_of_each_epoch(make_run: Callable[..., Run]) -> None:
    """It is told beside the steady part, whatever the warm-up is."""
    for warmup in (0, 1, 9):
        run = make_run([900, 10, 700, 10], epochs=[2, 2], warmup=warmup)
        assert summarise(run).epoch_start_ns == (900, 700)


def test_open_steps_are_left_out(make_run: Callable[..., Run]) -> None:
    """A batch whose step nobody knows is delivered, and not steady."""
    summary = summarise(make_run([10, 10, 5_000], [90, 90, -1]))
    assert (summary.batches, summary.steady_batches) == (3, 2)
    assert summary.iteration_ns == 100.0


def test_unknown_samples_give_no_rate_of_samples(make_run: Callable[..., Run]) -> None:
    """One unknown count among the steady batches is enough; batches are counted all the same."""
    summary = summarise(make_run([10, 10], samples=[4, -1]))
    assert summary.samples_per_s is None
    assert summary.samples_per_batch is None
    assert summary.batches_per_s == pytest.approx(1e7)


def test_bytes_that_were_counted_stand_for_those_that_were_not(
    make_run: Callable[..., Run],
) -> None:
    """Each goes on until the next one that is known; before the first one nothing is."""
    run = make_run([10] * 6)
    for nbytes, mean in (([-1, 10, -1, -1, 50, 50], 26.0), ([8] * 6, 8.0), ([-1] * 6, None)):
        steps = replace(run.steps, nbytes=np.array(nbytes))
        assert summarise(replace(run, steps=steps)).bytes_per_batch == mean


def test_samples_unknown_in_the_warm_up_do_no_harm(make_run: Callable[..., Run]) -> None:
    """Only the steady batches' counts are asked for."""
    summary = summarise(make_run([10, 10], samples=[-1, 4], warmup=1))
    assert summary.samples_per_batch == 4.0


@pytest.mark.parametrize(
    ("waits", "steps", "warmup"),
    [([], [], 0), ([10, 10], [90, 90], 2), ([10, 10], [-1, -1], 0)],
)
def test_without_a_steady_batch_nothing_is_known(
    make_run: Callable[..., Run], waits: list[int], steps: list[int], warmup: int
) -> None:
    """No batch, none after the warm-up, or none with a step: every figure of a pace is None."""
    summary = summarise(make_run(waits, steps, warmup=warmup))
    assert summary.batches == len(waits)
    assert summary.epoch_start_ns == tuple(waits[:1])
    assert summary.steady_batches == 0
    later = [field.name for field in fields(Summary)][4:]
    assert later[0] == "iteration_ns"
    assert {name: getattr(summary, name) for name in later} == dict.fromkeys(later)


def test_no_time_gives_no_rate(make_run: Callable[..., Run]) -> None:
    """Batches that took no time by their clock have an iteration of 0 and no rate."""
    summary = summarise(make_run([0, 0], 0))
    assert (summary.iteration_ns, summary.wait_share) == (0.0, None)
    assert (summary.batches_per_s, summary.samples_per_s) == (None, None)


def test_bursts_are_in_the_mean(make_run: Callable[..., Run]) -> None:
    """A long wait at every 20th batch hides from the median, and halves the pace."""
    summary = summarise(make_run(([0] * 19 + [2_000]) * 10, 100))
    assert summary.waits is not None
    assert summary.waits.p50_ns == 0.0
    assert summary.waits.mean_ns == summary.wait_ns == 100.0
    assert summary.iteration_ns == 200.0


def test_quantiles_of_the_waits(make_run: Callable[..., Run]) -> None:
    """Waits of 0 to 100 have their quantiles where their names say."""
    waits = summarise(make_run(list(range(101)))).waits
    assert waits is not None
    assert (waits.mean_ns, waits.p50_ns, waits.p95_ns, waits.p99_ns, waits.max_ns) == (
        50.0,
        50.0,
        95.0,
        99.0,
        100,
    )


def test_rank_counts_within_the_epoch(make_run: Callable[..., Run]) -> None:
    """Batches are numbered from 0 in each epoch."""
    steps = make_run([1] * 5, epochs=[3, 0, 2]).steps
    assert rank_in_epoch(steps.epoch).tolist() == [0, 1, 2, 0, 1]


def test_a_batch_that_was_ready_has_no_epoch_start() -> None:
    """The first wait of the first epoch is left out; without such a batch it is told."""
    two = np.array([5, 6])
    blocks = [Block(epoch, "real", two, two * (epoch + 1), two, two, two) for epoch in range(2)]
    steps = Steps.from_blocks(blocks, [])
    for ready, expected in ((0, [5, 10]), (1, [10])):
        loader = LoaderInfo("a.Loader", ready_batches=ready)
        header = Header("id", "log", "log", "2026-11-21", "samples", 0, loader)
        assert epoch_start_waits(Run(header, steps)).tolist() == expected
