"""The ranks of one job, on logs of simulated synchronous training whose loss is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.headroom import headroom
from loadeval.analysis.estimate.summary import summarise
from loadeval.analysis.job.alignment import JobCaution, are_ranks
from loadeval.analysis.job.ranks import JobReport, Straggling
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import EpochEnd, Event, Prefetch, StageTimes, Window
from tests.analysis.numbers import codes
from tests.runs.ranks import MS, runs_of, train, train_in_pairs
from tests.runs.tables import altered, replace, rows_of, with_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.data.run import Run
    from tests.runs.ranks import Times

STEPS = 200


def waits(ranks: int = 8, steps: int = STEPS, mean_ms: float = 0.1, seed: int = 0) -> Times:
    """Short waits, another for each batch."""
    wait_ns = np.random.default_rng(seed).exponential(mean_ms * MS, (ranks, steps))
    return wait_ns.astype(np.int64)


def slow(rank: int = 3, every: int = 4, ms: int = 30, ranks: int = 8) -> Times:
    """Short waits as in `waits`, and one rank that often waits longer."""
    wait_ns = waits(ranks)
    wait_ns[rank, ::every] += ms * MS
    return wait_ns


def job(wait_ns: Times, ranks_on_node: int | None = None, **more: Any) -> JobReport:
    return JobReport.of(runs_of(train(wait_ns), ranks_on_node, **more))


def known_loss(wait_ns: Times) -> float:
    """The share of the time that the training would save without any wait."""
    return 1 - train(np.zeros_like(wait_ns)).took_ns / train(wait_ns).took_ns


# The loss of the job


@pytest.mark.parametrize("ranks", [2, 8, 32])
@pytest.mark.parametrize("mean_ms", [1, 20])
def test_the_loss_of_a_job_is_what_its_training_loses(ranks: int, mean_ms: float) -> None:
    """It does not matter how often another rank is the last."""
    wait_ns = waits(ranks, mean_ms=mean_ms)
    assert job(wait_ns).wait_share == pytest.approx(known_loss(wait_ns), rel=1e-6)


def test_the_iterations_of_a_job_take_as_long_as_its_training() -> None:
    """Each rank goes on a little later than the others, now by more and now by less."""
    random = np.random.default_rng(1)
    training = train(slow(), after_ns=random.integers(0, 5 * MS, (8, STEPS)))
    report = JobReport.of(runs_of(training))
    assert report.iteration_ns is not None
    assert report.iteration_ns * STEPS == pytest.approx(training.took_ns, rel=0.001)


def test_no_rank_sees_the_loss_of_the_job() -> None:
    """Those that do not wait for their batches wait for the straggler, inside of their step."""
    report = job(slow())
    assert report.wait_share is not None
    assert report.wait_ns is not None
    for rank in report.ranks:
        assert rank.wait_ns is not None
        assert rank.waited_for_ns == pytest.approx(report.wait_ns - rank.wait_ns)
        assert rank.wait_share is not None
        assert (rank.wait_share < 0.1 * report.wait_share) == (rank.rank != 3)


def test_a_job_is_a_run_with_the_samples_of_all_ranks() -> None:
    """Its summary is that of any run."""
    report = job(slow(), samples=4, name="train")
    summary = summarise(report.run)
    assert summary.samples_per_batch == 32
    assert summary.wait_share == pytest.approx(report.wait_share)
    assert summary.batches == STEPS
    assert report.run.header.name == "8 ranks"
    assert "rank" not in report.run.header.environment
    assert report.run.header.environment["world_size"] == 8


def test_the_samples_of_a_job_are_not_known_where_those_of_a_rank_are_not() -> None:
    runs = runs_of(train(waits(2)))
    unknown = replace(runs[1].steps, samples=np.full(STEPS, UNKNOWN))
    report = JobReport.of([runs[0], replace(runs[1], steps=unknown)])
    assert (report.run.steps.samples == UNKNOWN).all()


def test_an_open_step_of_a_rank_is_open_in_the_job() -> None:
    runs = runs_of(train(waits(2)))
    runs[1] = with_steps(runs[1], step_ns=altered(runs[1].steps.step_ns, -1, UNKNOWN))
    report = JobReport.of(runs)
    assert report.run.steps.step_ns[-1] == UNKNOWN
    assert report.steps == STEPS - 1


def test_warm_up_is_left_out() -> None:
    assert job(waits(), warmup=5, epochs=[100, 100]).steps == STEPS - 10


# Who is behind it


def test_a_straggler_is_found_with_what_it_costs() -> None:
    """What the training saves when this rank waits as little as the others."""
    wait_ns = slow()
    stragglers = job(wait_ns).stragglers
    assert (stragglers.kind, stragglers.ranks) == (Straggling.RANKS, (3,))
    better = wait_ns.copy()
    better[3] = 0
    saved_ns = train(wait_ns).took_ns - train(better).took_ns
    assert stragglers.cost_ns * STEPS == pytest.approx(saved_ns, rel=1e-6)
    assert stragglers.cost_share == pytest.approx(saved_ns / train(wait_ns).took_ns, rel=1e-6)
    assert stragglers.last_share > 0.9


def test_what_one_rank_costs_is_told_of_each() -> None:
    wait_ns = slow()
    costs = {rank.rank: rank.cost_ns for rank in job(wait_ns).ranks}
    for rank in (0, 3):
        better = wait_ns.copy()
        better[rank] = 0
        saved_ns = train(wait_ns).took_ns - train(better).took_ns
        assert (costs[rank] or 0.0) * STEPS == pytest.approx(saved_ns, abs=10)


def test_several_stragglers_are_found_together() -> None:
    """Without one of them the other would still be the last."""
    wait_ns = waits(16)
    wait_ns[[2, 11], ::3] += 30 * MS
    stragglers = job(wait_ns, 8).stragglers
    assert (stragglers.kind, stragglers.ranks, stragglers.host) == (Straggling.RANKS, (2, 11), None)


def test_two_ranks_have_a_straggler() -> None:
    stragglers = job(slow(1, ranks=2)).stragglers
    assert (stragglers.kind, stragglers.ranks) == (Straggling.RANKS, (1,))


def test_even_ranks_have_none() -> None:
    """All wait alike: their loaders are too slow."""
    report = job(waits() + 40 * MS)
    assert report.stragglers.kind is Straggling.EVEN
    assert report.stragglers.ranks == ()
    assert report.wait_share == pytest.approx(0.31, abs=0.01)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_a_wait_that_is_now_here_and_now_there_is_spread(ranks: int) -> None:
    """Each rank waits little, and the job at each step for another one."""
    random = np.random.default_rng(2)
    wait_ns = waits(ranks)
    wait_ns[random.integers(0, ranks, STEPS), np.arange(STEPS)] += 30 * MS
    report = job(wait_ns)
    assert report.stragglers.kind is Straggling.SPREAD
    assert report.stragglers.uneven_ns == pytest.approx(30 * MS, rel=0.05)
    assert max(rank.wait_share or 0.0 for rank in report.ranks) < (report.wait_share or 0.0)


def test_ranks_that_hardly_wait_have_no_straggler() -> None:
    assert job(waits(mean_ms=0.001)).stragglers.kind is Straggling.NO_WAITS


def test_a_few_stalls_are_no_straggler() -> None:
    wait_ns = waits(mean_ms=0.001)
    wait_ns[5, [20, 90]] += 900 * MS
    assert job(wait_ns).stragglers.kind is Straggling.STALLS


def test_of_few_batches_nothing_is_said() -> None:
    assert job(slow()[:, :19]).stragglers.kind is Straggling.TOO_FEW


def test_a_node_is_found() -> None:
    """Now one of its ranks is last and now another."""
    random = np.random.default_rng(3)
    wait_ns = waits(16)
    wait_ns[4 + random.integers(0, 4, STEPS), np.arange(STEPS)] += 30 * MS
    report = job(wait_ns, 4)
    assert report.nodes == 4
    stragglers = report.stragglers
    assert (stragglers.kind, stragglers.host, stragglers.ranks) == (
        Straggling.NODE,
        "node1",
        (4, 5, 6, 7),
    )
    assert stragglers.cost_share == pytest.approx(0.25, abs=0.02)


def test_one_rank_of_a_node_is_not_the_node() -> None:
    stragglers = job(slow(5), 4).stragglers
    assert (stragglers.kind, stragglers.ranks, stragglers.host) == (Straggling.RANKS, (5,), "node1")


def test_hosts_that_are_not_known_are_no_node() -> None:
    runs = [
        replace(run, header=replace(run.header, environment={"rank": rank, "world_size": 8}))
        for rank, run in enumerate(runs_of(train(slow())))
    ]
    report = JobReport.of(runs)
    assert (report.nodes, report.stragglers.host) == (None, None)
    assert report.stragglers.ranks == (3,)


# What is behind them


def stages(worker: Sequence[int], slowest_index: Sequence[int]) -> list[StageTimes]:
    """The stages of two epochs."""
    half = len(worker) // 2
    return [
        StageTimes(
            epoch,
            list(range(half)),
            worker=list(worker)[half * epoch : half * (epoch + 1)],
            slowest_index=list(slowest_index)[half * epoch : half * (epoch + 1)],
        )
        for epoch in range(2)
    ]


def with_stages(wait_ns: Times, worker: Sequence[int], slowest_index: Sequence[int]) -> JobReport:
    return job(wait_ns, stages=stages(worker, slowest_index), epochs=[STEPS // 2] * 2)


EACH = list(range(STEPS))
WORKERS = [batch % 4 for batch in EACH]


def test_the_worker_behind_a_straggler() -> None:
    """Every fourth batch is one worker's."""
    stragglers = with_stages(slow(), WORKERS, EACH).stragglers
    assert (stragglers.worker, stragglers.worker_rank, stragglers.sample_index) == (0, 3, None)
    assert stragglers.cause_share == pytest.approx(1.0, abs=0.02)


