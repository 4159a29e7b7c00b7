"""How an alternating run sizes its blocks, and when it ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loadeval.core.recorder import Span
from loadeval.core.schedule import LONGEST_BLOCK_NS, PAIRS, WARMUP_NS, PlannedBlock, Schedule
from loadeval.data.lines import Arm
from loadeval.data.run import (
    SHORTEST_WARMUP,
    SMALLEST_BLOCK,
    batches_for,
    block_for,
    head_for,
    with_instruments,
)

Pair = dict[Arm, PlannedBlock]

MS = 1_000_000
MANY = 10**9
"""Batches of an epoch that leave blocks as large as they are wanted."""
DEPTHS = st.integers(0, 64)
LENGTHS = st.none() | st.integers(2 * block_for(64), 10**6)
"""Lengths of epochs that are long enough for blocks, with each of these depths."""
PACES = st.integers(0, 1000) | st.integers(0, 30_000 * MS)


def noted_head(schedule: Schedule, wait_ns: int, step_ns: int, size: int = 3) -> None:
    """Serve the head of an epoch, in which every batch takes as long."""
    schedule.begin_epoch()
    span = Span(iter(()), size)
    for batch in range(size):
        request_ns = batch * (wait_ns + step_ns)
        span.marks += [request_ns, request_ns + wait_ns]
    span.asked_ns = size * (wait_ns + step_ns)
    schedule.served += size
    schedule.note_head(span)


def next_pair(schedule: Schedule, iterations: Callable[[PlannedBlock], Sequence[int]]) -> Pair:
    """Serve both blocks, each with its warm-up."""
    pair: Pair = {}
    for _ in range(2):
        block = schedule.block
        assert block is not None
        schedule.served += block.warmup
        times_ns = [0, *np.cumsum(iterations(block)).tolist()]
        schedule.advance(block.counted, times_ns)
        pair[block.arm] = block
    return pair


def steady(real_ns: int, ideal_ns: int) -> Callable[[PlannedBlock], list[int]]:
    each_ns: dict[Arm, int] = {"real": real_ns, "ideal": ideal_ns}
    return lambda block: [each_ns[block.arm]] * block.counted


def counted(pair: Pair) -> tuple[int, int]:
    return pair["real"].counted, pair["ideal"].counted


def served(pair: Pair) -> int:
    return sum(block.warmup + block.counted for block in pair.values())


def begun(wait_ns: int, step_ns: int, length: int = MANY) -> Schedule:
    schedule = Schedule(length=length)
    noted_head(schedule, wait_ns, step_ns)
    return schedule


@given(PACES, PACES, DEPTHS, LENGTHS, st.integers(0, 2**32))
def test_sizes_are_within_their_bounds(
    wait_ns: int, step_ns: int, depth: int, length: int | None, seed: int
) -> None:
    """Blocks and warm-ups are as large as steps need, and last no longer than a block may."""
    schedule = Schedule(seed=seed, prefetch_depth=depth, length=length)
    noted_head(schedule, wait_ns, step_ns, head_for(depth))
    pair = next_pair(schedule, lambda block: [step_ns, wait_ns] * (block.counted // 2))
    least: dict[Arm, tuple[int, int]] = {
        "real": (SMALLEST_BLOCK, head_for(depth)),
        "ideal": (block_for(depth), SHORTEST_WARMUP),
    }
    paces: dict[Arm, int] = {"real": wait_ns + step_ns, "ideal": step_ns}
    for arm, each_ns in paces.items():
        block = pair[arm]
        smallest, shortest = least[arm]
        assert block.counted >= smallest
        assert block.warmup >= shortest
        assert block.counted == smallest or block.counted * each_ns <= LONGEST_BLOCK_NS
        assert block.warmup == shortest or (block.warmup - 1) * each_ns < WARMUP_NS


@given(st.integers(0, 10**5), DEPTHS, PACES, PACES, st.integers(1, 40), st.integers(0, 2**32))
def test_batches_suffice_for_eight_pairs(
    batches: int, depth: int, wait_ns: int, step_ns: int, pairs: int, seed: int
) -> None:
    """They suffice for as many pairs as are wanted, where they do for the smallest ones."""
    wanted = max(PAIRS, pairs)
    smallest = SMALLEST_BLOCK + block_for(depth) + head_for(depth) + SHORTEST_WARMUP
    head = head_for(depth)
    assume(batches >= head + depth + wanted * smallest)
    schedule = Schedule(seed=seed, pairs=wanted, prefetch_depth=depth, length=batches)
    noted_head(schedule, wait_ns, step_ns, head)
    for _ in range(wanted):
        next_pair(schedule, steady(wait_ns + step_ns, step_ns))
    assert schedule.served <= batches


@pytest.mark.parametrize("step_ms", [1, 2, 10, 25])
def test_an_ideal_block_of_fast_steps_lasts_long_enough(step_ms: int) -> None:
    """The warm-ups last long enough too."""
    pair = next_pair(begun(step_ms * MS, step_ms * MS), steady(2 * step_ms * MS, step_ms * MS))
    assert pair["ideal"].counted == max(100 // step_ms, SMALLEST_BLOCK)
    assert pair["ideal"].warmup == max(50 // step_ms, SHORTEST_WARMUP)
    assert pair["real"].warmup == max(math.ceil(25 / step_ms), SHORTEST_WARMUP)


def test_both_blocks_shrink_where_batches_do_not_suffice_for_eight_pairs() -> None:
    """They shrink in proportion until the ideal one has its fewest; then the real one, warm-ups."""
    sizes = []
    for length in (10**4, 803, 603, 403, 203, 23):
        pair = next_pair(begun(0, 5 * MS, length=length), steady(5 * MS, 5 * MS))
        sizes.append((*counted(pair), pair["real"].warmup, pair["ideal"].warmup))
    assert sizes == [
        (50, 20, 10, 10),
        (50, 20, 10, 10),
        (32, 13, 10, 10),
        (17, 8, 10, 10),
        (9, 8, 3, 3),
        (8, 8, 3, 3),
    ]


def test_blocks_grow_with_the_batches_served() -> None:
    schedule = begun(MS, MS, length=40)
    pairs = []
    for _ in range(24):
        noted_head(schedule, MS, MS)
        pairs.append(next_pair(schedule, steady(8 * MS, 4 * MS)))
    assert counted(pairs[0]) == (8, 8)
    assert sum(counted(pair)[0] for pair in pairs[-2:]) == 2 * 75
    assert counted(pairs[-1])[1] == 25


@given(st.integers(1, 5), DEPTHS)
def test_batches_for_pairs_suffice(pairs: int, depth: int) -> None:
    schedule = Schedule(prefetch_depth=depth, length=MANY)
    schedule.has_instruments = True
    noted_head(schedule, 5000 * MS, 5000 * MS, head_for(depth))
    for _ in range(with_instruments(pairs)):
        next_pair(schedule, steady(10_000 * MS, 5000 * MS))
    assert schedule.served == batches_for(pairs, depth)
