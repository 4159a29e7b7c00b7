"""Loaders that are too slow, too shallow, or load nothing ahead; and too many workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.rules.case import Case
from loadeval.runlog.model import LoaderInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.rules.finding import Finding
    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]
    Find = Callable[..., Finding]
    Ask = Callable[..., tuple[str, str]]

NOTHING = ("nothing found", "")


def loader(**facts: Any) -> LoaderInfo:
    return LoaderInfo(**{"backend": "torch.utils.data.DataLoader", "workers": 0, **facts})


def test_a_loader_that_is_too_slow_alone(alternating: MakeRun, finding: Find) -> None:
    """The factor is told, and what is lost."""
    found = finding("capacity", alternating(wait=50, real=50, ideal=50, alone=100))
    assert found.sentence.startswith("The loader is too slow even on its own: it must become 2.00")
    assert found.severity == "high"
    assert found.cost_share == pytest.approx(0.5)
    lost, waiting, *paces = found.evidence
    assert [(fact.name, fact.unit) for fact in (lost, waiting)] == [
        ("time lost", "share"),
        ("of it in waiting", "share"),
    ]
    assert lost.value == waiting.value == pytest.approx(0.5)
    assert [(fact.name, fact.value) for fact in paces] == [
        ("real iteration", 100e6),
        ("ideal iteration", 50e6),
        ("loader alone", 100e6),
    ]


def test_a_loader_that_is_just_fast_enough_alone(alternating: MakeRun, outcome: Ask) -> None:
    """Its capacity is not what is missing."""
    assert outcome("capacity", alternating(wait=50, alone=50)) == NOTHING


def test_a_loss_that_does_not_matter(alternating: MakeRun, outcome: Ask) -> None:
    """Under 5% of the time nothing is said, however slow the loader is by itself."""
    run = alternating(wait=2, alone=80)
    assert outcome("capacity", run) == outcome("shallow queue", run) == NOTHING


def test_a_loss_that_may_be_none(alternating: MakeRun, outcome: Ask) -> None:
    """An interval that holds 0 is no evidence."""
    run = alternating(wait=4, noise=20, alone=80)
    assert outcome("capacity", run) == outcome("shallow queue", run) == NOTHING


def test_what_was_not_timed_alone(alternating: MakeRun, make_run: MakeRun, outcome: Ask) -> None:
    """Neither capacity nor queue can be told then, nor from a log by itself."""
    for rule in ("capacity", "shallow queue"):
        told, reason = outcome(rule, alternating(wait=50))
        assert (told, reason[:27]) == ("not measured", "the loader was not timed on")
        told, reason = outcome(rule, make_run([50] * 40))
        assert (told, reason[:27]) == ("not measured", "nothing was served for free")


def test_a_queue_that_runs_empty(alternating: MakeRun, finding: Find) -> None:
    """A loader that is fast enough alone keeps training waiting: a deeper prefetch is advised."""
    found = finding(
        "shallow queue", alternating(wait=12.5, alone=40, prefetch_depth=4, uneven=True)
    )
    assert found.advice == (
        "Raise prefetch_factor from 2 to 4 and measure: that hides up to 200 ms more of a stall, "
        "and the longest wait was 50 ms."
    )
    assert "at 0.80 of an ideal iteration" in found.sentence
    assert found.severity == "high"
    assert found.cost_share == pytest.approx(0.2)
    assert [fact.name for fact in found.evidence][-1] == "prefetch depth"
    assert [place.batch % 4 for place in found.places] == [3] * 20


def test_stalls_that_no_deeper_queue_hides(alternating: MakeRun, finding: Find) -> None:
    """Where as many batches more last for less than a stall, that is said, and cheaper advised."""
    run = alternating(wait=40, alone=40, prefetch_depth=2, uneven=True)
    assert finding("shallow queue", run).advice == (
        "Look at what makes the slowest batches slow, or raise prefetch_factor from 1 to 2 and "
        "measure: that hides up to 100 ms more of a stall, and the longest wait was 160 ms, so "
        "that a deeper queue alone is not enough."
    )


@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        ({"prefetch_depth": 2, "workers": None}, "Raise prefetch_factor from 2 to 4 and"),
        ({"prefetch_depth": 2, "backend": "nvidia.dali.x"}, "Raise prefetch_queue_depth, so that"),
        ({"prefetch_depth": 2, "backend": "my.loader"}, "Prefetch more batches and"),
    ],
)
def test_the_setting_has_its_loaders_name(
    alternating: MakeRun, finding: Find, facts: dict[str, Any], advice: str
) -> None:
    """Where it is known; else what to do is said in words."""
    found = finding("shallow queue", alternating(wait=12.5, alone=40, uneven=True, **facts))
    assert found.advice.startswith(advice)


def test_a_loader_of_which_no_queue_is_known(alternating: MakeRun, outcome: Ask) -> None:
    """It is not told that its queue runs empty."""
    told, reason = outcome("shallow queue", alternating(wait=12.5, alone=40, uneven=True))
    assert (told, reason) == ("not measured", "whether the loader keeps batches ready is not known")


def test_batches_that_are_all_waited_for_alike(
    alternating: MakeRun, finding: Find, outcome: Ask
) -> None:
    """That is a cost of each, and no deeper queue is advised."""
    run = alternating(wait=12.5, alone=40, prefetch_depth=4)
    found = finding("hand-over", run)
    assert "waits about as long for every batch, 12.5 ms as a rule" in found.sentence
    assert [fact.name for fact in found.evidence] == [
        "waiting",
        "of it in stalls",
        "wait, p50",
        "wait, p95",
    ]
    assert outcome("shallow queue", run) == NOTHING
    assert outcome("hand-over", alternating(wait=12.5, alone=40, uneven=True)) == NOTHING


def test_a_stall_in_one_batch_of_25(stalling: Run, finding: Find, outcome: Ask) -> None:
    """The 95th percentile does not see it, and it holds most of the waiting: no hand-over."""
    assert outcome("hand-over", stalling) == NOTHING
    assert finding("shallow queue", stalling).evidence[1].value > 0.7


def test_waits_that_are_longer_than_making_a_batch(alternating: MakeRun, finding: Find) -> None:
    """A queue that runs empty does not make them by itself: it is but possible."""
    run = alternating(wait=12.5, alone=10, prefetch_depth=4, uneven=True)
    assert finding("shallow queue", run).confidence == "possible"
    run = alternating(wait=12.5, alone=40, prefetch_depth=4, uneven=True)
    assert finding("shallow queue", run).confidence == "likely"


@pytest.mark.parametrize(
    ("nbytes", "advice", "confidence"),
    [
        (
            1000,
            "A deeper prefetch would not help. Not known why: it may be what passing",
            "possible",
        ),
        (2_400_000, "A deeper prefetch would not help. Not known why", "possible"),
        (2_500_000, "A deeper prefetch would not help. Batches are so large", "likely"),
    ],
)
def test_the_size_of_what_is_handed_over(
    alternating: MakeRun, finding: Find, nbytes: int, advice: str, confidence: str
) -> None:
    """Fewer bytes are advised where the slowest way of copying takes half of the wait for them."""
    run = alternating(wait=12.5, alone=40, prefetch_depth=4)
    run.steps.nbytes[:] = nbytes
    found = finding("hand-over", run)
    assert found.evidence[-1].value == nbytes
    assert found.advice.startswith(advice)
    assert found.confidence == confidence
    assert ("fewer bytes" in found.advice) == (confidence == "likely")


@pytest.mark.parametrize(("pinned", "told"), [(None, True), (True, True), (False, False)])
def test_pinning_is_named_where_it_may_be(
    alternating: MakeRun, finding: Find, pinned: bool | None, told: bool
) -> None:
    """A loader that does not pin does not wait for it."""
    run = alternating(wait=12.5, alone=40, prefetch_depth=4, pinned=pinned)
    assert ("pinning" in finding("hand-over", run).advice) is told


def test_a_generator_loads_in_turn(alternating: MakeRun, finding: Find, outcome: Ask) -> None:
    """Training waits for about as long as it takes by itself: it needs a background."""
    run = alternating(wait=40, alone=42, workers=None)
    found = finding("zero workers", run)
    assert found.advice.startswith("Load in the background")
    assert outcome("capacity", run) == outcome("hand-over", run) == NOTHING
    assert outcome("zero workers", alternating(wait=20, alone=42, workers=None)) == NOTHING


@pytest.mark.parametrize(
    "rule", ["capacity", "zero workers", "shallow queue", "hand-over", "contention", "waiting"]
)
def test_a_run_too_short_is_no_all_clear(short_alternating: Run, outcome: Ask, rule: str) -> None:
    """What is lost was not measured, and so nothing is told of why."""
    told, reason = outcome(rule, short_alternating)
    assert told == "not measured"
    assert reason


def test_a_run_too_short_to_tell_what_zero_workers_cost(
    short_alternating: Run, outcome: Ask
) -> None:
    """Though it is known that there are none."""
    header = replace(short_alternating.header, loader=loader())
    run = replace(short_alternating, header=header)
    assert outcome("zero workers", run)[0] == "not measured"


def test_slower_steps_are_no_shallow_queue(alternating: MakeRun, outcome: Ask) -> None:
    """Where the loss is not in waiting, the queue is not to blame."""
    assert outcome("shallow queue", alternating(real=80, alone=40)) == NOTHING


def test_a_loader_without_workers(make_run: MakeRun, finding: Find, outcome: Ask) -> None:
    """All that it waits is its own work."""
    run = make_run([250] * 40, 100, loader=loader(), environment={"cpus_usable": 8})
    found = finding("zero workers", run)
    assert found.cost_share == pytest.approx(250 / 350)
    assert found.confidence == "likely"
    assert outcome("waiting", run) == NOTHING


def test_a_loader_without_workers_in_both_arms(
    alternating: MakeRun, finding: Find, outcome: Ask
) -> None:
    """What is lost is measured, and the cause is named once."""
    run = alternating(wait=50, alone=50, workers=0)
    found = finding("zero workers", run)
    assert found.cost_share == pytest.approx(0.5)
    assert found.confidence == "measured"
    assert outcome("capacity", run) == outcome("shallow queue", run) == NOTHING
    assert outcome("zero workers", alternating(wait=1, workers=0)) == NOTHING


def test_loading_that_costs_little(make_run: MakeRun, outcome: Ask) -> None:
    """Under 5% of the time no workers are called for."""
    assert outcome("zero workers", make_run([4] * 40, 96, loader=loader())) == NOTHING


@pytest.mark.parametrize(
    ("workers", "batches", "reason"),
    [(None, 40, "how many workers the loader has is not known"), (0, 0, "no steady batch was")],
)
def test_whether_there_are_workers_is_not_known(
    make_run: MakeRun, outcome: Ask, workers: int | None, batches: int, reason: str
) -> None:
    """Nor what they cost, where no batch was measured."""
    run = make_run([9] * batches, loader=loader(workers=workers))
    told, why = outcome("zero workers", run)
    assert told == "not measured"
    assert why.startswith(reason)


def test_more_workers_than_cpus(alternating: MakeRun, finding: Find, outcome: Ask) -> None:
    """They are told with the CPUs there are; as many as CPUs are not too many."""
    found = finding("too many workers", alternating(workers=9))
    assert found.advice.startswith("Lower num_workers from 9 to 8 or less")
    assert (found.severity, found.cost_share, found.confidence) == ("low", None, "possible")
    assert outcome("too many workers", alternating(workers=8)) == NOTHING


@pytest.mark.parametrize(("computing", "told"), [(3.9, "nothing found"), (4.1, "found")])
def test_more_workers_than_cpus_that_hardly_compute(
    alternating: MakeRun, with_cores: MakeRun, outcome: Ask, computing: float, told: str
) -> None:
    """They do no harm while they use less than half of the CPUs."""
    run = with_cores(alternating(workers=9), workers=computing, process=1.0)
    assert outcome("too many workers", run) == (told, "")


def test_too_many_workers_on_busy_cpus(
    alternating: MakeRun, with_cores: MakeRun, finding: Find
) -> None:
    """Eight on three CPUs have under half a CPU each, for there is no more: they are told."""
    run = alternating(workers=8, environment={"cpus_usable": 3})
    found = finding("too many workers", with_cores(run, workers=2.4, process=0.5))
    assert "they share CPUs (the 3 CPUs are all busy)" in found.sentence
    assert found.confidence == "likely"
    assert found.evidence[-1].value == pytest.approx(2.9)


@pytest.mark.parametrize(
    ("workers", "environment", "reason"),
    [(None, {"cpus_usable": 8}, "how many workers the"), (2, {"host": "x"}, "how many CPUs")],
)
def test_too_many_for_what_is_not_known(
    alternating: MakeRun, outcome: Ask, workers: int | None, environment: Any, reason: str
) -> None:
    """Neither workers nor CPUs are guessed."""
    run = alternating(workers=workers, environment=environment)
    told, why = outcome("too many workers", run)
    assert told == "not measured"
    assert why.startswith(reason)


def test_a_log_by_itself_tells_neither_paces_nor_turns(make_run: MakeRun) -> None:
    """Nor is a loader without known workers taken for one that loads while it is waited for."""
    case = Case.of(make_run([50] * 40, loader=LoaderInfo("loader")))
    assert not case.in_turn
    assert case.paces == ()


def test_a_log_in_which_training_waits(make_run: MakeRun, finding: Find, outcome: Ask) -> None:
    """The share is told, and that it is not what free loading gains."""
    found = finding("waiting", make_run([5] * 40, 95))
    assert found.sentence.startswith("Training waits for batches for 5.0% of its time.")
    assert "alternate" in found.advice
    assert outcome("waiting", make_run([4] * 40, 95)) == NOTHING
    assert outcome("waiting", make_run([], 95)) == ("not measured", "no steady batch was measured")


def test_two_runs_of_which_one_loses(make_run: MakeRun, finding: Find, outcome: Ask) -> None:
    """The loss is measured then, and what it is due to is not."""
    real, ideal = make_run([50] * 40, 50), make_run([0] * 40, 50, mode="replay")
    found = finding("waiting", real, ideal)
    assert found.sentence.startswith(
        "50.0% of the training time is lost to loading, 50.0% in waiting."
    )
    assert (found.confidence, found.severity) == ("measured", "high")
    assert outcome("waiting", make_run([0] * 40, 50), ideal) == NOTHING


def test_a_measured_loss_is_not_told_as_waiting(alternating: MakeRun, outcome: Ask) -> None:
    """Where the loader alone was timed, what it is due to is known."""
    assert outcome("waiting", alternating(wait=50, alone=100)) == NOTHING
