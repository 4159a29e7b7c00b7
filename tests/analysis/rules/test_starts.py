"""How runs and epochs begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule, Unknown
from loadeval.analysis.rules.sending import Sending
from loadeval.analysis.rules.starts import recreated
from loadeval.data.lines import EpochEnd, LoaderInfo, WorkerStart
from loadeval.report.wording.advice import finding_advice
from loadeval.report.wording.findings import finding_sentence
from tests.analysis.rules.conftest import NOTHING, advised, finding_of, numbers, outcome
from tests.runs.given import alternating, make_run
from tests.runs.measured import recorded
from tests.runs.tables import Rows, replace, with_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.data.run import Run

SECOND_NS = 1_000_000_000
STARTS = (Rule.EPOCH_BOUNDARIES, Rule.WORKER_START, Rule.SHUFFLE_BUFFER, Rule.SAMPLER_START)


def epochs(*first: int, **loader: Any) -> Run:
    """Epochs of 20 batches of 100 ns, with these first waits."""
    waits = [wait for first_wait in first for wait in [first_wait, *[0] * 19]]
    info = LoaderInfo(**{"backend": "torch.x", "workers": 2, **loader})
    return make_run(waits, 100, warmup=1, epochs=[20] * len(first), loader=info)


def test_epochs_that_start_with_a_wait() -> None:
    """What it costs is told, of the later epochs alone."""
    run = epochs(0, 400, 600, persistent_workers=False)
    finding = finding_of(Rule.EPOCH_BOUNDARIES, run)
    assert finding.cost_share == pytest.approx(500 / 2500)
    assert finding.severity == "high"
    assert [fact.value for fact in finding.evidence] == [500, 2000, 2]
    # It starts quickly: the first epoch's start does not count.
    assert outcome(Rule.EPOCH_BOUNDARIES, epochs(90_000, 100)) == NOTHING


def test_an_epoch_start_costs_what_it_adds() -> None:
    """An epoch takes 490 and 9 x 100: its start adds 390 to 10 batches in the steady pace."""
    waits = [400, *[10] * 9] * 3
    loader = LoaderInfo("torch.x", workers=2)
    run = make_run(waits, 90, warmup=1, epochs=[10] * 3, loader=loader)
    finding = finding_of(Rule.EPOCH_BOUNDARIES, run, make_run([0] * 30, 90, mode="replay"))
    assert finding.cost_share == pytest.approx(390 / 1390)


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
def test_why_an_epoch_starts_slowly(loader: dict[str, Any], code: Advice, confidence: str) -> None:
    """As far as it is known; workers that stay are advised where they do not yet."""
    finding = finding_of(Rule.EPOCH_BOUNDARIES, epochs(0, 500, **loader))
    assert (advised(finding), finding.confidence) == ([code], confidence)


@pytest.mark.parametrize(
    ("first", "persistent", "codes"),
    [
        (300, False, [Advice.CHEAPER_FIRST_BATCH, Advice.WORKER_START_AT_MOST]),
        (300, True, [Advice.CHEAPER_FIRST_BATCH]),
        (401, False, [Advice.TRY_PERSISTENT_WORKERS]),  # more than two batches' time
    ],
)
def test_a_first_wait_for_one_batch(first: float, persistent: bool, codes: list[Advice]) -> None:
    """Two workers that make a batch each 100 ms take 200 for one, which is most of 300 ms."""
    run = alternating(wait=50, alone=100, first=first, length=8, persistent_workers=persistent)
    finding = finding_of(Rule.EPOCH_BOUNDARIES, run)
    assert advised(finding) == codes
    assert finding.evidence[-1].value == 200e6
    advised_numbers = numbers(finding)
    assert advised_numbers.get(Advice.CHEAPER_FIRST_BATCH) in (None, {"batch_ns": 200e6})
    assert advised_numbers.get(Advice.WORKER_START_AT_MOST) in (None, {"start_ns": 100e6})


def test_what_epochs_do_not_show() -> None:
    """One epoch, unless its first batch was ready before; a loader that was ready; no length."""
    assert outcome(Rule.EPOCH_BOUNDARIES, epochs(500)) is Unknown.ONE_EPOCH
    ready = epochs(0, 500, ready_batches=1)
    assert outcome(Rule.EPOCH_BOUNDARIES, ready) == "found"
    assert outcome(Rule.SLOW_FIRST_BATCH, ready) is Unknown.NO_EPOCH_START
    short = replace(make_run([500, 500], 100, warmup=1, epochs=[1, 1]), ends=())  # nor its length
    for rule in (Rule.EPOCH_BOUNDARIES, Rule.SLOW_FIRST_BATCH):
        assert outcome(rule, short) is Unknown.EPOCH_LENGTH_UNKNOWN


def test_a_slow_first_batch() -> None:
    """It is paid once, and of low severity; under a fifth of the first epoch it is left alone."""
    finding = finding_of(Rule.SLOW_FIRST_BATCH, epochs(500))
    assert (finding.severity, finding.cost_share) == ("low", None)
    shares = {"run_share": 0.2, "epoch_share": 0.2}
    assert finding.problem.values == {"epoch_start_ns": 500, "batches": 20, **shares}
    assert outcome(Rule.SLOW_FIRST_BATCH, epochs(499)) == NOTHING


def first_batches(
    *first_ns: int, slowest: tuple[int, int] = (-1, -1), **columns: Any
) -> list[Rows]:
    """Of each epoch, which are 100,000 ns apart, a first batch that was waited for so long.

    `slowest` has the index of its slowest sample, and how long that took.
    """
    return [
        Rows(
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


def looked_into(run: Run, stages: Sequence[Rows], starts: tuple[WorkerStart, ...] = ()) -> Run:
    return replace(run, stages=tuple(stages), worker_starts=starts)


def start_finding(run: Run) -> Finding:
    """The one finding of how epochs start."""
    outcomes = {rule: outcome(rule, run) for rule in STARTS}
    (rule,) = (rule for rule, answer in outcomes.items() if answer == "found")
    assert {answer for other, answer in outcomes.items() if other is not rule} == {NOTHING}
    return finding_of(rule, run)


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("spawn", [Advice.KEEP_WORKERS, Advice.SMALLER_DATASET]),
        ("forkserver", [Advice.KEEP_WORKERS, Advice.SMALLER_DATASET]),
        ("fork", [Advice.KEEP_WORKERS]),
        (None, [Advice.KEEP_WORKERS]),
    ],
)
def test_workers_that_start_slowly(method: str | None, advice: list[Advice]) -> None:
    """What it costs is as for any start of an epoch; a spawned worker is sent the dataset."""
    run = epochs(600, 500, 500, start_method=method)
    finding = start_finding(looked_into(run, first_batches(600, 500, 500), slow_workers()))
    assert (finding.rule, finding.confidence) == (Rule.WORKER_START, "measured")
    assert finding.problem.code is Problem.WORKERS_START_SLOWLY
    values = {"begun_ns": 400, "method": method or "fork", "epoch_start_ns": 550}
    assert finding.problem.values == values
    assert advised(finding) == advice
    assert finding.cost_share == pytest.approx(500 / 2500)
    assert finding.evidence[-1].value == 400


def slow_workers() -> tuple[WorkerStart, ...]:
    """Workers of which the first takes longest."""
    return worker_starts([0, 1, 2], (400, 0), (20, 0))


@pytest.mark.parametrize("workers", [[(9, 400), (9, 1)], [(9, 1), (9, 400)]])
@pytest.mark.parametrize(("name", "expected"), [("seed", "seed"), (None, "worker_init_fn")])
def test_workers_that_initialise_slowly(
    workers: list[tuple[int, int]], name: str | None, expected: str
) -> None:
    """Whichever of them is the slowest."""
    run = epochs(600, 500, 500, worker_init=name)
    starts = worker_starts([0, 1, 2], *workers)
    finding = start_finding(looked_into(run, first_batches(600, 500, 500), starts))
    assert finding.rule is Rule.WORKER_START
    assert finding.problem.values == {"init_ns": 400, "function": expected}
    assert advised(finding) == [Advice.KEEP_WORKERS, Advice.CHEAPER_INIT]


@pytest.mark.parametrize(
    ("method", "advice"),
    [("spawn", Advice.SMALLER_DATASET), ("fork", Advice.CHEAPER_EPOCH_START)],
)
def test_persistent_workers_that_start_in_each_epoch(method: str, advice: Advice) -> None:
    """In a loader that is made anew, say: that they persist is no advice."""
    run = epochs(600, 500, 500, persistent_workers=True, start_method=method)
    finding = start_finding(looked_into(run, first_batches(600, 500, 500), slow_workers()))
    assert (finding.rule, advised(finding)) == (Rule.WORKER_START, [advice])


def test_workers_that_start_and_initialise() -> None:
    """Neither is half of the wait, but both together are: the longer one is told."""
    run = epochs(600, 500, 500)
    starts = worker_starts([0, 1, 2], (200, 180))
    finding = start_finding(looked_into(run, first_batches(600, 500, 500), starts))
    assert finding.problem.code is Problem.WORKERS_START_SLOWLY


def test_workers_that_started_before_the_batch_was_asked_for() -> None:
    """What passed since they began is part of the start: 50 before the request."""
    run = epochs(600, 500, 500)
    stages = first_batches(600, 500, 500)
    for begun_ns, rule in ((276, Rule.WORKER_START), (274, Rule.EPOCH_BOUNDARIES)):
        starts = worker_starts([0, 1, 2], (begun_ns, 0))
        assert start_finding(looked_into(run, stages, starts)).rule is rule


def test_persistent_workers_start_once() -> None:
    """In the first epoch, which is paid once: later ones wait for something else."""
    run = epochs(600, 500, 500, persistent_workers=True)
    starts = worker_starts([0], (550, 0), (550, 0))
    finding = start_finding(looked_into(run, first_batches(600, 500, 500), starts))
    assert (finding.rule, advised(finding)) == (Rule.EPOCH_BOUNDARIES, [Advice.CHEAPER_EPOCH_START])


def test_a_shuffle_buffer() -> None:
    """The first sample of a worker takes most of the wait."""
    run = epochs(600, 500, 500, dataset="Shuffled")
    stages = first_batches(600, 500, 500, slowest=(0, 300))
    finding = start_finding(looked_into(run, stages, worker_starts([0, 1, 2], (20, 0), (20, 0))))
    assert finding.rule is Rule.SHUFFLE_BUFFER
    assert finding.problem.values == {"sample_ns": 300, "dataset": "Shuffled"}
    assert advised(finding) == [Advice.SMALLER_BUFFER]
    assert finding.cost_share == pytest.approx(500 / 2500)


def test_a_shuffle_buffer_of_persistent_workers() -> None:
    """It is filled in each epoch, whatever workers do."""
    run = epochs(600, 500, 500, persistent_workers=True)
    stages = first_batches(600, 500, 500, slowest=(0, 300))
    finding = start_finding(looked_into(run, stages, worker_starts([0], (500, 0))))
    assert finding.rule is Rule.SHUFFLE_BUFFER


@pytest.mark.parametrize(
    ("sampler", "advice"),
    [
        ("RandomSampler", Advice.DRAW_IN_PARTS),
        ("DistributedSampler", Advice.DRAW_IN_PARTS),
        ("WeightedRandomSampler", Advice.DRAW_WEIGHTED_IN_PARTS),
        ("Buckets", Advice.LIGHTER_SAMPLER),
        (None, Advice.LIGHTER_SAMPLER),
    ],
)
def test_a_sampler_that_draws_long_before_its_first_index(
    sampler: str | None, advice: Advice
) -> None:
    """It is named with what it costs each epoch, and the advice is for its kind."""
    run = epochs(600, 500, 500, sampler=sampler)
    stages = first_batches(600, 500, 500, index_ns=[400])
    finding = start_finding(looked_into(run, stages, worker_starts([0, 1, 2], (20, 0))))
    assert (finding.rule, finding.confidence) == (Rule.SAMPLER_START, "measured")
    values = {"index_ns": 400, "sampler": sampler or "the sampler", "epoch_start_ns": 550}
    assert finding.problem.values == values
    assert numbers(finding) == {advice: {"sooner_ns": 400}}
    assert finding.cost_share == pytest.approx(500 / 2500)


@pytest.mark.parametrize(
    ("columns", "is_sampler"),
    [
        # Workers that live on are asked for batches before the first one is waited for.
        ({"index_ns": [501]}, True),
        ({"index_ns": [499]}, False),
        ({"index_ns": [-1]}, False),
        # The training process draws within the wait.
        ({"index_ns": [250], "worker": [-1]}, True),
        ({"index_ns": [249], "worker": [-1]}, False),
    ],
)
def test_what_a_sampler_takes_of_an_epoch_start(columns: dict[str, Any], is_sampler: bool) -> None:
    """Half of it or more is the sampler's."""
    stages = first_batches(600, 500, 500, **columns)
    rule = start_finding(looked_into(epochs(600, 500, 500), stages)).rule
    assert rule is (Rule.SAMPLER_START if is_sampler else Rule.EPOCH_BOUNDARIES)


