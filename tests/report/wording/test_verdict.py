"""Figures and findings in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.backends import (
    BackendCaution,
    BackendReport,
    BackendResult,
    Difference,
    MissingOfBackend,
    failed,
)
from loadeval.analysis.estimate.cautions import Caution
from loadeval.analysis.estimate.headroom import Missing, headroom, headroom_of_two
from loadeval.analysis.estimate.memory import Growth, GrowthAdvice, GrowthReason
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.verdict import (
    GateOutcome,
    InputBound,
    Objection,
    Unmeasured,
    Verdict,
    VerdictAdvice,
)
from loadeval.analysis.remark import Remark
from loadeval.analysis.report import Report
from loadeval.data.lines import EpochEnd, Event
from loadeval.report.wording import backends, runs
from loadeval.report.wording import verdict as wording
from loadeval.report.wording.backends import (
    backend_cautions,
    backend_not_measured,
    backend_reason,
    backend_verdict,
    difference_sentence,
)
from loadeval.report.wording.runs import described_loader, growth_advice, growth_reason, run_notes
from loadeval.report.wording.verdict import (
    epoch_start_in_words,
    headline,
    lost_in_words,
    reason,
    required_in_words,
    verdict_advice,
)
from tests.runs.given import randomised
from tests.runs.measured import recorded
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from enum import Enum


MS = 1_000_000


@pytest.mark.parametrize(
    ("wait_ns", "step_ns", "verdict", "gain", "ratio"),
    [
        (30 * MS, 10 * MS, "Highly", "4.00x as fast", "4.00x"),
        (1 * MS, 10 * MS, "Moderately", "1.10x as fast", "1.10x"),
        (0, 10 * MS, "Not", "no faster", "1.00x"),
        (0, 9_700_000, "Not", "no faster", "0.97x"),
    ],
)
def test_headline(wait_ns: int, step_ns: int, verdict: str, gain: str, ratio: str) -> None:
    """The level, the gain, and its interval; a speed-up of 1, or below, is no faster."""
    real = recorded(waits_ns=[wait_ns] * 30, step_ns=step_ns)
    assert headline(headroom_of_two(real, recorded("replay"))) == (
        f"{verdict} input-bound: training would be {gain} if loading were free "
        f"(95% CI [{ratio}, {ratio}])"
    )


def test_headline_without_an_interval() -> None:
    """Where none could be had, none is told."""
    result = headroom_of_two(recorded(), recorded("replay"))
    result = replace(result, speedup=Estimate(4.0, None, None))
    assert headline(result) == (
        "Highly input-bound: training would be 4.00x as fast if loading were free"
    )


def test_headline_of_a_span() -> None:
    """A verdict that spans two levels is told as it is."""
    result = replace(
        headroom(randomised()), verdict=Verdict(InputBound.MODERATELY, InputBound.HIGHLY)
    )
    assert headline(result).startswith("Moderately to highly input-bound: training would be 1.")


def test_headline_inconclusive() -> None:
    """It says why, whatever the speed-up is."""
    few = headroom_of_two(recorded(waits_ns=[MS] * 6), recorded("replay"))
    for result in (headroom(randomised(pairs=0)), few):
        assert headline(result) == f"Inconclusive: {reason(result)}"


@pytest.mark.parametrize(
    ("real", "ideal", "text"),
    [
        (99, 1, "no steady-state iteration was measured in the real run"),
        (1, 99, "no steady-state iteration was measured in the ideal run"),
        (99, 99, "no steady-state iteration was measured in either run"),
    ],
)
def test_headline_unmeasured(real: int, ideal: int, text: str) -> None:
    """It is said which run has nothing to compare."""
    sentence = headline(headroom_of_two(recorded(warmup=real), recorded("replay", warmup=ideal)))
    assert sentence == f"Inconclusive: {text}"


def test_described_loader() -> None:
    """Only the class of a plain iterable is known; a replay was served from kept batches."""
    assert described_loader(recorded()) == "ScriptedLoader"
    assert described_loader(recorded("replay")) == "2 kept batches replayed"
    run = recorded()
    loader = replace(run.header.loader, overrides={"num_workers": 2, "a\n": "b"})
    changed = replace(run, header=replace(run.header, loader=loader))
    assert described_loader(changed) == "ScriptedLoader, with num_workers=2, a\\n='b'"


def test_notes_of_a_run() -> None:
    """What reading brought up, what happened when, what ended an epoch, and memory that grows."""
    run = replace(
        recorded(),
        notes=("cut off",),
        events=(
            Event(1_500 * MS, "copies"),
            *(Event(at * MS, "again") for at in (2, 3, 4)),
            *(Event(at * MS, f"raised {at}", "error read on") for at in (5, 6)),
        ),
        ends=(EpochEnd(3, "failed", 0, 0, "ValueError: bad"),),
    )
    (run_report,) = Report.of([run]).runs
    values = {"bytes_per_hour": 1e9, "share": 0.1, "limit_bytes": 10**10}
    codes = (GrowthReason.GROWS, GrowthReason.LITTLE)
    grows = [Growth("workers", None, None, None, Remark(code, values)) for code in codes]
    notes = run_notes(
        replace(run_report, metrics=replace(run_report.metrics, growths=tuple(grows)))
    )
    assert notes[:5] == [
        "log: cut off",
        "log, at 1.50 s: copies",
        "log, at 2.00 ms: again (3 times, the last at 4.00 ms)",
        "log, at 5.00 ms: raised 5 (2 errors, the last at 6.00 ms)",
        "log, epoch 3 failed: ValueError: bad",
    ]
    (grows_line,) = notes[5:]
    assert grows_line.startswith("log: memory of the workers grows")


TABLES: list[tuple[Mapping[Enum, str], Sequence[type[Enum]], set[Enum]]] = [
    (wording.OBJECTIONS, [Objection], {Objection.NOT_MEASURED}),
    (wording.UNMEASURED, [Unmeasured], set()),
    (wording.ADVICE, [VerdictAdvice], set()),
    (backends.CAUTIONS, [Caution, BackendCaution], set()),
    (backends.MISSING, [Missing, MissingOfBackend], set()),
    (wording.GATE, [GateOutcome], set()),
    (runs.GROWTH, [GrowthReason, GrowthAdvice], set()),
]


@pytest.mark.parametrize(("sentences", "enums", "without"), TABLES)
def test_every_code_has_a_sentence(
    sentences: Mapping[Enum, str], enums: Sequence[type[Enum]], without: set[Enum]
) -> None:
    """And every sentence a code. An objection to what was not measured has that of its cause."""
    assert set(sentences) == {code for enum in enums for code in enum} - without
    assert len(set(sentences.values())) == len(sentences)


@pytest.mark.parametrize(
    ("lost", "waiting", "starts", "limited", "text"),
    [
        (
            (0.5, 0.4, 0.6),
            30.0,
            25.0,
            True,
            (
                "50.0% [40.0%, 60.0%] of the training time is lost to data loading, most of it to "
                "waiting"
            ),
        ),
        (
            (0.5, None, None),
            10.0,
            None,
            True,
            "50.0% of the training time is lost to data loading, most of it to contention",
        ),
        (
            (0.5, None, None),
            10.0,
            25.0,
            True,
            "50.0% of the training time is lost to data loading, most of it to epoch starts",
        ),
        (
            (0.02, 0.01, 0.03),
            30.0,
            None,
            False,
            "2.0% [1.0%, 3.0%] of the training time is lost to data loading",
        ),
        (
            (-0.02, -0.03, 0.06),
            30.0,
            None,
            True,
            "up to 6.0% of the training time may be lost to data loading (-2.0% [-3.0%, 6.0%])",
        ),
        (
            (-0.02, -0.03, 0.04),
            30.0,
            None,
            True,
            "no time is lost to data loading (-2.0% [-3.0%, 4.0%])",
        ),
    ],
)
def test_the_reason_of_a_level(
    lost: tuple[float, float | None, float | None],
    waiting: float,
    starts: float | None,
    limited: bool,
    text: str,
) -> None:
    """How much is lost, and where most of it is where that matters."""
    level = InputBound.HIGHLY if limited else InputBound.NOT
    result = replace(
        headroom(randomised()),
        verdict=Verdict(level, level),
        lost_share=Estimate(*lost),
        waiting_ns=Estimate(waiting, None, None),
        contention_ns=Estimate(20.0, None, None),
        epoch_starts_ns=None if starts is None else Estimate(starts),
    )
    assert reason(result) == text


@pytest.mark.parametrize(
    ("required", "text"),
    [
        (None, "not measured"),
        (
            Estimate(1.6, 1.5, 1.7),
            "the loader must be 1.60x [1.50x, 1.70x] faster to keep up",
        ),
        (
            Estimate(0.8, 0.7, 0.9),
            "0.80x [0.70x, 0.90x] of an ideal iteration: alone, the loader is fast enough",
        ),
        (
            Estimate(1.1, 0.9, 1.3),
            (
                "1.10x [0.90x, 1.30x] of an ideal iteration: alone, the loader is about as fast "
                "as the step"
            ),
        ),
    ],
)
def test_how_much_faster_the_loader_must_be(required: Estimate | None, text: str) -> None:
    """It is told with the interval, which decides whether it keeps up."""
    assert required_in_words(required) == text


@pytest.mark.parametrize(
    ("advice", "text"),
    [
        (VerdictAdvice.FASTER_LOADER, "it must be 1.60x [1.50x, 1.70x] faster to keep up"),
        (VerdictAdvice.FAST_ENOUGH, "it loads a batch in 1.60 [1.50, 1.70] ideal iterations"),
    ],
)
def test_advice_has_the_interval_of_what_is_required(advice: VerdictAdvice, text: str) -> None:
    """Where it tells how fast the loader is."""
    result = replace(
        headroom(randomised()),
        required=Estimate(1.6, 1.5, 1.7),
        advice=(Remark(advice, {"required": 1.6}),),
    )
    assert text in verdict_advice(result)


def test_the_time_lost_in_words() -> None:
    """The time is that of whole epochs, with every part."""
    result = replace(
        headroom(randomised()),
        real_ns=30.0 * MS,
        lost_ns=Estimate(20.0 * MS),
        lost_share=Estimate(0.5),
        waiting_ns=Estimate(8.0 * MS),
        contention_ns=Estimate(2.0 * MS),
        epoch_starts_ns=Estimate(10.0 * MS),
    )
    assert lost_in_words(result) == (
        "Lost per batch: 20.0 ms of 40.0 ms, whole epochs (50.0%): 8.00 ms waiting, 2.00 ms "
        "contention and 10.0 ms epoch starts."
    )
    steady = replace(result, lost_ns=Estimate(10.0 * MS), epoch_starts_ns=None)
    assert lost_in_words(steady) == (
        "Lost per batch: 10.0 ms of 30.0 ms, steady state (50.0%): 8.00 ms waiting and 2.00 ms "
        "contention."
    )


@pytest.mark.parametrize(
    ("start_ns", "text"),
    [(300.0 * MS, "300 ms until the first batch, on average"), (None, "not measured")],
)
def test_an_epoch_start_in_words(start_ns: float | None, text: str) -> None:
    """It ends with the first batch."""
    assert epoch_start_in_words(replace(headroom(randomised()), epoch_start_ns=start_ns)) == text


def test_the_time_lost_that_was_not_measured() -> None:
    """It has no parts."""
    assert lost_in_words(headroom(randomised(pairs=0))) == "Lost per batch: not measured."


@pytest.mark.parametrize("lost", [(-0.008, -0.77, 0.43), (-0.008, None, None), (0.3, 0.1, 0.9)])
@pytest.mark.parametrize(
    "objection",
    [
        Objection.NO_INTERVAL,
        Objection.WIDE_INTERVAL,
        Objection.MISSED_STALL,
        Objection.TOO_FEW_EPOCHS,
    ],
)
def test_what_is_inconclusive_is_not_known(
    objection: Objection, lost: tuple[float, float, float]
) -> None:
    """It is not said that time, or none, is lost."""
    result = replace(
        headroom(randomised()),
        verdict=Verdict(objection=objection),
        lost_share=Estimate(*lost),
    )
    unknown = "Inconclusive: how much time is lost to data loading is not known ("
    assert headline(result).startswith(unknown)
    assert "no time is lost" not in headline(result)


@pytest.mark.parametrize("objection", wording.OBJECTIONS)
def test_the_reason_of_an_objection(objection: Objection) -> None:
    """It has its numbers."""
    verdict = Verdict(objection=objection, workers_busy=0.2, drift_ns=3e6, missed_ns=1e9)
    result = replace(headroom(randomised()), verdict=verdict)
    sentence = reason(result)
    assert any(char.isdigit() for char in sentence)
    if objection is Objection.MISSED_STALL:
        assert "1.00 s longer" in sentence
    if objection is Objection.WORKERS_BUSY:
        assert "20% of a CPU" in sentence


def test_what_is_said_of_several_backends_is_said_once() -> None:
    """Behind their names, as are notes of reading a run; sizes of epochs are told together."""
    run = replace(recorded(), notes=("the end is missing",))
    missing = tuple(map(Remark, MissingOfBackend))
    results = (
        BackendResult("a", epoch_sizes=(12,), not_measured=missing[:2], run=run),
        BackendResult("b", epoch_sizes=(16, 1_200), not_measured=missing[:1], run=run),
        failed("z", "OSError: gone"),
    )
    codes = (Remark(BackendCaution.UNEQUAL_EPOCHS, {"unit": "images"}),)
    report = BackendReport(results, (), "images", codes)
    assert backend_cautions(report) == [
        "The backends' epochs differ in images: a 12, b 16 or 1,200.",
        "a, b: the end is missing",
    ]
    both, of_first = backend_not_measured(report)
    assert (both[:6], of_first[:3]) == ("a, b: ", "a: ")
    assert [backend_verdict(backend) for backend in results] == [
        "not measured",
        "not measured",
        "failed",
    ]
    assert [backend_reason(backend) for backend in results] == ["", "", "OSError: gone"]


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1.1, 1.3, "a 1.20x [1.10x, 1.30x] as fast as b"),
        (0.9, 1.5, "no difference shown between a and b: 1.20x [0.90x, 1.50x]"),
        (None, None, "a 1.20x as fast as b, with too few measurements for a 95% CI"),
    ],
)
def test_a_difference_in_words(low: float | None, high: float | None, text: str) -> None:
    """It says when none is shown."""
    assert difference_sentence(Difference("a", "b", Estimate(1.2, low, high))) == text


def test_growth_in_words() -> None:
    """By how much in an hour, of how much; or why it was not measured."""
    values = {"bytes_per_hour": 6e9, "share": 0.06, "limit_bytes": 100e9}
    grows = Growth(
        "process", Estimate(6e9, None, None), None, None, Remark(GrowthReason.GROWS, values)
    )
    assert growth_reason(grows) == "it grows by 6.00 GB per hour, 6.0% of the 100 GB available"
    assert growth_advice(grows) == ""
    none_read = Remark(GrowthReason.NO_READINGS, {"subject": "process"})
    unread = Growth("process", None, None, None, none_read, GrowthAdvice.DROP_KEPT_TENSORS)
    assert growth_reason(unread) == "not measured: no memory readings of the process"
    assert growth_advice(unread).startswith("Something is kept from step to step")
