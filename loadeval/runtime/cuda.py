"""The CUDA device: synchronising with it, and how long it was idle by its own clock."""

from __future__ import annotations

import sys
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.runlog.model import GpuIdle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MS_NS = 1_000_000


def synchronize() -> None:
    """Wait until the CUDA device has finished torch's work, if torch uses one."""
    cuda = _cuda()
    if cuda is not None:
        cuda.synchronize()


def timing_events() -> Callable[[], Any] | None:
    """A function that makes a CUDA timing event; None if torch uses no device."""
    cuda = _cuda()
    return None if cuda is None else partial(cuda.Event, enable_timing=True)


class GpuIdleTimer:
    """How long the device is idle in each wait of one epoch, by its own clock.

    An event is queued behind all work when the consumer asks for a batch, and another one at
    its delivery. The device passes the first when its work is done, and the second then or at
    the delivery, whichever is later: in between it was idle. Events are read later, after the
    device has passed them, so that nothing waits for it.
    """

    def __init__(self, epoch: int, event: Callable[[], Any], spare: deque[Any]) -> None:
        self.ended = False
        self._epoch = epoch
        self._event = event
        self._spare = spare
        self._passing: deque[tuple[Any, Any]] = deque()
        self._read = 0

    def watched(self, source: Iterator[Any]) -> Iterator[Any]:
        """The batches of `source`, with an event before and after each wait."""
        spare, event, passing = self._spare, self._event, self._passing
        while True:
            asked = spare.pop() if spare else event()
            asked.record()
            try:
                batch = next(source)
            except StopIteration:
                spare.append(asked)
                return
            delivered = spare.pop() if spare else event()
            delivered.record()
            passing.append((asked, delivered))
            yield batch

    @property
    def done(self) -> bool:
        """Whether the epoch has ended and all its events were read."""
        return self.ended and not self._passing

    def take(self) -> GpuIdle | None:
        """The idle times that the device has passed since the last call; None if there are none."""
        found = []
        passing = self._passing
        while passing and passing[0][1].query():
            asked, delivered = passing.popleft()
            found.append(round(asked.elapsed_time(delivered) * MS_NS))
            self._spare += (asked, delivered)
        first, self._read = self._read, self._read + len(found)
        return GpuIdle(self._epoch, first, np.array(found, np.int64)) if found else None

    def wait(self) -> None:
        """Wait until the device has passed all events."""
        if self._passing:
            self._passing[-1][1].synchronize()


def _cuda() -> Any:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None
