"""Which batches count, and what a run tells of its epochs and of the batches that took longest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.lines import Arm, Cause, EpochEnd, Event, Window
from loadeval.data.run import STAGES, Run
from loadeval.estimate.steady import (
    closed_steps,
    epochs,
    first_waits,
    length_of_epochs,
    outliers,
    steady,
    steps_left_out,
    warmup_of,
    whole_windows,
    workers_started,
)
from tests.builder import MS, alternating, logged, run_of, steps


def test_of_a_log_all_but_the_warm_up_of_each_epoch_count() -> None:
    """A step that was still open does not."""
    blocks = [steps("real", 1, [1] * 9 + [-1], epoch=epoch) for epoch in (0, 1)]
    rows = steady(run_of(blocks, mode="log", warmup=4))
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
    blocks = [steps("real", 1, 1, batches, epoch=epoch) for epoch in range(count)]
    return run_of(blocks, ends=ends, **{"mode": "log", "warmup": 17, "prefetch_depth": 16, **known})


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


def test_a_table_by_epoch() -> None:
    """Of 3 and 2 batches; the second epoch was left while its last step was open."""
    run = run_of(
        [steps("real", [100, 5, 5], [10, 10, 20]), steps("real", [50, 5], [10, -1], epoch=1)],
        mode="log",
        ends=(EpochEnd(0, "exhausted", None, 10 * MS), EpochEnd(1, "broken off")),
    )
    table = epochs(run)
    assert {name: table[name].tolist() for name in ("epoch", "batches", "total_ns")} == {
        "epoch": [0, 1],
        "batches": [3, 2],
        "total_ns": [160 * MS, 65 * MS],
    }
    assert table.mean_ns.tolist() == [50 * MS, 60 * MS]
    assert table.std_ns[0] == pytest.approx(np.std([110, 15, 25], ddof=1) * MS)
    assert np.isnan(table.std_ns[1])
    assert table.samples_per_s.tolist() == pytest.approx([12 / 0.16, 8 / 0.065])
    assert table.batches_per_s.tolist() == pytest.approx([3 / 0.16, 2 / 0.065])


def test_epoch_starts_are_those_of_the_loader() -> None:
    """A batch that was ready when the loader was wrapped shows none."""
    run = alternating(wait=5, first=105)
    assert first_waits(run).tolist() == [105 * MS] * 8
    ready = alternating(wait=5, first=105, ready_batches=3)
    assert first_waits(ready).tolist() == [105 * MS] * 7


@pytest.mark.parametrize(
    ("known", "count"),
    [
        ({"start_method": "fork"}, 16),
        ({"start_method": "fork", "persistent_workers": True}, 2),
        ({"start_method": None}, None),
    ],
    ids=["in each epoch", "persistent", "threads, maybe"],
)
def test_how_many_workers_were_started(known: dict[str, Any], count: int | None) -> None:
    assert workers_started(alternating(first=105, **known)) == count


def looked_into(run: Run) -> Columns:
    """Two workers load in turns."""
    count = len(run.steps)
    columns = {name: np.full(count, UNKNOWN) for name in STAGES}
    delivered_ns = run.steps.request_ns + run.steps.wait_ns
    return Columns({**columns, "delivered_ns": delivered_ns, "worker": np.arange(count) % 2})


def test_the_worker_of_each_outlier() -> None:
    waits = np.full(60, 5.0)
    waits[[20, 41]] = 40, 100
    run = logged(waits)
    found = outliers(run)
    assert (found.row.tolist(), found.worker.tolist()) == ([20, 41], [UNKNOWN, UNKNOWN])
    assert found.times_median.tolist() == pytest.approx([50 / 15, 110 / 15])
    assert (found.batch.tolist(), found.wait_ns.tolist()) == (
        [20, 41],
        run.steps.wait_ns[[20, 41]].tolist(),
    )
    seen = logged(waits, stages=looked_into(run))
    assert outliers(seen).worker.tolist() == [0, 1]
