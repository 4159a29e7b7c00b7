"""How runs and epochs begin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule, Unknown
from loadeval.analysis.rules.starts import recreated
from loadeval.evaluator import LoaderEvaluator
from loadeval.runlog.model import EpochEnd, LoaderInfo
from loadeval.runlog.stages import WorkerStart
from loadeval.testing import FakeClock, ScriptedLoader
from tests.analysis.loader_model import stage_times
from tests.analysis.rules.conftest import NOTHING, advised, finding, numbers, outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.runlog.model import Run
    from loadeval.runlog.stages import StageTimes
    from tests.analysis.rules.conftest import MakeRun

STARTS = (Rule.EPOCH_BOUNDARIES, Rule.WORKER_START, Rule.SHUFFLE_BUFFER)


def epochs(make_run: MakeRun, *first: int, **loader: Any) -> Run:
    """Epochs of 20 batches of 100 ns, with these first waits."""
    waits = [wait for one in first for wait in [one, *[0] * 19]]
    info = LoaderInfo(**{"backend": "torch.x", "workers": 2, **loader})
    return make_run(waits, 100, warmup=1, epochs=[20] * len(first), loader=info)


def test_epochs_that_start_with_a_wait(make_run: MakeRun) -> None:
    """What it costs is told, of the later epochs alone."""
    run = epochs(make_run, 0, 400, 600, persistent_workers=False)
    found = finding(Rule.EPOCH_BOUNDARIES, run)
    assert found.cost_share == pytest.approx(500 / 2500)
    assert found.severity == "high"
    assert [fact.value for fact in found.evidence] == [500, 2000, 2]
    # It starts quickly: the first epoch's start does not count.
    assert outcome(Rule.EPOCH_BOUNDARIES, epochs(make_run, 90_000, 100)) == NOTHING


def test_an_epoch_start_costs_what_it_adds(make_run: MakeRun) -> None:
    """An epoch takes 490 and 9 x 100: its start adds 390 to 10 batches in the steady pace."""
    waits = [400, *[10] * 9] * 3
    loader = LoaderInfo("torch.x", workers=2)
    run = make_run(waits, 90, warmup=1, epochs=[10] * 3, loader=loader)
    found = finding(Rule.EPOCH_BOUNDARIES, run, make_run([0] * 30, 90, mode="replay"))
    assert found.cost_share == pytest.approx(390 / 1390)


@pytest.mark.parametrize(
    ("loader", "code", "confidence"),
    [
        # Starting workers looks like filling a buffer: nothing is promised.
        ({"persistent_workers": False}, Advice.TRY_PERSISTENT_WORKERS, "possible"),
        ({"persistent_workers": True}, Advice.CHEAPER_EPOCH_START, "likely"),
        ({"workers": 0}, Advice.FIND_EPOCH_START, "possible"),
        ({}, Advice.FIND_EPOCH_START, "possible"),
    ],
)
def test_why_an_epoch_starts_slowly(
    make_run: MakeRun, loader: dict[str, Any], code: Advice, confidence: str
) -> None:
    """As far as it is known; workers that stay are advised where they do not yet."""
    found = finding(Rule.EPOCH_BOUNDARIES, epochs(make_run, 0, 500, **loader))
    assert (advised(found), found.confidence) == ([code], confidence)


@pytest.mark.parametrize(
    ("first", "persistent", "codes"),
    [
        (300, False, [Advice.CHEAPER_FIRST_BATCH, Advice.WORKER_START_AT_MOST]),
        (300, True, [Advice.CHEAPER_FIRST_BATCH]),
        (401, False, [Advice.TRY_PERSISTENT_WORKERS]),  # more than two batches' time
    ],
)
def test_a_first_wait_for_one_batch(
    alternating: MakeRun, first: float, persistent: bool, codes: list[Advice]
) -> None:
    """Two workers that make a batch each 100 ms take 200 for one, which is most of 300 ms."""
    run = alternating(wait=50, alone=100, first=first, length=8, persistent_workers=persistent)
    found = finding(Rule.EPOCH_BOUNDARIES, run)
    assert advised(found) == codes
    assert found.evidence[-1].value == 200e6
    told = numbers(found)
    assert told.get(Advice.CHEAPER_FIRST_BATCH) in (None, {"batch_ns": 200e6})
    assert told.get(Advice.WORKER_START_AT_MOST) in (None, {"start_ns": 100e6})


def test_what_epochs_do_not_show(make_run: MakeRun) -> None:
    """One epoch, unless its first batch was ready before; a loader that was ready; no length."""
    assert outcome(Rule.EPOCH_BOUNDARIES, epochs(make_run, 500)) is Unknown.ONE_EPOCH
    ready = epochs(make_run, 0, 500, ready_batches=1)
    assert outcome(Rule.EPOCH_BOUNDARIES, ready) == "found"
    assert outcome(Rule.SLOW_FIRST_BATCH, ready) is Unknown.NO_EPOCH_START
    short = replace(make_run([500, 500], 100, warmup=1, epochs=[1, 1]), ends=())  # nor its length
    for rule in (Rule.EPOCH_BOUNDARIES, Rule.SLOW_FIRST_BATCH):
        assert outcome(rule, short) is Unknown.EPOCH_LENGTH_UNKNOWN


def test_a_slow_first_batch(make_run: MakeRun) -> None:
    """It is paid once, and of low severity; under a fifth of the first epoch it is left alone."""
    found = finding(Rule.SLOW_FIRST_BATCH, epochs(make_run, 500))
    assert (found.severity, found.cost_share) == ("low", None)
    assert found.problem.values == {"epoch_start_ns": 500, "epoch_share": 0.2}
    assert outcome(Rule.SLOW_FIRST_BATCH, epochs(make_run, 499)) == NOTHING


def first_batches(
    *first_ns: int, slowest: tuple[int, int] = (-1, -1), **columns: Any
) -> list[StageTimes]:
    """Of each epoch, which are 100,000 ns apart, a first batch that was waited for so long.

    `slowest` has the index of its slowest sample, and how long that took.
    """
    return [
        stage_times(
            epoch,
            **{
                "worker": [0],
                "requested_ns": [epoch * 100_000 + 50],
                "delivered_ns": [epoch * 100_000 + 50 + wait_ns],
                "fetch_start_ns": [epoch * 100_000 + 50],
                "fetch_ns": [10],
                "slowest_index": [slowest[0]],
                "slowest_ns": [slowest[1]],
                **columns,
            },
        )
        for epoch, wait_ns in enumerate(first_ns)
    ]


def worker_starts(epochs: Sequence[int], *workers: tuple[int, int]) -> tuple[WorkerStart, ...]:
    """In each epoch the same: of each worker how long it takes to begin, and to initialise."""
    return tuple(
        WorkerStart(epoch, number, epoch * 100_000, 40, epoch * 100_000 + begun_ns, init_ns)
        for epoch in epochs
        for number, (begun_ns, init_ns) in enumerate(workers)
    )


def looked_into(
    run: Run, stages: Sequence[StageTimes], starts: tuple[WorkerStart, ...] = ()
) -> Run:
    return replace(run, stages=tuple(stages), worker_starts=starts)


def found_of(run: Run) -> Finding:
    """The one finding of how epochs start."""
    found = {rule: outcome(rule, run) for rule in STARTS}
    (rule,) = (rule for rule, told in found.items() if told == "found")
    assert {told for other, told in found.items() if other is not rule} == {NOTHING}
    return finding(rule, run)


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("spawn", [Advice.KEEP_WORKERS, Advice.SMALLER_DATASET]),
        ("forkserver", [Advice.KEEP_WORKERS, Advice.SMALLER_DATASET]),
        ("fork", [Advice.KEEP_WORKERS]),
        (None, [Advice.KEEP_WORKERS]),
    ],
)
def test_workers_that_start_slowly(
    make_run: MakeRun, method: str | None, advice: list[Advice]
) -> None:
    """What it costs is as for any start of an epoch; a spawned worker is sent the dataset."""
    run = epochs(make_run, 600, 500, 500, start_method=method)
    found = found_of(looked_into(run, first_batches(600, 500, 500), slow_workers()))
    assert (found.rule, found.confidence) == (Rule.WORKER_START, "measured")
    assert found.problem.code is Problem.WORKERS_START_SLOWLY
    assert found.problem.values == {"begun_ns": 400, "method": method or "fork"}
    assert advised(found) == advice
    assert found.cost_share == pytest.approx(500 / 2500)
    assert found.evidence[-1].value == 400


def slow_workers() -> tuple[WorkerStart, ...]:
    """Of which the first takes longest."""
    return worker_starts([0, 1, 2], (400, 0), (20, 0))


@pytest.mark.parametrize("workers", [[(9, 400), (9, 1)], [(9, 1), (9, 400)]])
@pytest.mark.parametrize(("name", "told"), [("seed", "seed"), (None, "worker_init_fn")])
def test_workers_that_initialise_slowly(
    make_run: MakeRun, workers: list[tuple[int, int]], name: str | None, told: str
) -> None:
    """Whichever of them is the slowest."""
    run = epochs(make_run, 600, 500, 500, worker_init=name)
    starts = worker_starts([0, 1, 2], *workers)
    found = found_of(looked_into(run, first_batches(600, 500, 500), starts))
    assert found.rule is Rule.WORKER_START
    assert found.problem.values == {"init_ns": 400, "function": told}
    assert advised(found) == [Advice.KEEP_WORKERS, Advice.CHEAPER_INIT]


@pytest.mark.parametrize(
    ("method", "advice"),
    [("spawn", Advice.SMALLER_DATASET), ("fork", Advice.CHEAPER_EPOCH_START)],
)
def test_persistent_workers_that_start_in_each_epoch(
    make_run: MakeRun, method: str, advice: Advice
) -> None:
    """In a loader that is made anew, say: that they persist is no advice."""
    run = epochs(make_run, 600, 500, 500, persistent_workers=True, start_method=method)
    found = found_of(looked_into(run, first_batches(600, 500, 500), slow_workers()))
    assert (found.rule, advised(found)) == (Rule.WORKER_START, [advice])


def test_workers_that_start_and_initialise(make_run: MakeRun) -> None:
    """Neither is half of the wait, but both together are: the longer one is told."""
    run = epochs(make_run, 600, 500, 500)
    starts = worker_starts([0, 1, 2], (200, 180))
    found = found_of(looked_into(run, first_batches(600, 500, 500), starts))
    assert found.problem.code is Problem.WORKERS_START_SLOWLY


def test_workers_that_started_before_the_batch_was_asked_for(make_run: MakeRun) -> None:
    """What passed since they began is part of the start: 50 before the request."""
    run = epochs(make_run, 600, 500, 500)
    stages = first_batches(600, 500, 500)
    for begun_ns, rule in ((276, Rule.WORKER_START), (274, Rule.EPOCH_BOUNDARIES)):
        starts = worker_starts([0, 1, 2], (begun_ns, 0))
        assert found_of(looked_into(run, stages, starts)).rule is rule


def test_persistent_workers_start_once(make_run: MakeRun) -> None:
    """In the first epoch, which is paid once: later ones wait for something else."""
    run = epochs(make_run, 600, 500, 500, persistent_workers=True)
    starts = worker_starts([0], (550, 0), (550, 0))
    found = found_of(looked_into(run, first_batches(600, 500, 500), starts))
    assert (found.rule, advised(found)) == (Rule.EPOCH_BOUNDARIES, [Advice.CHEAPER_EPOCH_START])


def test_a_shuffle_buffer(make_run: MakeRun) -> None:
    """The first sample of a worker takes most of the wait."""
    run = epochs(make_run, 600, 500, 500, dataset="Shuffled")
    stages = first_batches(600, 500, 500, slowest=(0, 300))
    found = found_of(looked_into(run, stages, worker_starts([0, 1, 2], (20, 0), (20, 0))))
    assert found.rule is Rule.SHUFFLE_BUFFER
    assert found.problem.values == {"sample_ns": 300, "dataset": "Shuffled"}
    assert advised(found) == [Advice.SMALLER_BUFFER]
    assert found.cost_share == pytest.approx(500 / 2500)


def test_a_shuffle_buffer_of_persistent_workers(make_run: MakeRun) -> None:
    """It is filled in each epoch, whatever workers do."""
    run = epochs(make_run, 600, 500, 500, persistent_workers=True)
    stages = first_batches(600, 500, 500, slowest=(0, 300))
    found = found_of(looked_into(run, stages, worker_starts([0], (500, 0))))
    assert found.rule is Rule.SHUFFLE_BUFFER


@pytest.mark.parametrize("slowest", [(7, 300), (0, 200), (0, -1), (-1, 300)])
def test_what_is_no_shuffle_buffer(make_run: MakeRun, slowest: tuple[int, int]) -> None:
    """A later sample, under half of the wait, or not known."""
    run = epochs(make_run, 600, 500, 500)
    stages = first_batches(600, 500, 500, slowest=slowest)
    assert found_of(looked_into(run, stages)).rule is Rule.EPOCH_BOUNDARIES


@pytest.mark.parametrize(
    "columns", [{"requested_ns": [-1]}, {"delivered_ns": [-1]}, {"batch": [1]}]
)
def test_epochs_whose_start_was_not_seen(make_run: MakeRun, columns: dict[str, Any]) -> None:
    """Nothing is concluded from them."""
    run = epochs(make_run, 600, 500, 500)
    stages = first_batches(600, 500, 500, slowest=(0, 300), **columns)
    assert found_of(looked_into(run, stages)).rule is Rule.EPOCH_BOUNDARIES
    empty = [one.part(slice(0)) for one in stages]
    assert found_of(looked_into(run, empty)).rule is Rule.EPOCH_BOUNDARIES


def test_starts_that_take_no_time(make_run: MakeRun) -> None:
    """By the loader's own moments: what training waited for is not in it."""
    run = epochs(make_run, 600, 500, 500)
    stages = first_batches(0, 0, 0)
    assert found_of(looked_into(run, stages)).rule is Rule.EPOCH_BOUNDARIES


