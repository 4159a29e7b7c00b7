"""Times of a loader's stages: their parts, what they count from, and what no log can hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadeval import CodeSamples, Readings, RunLogError, StageTimes, WorkerStart
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.log_file.codec import check_readable
from loadeval.runlog.stages import MOMENTS

NAN = float("nan")


def times(epoch: int, batch: list[int], **known: Any) -> StageTimes:
    """Batches that take as many nanoseconds to fetch as their number."""
    return StageTimes.of(epoch, batch, fetch_ns=batch, **known)


def named(**columns: list[float]) -> dict[str, Any]:
    return {name: np.array(column, np.float64) for name, column in columns.items()}


def test_what_is_not_given_is_unknown() -> None:
    times = StageTimes.of(3, [0, 1], fetch_ns=[5, 6])
    assert (times.epoch, len(times), times.fetch_ns.tolist()) == (3, 2, [5, 6])
    assert times.worker.tolist() == times.requested_ns.tolist() == [UNKNOWN] * 2
    assert times.transform_ns == times.transform_calls == {}


def test_each_epoch_is_joined_with_its_batches_in_order() -> None:
    """Epochs too, however the parts came."""
    first, second = StageTimes.joined(
        [times(1, [1]), times(0, [2, 0]), times(1, [0]), times(0, [1])]
    )
    assert (first.epoch, first.batch.tolist(), first.fetch_ns.tolist()) == (0, [0, 1, 2], [0, 1, 2])
    assert (second.epoch, second.batch.tolist(), second.fetch_ns.tolist()) == (1, [0, 1], [0, 1])
    assert StageTimes.joined([]) == ()


def test_a_transform_that_a_part_lacks_is_not_known_there() -> None:
    (joined,) = StageTimes.joined(
        [
            times(0, [2], transform_ns=named(crop=[7]), transform_calls=named(crop=[4])),
            times(0, [0, 1], transform_ns=named(flip=[5, 6]), transform_calls=named(flip=[1, 2])),
        ]
    )
    np.testing.assert_array_equal(joined.transform_ns["crop"], [NAN, NAN, 7])
    np.testing.assert_array_equal(joined.transform_ns["flip"], [5, 6, NAN])
    np.testing.assert_array_equal(joined.transform_calls["crop"], [NAN, NAN, 4])


@pytest.mark.parametrize("rows", [[0, 2], np.array([True, False, True]), slice(None, None, 2)])
def test_a_part_has_the_rows_of_every_column(rows: Any) -> None:
    """Rows are chosen by their numbers, a mask or a slice; the whole stays as it was."""
    whole = times(4, [5, 6, 7], worker=[0, 1, 0], transform_ns=named(crop=[1, 2, 3]))
    part = whole.part(rows)
    assert (part.epoch, part.batch.tolist(), part.worker.tolist()) == (4, [5, 7], [0, 0])
    assert part.transform_ns["crop"].tolist() == [1, 3]
    assert len(whole) == 3


def test_moments_count_from_the_start_of_the_run() -> None:
    """Durations stay as they are, and what is not known stays unknown."""
    known: dict[str, Any] = {name: [100, UNKNOWN] for name in MOMENTS}
    times = StageTimes.of(0, [0, 1], fetch_ns=[100, 100], **known).since(30)
    for name in MOMENTS:
        assert getattr(times, name).tolist() == [70, UNKNOWN]
    assert times.fetch_ns.tolist() == [100, 100]
    start = WorkerStart(0, 1, start_ns=100, starting_ns=5, ready_ns=120, init_ns=2)
    assert start.since(30) == WorkerStart(0, 1, 70, 5, 90, 2)
    sent = replace(start, pickling_start_ns=102, pickling_ns=3, sent_bytes=9, unpickling_ns=4)
    assert sent.since(30) == WorkerStart(0, 1, 70, 5, 90, 2, 72, 3, 9, 4)
    code = CodeSamples(0, {"data.py:31 __getitem__": 2}, {})
    assert code.since(30) is code


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            times(0, [0, UNKNOWN]),
            r"has \[0, -1\] as 'batch', where a column of whole numbers from 0",
        ),
        (times(0, [0, 1], pin_ns=[3, -2]), r"has \[3, -2\] as 'pin_ns', where .* from -1"),
        (times(0, [0, 1], pin_ns=[0, 2**62]), "as 'pin_ns', where"),
        (replace(times(0, [0]), pin_ns=np.array([1.5])), r"has \[1.5\] as 'pin_ns', where"),
        (times(0, [0, 1], worker=[1]), "has 1 values in 'worker' and 2 in 'batch'"),
        (
            times(0, [0, 1], transform_ns=named(crop=[1.5]), transform_calls=named(crop=[1])),
            "has 1 values in 'transform_ns: crop' and 2 in 'batch'",
        ),
        (WorkerStart(0, 0, start_ns=-5, starting_ns=0, ready_ns=0, init_ns=0), "-5 as 'start_ns'"),
        (CodeSamples(0, {"data.py:31 __getitem__": -1}, {}), "-1 as 'running'"),
        (Readings("loader", "queue", np.array([-5]), named(batches=[1])), "-5 as 'time_ns'"),
    ],
    ids=str,
)
def test_what_would_make_a_log_unreadable_is_an_error(line: Any, message: str) -> None:
    with pytest.raises(RunLogError, match=message):
        check_readable(line)


def test_what_a_log_can_hold_is_none() -> None:
    """No batch, what is not known, counts of NumPy's."""
    check_readable(times(0, []))
    check_readable(times(0, [0], transform_ns=named(crop=[NAN]), transform_calls=named(crop=[0])))
    counts: Any = {"data.py:31 __getitem__": np.int64(3)}
    check_readable(CodeSamples(0, counts, {}))