def test_workers_that_start_for_longer_than_the_sampler_draws() -> None:
    """They do both at once, so the longer one is the cause."""
    stages = first_batches(600, 500, 500, index_ns=[300])
    starts = worker_starts([0, 1, 2], (400, 0))
    assert start_finding(looked_into(epochs(600, 500, 500), stages, starts)).rule is (
        Rule.WORKER_START
    )


@pytest.mark.parametrize("slowest", [(7, 300), (0, 200), (0, -1), (-1, 300)])
def test_what_is_no_shuffle_buffer(slowest: tuple[int, int]) -> None:
    """A later sample, under half of the wait, or not known."""
    run = epochs(600, 500, 500)
    stages = first_batches(600, 500, 500, slowest=slowest)
    assert start_finding(looked_into(run, stages)).rule is Rule.EPOCH_BOUNDARIES


@pytest.mark.parametrize(
    "columns", [{"requested_ns": [-1]}, {"delivered_ns": [-1]}, {"batch": [1]}]
)
def test_epochs_whose_start_was_not_seen(columns: dict[str, Any]) -> None:
    """Nothing is concluded from them."""
    run = epochs(600, 500, 500)
    stages = first_batches(600, 500, 500, slowest=(0, 300), **columns)
    assert start_finding(looked_into(run, stages)).rule is Rule.EPOCH_BOUNDARIES
    empty = [times.part(slice(0)) for times in stages]
    assert start_finding(looked_into(run, empty)).rule is Rule.EPOCH_BOUNDARIES


