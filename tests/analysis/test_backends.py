"""Backends side by side: results, differences, and their order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.backends import BATCHES, NO_EPOCH_START, NO_PACE, BackendResult, Difference, comparison_of, differences, failed, of_one_comparison, ranked, result_of, unit_of
from loadeval.analysis.findings.case import NO_IDEAL
from loadeval.analysis.headroom import headroom
from loadeval.analysis.stats import Estimate
from loadeval.errors import UsageError
from loadeval.runlog.model import (
    UNKNOWN,
    Block,
    Event,
    Header,
    LoaderInfo,
    Prefetch,
    Run,
    Steps,
)
from loadeval.runtime.backends import FAILURE

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000_000
IN_PROCESS = LoaderInfo("loader", workers=0)


def block(arm: Any, number: int | None, iteration_ms: float, samples: int) -> Block:
    """Ten batches."""
    step, zero = np.full(10, round(iteration_ms * MS)), np.zeros(10, np.int64)
    return Block(0, arm, zero, zero, step, np.full(10, samples), zero, number)


def turns(
    real_ms: float = 20,
    *,
    rounds: int = 4,
    samples: int = 4,
    comparison: str | None = "one",
    loader: LoaderInfo = IN_PROCESS,
    unit: str = "images",
    events: tuple[Event, ...] = (),
) -> Run:
    """A backend's run: an uncounted block, then rounds, of an ideal pace of 10 ms."""
    blocks = [block("real", None, 300, samples)]
    for number in range(rounds):
        blocks += [block("real", number, real_ms, samples), block("ideal", number, 10, samples)]
    settings: dict[str, Any] = {} if comparison is None else {"comparison": comparison}
    header = Header("id", "turns", "alternate", "", unit, 1, loader, settings=settings)
    prefetches = tuple(Prefetch(number, 0, 10, 10, 100 * MS, 40) for number in range(rounds))
    return Run(header, Steps.from_blocks(blocks, []), events=events, prefetches=prefetches)


def test_a_run_in_turns_tells_all_paces() -> None:
    """In samples per second, and its times as the headroom of the run has them."""
    run = turns()
    found, expected = result_of("torch", run, "images"), headroom(run)
    rates = (found.real, found.ideal, found.loader_only)
    assert [rate and rate.value for rate in rates] == pytest.approx([200, 400, 400])
    assert (found.name, found.run, found.error) == ("torch", run, None)
    for name in (
        "speedup",
        "lost_share",
        "real_ns",
        "ideal_ns",
        "loader_only_ns",
        "epoch_start_ns",
    ):
        assert getattr(found, name) == getattr(expected, name)
    assert (found.real_batches, found.ideal_batches) == (40, 40)
    assert (found.verdict, found.reason) == (expected.verdict, expected.reason)


def test_paces_can_be_in_batches() -> None:
    """Where the backends' samples cannot be compared."""
    found = result_of("torch", turns(), BATCHES)
    rates = (found.real, found.ideal, found.loader_only)
    assert [rate and rate.value for rate in rates] == pytest.approx([50, 100, 100])


def test_without_a_whole_round_nothing_is_told() -> None:
    """The reason says so."""
    found = result_of("torch", turns(rounds=0), BATCHES)
    assert found.real is found.ideal is found.loader_only is found.speedup is None
    assert found.verdict == "inconclusive"
    assert "too short for a pair of blocks" in found.reason


def test_a_loader_that_was_ready_has_no_epoch_start() -> None:
    """In turns its first batch is always there; a run by itself has other epochs."""
    ready = replace(IN_PROCESS, ready_batches=1)
    found = result_of("dali", turns(loader=ready), "images")
    assert found.epoch_start_ns is None
    assert NO_EPOCH_START in found.not_measured
    alone = result_of("dali", turns(loader=ready, comparison=None), "images")
    assert NO_EPOCH_START not in alone.not_measured


