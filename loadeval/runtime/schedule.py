"""Which arm an alternating run serves when: by seed and number alone, never by a clock."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.runlog.model import Arm

SMALLEST_BLOCK = 8
"""Counted batches of one arm in one pair, at least."""
SHORTEST_WASHOUT = 3
"""Batches after a change of arms in which a step that moves much memory finds its pace again."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One arm's part of a pair: how many batches are served uncounted, and then counted."""

    pair: int
    arm: Arm
    washout: int
    counted: int


def segments(seed: int, pairs: int | None, prefetch_depth: int, block: int) -> Iterator[Segment]:
    """The segments of `pairs` pairs (None: without end), the arms of each in random order.

    In the real arm's wash-out the loader, whose queue begins empty, finds its pace too.
    """
    shortest = SHORTEST_WASHOUT
    washout: dict[Arm, int] = {"real": max(prefetch_depth + 1, shortest), "ideal": shortest}
    for pair in count() if pairs is None else range(pairs):
        order: list[Arm] = ["real", "ideal"]
        random.Random(f"{seed}/{pair}").shuffle(order)  # noqa: S311 - no secret
        for arm in order:
            yield Segment(pair, arm, washout[arm], block)


def block_for(prefetch_depth: int) -> int:
    """Counted batches in a block, so many that a pull of them goes well beyond the queue."""
    return max(SMALLEST_BLOCK, 2 * prefetch_depth + 2)
