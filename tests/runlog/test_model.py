"""Blocks become steps, open steps are closed, and steps become blocks again."""

from __future__ import annotations

import numpy as np
import pytest

from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import Arm, Block, EpochEnd, GpuIdle, Readings, Steps, join_readings
from tests.runs import given


def block(
    requests: list[int],
    epoch: int = 0,
    arm: Arm = "real",
    steps: list[int] | None = None,
    pair: int | None = None,
) -> Block:
    """Batches that waited 10 each, their steps open unless given."""
    known = {"epoch": epoch, "samples": 4, "nbytes": 64}
    steps = [UNKNOWN] * len(requests) if steps is None else steps
    return given.block(arm, 10, steps, request_ns=requests, pair=pair, **known)


@pytest.mark.parametrize(
    ("blocks", "ends", "steps"),
    [
        ([block([0, 17]), block([30])], [], [7, 3, UNKNOWN]),
        ([block([0, 17])], [EpochEnd(0, "exhausted", 31, 2)], [7, 4]),
        ([block([0, 17])], [EpochEnd(0, "failed", 31, 2)], [7, 4]),
        ([block([0, 17])], [EpochEnd(0, "unmeasured", 31, 0)], [7, 4]),
        (
            [block([0, 17]), block([100], epoch=1)],
            [EpochEnd(0, "broken off"), EpochEnd(1, "exhausted", 112, 0)],
            [7, UNKNOWN, 2],
        ),
        (
            [block([0, 17], steps=[1, 2]), block([30, 50], steps=[UNKNOWN, 9])],
            [EpochEnd(0, "exhausted", 90, 0)],
            [1, 2, 10, 9],
        ),
        ([block([0])], [EpochEnd(1, "exhausted", 500, 2)], [UNKNOWN]),
        ([block([UNKNOWN] * 2)], [EpochEnd(0, "exhausted", 90, 0)], [UNKNOWN, UNKNOWN]),
        ([], [EpochEnd(0, "exhausted", 5, 1)], []),
    ],
    ids=[
        "by the next request, in another block too",
        "by the request that found the epoch exhausted",
        "by the request that failed",
        "by the first request that was not measured",
        "not by the next epoch",
        "a known step stays",
        "not by the end of another epoch",
        "not where requests are unknown",
        "no batch",
    ],
)
def test_open_steps_are_closed(blocks: list[Block], ends: list[EpochEnd], steps: list[int]) -> None:
    """A step is the time from a delivery to the next request of its epoch, if there is one."""
    before = [block.step_ns.tolist() for block in blocks]
    assert Steps.from_blocks(blocks, ends).step_ns.tolist() == steps
    assert [block.step_ns.tolist() for block in blocks] == before


def test_interleaved_epochs_come_out_in_order() -> None:
    blocks = [
        block([1], epoch=1, arm="ideal"),
        block([0, 20], epoch=0),
        block([15], epoch=1, arm="ideal"),
        block([45], epoch=0),
    ]
    steps = Steps.from_blocks(blocks, [EpochEnd(1, "exhausted", 31, 0)])
    assert steps.epoch.tolist() == [0, 0, 0, 1, 1]
    assert steps.arm.tolist() == [0, 0, 0, 1, 1]
    assert steps.request_ns.tolist() == [0, 20, 45, 1, 15]
    assert steps.step_ns.tolist() == [10, 15, UNKNOWN, 4, 6]


def test_blocks_are_as_few_as_can_be() -> None:
    """One for what follows on one another in an epoch, arm and pair; together the same steps."""
    given = [
        block([0, 20]),
        block([40]),
        block([60], arm="ideal"),
        block([80]),
        block([100], pair=3),
        block([120], pair=4),
        block([140], pair=4),
        block([200], epoch=1),
    ]
    steps = Steps.from_blocks(given, [])
    blocks = steps.blocks()
    assert [(block.epoch, block.arm, block.pair, len(block)) for block in blocks] == [
        (0, "real", None, 3),
        (0, "ideal", None, 1),
        (0, "real", None, 1),
        (0, "real", 3, 1),
        (0, "real", 4, 2),
        (1, "real", None, 1),
    ]
    again = Steps.from_blocks(blocks, [])
    for name in Steps.__slots__:
        assert getattr(again, name).tolist() == getattr(steps, name).tolist()


def readings(
    *times: int, subject: str = "GPU 0", missing: str | None = None, **values: list[float]
) -> Readings:
    columns = {name: np.array(column, np.float64) for name, column in values.items()}
    return Readings("gpu", subject, np.array(times, np.int64), columns, missing)


def test_readings_are_joined_by_probe_and_subject() -> None:
    """Parts follow one another; a quantity that one part lacks is not known there."""
    parts = [
        readings(1, 2, power_watts=[10, 20]),
        readings(2, subject="GPU 1", power_watts=[5]),
        readings(3, sm_clock_hz=[7]),
        readings(missing="GPU is lost"),
    ]
    first, second = join_readings(parts)
    assert (first.subject, first.time_ns.tolist(), first.missing) == (
        "GPU 0",
        [1, 2, 3],
        "GPU is lost",
    )
    nan = float("nan")
    for name, values in (("power_watts", [10, 20, nan]), ("sm_clock_hz", [nan, nan, 7])):
        np.testing.assert_array_equal(first.values[name], values)
    assert (second.subject, second.time_ns.tolist(), second.missing) == ("GPU 1", [2], None)
    assert {name: column.tolist() for name, column in second.values.items()} == {"power_watts": [5]}
    assert join_readings([]) == ()


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([(0, 0, [1, 2]), (0, 2, [3, 4, 5]), (0, 9, [6])], [(0, 0, [1, 2, 3])]),
        ([(0, 1, [0, 2])], [(0, 0, [UNKNOWN, 0, 2])]),
        ([(0, 1, [5]), (2, 0, [6, 7])], [(0, 0, [UNKNOWN, 5, UNKNOWN]), (2, 0, [6, 7, UNKNOWN])]),
    ],
    ids=["of batches whose line was lost", "unknown is not 0", "no line for an unknown epoch"],
)
def test_gpu_idle_times_are_those_of_the_batches(
    told: list[tuple[int, int, list[int]]], expected: list[tuple[int, int, list[int]]]
) -> None:
    """Steps have what is known of them, and tell it epoch by epoch."""
    lines = [
        GpuIdle(epoch, first, np.array(times), np.array(times)) for epoch, first, times in told
    ]
    blocks = [block([0, 20, 40], epoch=epoch) for epoch in range(3)]
    idle_times = Steps.from_blocks(blocks, (), lines).gpu_idle()
    assert [(idle.epoch, idle.first, idle.gpu_idle_ns.tolist()) for idle in idle_times] == expected
