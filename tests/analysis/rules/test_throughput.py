"""Loaders that are too slow, too shallow, or load nothing ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.verdict import Unmeasured
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.finding import Advice, Problem, Rule, Unknown
from loadeval.data.lines import LoaderInfo
from tests.analysis.rules.conftest import (
    NOTHING,
    advised,
    diagnosed,
    finding_of,
    numbers,
    outcome,
)
from tests.runs.given import MS, alternating, block, cores_read, make_run, run_of
from tests.runs.looked_into import COUNT, code, looked_into
from tests.runs.tables import altered, replace, rows_of, with_steps

if TYPE_CHECKING:
    from loadeval.data.run import Run

TORCH = "torch.utils.data.DataLoader"
NO_WORKERS = LoaderInfo(TORCH, workers=0)


def test_a_loader_that_is_too_slow_alone() -> None:
    """How many times faster it must be, and what is lost."""
    finding = finding_of(Rule.CAPACITY, alternating(wait=50, real=50, ideal=50, alone=100))
    assert finding.problem.values == {"required": pytest.approx(2)}
    assert finding.severity == "high"
    assert finding.cost_share == pytest.approx(0.5)
    assert [(fact.name, fact.value, fact.unit) for fact in finding.evidence] == [
        ("steady time lost", pytest.approx(0.5), "share"),
        ("spent waiting", pytest.approx(0.5), "share"),
        ("real iteration", 100e6, "ns"),
        ("ideal iteration", 50e6, "ns"),
        ("loader alone", 100e6, "ns"),
    ]


def timed_each(run: Run, spread: float) -> Run:
    """The run with waits of the loader alone that are by so much of them shorter or longer."""
    waits = np.random.default_rng(0).permutation([1 - spread, 1 + spread] * 40)
    prefetches = []
    for number, prefetch in enumerate(run.prefetches):
        waits_ns = waits[8 * number : 8 * number + 8] * prefetch.elapsed_ns / 8
        prefetches.append(
            replace(
                prefetch,
                waits_ns=tuple(waits_ns.astype(int).tolist()),
                elapsed_ns=int(waits_ns.sum()),
            )
        )
    return replace(run, prefetches=tuple(prefetches))


@pytest.mark.parametrize(("spread", "confidence"), [(0.1, "measured"), (0.9, "possible")])
def test_whether_a_loader_is_too_slow_may_not_be_sure(spread: float, confidence: str) -> None:
    """The interval of what is required of it spans 1."""
    run = cores_read(alternating(wait=50, alone=55), process=(0.5, 1.0), workers=(1.9, 0.0))
    assert finding_of(Rule.CAPACITY, timed_each(run, spread)).confidence == confidence


@pytest.mark.parametrize(("spread", "confidence"), [(0.1, "likely"), (0.9, "possible")])
def test_whether_a_queue_runs_empty_may_not_be_sure(spread: float, confidence: str) -> None:
    """The loader alone may be too slow."""
    run = alternating(wait=12.5, alone=45, prefetch_depth=4, uneven=True)
    assert finding_of(Rule.SHALLOW_QUEUE, timed_each(run, spread)).confidence == confidence


@pytest.mark.parametrize(
    ("rules", "times"),
    [
        ([Rule.CAPACITY], {"wait": 50, "alone": 50}),  # just fast enough alone
        ([Rule.CAPACITY, Rule.SHALLOW_QUEUE], {"wait": 2, "alone": 80}),  # under 5% of the time
        ([Rule.CAPACITY, Rule.SHALLOW_QUEUE], {"wait": 4, "noise": 20, "alone": 80}),  # maybe 0
        ([Rule.SHALLOW_QUEUE], {"real": 80, "alone": 40}),  # lost in steps, and not in waiting
        ([Rule.WAITING], {"wait": 50, "alone": 100}),  # its cause was measured
        ([Rule.ZERO_WORKERS], {"wait": 1, "workers": 0}),
        ([Rule.CAPACITY, Rule.SHALLOW_QUEUE], {"wait": 50, "alone": 50, "workers": 0}),
    ],
)
def test_no_loss_that_matters(rules: list[Rule], times: dict[str, Any]) -> None:
    """A loss of another cause is not told either."""
    assert {outcome(rule, alternating(**times)) for rule in rules} == {NOTHING}


@pytest.mark.parametrize("rule", [Rule.CAPACITY, Rule.SHALLOW_QUEUE, Rule.PER_BATCH_COST])
def test_what_was_not_timed_alone(rule: Rule) -> None:
    """Neither capacity nor queue can be told then, nor from a log by itself."""
    assert outcome(rule, alternating(wait=50)) is Unknown.LOADER_ALONE_NOT_TIMED
    assert outcome(rule, make_run([50] * 40)) is Unknown.NO_IDEAL


def test_a_queue_that_runs_empty() -> None:
    """A loader that is fast enough alone makes training wait: a deeper prefetch is advised."""
    finding = finding_of(
        Rule.SHALLOW_QUEUE, alternating(wait=12.5, alone=40, prefetch_depth=4, uneven=True)
    )
    assert numbers(finding) == {
        Advice.RAISE: {"setting": "prefetch_factor", "present": 2, "proposed": 4},
        Advice.HIDES_STALL: {"hidden_ns": 200e6, "longest_wait_ns": 50e6},
    }
    assert finding.problem.values["required"] == pytest.approx(0.8)
    assert finding.severity == "high"
    assert finding.cost_share == pytest.approx(0.2)
    assert finding.evidence[-1].name == "prefetch depth"
    assert [place.batch % 4 for place in finding.places] == [3] * 20


def test_stalls_that_no_deeper_queue_hides() -> None:
    """As many batches more last for less than a stall."""
    run = alternating(wait=40, alone=40, prefetch_depth=2, uneven=True)
    assert numbers(finding_of(Rule.SHALLOW_QUEUE, run))[Advice.HIDES_PART_OF_STALL] == {
        "hidden_ns": 100e6,
        "longest_wait_ns": 160e6,
    }


@pytest.mark.parametrize(
    ("facts", "code", "setting"),
    [
        ({"workers": None}, Advice.RAISE, "prefetch_factor"),
        ({"setting_names": {"prefetch_depth": "lanes"}}, Advice.RAISE_PREFETCH_DEPTH, "lanes"),
        ({"setting_names": {}}, Advice.PREFETCH_MORE, None),
        ({"backend": "my.loader"}, Advice.PREFETCH_MORE, None),
        (
            {"setting_names": {"prefetch_factor": "ahead"}, "workers": None},
            Advice.RAISE,
            "ahead",
        ),
    ],
)
def test_the_setting_has_its_loaders_name(
    facts: dict[str, Any], code: Advice, setting: str | None
) -> None:
    """Where it is known, in older logs that of a DataLoader; twice as many are to be ready."""
    run = alternating(wait=12.5, alone=40, uneven=True, prefetch_depth=2, **facts)
    deeper, _ = finding_of(Rule.SHALLOW_QUEUE, run).changes
    expected = {"setting": setting, "present": 2, "proposed": 4} if setting else {}
    assert (deeper.code, deeper.values) == (code, expected)


def test_a_loader_of_which_no_queue_is_known() -> None:
    """It is not told that its queue runs empty."""
    run = alternating(wait=12.5, alone=40, uneven=True)
    assert outcome(Rule.SHALLOW_QUEUE, run) is Unknown.PREFETCH_UNKNOWN


def test_every_batch_waits_about_as_long() -> None:
    """That is a cost of each, and no deeper queue is advised."""
    run = alternating(wait=12.5, alone=40, prefetch_depth=4)
    finding = finding_of(Rule.PER_BATCH_COST, run)
    assert finding.problem.values == {"p50_wait_ns": 12.5e6}
    assert [fact.name for fact in finding.evidence] == [
        "waiting",
        "of it in stalls",
        "wait, p50",
        "wait, p95",
    ]
    assert outcome(Rule.SHALLOW_QUEUE, run) == NOTHING
    uneven = alternating(wait=12.5, alone=40, uneven=True)
    assert outcome(Rule.PER_BATCH_COST, uneven) == NOTHING


def test_what_each_batch_costs_is_not_guessed_where_it_was_measured() -> None:
    """The stages of a loader that was looked into say what its batches take."""
    run = alternating(wait=12.5, alone=40)
    assert outcome(Rule.PER_BATCH_COST, run) == "found"
    assert outcome(Rule.PER_BATCH_COST, replace(run, stages=rows_of(looked_into()))) == NOTHING


def test_a_stall_in_one_batch_of_25() -> None:
    """The 95th percentile does not see it, and it holds most of the waiting."""
    run = alternating(wait=2, alone=30, pairs=50, prefetch_depth=4)
    stalls = np.flatnonzero(run.steps.arm == 0)[12::25]
    run = with_steps(run, wait_ns=altered(run.steps.wait_ns, stalls, 1000 * MS))
    assert outcome(Rule.PER_BATCH_COST, run) == NOTHING
    assert finding_of(Rule.SHALLOW_QUEUE, run).evidence[1].value > 0.7


@pytest.mark.parametrize(("alone", "confidence"), [(10, "possible"), (40, "likely")])
def test_waits_longer_than_making_a_batch(alone: float, confidence: str) -> None:
    """An empty queue does not make them by itself: it is only possible."""
    run = alternating(wait=12.5, alone=alone, prefetch_depth=4, uneven=True)
    assert finding_of(Rule.SHALLOW_QUEUE, run).confidence == confidence


@pytest.mark.parametrize(
    ("nbytes", "pinned", "codes"),
    [
        (1000, None, [Advice.FEWER_TENSORS, Advice.MAYBE_PINNING]),
        (1000, True, [Advice.FEWER_TENSORS, Advice.MAYBE_PINNING]),
        (1000, False, [Advice.FEWER_TENSORS]),  # it does not wait for pinning
        (2_400_000, False, [Advice.FEWER_TENSORS]),
        (2_500_000, None, [Advice.CUT_BYTES]),
    ],
)
def test_the_size_of_a_batch(nbytes: int, pinned: bool | None, codes: list[Advice]) -> None:
    """Fewer bytes are advised where the slowest way of copying takes half of the wait for them."""
    run = alternating(wait=12.5, alone=40, prefetch_depth=4, pinned=pinned)
    run = with_steps(run, nbytes=nbytes)
    finding = finding_of(Rule.PER_BATCH_COST, run)
    assert finding.evidence[-1].value == nbytes
    assert advised(finding) == codes
    assert finding.confidence == ("likely" if codes == [Advice.CUT_BYTES] else "possible")


def test_a_generator_loads_synchronously() -> None:
    """Training waits for about as long as it takes alone: it is to load in the background."""
    run = alternating(wait=40, alone=42, workers=None)
    assert advised(finding_of(Rule.ZERO_WORKERS, run)) == [Advice.LOAD_IN_BACKGROUND]
    assert outcome(Rule.CAPACITY, run) == outcome(Rule.PER_BATCH_COST, run) == NOTHING
    assert outcome(Rule.ZERO_WORKERS, alternating(wait=20, alone=42, workers=None)) == NOTHING


def test_a_loader_without_workers_that_a_thread_reads_ahead() -> None:
    """Training waits for far less than a batch takes, so that is not why."""
    run = alternating(wait=5, alone=42, workers=0)
    assert outcome(Rule.ZERO_WORKERS, run) == NOTHING


@pytest.mark.parametrize(
    "rule",
    [
        Rule.CAPACITY,
        Rule.ZERO_WORKERS,
        Rule.SHALLOW_QUEUE,
        Rule.PER_BATCH_COST,
        Rule.CONTENTION,
        Rule.WAITING,
    ],
)
def test_a_run_too_short_is_no_all_clear(rule: Rule) -> None:
    """What is lost was not measured, and so nothing is told of why."""
    blocks = [block("real", 10 * MS, 20 * MS, 30, request_ns=0, pair=0)]
    expected = Unknown.WORKERS_UNKNOWN if rule is Rule.ZERO_WORKERS else Unmeasured.NO_PAIR
    assert outcome(rule, run_of(blocks, loader=LoaderInfo("torch.x"))) is expected
    assert outcome(Rule.ZERO_WORKERS, run_of(blocks, loader=NO_WORKERS)) is Unmeasured.NO_PAIR


def test_a_loader_without_workers() -> None:
    """All that training waits is the loader's own work."""
    run = make_run([250] * 40, 100, loader=NO_WORKERS, environment={"cpus_usable": 8})
    finding = finding_of(Rule.ZERO_WORKERS, run)
    assert finding.cost_share == pytest.approx(250 / 350)
    assert finding.confidence == "likely"
    assert outcome(Rule.WAITING, run) == NOTHING
    little = make_run([4] * 40, 96, loader=NO_WORKERS)
    assert outcome(Rule.ZERO_WORKERS, little) == NOTHING


