"""One epoch while it is served: the hot loop writes marks here, and blocks are taken out."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from loadeval.runlog.model import UNKNOWN, Block, EpochEnd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadeval.runlog.model import Arm, Cause, Column
    from loadeval.runlog.tally import Tally
    from loadeval.runtime.counting import Count
    from loadeval.runtime.device import Starving
    from loadeval.runtime.thinning import Thinning


class Keeper(Protocol):
    """Who is told of what happens to a track."""

    origin_ns: int

    def started(self) -> None:
        """The loader has given, or is about to give, its first batch of an epoch."""

    def chunk_filled(self, track: Track) -> None:
        """A chunk is full, or the first one is about to be begun."""

    def note(self, message: str) -> None:
        """Something happened that bears on what the numbers mean."""

    def epoch_ended(self, track: Track, end: EpochEnd) -> None:
        """No batch comes any more."""


class Chunk:
    """Consecutive batches; the hot loop appends, another thread may read, nothing is removed.

    `marks` alternates request and delivery. `counts` holds (row, Count) where a count changed,
    and is appended to before the marks of that row: what the marks show is complete.
    """

    __slots__ = ("arm", "counts", "marks", "pair", "taken")

    def __init__(self, arm: Arm, pair: int | None) -> None:
        self.arm = arm
        self.pair = pair
        self.marks: list[int] = []
        self.counts: list[tuple[int, Count]] = []
        self.taken = 0

    @property
    def rows(self) -> int:
        """How many batches are complete in it."""
        return len(self.marks) // 2

    def take(self, track: Track) -> Block | None:
        """The rows that were not taken before, their steps left open; None when there are none."""
        start, stop = self.taken, self.rows
        if start == stop:
            return None
        self.taken = stop
        marks = np.fromiter(islice(self.marks, 2 * start, 2 * stop), np.int64, 2 * (stop - start))
        samples, nbytes = self._counted(start, stop)
        return Block(
            epoch=track.epoch,
            arm=self.arm,
            request_ns=marks[::2] - track.keeper.origin_ns,
            wait_ns=marks[1::2] - marks[::2],
            step_ns=constant(UNKNOWN, stop - start),
            samples=samples,
            nbytes=nbytes,
            pair=self.pair,
        )

    def _counted(self, start: int, stop: int) -> tuple[Column, Column]:
        rows, found = zip(*self.counts, strict=True)
        which = np.searchsorted(rows, np.arange(start, stop), side="right") - 1
        if which[0] == which[-1]:
            samples, nbytes = found[which[0]]
            return constant(samples, stop - start), constant(nbytes, stop - start)
        samples, nbytes = np.array(found, dtype=np.int64)[which].T.copy()
        return samples, nbytes


def constant(value: int, length: int) -> Column:
    """A read-only column of one value, which takes no memory for its length."""
    return np.broadcast_to(np.int64(value), length)


class Track:
    """One epoch being served."""

    def __init__(
        self,
        keeper: Keeper,
        epoch: int,
        starving: Starving | None = None,
        thinning: Thinning | None = None,
    ) -> None:
        self.keeper = keeper
        self.epoch = epoch
        self.starving = starving
        self.thinning = thinning
        self.failure: EpochEnd | None = None
        self.chunks: deque[Chunk] = deque()
        self.has_batches = False

    def started(self) -> None:
        """The first batch is there, or about to be: from now on there is something to keep."""
        self.has_batches = True
        self.keeper.started()

    def next_chunk(
        self, arm: Arm, pair: int | None = None
    ) -> tuple[list[int], list[tuple[int, Count]]]:
        """Where the batches to come are noted: their marks, and their changes of count."""
        self.keeper.chunk_filled(self)
        chunk = Chunk(arm, pair)
        self.chunks.append(chunk)
        return chunk.marks, chunk.counts

    def watched(self, source: Iterator[Any]) -> Iterator[Any]:
        """`source`, watched for the device's starving where there is a device to ask."""
        return source if self.starving is None else self.starving.watched(source)

    def take(self) -> list[Block]:
        """Every row that was not taken before; forgets the chunks that are full and taken."""
        chunks = list(self.chunks)
        blocks = [block for chunk in chunks if (block := chunk.take(self)) is not None]
        while len(self.chunks) > 1 and self.chunks[0].taken == self.chunks[0].rows:
            self.chunks.popleft()
        return blocks

    def kept_of(self, block: Block) -> Sequence[Block | Tally]:
        """What is to be kept now that `block` was taken: by default that."""
        return [block] if self.thinning is None else self.thinning.take(block)

    def rest(self, request_ns: int | None) -> Sequence[Block | Tally]:
        """What is to be kept besides if the epoch ends now: see Thinning."""
        return [] if self.thinning is None else self.thinning.rest(request_ns)

    def failed(self, request: int, now: int, error: BaseException) -> None:
        """Note that the loader raised `error`; it ends the epoch unless `resume` is called."""
        self.failure = self._ended("failed", request, now, error)

    def resume(self) -> None:
        """Another batch is asked for, after an exception if there was one."""
        failure, self.failure = self.failure, None
        if failure is not None:
            # An error of a worker has the worker's traceback in its text.
            *_, what = str(failure.error).strip().splitlines()
            self.keeper.note(f"epoch {self.epoch}: the loader raised {what}, and was read on")

    def end_failed(self) -> None:
        """The epoch ended with its exception: nobody asks for another batch."""
        failure, self.failure = self.failure, None
        if failure is not None:
            self.keeper.epoch_ended(self, failure)

    def end(self, cause: Cause, request: int | None = None, now: int | None = None) -> None:
        """Note how the epoch ended: see EpochEnd. `request` and `now` are clock readings."""
        self.keeper.epoch_ended(self, self._ended(cause, request, now))

    def _ended(
        self,
        cause: Cause,
        request: int | None,
        now: int | None,
        error: BaseException | None = None,
    ) -> EpochEnd:
        asked = waited = None
        if request is not None and now is not None:
            asked, waited = request - self.keeper.origin_ns, now - request
        text = None if error is None else f"{type(error).__name__}: {error}"
        return EpochEnd(self.epoch, cause, asked, waited, text)
