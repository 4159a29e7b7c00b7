"""The lines of a run log, one after the other: which may come when, and what they add up to."""

from __future__ import annotations

from copy import copy

from loadeval.errors import RunLogError
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.log_file.codec import Line, RunEnd
from loadeval.runlog.model import Block, EpochEnd, Header, Prefetch, Readings, Window

BACKWARDS = (
    "goes back in time: it holds a request before the delivery that the same epoch last had, "
    "where times in the order of the clock were expected"
)
READ_BACKWARDS = (
    "goes back in time: it holds a reading from before one that the same subject had, where times "
    "in the order of the clock were expected"
)


class LineValidator:
    """Sees the lines of one log, one after the other, and objects to what cannot be."""

    def __init__(self) -> None:
        self._begun = self._ended = False
        self._batches = 0
        self._delivered_ns: dict[int, int] = {}
        self._ended_epochs: set[int] = set()
        self._read_ns: dict[tuple[str, str], int] = {}

    def copied(self) -> LineValidator:
        """A validator that has seen the same lines, and goes on by itself."""
        other = LineValidator()
        vars(other).update((name, copy(value)) for name, value in vars(self).items())
        return other

    def check(self, line: Line) -> None:
        """Raises RunLogError when `line` cannot come now; a block then has changed nothing."""
        if self._ended:
            raise RunLogError("comes after the end line, where nothing more was expected")
        if isinstance(line, Header) is self._begun:
            raise RunLogError("is out of order: one header was expected, before everything else")
        self._begun = True
        if (
            isinstance(line, Block | EpochEnd | Prefetch | Window)
            and line.epoch in self._ended_epochs
        ):
            raise RunLogError(
                f"is of epoch {line.epoch}, where none was expected after its epoch line"
            )
        if isinstance(line, Block):
            self._check_block(line)
        elif isinstance(line, EpochEnd):
            self._check_epoch_end(line)
        elif isinstance(line, Readings):
            self._check_readings(line)
        elif isinstance(line, RunEnd):
            self._check_run_end(line)

    def _check_block(self, block: Block) -> None:
        if len(block) and block.request_ns[0] != UNKNOWN:
            deliver_ns = block.request_ns + block.wait_ns
            early = (block.request_ns[1:] < deliver_ns[:-1]).any()
            if early or block.request_ns[0] < self._delivered_ns.get(block.epoch, 0):
                raise RunLogError(BACKWARDS)
            self._delivered_ns[block.epoch] = int(deliver_ns[-1])
        self._batches += len(block)

    def _check_epoch_end(self, end: EpochEnd) -> None:
        if end.request_ns is not None and end.request_ns < self._delivered_ns.get(end.epoch, 0):
            raise RunLogError(BACKWARDS)
        self._ended_epochs.add(end.epoch)

    def _check_readings(self, readings: Readings) -> None:
        time_ns, subject = readings.time_ns, (readings.probe, readings.subject)
        if len(time_ns):
            early = (time_ns[1:] < time_ns[:-1]).any()
            if early or time_ns[0] < self._read_ns.get(subject, 0):
                raise RunLogError(READ_BACKWARDS)
            self._read_ns[subject] = int(time_ns[-1])

    def _check_run_end(self, end: RunEnd) -> None:
        if end.batches != self._batches:
            raise RunLogError(
                f"says that the run had {end.batches} batches, where {self._batches} were "
                "expected from the lines before it: lines were lost or added"
            )
        self._ended = True
