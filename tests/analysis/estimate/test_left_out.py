"""Steps in which training did something else than train."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.estimate.cautions import Caution
from loadeval.analysis.estimate.headroom import headroom
from loadeval.analysis.estimate.steady import closed_steps, steps_left_out, whole_windows
from loadeval.analysis.estimate.summary import summarise
from loadeval.analysis.predict.cpus import CpuUse
from loadeval.data.lines import Block, Event, LoaderInfo, Window
from loadeval.report.wording.verdict import cautions
from tests.analysis.numbers import bounds, codes, value
from tests.runs.given import MS, block, run_of
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.data.lines import Arm, Mode
    from loadeval.data.run import Run

LONG = 10_000
"""Milliseconds that an evaluation takes."""


def eight(arm: Arm, pair: int | None, start_ms: int, wait: int, step: int, long: int = -1) -> Block:
    """Eight batches; the step of the one called `long` has an evaluation in it."""
    steps_ns = [(step + LONG * (number == long)) * MS for number in range(8)]
    return block(arm, wait * MS, steps_ns, request_ns=start_ms * MS, pair=pair, samples=4)


def evaluated(mode: Mode = "alternate", *, is_noted: bool = True) -> Run:
    """Eight pairs, in two of which a step has an evaluation, and a real block before them."""
    blocks = [eight("real", None, 0, 30, 70)]
    for pair in range(8):
        start_ms = (1 + 2 * pair) * 20_000
        real, ideal = (3, -1) if pair == 2 else (-1, 5) if pair == 5 else (-1, -1)
        blocks += [
            eight("real", pair, start_ms, 30, 70, real),
            eight("ideal", pair, start_ms + 20_000, 0, 50, ideal),
        ]
    if mode == "log":
        blocks = [replace(block, pair=None) for block in blocks if block.arm == "real"]
    steps = run_of(blocks).steps
    long_ns = (steps.request_ns + steps.wait_ns)[steps.step_ns > LONG * MS]
    events = [Event(int(time_ns) + MS, "it was read", "within a step") for time_ns in long_ns]
    windows = tuple(
        Window(pair, 0, arm, 800 * MS, 0 if arm == "ideal" else 400 * MS)
        if pair not in {2, 5}
        else Window(pair, 0, arm, 10_800 * MS, 9_000 * MS)
        for pair in range(8)
        for arm in ("real", "ideal")
    )
    loader = LoaderInfo("x", workers=2, prefetch_depth=4)
    run = run_of(blocks, mode=mode, loader=loader, windows=windows)
    return replace(run, events=tuple(events if is_noted else []))


def test_a_step_with_an_evaluation_is_left_out() -> None:
    """It is left out in either arm; the others tell what they would without it."""
    result = headroom(evaluated())
    assert value(result.speedup) == pytest.approx(2.0)
    assert bounds(result.speedup) == pytest.approx((2.0, 2.0))
    assert (result.real_batches, result.ideal_batches) == (63, 63)
    assert result.verdict.objection is None
    untold = headroom(evaluated(is_noted=False))
    low, high = bounds(untold.speedup)
    assert high / low > 2


def test_what_was_left_out_is_said() -> None:
    result = headroom(evaluated())
    assert Caution.STEPS_LEFT_OUT in codes(result.cautions)
    assert "Steps left out: 2, of 10.1 s on average, in which it was read." in cautions(result)
    assert Caution.STEPS_LEFT_OUT not in codes(headroom(evaluated(is_noted=False)).cautions)


def test_windows_with_such_a_step_tell_nothing_of_cpus() -> None:
    """The evaluation's own workers were busy in them."""
    run = evaluated()
    assert {window.pair for window in whole_windows(run, "ideal")} == {0, 1, 3, 4, 6, 7}
    assert headroom(run).verdict.workers_busy is None
    assert CpuUse.of(run).computing == pytest.approx(0.5)


def test_a_log_leaves_them_out_too() -> None:
    summary = summarise(evaluated("log"))
    assert summary.step_ns == 70 * MS


@pytest.mark.parametrize("share", [0.2, 0.25])
def test_what_comes_in_many_steps_is_a_part_of_them(share: float) -> None:
    """Such as a second loader that is read anew for each batch."""
    run = evaluated("log")
    begin_ns = run.steps.request_ns + run.steps.wait_ns
    count = int(share * len(run.steps))
    events = tuple(Event(int(ns), "x", "within a step") for ns in begin_ns[:count])
    left_out = steps_left_out(replace(run, events=events))
    assert len(left_out) == (count if share <= 0.2 else 0)


def test_what_comes_between_steps_leaves_none_out() -> None:
    """Before the first batch, in a wait, or after the last one."""
    run = evaluated("log")
    first, last = run.steps.request_ns[0], run.steps.request_ns[-1]
    times = (0, int(first) + MS, int(last) + 200 * MS)
    run = replace(run, events=tuple(Event(ns, "x", "within a step") for ns in times))
    assert not len(steps_left_out(run))
    assert closed_steps(run).all()
    assert not len(steps_left_out(run_of()))