def test_the_sample_behind_a_straggler() -> None:
    """Whichever worker loads it."""
    slowest = [7 if batch % 5 == 0 else batch for batch in EACH]
    stragglers = with_stages(slow(every=5), WORKERS, slowest).stragglers
    assert (stragglers.sample_index, stragglers.worker) == (7, None)


def test_a_sample_that_goes_from_rank_to_rank() -> None:
    """No rank is behind it, but one sample is."""
    random = np.random.default_rng(2)
    wait_ns = waits(8)
    wait_ns[random.integers(0, 8, STEPS), np.arange(STEPS)] += 30 * MS
    stragglers = with_stages(wait_ns, WORKERS, [7] * STEPS).stragglers
    assert (stragglers.kind, stragglers.sample_index) == (Straggling.ONE_SAMPLE, 7)


@pytest.mark.parametrize("worker", [[0] * STEPS, [batch // 3 % 4 for batch in EACH]])
def test_no_worker_is_behind_it(worker: list[int]) -> None:
    """There is but one, or all of them are."""
    stragglers = with_stages(slow(), worker, EACH).stragglers
    assert (stragglers.worker, stragglers.sample_index, stragglers.cause_share) == (
        None,
        None,
        None,
    )


def test_what_the_stages_do_not_tell() -> None:
    unknown = [UNKNOWN] * STEPS
    assert with_stages(slow(), unknown, unknown).stragglers.cause_share is None


def test_the_stages_are_those_of_the_rank_that_is_last_most_often() -> None:
    runs = [
        replace(run, stages=tuple(stages(WORKERS, [rank] * STEPS)))
        for rank, run in enumerate(runs_of(train(slow()), epochs=[100, 100]))
    ]
    report = JobReport.of(runs)
    assert report.shown == 3
    assert set(rows_of(report.run)[0].slowest_index.tolist()) == {3}
    assert report.run.steps.request_ns.tolist() == runs[3].steps.request_ns.tolist()


def test_only_what_is_told_of_a_straggler_is_read_in_full() -> None:
    asked = []

    def full(run: Run) -> Run:
        asked.append(run.header.name)
        return run

    JobReport.of(runs_of(train(slow(ranks=32))), full)
    assert set(asked) == {"rank3"}


# Logs that do not fit together


def cut(run: Run, batches: int) -> Run:
    """Only the first of them."""
    return replace(run, steps=run.steps.take(slice(batches)))


def test_ranks_of_unequal_lengths_are_compared_where_all_have_batches() -> None:
    runs = runs_of(train(slow()))
    report = JobReport.of([*runs[:7], cut(runs[7], 150)])
    assert report.steps == 150
    (caution,) = report.cautions
    assert caution.code is JobCaution.UNEQUAL_LENGTHS
    assert caution.values == {"fewest": 150, "most": 200, "common": 150}
    assert report.stragglers.ranks == (3,)


def test_a_rank_that_ended_early_is_left_out() -> None:
    """It would leave little of the others."""
    runs = runs_of(train(slow()))
    report = JobReport.of([*runs[:7], cut(runs[7], 20)])
    assert report.steps == STEPS
    assert codes(report.cautions) == [JobCaution.ENDED_EARLY]
    assert (report.ranks[7].batches, report.ranks[7].wait_ns) == (20, None)


def test_of_two_ranks_one_may_end_early() -> None:
    runs = runs_of(train(waits(2) + 30 * MS))
    report = JobReport.of([runs[0], cut(runs[1], 10)])
    assert report.stragglers.kind is Straggling.EVEN
    assert report.wait_share == pytest.approx(0.25, abs=0.01)


def test_missing_ranks_are_told() -> None:
    runs = runs_of(train(slow()))
    report = JobReport.of([runs[0], *runs[2:3], *runs[6:]])
    assert (report.world_size, len(report.ranks)) == (8, 4)
    (caution,) = report.cautions
    assert caution.code is JobCaution.MISSING_RANKS
    assert caution.values == {"count": 4, "size": 8, "ranks": "1, 3-5"}


def test_ranks_without_a_batch() -> None:
    report = JobReport.of([cut(run, 0) for run in runs_of(train(waits(4)))])
    assert (report.steps, report.iteration_ns, report.wait_share) == (0, None, None)
    assert report.stragglers.kind is Straggling.TOO_FEW
    assert [rank.wait_ns for rank in report.ranks] == [None] * 4


def test_batches_that_took_no_time() -> None:
    """The clock stands still."""
    runs = runs_of(train(np.zeros((2, STEPS), np.int64), 0))
    report = JobReport.of(runs)
    assert report.wait_share is None
    assert report.ranks[0].wait_share is None
    assert report.ranks[0].drift_ppm is None
    assert report.stragglers.kind is Straggling.NO_WAITS


def test_ranks_that_do_not_end_their_steps_together() -> None:
    """They do not train one model, and nothing of this is true of them."""
    faster, other = (runs_of(train(waits(2), step_ms * MS)) for step_ms in (50, 90))
    report = JobReport.of([faster[0], other[1]])
    assert codes(report.cautions) == [JobCaution.NOT_TOGETHER]
    assert report.skew_ns is None


def test_the_order_of_logs_does_not_matter() -> None:
    runs = runs_of(train(slow()))
    assert [rank.rank for rank in JobReport.of(runs[::-1]).ranks] == list(range(8))


@pytest.mark.parametrize(
    "places",
    [
        [(0, 2), (0, 2)],
        [(0, 2), (1, 4)],
        [(0, 2), (None, 2)],
        [(None, None), (None, None)],
        [(0, 2)],
        [("0", 2), ("1", 2)],
        [],
    ],
)
def test_what_are_no_ranks_of_one_job(places: list[tuple[Any, Any]]) -> None:
    """The same rank twice, jobs of different sizes, runs that were no rank, one alone."""
    run = runs_of(train(waits(2)))[0]
    runs = [
        replace(run, header=replace(run.header, environment={"rank": rank, "world_size": size}))
        for rank, size in places
    ]
    assert not are_ranks(runs)


def test_ranks_of_one_job_have_one_mode() -> None:
    first, other = runs_of(train(waits(2)))
    assert are_ranks([first, other])
    assert not are_ranks([first, replace(other, header=replace(other.header, mode="replay"))])


# Clocks


def shifted(run: Run, ahead_ms: int, ppm: float = 0.0) -> Run:
    """As if by a wall clock that is ahead, and goes faster; the run's own began 5 s later."""
    begun_ms = 5000 + ahead_ms
    created = f"2026-01-01T00:00:{begun_ms // 1000:02}.{begun_ms % 1000:03}+00:00"
    request_ns = (run.steps.request_ns * (1 + ppm / 1e6)).astype(np.int64) - 5000 * MS
    return replace(
        run,
        header=replace(run.header, created=created),
        steps=replace(run.steps, request_ns=request_ns + 10_000 * MS),
    )


def test_clock_skew_is_found_and_taken_out() -> None:
    runs = runs_of(train(slow(), 5000 * MS), created="2026-01-01T00:00:05+00:00")
    plain = JobReport.of(runs)
    runs[2], runs[5] = shifted(runs[2], 5400), shifted(runs[5], 5000, ppm=50)
    report = JobReport.of(runs)
    assert report.wait_share == plain.wait_share
    assert report.stragglers == plain.stragglers
    assert report.ranks[0].skew_ns == pytest.approx(0, abs=MS)
    assert report.ranks[2].skew_ns == pytest.approx(10_400 * MS, rel=0.001)
    assert report.ranks[5].drift_ppm == pytest.approx(50, rel=0.01)
    assert report.skew_ns == pytest.approx(10_400 * MS, rel=0.001)


def test_clocks_of_other_tools_logs_are_not_known() -> None:
    """These have no moment of beginning, or of requests."""
    assert job(waits(2), created="").ranks[0].skew_ns is None
    runs = runs_of(train(waits(2)))
    runs[0] = with_steps(runs[0], request_ns=UNKNOWN)
    assert JobReport.of(runs).ranks[0].skew_ns is None


def test_of_one_batch_clocks_have_no_drift() -> None:
    (rank, _) = job(waits(2, 1)).ranks
    assert rank.skew_ns == 0
    assert rank.drift_ppm is None


# Alternating runs


def alternated(wait_ns: Times, ranks_on_node: int | None = None) -> list[Run]:
    training, arm, pair = train_in_pairs(wait_ns)
    return runs_of(training, ranks_on_node, arm=arm, pair=pair)


def test_the_verdict_of_a_job_is_from_the_pairs_of_all_ranks() -> None:
    """The loss that ideal loading on all ranks would save."""
    wait_ns = waits(8, 480)
    wait_ns[3] += 30 * MS
    report = JobReport.of(alternated(wait_ns))
    gain = headroom(report.run)
    assert gain.lost_share is not None
    assert gain.lost_share.value == pytest.approx(known_loss(wait_ns), abs=0.01)
    assert gain.pairs == 30
    assert report.stragglers.ranks == (3,)
    assert report.steps == gain.real_batches


def test_the_interval_of_a_job_holds_its_loss() -> None:
    """It does in about 19 of 20 simulated trainings."""
    held = 0
    for seed in range(20):
        wait_ns = waits(4, 480, mean_ms=15, seed=seed)
        noise = np.random.default_rng(seed + 100).integers(80 * MS, 100 * MS, wait_ns.shape)
        training, arm, pair = train_in_pairs(wait_ns, noise)
        gain = headroom(JobReport.of(runs_of(training, arm=arm, pair=pair)).run)
        free = train(np.zeros_like(wait_ns), noise).took_ns / train(wait_ns, noise).took_ns
        assert gain.lost_share is not None
        assert gain.lost_share.low is not None
        assert gain.lost_share.high is not None
        held += gain.lost_share.low <= 1 - free <= gain.lost_share.high
    assert held >= 17


def test_batches_that_ranks_have_in_different_arms_are_left_out() -> None:
    runs = alternated(waits(2))
    arm = runs[1].steps.arm.copy()
    arm[-8:] = 1 - arm[-8:]
    report = JobReport.of([runs[0], replace(runs[1], steps=replace(runs[1].steps, arm=arm))])
    assert codes(report.cautions) == [JobCaution.DIFFERENT_ARMS]
    assert len(report.run.steps) == STEPS - 8


def test_stages_of_an_alternating_run_have_other_numbers() -> None:
    training, arm, pair = train_in_pairs(slow())
    runs = runs_of(training, arm=arm, pair=pair, stages=stages([0] * STEPS, [7] * STEPS))
    assert JobReport.of(runs).stragglers.sample_index is None


# What else is known of the ranks


def given(**more: Sequence[Any]) -> JobReport:
    """A job whose two ranks have these."""
    runs = runs_of(train(slow(1, ranks=2)))
    return JobReport.of(
        [
            replace(run, **{name: values[rank] for name, values in more.items()})
            for rank, run in enumerate(runs)
        ]
    )


def test_an_epoch_ends_when_it_ends_on_the_slowest_rank() -> None:
    ends = [
        (EpochEnd(0, "exhausted", 100, wait), EpochEnd(1, "broken off")) for wait in (7 * MS, 4)
    ]
    assert given(ends=ends).run.ends == (
        EpochEnd(0, "exhausted", 100, 7 * MS),
        EpochEnd(1, "broken off"),
    )


def test_a_prefetch_takes_as_long_as_on_the_slowest_rank() -> None:
    slower = Prefetch(0, 0, 3, 2, 50, 8, [1, 30, 20], 5)
    other = Prefetch(0, 0, 3, 2, 40, 8, [1, 10, 30])
    (prefetch,) = given(prefetches=[(slower,), (other,)]).run.prefetches
    assert prefetch == Prefetch(0, 0, 3, 2, 50, 16, [1, 30, 30], 5)
    (prefetch,) = given(prefetches=[(slower,), (replace(other, samples=None),)]).run.prefetches
    assert prefetch.samples is None


def test_prefetches_that_not_all_ranks_made_are_left_out() -> None:
    first, other = Prefetch(0, 0, 3, 2, 50, 8), Prefetch(1, 0, 3, 2, 50, 8)
    report = given(prefetches=[(first, other), (first, replace(other, batches=4), first)])
    assert len(report.run.prefetches) == 1


def test_the_busiest_workers_count() -> None:
    """Those of one rank may slow the ideal arm of all down."""
    window = Window(0, 0, "ideal", 100, 10)
    windows = given(windows=[(replace(window, workers_cpu_ns=60),), (window,)]).run.windows
    assert windows == (replace(window, workers_cpu_ns=60),)
    windows = given(windows=[(replace(window, workers_cpu_ns=None),), (window,)]).run.windows
    assert windows == (replace(window, workers_cpu_ns=None),)


def test_events_and_notes_are_told_once_with_the_ranks_they_are_of() -> None:
    again = Event(9, "a worker died")
    run = given(events=[(again,), (replace(again, time_ns=4),)], notes=[("cut off",), ()]).run
    assert run.events == (Event(4, "ranks 0-1: a worker died"),)
    assert run.notes == ("rank 0: cut off",)


def test_a_job_is_complete_when_all_its_ranks_are() -> None:
    assert given(closed=[True, True]).run.closed
    assert not given(closed=[True, False]).run.closed
