"""What the thread that pins a DataLoader's batches does, by the queues on both sides of it."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from loadeval_adapters.pytorch_channel import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    Pinned = dict[int, tuple[int, int, int]]
    """Start and end of reading a batch, and nanoseconds of pinning it, by torch's number of it."""


class Pins:
    """When the thread that pins batches got each, and how long it took to pin it."""

    def __init__(self) -> None:
        self._by_queue: dict[int, Pinned] = {}

    def of(self, queue: Any) -> Pinned:
        """What the loop has noted of batches from `queue`."""
        return self._by_queue.setdefault(id(queue), {})

    def timed(self, loop: Callable[..., None]) -> Callable[..., None]:
        """Wrap torch's `loop` to time it."""

        def timed_loop(incoming: Any, outgoing: Any, *args: Any) -> None:
            pins = self.of(incoming)
            loop(TimedIncoming(incoming, pins), TimedOutgoing(outgoing, pins), *args)

        return timed_loop


class TimedIncoming:
    """The queue from which the pinning thread reads."""

    def __init__(self, queue: Any, pins: Pinned) -> None:
        self._queue, self._pins = queue, pins

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Get from the queue, and note when."""
        start = perf_counter_ns()
        got = self._queue.get(*args, **kwargs)
        if type(got[0]) is int:
            self._pins[got[0]] = start, perf_counter_ns(), UNKNOWN
        return got


class TimedOutgoing:
    """The queue into which the pinning thread puts batches."""

    def __init__(self, queue: Any, pins: Pinned) -> None:
        self._queue, self._pins = queue, pins

    def put(self, item: Any, *args: Any, **kwargs: Any) -> Any:
        """Put into the queue, and note how long pinning took."""
        now = perf_counter_ns()
        if type(item[0]) is int and item[0] in self._pins:
            start, end, _ = self._pins[item[0]]
            self._pins[item[0]] = start, end, now - end
        return self._queue.put(item, *args, **kwargs)
