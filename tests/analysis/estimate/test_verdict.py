"""Advice by where time is lost and how fast the loader is, and the gate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.estimate.arms import Gain, lost_share
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.verdict import (
    Evidence,
    GateOutcome,
    Objection,
    Part,
    Verdict,
    VerdictAdvice,
    advise,
    gate,
    judge,
    keeps_up,
    most_lost_in,
)
from tests.analysis.numbers import codes

if TYPE_CHECKING:
    from loadeval.analysis.remark import Remark

ABOUT_1 = Estimate(1.05, 0.9, 1.2)


def evidence(
    waiting: float, contention: float, starts: float | None = None, required: Estimate | None = None
) -> Evidence:
    """An ideal iteration of 100 and what is lost besides, all of it known exactly."""
    whole = 100 + waiting + contention + (starts or 0)
    speedup = Estimate(whole / 100, whole / 100, whole / 100)
    parts = [Estimate(part, part, part) for part in (waiting, contention)]
    gain = Gain(
        real_ns=100 + waiting + contention,
        ideal_ns=100,
        speedup=speedup,
        steady_speedup=speedup,
        lost_share=lost_share(speedup),
        lost_ns=Estimate(whole - 100),
        waiting_ns=parts[0],
        contention_ns=parts[1],
        epoch_starts_ns=None if starts is None else Estimate(starts),
    )
    return Evidence(gain, fewest_batches=99, alternating=True, required=required)


def with_bounds(low: float, high: float, missed_ns: float = 0.0) -> Evidence:
    """A share of the time lost between these."""
    usual = evidence(50, 0)
    gain = replace(usual.gain, lost_share=Estimate((low + high) / 2, low, high))
    return replace(usual, gain=gain, missed_ns=missed_ns)


@pytest.mark.parametrize("missed_ns", [0.0, 100.0])
def test_a_wide_interval_that_is_wholly_input_bound_is_no_objection(missed_ns: float) -> None:
    """It is told how little and how much may be lost, whatever made it wide."""
    verdict = judge(with_bounds(0.05, 0.6, missed_ns))
    assert verdict.objection is None
    assert str(verdict) == "moderately to highly input-bound"


@pytest.mark.parametrize(
    ("missed_ns", "objection"),
    [(0.0, Objection.WIDE_INTERVAL), (100.0, Objection.MISSED_STALL)],
)
def test_a_wide_interval_that_is_not_wholly_input_bound_is_an_objection(
    missed_ns: float, objection: Objection
) -> None:
    """Whether anything could be gained is open then."""
    assert judge(with_bounds(0.04, 0.6, missed_ns)).objection is objection


def test_what_a_wide_interval_leaves_open_more_pairs_would_settle() -> None:
    """More pairs are advised beside where to look."""
    advised_codes = codes(advice(with_bounds(0.05, 0.6)))
    assert advised_codes == [VerdictAdvice.SEE_FINDINGS, VerdictAdvice.MORE_PAIRS]


def advice(given: Evidence) -> tuple[Remark, ...]:
    return advise(given, judge(given))


@pytest.mark.parametrize(
    ("required", "enough"),
    [
        (Estimate(0.9, 0.8, 1.0), True),
        (Estimate(1.2, 1.1, 1.3), False),
        (Estimate(0.9, 0.8, 1.1), None),
        (Estimate(1.1, 1.0, 1.2), None),
        (Estimate(1.0, 1.0, 1.0), True),
        (Estimate(1.0), True),
        (Estimate(1.1), False),
    ],
)
def test_whether_a_loader_keeps_up(required: Estimate, enough: bool | None) -> None:
    """Its whole interval decides; without one the value does."""
    assert keeps_up(required) is enough


def test_most_is_lost_in_the_largest_part() -> None:
    """Epoch starts may not be known."""
    waiting, contention, starts = Estimate(3), Estimate(2), Estimate(4)
    assert most_lost_in(waiting, contention, starts) is Part.EPOCH_STARTS
    assert most_lost_in(waiting, contention, None) is Part.WAITING
    assert most_lost_in(contention, waiting, None) is Part.CONTENTION


def test_a_loader_that_may_be_fast_enough() -> None:
    """Both bounds are told, and nothing is advised that holds on one side alone."""
    (about,) = advice(evidence(50, 0, required=ABOUT_1))
    assert about.code is VerdictAdvice.ABOUT_AS_FAST
    assert about.values == {"low": 0.9, "high": 1.2}


def test_slower_steps_beside_a_loader_that_may_be_fast_enough() -> None:
    """What makes them slower is advised on whatever the loader does."""
    advised_codes = codes(advice(evidence(10, 50, required=ABOUT_1)))
    assert advised_codes == [VerdictAdvice.ABOUT_AS_FAST, VerdictAdvice.LESS_CONTENTION]


def test_where_most_is_lost_at_epoch_starts_they_come_first() -> None:
    """They are told with the share of whole epochs that they take."""
    (only,) = advice(evidence(10, 0, 50, ABOUT_1))
    assert only.code is VerdictAdvice.SHORTER_EPOCH_START
    assert only.values == {"starts_share": pytest.approx(50 / 160)}


@pytest.mark.parametrize(("starts", "is_advised"), [(9, True), (7, False)])
def test_epoch_starts_that_matter_are_told_beside_the_rest(starts: float, is_advised: bool) -> None:
    """They matter from 5% of whole epochs on."""
    advised_codes = codes(advice(evidence(50, 0, starts)))
    assert (VerdictAdvice.SHORTER_EPOCH_START in advised_codes) is is_advised
    assert VerdictAdvice.SEE_FINDINGS in advised_codes


@pytest.mark.parametrize(
    ("share", "outcome"),
    [
        (Estimate(0.25, 0.21, 0.29), GateOutcome.ABOVE),
        (Estimate(0.15, 0.10, 0.20), GateOutcome.NOT_ABOVE),
        (Estimate(0.25, 0.20, 0.30), GateOutcome.SPANS),
        (Estimate(0.25), GateOutcome.INCONCLUSIVE),
        (None, GateOutcome.INCONCLUSIVE),
    ],
)
def test_the_gate_goes_by_the_whole_interval(share: Estimate | None, outcome: GateOutcome) -> None:
    """Whether more than a fifth is lost."""
    assert gate(Verdict(), share, 0.2) is outcome


@pytest.mark.parametrize("objection", Objection)
def test_the_gate_accepts_an_interval_that_is_only_wide(objection: Objection) -> None:
    """Whatever else speaks against the figures makes it inconclusive."""
    width = (Objection.WIDE_INTERVAL, Objection.MISSED_STALL)
    expected = GateOutcome.ABOVE if objection in width else GateOutcome.INCONCLUSIVE
    assert gate(Verdict(objection=objection), Estimate(0.5, 0.3, 0.7), 0.2) is expected
