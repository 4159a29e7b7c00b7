"""Every batch of a run in columns, joined from its blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from loadeval.runlog.model import ARMS, UNKNOWN, Block, Column, Excerpt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from loadeval.runlog.model import EpochEnd
    from loadeval.runlog.readings import Starvation


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Every batch of a run, in columns of equal length; UNKNOWN is -1.

    `arm` holds indices into ARMS; `pair` is UNKNOWN for batches of no pair. The last step of an
    epoch that was broken off is UNKNOWN. `starved_ns` is how long the device had nothing to do
    while the batch was waited for; UNKNOWN where there was no device whose clock could tell.
    `batch` is each one's number in its epoch, from 0: by default they follow on one another.
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
    batch: Column = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not len(self.batch):
            object.__setattr__(self, "batch", rank_in_epoch(self.epoch))

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
        excerpts = np.repeat([isinstance(block, Excerpt) for block in blocks], lengths) == 1
        steps.batch[excerpts] = _joined([one.batch for one in blocks if isinstance(one, Excerpt)])
        steps._close(ends, ~excerpts)
        steps._starve(starvations)
        return steps

    def blocks(self) -> list[Block]:
        """The same batches in as few blocks as can be: one for each stretch of one arm and pair."""
        return [self._block(rows) for rows in self._stretches()]

    def excerpts(self) -> list[Excerpt]:
        """The same, each batch with its number: for a run in which not all were kept."""
        return [self._block(rows).numbered(self.batch[rows]) for rows in self._stretches()]

    def _stretches(self) -> list[slice]:
        differences = np.diff(self.epoch) | np.diff(self.arm) | np.diff(self.pair)
        changes = np.flatnonzero(differences) + 1
        bounds = pairwise([0, *changes.tolist(), len(self)])
        return [slice(*bound) for bound in bounds] if len(self) else []

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

    def _close(self, ends: Iterable[EpochEnd], rows: npt.NDArray[np.bool_]) -> None:
        if not len(self):
            return
        next_ns = np.append(self.request_ns[1:], UNKNOWN)
        (last,) = np.nonzero(np.append(self.epoch[1:] != self.epoch[:-1], True))
        found = {end.epoch: end.request_ns for end in ends if end.request_ns is not None}
        next_ns[last] = [found.get(epoch, UNKNOWN) for epoch in self.epoch[last].tolist()]
        known = (next_ns != UNKNOWN) & (self.request_ns != UNKNOWN)
        still_open = rows & (self.step_ns == UNKNOWN) & known
        self.step_ns[still_open] = (next_ns - self.request_ns - self.wait_ns)[still_open]

    def _starve(self, starvations: Iterable[Starvation]) -> None:
        for found in starvations:
            (rows,) = np.nonzero((self.epoch == found.epoch) & (self.batch >= found.first))
            count = min(len(rows), len(found))  # of a killed process, batches may be missing
            self.starved_ns[rows[:count]] = found.starved_ns[:count]


def rank_in_epoch(epoch: Column) -> Column:
    """Each batch's number within its epoch, from 0; `epoch` is the steps' column, sorted."""
    _, first, lengths = np.unique(epoch, return_index=True, return_counts=True)
    return np.arange(len(epoch)) - np.repeat(first, lengths)


def _column(values: Iterable[int]) -> Column:
    return np.fromiter(values, dtype=np.int64)


def _joined(columns: list[Column]) -> Column:
    return np.concatenate(columns) if columns else np.empty(0, dtype=np.int64)
