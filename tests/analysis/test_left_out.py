"""Steps in which training did something else than train."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.cpus import CpuUse
from loadeval.analysis.headroom import Caution, headroom
from loadeval.analysis.summary import closed_steps, steps_left_out, summarise, whole_windows
from loadeval.report.wording.verdict import cautions
from loadeval.runlog.model import Block, Event, Header, LoaderInfo, Run, Steps, Window
from tests.analysis.numbers import bounds, codes, value

if TYPE_CHECKING:
    from loadeval.runlog.model import Arm, Mode

MS = 1_000_000
LONG = 10_000
"""Milliseconds that an evaluation takes."""


def block(arm: Arm, pair: int | None, start_ms: int, wait: int, step: int, long: int = -1) -> Block:
    """Eight batches; the step of the one called `long` has an evaluation in it."""
    steps = np.full(8, step * MS)
    if long >= 0:
        steps[long] += LONG * MS
    waits = np.full(8, wait * MS)
    request_ns = start_ms * MS + np.concatenate([[0], np.cumsum(waits + steps)[:-1]])
    sizes = np.full(8, 4), np.full(8, 10)
    return Block(0, arm, request_ns, waits, steps, *sizes, pair)


def evaluated(mode: Mode = "alternate", *, is_noted: bool = True) -> Run:
    """Eight pairs, in two of which a step has an evaluation, and a real block before them."""
    blocks = [block("real", None, 0, 30, 70)]
    for pair in range(8):
        start_ms = (1 + 2 * pair) * 20_000
        real, ideal = (3, -1) if pair == 2 else (-1, 5) if pair == 5 else (-1, -1)
        blocks += [
            block("real", pair, start_ms, 30, 70, real),
            block("ideal", pair, start_ms + 20_000, 0, 50, ideal),
        ]
    if mode == "log":
        blocks = [replace(one, pair=None) for one in blocks if one.arm == "real"]
    steps = Steps.from_blocks(blocks, [])
    long_ns = (steps.request_ns + steps.wait_ns)[steps.step_ns > LONG * MS]
    events = [Event(int(time_ns) + MS, "it was read", "within a step") for time_ns in long_ns]
    windows = tuple(
        Window(pair, 0, arm, 800 * MS, 0 if arm == "ideal" else 400 * MS)
        if pair not in {2, 5}
        else Window(pair, 0, arm, 10_800 * MS, 9_000 * MS)
        for pair in range(8)
        for arm in ("real", "ideal")
    )
    header = Header(
        "id", "run", mode, "", "images", 1, LoaderInfo("x", workers=2, prefetch_depth=4)
    )
    return Run(header, steps, events=tuple(events if is_noted else []), windows=windows)


def test_a_step_with_an_evaluation_is_left_out() -> None:
    """In either arm; the others tell what they would without it."""
    found = headroom(evaluated())
    assert value(found.speedup) == pytest.approx(2.0)
    assert bounds(found.speedup) == pytest.approx((2.0, 2.0))
    assert (found.real_batches, found.ideal_batches) == (63, 63)
    assert found.verdict.objection is None
    untold = headroom(evaluated(is_noted=False))
    low, high = bounds(untold.speedup)
    assert high / low > 2


def test_what_was_left_out_is_said() -> None:
    found = headroom(evaluated())
    assert Caution.STEPS_LEFT_OUT in codes(found.cautions)
    assert "Steps left out: 2, of 10.1 s on average, in which it was read." in cautions(found)
    assert Caution.STEPS_LEFT_OUT not in codes(headroom(evaluated(is_noted=False)).cautions)


def test_windows_with_such_a_step_tell_nothing_of_cpus() -> None:
    """The evaluation's own workers were busy in them."""
    run = evaluated()
    assert {one.pair for one in whole_windows(run, "ideal")} == {0, 1, 3, 4, 6, 7}
    assert headroom(run).verdict.workers_busy is None
    assert CpuUse.of(run).computing == pytest.approx(0.5)


def test_a_log_leaves_them_out_too() -> None:
    found = summarise(evaluated("log"))
    assert found.step_ns == 70 * MS


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
    assert not len(steps_left_out(replace(run, steps=Steps.from_blocks([], []))))