def test_a_loader_without_workers_in_both_arms() -> None:
    """What is lost is measured."""
    finding = finding_of(Rule.ZERO_WORKERS, alternating(wait=50, alone=50, workers=0))
    assert finding.cost_share == pytest.approx(0.5)
    assert finding.confidence == "measured"


@pytest.mark.parametrize(
    ("workers", "batches", "reason"),
    [(None, 40, Unknown.WORKERS_UNKNOWN), (0, 0, Unknown.NO_STEADY_BATCH)],
)
def test_whether_there_are_workers_is_not_known(
    workers: int | None, batches: int, reason: Unknown
) -> None:
    """What they cost is not known where no batch was measured."""
    run = make_run([9] * batches, loader=LoaderInfo(TORCH, workers=workers))
    assert outcome(Rule.ZERO_WORKERS, run) is reason


def test_a_log_by_itself() -> None:
    """A loader without known workers is not taken for one that loads synchronously."""
    case = Case(make_run([50] * 40, loader=LoaderInfo("loader")))
    assert not case.loads_synchronously
    assert case.times == ()


def test_a_log_in_which_training_waits() -> None:
    """The share is told, which is not what ideal loading gains."""
    finding = finding_of(Rule.WAITING, make_run([5] * 40, 95))
    assert finding.problem.code is Problem.WAIT_UNEXPLAINED
    assert finding.problem.values == {"wait_share": 0.05}
    assert advised(finding) == [Advice.ALTERNATE]
    assert outcome(Rule.WAITING, make_run([4] * 40, 95)) == NOTHING
    assert outcome(Rule.WAITING, make_run([], 95)) is Unknown.NO_STEADY_BATCH


