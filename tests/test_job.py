"""The ranks of one job, on logs of simulated synchronous training whose loss is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadeval.data.lines import EpochEnd, Event, LoaderInfo, Prefetch
from loadeval.data.run import Run
from loadeval.estimate.gap import gap
from loadeval.job import Job, are_ranks, job_of
from tests.runs.ranks import MS, Times, runs_of, train, train_in_pairs
from tests.runs.tables import replace

STEPS = 200


def waits(ranks: int = 8, steps: int = STEPS, mean_ms: float = 0.1, seed: int = 0) -> Times:
    """Short waits, another for each batch."""
    wait_ns = np.random.default_rng(seed).exponential(mean_ms * MS, (ranks, steps))
    return wait_ns.astype(np.int64)


def slow(rank: int = 3, every: int = 4, ranks: int = 8) -> Times:
    """Short waits, and one rank that often waits for 30 ms."""
    wait_ns = waits(ranks)
    wait_ns[rank, ::every] += 30 * MS
    return wait_ns


def stalled() -> Times:
    wait_ns = waits(mean_ms=0.001)
    wait_ns[5, [20, 90]] += 900 * MS
    return wait_ns


def here_and_there(ranks: int) -> Times:
    wait_ns = waits(ranks)
    wait_ns[np.random.default_rng(2).integers(0, ranks, STEPS), np.arange(STEPS)] += 30 * MS
    return wait_ns


def job(wait_ns: Times, ranks_on_node: int | None = None) -> Job:
    return job_of(runs_of(train(wait_ns), ranks_on_node))


def saved(wait_ns: Times, better: Times) -> float:
    """The share of its time that training saves with other waits."""
    return 1 - train(better).took_ns / train(wait_ns).took_ns


def cut(run: Run, batches: int) -> Run:
    shorter: Run = replace(run, steps=run.steps.take(slice(batches)))
    return shorter


@pytest.mark.parametrize(("ranks", "mean_ms"), [(2, 1), (8, 20), (32, 20)])
def test_a_job_loses_what_its_training_would_save(ranks: int, mean_ms: float) -> None:
    """It does not matter how often another rank is the last."""
    wait_ns = waits(ranks, mean_ms=mean_ms)
    told: Any = job(wait_ns)
    assert told.wait_ns / told.iteration_ns == pytest.approx(saved(wait_ns, 0 * wait_ns), rel=1e-6)


def test_no_rank_sees_what_the_job_loses() -> None:
    """Those that do not wait for their batches wait for the straggler, inside of their step."""
    told = job(slow())
    assert told.headline == "8 ranks of one job waited for batches 7.9% of the time"
    for rank in told.ranks:
        assert (rank.wait_share or 0.0) < 0.01 or rank.rank == 3
        assert rank.waited_for_ns == pytest.approx((told.wait_ns or 0.0) - (rank.wait_ns or 0.0))
    assert gap(told.run).samples_per_batch == 32
    assert "rank" not in told.run.header.environment


def test_what_a_straggler_costs_is_what_the_job_saves_without_its_waits() -> None:
    wait_ns = slow()
    better = wait_ns.copy()
    better[3] = 0
    stragglers = job(wait_ns).stragglers
    assert stragglers.cost_share == pytest.approx(saved(wait_ns, better), rel=1e-6)
    assert stragglers.says == (
        "rank 3 on node0, last in 100.0% of the batches that some rank waits for; that costs the "
        "job 7.6% of its time (7.47 ms per batch)"
    )


def test_several_stragglers_are_found_together() -> None:
    """Without one of them the other would still be the last."""
    wait_ns = waits(16)
    wait_ns[[2, 11], ::3] += 30 * MS
    told = job(wait_ns, 8).stragglers
    assert (told.ranks, told.host) == ((2, 11), None)
    assert told.says.startswith("ranks 2, 11, one of them last in 100.0% of the batches")


def test_five_long_waits_of_one_rank_are_a_pattern() -> None:
    wait_ns = waits(mean_ms=0.001)
    wait_ns[5, 10:100:20] += 100 * MS
    assert job(wait_ns).stragglers.ranks == (5,)


def test_a_node_is_not_blamed_for_one_of_its_ranks() -> None:
    """Where the last rank is often the same, and else any of many, also of its node."""
    wait_ns, rng = waits(256), np.random.default_rng(0)
    often = np.where(rng.random(STEPS) < 0.6, 5, rng.integers(0, 256, STEPS))
    often[::20] = 6
    wait_ns[often, np.arange(STEPS)] += 30 * MS
    assert job(wait_ns, 8).stragglers.ranks == (5,)


def test_the_rank_that_is_shown_is_the_straggler() -> None:
    """Not the one that waits longest more often, by little."""
    wait_ns = slow(1, ranks=2)
    wait_ns[0] += 2 * MS
    told = job(wait_ns)
    assert (told.stragglers.ranks, told.shown) == ((1,), 1)


def test_a_node_is_found_where_now_one_of_its_ranks_is_last_and_now_another() -> None:
    wait_ns = waits(16)
    wait_ns[4:8] = here_and_there(4)
    told = job(wait_ns, 4)
    assert told.stragglers.ranks == (4, 5, 6, 7)
    assert told.stragglers.says.startswith("node node1 (ranks 4-7), last in 100.0%")
    assert job(slow(5), 4).stragglers.ranks == (5,)


@pytest.mark.parametrize(
    ("wait_ns", "says"),
    [
        (waits() + 40 * MS, "none; all ranks wait about equally long"),
        (waits(mean_ms=0.001), "none; no rank waits for its batches"),
        (slow()[:, :19], "not known; fewer than 20 batches were measured on all ranks"),
        (stalled(), "none; a few long waits make up most of it, too few to show a pattern"),
        (
            here_and_there(8),
            "none; the last rank changes, and waits 30.0 ms per batch longer than the typical rank",
        ),
    ],
)
def test_where_no_rank_is_behind_it(wait_ns: Times, says: str) -> None:
    assert (job(wait_ns).stragglers.says, job(wait_ns).stragglers.ranks) == (says, ())


def test_only_the_rank_that_others_wait_for_is_read_in_full() -> None:
    asked = list[str]()

    def full(run: Run) -> Run:
        asked.append(run.header.name)
        return run

    told = job_of(runs_of(train(slow(ranks=32)))[::-1], full)
    assert (set(asked), told.shown) == ({"rank3"}, 3)
    assert [rank.rank for rank in told.ranks] == list(range(32))


def test_logs_that_do_not_fit_together() -> None:
    runs = runs_of(train(slow()))
    shorter, early = job_of([*runs[:7], cut(runs[7], 150)]), job_of([*runs[:7], cut(runs[7], 20)])
    assert (shorter.steps, early.steps) == (150, STEPS)
    assert shorter.cautions == ("Ranks have 150 to 200 batches: those that all have are compared.",)
    assert early.cautions == ("Ranks that ended early are left out: 7, after 20 batches at most.",)
    assert job_of([runs[0], *runs[2:3], *runs[6:]]).cautions == (
        (
            "The logs of 4 of 8 ranks are missing (1, 3-5): throughput is that of the others, and "
            "the job may lose more."
        ),
    )
    faster, other = (runs_of(train(waits(2), step_ms * MS)) for step_ms in (50, 90))
    apart = job_of([faster[0], other[1]])
    assert len(apart.cautions) == 1
    assert apart.cautions[0].startswith("The ranks do not end their steps together")


def test_what_are_ranks_of_one_job() -> None:
    """Not the same rank twice, jobs of different sizes, different modes, or none."""
    first, other = runs_of(train(waits(2)))
    larger = replace(other.header, environment={"rank": 1, "world_size": 4})
    replayed = replace(other.header, mode="replay")
    assert are_ranks([first, other])
    assert not are_ranks([first, first])
    assert not are_ranks([first, replace(other, header=larger)])
    assert not are_ranks([first, replace(other, header=replayed)])
    assert are_ranks(
        [
            replace(first, header=replace(first.header, mode="replay")),
            replace(other, header=replayed),
        ]
    )
    assert not are_ranks([])


def test_the_gap_of_a_job_is_from_the_pairs_of_all_ranks() -> None:
    """The loss that ideal loading on all ranks would save."""
    wait_ns = waits(8, 480)
    wait_ns[3] += 30 * MS
    training, arm, pair = train_in_pairs(wait_ns)
    runs = runs_of(training, arm=arm, pair=pair)
    lost: Any = gap(job_of(runs).run).lost_share
    assert lost.value == pytest.approx(saved(wait_ns, 0 * wait_ns), abs=0.01)


def test_what_happened_on_any_rank_is_told_once() -> None:
    """With its ranks; an epoch takes as long to end as on the slowest."""
    again = Event(9, "a worker died")
    own: list[dict[str, Any]] = [
        {"events": (again,), "notes": ("cut off",)},
        {"events": (replace(again, time_ns=4),), "closed": False},
    ]
    ends = [(EpochEnd(0, "exhausted", 100, wait_ns),) for wait_ns in (7 * MS, 4)]
    runs = runs_of(train(slow(1, ranks=2)))
    run = job_of(replace(runs[rank], ends=ends[rank], **own[rank]) for rank in range(2)).run
    assert run.ends == (EpochEnd(0, "exhausted", 100, 7 * MS),)
    assert run.events == (Event(4, "ranks 0-1: a worker died"),)
    assert (run.notes, run.closed) == (("rank 0: cut off",), False)


def test_a_job_has_prefetched_when_its_slowest_rank_has() -> None:
    """All prefetch at the same batch, whichever rank is last while training."""
    other, own = runs_of(train(slow(1, ranks=2)))
    quick, late = Prefetch(0, 0, 3, 2, 50, 8, [1, 30, 20]), Prefetch(0, 0, 3, 2, 90, 8, [1, 10, 80])
    own, other = replace(own, prefetches=(quick,)), replace(other, prefetches=(late,))
    told = job_of([other, own])
    (prefetch,) = told.run.prefetches
    assert (told.shown, prefetch.elapsed_ns, prefetch.waits_ns) == (1, 90, [1, 30, 80])


def test_a_step_in_which_any_rank_did_something_else_is_left_out() -> None:
    """Its log tells so on its own clock, and the others wait for it in the same step."""
    other, *runs = runs_of(train(slow()))
    came_ns = int((other.steps.request_ns + other.steps.wait_ns)[7])
    event = Event(came_ns + 1, "an evaluation ran", "within a step")
    told = job_of([replace(other, events=(event,)), *runs])
    assert (told.steps, told.run.steps.step_ns[7], told.run.events) == (STEPS - 1, -1, ())


def test_epochs_that_are_shorter_than_the_queue_count_but_for_their_first_batch() -> None:
    """Of a job as of a run, also where the loader does not tell how long they are."""
    training = train(waits(2, mean_ms=20))
    runs = runs_of(training, epochs=[5] * 40, warmup=10, loader=LoaderInfo("l", prefetch_depth=8))
    assert job_of(runs).steps == gap(runs[0]).real_batches == 160


def test_batches_of_different_arms_do_not_count() -> None:
    """As where ranks have different seeds."""
    training, arm, pair = train_in_pairs(waits(2, 480))
    first, other = runs_of(training, arm=arm, pair=pair)
    turned = other.steps.arm.copy()
    turned[:16] = 1 - turned[:16]
    told = job_of([first, replace(other, steps=other.steps.replace(arm=turned))])
    (caution,) = told.cautions
    assert caution.startswith("For 16 batches the ranks were in different arms: these are left out")
