"""Which batches count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadeval.data.lines import Arm, Cause, EpochEnd, Event, Window
from loadeval.data.run import Run
from loadeval.estimate.steady import (
    closed_steps,
    length_of_epochs,
    steady,
    steps_left_out,
    warmup_of,
    whole_windows,
)
from tests.builder import MS, run_of, steps


def test_of_a_log_all_but_the_warm_up_of_each_epoch_count() -> None:
    """A step that was still open does not."""
    epochs = [steps("real", 1, [1] * 9 + [-1], epoch=epoch) for epoch in (0, 1)]
    rows = steady(run_of(epochs, mode="log", warmup=4))
    assert rows.tolist() == [*[False] * 4, *[True] * 5, False] * 2


def test_what_is_computed_once_cannot_be_written_to() -> None:
    """Who asks next gets the same array."""
    rows = steady(run_of([steps("real", 1, 1, 9)], mode="log"))
    with pytest.raises(ValueError, match="read-only"):
        rows[0] = True


def evaluated(times_ms: list[float]) -> Run:
    """Twenty batches of each arm, of 100 ms, with an evaluation at each time."""
    arms: tuple[Arm, ...] = ("real", "ideal")
    pairs = [steps(arm, 30, 70, 10, pair=pair) for pair in (0, 1) for arm in arms]
    events = tuple(Event(round(ms * MS), "it was read", "within a step") for ms in times_ms)
    windows = tuple(Window(pair, 0, "real", 1000 * MS) for pair in (0, 1))
    return run_of(pairs, events=events, windows=windows)


def test_a_step_in_which_training_evaluated_does_not_count() -> None:
    """Nor does the window that it is in, for what evaluates was busy in it."""
    run = evaluated([350, 380])
    assert steps_left_out(run).tolist() == [3]
    assert (steady(run).sum(), closed_steps(run)[3]) == (19, False)
    assert [window.pair for window in whole_windows(run, "real")] == [1]
    assert [window.pair for window in whole_windows(evaluated([]), "real")] == [0, 1]


def test_what_comes_between_steps_leaves_none_out() -> None:
    """In a wait, or after the last one."""
    assert not len(steps_left_out(evaluated([0, 210, 4000])))


@pytest.mark.parametrize(("count", "left_out"), [(8, 8), (9, 0)])
def test_what_comes_in_many_steps_is_a_part_of_training(count: int, left_out: int) -> None:
    """Such as a second loader that is read for each batch."""
    assert len(steps_left_out(evaluated([100 * step + 50 for step in range(count)]))) == left_out


def epochs_of(batches: int, count: int, cause: Cause = "exhausted", **known: Any) -> Run:
    ends = tuple(EpochEnd(epoch, cause) for epoch in range(count))
    epochs = [steps("real", 1, 1, batches, epoch=epoch) for epoch in range(count)]
    return run_of(epochs, ends=ends, **{"mode": "log", "warmup": 17, "prefetch_depth": 16, **known})


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (epochs_of(5, 6), 1),
        (epochs_of(1, 6), 0),
        (epochs_of(5, 6, warmup=40), 40),  # which was asked for
    ],
)
def test_of_epochs_that_end_before_the_queue_is_full_the_first_batch_is_warm_up(
    run: Run, expected: int
) -> None:
    assert warmup_of(run) == expected


def test_how_long_epochs_are() -> None:
    """Those that ended count, or those that training left where there are several."""
    assert length_of_epochs(epochs_of(5, 2)) == 5
    assert length_of_epochs(epochs_of(5, 2, "broken off")) is None
    left = epochs_of(5, 3, "broken off")
    assert length_of_epochs(left) == 5
    assert length_of_epochs(replace(left, ends=(*left.ends[:2], EpochEnd(2, "exhausted")))) == 5


def test_an_epoch_whose_end_is_in_a_window_of_time_is_as_long_as_it_was() -> None:
    """Here it begins amid the first of two epochs."""
    ends = tuple(
        EpochEnd(epoch, "exhausted", request_ns=(epoch + 1) * 200 * MS) for epoch in (0, 1)
    )
    run = replace(epochs_of(100, 2), ends=ends)
    assert length_of_epochs(run.between(0.15, 0.25)) == 100
