"""How large the blocks of an alternating run are, at least, and which epochs are blocks."""

from __future__ import annotations

import numpy as np

from loadeval.data.columns import UNKNOWN
from loadeval.data.run import Run

SMALLEST_BLOCK = 8
"""An arm has at least so many counted batches in a pair."""
INSTRUMENTED_EVERY = 3
"""One pair in so many is for the instruments, whose cost is in no figure."""
SHORTEST_WARMUP = 3
"""After a switch of arms a memory-bound step runs at full speed from this batch on."""


def head_for(prefetch_depth: int) -> int:
    """Batches until a loader whose queue begins empty has refilled it, and steps are steady."""
    return max(prefetch_depth + 1, SHORTEST_WARMUP)


def block_for(prefetch_depth: int) -> int:
    """The smallest ideal block: prefetching it takes more than the queue holds.

    So there are batches that time the loader alone, and what a real block took out of the queue
    is served in the next ideal block.
    """
    return max(SMALLEST_BLOCK, 2 * prefetch_depth + 2)


def two_blocks_for(prefetch_depth: int) -> int:
    """Batches of a real and an ideal block; of shorter epochs each is a block."""
    return SMALLEST_BLOCK + block_for(prefetch_depth)


def with_instruments(pairs: int) -> int:
    """How many pairs it takes so that so many of them count, beside those for the instruments."""
    return pairs + max(pairs - 1, 0) // (INSTRUMENTED_EVERY - 1)


def batches_for(pairs: int, prefetch_depth: int) -> int:
    """How many batches it takes, in one epoch, until so many pairs of the smallest blocks count."""
    head = head_for(prefetch_depth)
    return head + with_instruments(pairs) * (
        two_blocks_for(prefetch_depth) + head + SHORTEST_WARMUP
    )


def whole_epochs(run: Run) -> dict[int, int]:
    """The epochs each of which is a block, with their pairs.

    They are too short for two blocks, and their batches are of one arm, and of one pair: but the
    first one, unless it is the only one.
    """
    steps, pair_of = run.steps, {}
    longest = two_blocks_for(run.header.loader.prefetch_depth or 0)
    epochs, starts = np.unique(steps.epoch, return_index=True)
    for epoch, start, end in zip(epochs.tolist(), starts, [*starts[1:], len(steps)], strict=False):
        pairs = np.unique(steps.pair[start + min(end - start - 1, 1) : end])
        is_block = end - start < longest and len(pairs) == 1 and pairs[0] != UNKNOWN
        if is_block and len(np.unique(steps.arm[start:end])) == 1:
            pair_of[epoch] = int(pairs[0])
    return pair_of
