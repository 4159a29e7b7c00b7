"""Which of two answers to believe, and whether they agree."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.doctor import DEFAULT_PREFETCH
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.protocol import Answers, plan_of
from loadeval.analysis.report import Report
from loadeval.runlog.model import LoaderInfo
from tests.runs.given import randomised
from tests.runs.measured import recorded

if TYPE_CHECKING:
    from loadeval.analysis.estimate.headroom import Headroom

REAL, REPLAY = recorded("log"), recorded("replay")
LOGGED = Report.of([REAL])
SEPARATE = Report.of([REAL, REPLAY])
ALTERNATING = Report.of([randomised()])
TOO_SHORT = Report.of([randomised(pairs=1)])


def gains(report: Report) -> Headroom:
    assert report.comparison is not None
    return report.comparison.headroom


def claiming(
    report: Report, *interval: float | None, of_epochs: bool = True, steady: float = 9.0
) -> Report:
    """`report` with another speed-up, of whole epochs, and another one of the steady state."""
    assert report.comparison is not None
    claimed = replace(
        gains(report),
        speedup=Estimate(*interval) if interval else None,  # type: ignore[arg-type]  # value first
        steady_speedup=Estimate(steady),
        epoch_starts_ns=Estimate(1.0) if of_epochs else None,
    )
    return replace(report, comparison=replace(report.comparison, headroom=claimed))


@pytest.mark.parametrize(
    ("separate", "alternate", "best"),
    [
        (SEPARATE, ALTERNATING, ALTERNATING),
        (SEPARATE, TOO_SHORT, SEPARATE),
        (LOGGED, TOO_SHORT, TOO_SHORT),
        (LOGGED, None, LOGGED),
        (None, LOGGED, LOGGED),
        (None, None, None),
    ],
    ids=["both", "one is inconclusive", "one is compared", "real", "did not alternate", "none"],
)
def test_which_to_believe(
    separate: Report | None, alternate: Report | None, best: Report | None
) -> None:
    """The alternating run, unless only the separate ones are conclusive or were compared."""
    assert Answers(separate, alternate).best is best


@pytest.mark.parametrize(
    ("separate", "alternate", "agree"),
    [
        ((2.0, 1.9, 2.1), (2.2, 2.1, 2.3), True),
        ((2.0, 1.9, 2.1), (2.5, 2.4, 2.6), False),
        ((2.5, 2.4, 2.6), (2.0, 1.9, 2.1), False),
        ((2.0, None, None), (2.5, 2.4, 2.6), None),
        ((2.0, 1.9, 2.1), (2.5, None, None), None),
    ],
)
def test_they_agree_where_their_intervals_meet(
    separate: tuple[float | None, ...], alternate: tuple[float | None, ...], agree: bool | None
) -> None:
    answers = Answers(claiming(SEPARATE, *separate), claiming(ALTERNATING, *alternate))
    assert answers.agree is agree


def test_how_far_they_are_apart() -> None:
    """A ratio, whichever is the larger."""
    answers = Answers(claiming(SEPARATE, 3.0, 2.9, 3.1), claiming(ALTERNATING, 2.0, 1.9, 2.1))
    assert answers.apart == pytest.approx(1.5)


def test_what_is_compared_is_of_the_same_span() -> None:
    """The steady state, where one of them does not know what epoch starts cost."""
    whole = claiming(ALTERNATING, 3.0, 2.9, 3.1, steady=2.0)
    steady = claiming(SEPARATE, 2.1, 2.0, 2.2, of_epochs=False, steady=2.1)
    assert Answers(steady, whole).apart == pytest.approx(1.05)


@pytest.mark.parametrize("separate", [None, LOGGED, claiming(SEPARATE)])
def test_one_answer_agrees_with_nothing(separate: Report | None) -> None:
    answers = Answers(separate, ALTERNATING)
    assert (answers.speedups, answers.agree, answers.apart) == (None, None, None)


def test_the_machine_is_judged_for_the_loader_that_was_measured() -> None:
    """Its prefetch depth is that of all its workers."""
    plan = plan_of(LoaderInfo("x", workers=3, prefetch_depth=12))
    assert (plan.workers, plan.prefetch) == (3, 4)


@pytest.mark.parametrize("workers", [None, 0, 4])
def test_what_is_not_known_of_it_is_assumed(workers: int | None) -> None:
    plan = plan_of(LoaderInfo("x", workers=workers))
    assert (plan.workers, plan.prefetch) == (workers, DEFAULT_PREFETCH)