def test_two_runs_of_which_one_loses() -> None:
    """The loss is measured then, and its cause is not."""
    real, ideal = make_run([50] * 40, 50), make_run([0] * 40, 50, mode="replay")
    finding = finding_of(Rule.WAITING, real, ideal)
    assert finding.problem.code is Problem.LOSS_UNEXPLAINED
    assert finding.problem.values == pytest.approx({"lost_share": 0.5, "wait_share": 0.5})
    assert (finding.confidence, finding.severity) == ("measured", "high")
    assert outcome(Rule.WAITING, make_run([0] * 40, 50), ideal) == NOTHING


UNEVEN = np.tile([10.0] * 14 + [60.0] * 2, COUNT)[:COUNT]
"""Two batches in sixteen take three steps: a loader that keeps up, with a queue that does not."""


@pytest.mark.parametrize(
    ("loader", "values"),
    [
        ({"backend": TORCH}, {"setting": "prefetch_factor", "present": 1, "proposed": 2}),
        (
            {"setting_names": {"prefetch_depth": "buffer_size"}},
            {"setting": "buffer_size", "present": 2, "proposed": 4},
        ),
    ],
)
def test_a_queue_as_deep_as_it_must_be(loader: dict[str, Any], values: dict[str, Any]) -> None:
    """Of a loader that was looked into, no deeper than helps; it costs what that gains."""
    run = looked_into(fetch=UNEVEN, prefetch=1, loader=loader)
    finding = finding_of(Rule.SHALLOW_QUEUE, run)
    assert list(numbers(finding).values()) == [values]
    assert finding.cost_share == pytest.approx(Case(run).waiting_share, abs=0.01)


