"""Which line of a run log may follow which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.errors import RunLogError
from loadeval.record.lines import RunEnd
from loadeval.record.model import UNKNOWN, Block, EpochEnd, Header, Pull, Window

if TYPE_CHECKING:
    from loadeval.record.lines import Line

BACKWARDS = (
    "goes back in time: it holds a request before the delivery that the same epoch last had, "
    "where times in the order of the clock were expected"
)


class Order:
    """Sees the lines of one log, one after the other, and objects to what cannot be."""

    def __init__(self) -> None:
        self._begun = self._ended = False
        self._batches = 0
        self._delivered: dict[int, int] = {}
        self._ended_epochs: set[int] = set()

    def check(self, line: Line) -> None:
        """Raises RunLogError, without path and number, when `line` cannot come now."""
        if self._ended:
            raise RunLogError("comes after the end line, where nothing more was expected")
        if isinstance(line, Header) is self._begun:
            raise RunLogError("is out of order: one header was expected, before everything else")
        self._begun = True
        if isinstance(line, Block):
            self._check_block(line)
        elif isinstance(line, EpochEnd):
            self._check_epoch_end(line)
        elif isinstance(line, Pull | Window):
            self._check_epoch(line.epoch)
        elif isinstance(line, RunEnd):
            self._check_run_end(line)

    def _check_block(self, block: Block) -> None:
        self._check_epoch(block.epoch)
        self._batches += len(block)
        if not len(block) or block.request_ns[0] == UNKNOWN:
            return
        deliver_ns = block.request_ns + block.wait_ns
        early = len(block) > 1 and (block.request_ns[1:] < deliver_ns[:-1]).any()
        if early or block.request_ns[0] < self._delivered.get(block.epoch, 0):
            raise RunLogError(BACKWARDS)
        self._delivered[block.epoch] = int(deliver_ns[-1])

    def _check_epoch_end(self, end: EpochEnd) -> None:
        self._check_epoch(end.epoch)
        if end.request_ns is not None and end.request_ns < self._delivered.get(end.epoch, 0):
            raise RunLogError(BACKWARDS)
        self._ended_epochs.add(end.epoch)

    def _check_epoch(self, epoch: int) -> None:
        if epoch in self._ended_epochs:
            raise RunLogError(f"is of epoch {epoch}, where none was expected after its epoch line")

    def _check_run_end(self, end: RunEnd) -> None:
        if end.batches != self._batches:
            raise RunLogError(
                f"says that the run had {end.batches} batches, where {self._batches} were "
                "expected from the lines before it: lines were lost or added"
            )
        self._ended = True
