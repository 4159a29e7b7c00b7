"""What inside the loader makes training wait: each cause in a run that has it, and one that hardly.

A step takes 20 ms, two workers keep two batches ready each, and eight CPUs are there, unless said
otherwise; so 40 ms to fetch a batch is just fast enough.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import RULES
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule, Unknown
from loadeval.analysis.rules.fixes import FIXES, gain_of
from loadeval.analysis.rules.gains import with_gains
from loadeval.analysis.rules.inside import Inside
from loadeval.analysis.rules.stages import NOT_LOOKED_INTO, largest_parts
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import CodeSamples
from loadeval.report.wording.advice import change_in_short
from loadeval.report.wording.findings import describe
from tests.analysis.rules.conftest import (
    NOTHING,
    advised,
    diagnosed,
    finding_of,
    gains,
    numbers,
    outcome,
)
from tests.runs.given import alternating, cores_read, make_run
from tests.runs.looked_into import COUNT, COUNTED, code, logged, looked_into
from tests.runs.tables import Rows, altered, replace, rows_of, with_steps

if TYPE_CHECKING:
    from loadeval.data.run import Run

OUTSIDE = {
    Rule.CONFINED,
    Rule.CAPACITY,
    Rule.ZERO_WORKERS,
    Rule.SHALLOW_QUEUE,
    Rule.OVERSUBSCRIPTION,
}
"""These are found of loaders that nobody looked into, too."""
INSIDE = [rule for rule in FIXES if rule not in OUTSIDE]
NUMBER = np.arange(COUNT)
GETITEM = "data.py:31 __getitem__"
A_THIRD = pytest.approx(1 / 3, abs=0.02)
"""What is lost where a batch comes every 30 ms: 10 of them."""


def rules_inside(run: Run) -> list[Rule]:
    return [finding.rule for finding in diagnosed(run).findings if finding.rule in FIXES]


@pytest.mark.parametrize("rule", INSIDE)
def test_a_loader_that_nobody_looked_into(rule: Rule) -> None:
    """Nothing is said of it, be its workers known or not."""
    for workers in (2, 0, None):
        run = alternating(wait=50, alone=100, workers=workers)
        assert outcome(rule, run) is Unknown.NOT_LOOKED_INTO


def test_a_loader_that_nobody_looked_into_is_told_as_before() -> None:
    """Without its stages, the same run shows only that the loader is too slow."""
    given = looked_into(fetch=60, transforms={"blur": 0.8})
    assert rules_inside(given) == [Rule.SLOW_TRANSFORM]
    diagnosis = diagnosed(replace(given, stages=(), code=()))
    assert [finding.rule for finding in diagnosis.findings] == [Rule.CAPACITY]


@pytest.mark.parametrize("rule", INSIDE)
def test_a_loader_whose_step_is_not_known(rule: Rule) -> None:
    """Nothing follows from stages alone."""
    run = replace(make_run([]), stages=(Rows(fetch_ns=[5], worker=[0], samples=[1]),))
    assert outcome(rule, run) is Unknown.NOT_LOOKED_INTO


def test_a_slow_transform() -> None:
    """What it takes, how often, and that more workers help too."""
    finding = finding_of(
        Rule.SLOW_TRANSFORM, looked_into(fetch=60, transforms={"crop": 0.1, "blur": 0.8})
    )
    assert finding.problem.values == {
        "name": "blur",
        "share": pytest.approx(0.8),
        "call_ns": pytest.approx(12e6),
        "calls": 4,
    }
    assert advised(finding) == [Advice.CHEAPER_NAMED, Advice.RAISE, Advice.CPU_USE_NOT_READ]
    assert numbers(finding)[Advice.RAISE]["proposed"] == 3
    assert numbers(finding)[Advice.CHEAPER_NAMED] == {"name": "blur"}
    assert (finding.severity, finding.confidence) == ("high", "measured")
    assert finding.cost_share == A_THIRD
    assert [(fact.name, fact.value) for fact in finding.evidence][1:] == [
        ("in a batch", pytest.approx(48e6)),
        ("calls in a batch", 4),
    ]
    assert "blur takes 80.0% of loading a batch: 12.0 ms a call, 4 calls" in describe(finding)


def test_a_transform_of_another_name_than_its_code() -> None:
    """A container whose parts are not timed: the function in it is named too."""
    transforms = {"Compose": 0.8}
    finding = finding_of(
        Rule.SLOW_TRANSFORM,
        looked_into(fetch=60, transforms=transforms, seen=code({"a.py:1 blur": 9})),
    )
    assert advised(finding)[:2] == [Advice.MOSTLY_IN, Advice.CHEAPER_NAMED]
    assert numbers(finding)[Advice.MOSTLY_IN] == {"place": "a.py:1 blur"}


def test_the_line_of_a_transform() -> None:
    """The one of its own that takes most of it, of a class or a function, numbered or not."""
    for name, function in (("Blur (2)", "Blur.__call__"), ("blur", "blur")):
        seen = code({"a.py:1 other": 5, f"a.py:2 {function}": 3, f"a.py:3 {function} > mean": 1})
        finding = finding_of(
            Rule.SLOW_TRANSFORM, looked_into(fetch=60, transforms={name: 0.8}, seen=seen)
        )
        assert numbers(finding)[Advice.MOSTLY_IN] == {"place": f"a.py:2 {function}"}
    seen = code({"a.py:2 blur": 3, "a.py:1 a": 3, "a.py:1 b": 3})
    finding = finding_of(
        Rule.SLOW_TRANSFORM, looked_into(fetch=60, transforms={"blur": 0.8}, seen=seen)
    )
    assert Advice.MOSTLY_IN not in advised(finding)


class TestWhatHandlesMoreThanIsLeft:
    """A transform that had better come behind one that leaves much less of a sample."""

    @pytest.mark.parametrize(
        ("sizes", "behind"),
        [
            ({"blur": (800, 800), "Crop": (800, 200)}, "Crop"),
            ({"blur": (800, 800), "Flip": (800, 800), "Crop": (800, 50)}, "Crop"),
            ({"blur": (800, 800), "Crop": (800, 400), "Resize": (400, 100)}, "Resize"),
            ({"blur": (800, 800), "Crop": (800, 0)}, "Crop"),
            ({"blur": (800, 800), "Crop": (800, 201)}, None),
            ({"Crop": (800, 50), "blur": (50, 50)}, None),  # it is behind it
            ({"blur": (800, 400), "Crop": (400, 50)}, None),  # it shrinks samples itself
            ({"blur": (400, 800), "Crop": (800, 50)}, None),
            ({"Crop": (800, 50)}, None),  # its own are not known
            ({}, None),
        ],
    )
    def test_when_it_is_said(
        self,
        sizes: dict[str, tuple[float, float]],
        behind: str | None,
    ) -> None:
        """It handles four times as much or more, and is not what changes the size."""
        given = looked_into(fetch=60, transforms={"blur": 0.8}, sizes=sizes)
        finding = finding_of(Rule.SLOW_TRANSFORM, given)
        assert numbers(finding).get(Advice.CALL_AFTER, {}).get("smaller") == behind

    def test_what_is_said(self) -> None:
        """How much it handles, what is left, and what training gains if it takes as much less."""
        sizes = {"blur": (12e6, 12e6), "Crop": (12e6, 50e3)}
        given = looked_into(fetch=60, transforms={"blur": 0.8}, sizes=sizes)
        finding = finding_of(Rule.SLOW_TRANSFORM, given)
        assert numbers(finding)[Advice.CALL_AFTER]["ratio"] == 240
        gain = gains(finding)
        assert float(str(gain[Advice.CALL_AFTER]["speedup"])) > 1.2
        assert "times" in gain[Advice.CHEAPER_NAMED]
        assert "times" not in gain[Advice.CALL_AFTER]
        said = describe(finding)
        assert "blur handles 12.0 million numbers per sample" in said
        assert (
            "and Crop, which comes later, leaves 50,000: call blur after Crop. Predicted:" in said
        )
        assert change_in_short(replace(finding, changes=finding.changes[:1])) == (
            "call blur after Crop"
        )

    def test_what_would_hardly_help_is_not(self) -> None:
        """Nothing is gained where loading keeps up already."""
        sizes = {"blur": (800, 800), "Crop": (800, 200)}
        given = looked_into(fetch=10, transforms={"blur": 0.8}, sizes=sizes)
        change = Remark(Advice.CALL_AFTER, {"name": "blur", "ratio": 4.0})
        slow = Remark(Problem.TRANSFORM_SLOW)
        finding = Finding(Rule.SLOW_TRANSFORM, "low", "measured", slow, (change,), (), 0.1)
        assert with_gains(Case(given), finding).changes == (change,)


class TestOfSeveralTransforms:
    """A transform that calls others is never named for what they take."""

    CALLER = "Compose.__call__"

    @pytest.mark.parametrize("seen", [{}, {f"a.py:1 {CALLER} > crop": 6, "a.py:2 load": 3}])
    def test_the_largest_is_named(self, seen: dict[str, int]) -> None:
        """Though it does not dominate, as the method does that calls it."""
        parts = {"ColorJitter": 0.38, "Crop": 0.28, self.CALLER: 0.02}
        given = looked_into(fetch=60, transforms=parts, seen=code(seen))
        finding = finding_of(Rule.SLOW_TRANSFORM, given)
        assert finding.problem.values["name"] == "ColorJitter"
        assert numbers(finding)[Advice.CHEAPER_NAMED]["name"] == "ColorJitter"
        assert Advice.MOSTLY_IN not in advised(finding)
        assert outcome(Rule.SLOW_FETCH, given) == NOTHING

    @pytest.mark.parametrize(
        "transforms",
        [
            {"a": 0.29, "b": 0.28, "c": 0.27, CALLER: 0.02},  # all alike
            {"a": 0.38, "b": 0.1, CALLER: 0.02},  # half is elsewhere
            {CALLER: 0.39},
        ],
    )
    @pytest.mark.parametrize("function", [CALLER, "__call__"])
    def test_when_none_is(self, transforms: dict[str, float], function: str) -> None:
        """Nor is the method that calls them, with its class or, in Python 3.10, without."""
        given = looked_into(fetch=60, transforms=transforms, seen=code({f"a.py:1 {function}": 9}))
        assert outcome(Rule.SLOW_TRANSFORM, given) == NOTHING
        is_named = outcome(Rule.SLOW_FETCH, given) == "found"
        assert is_named == (transforms == {self.CALLER: 0.39})

    def test_code_that_dominates(self) -> None:
        """The innermost line of the program itself."""
        given = looked_into(
            fetch=60,
            transforms={"a": 0.1, "b": 0.1, self.CALLER: 0.02},
            seen=code({f"a.py:1 {self.CALLER}": 6, "a.py:2 load > Image.load": 5}),
        )
        finding = finding_of(Rule.SLOW_FETCH, given)
        assert finding.problem.values["place"] == "a.py:2 load > Image.load"

    def test_own_code_that_dominates(self) -> None:
        """It is named for its line, which may be of a function that is not timed."""
        transforms = {"a": 0.1, self.CALLER: 0.8}
        finding = finding_of(Rule.SLOW_TRANSFORM, looked_into(fetch=60, transforms=transforms))
        assert finding.problem.values["name"] == self.CALLER
        given = looked_into(fetch=60, transforms=transforms, seen=code({"a.py:1 blend": 9}))
        assert outcome(Rule.SLOW_TRANSFORM, given) == NOTHING
        finding = finding_of(Rule.SLOW_FETCH, given)
        assert finding.problem.values["place"] == "a.py:1 blend"


def test_a_transform_that_costs_what_it_takes_too_long() -> None:
    """Half of 120 ms: 20 are still waited for without it, of 60 for a batch."""
    finding = finding_of(Rule.SLOW_TRANSFORM, looked_into(fetch=120, transforms={"blur": 0.5}))
    assert finding.cost_share == pytest.approx(30 / 60, abs=0.02)


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_when_a_transform_is_slow(given: dict[str, Any], expected: str) -> None:
    """It takes much of fetching, which is waited for, and computes."""
    assert outcome(Rule.SLOW_TRANSFORM, looked_into(**{"fetch": 60, **given})) == expected


def test_more_workers_than_help_are_not_advised() -> None:
    """Eight workers on eight CPUs compute all the time."""
    finding = finding_of(
        Rule.SLOW_TRANSFORM, looked_into(fetch=400, workers=8, transforms={"blur": 0.8}, step=20)
    )
    assert advised(finding) == [Advice.CHEAPER_NAMED, Advice.NO_MORE_WORKERS]


@pytest.mark.parametrize(("cpus", "proposed"), [(None, 3), (2, None), (4, 3), (16, 3)])
def test_workers_as_cpus_allow(cpus: int | None, proposed: int | None) -> None:
    """Where CPUs are not known, one more worker is tried."""
    given = looked_into(fetch=60, transforms={"blur": 0.8}, environment={"cpus_usable": cpus})
    finding = finding_of(Rule.SLOW_TRANSFORM, given)
    assert numbers(finding).get(Advice.RAISE, {}).get("proposed") == proposed
    assert (Advice.CPU_USE_NOT_READ in advised(finding)) is bool(proposed)


@pytest.mark.parametrize(("training", "proposed"), [(1.0, 3), (7.5, None)])
def test_workers_as_training_leaves_cpus(training: float, proposed: int | None) -> None:
    """Of eight CPUs that were read; what they are used for is no guess then."""
    given = cores_read(
        looked_into(fetch=60, transforms={"blur": 0.8}), process=training, workers=(1.9, 0.0)
    )
    finding = finding_of(Rule.SLOW_TRANSFORM, given)
    assert Advice.CPU_USE_NOT_READ not in advised(finding)
    assert numbers(finding).get(Advice.RAISE, {}).get("proposed") == proposed


def test_a_slow_function() -> None:
    """It is told by its place, and advised on by its name."""
    seen = code({f"{GETITEM} > Image.convert": 60, "data.py:9 crop": 40})
    finding = finding_of(Rule.SLOW_FETCH, looked_into(fetch=60, seen=seen))
    assert finding.problem.values == {"place": f"{GETITEM} > Image.convert", "share": 0.6}
    assert numbers(finding)[Advice.CHEAPER_NAMED] == {"name": "__getitem__"}
    assert finding.cost_share == A_THIRD
    assert [fact.value for fact in finding.evidence] == [0.6]


@pytest.mark.parametrize(
    ("percent", "given", "expected"),
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
def test_when_a_function_is_slow(percent: int, given: dict[str, Any], expected: str) -> None:
    """Workers were seen in it often, and nothing else has a name."""
    others = {f"data.py:{line} other{line}": 5 for line in range((100 - percent) // 5)}
    given = {"fetch": 60, "seen": code({GETITEM: percent, **others}), **given}
    total = percent + 5 * len(others)
    assert (percent / total >= 0.4) == (percent > 40)
    assert outcome(Rule.SLOW_FETCH, looked_into(**given)) == expected


def test_a_function_of_code_that_nobody_saw() -> None:
    """No place is guessed; that the loader is too slow is told."""
    findings = diagnosed(looked_into(fetch=60)).findings
    assert [finding.rule for finding in findings] == [Rule.CAPACITY]


def test_slow_collate() -> None:
    """What it takes, beside fetching."""
    finding = finding_of(Rule.SLOW_COLLATE, looked_into(fetch=30, collate=30))
    assert finding.problem.values == {
        "name": "The collate function",
        "collate_ns": 30e6,
        "share": pytest.approx(0.5),
    }
    assert advised(finding)[0] is Advice.CHEAPER_COLLATE
    assert Advice.RAISE in advised(finding)
    assert finding.cost_share == A_THIRD
    assert [fact.value for fact in finding.evidence] == [30e6, 30e6]


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ({"data.py:50 padded": 65, GETITEM: 35}, "padded"),
        ({"data.py:50 padded": 47, GETITEM: 53}, "The collate function"),  # seen in fetching
        ({f"data.py:{line} part{line}": 10 for line in range(10)}, "The collate function"),
    ],
)
def test_the_name_of_a_collate_function(seen: dict[str, int], name: str) -> None:
    """Only what workers were seen in for longer than they fetch has it."""
    given = looked_into(fetch=21 if name == "padded" else 30, collate=36, seen=code(seen))
    assert finding_of(Rule.SLOW_COLLATE, given).problem.values["name"] == name


ENCODE = f"{GETITEM} > self.tokenizer.encode"


@pytest.mark.parametrize(
    ("given", "place", "share"),
    [
        ({"seen": code({ENCODE: 6, "data.py:50 read": 4})}, ENCODE, 0.6),
        (
            {"seen": (CodeSamples(0, {GETITEM: 9, "data.py:50 read": 1}, {}, {ENCODE: 6}),)},
            ENCODE,
            0.6,
        ),
        ({"seen": code({"data.py:9 tokenise": 10})}, "data.py:9 tokenise", 1.0),
        ({"transforms": {"BertTokenizerFast": 0.8}}, "BertTokenizerFast", 0.8),
        (
            {"fetch": 20, "collate": 40, "seen": code({"data.py:5 padded > Tokenizer.pad": 10})},
            "data.py:5 padded > Tokenizer.pad",
            1.0,
        ),
    ],
)
def test_tokenising(given: dict[str, Any], place: str, share: float) -> None:
    """By the name of what takes the time, in place of that function, transform or collating."""
    run = looked_into(**{"fetch": 60, **given})
    finding = finding_of(Rule.TOKENISING, run)
    assert finding.problem.code is Problem.TOKENISES
    assert finding.problem.values == {"place": place, "share": pytest.approx(share)}
    assert {Advice.RAISE, Advice.TOKENISE_ONCE} <= set(advised(finding))
    assert float(str(gains(finding)[Advice.TOKENISE_ONCE]["at_most"])) == pytest.approx(1.5, 0.05)
    others = {Rule.SLOW_TRANSFORM, Rule.SLOW_FETCH, Rule.SLOW_COLLATE}
    assert not others & {finding.rule for finding in diagnosed(run).findings}


def test_threads_of_a_tokeniser_block_those_that_wait_for_them() -> None:
    """That is tokenising, not storage that is slow to answer."""
    seen = CodeSamples(0, {}, {f"{GETITEM} > futex_do_wait": 9}, {ENCODE: 9})
    run = looked_into(fetch=60, blocked=0.9, seen=(seen,))
    assert finding_of(Rule.TOKENISING, run).problem.values["share"] == 1
    assert outcome(Rule.STORAGE_LATENCY, run) == NOTHING


def test_the_same_texts_in_each_epoch() -> None:
    """A dataset with a sampler has them, and a run that had more than one epoch saw it."""
    run = looked_into(fetch=60, seen=code({ENCODE: 9}), loader={"sampler": "RandomSampler"})
    assert finding_of(Rule.TOKENISING, run).problem.code is Problem.TOKENISES
    epoch = (np.arange(len(run.steps)) >= 80).astype(np.int64)
    twice = replace(run, steps=replace(run.steps, epoch=epoch))
    assert finding_of(Rule.TOKENISING, twice).problem.code is Problem.TOKENISES_AGAIN


@pytest.mark.parametrize(
    "given",
    [
        {"fetch": 60, "seen": code({ENCODE: 3, GETITEM: 7})},
        {"fetch": 60, "seen": code({GETITEM: 9})},
        {"fetch": 60, "blocked": 0.9, "seen": code({ENCODE: 9})},
        {"fetch": 5, "seen": code({ENCODE: 9})},
    ],
)
def test_when_it_is_not_tokenising(given: dict[str, Any]) -> None:
    """It takes less than two fifths of loading, or loading is not what is waited for."""
    assert outcome(Rule.TOKENISING, looked_into(**given)) == NOTHING


@pytest.mark.parametrize(
    ("fetch", "collate", "expected"),
    [(35, 25, "found"), (37, 23, NOTHING), (15, 20, NOTHING)],
)
def test_when_collating_is_slow(fetch: int, collate: int, expected: str) -> None:
    """It takes two fifths of the time, and is waited for."""
    assert outcome(Rule.SLOW_COLLATE, looked_into(fetch=fetch, collate=collate)) == expected


@pytest.mark.parametrize(
    ("nbytes", "problem", "code_"),
    [
        (18_000_000, Problem.TRANSFER_BY_PIPE, Advice.SEND_TENSORS),
        (2_000_000, Problem.TRANSFER_OF_MANY, Advice.SEND_FEWER),
        (1000, Problem.TRANSFER_OF_MANY, Advice.SEND_FEWER),
        (900, Problem.TRANSFER_OF_FEW, Advice.SEND_LESS_OFTEN),
    ],
)
def test_passing_batches_on(nbytes: int, problem: Problem, code_: Advice) -> None:
    """Large batches go through a pipe; small ones have many parts, or take long all the same."""
    finding = finding_of(
        Rule.TRANSFER, looked_into(fetch=10, pickle=30, receive=20, pickled_bytes=nbytes)
    )
    assert finding.problem.code is problem
    assert finding.problem.values == {"transfer_ns": 50e6, "pickled_bytes": nbytes}
    assert set(advised(finding)) == {code_, Advice.LOAD_IN_TRAINING}
    assert [(fact.name, fact.value) for fact in finding.evidence] == [
        ("pickle", 30e6),
        ("receive", 20e6),
        ("pickled", nbytes),
    ]
    assert finding.cost_share == pytest.approx(0.5, abs=0.02)


def test_receiving_that_waits_for_pythons_lock() -> None:
    """It would take 1 ms by itself."""
    case = Case(looked_into(fetch=10, pickle=2, receive=30, pickled_bytes=900))
    inside = case.inside
    assert inside is not None
    own_ns = np.full(len(inside.costs), 1e6)
    waiting = replace(inside.costs, receive_ns=own_ns, lock_ns=math.inf)
    vars(case)["inside"] = Inside(replace(inside.recorded, costs=waiting))
    finding = RULES[Rule.TRANSFER](case)
    assert isinstance(finding, Finding)
    assert finding.problem.code is Problem.TRANSFER_WAITS_FOR_LOCK
    assert advised(finding)[0] == Advice.SHARE_BY_FILE


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"fetch": 55, "pickle": 5}, "found"),
        ({"fetch": 57, "pickle": 3}, NOTHING),  # under a fifth of what is waited for
        ({"fetch": 10, "pickle": 25}, NOTHING),  # nothing is waited for
        ({"fetch": 0.1, "receive": 0.61, "step": 1.0}, "found"),
        ({"fetch": 0.1, "receive": 0.59, "step": 1.0}, NOTHING),  # as any batch does
        ({"fetch": 60, "pickle": 60, "pickle_ns": UNKNOWN, "pickle_start_ns": UNKNOWN}, NOTHING),
    ],
)
def test_when_passing_batches_on_is_slow(given: dict[str, Any], expected: str) -> None:
    """It must be known, and be waited for."""
    assert outcome(Rule.TRANSFER, looked_into(**given)) == expected


@pytest.mark.parametrize(
    ("sampler", "name"), [("WeightedRandomSampler", "WeightedRandomSampler"), (None, "the sampler")]
)
def test_a_slow_sampler(sampler: str | None, name: str) -> None:
    """Its time is lost with each batch, in the training process."""
    finding = finding_of(
        Rule.SLOW_SAMPLER, looked_into(fetch=10, index=20, loader={"sampler": sampler})
    )
    assert finding.problem.values == {"index_ns": 20e6, "sampler": name}
    assert advised(finding) == [Advice.CHEAPER_SAMPLER]
    assert finding.cost_share == pytest.approx(0.5, abs=0.02)
    assert [fact.value for fact in finding.evidence] == [20e6]


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_when_a_sampler_is_slow(given: dict[str, Any], expected: str) -> None:
    """Without workers it must take much of what is waited for."""
    assert outcome(Rule.SLOW_SAMPLER, looked_into(**given)) == expected


def test_pinning() -> None:
    """A thread that needs 40 ms for a batch delivers one every 40 ms."""
    finding = finding_of(Rule.PINNING, looked_into(fetch=10, pin=40))
    assert finding.problem.values == {"pin_ns": 40e6}
    assert advised(finding) == [Advice.SEND_FEWER]
    assert finding.cost_share == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    "given",
    [
        {"fetch": 10, "pin": 15},
        {"fetch": 60, "pin": 1},
        {"fetch": 55, "pin": 28},  # fetching is nearly as slow
    ],
)
def test_pinning_that_keeps_up(given: dict[str, Any]) -> None:
    """It is not why training waits, or hardly."""
    assert outcome(Rule.PINNING, looked_into(**given)) == NOTHING


LATE = np.where(NUMBER % 8 == 5, 200.0, 20.0)
"""Four workers, of which none is slower, but one batch in eight: what lies ready is held back."""


def late(**given: Any) -> Run:
    """The same each time with another worker."""
    fetch = np.where((NUMBER % 8 == 5) & (NUMBER // 8 % 2 == 0), 280.0, 20.0)
    fetch[(NUMBER % 8 == 2) & (NUMBER // 8 % 2 == 1)] = 280.0
    return looked_into(**{"fetch": fetch, "workers": 4, **given})


def test_batches_that_wait_for_earlier_ones() -> None:
    """In another order most of the waiting would be gone."""
    finding = finding_of(Rule.HEAD_OF_LINE, late())
    assert finding.problem.code is Problem.FINISHED_BATCHES_WAIT
    assert advised(finding) == [Advice.OUT_OF_ORDER]
    assert finding.cost_share is not None
    assert finding.cost_share > 0.2
    assert 0.05 < float(str(finding.problem.values["share"])) < 1
    assert finding.evidence[0].value == finding.problem.values["waited_ns"]


def test_slow_samples_that_hold_batches_back() -> None:
    """They are told there, and not again; nor are the stalls that they make."""
    slowest = np.where(rows_of(late())[0].fetch_ns > 100e6, 265.0, 6.0)
    given = late(slowest=slowest, slowest_index=np.where(slowest > 100, 17, 3))
    finding = finding_of(Rule.HEAD_OF_LINE, given)
    assert advised(finding) == [Advice.OUT_OF_ORDER, Advice.FIX_SAMPLES]
    assert numbers(finding)[Advice.FIX_SAMPLES] == {
        "indices": "17",
        "longest_ns": 265e6,
        "typical_ns": pytest.approx(14e6 / 3),
    }
    assert outcome(Rule.SLOW_SAMPLES, given) == NOTHING
    assert Rule.STALLS not in {finding.rule for finding in diagnosed(given).findings}


@pytest.mark.parametrize(
    "given",
    [
        {"fetch": 60, "workers": 4, "step": 10},  # batches come in order by themselves
        {"fetch": LATE, "workers": 1, "prefetch": 4, "step": 60},  # nobody overtakes
        {"fetch": np.where(NUMBER % 4 == 1, 200.0, 20.0), "workers": 4},  # one worker is slow
    ],
)
def test_when_no_batch_waits_for_an_earlier_one(given: dict[str, Any]) -> None:
    """None waits for one of a worker that is told of."""
    assert outcome(Rule.HEAD_OF_LINE, looked_into(**given)) == NOTHING


def few_slow(every: int = 12, taken: float = 240.0, index: Any = 17, **given: Any) -> Run:
    """One worker, and a batch in `every` whose slowest sample takes nearly all of its time."""
    slow = every // 2 == NUMBER % every
    return looked_into(
        **{
            "fetch": np.where(slow, taken, 12.0),
            "slowest": np.where(slow, taken - 9, 3.5),
            "slowest_index": np.where(slow, index, 3),
            "workers": 1,
            **given,
        }
    )


def test_a_few_slow_samples() -> None:
    """Which, how long, and how long others take."""
    finding = finding_of(Rule.SLOW_SAMPLES, few_slow(index=NUMBER))
    assert finding.problem.values == {
        "indices": "6, 18, 30",
        "longest_ns": 231e6,
        "typical_ns": pytest.approx(8.5e6 / 3),
    }
    assert advised(finding) == [Advice.FIX_SAMPLES]
    assert [fact.value for fact in finding.evidence] == [231e6, pytest.approx(8.5e6 / 3)]
    assert finding.cost_share is not None
    assert finding.cost_share > 0.2


def test_slow_samples_that_come_again_are_told_first() -> None:
    """One that is slow each time is no accident."""
    index = np.where(NUMBER % 24 == 6, 17, NUMBER)
    finding = finding_of(Rule.SLOW_SAMPLES, few_slow(index=index))
    assert str(finding.problem.values["indices"]).startswith("17, ")


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_when_a_few_samples_are_slow(given: dict[str, Any], expected: str) -> None:
    """They are few, or the same, and take much of the time."""
    assert outcome(Rule.SLOW_SAMPLES, few_slow(**given)) == expected


def test_a_log_tells_causes_too() -> None:
    """What training would be without waits is not known: all of its waiting is the cost."""
    given = logged(fetch=60, transforms={"blur": 0.8})
    finding = finding_of(Rule.SLOW_TRANSFORM, given)
    assert finding.cost_share == A_THIRD
    assert finding.confidence == "measured"
    assert outcome(Rule.CAPACITY, given) is Unknown.NO_IDEAL
    assert rules_inside(given) == [Rule.SLOW_TRANSFORM]
    assert Rule.WAITING not in {finding.rule for finding in diagnosed(given).findings}
    assert outcome(Rule.SLOW_TRANSFORM, logged(fetch=41, transforms={"blur": 0.8})) == NOTHING


def test_of_few_logged_batches_nothing_is_told() -> None:
    given = logged(fetch=60, transforms={"blur": 0.8})
    few = replace(given, header=replace(given.header, warmup=COUNTED - 3))
    assert outcome(Rule.SLOW_TRANSFORM, few) is Unknown.TOO_FEW_BATCHES


def test_a_loss_that_is_not_sure_is_told_where_the_simulation_has_it() -> None:
    """One pair of three waits: it is only likely; without a simulated loss nothing is told."""
    given = only_first_pair_waits(looked_into(fetch=60, transforms={"blur": 0.8}, pairs=3))
    assert Case(given).lost is None
    assert finding_of(Rule.SLOW_TRANSFORM, given).confidence == "likely"
    faster = looked_into(fetch=42, transforms={"blur": 0.8}, pairs=3)
    wait_ns = altered(faster.steps.wait_ns, slice(8), 10_000_000)
    faster = only_first_pair_waits(with_steps(faster, wait_ns=wait_ns))
    assert outcome(Rule.SLOW_TRANSFORM, faster) == NOTHING


def only_first_pair_waits(run: Run) -> Run:
    return with_steps(run, wait_ns=np.where(run.steps.pair > 0, 0, run.steps.wait_ns))


def test_that_ideal_loading_was_not_measured_is_said() -> None:
    """The run alternated too shortly."""
    given = looked_into(fetch=60, transforms={"blur": 0.8})
    steps = replace(given.steps, arm=np.zeros(len(given.steps), dtype=np.int64))
    answer = outcome(Rule.SLOW_TRANSFORM, replace(given, steps=steps))
    assert answer not in {NOTHING, "found"}


def test_where_nothing_was_looked_into_there_are_no_parts() -> None:
    """A fix would gain nothing."""
    case = Case(alternating(wait=50, alone=100))
    assert largest_parts(case.inside) == ()
    assert gain_of(case, Rule.TRANSFER) == 0.0


def test_no_worker_is_made_faster_where_none_is_slow() -> None:
    """That gains nothing."""
    assert gain_of(Case(looked_into(fetch=60)), Rule.SLOW_WORKER) == 0.0


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
    given: dict[str, Any], parts: list[str]
) -> None:
    """It is told by transform or by code, with how much of it is collating; no part is empty."""
    finding = finding_of(Rule.CAPACITY, looked_into(**{"fetch": 60, **given}))
    shown = [fact.name for fact in finding.evidence if fact.unit == "share"][2:]
    assert shown[: len(parts)] == parts
    assert len(shown) <= 3
    assert all(fact.value for fact in finding.evidence)


def test_of_no_work_there_are_no_parts() -> None:
    """Batches that take no time to load have none."""
    case = Case(looked_into(fetch=0, index=10))
    assert largest_parts(case.inside) == ()
    told = {NOTHING, "found", Unknown.WORKER_MEMORY_NOT_READ}
    assert {outcome(rule, case.real) for rule in INSIDE} <= told


def test_every_cause_is_asked_for() -> None:
    """What can be simulated is a rule, and says the same where it was not looked into."""
    assert FIXES.keys() <= RULES.keys()
    assert NOT_LOOKED_INTO.code is Unknown.NOT_LOOKED_INTO