def test_only_long_starts_are_explained(make_run: MakeRun) -> None:
    """Workers that take most of a short wait cost nothing."""
    run = epochs(make_run, 600, 50, 50)
    run = looked_into(run, first_batches(600, 50, 50), worker_starts([0, 1, 2], (40, 0)))
    assert {outcome(rule, run) for rule in STARTS} == {NOTHING}
    short = epochs(make_run, 500)
    assert {outcome(rule, short) for rule in STARTS} == {Unknown.ONE_EPOCH}


def test_epoch_starts_of_an_alternating_run(alternating: MakeRun) -> None:
    """They are plain: of the loader itself, before any block."""
    run = alternating(wait=50, alone=100, first=401, length=8, persistent_workers=False)
    count = len(np.unique(run.steps.epoch))
    waits_ns = [401_000_000] * count
    stages = [
        stage_times(
            epoch,
            worker=[0],
            requested_ns=[epoch * 10**12],
            delivered_ns=[epoch * 10**12 + wait_ns],
            fetch_start_ns=[epoch * 10**12],
        )
        for epoch, wait_ns in enumerate(waits_ns)
    ]
    starts = tuple(
        WorkerStart(epoch, 0, epoch * 10**12, 0, epoch * 10**12 + 300_000_000, 0)
        for epoch in range(count)
    )
    plain, told = found_of(run), found_of(looked_into(run, stages, starts))
    assert (plain.rule, told.rule) == (Rule.EPOCH_BOUNDARIES, Rule.WORKER_START)
    assert told.cost_share == plain.cost_share


