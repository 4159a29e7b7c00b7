"""What inside the loader makes training wait: each cause in a run that has it, and one that hardly.

A step takes 20 ms, two workers keep two batches ready each, and eight CPUs are there, unless said
otherwise; so 40 ms to fetch a batch is just fast enough.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import RULES
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule, Unknown
from loadeval.analysis.rules.fixes import FIXES, gain_of
from loadeval.analysis.rules.stages import NOT_LOOKED_INTO, largest_parts
from loadeval.report.wording.findings import describe
from loadeval.runlog.columns import UNKNOWN
from tests.analysis.loader_model import stage_times as rows
from tests.analysis.rules.conftest import NOTHING, advised, diagnosed, finding, numbers, outcome
from tests.analysis.rules.looked_into import COUNT, COUNTED, code, logged, looked_into

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run
    from tests.analysis.rules.conftest import MakeRun

INSIDE = [
    rule
    for rule in FIXES
    if rule not in {Rule.CAPACITY, Rule.ZERO_WORKERS, Rule.SHALLOW_QUEUE, Rule.OVERSUBSCRIPTION}
]
NUMBER = np.arange(COUNT)
GETITEM = "data.py:31 __getitem__"
A_THIRD = pytest.approx(1 / 3, abs=0.02)
"""What is lost where a batch comes every 30 ms: 10 of them."""


@pytest.fixture(name="run")
def _run(alternating: MakeRun) -> Callable[..., Run]:
    """An alternating run."""
    return partial(looked_into, alternating)


def found_inside(run: Run) -> list[Rule]:
    return [one.rule for one in diagnosed(run).findings if one.rule in FIXES]


@pytest.mark.parametrize("rule", INSIDE)
def test_a_loader_that_nobody_looked_into(alternating: MakeRun, rule: Rule) -> None:
    """Nothing is said of it, be its workers known or not."""
    for workers in (2, 0, None):
        run = alternating(wait=50, alone=100, workers=workers)
        assert outcome(rule, run) is Unknown.NOT_LOOKED_INTO


def test_a_loader_that_nobody_looked_into_is_told_as_before(run: Callable[..., Run]) -> None:
    """Without its stages, the same run shows only that the loader is too slow."""
    given = run(fetch=60, transforms={"blur": 0.8})
    assert found_inside(given) == [Rule.SLOW_TRANSFORM]
    found = diagnosed(replace(given, stages=(), code=()))
    assert [one.rule for one in found.findings] == [Rule.CAPACITY]


@pytest.mark.parametrize("rule", INSIDE)
def test_a_loader_whose_step_is_not_known(make_run: MakeRun, rule: Rule) -> None:
    """Of stages alone nothing follows."""
    run = replace(make_run([]), stages=(rows(fetch_ns=[5], worker=[0], samples=[1]),))
    assert outcome(rule, run) is Unknown.NOT_LOOKED_INTO


def test_a_slow_transform(run: Callable[..., Run]) -> None:
    """What it takes, how often, and that more workers help too."""
    found = finding(Rule.SLOW_TRANSFORM, run(fetch=60, transforms={"crop": 0.1, "blur": 0.8}))
    assert found.problem.values == {
        "name": "blur",
        "share": pytest.approx(0.8),
        "call_ns": pytest.approx(12e6),
        "calls": 4,
    }
    assert advised(found) == [Advice.CHEAPER_NAMED, Advice.RAISE, Advice.CPU_USE_NOT_READ]
    assert numbers(found)[Advice.RAISE]["proposed"] == 3
    assert numbers(found)[Advice.CHEAPER_NAMED] == {"name": "blur"}
    assert (found.severity, found.confidence) == ("high", "measured")
    assert found.cost_share == A_THIRD
    assert [(one.name, one.value) for one in found.evidence][1:] == [
        ("in a batch", pytest.approx(48e6)),
        ("calls in a batch", 4),
    ]
    assert "blur takes 80.0% of loading a batch: 12.0 ms a call, 4 calls" in describe(found)


def test_a_transform_of_another_name_than_its_code(run: Callable[..., Run]) -> None:
    """A container whose parts are not timed: the function in it is named too."""
    transforms = {"Compose": 0.8}
    found = finding(
        Rule.SLOW_TRANSFORM, run(fetch=60, transforms=transforms, seen=code({"a.py:1 blur": 9}))
    )
    assert advised(found)[:2] == [Advice.MOSTLY_IN, Advice.CHEAPER_NAMED]
    assert numbers(found)[Advice.MOSTLY_IN] == {"place": "a.py:1 blur"}
    seen = code({"a.py:1 Compose.__call__": 9})
    found = finding(Rule.SLOW_TRANSFORM, run(fetch=60, transforms=transforms, seen=seen))
    assert advised(found)[0] is Advice.CHEAPER_NAMED


def test_a_transform_that_costs_what_it_takes_too_long(run: Callable[..., Run]) -> None:
    """Half of 120 ms: 20 are still waited for without it, of 60 for a batch."""
    found = finding(Rule.SLOW_TRANSFORM, run(fetch=120, transforms={"blur": 0.5}))
    assert found.cost_share == pytest.approx(30 / 60, abs=0.02)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"transforms": {"blur": 0.41}}, "found"),
        ({"transforms": {"blur": 0.39}}, NOTHING),
        ({}, NOTHING),  # no transform is known
        ({"transforms": {"blur": 0.8}, "fetch": 36}, NOTHING),  # fast enough
        ({"transforms": {"blur": 0.8}, "blocked": 0.39}, "found"),
        ({"transforms": {"blur": 0.8}, "blocked": 0.41}, NOTHING),
        ({"transforms": {"blur": 0.8}, "pickle": 100, "fetch": 10}, NOTHING),  # waits elsewhere
    ],
)
def test_when_a_transform_is_slow(
    run: Callable[..., Run], given: dict[str, Any], told: str
) -> None:
    """It takes much of fetching, which is waited for, and computes."""
    assert outcome(Rule.SLOW_TRANSFORM, run(**{"fetch": 60, **given})) == told


def test_more_workers_than_help_are_not_advised(run: Callable[..., Run]) -> None:
    """Eight workers on eight CPUs compute all the time."""
    found = finding(
        Rule.SLOW_TRANSFORM, run(fetch=400, workers=8, transforms={"blur": 0.8}, step=20)
    )
    assert advised(found) == [Advice.CHEAPER_NAMED, Advice.NO_MORE_WORKERS]


@pytest.mark.parametrize(("cpus", "proposed"), [(None, 3), (2, None), (4, 3), (16, 3)])
def test_workers_as_cpus_allow(
    run: Callable[..., Run], cpus: int | None, proposed: int | None
) -> None:
    """Of CPUs that are not known one more is tried."""
    given = run(fetch=60, transforms={"blur": 0.8}, environment={"cpus_usable": cpus})
    found = finding(Rule.SLOW_TRANSFORM, given)
    assert numbers(found).get(Advice.RAISE, {}).get("proposed") == proposed
    assert (Advice.CPU_USE_NOT_READ in advised(found)) is bool(proposed)


@pytest.mark.parametrize(("training", "proposed"), [(1.0, 3), (7.5, None)])
def test_workers_as_training_leaves_cpus(
    run: Callable[..., Run], with_cores: MakeRun, training: float, proposed: int | None
) -> None:
    """Of eight CPUs that were read; what they are used for is no guess then."""
    given = with_cores(
        run(fetch=60, transforms={"blur": 0.8}), process=training, workers=(1.9, 0.0)
    )
    found = finding(Rule.SLOW_TRANSFORM, given)
    assert Advice.CPU_USE_NOT_READ not in advised(found)
    assert numbers(found).get(Advice.RAISE, {}).get("proposed") == proposed


def test_a_slow_function(run: Callable[..., Run]) -> None:
    """It is told by its place, and advised on by its name."""
    seen = code({f"{GETITEM} > Image.convert": 60, "data.py:9 crop": 40})
    found = finding(Rule.SLOW_FETCH, run(fetch=60, seen=seen))
    assert found.problem.values == {"place": f"{GETITEM} > Image.convert", "share": 0.6}
    assert numbers(found)[Advice.CHEAPER_NAMED] == {"name": "__getitem__"}
    assert found.cost_share == A_THIRD
    assert [one.value for one in found.evidence] == [0.6]


@pytest.mark.parametrize(
    ("percent", "given", "told"),
    [
        (41, {}, "found"),
        (39, {}, NOTHING),
        (90, {"transforms": {"blur": 0.5}}, NOTHING),  # which is told instead
        (90, {"transforms": {"blur": 0.3}}, "found"),
        (90, {"fetch": 36}, NOTHING),
        (90, {"blocked": 0.5}, NOTHING),
        (90, {"fetch": 30, "collate": 30}, NOTHING),
    ],
)
def test_when_a_function_is_slow(
    run: Callable[..., Run], percent: int, given: dict[str, Any], told: str
) -> None:
    """Workers were seen in it often, and nothing else has a name."""
    others = {f"data.py:{line} other{line}": 5 for line in range((100 - percent) // 5)}
    given = {"fetch": 60, "seen": code({GETITEM: percent, **others}), **given}
    total = percent + 5 * len(others)
    assert (percent / total >= 0.4) == (percent > 40)
    assert outcome(Rule.SLOW_FETCH, run(**given)) == told


def test_a_function_of_code_that_nobody_saw(run: Callable[..., Run]) -> None:
    """No place is guessed; that the loader is too slow is told."""
    found = diagnosed(run(fetch=60)).findings
    assert [one.rule for one in found] == [Rule.CAPACITY]


def test_slow_collate(run: Callable[..., Run]) -> None:
    """What it takes, beside fetching."""
    found = finding(Rule.SLOW_COLLATE, run(fetch=30, collate=30))
    assert found.problem.values == {
        "name": "The collate function",
        "collate_ns": 30e6,
        "share": pytest.approx(0.5),
    }
    assert advised(found)[0] is Advice.CHEAPER_COLLATE
    assert Advice.RAISE in advised(found)
    assert found.cost_share == A_THIRD
    assert [one.value for one in found.evidence] == [30e6, 30e6]


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ({"data.py:50 padded": 65, GETITEM: 35}, "padded"),
        ({"data.py:50 padded": 47, GETITEM: 53}, "The collate function"),  # seen in fetching
        ({f"data.py:{line} part{line}": 10 for line in range(10)}, "The collate function"),
    ],
)
def test_the_name_of_a_collate_function(
    run: Callable[..., Run], seen: dict[str, int], name: str
) -> None:
    """Only what workers were seen in for longer than they fetch has it."""
    given = run(fetch=21 if name == "padded" else 30, collate=36, seen=code(seen))
    assert finding(Rule.SLOW_COLLATE, given).problem.values["name"] == name


@pytest.mark.parametrize(
    ("fetch", "collate", "told"),
    [(35, 25, "found"), (37, 23, NOTHING), (15, 20, NOTHING)],
)
def test_when_collating_is_slow(
    run: Callable[..., Run], fetch: int, collate: int, told: str
) -> None:
    """It takes two fifths of the time, and is waited for."""
    assert outcome(Rule.SLOW_COLLATE, run(fetch=fetch, collate=collate)) == told


@pytest.mark.parametrize(
    ("nbytes", "problem", "code_"),
    [
        (18_000_000, Problem.TRANSFER_BY_PIPE, Advice.SEND_TENSORS),
        (2_000_000, Problem.TRANSFER_OF_MANY, Advice.SEND_FEWER),
        (1000, Problem.TRANSFER_OF_MANY, Advice.SEND_FEWER),
        (900, Problem.TRANSFER_OF_FEW, Advice.SEND_LESS_OFTEN),
    ],
)
def test_passing_batches_on(
    run: Callable[..., Run], nbytes: int, problem: Problem, code_: Advice
) -> None:
    """Large batches go through a pipe; small ones have many parts, or take long all the same."""
    found = finding(Rule.TRANSFER, run(fetch=10, pickle=30, receive=20, pickled_bytes=nbytes))
    assert found.problem.code is problem
    assert found.problem.values == {"transfer_ns": 50e6, "pickled_bytes": nbytes}
    assert set(advised(found)) == {code_, Advice.LOAD_IN_TRAINING}
    assert [(one.name, one.value) for one in found.evidence] == [
        ("pickle", 30e6),
        ("receive", 20e6),
        ("pickled", nbytes),
    ]
    assert found.cost_share == pytest.approx(0.5, abs=0.02)


def test_receiving_that_waits_for_pythons_lock(run: Callable[..., Run]) -> None:
    """It would take 1 ms by itself."""
    case = Case.of(run(fetch=10, pickle=2, receive=30, pickled_bytes=900))
    inside = case.inside
    assert inside is not None
    own_ns = np.full(len(inside.costs), 1e6)
    waiting = replace(inside.costs, receive_ns=own_ns, lock_ns=math.inf)
    vars(case)["inside"] = replace(inside, costs=waiting)
    found = RULES[Rule.TRANSFER](case)
    assert isinstance(found, Finding)
    assert found.problem.code is Problem.TRANSFER_WAITS_FOR_LOCK
    assert advised(found)[0] == Advice.SHARE_BY_FILE


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"fetch": 55, "pickle": 5}, "found"),
        ({"fetch": 57, "pickle": 3}, NOTHING),  # under a fifth of what is waited for
        ({"fetch": 10, "pickle": 25}, NOTHING),  # nothing is waited for
        ({"fetch": 0.1, "receive": 0.61, "step": 1.0}, "found"),
        ({"fetch": 0.1, "receive": 0.59, "step": 1.0}, NOTHING),  # as any batch does
        ({"fetch": 60, "pickle": 60, "pickle_ns": UNKNOWN, "pickle_start_ns": UNKNOWN}, NOTHING),
    ],
)
def test_when_passing_batches_on_is_slow(
    run: Callable[..., Run], given: dict[str, Any], told: str
) -> None:
    """It must be known, and be waited for."""
    assert outcome(Rule.TRANSFER, run(**given)) == told


@pytest.mark.parametrize(
    ("sampler", "name"), [("WeightedRandomSampler", "WeightedRandomSampler"), (None, "the sampler")]
)
def test_a_slow_sampler(run: Callable[..., Run], sampler: str | None, name: str) -> None:
    """Its time is lost with each batch, in the training process."""
    found = finding(Rule.SLOW_SAMPLER, run(fetch=10, index=20, loader={"sampler": sampler}))
    assert found.problem.values == {"index_ns": 20e6, "sampler": name}
    assert advised(found) == [Advice.CHEAPER_SAMPLER]
    assert found.cost_share == pytest.approx(0.5, abs=0.02)
    assert [one.value for one in found.evidence] == [20e6]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"fetch": 5, "receive": 10, "index": 3}, "found"),  # of 13 ms that are waited for
        ({"fetch": 5, "receive": 10, "index": 2}, NOTHING),
        ({"fetch": 5, "receive": 30, "index": 4.5}, "found"),  # over a fifth of a step
        ({"fetch": 60, "index": 4.5}, NOTHING),  # workers are slower
        ({"fetch": 10, "index": 1}, NOTHING),  # 5% of the time is not lost
        ({"fetch": 10, "index": 8, "workers": 0}, "found"),
        ({"fetch": 10, "index": 6, "workers": 0}, NOTHING),
    ],
)
def test_when_a_sampler_is_slow(run: Callable[..., Run], given: dict[str, Any], told: str) -> None:
    """Without workers it must take much of what is waited for."""
    assert outcome(Rule.SLOW_SAMPLER, run(**given)) == told


def test_pinning(run: Callable[..., Run]) -> None:
    """A thread that needs 40 ms for a batch delivers one every 40 ms."""
    found = finding(Rule.PINNING, run(fetch=10, pin=40))
    assert found.problem.values == {"pin_ns": 40e6}
    assert advised(found) == [Advice.SEND_FEWER]
    assert found.cost_share == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    "given",
    [
        {"fetch": 10, "pin": 15},
        {"fetch": 60, "pin": 1},
        {"fetch": 55, "pin": 28},  # fetching is nearly as slow
    ],
)
def test_pinning_that_keeps_up(run: Callable[..., Run], given: dict[str, Any]) -> None:
    """It is not why training waits, or hardly."""
    assert outcome(Rule.PINNING, run(**given)) == NOTHING


LATE = np.where(NUMBER % 8 == 5, 200.0, 20.0)
"""Four workers, of which none is slower, but one batch in eight: what lies ready is held back."""


def late(run: Callable[..., Run], **given: Any) -> Run:
    """The same each time with another worker."""
    fetch = np.where((NUMBER % 8 == 5) & (NUMBER // 8 % 2 == 0), 280.0, 20.0)
    fetch[(NUMBER % 8 == 2) & (NUMBER // 8 % 2 == 1)] = 280.0
    return run(**{"fetch": fetch, "workers": 4, **given})


def test_batches_that_wait_for_earlier_ones(run: Callable[..., Run]) -> None:
    """In another order most of the waiting would be gone."""
    found = finding(Rule.HEAD_OF_LINE, late(run))
    assert found.problem.code is Problem.FINISHED_BATCHES_WAIT
    assert advised(found) == [Advice.OUT_OF_ORDER]
    assert found.cost_share is not None
    assert found.cost_share > 0.2
    assert 0.05 < float(str(found.problem.values["share"])) < 1
    assert found.evidence[0].value == found.problem.values["waited_ns"]


def test_slow_samples_that_hold_batches_back(run: Callable[..., Run]) -> None:
    """They are told there, and not again; nor are the stalls that they make."""
    slowest = np.where(late(run).stages[0].fetch_ns > 100e6, 265.0, 6.0)
    given = late(run, slowest=slowest, slowest_index=np.where(slowest > 100, 17, 3))
    found = finding(Rule.HEAD_OF_LINE, given)
    assert advised(found) == [Advice.OUT_OF_ORDER, Advice.FIX_SAMPLES]
    assert numbers(found)[Advice.FIX_SAMPLES] == {
        "indices": "17",
        "longest_ns": 265e6,
        "typical_ns": pytest.approx(14e6 / 3),
    }
    assert outcome(Rule.SLOW_SAMPLES, given) == NOTHING
    assert Rule.STALLS not in {one.rule for one in diagnosed(given).findings}


@pytest.mark.parametrize(
    "given",
    [
        {"fetch": 60, "workers": 4, "step": 10},  # batches come in order by themselves
        {"fetch": LATE, "workers": 1, "prefetch": 4, "step": 60},  # nobody overtakes
        {"fetch": np.where(NUMBER % 4 == 1, 200.0, 20.0), "workers": 4},  # one worker is slow
    ],
)
def test_when_no_batch_waits_for_an_earlier_one(
    run: Callable[..., Run], given: dict[str, Any]
) -> None:
    """Or for one of a worker that is told of."""
    assert outcome(Rule.HEAD_OF_LINE, run(**given)) == NOTHING


def few_slow(
    run: Callable[..., Run],
    every: int = 12,
    taken: float = 240.0,
    index: Any = 17,
    **given: Any,
) -> Run:
    """One worker, and a batch in `every` whose slowest sample takes nearly all of its time."""
    slow = every // 2 == NUMBER % every
    return run(
        **{
            "fetch": np.where(slow, taken, 12.0),
            "slowest": np.where(slow, taken - 9, 3.5),
            "slowest_index": np.where(slow, index, 3),
            "workers": 1,
            **given,
        }
    )


def test_a_few_slow_samples(run: Callable[..., Run]) -> None:
    """Which, how long, and how long others take."""
    found = finding(Rule.SLOW_SAMPLES, few_slow(run, index=NUMBER))
    assert found.problem.values == {
        "indices": "6, 18, 30",
        "longest_ns": 231e6,
        "typical_ns": pytest.approx(8.5e6 / 3),
    }
    assert advised(found) == [Advice.FIX_SAMPLES]
    assert [one.value for one in found.evidence] == [231e6, pytest.approx(8.5e6 / 3)]
    assert found.cost_share is not None
    assert found.cost_share > 0.2


def test_slow_samples_that_come_again_are_told_first(run: Callable[..., Run]) -> None:
    """One that is slow each time is no accident."""
    index = np.where(NUMBER % 24 == 6, 17, NUMBER)
    found = finding(Rule.SLOW_SAMPLES, few_slow(run, index=index))
    assert str(found.problem.values["indices"]).startswith("17, ")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"every": 11}, "found"),
        ({"every": 9, "index": NUMBER}, NOTHING),  # too many, each another
        ({"every": 9}, "found"),  # the same again
        ({"every": 2, "taken": 60.0, "slowest": 50.0}, NOTHING),  # that is what samples are like
        ({"every": 12, "taken": 40.0}, NOTHING),  # an eighth of the time
        ({"slowest": 3.5}, NOTHING),
        ({"slowest": UNKNOWN / 1e6}, NOTHING),
    ],
)
def test_when_a_few_samples_are_slow(
    run: Callable[..., Run], given: dict[str, Any], told: str
) -> None:
    """They are few, or the same, and take much of the time."""
    assert outcome(Rule.SLOW_SAMPLES, few_slow(run, **given)) == told


def test_a_log_tells_causes_too() -> None:
    """What training would be without waits is not known: all of its waiting is the cost."""
    given = logged(fetch=60, transforms={"blur": 0.8})
    found = finding(Rule.SLOW_TRANSFORM, given)
    assert found.cost_share == A_THIRD
    assert found.confidence == "measured"
    assert outcome(Rule.CAPACITY, given) is Unknown.NO_IDEAL
    assert found_inside(given) == [Rule.SLOW_TRANSFORM]
    assert Rule.WAITING not in {one.rule for one in diagnosed(given).findings}
    assert outcome(Rule.SLOW_TRANSFORM, logged(fetch=41, transforms={"blur": 0.8})) == NOTHING


def test_of_few_logged_batches_nothing_is_told() -> None:
    given = logged(fetch=60, transforms={"blur": 0.8})
    few = replace(given, header=replace(given.header, warmup=COUNTED - 3))
    assert outcome(Rule.SLOW_TRANSFORM, few) is Unknown.TOO_FEW_BATCHES


def test_a_loss_that_is_not_sure_is_told_where_the_simulation_has_it(
    run: Callable[..., Run],
) -> None:
    """One pair of three waits: it is only likely; without a simulated loss nothing is told."""
    given = only_first_pair_waits(run(fetch=60, transforms={"blur": 0.8}, pairs=3))
    assert Case.of(given).lost is None
    assert finding(Rule.SLOW_TRANSFORM, given).confidence == "likely"
    faster = run(fetch=42, transforms={"blur": 0.8}, pairs=3)
    faster.steps.wait_ns[:8] = 10_000_000
    faster = only_first_pair_waits(faster)
    assert outcome(Rule.SLOW_TRANSFORM, faster) == NOTHING


def only_first_pair_waits(run: Run) -> Run:
    run.steps.wait_ns[run.steps.pair > 0] = 0
    return run


def test_that_ideal_loading_was_not_measured_is_said(run: Callable[..., Run]) -> None:
    """Of a run that alternated too shortly."""
    given = run(fetch=60, transforms={"blur": 0.8})
    steps = replace(given.steps, arm=np.zeros(len(given.steps), dtype=np.int64))
    answer = outcome(Rule.SLOW_TRANSFORM, replace(given, steps=steps))
    assert answer not in {NOTHING, "found"}


def test_where_nothing_was_looked_into_there_are_no_parts(alternating: MakeRun) -> None:
    """Nor would a fix gain anything."""
    case = Case.of(alternating(wait=50, alone=100))
    assert largest_parts(case.inside) == ()
    assert gain_of(case, Rule.TRANSFER) == 0.0


def test_no_worker_is_made_faster_where_none_is_slow(run: Callable[..., Run]) -> None:
    """That gains nothing."""
    assert gain_of(Case.of(run(fetch=60)), Rule.SLOW_WORKER) == 0.0


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (
            {"transforms": {"a": 0.3, "b": 0.2, "c": 0.1, "d": 0.05}, "collate": 1},
            ["a", "b", "c"],
        ),
        ({"seen": code({GETITEM: 30, **{f"data.py:{n} f{n}": 7 for n in range(10)}})}, [GETITEM]),
        ({"collate": 20, "fetch": 40}, ["collate"]),
        ({}, []),
    ],
)
def test_what_loading_goes_into_is_told_with_a_slow_loader(
    run: Callable[..., Run], given: dict[str, Any], parts: list[str]
) -> None:
    """By transform, or by code, and how much of it is collating; no part is empty."""
    found = finding(Rule.CAPACITY, run(**{"fetch": 60, **given}))
    told = [one.name for one in found.evidence if one.unit == "share"][2:]
    assert told[: len(parts)] == parts
    assert len(told) <= 3
    assert all(one.value for one in found.evidence)


def test_of_no_work_there_are_no_parts(run: Callable[..., Run]) -> None:
    """Batches that take no time to load have none."""
    case = Case.of(run(fetch=0, index=10))
    assert largest_parts(case.inside) == ()
    assert {outcome(rule, case.real) for rule in INSIDE} <= {NOTHING, "found"}


def test_every_cause_is_asked_for() -> None:
    """What can be simulated is a rule, and says the same where it was not looked into."""
    assert FIXES.keys() <= RULES.keys()
    assert NOT_LOOKED_INTO.code is Unknown.NOT_LOOKED_INTO