def test_starts_that_take_no_time() -> None:
    """The loader's own moments count: what training waited for is not in it."""
    run = epochs(600, 500, 500)
    stages = first_batches(0, 0, 0)
    assert start_finding(looked_into(run, stages)).rule is Rule.EPOCH_BOUNDARIES


def test_only_long_starts_are_explained() -> None:
    """Workers that take most of a short wait cost nothing."""
    run = epochs(600, 50, 50)
    run = looked_into(run, first_batches(600, 50, 50), worker_starts([0, 1, 2], (40, 0)))
    assert {outcome(rule, run) for rule in STARTS} == {NOTHING}
    short = epochs(500)
    assert {outcome(rule, short) for rule in STARTS} == {Unknown.ONE_EPOCH}


def test_epoch_starts_of_an_alternating_run() -> None:
    """They are plain: of the loader itself, before any block."""
    run = alternating(wait=50, alone=100, first=401, length=8, persistent_workers=False)
    count = len(np.unique(run.steps.epoch))
    waits_ns = [401_000_000] * count
    stages = [
        Rows(
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
    plain, looked_at = start_finding(run), start_finding(looked_into(run, stages, starts))
    assert (plain.rule, looked_at.rule) == (Rule.EPOCH_BOUNDARIES, Rule.WORKER_START)
    assert looked_at.cost_share == plain.cost_share


def anew(batches: int, epochs: int, wait_ns: int = 50) -> Run:
    """A log of a loader that is iterated anew after so many batches, each with a step of 100."""
    return recorded(
        waits_ns=[wait_ns, *[1] * 99],
        step_ns=100,
        epochs=epochs,
        batch=0,
        left_after={(epoch, batches - 1) for epoch in range(epochs)},
        warmup=None,
    )


@pytest.mark.parametrize("batches", [1, 2])
def test_a_loader_that_is_made_anew(batches: int) -> None:
    """What the first batches are waited for is what a kept iterator would spare."""
    run = anew(batches, 9)
    finding = finding_of(Rule.LOADER_RECREATED, run)
    assert finding.problem.values == {"epochs": 9, "each_ns": 50}
    assert advised(finding) == [Advice.KEEP_ITERATOR]
    assert finding.cost_share == pytest.approx(50 / (150 if batches == 1 else 251), rel=0.1)
    assert [fact.value for fact in finding.evidence] == [50, 9]


@pytest.mark.parametrize(
    ("batches", "epochs", "wait_ns"),
    [
        (3, 9, 50),  # it was iterated for longer
        (1, 4, 50),  # too few to tell
        (1, 9, 5),  # under 5% of the time
    ],
)
def test_a_loader_that_is_not_made_anew(batches: int, epochs: int, wait_ns: int) -> None:
    """It is not made anew, or not often, or so that it does not matter."""
    assert outcome(Rule.LOADER_RECREATED, anew(batches, epochs, wait_ns)) == NOTHING


def test_short_epochs_that_end_by_themselves() -> None:
    """Nobody broke them off."""
    run = make_run([50] * 9, 100, epochs=[1] * 9)
    assert outcome(Rule.LOADER_RECREATED, run) == NOTHING


def test_a_run_without_moments() -> None:
    """Another tool measured it: its time is not known."""
    run = make_run([50] * 9, 100, epochs=[1] * 9)
    ends = tuple(EpochEnd(epoch, "broken off") for epoch in range(9))
    assert recreated(Case(replace(run, ends=ends))) is None


def short_run(first_ns: int, length: int | None = 31_250, **header: Any) -> Run:
    """300 batches of 25 ms after a first wait, of an epoch that is broken off; stages of it."""
    loader = LoaderInfo("torch.x", length=length, workers=4, start_method="spawn")
    waits = [first_ns, *[0] * 299]
    run = make_run(waits, 25_000_000, warmup=1, loader=loader, **header)
    first = Rows(0, requested_ns=[50], delivered_ns=[50 + first_ns])
    return replace(run, ends=(EpochEnd(0, "broken off"),), stages=(first,))


def test_a_first_batch_is_told_as_it_was_met() -> None:
    """It took most of a short run, however long an epoch would be; both are said."""
    finding = finding_of(Rule.SLOW_FIRST_BATCH, short_run(13 * SECOND_NS))
    assert (finding.severity, finding.cost_share) == ("low", None)
    assert advised(finding) == [Advice.FASTER_START]
    assert finding_sentence(finding).startswith(
        "The first batch came after 13.0 s, 63.4% of the time of this run; of a whole epoch of "
        "31,250 batches 1.6%."
    )


def test_a_first_batch_that_nobody_notices() -> None:
    """Under a second, or under a fifth of the run."""
    assert outcome(Rule.SLOW_FIRST_BATCH, short_run(1_800_000_000)) == NOTHING
    assert outcome(Rule.SLOW_FIRST_BATCH, short_run(1_900_000_000)) == "found"
    run = with_steps(short_run(SECOND_NS - 1), step_ns=1_000_000)
    assert outcome(Rule.SLOW_FIRST_BATCH, run) == NOTHING


def test_a_first_batch_of_an_epoch_of_unknown_length() -> None:
    """What it is of the run is said."""
    finding = finding_of(Rule.SLOW_FIRST_BATCH, short_run(13 * SECOND_NS, None))
    assert finding.problem.code is Problem.FIRST_BATCH_SLOW_IN_RUN
    assert "of the time of this run. That happens once" in finding_sentence(finding)
    run = short_run(SECOND_NS, None)
    assert outcome(Rule.SLOW_FIRST_BATCH, run) is Unknown.EPOCH_LENGTH_UNKNOWN


def test_a_run_with_moments_is_as_long_as_the_clock_says() -> None:
    """Time between batches belongs to it, as the pauses of an alternating run do."""
    request_ns = SECOND_NS + np.arange(300) * SECOND_NS // 10
    run = with_steps(short_run(13 * SECOND_NS), request_ns=request_ns)
    finding = finding_of(Rule.SLOW_FIRST_BATCH, run)
    assert finding.evidence[-1].value == 299 * SECOND_NS // 10 + 25_000_000


def test_a_first_batch_that_is_like_those_of_later_epochs() -> None:
    """What each epoch's start costs is told once; one of twice as long is told by itself."""
    assert outcome(Rule.SLOW_FIRST_BATCH, epochs(999, 500, 500)) == NOTHING
    assert outcome(Rule.SLOW_FIRST_BATCH, epochs(1000, 500, 500)) == "found"


def sent(epoch: int, *, in_turn: bool, importing_s: float = 1.0) -> list[WorkerStart]:
    """Two workers, each of which takes 1.5 s, importing, and 0.5 s to unpickle 850 MB."""
    starts, start_ns = [], epoch * 10**12
    for worker in range(2):
        began_ns = start_ns + int((1.5 + importing_s if in_turn else 1.5) * worker * SECOND_NS)
        ready_ns = began_ns + int((2 + importing_s) * SECOND_NS)
        known = (began_ns, 3 * SECOND_NS // 2, 850_000_000, SECOND_NS // 2)
        starts.append(WorkerStart(epoch, worker, start_ns, 0, ready_ns, 0, *known))
    return starts


def sending(*epochs: Sequence[WorkerStart], cpus: int = 2) -> Run:
    """Epochs of 20 batches of 1 s, whose first batch comes when the last worker is ready."""
    stages, waits = [], []
    for epoch, starts in enumerate(epochs):
        start_ns = epoch * 10**12
        wait_ns = max((start.ready_ns for start in starts), default=start_ns) - start_ns
        waits += [wait_ns, *[0] * 19]
        given_ns = start_ns + wait_ns
        stages.append(Rows(epoch, requested_ns=[start_ns], delivered_ns=[given_ns]))
    loader = LoaderInfo("torch.x", workers=2, start_method="spawn", persistent_workers=False)
    environment = {"cpus_usable": cpus}
    run = make_run(
        waits,
        SECOND_NS,
        warmup=1,
        epochs=[20] * len(epochs),
        loader=loader,
        environment=environment,
    )
    starts = tuple(start for epoch in epochs for start in epoch)
    return replace(run, stages=tuple(stages), worker_starts=starts)


def test_workers_that_are_sent_a_large_dataset() -> None:
    """What each takes is said in parts; sent less, both would begin after importing, at once."""
    run = sending(*(sent(epoch, in_turn=True) for epoch in range(3)))
    finding = start_finding(run)
    assert finding.rule is Rule.WORKER_START
    assert finding.problem.values["begun_ns"] == 5.5 * SECOND_NS
    parts, in_turn, smaller = (change.values for change in finding.changes[1:])
    assert advised(finding) == [
        Advice.KEEP_WORKERS,
        Advice.WORKER_START_PARTS,
        Advice.WORKERS_START_IN_TURN,
        Advice.SMALLER_DATASET,
    ]
    assert parts == {
        "worker_ns": 3 * SECOND_NS,
        "pickling_ns": 1.5 * SECOND_NS,
        "sent_bytes": 850_000_000,
        "importing_ns": SECOND_NS,
        "unpickling_ns": 0.5 * SECOND_NS,
    }
    assert in_turn == {"workers": 2}
    assert smaller["sooner_ns"] == 4.5 * SECOND_NS
    assert finding.cost_share == pytest.approx(5.5 / 25.5)


def test_workers_that_only_pickle_in_turn() -> None:
    """They import at the same time already."""
    run = sending(*(sent(epoch, in_turn=False) for epoch in range(3)))
    finding = start_finding(run)
    assert Advice.WORKERS_START_IN_TURN not in advised(finding)
    assert numbers(finding)[Advice.SMALLER_DATASET] == {"sooner_ns": 3.5 * SECOND_NS}


def test_fewer_cpus_than_workers() -> None:
    """Imports at the same time then take longer."""
    starts = [sent(epoch, in_turn=True) for epoch in range(3)]
    finding = start_finding(sending(*starts, cpus=1))
    assert numbers(finding)[Advice.SMALLER_DATASET] == {"sooner_ns": 3.5 * SECOND_NS}


def test_workers_that_mostly_import() -> None:
    """A smaller dataset is no remedy, where it would save under a tenth."""
    starts = [sent(epoch, in_turn=False, importing_s=40) for epoch in range(2)]
    assert advised(start_finding(sending(*starts))) == [
        Advice.KEEP_WORKERS,
        Advice.WORKER_START_PARTS,
        Advice.FEWER_IMPORTS,
    ]


def test_workers_that_start_once() -> None:
    """The first batch of all waits for them; what sending less saves is said in seconds."""
    finding = finding_of(Rule.SLOW_FIRST_BATCH, sending(sent(0, in_turn=True), [], []))
    assert advised(finding) == [
        Advice.WORKER_START_PARTS,
        Advice.WORKERS_START_IN_TURN,
        Advice.SMALLER_DATASET,
    ]
    assert "1.50 s to pickle 850 MB for it" in finding_advice(finding)
    assert "Predicted: at most 4.50 s sooner." in finding_advice(finding)


def test_what_is_not_known_of_one_worker_is_known_of_none() -> None:
    """Nothing is then said of the parts; and one worker does not start after another."""
    first, second = sent(0, in_turn=True)
    for name in ("pickling_start_ns", "pickling_ns", "sent_bytes", "unpickling_ns"):
        unknown: dict[str, Any] = {name: None}
        assert Sending.of([first, replace(second, **unknown)]) is None
    assert Sending.of([]) is None
    alone, last_first = Sending.of([first]), Sending.of([second, first])
    assert alone is not None
    assert not alone.in_turn
    assert last_first is not None
    assert last_first.in_turn
