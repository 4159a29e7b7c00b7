"""Which line of a run log may follow which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.errors import RunLogError
from loadeval.runlog.lines import RunEnd
from loadeval.runlog.model import UNKNOWN, Block, EpochEnd, Excerpt, Header, Pull, Window
from loadeval.runlog.tally import Tally

if TYPE_CHECKING:
    from loadeval.runlog.lines import Line

BACKWARDS = (
    "goes back in time: it holds a request before the delivery that the same epoch last had, "
    "where times in the order of the clock were expected"
)


class Order:
    """Sees the lines of one log, one after the other, and objects to what cannot be."""

    def __init__(self) -> None:
        self._begun = self._ended = False
        self._batches = 0
        self._every = 1
        self._delivered: dict[int, int] = {}
        self._excerpted: dict[int, int] = {}
        self._tallied: dict[int, tuple[int, int]] = {}
        self._ended_epochs: set[int] = set()

    def check(self, line: Line) -> None:
        """Raises RunLogError, without path and number, when `line` cannot come now."""
        if self._ended:
            raise RunLogError("comes after the end line, where nothing more was expected")
        if isinstance(line, Header) is self._begun:
            raise RunLogError("is out of order: one header was expected, before everything else")
        self._begun = True
        if isinstance(line, Header):
            self._check_header(line)
        elif isinstance(line, Tally):
            self._check_tally(line)
        elif isinstance(line, Block):
            self._check_block(line)
        elif isinstance(line, EpochEnd):
            self._check_epoch_end(line)
        elif isinstance(line, Pull | Window):
            self._check_epoch(line.epoch)
        elif isinstance(line, RunEnd):
            self._check_run_end(line)

    def _check_header(self, header: Header) -> None:
        self._every = header.every
        if header.every > 1 and header.mode != "log":
            raise RunLogError(
                f"keeps one batch in {header.every} in mode {header.mode!r}, where mode 'log' was "
                "expected"
            )

    def _check_tally(self, tally: Tally) -> None:
        self._check_epoch(tally.epoch)
        if self._every == 1:
            raise RunLogError("is a tally, where blocks of all batches were expected")
        first, request_ns = self._tallied.get(tally.epoch, (0, 0))
        if tally.first != first:
            raise RunLogError(
                f"begins with batch {tally.first} of its epoch, where number {first} was expected: "
                "lines were lost or added"
            )
        if tally.request_ns < request_ns:
            raise RunLogError(BACKWARDS)
        self._tallied[tally.epoch] = (first + tally.batches, tally.end_ns)
        self._batches += tally.batches

    def _check_excerpt(self, block: Block) -> None:
        if isinstance(block, Excerpt) is (self._every == 1):
            kinds = "excerpts and tallies" if self._every > 1 else "blocks of all batches"
            raise RunLogError(f"is of another kind than its log, where {kinds} were expected")
        if not isinstance(block, Excerpt):
            return
        expected = self._excerpted.get(block.epoch, 0)
        for batch in block.batch.tolist():
            if batch != expected:
                raise RunLogError(
                    f"has batch {batch} of its epoch, where number {expected} was expected: one in "
                    f"{self._every} is kept"
                )
            expected += self._every
        self._excerpted[block.epoch] = expected

    def _check_block(self, block: Block) -> None:
        self._check_epoch(block.epoch)
        self._check_excerpt(block)
        self._batches += 0 if isinstance(block, Excerpt) else len(block)
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
        for epoch in self._tallied.keys() | self._excerpted.keys():
            self._check_all_kept(epoch)
        self._ended = True

    def _check_all_kept(self, epoch: int) -> None:
        batches, _ = self._tallied.get(epoch, (0, 0))
        kept, expected = self._excerpted.get(epoch, 0) // self._every, -(-batches // self._every)
        if kept != expected:
            raise RunLogError(
                f"comes after {kept} batches in the excerpts of epoch {epoch}, where {expected} of "
                f"{batches} were expected: lines were lost or added"
            )
