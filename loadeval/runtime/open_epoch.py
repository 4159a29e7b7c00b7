"""An epoch while it is served: what the hot loop notes of it, until a recorder takes it."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.errors import text_of
from loadeval.runlog.columns import UNKNOWN, constant
from loadeval.runlog.model import Block, EpochEnd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.runlog.columns import Column
    from loadeval.runlog.model import Arm, Cause
    from loadeval.runtime.counting import Count
    from loadeval.runtime.cuda import GpuIdleTimer
    from loadeval.runtime.recorder import Recorder
    from loadeval.runtime.thinning import Thinning


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

    def take(self, epoch: OpenEpoch) -> Block | None:
        """The rows that were not taken before, their steps left open; None when there are none."""
        start, stop = self.taken, self.rows
        if start == stop:
            return None
        self.taken = stop
        marks = np.fromiter(islice(self.marks, 2 * start, 2 * stop), np.int64, 2 * (stop - start))
        samples, nbytes = self._counted(start, stop)
        return Block(
            epoch=epoch.number,
            arm=self.arm,
            request_ns=marks[::2] - epoch.recorder.origin_ns,
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


class OpenEpoch:
    """One epoch while it is served: the hot loop writes marks here, and blocks are taken out."""

    def __init__(
        self,
        recorder: Recorder,
        number: int,
        gpu_idle: GpuIdleTimer | None = None,
        thinning: Thinning | None = None,
    ) -> None:
        self.recorder = recorder
        self.number = number
        self.gpu_idle = gpu_idle
        self.thinning = thinning
        self.failure: EpochEnd | None = None
        self.chunks: deque[Chunk] = deque()
        self.has_batches = False
        self.is_cut_off = False

    def started(self) -> None:
        """The first batch is there, or about to be: from now on there is something to keep."""
        self.has_batches = True
        self.recorder.started()

    def next_chunk(
        self, arm: Arm, pair: int | None = None
    ) -> tuple[list[int], list[tuple[int, Count]]]:
        """Where the batches to come are noted: their marks, and their changes of count."""
        self.recorder.chunk_filled(self)
        chunk = Chunk(arm, pair)
        self.chunks.append(chunk)
        return chunk.marks, chunk.counts

    def watched(self, source: Iterator[Any]) -> Iterator[Any]:
        """`source`, with the device's times measured where there is a device to ask."""
        return source if self.gpu_idle is None else self.gpu_idle.watched(source)

    def end_step(self) -> None:
        """The step ends here for the device too, not with the next request."""
        if self.gpu_idle is not None:
            self.gpu_idle.end_step()

    def take(self) -> list[Block]:
        """Every row that was not taken before; forgets the chunks that are full and taken."""
        chunks = list(self.chunks)
        blocks = [block for chunk in chunks if (block := chunk.take(self)) is not None]
        while len(self.chunks) > 1 and self.chunks[0].taken == self.chunks[0].rows:
            self.chunks.popleft()
        return blocks

    def failed(self, request: int, now: int, error: BaseException) -> None:
        """Note that the loader raised `error`; it ends the epoch unless `resume` is called."""
        self.failure = self._ended("failed", request, now, error)

    def resume(self) -> None:
        """Another batch is asked for, after an exception if there was one."""
        failure, self.failure = self.failure, None
        if failure is not None:
            # An error of a worker has the worker's traceback in its text.
            *_, what = str(failure.error).strip().splitlines()
            self.recorder.note(
                f"epoch {self.number}: the loader raised {what}, and was read on", "error read on"
            )

    def end_failed(self) -> None:
        """The epoch ended with its exception: nobody asks for another batch."""
        failure, self.failure = self.failure, None
        if failure is not None:
            self.recorder.epoch_ended(self, failure)

    def end(self, cause: Cause, request: int | None = None, now: int | None = None) -> None:
        """Note how the epoch ended: see EpochEnd. `request` and `now` are clock readings."""
        self.recorder.epoch_ended(self, self._ended(cause, request, now))

    def _ended(
        self,
        cause: Cause,
        request: int | None,
        now: int | None,
        error: BaseException | None = None,
    ) -> EpochEnd:
        asked = waited = None
        if request is not None and now is not None:
            asked, waited = request - self.recorder.origin_ns, now - request
        text = None if error is None else f"{type(error).__name__}: {text_of(error)}"
        return EpochEnd(self.number, cause, asked, waited, text)
