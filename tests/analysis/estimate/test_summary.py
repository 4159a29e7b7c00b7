"""What a run's batches add up to."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.estimate.epochs import (
    EpochStarts,
    epoch_start_waits,
    epoch_starts_of,
    epochs_of,
)
from loadeval.analysis.estimate.intervals import MeanError
from loadeval.analysis.estimate.steady import steady
from loadeval.analysis.estimate.summary import Summary, summarise
from loadeval.data.lines import Arm, EpochEnd, LoaderInfo, Prefetch
from tests.runs.given import block, make_run, run_of
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.data.run import Run


def test_means_are_over_the_steady_batches() -> None:
    """An iteration is a wait and a step; the share of the waits is of the whole."""
    summary = summarise(make_run([10, 30], [90, 70]))
    assert (summary.wait_ns, summary.step_ns, summary.iteration_ns) == (20.0, 80.0, 100.0)
    assert summary.wait_share == pytest.approx(0.2)
    assert (summary.batches, summary.steady_batches, summary.epochs) == (2, 2, 1)


def test_rates_are_sums_over_sums() -> None:
    """A short last batch counts for what it is: the mean of the batches' rates is another."""
    waits, steps, samples = [0, 0, 0], [100, 100, 10], [8, 8, 2]
    summary = summarise(make_run(waits, steps, samples=samples))
    assert summary.samples_per_s == pytest.approx(18 / 210e-9)
    assert summary.batches_per_s == pytest.approx(3 / 210e-9)
    mean_of_rates = sum(n / (ns * 1e-9) for n, ns in zip(samples, steps, strict=True)) / 3
    assert mean_of_rates == pytest.approx(1.4 * 18 / 210e-9, rel=0.01)


def test_sizes_are_means() -> None:
    """Samples and bytes are told for the mean batch."""
    summary = summarise(make_run([1, 1], samples=[4, 2]))
    assert (summary.samples_per_batch, summary.bytes_per_batch) == (3.0, 9.0)


def test_the_warm_up_of_each_epoch_is_left_out() -> None:
    """Every epoch begins anew: its first batches are not steady, however many epochs there are."""
    run = make_run([900, 800, 10, 10, 700, 600, 10], epochs=[4, 3], warmup=2)
    assert steady(run).tolist() == [False, False, True, True, False, False, True]
    assert summarise(run).wait_ns == 10.0
    assert summarise(run).steady_batches == 3


def test_start_up_is_the_first_wait_of_each_epoch() -> None:
    """It is told beside the steady part, whatever the warm-up is."""
    for warmup in (0, 1, 9):
        run = make_run([900, 10, 700, 10], epochs=[2, 2], warmup=warmup)
        assert summarise(run).epoch_start_ns == (900, 700)


def test_open_steps_are_left_out() -> None:
    """A batch whose step nobody knows is delivered, and not steady."""
    summary = summarise(make_run([10, 10, 5_000], [90, 90, -1]))
    assert (summary.batches, summary.steady_batches) == (3, 2)
    assert summary.iteration_ns == 100.0


def test_unknown_samples_give_no_rate_of_samples() -> None:
    """One unknown count among the steady batches is enough; batches are counted all the same."""
    summary = summarise(make_run([10, 10], samples=[4, -1]))
    assert summary.samples_per_s is None
    assert summary.samples_per_batch is None
    assert summary.batches_per_s == pytest.approx(1e7)


def test_bytes_that_were_counted_stand_for_those_that_were_not() -> None:
    """Each goes on until the next one that is known; before the first one nothing is."""
    run = make_run([10] * 6)
    for nbytes, mean in (([-1, 10, -1, -1, 50, 50], 26.0), ([8] * 6, 8.0), ([-1] * 6, None)):
        steps = replace(run.steps, nbytes=np.array(nbytes))
        assert summarise(replace(run, steps=steps)).bytes_per_batch == mean