@pytest.mark.parametrize(("percent", "is_advised"), [(41, True), (39, False)])
def test_the_code_that_fills_a_shallow_queue(percent: int, is_advised: bool) -> None:
    """It is told where workers were seen in it often."""
    others = {f"data.py:{line} other{line}": 1 for line in range(100 - percent)}
    seen = code({"data.py:31 __getitem__": percent, **others})
    finding = finding_of(Rule.SHALLOW_QUEUE, looked_into(fetch=UNEVEN, prefetch=1, seen=seen))
    place = {"place": "data.py:31 __getitem__"}
    assert numbers(finding).get(Advice.LOOK_AT) == (place if is_advised else None)


def test_a_queue_of_unknown_depth_that_was_looked_into() -> None:
    """No factor is advised, though one was simulated."""
    run = looked_into(fetch=UNEVEN, prefetch=1, loader={"prefetch_depth": None})
    assert outcome(Rule.SHALLOW_QUEUE, run) is Unknown.PREFETCH_UNKNOWN
    assert not diagnosed(run).findings


@pytest.mark.parametrize(
    ("cpus", "proposed", "least", "most"),
    [(8, 2, 0.56, 0.57), (2, 2, 0.440, 0.442), (None, 1, 0.3, 0.4)],
)
def test_first_workers_of_a_loader_that_was_looked_into(
    cpus: int | None, proposed: int, least: float, most: float
) -> None:
    """What they gain of the 60% that are waited for, less what CPUs in use slow each other."""
    environment = {"cpus_usable": cpus}
    run = looked_into(fetch=30, workers=0, tensors=1, environment=environment)
    finding = finding_of(Rule.ZERO_WORKERS, run)
    assert numbers(finding)[Advice.RAISE]["proposed"] == proposed
    assert finding.cost_share is not None
    assert least <= finding.cost_share <= most


def test_the_first_workers_are_the_same_for_slower_steps() -> None:
    """What loading evicts from the caches asks for as many as the waiting does."""
    run = looked_into(fetch=30, workers=0, tensors=1, real=25)
    waiting, slower = finding_of(Rule.ZERO_WORKERS, run), finding_of(Rule.CONTENTION, run)
    assert slower.changes[:-1] == waiting.changes
