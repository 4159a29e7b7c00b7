"""Every rule asked of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.rules.diagnosis import RULES, diagnose
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]


def test_a_clean_run_has_no_finding(alternating: MakeRun) -> None:
    """And every rule is told as checked, in order."""
    found = diagnose(alternating(alone=20))
    assert found.findings == ()
    assert [check.rule for check in found.checks] == [rule.name for rule in RULES]
    assert all(check.question.endswith("?") for check in found.checks)
    assert {check.outcome for check in found.checks} == {"nothing found", "not measured"}
    assert all(bool(check.reason) == (check.outcome == "not measured") for check in found.checks)


def test_the_costliest_comes_first(alternating: MakeRun) -> None:
    """Those of which the cost is not known come last, the severest first."""
    run = alternating(wait=60, real=60, ideal=50, alone=80, workers=9)
    found = diagnose(run).findings
    assert [one.rule for one in found] == ["capacity", "contention", "too many workers"]
    assert [one.cost_share for one in found[:2]] == pytest.approx([60 / 120, 10 / 120])
    outcomes = {check.rule: check.outcome for check in diagnose(run).checks}
    assert [rule for rule, one in outcomes.items() if one == "found"] == [
        "capacity",
        "contention",
        "too many workers",
    ]


def test_a_finding_bears_the_name_of_its_rule(alternating: MakeRun) -> None:
    """By which its check is found."""
    run = alternating(wait=60, real=60, ideal=50, alone=80, workers=9)
    assert {one.rule for one in diagnose(run).findings} < {rule.name for rule in RULES}


@pytest.mark.parametrize(("pairs", "more"), [(1, 32), (2, 16)])
def test_under_three_pairs_a_loss_is_told(alternating: MakeRun, pairs: int, more: int) -> None:
    """There is no interval, so it is but possible, and how many batches give one is told."""
    run = alternating(wait=240, real=120, ideal=60, alone=300, pairs=pairs)
    found = diagnose(run).findings
    assert [one.rule for one in found] == ["capacity", "contention"]
    assert {one.confidence for one in found} == {"possible"}
    assert [one.cost_share for one in found] == pytest.approx([240 / 360, 60 / 360])
    end = f"pairs were measured, so there is no interval: about {more} more batches give one."
    assert all(one.sentence.endswith(end) for one in found)


def test_two_short_runs_tell_a_loss(make_run: MakeRun) -> None:
    """There too it is but possible."""
    real, ideal = make_run([400] * 4, 100), make_run([0] * 4, 100, mode="replay")
    (found,) = diagnose(real, ideal).findings
    assert (found.rule, found.confidence) == ("waiting", "possible")
    assert found.sentence.endswith("have no interval: more batches in both give one.")


def test_with_three_pairs_a_loss_is_sure(alternating: MakeRun) -> None:
    """Nothing is added then."""
    found = diagnose(alternating(wait=50, real=60, ideal=50, alone=100, pairs=3)).findings
    assert not any("no interval" in one.sentence for one in found)
    assert found[-1].confidence == "measured"


def test_no_finding_is_without_evidence(alternating: MakeRun, make_run: MakeRun) -> None:
    """Each has a figure that shows it."""
    samples = [1 + number % 7 for number in range(70)]
    real = make_run([50] * 70, [100 * count for count in samples], samples=samples)
    found = [
        *diagnose(alternating(wait=60, real=60, ideal=50, alone=80, workers=9)).findings,
        *diagnose(real, make_run([0] * 70, 100, mode="replay")).findings,
        *diagnose(make_run([50] * 40)).findings,
    ]
    assert len(found) >= 6
    assert all(one.evidence for one in found)


def test_a_replayed_run_tells_nothing_of_its_loader(make_run: MakeRun) -> None:
    """It loaded nothing."""
    found = diagnose(make_run([0] * 40, mode="replay"))
    assert found.findings == ()
    assert {check.reason for check in found.checks} == {
        "this run replayed kept batches, and loaded nothing"
    }


def test_an_empty_run_has_no_finding(make_run: MakeRun) -> None:
    """No rule stumbles over it."""
    assert diagnose(make_run([])).findings == ()


def test_two_runs_that_cannot_be_compared(make_run: MakeRun) -> None:
    """The error is that of comparing them."""
    with pytest.raises(UsageError, match="expected a run with mode='replay' as the ideal one"):
        diagnose(make_run([0] * 40), make_run([0] * 40))
