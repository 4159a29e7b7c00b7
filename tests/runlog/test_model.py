"""Blocks become steps, open steps are closed, and steps become blocks again."""

from __future__ import annotations

import numpy as np

from loadeval.runlog.model import UNKNOWN, Arm, Block, EpochEnd, Header, LoaderInfo, Run, Steps


def block(
    requests: list[int], epoch: int = 0, arm: Arm = "real", steps: list[int] | None = None
) -> Block:
    """Batches that waited 10 each, their steps open unless given."""
    count = len(requests)
    return Block(
        epoch=epoch,
        arm=arm,
        request_ns=np.array(requests, dtype=np.int64),
        wait_ns=np.full(count, 10),
        step_ns=np.full(count, UNKNOWN) if steps is None else np.array(steps),
        samples=np.full(count, 4),
        nbytes=np.full(count, 64),
    )


def test_a_run_without_blocks_has_no_steps() -> None:
    """No block makes columns of length 0, and no block comes back."""
    steps = Steps.from_blocks([], [EpochEnd(0, "exhausted", 5, 1)])
    assert len(steps) == 0
    assert steps.blocks() == []


def test_open_steps_are_closed_by_the_next_request() -> None:
    """A step is the time from a delivery to the next request, across blocks too."""
    steps = Steps.from_blocks([block([0, 17]), block([30])], [])
    assert steps.step_ns.tolist() == [7, 3, UNKNOWN]


def test_the_last_step_is_closed_by_the_epoch_line() -> None:
    """The request that found the epoch exhausted, or failed, ends the last step."""
    for cause in ("exhausted", "failed"):
        steps = Steps.from_blocks([block([0, 17])], [EpochEnd(0, cause, 31, 2)])
        assert steps.step_ns.tolist() == [7, 4]


def test_the_last_step_of_a_broken_off_epoch_stays_unknown() -> None:
    """Nothing was requested any more: the next epoch's request does not close it."""
    ends = [EpochEnd(0, "broken off"), EpochEnd(1, "exhausted", 112, 0)]
    steps = Steps.from_blocks([block([0, 17]), block([100], epoch=1)], ends)
    assert steps.step_ns.tolist() == [7, UNKNOWN, 2]


def test_a_known_step_is_left_as_it_is() -> None:
    """Neither a later request nor the epoch line changes a step that was recorded."""
    blocks = [block([0, 17], steps=[1, 2]), block([30, 50], steps=[UNKNOWN, 9])]
    steps = Steps.from_blocks(blocks, [EpochEnd(0, "exhausted", 90, 0)])
    assert steps.step_ns.tolist() == [1, 2, 10, 9]


def test_interleaved_epochs_come_out_in_order() -> None:
    """Two epochs served at the same time are put one after the other, each in its order."""
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


def test_an_epoch_line_without_batches_closes_nothing() -> None:
    """An epoch that gave no batch has an end and no step."""
    steps = Steps.from_blocks([block([0])], [EpochEnd(1, "exhausted", 500, 2)])
    assert steps.step_ns.tolist() == [UNKNOWN]


def test_unknown_requests_close_no_step() -> None:
    """Without the times of the requests, an open step stays unknown, at the epoch's end too."""
    steps = Steps.from_blocks([block([UNKNOWN, UNKNOWN])], [EpochEnd(0, "exhausted", 90, 0)])
    assert steps.step_ns.tolist() == [UNKNOWN, UNKNOWN]


def test_the_blocks_given_are_not_changed() -> None:
    """Closing steps works on a copy."""
    given = block([0, 17])
    Steps.from_blocks([given], [])
    assert given.step_ns.tolist() == [UNKNOWN, UNKNOWN]


def test_with_steps_closes_what_the_block_itself_can() -> None:
    """All steps but the last are known from the block's own requests."""
    assert block([0, 17, 30]).with_steps().step_ns.tolist() == [7, 3, UNKNOWN]
    assert len(block([]).with_steps()) == 0


def test_blocks_are_as_few_as_can_be() -> None:
    """One block for each stretch of one epoch and arm, and together the same steps."""
    given = [
        block([0, 20]),
        block([40]),
        block([60], arm="ideal"),
        block([80]),
        block([100], epoch=1),
    ]
    steps = Steps.from_blocks(given, [])
    blocks = steps.blocks()
    assert [(one.epoch, one.arm, len(one)) for one in blocks] == [
        (0, "real", 3),
        (0, "ideal", 1),
        (0, "real", 1),
        (1, "real", 1),
    ]
    again = Steps.from_blocks(blocks, [])
    for name in Steps.__slots__:
        assert getattr(again, name).tolist() == getattr(steps, name).tolist()


def test_a_run_is_shown_in_a_line() -> None:
    """Its name, its mode and its batches, not its columns."""
    run = Run(
        Header("id", "one", "log", "", "images", 0, LoaderInfo("x")), Steps.from_blocks([], [])
    )
    assert repr(run) == "Run('one', mode='log', 0 batches)"