def test_samples_unknown_in_the_warm_up_do_no_harm() -> None:
    """Only the steady batches' counts are asked for."""
    summary = summarise(make_run([10, 10], samples=[-1, 4], warmup=1))
    assert summary.samples_per_batch == 4.0


@pytest.mark.parametrize(
    ("waits", "steps", "warmup"),
    [([], [], 0), ([10, 10], [90, 90], 2), ([10, 10], [-1, -1], 0)],
)
def test_without_a_steady_batch_nothing_is_known(
    waits: list[int], steps: list[int], warmup: int
) -> None:
    """No batch, none after the warm-up, or none with a step: every figure of a pace is None."""
    summary = summarise(make_run(waits, steps, warmup=warmup))
    assert summary.batches == len(waits)
    assert summary.epoch_start_ns == tuple(waits[:1])
    assert summary.steady_batches == 0
    later = [field.name for field in fields(Summary)][4:]
    assert later[0] == "iteration_ns"
    assert {name: getattr(summary, name) for name in later} == dict.fromkeys(later)


def test_no_time_gives_no_rate() -> None:
    """Batches that took no time by their clock have an iteration of 0 and no rate."""
    summary = summarise(make_run([0, 0], 0))
    assert (summary.iteration_ns, summary.wait_share) == (0.0, None)
    assert (summary.batches_per_s, summary.samples_per_s) == (None, None)


def test_bursts_are_in_the_mean() -> None:
    """A long wait at every 20th batch hides from the median, and halves the pace."""
    summary = summarise(make_run(([0] * 19 + [2_000]) * 10, 100))
    assert summary.waits is not None
    assert summary.waits.p50_ns == 0.0
    assert summary.waits.mean_ns == summary.wait_ns == 100.0
    assert summary.iteration_ns == 200.0


def test_quantiles_of_the_waits() -> None:
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


def test_rank_counts_within_the_epoch() -> None:
    """Batches are numbered from 0 in each epoch."""
    steps = make_run([1] * 5, epochs=[3, 0, 2]).steps
    assert steps.batch.tolist() == [0, 1, 2, 0, 1]


def test_a_batch_that_was_ready_has_no_epoch_start() -> None:
    """The first wait of the first epoch is left out; without such a batch it is told."""
    for ready, expected in ((0, [5, 10]), (1, [10])):
        loader = LoaderInfo("a.Loader", ready_batches=ready)
        run = make_run([5, 6, 10, 12], epochs=[2, 2], loader=loader)
        assert epoch_start_waits(run).tolist() == expected


def starts(run: Run) -> EpochStarts:
    epoch_starts = epoch_starts_of(run)
    assert epoch_starts is not None
    return epoch_starts


def ended(run: Run, *waits: int | None) -> Run:
    """The run with epochs that took so long to end."""
    ends = (EpochEnd(epoch, "exhausted", 0, wait) for epoch, wait in enumerate(waits))
    return replace(run, ends=tuple(ends))


def test_epoch_starts_are_the_batches_before_the_steady_ones() -> None:
    """Their waits and steps, and the wait that ends the epoch."""
    run = make_run([500, 40, 1, 1, 300, 20, 1, 1], 10, epochs=[4, 4], warmup=2)
    epoch_starts = starts(ended(run, 5, 7))
    assert epoch_starts.batches == 4.0
    assert epoch_starts.first_batches.tolist() == [2, 2]
    assert epoch_starts.first_ns.tolist() == [540 + 20 + 5, 320 + 20 + 7]
    assert (epoch_starts.epochs, epoch_starts.steady_part) == (2, 0.5)


def test_what_they_add_is_by_batch_of_an_epoch() -> None:
    """Beyond a steady iteration for each; its error is by what epochs differ."""
    epoch_starts = starts(
        ended(make_run([500, 1, 1, 1, 300, 1, 1, 1], 10, epochs=[4, 4], warmup=1), 0, 0)
    )
    assert epoch_starts.added_ns(11.0) == pytest.approx((410 - 11) / 4)
    error = epoch_starts.error(11.0)
    assert error is not None
    assert error.variance == pytest.approx((200 / 4) ** 2 / 2 / 2)
    assert error.freedom == 1