def test_a_log_run_has_a_real_pace_alone(make_run: Callable[..., Run]) -> None:
    """What else a comparison tells was not measured, and it says why."""
    found = result_of("torch", make_run([10] * 100, epochs=[50, 50]), "images")
    assert found.real is not None
    assert found.real.value == pytest.approx(4e7)
    assert found.ideal is found.loader_only is found.speedup is None
    assert (found.real_ns, found.epoch_start_ns, found.real_batches) == (100, 10, 100)
    assert (found.verdict, found.not_measured) == ("not measured", (NO_IDEAL,))


def test_a_log_run_without_batches_has_no_pace(make_run: Callable[..., Run]) -> None:
    """It says so."""
    found = result_of("torch", make_run([]), BATCHES)
    assert found.real is None
    assert found.epoch_start_ns is None
    assert found.not_measured == (NO_PACE, NO_IDEAL)


def test_a_run_that_replayed_is_an_error(make_run: Callable[..., Run]) -> None:
    """It tells nothing of a loader."""
    with pytest.raises(UsageError, match="the ideal run was recorded with mode='replay'"):
        result_of("the ideal run", make_run([1], mode="replay"), BATCHES)


def test_a_run_that_notes_a_failure_has_failed() -> None:
    """With the error, and without figures; other events are none."""
    note, other = Event(1, FAILURE + "OSError: gone"), Event(0, "something else")
    found = result_of("torch", turns(events=(other, note)), "images")
    assert (found.verdict, found.error, found.reason) == ("failed", *["OSError: gone"] * 2)
    assert found.real is None
    assert result_of("torch", turns(events=(other,)), "images").error is None


def test_samples_are_the_unit_where_all_know_theirs() -> None:
    """Under one name; else batches are. Runs in which nothing counts have no say."""
    assert unit_of([turns(), turns(rounds=0)]) == "images"
    assert unit_of([turns(), turns(samples=UNKNOWN)]) == BATCHES
    assert unit_of([turns(), turns(unit="videos")]) == BATCHES
    assert unit_of([turns(rounds=0)]) == unit_of([]) == BATCHES


def test_the_fastest_is_first() -> None:
    """Then the others, what was not measured, and what failed."""
    slow, fast = (result_of(name, turns(ms), "images") for name, ms in (("slow", 40), ("fast", 20)))
    results = [failed("broken", "OSError"), BackendResult("none"), slow, fast]
    assert [one.name for one in ranked(results)] == ["fast", "slow", "none", "broken"]


def test_differences_are_between_every_two() -> None:
    """Of those that were measured, each as the faster over the slower."""
    named = (("slow", turns(40)), ("fast", turns(20)), ("middle", turns(30)))
    results = [result_of(name, run, "images") for name, run in named]
    found = differences([*results, failed("broken", "OSError", turns())], "images")
    told = [(one.one, one.other) for one in found]
    assert told == [("fast", "middle"), ("fast", "slow"), ("middle", "slow")]
    assert [one.ratio.value for one in found] == pytest.approx([1.5, 2, 4 / 3])


def test_a_difference_is_shown_when_its_interval_leaves_1_out() -> None:
    """Without an interval nothing is shown."""
    cases = [((1.1, 1.3), True), ((0.5, 0.9), True), ((0.9, 1.4), False), ((None, None), False)]
    for (low, high), shown in cases:
        assert Difference("a", "b", Estimate(1.2, low, high)).shown is shown


def test_a_difference_in_words() -> None:
    """It says when none is shown."""
    assert str(Difference("a", "b", Estimate(1.2, 1.1, 1.3))) == (
        "a 1.20x [1.10x, 1.30x] as fast as b"
    )
    assert str(Difference("a", "b", Estimate(1.2, 0.9, 1.5))) == (
        "no difference shown between a and b: 1.20x [0.90x, 1.50x]"
    )
    assert str(Difference("a", "b", Estimate(1.2, None, None))) == (
        "a 1.20x as fast as b, too little measured for an interval"
    )


def test_what_runs_of_one_comparison_have_in_common() -> None:
    """Its name, in their settings; a run by itself has none."""
    assert comparison_of(turns()) == "one"
    assert comparison_of(turns(comparison=None)) is None
    assert of_one_comparison([turns(), turns()])
    assert not of_one_comparison([turns(), turns(comparison="other")])
    assert not of_one_comparison([turns(comparison=None)] * 2)