def anew(batches: int, epochs: int, wait_ns: int = 50, every: int = 1) -> Run:
    """A log of a loader that is iterated anew after so many batches, each with a step of 100."""
    clock = FakeClock()
    loader = ScriptedLoader(range(100), [wait_ns, *[1] * 99], clock)
    evaluator = LoaderEvaluator(loader, clock=clock, every=every)
    for _ in range(epochs):
        for _, _ in zip(range(batches), evaluator, strict=False):
            clock.advance(100)
    return evaluator.recorded()


@pytest.mark.parametrize("batches", [1, 2])
def test_a_loader_that_is_made_anew(batches: int) -> None:
    """What the first batches are waited for is what a kept iterator would spare."""
    run = anew(batches, 9)
    found = finding(Rule.LOADER_RECREATED, run)
    assert found.problem.values == {"epochs": 9, "each_ns": 50}
    assert advised(found) == [Advice.KEEP_ITERATOR]
    assert found.cost_share == pytest.approx(50 / (150 if batches == 1 else 251), rel=0.1)
    assert [fact.value for fact in found.evidence] == [50, 9]


@pytest.mark.parametrize(
    ("batches", "epochs", "wait_ns"),
    [
        (3, 9, 50),  # it was iterated for longer
        (1, 4, 50),  # too few to tell
        (1, 9, 5),  # under 5% of the time
    ],
)
def test_a_loader_that_is_not_made_anew(batches: int, epochs: int, wait_ns: int) -> None:
    """Or not often, or so that it would matter."""
    assert outcome(Rule.LOADER_RECREATED, anew(batches, epochs, wait_ns)) == NOTHING


def test_short_epochs_that_end_by_themselves(make_run: MakeRun) -> None:
    """Nobody broke them off."""
    run = make_run([50] * 9, 100, epochs=[1] * 9)
    assert outcome(Rule.LOADER_RECREATED, run) == NOTHING


def test_a_run_without_moments(make_run: MakeRun) -> None:
    """That another tool measured: its time is not known."""
    run = make_run([50] * 9, 100, epochs=[1] * 9)
    ends = tuple(EpochEnd(epoch, "broken off") for epoch in range(9))
    assert recreated(Case.of(replace(run, ends=ends))) is None


def test_a_log_of_every_tenth_batch_tells_of_no_single_epoch() -> None:
    """Long epochs have few rows there."""
    assert outcome(Rule.LOADER_RECREATED, anew(15, 9, every=10)) is Unknown.BATCHES_LEFT_OUT