def test_of_one_epoch_nobody_knows_how_starts_differ() -> None:
    """The time is known, and its error is not."""
    epoch_starts = starts(make_run([500, 1, 1], 10, warmup=1))
    assert epoch_starts.error(11.0) is None


def test_an_end_that_is_not_known_is_taken_for_the_mean_one() -> None:
    """It is taken for nothing where none is known."""
    run = make_run([500, 1, 300, 1], 10, epochs=[2, 2], warmup=1)
    assert starts(ended(run, 8, None)).first_ns.tolist() == [518, 318]
    assert starts(ended(run, None, None)).first_ns.tolist() == [510, 310]


def test_an_epoch_that_ended_while_prefetching_has_an_end() -> None:
    """The wait for it was the prefetch's; of an epoch that was broken off it is none."""
    run = run_of(
        (block("real", [5, 6], [5, 6], request_ns=[5, 6], epoch=epoch) for epoch in range(2)),
        ends=(EpochEnd(0, "exhausted", 0, 9), EpochEnd(1, "broken off")),
        prefetches=tuple(Prefetch(0, epoch, 1, 1, 1, 1, end_ns=70) for epoch in range(2)),
    )
    assert epochs_of(run).end_ns == 70
    assert epochs_of(run).batches == 2


def test_without_a_length_there_is_nothing_to_add_to() -> None:
    """An epoch that was broken off does not tell it, unless its loader does."""
    run = replace(make_run([500, 1], 10, warmup=1), ends=())
    assert epoch_starts_of(run) is None
    length = replace(run.header, loader=LoaderInfo("a.Loader", length=20))
    assert starts(replace(run, header=length)).batches == 20.0


def test_epochs_that_were_not_seen_to_start_do_not_count() -> None:
    """One of which no first step is known, and one whose first batch was ready."""
    opened = make_run([500, 1, 300, 1], [-1, 10, 10, 10], epochs=[2, 2], warmup=1)
    assert starts(opened).first_ns.tolist() == [310]
    ready = make_run(
        [0, 1, 300, 1], 10, epochs=[2, 2], warmup=1, loader=LoaderInfo("l", ready_batches=1)
    )
    assert starts(ready).first_ns.tolist() == [310]


def test_no_epoch_may_be_seen_to_start() -> None:
    """Nothing is known of starts then."""
    assert epoch_starts_of(make_run([500, 1], [-1, 10], warmup=1)) is None
    assert epoch_starts_of(make_run([])) is None


def test_only_batches_before_the_first_prefetched_one_count_as_first() -> None:
    """Later ones of the warm-up may have been loaded meanwhile."""
    arms: list[Arm] = ["real", "real", "ideal", "real"]
    blocks = (block(arm, 10, 15, 1, request_ns=5) for arm in arms)
    epoch_starts = starts(run_of(blocks, warmup=4, loader=LoaderInfo("a.Loader", length=9)))
    assert epoch_starts.first_batches.tolist() == [2]
    assert epoch_starts.first_ns.tolist() == [50]


def test_without_a_warm_up_first_batches_are_steady() -> None:
    """The end of the epoch is all that is added."""
    epoch_starts = starts(ended(make_run([500, 1, 1, 1], 10), 30))
    assert (epoch_starts.added_ns(11.0), epoch_starts.steady_part) == (30 / 4, 1.0)


def test_epochs_shorter_than_the_warm_up_have_no_steady_part() -> None:
    """It is not less than none."""
    epoch_starts = EpochStarts(2.0, np.array([3.0]), np.array([90.0]))
    assert epoch_starts.steady_part == 0.0


def test_epochs_that_are_alike_leave_nothing_unsure() -> None:
    """An error of 0."""
    epoch_starts = EpochStarts(10.0, np.ones(3), np.full(3, 90.0))
    assert epoch_starts.error(20.0) == MeanError(0.0, 2)
