"""Which arm is served when: for any seed, depth and block."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from loadeval.runtime.alternate import SHORTEST_WARMUP, SMALLEST_BLOCK, block_for, planned_blocks

SEEDS = st.integers()
SIZES = st.integers(0, 200)


@given(SEEDS, st.integers(0, 40), SIZES, SIZES)
def test_every_pair_has_both_arms(seed: int, pairs: int, depth: int, block: int) -> None:
    """One after the other, with as many counted batches, and pairs in their order."""
    found = list(planned_blocks(seed, pairs, depth, block))
    assert [one.pair for one in found] == [number for number in range(pairs) for _ in range(2)]
    for first, second in zip(found[::2], found[1::2], strict=True):
        assert {first.arm, second.arm} == {"real", "ideal"}
    assert {one.counted for one in found} <= {block}


@given(SEEDS, SIZES)
def test_what_the_loader_prefetched_is_warm_up(seed: int, depth: int) -> None:
    """More than its queue holds in the real arm; in either what a step takes to find its pace."""
    warmup = {one.arm: one.warmup for one in planned_blocks(seed, 1, depth, 8)}
    assert warmup["ideal"] == SHORTEST_WARMUP <= warmup["real"]
    assert warmup["real"] > depth


@given(SEEDS, st.integers(1, 40), SIZES, SIZES)
def test_the_order_depends_on_the_seed_alone(seed: int, pairs: int, depth: int, block: int) -> None:
    """Not on how many pairs there are to be, nor on the loader, nor on a draw elsewhere."""
    found = [one.arm for one in planned_blocks(seed, pairs, depth, block)]
    assert found == [one.arm for one in islice(planned_blocks(seed, None, 0, 8), 2 * pairs)]


@given(SEEDS)
def test_either_arm_is_first_about_as_often(seed: int) -> None:
    """In 400 pairs between 140 and 260 times, six standard deviations; other seeds differ."""
    orders = [
        [one.arm for one in planned_blocks(number, 400, 0, 8)][::2] for number in (seed, seed + 1)
    ]
    assert 140 <= orders[0].count("real") <= 260
    assert orders[0] != orders[1]


@given(SIZES)
def test_a_block_goes_well_beyond_the_queue(depth: int) -> None:
    """And is never of a few batches."""
    assert block_for(depth) > 2 * depth
    assert block_for(depth) >= SMALLEST_BLOCK
