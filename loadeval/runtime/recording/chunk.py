"""What the hot loop notes of each batch, until a recorder takes it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from loadeval.data.columns import UNKNOWN, constant, listed
from loadeval.data.lines import Block

if TYPE_CHECKING:
    from loadeval.data.columns import Column
    from loadeval.data.lines import Arm

Count = tuple[int, ...]
"""It has the samples and the bytes of a batch, UNKNOWN is -1; of some, a Padding follows."""
NOTHING: Count = (UNKNOWN, UNKNOWN)


class Chunk:
    """Consecutive batches; the hot loop appends, another thread may read, nothing is removed.

    `marks` alternates request and delivery. `counts` holds (row, Count) where a count changed,
    and is appended to before the marks of that row: what the marks show is complete.
    """

    __slots__ = ("arm", "counts", "instrumented", "marks", "pair", "taken")

    def __init__(self, arm: Arm, pair: int | None, instrumented: bool = False) -> None:
        self.arm = arm
        self.pair = pair
        self.instrumented = instrumented
        self.marks: list[int] = []
        self.counts: list[tuple[int, Count]] = []
        self.taken = 0

    @property
    def rows(self) -> int:
        """How many batches are complete in it."""
        return len(self.marks) // 2

    def take(self, epoch: int, origin_ns: int) -> Block | None:
        """The rows that were not taken before, the last step left open; None when there are none.

        They are of epoch number `epoch`, and their requests count from `origin_ns`.
        """
        start, stop = self.taken, self.rows
        if start == stop:
            return None
        self.taken = stop
        marks = np.fromiter(islice(self.marks, 2 * start, 2 * stop), np.int64, 2 * (stop - start))
        requests, deliveries = marks[::2], marks[1::2]
        steps: list[int | None] = (requests[1:] - deliveries[:-1]).tolist()
        samples, nbytes = self._counted(start, stop)
        return Block(
            epoch=epoch,
            arm=self.arm,
            request_ns=(requests - origin_ns).tolist(),
            wait_ns=(deliveries - requests).tolist(),
            step_ns=[*steps, None],
            samples=listed(samples),
            nbytes=listed(nbytes),
            pair=self.pair,
            instrumented=self.instrumented,
        )

    def paddings(self, start: int) -> list[tuple[int, Count]]:
        """The rows from `start` on that were taken and have a Padding, with it, the last first."""
        last: dict[int, Count] = {}  # of a row that was broken off there is a second count
        for row, count in reversed(self.counts):
            if row < start:
                break
            last.setdefault(row, count[2:])
        return [(row, padding) for row, padding in last.items() if padding and row < self.taken]

    def _counted(self, start: int, stop: int) -> tuple[Column, Column]:
        rows, counts = zip(*self.counts, strict=True)
        which = np.searchsorted(rows, np.arange(start, stop), side="right") - 1
        if which[0] == which[-1]:
            samples, nbytes, *_ = counts[which[0]]
            return constant(samples, stop - start), constant(nbytes, stop - start)
        samples, nbytes = np.array([count[:2] for count in counts], dtype=np.int64)[which].T.copy()
        return samples, nbytes
