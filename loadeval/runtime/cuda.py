"""The CUDA device: synchronising with it, and how long it was idle by its own clock."""

from __future__ import annotations

import sys
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.runlog.columns import UNKNOWN
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
    """How long the device is idle in each wait of one epoch, and busy in each step, by its clock.

    An event is queued behind all work of the current stream when the consumer asks for a batch,
    and another one at its delivery. The device passes the first when its work is done, and the
    second then or at the delivery, whichever is later: in between it was idle. Up to the next
    request's event it does what the step has queued. Events are read later, after the device has
    passed them, so that nothing waits for it.
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
            except BaseException as error:
                passing.append((asked, None))
                if isinstance(error, StopIteration):
                    return
                raise
            delivered = spare.pop() if spare else event()
            delivered.record()
            passing.append((asked, delivered))
            yield batch

    def end_step(self) -> None:
        """The step ends here: what comes next is no request for the next batch."""
        event = self._spare.pop() if self._spare else self._event()
        event.record()
        self._passing.append((event, None))

    @property
    def done(self) -> bool:
        """Whether the epoch has ended and all its events were read."""
        return self.ended and not self._passing

    def take(self) -> GpuIdle | None:
        """The times that the device has passed since the last call; None if there are none.

        The last step of an epoch that was broken off is UNKNOWN.
        """
        idle_ns, step_ns = [], []
        passing = self._passing
        while passing:
            asked, delivered = passing[0]
            after = passing[1][0] if len(passing) > 1 else None
            if delivered is not None:
                if after is None and not self.ended:
                    break
                if not (delivered if after is None else after).query():
                    break
                idle_ns.append(_elapsed_ns(asked, delivered))
                step_ns.append(UNKNOWN if after is None else _elapsed_ns(delivered, after))
                self._spare.append(delivered)
            elif not asked.query():
                break
            passing.popleft()
            self._spare.append(asked)
        first, self._read = self._read, self._read + len(idle_ns)
        if not idle_ns:
            return None
        return GpuIdle(self._epoch, first, np.array(idle_ns, np.int64), np.array(step_ns, np.int64))

    def wait(self) -> None:
        """Wait until the device has passed all events."""
        if self._passing:
            asked, delivered = self._passing[-1]
            (asked if delivered is None else delivered).synchronize()


def _elapsed_ns(begin: Any, end: Any) -> int:
    elapsed_ms: float = begin.elapsed_time(end)
    return round(elapsed_ms * MS_NS)


def _cuda() -> Any:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None
