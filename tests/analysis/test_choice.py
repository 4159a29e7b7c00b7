"""Backends that loadeval wrote: their order, their differences, and steps to imitate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadeval.analysis.backends import BackendReport, BackendResult, Difference
from loadeval.analysis.choice import (
    Candidate,
    RecordedStep,
    Standing,
    mean_of,
    recorded_step,
)
from loadeval.analysis.estimate.stats import Estimate
from loadeval.runlog.log_file.reader import read_run
from tests.chosen import ABSENT, CHOICE, QUICK, SLOW
from tests.runs import DEMO
from tests.runs.given import MS, block, make_run, run_of


def test_the_fastest_on_all_cpus_comes_first() -> None:
    assert [each.name for each in CHOICE.ranked] == ["quick", "slow"]
    assert CHOICE.fastest is QUICK


def test_two_are_compared_round_by_round() -> None:
    """What both share in a round is no difference."""
    (difference,) = CHOICE.differences
    assert (difference.one, difference.other) == ("quick", "slow")
    ratio = difference.ratio
    assert [ratio.value, ratio.low, ratio.high] == pytest.approx([2.0] * 3)


def test_under_a_step_training_decides() -> None:
    """Who loads slower by itself may train faster."""
    results = (
        BackendResult("slow", real=Estimate(50.0)),
        BackendResult("quick", real=Estimate(40.0)),
        BackendResult("other"),
    )
    ahead = Difference("slow", "quick", Estimate(1.25))
    trained = BackendReport(results, (ahead, Difference("x", "y", Estimate(1.0))), "images", ())
    other = replace(SLOW, name="other")
    choice = replace(CHOICE, candidates=(QUICK, SLOW, other), trained=trained)
    assert [each.name for each in choice.ranked] == ["slow", "quick", "other"]
    assert choice.differences == (ahead,)
    assert [(each.name, result.name) for each, result in choice.under_step] == [
        (name, name) for name in ("slow", "quick", "other")
    ]
    assert CHOICE.under_step == ()


def test_where_nothing_was_measured_nothing_is_fastest() -> None:
    choice = replace(CHOICE, candidates=(ABSENT, replace(SLOW, standing=Standing.FAILED)))
    assert choice.fastest is None
    assert choice.differences == ()


def test_without_a_round_on_all_cpus_it_is_last() -> None:
    empty = Candidate("empty", Standing.MEASURED, rounds={2: ()})
    assert empty.alone == {}
    assert replace(CHOICE, candidates=(empty, SLOW)).ranked[-1] is empty


def test_the_mean_of_rounds_has_an_interval() -> None:
    """By Student's t: with two rounds that differ by 20%, it is wide."""
    rate = mean_of([90.0, 110.0])
    assert rate.value == pytest.approx(99.5, abs=0.1)
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < 40
    assert rate.high > 200
    assert mean_of([1.0]) == Estimate(1.0)


def test_the_step_of_an_alternating_run_is_that_of_its_ideal_arm() -> None:
    blocks = [block("real", 0, 30 * MS, 10, pair=0, samples=4)]
    blocks += [block("ideal", 0, 10 * MS, 10, pair=0, samples=4)]
    assert recorded_step(run_of(blocks)) == RecordedStep(10 * MS, None, 4)


def test_the_step_of_a_logged_run_is_its_step() -> None:
    run = make_run([10] * 20)
    step = recorded_step(run)
    assert step is not None
    assert step.step_ns == 90


def test_a_run_that_was_looked_into_says_what_cpu_its_step_uses() -> None:
    step = recorded_step(read_run(DEMO))
    assert step is not None
    assert step.cpus is not None
    assert 0.5 < step.cpus < 2
    assert step.batch_size == 32


def test_without_batches_there_is_no_step() -> None:
    assert recorded_step(run_of()) is None
