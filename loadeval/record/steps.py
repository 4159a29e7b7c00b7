"""Every batch of a run in columns, joined from its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from loadeval.record.model import ARMS, UNKNOWN, Block, Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loadeval.record.model import EpochEnd
    from loadeval.record.readings import Starvation


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Every batch of a run, in columns of equal length; UNKNOWN is -1.

    `arm` holds indices into ARMS; `pair` is UNKNOWN for batches of no pair. The last step of an
    epoch that was broken off is UNKNOWN. `starved_ns` is how long the device had nothing to do
    while the batch was waited for; UNKNOWN where there was no device whose clock could tell.
    """

    epoch: Column
    arm: Column
    pair: Column
    request_ns: Column
    wait_ns: Column
    step_ns: Column
    samples: Column
    nbytes: Column
    starved_ns: Column

    def __len__(self) -> int:
        return len(self.request_ns)

    @classmethod
    def from_blocks(
        cls,
        blocks: Sequence[Block],
        ends: Iterable[EpochEnd],
        starvations: Iterable[Starvation] = (),
    ) -> Steps:
        """Join `blocks`, epoch by epoch, and close each step that the next request closes."""
        blocks = sorted(blocks, key=lambda block: block.epoch)
        lengths = [len(block) for block in blocks]
        steps = cls(
            epoch=np.repeat(_column(block.epoch for block in blocks), lengths),
            arm=np.repeat(_column(ARMS.index(block.arm) for block in blocks), lengths),
            pair=np.repeat(
                _column(UNKNOWN if block.pair is None else block.pair for block in blocks), lengths
            ),
            request_ns=_joined([block.request_ns for block in blocks]),
            wait_ns=_joined([block.wait_ns for block in blocks]),
            step_ns=_joined([block.step_ns for block in blocks]),
            samples=_joined([block.samples for block in blocks]),
            nbytes=_joined([block.nbytes for block in blocks]),
            starved_ns=np.full(sum(lengths), UNKNOWN),
        )
        steps._close(ends)
        steps._starve(starvations)
        return steps

    def blocks(self) -> list[Block]:
        """The same batches in as few blocks as can be: one for each stretch of one arm and pair."""
        differences = np.diff(self.epoch) | np.diff(self.arm) | np.diff(self.pair)
        changes = np.flatnonzero(differences) + 1
        bounds = pairwise([0, *changes.tolist(), len(self)])
        return [self._block(slice(*bound)) for bound in bounds] if len(self) else []

    def _block(self, rows: slice) -> Block:
        return Block(
            epoch=int(self.epoch[rows][0]),
            arm=ARMS[self.arm[rows][0]],
            request_ns=self.request_ns[rows],
            wait_ns=self.wait_ns[rows],
            step_ns=self.step_ns[rows],
            samples=self.samples[rows],
            nbytes=self.nbytes[rows],
            pair=None if self.pair[rows][0] == UNKNOWN else int(self.pair[rows][0]),
        )

    def _close(self, ends: Iterable[EpochEnd]) -> None:
        if not len(self):
            return
        next_ns = np.append(self.request_ns[1:], UNKNOWN)
        (last,) = np.nonzero(np.append(self.epoch[1:] != self.epoch[:-1], True))
        found = {end.epoch: end.request_ns for end in ends if end.request_ns is not None}
        next_ns[last] = [found.get(epoch, UNKNOWN) for epoch in self.epoch[last].tolist()]
        still_open = (self.step_ns == UNKNOWN) & (next_ns != UNKNOWN) & (self.request_ns != UNKNOWN)
        self.step_ns[still_open] = (next_ns - self.request_ns - self.wait_ns)[still_open]

    def _starve(self, starvations: Iterable[Starvation]) -> None:
        for found in starvations:
            (rows,) = np.nonzero(self.epoch == found.epoch)
            rows = rows[found.first :]
            count = min(len(rows), len(found))  # of a killed process, batches may be missing
            self.starved_ns[rows[:count]] = found.starved_ns[:count]


def _column(values: Iterable[int]) -> Column:
    return np.fromiter(values, dtype=np.int64)


def _joined(columns: list[Column]) -> Column:
    return np.concatenate(columns) if columns else np.empty(0, dtype=np.int64)
